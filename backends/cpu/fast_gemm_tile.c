/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a matrix product: a chain of fused multiply-adds per element inside each leaf of the
 * contraction, and the tree over leaves. The accumulators are named variables, one for each vector of the
 * tile (an array would be written to memory at every step). Knows nothing of matrices larger than a tile. */
#include "config.h"

#include "fast_gemm.h"

#define ROW_ZERO(i) vec c##i##0 = vec_zero(), c##i##1 = vec_zero();
#define ROW_FMA(i)                                                                                           \
    {                                                                                                        \
        vec ai = vec_broadcast(a + i);                                                                       \
        c##i##0 = vec_fma(ai, b0, c##i##0);                                                                  \
        c##i##1 = vec_fma(ai, b1, c##i##1);                                                                  \
    }
#define ROW_ADD_ZERO(i)                                                                                      \
    c##i##0 = vec_add(c##i##0, vec_zero());                                                                  \
    c##i##1 = vec_add(c##i##1, vec_zero());
#define ROW_ADD_PENDING(i)                                                                                   \
    c##i##0 = vec_add(vec_load(pending + i * TILE_COLUMNS), c##i##0);                                        \
    c##i##1 = vec_add(vec_load(pending + i * TILE_COLUMNS + LANES), c##i##1);
#define ROW_STORE(i)                                                                                         \
    vec_store(out + i * out_stride, c##i##0);                                                                \
    vec_store(out + i * out_stride + LANES, c##i##1);

/* A leaf of `depth` products, closed with + 0, added to the `merges` tiles below `pending` (the nearest
 * first). */
#define DEFINE_LEAF(name, ROWS)                                                                              \
    static void name(int64_t depth, const float *a, const float *b, int64_t b_stride, const float *pending,  \
                     int merges, float *out, int64_t out_stride)                                             \
    {                                                                                                        \
        ROWS(ROW_ZERO)                                                                                       \
        for (int64_t k = 0; k < depth; k++) {                                                                \
            vec b0 = vec_load(b), b1 = vec_load(b + LANES);                                                  \
            ROWS(ROW_FMA)                                                                                    \
            a += TILE_ROWS;                                                                                  \
            b += b_stride;                                                                                   \
        }                                                                                                    \
        ROWS(ROW_ADD_ZERO)                                                                                   \
        for (; merges > 0; merges--) {                                                                       \
            pending -= TILE_SIZE;                                                                            \
            ROWS(ROW_ADD_PENDING)                                                                            \
        }                                                                                                    \
        ROWS(ROW_STORE)                                                                                      \
    }

DEFINE_LEAF(leaf_full, TILE_ALL)
DEFINE_LEAF(leaf_low, LOW_ALL)
DEFINE_LEAF(leaf_lowest, LOWEST_ALL)

int SYCPU_FAST(gemm_tile_height)(int rows)
{
    return rows <= LOWEST_ROWS ? LOWEST_ROWS : rows <= LOW_ROWS ? LOW_ROWS : TILE_ROWS;
}

void SYCPU_FAST(gemm_tile)(const struct sycpu_gemm_tile *tile, int rows)
{
    const float *a = tile->a, *b = tile->b;
    float *top = tile->pending;
    int height = SYCPU_FAST(gemm_tile_height)(rows);
    for (int64_t i = 0; i < tile->leaves; i++) {
        int last = i == tile->leaves - 1;
        /* As many neighbours are complete as i ends in ones; at the end everything pending is. */
        int merges = last ? (int)((top - tile->pending) / TILE_SIZE) : __builtin_ctzll(~(uint64_t)i);
        float *merged = top - (int64_t)merges * TILE_SIZE;
        float *out = last ? tile->c : merged;
        int64_t out_stride = last ? tile->c_stride : TILE_COLUMNS;
        (height == TILE_ROWS ? leaf_full
         : height == LOW_ROWS
             ? leaf_low
             : leaf_lowest)(tile->length[i], a, b, tile->b_stride, top, merges, out, out_stride);
        top = merged + TILE_SIZE;
        a += tile->length[i] * TILE_ROWS;
        b += tile->length[i] * tile->b_stride;
    }
}
