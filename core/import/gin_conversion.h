/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion of gin to a run file while it is made, for the files of it:
 *   gin_convert.c   the table of keys, all bindings, the run file
 *   gin_values.c    a value of gin as one of a run file
 *   gin_optax.c     optimizers of optax
 * Nothing here fails: what cannot be converted is a note, lack of memory is kept in the notes. */
#ifndef SYI_GIN_CONVERSION_H
#define SYI_GIN_CONVERSION_H

#include "base/run_config.h"
#include "import/gin.h"

enum { SYI_GIN_KEYS = 256, SYI_GIN_FACTORS = 4, SYI_GIN_TEXT = 512 };

/* A key that has a value, and from where. */
struct syi_gin_set_key {
    char name[SYI_KEY];
    const struct syi_gin_binding *from; /* NULL: what T5X does by default */
};

struct syi_gin_conversion {
    const struct syi_gin *gin;
    struct syi_config config;
    const char *decoder; /* the function that T5X decodes with, without its module; "" what is none */
    struct syi_gin_set_key set[SYI_GIN_KEYS];
    int n_set;
    struct {
        const char *factor, *argument; /* [length of the name of the factor in factor] */
        char value[SYI_NUMBER_BYTES * 2];
    } factor[SYI_GIN_FACTORS];
    int n_factors;
    struct syi_text task;  /* its name */
    struct syi_text notes; /* lines of what was not converted */
    struct sy_error *err;
};

/* A binding's name taken apart; all borrowed of gin but what is copied. */
struct syi_gin_name {
    char scope[64], last[128]; /* innermost scope; "Class.parameter" or a macro */
    char class[128];           /* "" of a macro */
    const char *parameter;
};

/* ---- gin_values.c; values are numbers of nodes, resolved ---- */

struct syi_gin_name syi_gin_take_apart(const char *name);
const char *syi_gin_text_of(const struct syi_gin_conversion *c, uint32_t value);
const char *syi_gin_name_of(const struct syi_gin_conversion *c, const struct syi_gin_binding *binding);
/* The last binding of "CLASS.PARAMETER", the class with * for any characters; NULL: there is none. */
const struct syi_gin_binding *syi_gin_find_binding(const struct syi_gin_conversion *c, const char *class,
                                                   const char *parameter);
/* What a value refers to, "x" of @module.x(); "": it refers to nothing. Takes SYI_GIN_NONE, too. */
const char *syi_gin_referred_to(const struct syi_gin_conversion *c, uint32_t value);
/* True, False or None, whichever `word` is; SYI_GIN_NONE is no word. */
int syi_gin_is_word(const struct syi_gin_conversion *c, uint32_t value, const char *word);
/* The text of a number, a word or a string as a run file has it; NULL: something else. */
const char *syi_gin_plain_text(const struct syi_gin_conversion *c, uint32_t value);
/* None, False, or empty. */
int syi_gin_is_nothing(const struct syi_gin_conversion *c, uint32_t value);

/* Appends a text and an end of line, its control characters as '?': a line of a file stays one. */
void syi_gin_put_line(struct syi_text *out, const char *text);
void syi_gin_note(struct syi_gin_conversion *c, uint32_t file, int line, const char *what, const char *why);
void syi_gin_note_binding(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                          const char *why);

/* NULL: the key has no value yet. */
struct syi_gin_set_key *syi_gin_find_set(struct syi_gin_conversion *c, const char *key);
/* Sets the key; a value that the run file refuses is a note. from: NULL for a default. */
void syi_gin_set(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                 const char *value);
/* A number, a string, True or False; none: what None stands for, NULL: nothing. */
void syi_gin_set_value(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                       const char *none, uint32_t value);
/* A name, by a list "theirs=ours ...". */
void syi_gin_set_choice(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                        const char *names, uint32_t value);
void syi_gin_set_activations(struct syi_gin_conversion *c, const struct syi_gin_binding *from,
                             const char *key, uint32_t value);
/* {'inputs': 512, 'targets': 114} */
void syi_gin_set_lengths(struct syi_gin_conversion *c, const struct syi_gin_binding *from, uint32_t value);
/* A number for an argument of a factor of the learning rate, or of two; key and other, "factor.argument", are kept. other
 * NULL: one. */
void syi_gin_set_factor(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                        const char *other, uint32_t value);

/* ---- gin_optax.c; after the optimizer's name is known ---- */

void syi_gin_set_optax_defaults(struct syi_gin_conversion *c);
/* optimizers.chain: the optimizer among its transformations is that of the run. */
void syi_gin_take_chain(struct syi_gin_conversion *c);
/* An argument of the optimizer that is in force, whose keys have optax's names; 0: it is none. */
int syi_gin_convert_optax(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                          const struct syi_gin_name *name, uint32_t value);
/* The learning rate of an optimizer of optax is its own, a number or a schedule. After all bindings. */
void syi_gin_take_rate(struct syi_gin_conversion *c);

#endif
