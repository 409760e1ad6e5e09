/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of an attention call, read once: sizes, where the head of a part lies in a pack, which keys
 * lengths and causality leave to a query, the dropout mask of a key. Shared by the reference and the fast
 * kernels. */
#ifndef SYCPU_ATTENTION_H
#define SYCPU_ATTENTION_H

#include "backends/cpu/cpu.h"
#include "base/base.h"
#include "base/philox.h"

#define SYCPU_KEY_BLOCK 64 /* keys between two updates of the running maximum (doc/numerics.md) */

struct sycpu_attention {
    const struct sy_attr_attention *attr;
    const void *q, *kv;                    /* packs [b, tq, q_width], [b, tk, kv_width] */
    const int32_t *q_length, *kv_length;   /* [b] or NULL: all positions */
    const int32_t *q_segment, *kv_segment; /* [b, tq], [b, tk] or NULL */
    const void *bias;                      /* [heads, buckets] or NULL */
    const void *mask;                      /* [b, tq, tk], 0 hides a key, or NULL */
    const void *dense;                     /* [heads, tq, tk] added to scores, or NULL */
    int64_t rows, queries, keys, heads;    /* b, tq, tk, h: local */
    int64_t head_dim, columns;             /* K, h * K */
    int64_t q_parts, kv_parts;             /* of the packs: 3 | 3 self, 1 | 2 cross */
    int64_t buckets;                       /* 0: no bias table */
    int64_t position;                      /* global index of query 0 */
    int64_t first_row, first_head;         /* global index of row 0 and head 0, for dropout */
    struct syi_dropout dropout;            /* threshold 0: none */
};

/* Input that holds q segments; k segments, dense mask and dense bias follow. */
enum { SYCPU_ATTENTION_SEGMENTS = 7, SYCPU_ATTENTION_GRAD_SEGMENTS = 9 };

static inline const void *sycpu_optional(const struct sy_tensor *tensor)
{
    return tensor->rank ? tensor->data : NULL;
}

/* Sizes alone, for planning. out: the tensor [b, tq, h * K]. */
static inline struct sycpu_attention sycpu_attention_sizes(const struct sy_call *call,
                                                           const struct sy_tensor *out)
{
    const struct sy_attr_attention *attr = call->attr;
    const struct sy_tensor *in = call->in;
    struct sycpu_attention a = {
        .attr = attr,
        .rows = out->dim[0],
        .queries = out->dim[1],
        .keys = in[1].dim[1],
        .heads = out->dim[2] / attr->head_dim,
        .head_dim = attr->head_dim,
        .columns = out->dim[2],
        .q_parts = in[0].dim[2] / out->dim[2],
        .kv_parts = in[1].dim[2] / out->dim[2],
        .buckets = in[4].rank ? in[4].dim[1] : 0,
    };
    return a;
}

/* segments: the first of the four operands after SYCPU_ATTENTION_SEGMENTS or its like in a gradient. */
static inline struct sycpu_attention sycpu_attention_read(const struct sy_call *call,
                                                          const struct sy_tensor *out, int segments)
{
    struct sycpu_attention a = sycpu_attention_sizes(call, out);
    const struct sy_tensor *in = call->in;
    const int64_t *rng = a.attr->rate > 0 ? in[5].data : NULL;
    a.q = in[0].data;
    a.kv = in[1].data;
    a.q_length = sycpu_optional(&in[2]);
    a.kv_length = sycpu_optional(&in[3]);
    a.bias = sycpu_optional(&in[4]);
    a.q_segment = sycpu_optional(&in[segments]);
    a.kv_segment = sycpu_optional(&in[segments + 1]);
    a.mask = sycpu_optional(&in[segments + 2]);
    a.dense = sycpu_optional(&in[segments + 3]);
    a.first_row = out->first[0] + (rng ? rng[SY_RNG_ROW0] : 0);
    a.first_head = out->first[2] / a.head_dim;
    a.dropout = syi_dropout_init(rng, a.attr->site, a.attr->rate);
    return a;
}

static inline struct sycpu_attention sycpu_attention_forward(const struct sy_call *call)
{
    struct sycpu_attention a = sycpu_attention_read(call, &call->out[0], SYCPU_ATTENTION_SEGMENTS);
    const int32_t *position = sycpu_optional(&call->in[6]);
    a.position = position && *position > 0 ? *position : 0;
    return a;
}

static inline struct sycpu_attention sycpu_attention_backward(const struct sy_call *call)
{
    return sycpu_attention_read(call, &call->in[6], SYCPU_ATTENTION_GRAD_SEGMENTS);
}

