/* SPDX-License-Identifier: Apache-2.0 */
/* Plans training batches (pool, sort, cut; or rows of the packed stream) and fills the rows that are wanted. */
#include "config.h"

#include <string.h>

#include "data/batcher.h"
#include "data/shuffle.h"

enum { STREAM_BATCH_ORDER = 3 };
/* A sort key: target length, input length (20 bits each), place in the pool. */
enum { LENGTH_BITS = 20, PLACE_BITS = 24, PLACE_MASK = (1 << PLACE_BITS) - 1 };

static int check_options(const struct syi_batcher_options *options, struct sy_error *err)
{
    if (options->batch_size < 1 || options->pool_batches < 1 ||
        (int64_t)options->batch_size * options->pool_batches > 1 << PLACE_BITS)
        return syi_error(err, SY_EINVAL,
                         "batch of %d rows, pool of %d batches: both at least 1, a pool at most %d rows",
                         options->batch_size, options->pool_batches, 1 << PLACE_BITS);
    return syi_buckets_check(options->buckets, options->n_buckets, err);
}

static int open_pool(struct syi_batcher *b, struct sy_error *err)
{
    size_t rows = (size_t)b->batch_size * (size_t)b->pool_batches;
    b->pool = -1;
    b->keys = syi_alloc(rows * sizeof *b->keys, err);
    b->drawn = syi_alloc(rows * sizeof *b->drawn, err);
    return b->keys && b->drawn ? SY_OK : SY_ENOMEM;
}

int syi_batcher_create(struct syi_batcher *b, struct syi_mixture *mixture,
                       const struct syi_batcher_options *options, struct sy_error *err)
{
    memset(b, 0, sizeof *b);
    int status = check_options(options, err);
    if (status) return status;
    b->mixture = mixture;
    memcpy(b->buckets, options->buckets, (size_t)options->n_buckets * sizeof b->buckets[0]);
    b->n_buckets = options->n_buckets;
    b->batch_size = options->batch_size;
    b->pool_batches = options->pool_batches;
    if (options->mine) {
        b->mine = syi_alloc((size_t)b->batch_size, err);
        if (!b->mine) return SY_ENOMEM;
        memcpy(b->mine, options->mine, (size_t)b->batch_size);
    }
    status = options->pack ? syi_packing_open(&b->packing, mixture, b->buckets[0], err) : open_pool(b, err);
    if (status) syi_batcher_free(b);
    return status;
}

void syi_batcher_free(struct syi_batcher *b)
{
    syi_free(b->mine);
    syi_free(b->keys);
    syi_free(b->drawn);
    syi_packing_close(&b->packing);
    syi_ids_free(&b->inputs);
    syi_ids_free(&b->targets);
    memset(b, 0, sizeof *b);
}

void syi_batcher_seek(struct syi_batcher *b, struct syi_row_position position)
{
    if (b->packing.mixture) syi_packing_seek(&b->packing, position);
}

/* ---- filling ---- */

static int fill_with(struct syi_ids *ids, int32_t id, int32_t n, struct sy_error *err)
{
    int status = SYI_GROW(ids->id, ids->capacity, (size_t)n, err);
    for (int32_t i = 0; !status && i < n; i++) ids->id[i] = id;
    ids->n = (size_t)n;
    return status;
}

/* Whether lengths alone give the weights of a row of another rank: a special token in a text may be padding. */
static int can_stand_in(const struct syi_batcher *b, const struct syi_placed *x, int32_t row)
{
    const struct syi_vocabularies *v = b->mixture->dataset[x->pick.task].form.vocabularies;
    return b->mine && !b->mine[row] && !v->input.special_text && !v->target.special_text;
}

/* Of the tokens of such a row no one looks at more than how many there are. */
static int stand_in(struct syi_batcher *b, const struct syi_placed *x, struct sy_error *err)
{
    const struct syi_vocabularies *v = b->mixture->dataset[x->pick.task].form.vocabularies;
    int status = fill_with(&b->inputs, v->input.end, x->input, err);
    return status ? status : fill_with(&b->targets, v->target.end, x->target, err);
}

static int put_example(struct syi_batcher *b, const struct syi_placed *x, int32_t row, struct syi_batch *out,
                       struct sy_error *err)
{
    struct syi_slot slot = x->slot;
    slot.row = row;
    int status = can_stand_in(b, x, row) ? stand_in(b, x, err)
                                         : syi_dataset_read(&b->mixture->dataset[x->pick.task], &x->entry,
                                                            x->pick.key, &b->inputs, &b->targets, err);
    if (!status) syi_batch_put(out, &slot, x->pick.entry, &b->inputs, &b->targets);
    return status;
}

