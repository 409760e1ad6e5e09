/* SPDX-License-Identifier: Apache-2.0 */
/* What attention and its gradient share: the operands of a call as kernels get them, which keys a query sees, biases,
 * dropout, the tile of scores.
 *
 * A block of 4 * TILE threads works on TILE queries (16 to 64) and 64 keys. In a tile of scores thread (y, x) =
 * (threadIdx.x / 16, threadIdx.x % 16) has queries 4 y .. 4 y + 3 and keys x, x + 16, x + 32, x + 48. Depth goes through
 * shared memory in pieces of 32 columns. */
#ifndef SYCUDA_ATTENTION_H
#define SYCUDA_ATTENTION_H

#include "backends/cuda/tile.h"

enum {
    SYCUDA_KEYS = 64,       /* keys between two updates of the running maximum (doc/numerics.md) */
    SYCUDA_DEPTH = 32,      /* columns of queries and keys in shared memory at a time */
    SYCUDA_DEPTH_STEP = 36, /* floats of a row of them: 16 rows are read at once, from all banks */
    SYCUDA_SCORE_STEP = 68  /* floats of a row of scores: 8 rows of 4 neighbours lie in 32 banks */
};

struct sycuda_attention_call {
    const int32_t *q_length, *kv_length;   /* [b] or NULL: all positions */
    const int32_t *q_segment, *kv_segment; /* [b, tq], [b, tk] or NULL */
    const int32_t *position;               /* index of query 0, or NULL: 0 */
    const float *bias, *mask, *dense;      /* [heads, buckets], [b, tq, tk], [heads, tq, tk], or NULL */
    const int64_t *rng;                    /* NULL: no dropout */
    const int32_t *bucket;                 /* of the distance key - query = index - reach; of the plan */
    uint64_t *seen; /* [b, tq, blocks of keys], bit k: the query attends to key k of the block */
    int32_t *blind; /* [b, tq], 1: sees no key and averages all */
    int64_t rows, queries, keys, heads; /* b, tq, tk, h: local */
    int64_t head_dim, columns, width;   /* K, h * K, columns of a part in one block of a pack */
    int64_t q_parts, kv_parts;          /* of the packs: 3 | 3 self, 1 | 2 cross */
    int64_t buckets, reach;
    int64_t first_row, first_head, site; /* global places, for dropout */
    double rate;
    int causal, uniform;
};

/* The plan: buckets of distances, in the device's memory. */
struct sycuda_attention_plan {
    int32_t *bucket;
    int64_t reach;
};
int sycuda_attention_plan_make(void *context, const struct sy_call *call, void **plan);
void sycuda_attention_plan_free(void *context, void *plan);

/* out: the tensor [b, tq, h * K]; segments: the input that holds q segments; dense mask and bias follow. Without seen and
 * blind. position: its input, -1: none. */
struct sycuda_attention_call sycuda_attention_of(const struct sy_call *call, const struct sy_tensor *out,
                                                 int segments, int position);
/* Bytes of seen and blind; sets both where memory is not NULL. */
uint64_t sycuda_attention_place(struct sycuda_attention_call *a, void *memory);
/* Launches what fills them. */
void sycuda_attention_look(const struct sycuda_attention_call *a, cudaStream_t stream);

/* ---- attention_mma.cu: bfloat16 on tensor cores, unless products = own ---- */

/* Whether it does calls of this shape. */
int sycuda_attention_mma_fits(const struct sycuda_context *context, const struct sycuda_attention_call *a,
                              int in_dtype);
/* After sycuda_attention_look. */
void sycuda_attention_mma(const struct sycuda_attention_call *a, const struct sy_call *call,
                          cudaStream_t stream);

/* ---- tiles ---- */