/* Whether more than lengths and causality decide what a query sees. */
static inline int sycpu_attention_general(const struct sy_call *call, int segments)
{
    const struct sy_attr_attention *attr = call->attr;
    const struct sy_tensor *in = call->in;
    return in[segments].rank || in[segments + 1].rank || in[segments + 2].rank ||
           (attr->uniform && (in[2].rank || in[3].rank));
}

/* First column of a head of a part in a pack of `parts` parts. */
static inline int64_t sycpu_attention_column(const struct sycpu_attention *a, int64_t parts, int64_t part,
                                             int64_t head)
{
    int64_t column = head * a->head_dim, width = a->attr->width;
    return column / width * parts * width + part * width + column % width;
}

/* Where row `row`, position 0 of a head begins: queries in the q pack; keys (which 2) and values (which 1),
 * the last two parts of the kv pack. Positions are columns * parts elements apart. */
static inline int64_t sycpu_attention_q(const struct sycpu_attention *a, int64_t row, int64_t head)
{
    return row * a->queries * a->q_parts * a->columns + sycpu_attention_column(a, a->q_parts, 0, head);
}
static inline int64_t sycpu_attention_kv(const struct sycpu_attention *a, int64_t row, int64_t head,
                                         int which)
{
    return row * a->keys * a->kv_parts * a->columns +
           sycpu_attention_column(a, a->kv_parts, a->kv_parts - which, head);
}

static inline int64_t sycpu_clamp(int64_t n, int64_t low, int64_t high)
{
    return n < low ? low : n > high ? high : n;
}
static inline int64_t sycpu_attention_queries(const struct sycpu_attention *a, int64_t row)
{
    return a->q_length ? sycpu_clamp(a->q_length[row], 0, a->queries) : a->queries;
}
static inline int64_t sycpu_attention_keys(const struct sycpu_attention *a, int64_t row)
{
    return a->kv_length ? sycpu_clamp(a->kv_length[row], 0, a->keys) : a->keys;
}

/* Keys 0 .. n - 1 that a query sees, of the `keys` real ones. */
static inline int64_t sycpu_attention_seen(const struct sycpu_attention *a, int64_t keys, int64_t query)
{
    return a->attr->causal ? sycpu_clamp(query + a->position + 1, 0, keys) : keys;
}

/* Keys 0 .. n - 1 that lengths and causality leave to a query. */
static inline int64_t sycpu_attention_bound(const struct sycpu_attention *a, int64_t row, int64_t query)
{
    if (query >= sycpu_attention_queries(a, row)) return 0;
    return sycpu_attention_seen(a, sycpu_attention_keys(a, row), query);
}

/* Whether segments and the dense mask show a key. */
static inline int sycpu_attention_shown(const struct sycpu_attention *a, int64_t row, int64_t query,
                                        int64_t key)
{
    int64_t at = row * a->queries + query;
    if (a->kv_segment) {
        int32_t segment = a->kv_segment[row * a->keys + key];
        if (segment <= 0 || (a->q_segment && a->q_segment[at] != segment)) return 0;
    }
    return !a->mask || ((const sy_real *)a->mask)[at * a->keys + key] != 0;
}

/* Bit k: the query sees key first + k, which is below bound. */
static inline uint64_t sycpu_attention_block(const struct sycpu_attention *a, int64_t row, int64_t query,
                                             int64_t first, int64_t bound)
{
    int64_t n = sycpu_clamp(bound - first, 0, SYCPU_KEY_BLOCK);
    uint64_t keys = n ? ~UINT64_C(0) >> (SYCPU_KEY_BLOCK - n) : 0;
    if (!a->kv_segment && !a->mask) return keys;
    for (int64_t k = 0; k < n; k++)
        keys &= ~((uint64_t)!sycpu_attention_shown(a, row, query, first + k) << k);
    return keys;
}

/* Whether the query sees no key and averages all. */
static inline int sycpu_attention_blind(const struct sycpu_attention *a, int64_t row, int64_t query)
{
    int64_t bound = sycpu_attention_bound(a, row, query);
    if (!a->attr->uniform) return 0;
    for (int64_t first = 0; first < bound; first += SYCPU_KEY_BLOCK)
        if (sycpu_attention_block(a, row, query, first, bound)) return 0;
    return 1;
}

/* What the values of a key are multiplied by: one mask for all queries, as T5X broadcasts it. */
static inline float sycpu_attention_mask(const struct sycpu_attention *a, int64_t row, int64_t key,
                                         int64_t head)
{
    float mask = 1;
    if (a->dropout.threshold)
        syi_dropout_mask(&a->dropout, (uint32_t)(a->first_row + row), (uint32_t)key, a->first_head + head, 1,
                         &mask);
    return mask;
}

#endif
