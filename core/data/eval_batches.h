/* SPDX-License-Identifier: Apache-2.0 */
/* Batches over a fixed list of texts or examples, for evaluation and prediction: every one in exactly one row, rows of
 * similar length together, results mapped back by batch.items. What is too long is in no batch and listed as
 * cut. */
#ifndef SYI_EVAL_BATCHES_H
#define SYI_EVAL_BATCHES_H

#include "base/base.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/task.h"

struct syi_eval_batch {
    int32_t first, n; /* rows order[first .. first + n) */
    int bucket;
};

struct syi_eval_batches {
    const struct syi_vocabularies *vocabularies; /* borrowed */
    const struct syi_span *inputs;               /* (n_items) borrowed */
    const struct syi_span *targets;              /* (n_items) borrowed, or NULL: batches without targets */
    struct syi_dataset *dataset;                 /* borrowed; in place of texts: its first n_items examples */
    struct syi_ids input_ids, target_ids;        /* of the example at hand */
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    int32_t rows; /* of a batch; the last of each bucket is filled up with padding rows */
    int32_t n_items;
    int32_t *order; /* (n_items - n_cut) items in batch order */
    struct syi_eval_batch *batches;
    int32_t n_batches;
    int32_t *cut; /* (n_cut) items that are too long, ascending: the caller counts them as wrong */
    int32_t n_cut;
};

/* With targets (a loss is wanted) a bucket must hold both sides; without (decoding) the input alone chooses
 * it, so that what can be answered does not depend on the reference, and out->target_length is no limit for
 * the decoder. */
int syi_eval_batches_create(struct syi_eval_batches *batches, const struct syi_vocabularies *vocabularies,
                            const struct syi_bucket *buckets, int n_buckets, int32_t rows,
                            const struct syi_span *inputs, const struct syi_span *targets, int32_t n_items,
                            struct sy_error *err) SYI_MUST_CHECK;
/* The same over the first examples of a dataset, which its task makes from running text. What is drawn for them is the
 * same at every evaluation. */
int syi_eval_batches_create_of(struct syi_eval_batches *batches, struct syi_dataset *dataset,
                               const struct syi_bucket *buckets, int n_buckets, int32_t rows, int32_t n_items,
                               struct sy_error *err) SYI_MUST_CHECK;
void syi_eval_batches_free(struct syi_eval_batches *batches);
/* Batch `index` of 0..n_batches-1; out has `rows` rows. */
int syi_eval_batches_fetch(struct syi_eval_batches *batches, int32_t index, struct syi_batch *out,
                           struct sy_error *err) SYI_MUST_CHECK;

/* Inputs and first references of a task's items as arrays (n_items) each, owned by the caller: syi_free.
 * targets may be NULL. */
int syi_eval_spans(const struct syi_task *task, const struct syi_items *items, struct syi_span **inputs,
                   struct syi_span **targets, struct sy_error *err) SYI_MUST_CHECK;

#endif
