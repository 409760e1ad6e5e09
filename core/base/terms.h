/* SPDX-License-Identifier: Apache-2.0 */
/* Terms: calls with arguments, as a string of a run file has them: "scale_by_adam(b1=0.9, b2=0.98)". Arguments are
 * given by name, or in their order; each has type, default and range like an option of a run file. Some kinds hold
 * terms, written in front of their arguments: "masked(trace(decay=0.9), mask=['*kernel*'])". Strings in a term may
 * stand in single quotes, since a run file has the term itself in double ones.
 *
 * Kinds stand in tables of their own (transforms.def, schedules.def), one block a kind:
 *
 *   SY_TERM_BEGIN(name, INNER, RATE or PLAIN, help)
 *   SY_ARGUMENT(name, key, type, default, range, help)     as SY_OPTION of options.def
 *   SY_TERM_END(name)
 *
 * which terms_begin.h turns into the structures of their values and into the table. */
#ifndef SYI_TERMS_H
#define SYI_TERMS_H

#include "base/run_config.h"

struct syi_term_kind {
    const char *name, *help;
    int inner; /* 1: holds terms */
    int rate;  /* 1: multiplies by the learning rate and turns the sign; transforms only */
    const struct syi_option *arguments; /* [n_arguments] */
    size_t n_arguments;
    size_t bytes; /* of the structure of its values */
};

enum { SYI_TERMS = 24, SYI_TERM_BYTES = 4480 }; /* most terms of a list; bytes of the values of one */

/* The values are a structure of the kind's: struct syi_term_NAME. */
struct syi_term {
    const struct syi_term_kind *kind;
    int end; /* the terms it holds are those from the next one to this index */
    _Alignas(8) unsigned char values[SYI_TERM_BYTES];
};

/* Plain data; large: not for the stack. Start from {0}. */
struct syi_terms {
    int n;
    struct syi_term term[SYI_TERMS];
};

enum { SYI_TERM_REASON = 2 * SYI_REASON };

/* Adds the term that the text up to its end is, with those it holds. On failure SY_EINVAL and one sentence in reason:
 * an unknown name and the nearest known one, an argument that the kind does not take, a value out of range. */
int syi_terms_read(struct syi_terms *terms, const struct syi_term_kind *kinds, size_t n_kinds,
                   const char *text, char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
/* The same for a product: terms with '*' between them. An empty text is refused. */
int syi_terms_read_product(struct syi_terms *terms, const struct syi_term_kind *kinds, size_t n_kinds,
                           const char *text, char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
/* Adds a term that holds none, with its defaults; its values, or NULL where the list is full. */
void *syi_terms_add(struct syi_terms *terms, const struct syi_term_kind *kind);
/* Term i as syi_terms_read takes it, all arguments given. */
void syi_terms_print(const struct syi_terms *terms, int i, struct syi_text *out);
/* All of them as the list of strings that optimizer.chain takes. */
void syi_terms_print_list(const struct syi_terms *terms, struct syi_text *out);
/* How many terms stand between begin and the term, those that others hold not counted. */
int syi_terms_place(const struct syi_terms *terms, int begin, int term);
/* What the kind is, and each argument with its help, values and default, on lines of their own. */
void syi_term_describe(const struct syi_term_kind *kind, struct syi_text *out);

#endif
