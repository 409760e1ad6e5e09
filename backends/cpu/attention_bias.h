/* SPDX-License-Identifier: Apache-2.0 */
/* What fast attention adds to scores and multiplies values by: the bias of each head by distance, laid out so
 * that 16 neighbouring keys are one load, and the dropout masks of a block of keys. */
#ifndef SYCPU_ATTENTION_BIAS_H
#define SYCPU_ATTENTION_BIAS_H

#include "backends/cpu/attention.h"
#include "base/relpos.h"
#include "backends/cpu/simd.h"

/* Entry i of a row stands for the distance key - query = i - (queries - 1), queries counted from
 * `position`. */
struct bias_table {
    float *bias;     /* [heads, step] */
    int32_t *bucket; /* [step] */
    int64_t step;    /* entries of a row: all distances and the lanes past the last */
};

static inline int64_t bias_step(const struct sycpu_attention *a)
{
    return a->buckets ? (a->queries + a->keys + 2 * SYCPU_LANES) / SYCPU_LANES * SYCPU_LANES : 0;
}

static inline int64_t bias_floats(const struct sycpu_attention *a)
{
    return (a->heads + 1) * bias_step(a);
}

static inline struct bias_table fill_bias(const struct sycpu_attention *a, float *memory)
{
    struct bias_table t = {memory, (int32_t *)memory + a->heads * bias_step(a), bias_step(a)};
    for (int64_t i = 0; i < t.step; i++)
        t.bucket[i] =
            (int32_t)syi_relpos_bucket(i - (a->queries - 1) - a->position, (int)a->attr->bidirectional,
                                       a->buckets, a->attr->max_distance);
    for (int64_t head = 0; t.step && head < a->heads; head++)
        for (int64_t i = 0; i < t.step; i++)
            t.bias[head * t.step + i] = ((const float *)a->bias)[head * a->buckets + t.bucket[i]];
    return t;
}

/* Of a head's row of the table, NULL: none, what query `query` adds for the keys from `key` on; the next query's begins one before. */
static inline const float *bias_of(const struct sycpu_attention *a, const float *row, int64_t query,
                                   int64_t key)
{
    return row ? row + key - query + a->queries - 1 : NULL;
}

/* Masks of the keys first .. first + n - 1 and of those up to a multiple of 16, as sycpu_attention_mask. */
static inline void key_masks(const struct sycpu_attention *a, int64_t row, int64_t head, int64_t first,
                             int64_t n, float *mask)
{
    static const int32_t lane[SYCPU_LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t channel = a->first_head + head;
    const vf threshold = vf_set((float)a->dropout.threshold);
    for (int64_t k = 0; k < n; k += SYCPU_LANES) {
        vi counter[4] = {vf_iset((int32_t)a->dropout.step), vf_iset((int32_t)(a->first_row + row)),
                         vf_iadd(vf_iset((int32_t)(first + k)), vf_iload(lane)),
                         vf_iset((int32_t)(channel / 8))};
        vf_philox(counter, a->dropout.key);
        vi word = counter[channel % 8 / 2], bits = channel % 2 ? vf_isra(word, 16) : word;
        const vm dropped = vf_less(vf_convert(vf_iand(bits, vf_iset(0xffff))), threshold);
        vf_store(mask + k, vf_select(dropped, vf_set(0.0f), vf_set(a->dropout.scale)));
    }
}

static inline void mask_rows(float *rows, const float *mask, int64_t n, int64_t dim)
{
    for (int64_t row = 0; row < n; row++)
        for (int64_t d = 0; d < dim; d += SYCPU_LANES)
            vf_store(rows + row * dim + d, vf_drop(vf_load(rows + row * dim + d), vf_set(mask[row])));
}

#endif
