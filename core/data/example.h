/* SPDX-License-Identifier: Apache-2.0 */
/* What a task makes of a record: none, one or several examples, each the ids of inputs and targets with their end tokens.
 * Pairs are two templates filled with the record's fields. Each running text of a record is cut into pieces of so many tokens, and each
 * piece becomes a pair by span corruption or a prefix (spans.h). */
#ifndef SYI_EXAMPLE_H
#define SYI_EXAMPLE_H

#include "data/record.h"
#include "data/spans.h"
#include "data/template.h"

/* How a task's examples are made; plain data, nothing to free. */
struct syi_example_form {
    const struct syi_config *config;             /* borrowed */
    const struct syi_task_part *task;            /* of it */
    const struct syi_vocabularies *vocabularies; /* borrowed */
    const struct syi_record_format *format;
    struct syi_template inputs, targets; /* targets: of pairs only */
    int32_t max_input, max_target;       /* tokens, end token included */
    struct syi_span_shape shape;         /* of span corruption */
    int32_t piece;                       /* tokens of running text in an example; 0: pairs */
};

/* Of a task of the run file. config and vocabularies are borrowed. */
int syi_example_form_make(struct syi_example_form *form, const struct syi_config *config,
                          const struct syi_task_part *task, const struct syi_vocabularies *vocabularies,
                          struct sy_error *err) SYI_MUST_CHECK;

/* A record being made into examples. Start from {0}; what it holds grows to what the largest record needs. */
struct syi_example_maker {
    struct syi_fields fields;
    struct syi_text text;
    struct syi_ids tokens; /* of running text, all texts of the record one after the other */
    size_t *end;           /* [n] where the piece of each example ends in them; of running text only */
    size_t capacity;       /* of end */
    size_t n;              /* examples of the record */
};
void syi_example_maker_free(struct syi_example_maker *maker);

/* Takes a record up: maker->n is how many examples it gives. The record stays where it is while they are made.
 * SY_EFORMAT: it is not as the format or the templates want it; the message does not say where it stands. */
int syi_example_begin(struct syi_example_maker *maker, const struct syi_example_form *form,
                      struct syi_span record, struct sy_error *err) SYI_MUST_CHECK;

/* What is known of an example without its tokens. */
struct syi_example_size {
    int32_t input; /* tokens of the inputs, end token included; of running text, of the piece, no end token */
    int32_t target; /* tokens of the targets, end token included; of running text 0 */
};
/* Of example k of the record at hand. *fits 0: it is longer than a row, or too short to be cut in two. Sizes are those
 * after trimming, at most SYI_MAX_LENGTH. SY_EINVAL: spans of the task's shape cannot be cut out of it. */
int syi_example_measure(struct syi_example_maker *maker, const struct syi_example_form *form, size_t k,
                        struct syi_example_size *size, int *fits, struct sy_error *err) SYI_MUST_CHECK;
/* Lengths of both sides, end tokens included, of an example that fits. key: see syi_example_make. */
void syi_example_lengths(const struct syi_example_form *form, struct syi_example_size size, uint64_t key,
                         int32_t *input, int32_t *target);
/* The ids of example k, which fits; inputs and targets are emptied first. key decides where spans lie and prefixes
 * end: the same key, the same example. */
int syi_example_make(struct syi_example_maker *maker, const struct syi_example_form *form, size_t k,
                     uint64_t key, struct syi_ids *inputs, struct syi_ids *targets,
                     struct sy_error *err) SYI_MUST_CHECK;

/* The text of a template for example k of the record at hand, in maker->text; for messages and evaluation. */
int syi_example_text(struct syi_example_maker *maker, const struct syi_template *form, size_t k,
                     struct syi_span *text, struct sy_error *err) SYI_MUST_CHECK;

#endif
