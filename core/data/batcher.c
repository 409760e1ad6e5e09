/* SPDX-License-Identifier: Apache-2.0 */
/* Draws training batches: stream place to example, pool, sort, cut. Filling rows is batch.c's. */
#include "config.h"

#include <string.h>

#include "data/batcher.h"
#include "data/shuffle.h"

enum { STREAM_MAIN = 1, STREAM_WARM, STREAM_BATCH_ORDER };
/* A sort key: target length, input length (20 bits each), place in the pool. */
enum { LENGTH_BITS = 20, PLACE_BITS = 24 };

static int check_options(const struct syi_batcher_options *options, struct sy_error *err)
{
    if (options->batch_size < 1 || options->pool_batches < 1 ||
        (int64_t)options->batch_size * options->pool_batches > 1 << PLACE_BITS)
        return syi_error(err, SY_EINVAL,
                         "batch of %d rows, pool of %d batches: both at least 1, a pool at most %d rows",
                         options->batch_size, options->pool_batches, 1 << PLACE_BITS);
    if (options->warm_examples < 0)
        return syi_error(err, SY_EINVAL, "%lld warm-up examples; give 0 or more",
                         (long long)options->warm_examples);
    return syi_buckets_check(options->buckets, options->n_buckets, err);
}

/* Tokens of both sides of an example, end tokens included. */
static int measure(const struct syi_batcher *batcher, int32_t example, size_t *input, size_t *target,
                   struct sy_error *err)
{
    const struct syi_vocabularies *v = batcher->vocabularies;
    int status =
        syi_vocabulary_encode(&v->input, syi_task_input(batcher->task, example), NULL, 0, input, err);
    if (!status)
        status =
            syi_vocabulary_encode(&v->target, syi_task_target(batcher->task, example), NULL, 0, target, err);
    if (status) return status;
    ++*input;
    ++*target;
    return SY_OK;
}

static int choose_candidates(struct syi_batcher *batcher, int32_t warm_max_target, struct sy_error *err)
{
    const struct syi_task *task = batcher->task;
    size_t input_length, target_length;

    batcher->first_skipped = -1;
    for (int32_t i = 0; i < task->n_examples; i++) {
        int status = measure(batcher, i, &input_length, &target_length, err);
        if (status) return status;
        if (syi_buckets_fit(batcher->buckets, batcher->n_buckets, input_length, target_length) < 0) {
            if (batcher->n_skipped++ == 0) batcher->first_skipped = i;
            continue;
        }
        if (warm_max_target >= 0 && target_length - 1 <= (size_t)warm_max_target)
            batcher->warm[batcher->n_warm++] = batcher->n_candidates;
        batcher->candidates[batcher->n_candidates++] =
            (struct syi_candidate){i, (int32_t)input_length, (int32_t)target_length};
    }
    return SY_OK;
}

static int report_candidates(const struct syi_batcher *batcher, const struct syi_batcher_options *options,
                             struct sy_error *err)
{
    struct syi_bucket longest = syi_buckets_longest(batcher->buckets, batcher->n_buckets);
    struct syi_span input;

    if (batcher->n_candidates == 0)
        return syi_error(err, SY_EINVAL, "%s: no example fits %d x %d tokens; raise the length buckets",
                         batcher->task->path, longest.input_length, longest.target_length);
    if (batcher->warm_examples > 0 && batcher->n_warm == 0)
        return syi_error(err, SY_EINVAL,
                         "%s: no target of at most %d tokens to warm up with; raise that length",
                         batcher->task->path, options->warm_max_target);
    if (batcher->n_skipped > 0 && !options->quiet) {
        input = syi_task_input(batcher->task, batcher->first_skipped);
        syi_log(SY_LOG_WARN,
                "%s: %d of %d examples are longer than %d x %d tokens and left out, first \"%.*s\"",
                batcher->task->path, batcher->n_skipped, batcher->task->n_examples, longest.input_length,
                longest.target_length, input.bytes < 40 ? (int)input.bytes : 40, input.text);
    }
    return SY_OK;
}

int syi_batcher_create(struct syi_batcher *batcher, const struct syi_task *task,
                       const struct syi_vocabularies *vocabularies, const struct syi_batcher_options *options,
                       struct sy_error *err)
{
    size_t n = (size_t)task->n_examples + 1, pool_rows;
    int status;

    memset(batcher, 0, sizeof(*batcher));
    status = check_options(options, err);
    if (status) return status;
    batcher->task = task;
    batcher->vocabularies = vocabularies;
    memcpy(batcher->buckets, options->buckets, (size_t)options->n_buckets * sizeof(batcher->buckets[0]));
    batcher->n_buckets = options->n_buckets;
    batcher->batch_size = options->batch_size;
    batcher->pool_batches = options->pool_batches;
    batcher->seed = options->seed;
    batcher->warm_examples = options->warm_examples;
    batcher->pool = -1;
    pool_rows = (size_t)options->batch_size * (size_t)options->pool_batches;
    batcher->candidates = syi_alloc(n * sizeof(*batcher->candidates), err);
    batcher->warm = syi_alloc(n * sizeof(*batcher->warm), err);
    batcher->keys = syi_alloc(pool_rows * sizeof(*batcher->keys), err);
    batcher->drawn = syi_alloc(pool_rows * sizeof(*batcher->drawn), err);
    status = SY_ENOMEM;
    if (!batcher->candidates || !batcher->warm || !batcher->keys || !batcher->drawn) goto fail;
    status = choose_candidates(batcher, options->warm_max_target, err);
    if (!status) status = report_candidates(batcher, options, err);
    if (status) goto fail;
    return SY_OK;
fail:
    syi_batcher_free(batcher);
    return status;
}

