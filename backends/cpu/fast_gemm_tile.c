/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a matrix product: a chain of steps (fused multiply-adds) per element inside each leaf of the
 * contraction, and the tree over leaves. The accumulators are named variables, one for each vector of the
 * tile (an array would be written to memory at every step). Knows nothing of matrices larger than a tile. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

/* Steps from the one at hand to the one fetched: rows of an unpacked B lie too far apart for the processor to
 * guess. FAR: from memory, into the L2 cache, since of rows a power of two apart the L1 cache holds few. */
#define AHEAD 16
#define FAR   96

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

/* What a tile fetches of B while it computes. */
struct ahead {
    const float *row;
    int64_t left; /* rows until the next panel */
};

static inline struct ahead look_ahead(const struct sycpu_gemm_tile *tile, int64_t k)
{
    struct ahead ahead = {tile->b + (k + AHEAD) * tile->b_stride, INT64_MAX};
    if (!tile->next) return ahead;
    ahead.left = tile->steps - k - FAR;
    ahead.row =
        ahead.left > 0 ? tile->b + (k + FAR) * tile->b_stride : tile->next - ahead.left * tile->b_stride;
    return ahead;
}

ALWAYS_INLINE void fetch_ahead(struct ahead *ahead, const struct sycpu_gemm_tile *tile)
{
    if (tile->next) {
        __builtin_prefetch(ahead->row, 0, 2);
        __builtin_prefetch(ahead->row + TILE_COLUMNS - 1, 0, 2);
        ahead->row += tile->b_stride;
        if (--ahead->left == 0) ahead->row = tile->next;
    } else {
        __builtin_prefetch(ahead->row);
        if (TILE_COLUMNS * sizeof(float) > 64) __builtin_prefetch(ahead->row + LANES);
        ahead->row += tile->b_stride;
    }
}

/* Steps k .. k + depth - 1, one leaf, added to the `merges` tiles below `pending` (the nearest first). The +
 * 0 that closes each leaf is added to the last sum alone: it changes nothing but the sign of a zero, and the
 * sum of zeros of any sign, closed, is +0 too. */
#define DEFINE_LEAF(name, ROWS)                                                                              \
    static void name(const struct sycpu_gemm_tile *tile, int64_t k, int64_t depth, const float *pending,     \
                     int merges, float *out, int64_t out_stride, int how, int last)                          \
    {                                                                                                        \
        const float *a = tile->a + k * TILE_ROWS, *b = tile->b + k * tile->b_stride;                         \
        float *copy = tile->copy ? tile->copy + k * TILE_COLUMNS : NULL;                                     \
        struct ahead ahead = look_ahead(tile, k);                                                            \
        ROWS(ROW_ZERO)                                                                                       \
        for (int64_t i = 0; i < depth; i++) {                                                                \
            vec b0 = vec_load(b), b1 = vec_load(b + LANES);                                                  \
            fetch_ahead(&ahead, tile);                                                                       \
            ROWS(ROW_STEP)                                                                                   \
            if (copy) {                                                                                      \
                vec_store(copy, b0);                                                                         \
                vec_store(copy + LANES, b1);                                                                 \
                copy += TILE_COLUMNS;                                                                        \
            }                                                                                                \
            a += TILE_ROWS;                                                                                  \
            b += tile->b_stride;                                                                             \
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

DEFINE_LEAF(leaf_2, ROWS_2)
DEFINE_LEAF(leaf_4, ROWS_4)
DEFINE_LEAF(leaf_6, ROWS_6)
#if TILE_ROWS >= 12
DEFINE_LEAF(leaf_8, ROWS_8)
DEFINE_LEAF(leaf_10, ROWS_10)
DEFINE_LEAF(leaf_12, ROWS_12)
#endif
#if TILE_ROWS >= 14
DEFINE_LEAF(leaf_14, ROWS_14)
#endif

/* By half the height. */
static void (*const leaf_of[])(const struct sycpu_gemm_tile *, int64_t, int64_t, const float *, int, float *,
                               int64_t, int, int) = {
    NULL,    leaf_2,  leaf_4,  leaf_6,
#if TILE_ROWS >= 12
    leaf_8,  leaf_10, leaf_12,
#endif
#if TILE_ROWS >= 14
    leaf_14,
#endif
};

void fast_gemm_leaf(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                    int64_t length)
{
    struct sycpu_gemm_place place = gemm_place_of(leaf, leaves);
    int last = place.last;
    leaf_of[tile->height / 2](tile, k, length, tile->pending + place.top, place.merges,
                              last ? tile->c : tile->pending + place.to, last ? tile->c_stride : TILE_COLUMNS,
                              last ? tile->how : SYCPU_GEMM_STORE, last);
}