static inline int64_t sycuda_pieces(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* Queries of a tile for so many: 16, 32 or 64. */
static inline int sycuda_attention_tile(int64_t queries)
{
    return queries <= 16 ? 16 : queries <= 32 ? 32 : 64;
}

/* ---- places in packs ---- */

/* First column of a head of a part in a pack of `parts` parts. */
SYI_INLINE int64_t sycuda_attention_column(const struct sycuda_attention_call &a, int64_t parts, int64_t part,
                                           int64_t head)
{
    int64_t column = head * a.head_dim;
    return column / a.width * parts * a.width + part * a.width + column % a.width;
}
/* Where row `row`, position 0 of a head begins: queries in the q pack; keys (which 2) and values (which 1), the last two
 * parts of the kv pack; out in the output. Positions are columns * parts elements apart. */
SYI_INLINE int64_t sycuda_attention_q(const struct sycuda_attention_call &a, int64_t row, int64_t head)
{
    return row * a.queries * a.q_parts * a.columns + sycuda_attention_column(a, a.q_parts, 0, head);
}
SYI_INLINE int64_t sycuda_attention_kv(const struct sycuda_attention_call &a, int64_t row, int64_t head,
                                       int which)
{
    return row * a.keys * a.kv_parts * a.columns +
           sycuda_attention_column(a, a.kv_parts, a.kv_parts - which, head);
}
SYI_INLINE int64_t sycuda_attention_out(const struct sycuda_attention_call &a, int64_t row, int64_t head)
{
    return row * a.queries * a.columns + head * a.head_dim;
}

/* Rows of one head from position `first` on. */
template <class T>
__device__ static inline sycuda_rows<T> sycuda_attention_q_rows(const struct sycuda_attention_call &a,
                                                                const T *q, int64_t row, int64_t head,
                                                                int64_t first)
{
    int64_t step = a.q_parts * a.columns;
    return {q + sycuda_attention_q(a, row, head) + first * step, step, a.queries - first, a.head_dim};
}
template <class T>
__device__ static inline sycuda_rows<T> sycuda_attention_kv_rows(const struct sycuda_attention_call &a,
                                                                 const T *kv, int64_t row, int64_t head,
                                                                 int64_t first, int which)
{
    int64_t step = a.kv_parts * a.columns;
    return {kv + sycuda_attention_kv(a, row, head, which) + first * step, step, a.keys - first, a.head_dim};
}
template <class T>
__device__ static inline sycuda_rows<T> sycuda_attention_out_rows(const struct sycuda_attention_call &a,
                                                                  const T *out, int64_t row, int64_t head,
                                                                  int64_t first)
{
    return {out + sycuda_attention_out(a, row, head) + first * a.columns, a.columns, a.queries - first,
            a.head_dim};
}

/* ---- what queries see ---- */

/* What query `query` attends to among the keys first .. first + 63; 0 where there is no such query. */
__device__ static inline uint64_t sycuda_attention_seen(const struct sycuda_attention_call &a, int64_t row,
                                                        int64_t query, int64_t first)
{
    int64_t blocks = (a.keys + SYCUDA_KEYS - 1) / SYCUDA_KEYS;
    return query < a.queries ? a.seen[(row * a.queries + query) * blocks + first / SYCUDA_KEYS] : 0;
}

/* ---- biases and dropout ---- */

/* The bucket of a distance key - query. */
__device__ static inline int32_t sycuda_attention_bucket(const struct sycuda_attention_call &a,
                                                         int64_t distance)
{
    int64_t near = distance < -a.reach ? -a.reach : distance > a.reach ? a.reach : distance;
    return a.bucket[near + a.reach];
}

/* diagonal[i]: the bias of distance first key - query `last` + i, for TILE + 63 of them; the query is counted from
 * position 0. Nothing without a table. */
__device__ static inline void sycuda_attention_diagonal(const struct sycuda_attention_call &a, int64_t head,
                                                        int64_t first, int64_t last, int n, float *diagonal)
{
    int64_t position = a.position && *a.position > 0 ? *a.position : 0;
    for (int i = (int)threadIdx.x; a.bias && i < n; i += (int)blockDim.x)
        diagonal[i] = a.bias[head * a.buckets + sycuda_attention_bucket(a, first - last - position + i)];
}

/* mask[k]: what the values of key first + k are multiplied by, the same for all queries. Nothing without dropout. */
__device__ static inline void sycuda_attention_masks(const struct sycuda_attention_call &a, int64_t row,
                                                     int64_t head, int64_t first, int n, float *mask)
{
    for (int k = (int)threadIdx.x; a.rng && k < n; k += (int)blockDim.x) {
        struct syi_dropout d = syi_dropout_init(a.rng, a.site, a.rate);
        uint32_t global = (uint32_t)(a.first_row + a.rng[SY_RNG_ROW0] + row);
        mask[k] = 1;
        if (d.threshold)
            syi_dropout_mask(&d, global, (uint32_t)(first + k), a.first_head + head, 1, mask + k);
    }
}

/* A score without and with what is added to it. */
__device__ static inline float sycuda_attention_biased(const struct sycuda_attention_call &a, float score,
                                                       const float *diagonal, int64_t head, int64_t query,
                                                       int64_t key)
{
    if (a.bias) score += *diagonal;
    if (a.dense) score += a.dense[(head * a.queries + query) * a.keys + key];
    return score;
}

/* ---- the tile of scores ---- */

/* Floats of shared memory that sycuda_attention_dot wants. */
static inline int sycuda_attention_dot_floats(int tile)
{
    return (tile + SYCUDA_KEYS) * SYCUDA_DEPTH_STEP;
}

__device__ static inline void sycuda_attention_dot_piece(sycuda_sums &sums, const float *left,
                                                         const float *right, int depth)
{
    const int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
    for (int d = 0; d < depth; d += 4) {
        sycuda_four a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = sycuda_read_four(left + (4 * y + i) * SYCUDA_DEPTH_STEP + d);
            b[i] = sycuda_read_four(right + (x + 16 * i) * SYCUDA_DEPTH_STEP + d);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) sums.at[r][c] = fmaf(a[r].v[i], b[c].v[i], sums.at[r][c]);
    }
}

/* at[r][c]: the chain over the depth of left row 4 y + r times right row x + 16 c, then + 0. Begins with a barrier: the
 * memory may have been in use. mask: of right rows, or NULL. */
template <class A, class B>
__device__ static inline sycuda_sums sycuda_attention_dot(sycuda_rows<A> left, sycuda_rows<B> right,
                                                          const float *mask, float *shared)
{
    const int tile = (int)blockDim.x / 4;
    float *rights = shared + tile * SYCUDA_DEPTH_STEP;
    sycuda_sums sums = {};
    for (int64_t d = 0; d < left.width; d += SYCUDA_DEPTH) {
        const int64_t most = SYCUDA_DEPTH, depth = left.width - d < most ? left.width - d : most;
        __syncthreads();
        sycuda_load_rows<SYCUDA_DEPTH>(shared, SYCUDA_DEPTH_STEP, left, tile, d, nullptr);
        sycuda_load_rows<SYCUDA_DEPTH>(rights, SYCUDA_DEPTH_STEP, right, SYCUDA_KEYS, d, mask);
        __syncthreads();
        sycuda_attention_dot_piece(sums, shared, rights, (int)depth);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) sums.at[i / 4][i % 4] += 0.0f;
    return sums;
}

#endif
