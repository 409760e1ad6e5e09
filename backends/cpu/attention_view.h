/* SPDX-License-Identifier: Apache-2.0 */
/* What every query of a call attends to, found once for all heads: for calls where segments or masks
 * decide. */
#ifndef SYCPU_ATTENTION_VIEW_H
#define SYCPU_ATTENTION_VIEW_H

#include "backends/cpu/attention.h"

struct view {
    const struct sycpu_attention *a;
    int64_t blocks; /* of keys */
    uint64_t *keys; /* [b, tq, blocks], bit k: key k of the block; NULL: lengths and causality decide */
    uint8_t *blind; /* [b, tq], 1: sees no key and averages all of them */
};

/* A multiple of 16. */
static inline int64_t view_floats(const struct sycpu_attention *a, int general)
{
    int64_t blocks = (a->keys + SYCPU_KEY_BLOCK - 1) / SYCPU_KEY_BLOCK, n = a->rows * a->queries;
    return general ? (n * blocks * 2 + n / 4 + 1 + 15) / 16 * 16 : 0;
}

static inline void view_query(void *arg, int64_t task, int thread)
{
    const struct view *v = arg;
    const struct sycpu_attention *a = v->a;
    int64_t row = task / a->queries, query = task % a->queries, bound = sycpu_attention_bound(a, row, query);
    uint64_t *keys = v->keys + task * v->blocks, seen = 0;
    (void)thread;
    for (int64_t i = 0; i < v->blocks; i++)
        seen |= keys[i] = sycpu_attention_block(a, row, query, i * SYCPU_KEY_BLOCK, bound);
    v->blind[task] = a->attr->uniform && !seen;
    for (int64_t i = 0; v->blind[task] && i < v->blocks; i++) {
        int64_t n = sycpu_clamp(a->keys - i * SYCPU_KEY_BLOCK, 1, SYCPU_KEY_BLOCK);
        keys[i] = ~UINT64_C(0) >> (SYCPU_KEY_BLOCK - n);
    }
}

/* memory: view_floats of them. */
static inline struct view fill_view(const struct sycpu_attention *a, const struct sy_call *call, int general,
                                    float *memory)
{
    struct view v = {.a = a, .blocks = (a->keys + SYCPU_KEY_BLOCK - 1) / SYCPU_KEY_BLOCK};
    if (!general) return v;
    v.keys = (uint64_t *)memory;
    v.blind = (uint8_t *)(v.keys + a->rows * a->queries * v.blocks);
    sycpu_parallel(call, a->rows * a->queries, view_query, &v);
    return v;
}

/* Queries and keys of a row that can take part: an average over all keys has no bounds. */
static inline int64_t view_queries(const struct view *v, int64_t row)
{
    return v->keys && v->a->attr->uniform ? v->a->queries : sycpu_attention_queries(v->a, row);
}
static inline int64_t view_keys(const struct view *v, int64_t row)
{
    return v->keys && v->a->attr->uniform ? v->a->keys : sycpu_attention_keys(v->a, row);
}

/* set[r]: what query + r attends to in the block that begins with key first; seen[r]: the number of keys up
 * to the last of them; bit r of the result: blind. */
static inline uint64_t view_block(const struct view *v, int64_t row, int64_t query, int64_t rows,
                                  int64_t first, uint64_t *set, int64_t *seen)
{
    int64_t at = row * v->a->queries + query;
    uint64_t blind = 0;
    for (int64_t r = 0; r < rows; r++) {
        set[r] = v->keys[(at + r) * v->blocks + first / SYCPU_KEY_BLOCK];
        seen[r] = set[r] ? 64 - __builtin_clzll(set[r]) : 0;
        blind |= (uint64_t)v->blind[at + r] << r;
    }
    return blind;
}

#endif