void syi_batcher_free(struct syi_batcher *batcher)
{
    syi_free(batcher->candidates);
    syi_free(batcher->warm);
    syi_free(batcher->keys);
    syi_free(batcher->drawn);
    memset(batcher, 0, sizeof(*batcher));
}

static int32_t draw(const struct syi_batcher *batcher, int64_t place)
{
    uint64_t n = (uint64_t)batcher->n_candidates, at = (uint64_t)place, stream = STREAM_MAIN, index;
    int warm = place < batcher->warm_examples;

    if (warm) {
        n = (uint64_t)batcher->n_warm;
        stream = STREAM_WARM;
    } else {
        at -= (uint64_t)batcher->warm_examples;
    }
    index = syi_shuffle_index(syi_shuffle_key(syi_shuffle_key(batcher->seed, stream), at / n), n, at % n);
    return warm ? batcher->warm[index] : (int32_t)index;
}

int32_t syi_batcher_example(const struct syi_batcher *batcher, int64_t place)
{
    return batcher->candidates[draw(batcher, place)].example;
}

static void sift_down(uint64_t *keys, size_t root, size_t n)
{
    uint64_t key = keys[root];
    size_t child;

    while ((child = 2 * root + 1) < n) {
        if (child + 1 < n && keys[child + 1] > keys[child]) child++;
        if (keys[child] <= key) break;
        keys[root] = keys[child];
        root = child;
    }
    keys[root] = key;
}

/* Heapsort, because qsort of the C library may allocate. */
static void sort_keys(uint64_t *keys, size_t n)
{
    uint64_t last;

    for (size_t i = n / 2; i-- > 0;) sift_down(keys, i, n);
    while (n-- > 1) {
        last = keys[n];
        keys[n] = keys[0];
        keys[0] = last;
        sift_down(keys, 0, n);
    }
}

static void fill_pool(struct syi_batcher *batcher, int64_t pool)
{
    int64_t n = (int64_t)batcher->batch_size * batcher->pool_batches;
    const struct syi_candidate *candidate;

    for (int64_t i = 0; i < n; i++) {
        batcher->drawn[i] = draw(batcher, pool * n + i);
        candidate = &batcher->candidates[batcher->drawn[i]];
        batcher->keys[i] = (uint64_t)candidate->target_length << (LENGTH_BITS + PLACE_BITS) |
                           (uint64_t)candidate->input_length << PLACE_BITS | (uint64_t)i;
    }
    sort_keys(batcher->keys, (size_t)n);
    batcher->pool = pool;
}

int syi_batcher_fetch(struct syi_batcher *batcher, int64_t step, struct syi_batch *out, struct sy_error *err)
{
    size_t longest_input = 0, longest_target = 0, place_mask = ((size_t)1 << PLACE_BITS) - 1;
    const struct syi_candidate *candidate;
    const uint64_t *rows;
    struct syi_span target;
    uint64_t slot;

    if (step < 0 || step > INT64_MAX / batcher->batch_size - batcher->pool_batches)
        return syi_error(err, SY_EINVAL, "data: there is no batch for step %lld", (long long)step);
    if (out->rows != batcher->batch_size)
        return syi_error(err, SY_EINTERNAL, "data: a batch of %d rows for a stream of %d", out->rows,
                         batcher->batch_size);
    if (step / batcher->pool_batches != batcher->pool) fill_pool(batcher, step / batcher->pool_batches);
    slot = syi_shuffle_index(
        syi_shuffle_key(syi_shuffle_key(batcher->seed, STREAM_BATCH_ORDER), (uint64_t)batcher->pool),
        (uint64_t)batcher->pool_batches, (uint64_t)(step % batcher->pool_batches));
    rows = batcher->keys + slot * (uint64_t)batcher->batch_size;
    for (int32_t i = 0; i < batcher->batch_size; i++) {
        candidate = &batcher->candidates[batcher->drawn[rows[i] & place_mask]];
        if ((size_t)candidate->input_length > longest_input) longest_input = (size_t)candidate->input_length;
        if ((size_t)candidate->target_length > longest_target)
            longest_target = (size_t)candidate->target_length;
    }
    syi_batch_begin(out, batcher->buckets,
                    syi_buckets_fit(batcher->buckets, batcher->n_buckets, longest_input, longest_target));
    for (int32_t i = 0; i < batcher->batch_size; i++) {
        candidate = &batcher->candidates[batcher->drawn[rows[i] & place_mask]];
        target = syi_task_target(batcher->task, candidate->example);
        int status = syi_batch_add(out, batcher->vocabularies, candidate->example,
                                   syi_task_input(batcher->task, candidate->example), &target, err);
        if (status) return status;
    }
    return SY_OK;
}

double syi_batcher_epochs(const struct syi_batcher *batcher, int64_t steps)
{
    double examples = (double)steps * batcher->batch_size - (double)batcher->warm_examples;
    return examples > 0 ? examples / batcher->n_candidates : 0;
}
