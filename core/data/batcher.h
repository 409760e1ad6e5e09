/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of training batches. The batch of any step is a pure function of (task, options, step): an epoch
 * is a computed permutation of the examples, a pool of some batches is sorted by length and cut, and the
 * batches of a pool come in a computed order. So continuing a run is fetching its next step, nothing is
 * replayed. */
#ifndef SYI_BATCHER_H
#define SYI_BATCHER_H

#include "base/base.h"
#include "data/batch.h"
#include "data/task.h"

struct syi_batcher_options {
    const struct syi_bucket *buckets; /* (n_buckets) borrowed, copied at creation */
    int n_buckets;
    int32_t batch_size;    /* examples a batch (global) */
    int32_t pool_batches;  /* batches that are sorted by length together; 1 sorts nothing across batches */
    uint64_t seed;         /* of the order */
    int64_t warm_examples; /* the stream begins with that many short examples; 0 for none */
    int32_t
        warm_max_target; /* tokens of the longest target that counts as short, the end token not counted */
    int quiet;           /* 1: does not log what is left out (another rank does) */
};

struct syi_candidate {
    int32_t example;                     /* of the task */
    int32_t input_length, target_length; /* tokens, end token included */
};

struct syi_batcher {
    const struct syi_task *task;                 /* borrowed */
    const struct syi_vocabularies *vocabularies; /* borrowed */
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    int32_t batch_size, pool_batches;
    uint64_t seed;
    int64_t warm_examples;
    struct syi_candidate *candidates; /* (n_candidates) examples that fit the longest bucket, in file order */
    int32_t n_candidates;
    int32_t *warm; /* (n_warm) candidates that count as short */
    int32_t n_warm;
    int32_t n_skipped;     /* examples left out of training because they are too long */
    int32_t first_skipped; /* the first of them, -1 for none */
    int64_t pool;          /* which pool keys and drawn hold, -1 for none */
    uint64_t *keys; /* (pool_batches * batch_size) sorted: target length, input length, place in drawn */
    int32_t *drawn; /* (pool_batches * batch_size) candidates of the pool in stream order */
};

/* What is left out as too long is counted in n_skipped and logged. */
int syi_batcher_create(struct syi_batcher *batcher, const struct syi_task *task,
                       const struct syi_vocabularies *vocabularies, const struct syi_batcher_options *options,
                       struct sy_error *err) SYI_MUST_CHECK;
void syi_batcher_free(struct syi_batcher *batcher);
/* The batch of `step` (0, 1, ...). Does not allocate; a step of another pool than the last one asked for
 * costs the sorting of that pool. One thread at a time. out has batch_size rows and room for the buckets. */
int syi_batcher_fetch(struct syi_batcher *batcher, int64_t step, struct syi_batch *out,
                      struct sy_error *err) SYI_MUST_CHECK;
/* The task's example at a place of the stream (0, 1, ...). */
int32_t syi_batcher_example(const struct syi_batcher *batcher, int64_t place);
/* Passes over the data that are finished after `steps` steps, the warm start not counted. */
double syi_batcher_epochs(const struct syi_batcher *batcher, int64_t steps);

#endif