/* ---- one example a row ---- */

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

static int fill_pool(struct syi_batcher *b, int64_t pool, struct sy_error *err)
{
    int64_t n = (int64_t)b->batch_size * b->pool_batches;
    int status = SY_OK;

    b->pool = -1;
    for (int64_t i = 0; i < n && !status; i++) {
        struct syi_placed *x = &b->drawn[i];
        x->pick = syi_mixture_pick(b->mixture, pool * n + i);
        status = syi_mixture_lengths(b->mixture, &x->pick, &x->entry, &x->input, &x->target, err);
        b->keys[i] = (uint64_t)x->target << (LENGTH_BITS + PLACE_BITS) | (uint64_t)x->input << PLACE_BITS |
                     (uint64_t)i;
    }
    if (status) return status;
    sort_keys(b->keys, (size_t)n);
    b->pool = pool;
    return SY_OK;
}

/* The examples of a step among the sorted ones of its pool. */
static const uint64_t *rows_of(const struct syi_batcher *b, int64_t step)
{
    uint64_t key = syi_shuffle_key(syi_shuffle_key(b->mixture->seed, STREAM_BATCH_ORDER), (uint64_t)b->pool);
    uint64_t slot = syi_shuffle_index(key, (uint64_t)b->pool_batches, (uint64_t)(step % b->pool_batches));
    return b->keys + slot * (uint64_t)b->batch_size;
}

/* The rows of a step, for which its pool is sorted unless it is at hand, and their longest lengths. */
static int find_rows(struct syi_batcher *b, int64_t step, const uint64_t **rows, struct syi_bucket *longest,
                     struct sy_error *err)
{
    int status = step / b->pool_batches != b->pool ? fill_pool(b, step / b->pool_batches, err) : SY_OK;
    if (status) return status;
    *rows = rows_of(b, step);
    *longest = (struct syi_bucket){0};
    for (int32_t i = 0; i < b->batch_size; i++) {
        const struct syi_placed *x = &b->drawn[(*rows)[i] & PLACE_MASK];
        if (x->input > longest->input_length) longest->input_length = x->input;
        if (x->target > longest->target_length) longest->target_length = x->target;
    }
    return SY_OK;
}

int syi_batcher_longest(struct syi_batcher *b, int64_t step, struct syi_bucket *longest, struct sy_error *err)
{
    const uint64_t *rows;
    return find_rows(b, step, &rows, longest, err);
}

static int fetch_sorted(struct syi_batcher *b, int64_t step, struct syi_batch *out, struct sy_error *err)
{
    const uint64_t *rows;
    struct syi_bucket longest;
    int status = find_rows(b, step, &rows, &longest, err);

    if (status) return status;
    syi_batch_begin(out, b->buckets,
                    syi_buckets_fit(b->buckets, b->n_buckets, (size_t)longest.input_length,
                                    (size_t)longest.target_length));
    for (int32_t i = 0; i < b->batch_size && !status; i++)
        status = put_example(b, &b->drawn[rows[i] & PLACE_MASK], i, out, err);
    return status;
}

/* ---- packed rows ---- */

static int fetch_packed(struct syi_batcher *b, int64_t step, struct syi_batch *out, struct sy_error *err)
{
    struct syi_packing *p = &b->packing;
    int64_t begin = step * b->batch_size;
    int status = syi_packing_find(p, begin, err);

    out->position = p->at;
    syi_batch_begin(out, b->buckets, 0);
    for (int32_t row = 0; row < b->batch_size && !status; row++) {
        status = syi_packing_find(p, begin + row, err);
        int32_t r = (int32_t)(begin + row - p->at.row);
        for (int32_t i = p->first[r]; !status && i < p->first[r + 1]; i++)
            status = put_example(b, &p->placed[i], row, out, err);
    }
    return status;
}

int syi_batcher_fetch(struct syi_batcher *b, int64_t step, struct syi_batch *out, struct sy_error *err)
{
    if (step < 0 || step > INT64_MAX / b->batch_size - b->pool_batches)
        return syi_error(err, SY_EINVAL, "data: there is no batch for step %lld", (long long)step);
    if (out->rows != b->batch_size)
        return syi_error(err, SY_EINTERNAL, "data: a batch of %d rows for a stream of %d", out->rows,
                         b->batch_size);
    return b->packing.mixture ? fetch_packed(b, step, out, err) : fetch_sorted(b, step, out, err);
}
