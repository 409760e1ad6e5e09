/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of training. The batch of any step is a pure function of (stream, options, step): either a pool of some
 * batches is sorted by length and cut, and the batches of a pool come in a computed order; or the rows of the packed
 * stream follow one another. Batches are planned from lengths alone; texts are read of the rows that a rank holds. */
#ifndef SYI_BATCHER_H
#define SYI_BATCHER_H

#include "data/packing.h"

struct syi_batcher_options {
    const struct syi_bucket *buckets; /* (n_buckets) borrowed, copied at creation */
    int n_buckets;
    int32_t batch_size;   /* rows of a batch (global) */
    int32_t pool_batches; /* batches that are sorted by length together; 1 sorts nothing across batches */
    int pack;             /* 1: rows hold several examples; there is one bucket then */
    /* (batch_size) 1: the row's text is read; other rows get end tokens in place of their tokens, for their lengths
     * count, unless texts may hold padding (special_tokens of Hugging Face). NULL: all are. Borrowed, copied at
     * creation */
    const uint8_t *mine;
};

struct syi_batcher {
    struct syi_mixture *mixture; /* borrowed; its datasets are read by the thread that fetches */
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    int32_t batch_size, pool_batches;
    uint8_t *mine;  /* (batch_size), NULL: all rows */
    int64_t pool;   /* which pool keys and drawn hold, -1 for none */
    uint64_t *keys; /* (pool_batches * batch_size) sorted: target length, input length, place in drawn */
    struct syi_placed *drawn;       /* (pool_batches * batch_size) examples of the pool in stream order */
    struct syi_packing packing;     /* of packed rows; else zeroed */
    struct syi_ids inputs, targets; /* of the example at hand */
};

int syi_batcher_create(struct syi_batcher *batcher, struct syi_mixture *mixture,
                       const struct syi_batcher_options *options, struct sy_error *err) SYI_MUST_CHECK;
void syi_batcher_free(struct syi_batcher *batcher); /* also of a zeroed one */
/* The batch of `step` (0, 1, ...). A step of another pool than the last one asked for costs the sorting of that pool; one
 * of packed rows before the last one asked for, the planning of all windows before it. One thread at a time. out has
 * batch_size rows and room for the buckets. */
int syi_batcher_fetch(struct syi_batcher *batcher, int64_t step, struct syi_batch *out,
                      struct sy_error *err) SYI_MUST_CHECK;
/* The longest input and target of a step's batch, of rows that are not packed; no text is read. */
int syi_batcher_longest(struct syi_batcher *batcher, int64_t step, struct syi_bucket *longest,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Of packed rows: where to begin looking, out->position of a batch of a step not after those that will be asked for. */
void syi_batcher_seek(struct syi_batcher *batcher, struct syi_row_position position);

#endif
