/* SPDX-License-Identifier: Apache-2.0 */
/* What both ways to do attention_grad share: the call, where p and ds of a pair lie, what a block adds up. */
#ifndef SYCUDA_ATTENTION_GRAD_H
#define SYCUDA_ATTENTION_GRAD_H

#include "backends/cuda/attention.h"

/* Inputs. */
enum { SYCUDA_GRAD_OUT = 6, SYCUDA_GRAD_LSE = 7, SYCUDA_GRAD_DOUT = 8 };

struct sycuda_attention_pairs {
    sycuda_attention_call a;
    float *mean;      /* [b, tq, heads] the row sum of dout * out */
    float *p, *ds;    /* [pairs, tq, tk] of the (row, head) at work; elements that are not seen are not set */
    float *diagonal;  /* [pairs, tq + tk] sums of ds by key - query + tq */
    float *row_bias;  /* [b, heads, buckets] */
    float *partial;   /* [levels - 1][heads, tq, tk] of the tree over leaves of rows; level 0 is ddense */
    float *ddense;    /* [heads, tq, tk] or NULL */
    int64_t pairs;    /* (row, head) at a time */
    int64_t first, n; /* those of a launch: number row * heads + head */
    int64_t leaf;     /* rows */
};

/* attention_grad_mma.cu: p and ds, dq, dk and dv of the (row, head) of g. */
void sycuda_attention_grad_mma(const struct sycuda_attention_pairs *g, const struct sy_call *call,
                               cudaStream_t stream);

/* ---- pairs ---- */

/* Where a pair of positions of number `pair` lies in p and ds. */
__device__ static inline int64_t sycuda_attention_grad_at(const sycuda_attention_pairs &g, int64_t pair,
                                                          int64_t query, int64_t key)
{
    return ((pair - g.first) * g.a.queries + query) * g.a.keys + key;
}

/* What the pairs of a query with the 64 keys from `first` on share. */
struct sycuda_attention_grad_query {
    uint64_t seen; /* bit i: key first + i; all else is set only if there is one */
    int blind;
    float lse, mean;
};
__device__ static inline sycuda_attention_grad_query
sycuda_attention_grad_query_of(const sycuda_attention_pairs &g, const float *lse, int64_t pair, int64_t query,
                               int64_t first)
{
    const sycuda_attention_call &a = g.a;
    const int64_t row = pair / a.heads, head = pair % a.heads;
    sycuda_attention_grad_query of = {sycuda_attention_seen(a, row, query, first), 0, 0, 0};
    if (!of.seen) return of;
    of.blind = a.blind[row * a.queries + query];
    of.lse = lse[pair * a.queries + query];
    of.mean = g.mean[(row * a.queries + query) * a.heads + head];
    return of;
}

/* p and ds of a pair with its score and the product of dout and the value. */
__device__ static inline void sycuda_attention_grad_store(const sycuda_attention_pairs &g, int64_t at,
                                                          const sycuda_attention_grad_query &of, float score,
                                                          float dp)
{
    const float p = syi_exp(score - of.lse);
    g.p[at] = p;
    g.ds[at] = p * (dp - of.mean);
}

/* ---- sums ---- */

/* What a block of attention_grad_sums adds up and where it goes. */
template <class In, class Out> struct sycuda_attention_grad_sum {
    sycuda_rows<In> x;   /* the other axis: its first row and all that follow */
    const float *weight; /* of position 0 of both axes, [tq, tk] */
    Out *to;             /* position 0 of the tile */
    int64_t to_step, n;  /* elements between positions; positions of the tile that there are */
};

/* The pieces of one (row, head): tiles of dq, then of dk, then of dv, `chunks` pieces of columns each. which: 0, 1, 2. */
template <class In, class Out>
__device__ static inline sycuda_attention_grad_sum<In, Out>
sycuda_attention_grad_task(const sycuda_attention_pairs &g, int which, const In *q, const In *kv,
                           const In *dout, Out *dq, Out *dkv, int64_t pair, int64_t from)
{
    const sycuda_attention_call &a = g.a;
    const int64_t row = pair / a.heads, head = pair % a.heads;
    sycuda_attention_grad_sum<In, Out> sum;
    sum.to_step = (which ? a.kv_parts : a.q_parts) * a.columns;
    sum.to =
        which ? dkv + sycuda_attention_kv(a, row, head, 3 - which) : dq + sycuda_attention_q(a, row, head);
    sum.to += from * sum.to_step;
    sum.n = (which ? a.keys : a.queries) - from;
    sum.weight = (which == 2 ? g.p : g.ds) + sycuda_attention_grad_at(g, pair, 0, 0);
    sum.x = which == 0   ? sycuda_attention_kv_rows(a, kv, row, head, 0, 2)
            : which == 1 ? sycuda_attention_q_rows(a, q, row, head, 0)
                         : sycuda_attention_out_rows(a, dout, row, head, 0);
    return sum;
}

/* Pairs that see each other among positions from .. of the tile and at .. at + 63 of the other axis: bit i of bits[j]
 * is tile position i with position at + j; those after the tile's positions are anything. Of queries a thread has 16 for one key.
 * Ends with a barrier; 0: there is none. */
__device__ static inline int sycuda_attention_grad_bits(const sycuda_attention_call &a, int of_queries,
                                                        int64_t row, int64_t from, int64_t at, uint64_t *bits)
{
    const int tile = (int)blockDim.x / 4, j = (int)threadIdx.x % 64, part = (int)threadIdx.x / 64;
    uint64_t mine = 0;
    if (of_queries) {
        for (int i = 0; i < 16; i++)
            mine |= (sycuda_attention_seen(a, row, from + 16 * part + i, at) >> j & 1) << i;
        reinterpret_cast<uint16_t *>(bits)[4 * j + part] = (uint16_t)mine;
    } else if (part == 0) {
        mine = sycuda_attention_seen(a, row, at + j, from) >> (from % SYCUDA_KEYS);
        if (tile < SYCUDA_KEYS) mine &= ~(~UINT64_C(0) << tile);
        bits[j] = mine;
    }
    return __syncthreads_or(mine != 0);
}

#endif
