/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a matrix product: a chain of steps (fused multiply-adds) per element inside each leaf of the
 * contraction, and the tree over leaves. The accumulators are named variables, one for each vector of the
 * tile (an array would be written to memory at every step). Knows nothing of matrices larger than a tile. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

/* Steps from the one at hand to the one fetched: rows of an unpacked B lie too far apart for the processor to
 * guess. */
#define AHEAD       16
#define ROW_ZERO(i) vec c##i##0 = vec_zero(), c##i##1 = vec_zero();
#define ROW_STEP(i)                                                                                          \
    {                                                                                                        \
        vec ai = vec_broadcast(a + i);                                                                       \
        c##i##0 = vec_step(ai, b0, c##i##0);                                                                 \
        c##i##1 = vec_step(ai, b1, c##i##1);                                                                 \
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

#define ROW_STREAM(i)                                                                                        \
    vec_stream((float *)out + i * out_stride, c##i##0);                                                      \
    vec_stream((float *)out + i * out_stride + LANES, c##i##1);

#ifdef SYCPU_PAIRS
#    define ROW_STORE_ROUNDED(i)                                                                             \
        vec_store_rounded((operand *)out + i * out_stride, c##i##0);                                         \
        vec_store_rounded((operand *)out + i * out_stride + LANES, c##i##1);
#    define STORE(ROWS)                                                                                      \
        if (how == SYCPU_GEMM_ROUND) {                                                                       \
            ROWS(ROW_STORE_ROUNDED)                                                                          \
        } else {                                                                                             \
            ROWS(ROW_STORE)                                                                                  \
        }
#else
#    define STORE(ROWS) ROWS(ROW_STORE)
#endif

/* A leaf of `depth` steps, added to the `merges` tiles below `pending` (the nearest first). The + 0 that
 * closes each leaf is added to the last sum alone: it changes nothing but the sign of a zero, and the sum of
 * zeros of any sign, closed, is +0 too. */
#define DEFINE_LEAF(name, ROWS)                                                                              \
    static void name(int64_t depth, const float *a, const float *b, int64_t b_stride, const float *pending,  \
                     int merges, float *out, int64_t out_stride, int how, int last)                          \
    {                                                                                                        \
        ROWS(ROW_ZERO)                                                                                       \
        for (int64_t k = 0; k < depth; k++) {                                                                \
            vec b0 = vec_load(b), b1 = vec_load(b + LANES);                                                  \
            __builtin_prefetch(b + AHEAD * b_stride);                                                        \
            if (TILE_COLUMNS * sizeof(float) > 64) __builtin_prefetch(b + AHEAD * b_stride + LANES);         \
            ROWS(ROW_STEP)                                                                                   \
            a += TILE_ROWS;                                                                                  \
            b += b_stride;                                                                                   \
        }                                                                                                    \
        for (; merges > 0; merges--) {                                                                       \
            pending -= TILE_SIZE;                                                                            \
            ROWS(ROW_ADD_PENDING)                                                                            \
        }                                                                                                    \
        if (last) {                                                                                          \
            ROWS(ROW_ADD_ZERO)                                                                               \
        }                                                                                                    \
        if (how == SYCPU_GEMM_STREAM) {                                                                      \
            ROWS(ROW_STREAM)                                                                                 \
        } else {                                                                                             \
            STORE(ROWS)                                                                                      \
        }                                                                                                    \
    }

DEFINE_LEAF(leaf_full, TILE_ALL)
DEFINE_LEAF(leaf_low, LOW_ALL)
DEFINE_LEAF(leaf_lowest, LOWEST_ALL)

void SYCPU_FAST(gemm_leaf)(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                           int64_t length)
{
    int last = leaf == leaves - 1;
    /* Binary counting: one tile is pending for each one bit of `leaf`, and as many neighbours are complete as
     * it ends in ones; at the end everything pending is. */
    int waiting = __builtin_popcountll((uint64_t)leaf);
    int merges = last ? waiting : __builtin_ctzll(~(uint64_t)leaf);
    const float *top = tile->pending + (int64_t)waiting * TILE_SIZE;
    float *out = last ? tile->c : tile->pending + (int64_t)(waiting - merges) * TILE_SIZE;
    (tile->height == TILE_ROWS  ? leaf_full
     : tile->height == LOW_ROWS ? leaf_low
                                : leaf_lowest)(
        length, tile->a + k * TILE_ROWS, tile->b + k * tile->b_stride, tile->b_stride, top, merges, out,
        last ? tile->c_stride : TILE_COLUMNS, last ? tile->how : SYCPU_GEMM_STORE, last);
}
