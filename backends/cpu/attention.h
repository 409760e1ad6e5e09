/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of an attention call, read once: sizes, where the head of a part lies in a pack, which keys a
 * query sees, the dropout mask of a key. Shared by the reference and the fast kernels. */
#ifndef SYCPU_ATTENTION_H
#define SYCPU_ATTENTION_H

#include "backends/cpu/cpu.h"
#include "base/philox.h"

#define SYCPU_KEY_BLOCK 64 /* keys between two updates of the running maximum (doc/numerics.md) */

struct sycpu_attention {
    const struct sy_attr_attention *attr;
    const void *q, *kv;                  /* packs [b, tq, q_width], [b, tk, kv_width] */
    const int32_t *q_length, *kv_length; /* [b] */
    const void *bias;                    /* [heads, buckets] or NULL */
    int64_t rows, queries, keys, heads;  /* b, tq, tk, h: local */
    int64_t head_dim, columns;           /* K, h * K */
    int64_t q_parts, kv_parts;           /* of the packs: 3 | 3 self, 1 | 2 cross */
    int64_t buckets;                     /* 0: no bias table */
    int64_t position;                    /* global index of query 0 */
    int64_t first_row, first_head;       /* global index of row 0 and head 0, for dropout */
    struct syi_dropout dropout;          /* threshold 0: none */
};

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

/* position: NULL or absent where there is none. */
static inline struct sycpu_attention sycpu_attention_read(const struct sy_call *call,
                                                          const struct sy_tensor *out,
                                                          const struct sy_tensor *position)
{
    struct sycpu_attention a = sycpu_attention_sizes(call, out);
    const int64_t *rng = a.attr->rate > 0 ? call->in[5].data : NULL;
    a.q = call->in[0].data;
    a.kv = call->in[1].data;
    a.q_length = call->in[2].data;
    a.kv_length = call->in[3].data;
    a.bias = a.buckets ? call->in[4].data : NULL;
    a.position = position && position->rank ? *(const int32_t *)position->data : 0;
    if (a.position < 0) a.position = 0;
    a.first_row = out->first[0] + (rng ? rng[SY_RNG_ROW0] : 0);
    a.first_head = out->first[2] / a.head_dim;
    a.dropout = syi_dropout_init(rng, a.attr->site, a.attr->rate);
    return a;
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
    return sycpu_clamp(a->q_length[row], 0, a->queries);
}
static inline int64_t sycpu_attention_keys(const struct sycpu_attention *a, int64_t row)
{
    return sycpu_clamp(a->kv_length[row], 0, a->keys);
}

/* Keys 0 .. n - 1 that a query sees, of the `keys` real ones. */
static inline int64_t sycpu_attention_seen(const struct sycpu_attention *a, int64_t keys, int64_t query)
{
    return a->attr->causal ? sycpu_clamp(query + a->position + 1, 0, keys) : keys;
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
