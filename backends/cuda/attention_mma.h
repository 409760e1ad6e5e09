/* SPDX-License-Identifier: Apache-2.0 */
/* What attention and its gradient on tensor cores share: operands in shared memory, the products of a block's warps.
 *
 * A block has a tile of 16, 32 or 64 positions, a warp for 8 of them; two warps share 16, and each has one half of the
 * columns of a product. */
#ifndef SYCUDA_ATTENTION_MMA_H
#define SYCUDA_ATTENTION_MMA_H

#include "backends/cuda/attention.h"
#include "backends/cuda/mma.h"

enum {
    SYCUDA_MMA_MOST = 128, /* columns of a head */
    SYCUDA_MMA_THREADS = 256,
    SYCUDA_MMA_PAD =
        8, /* elements after a row in shared memory: eight rows of pairs are read from all banks */
    SYCUDA_MMA_ACROSS = SYCUDA_KEYS + SYCUDA_MMA_PAD, /* elements of a column of 64 positions there */
    SYCUDA_MMA_VECTOR = 8                             /* elements of one access of 16 bytes */
};

struct alignas(16) sycuda_mma_vector {
    sycuda_bf16 at[SYCUDA_MMA_VECTOR];
};

/* ---- operands ---- */

/* `count` rows of a head, 0 after the last that there is. Rows begin at multiples of 16 elements. */
__device__ static inline void sycuda_mma_load_rows(sycuda_bf16 *to, sycuda_rows<sycuda_bf16> rows, int count)
{
    const int width = (int)rows.width, vectors = width / SYCUDA_MMA_VECTOR;
    for (int i = (int)threadIdx.x; i < count * vectors; i += (int)blockDim.x) {
        const int row = i / vectors, column = i % vectors * SYCUDA_MMA_VECTOR;
        sycuda_mma_vector x = {};
        if (row < rows.n) x = *reinterpret_cast<const sycuda_mma_vector *>(rows.x + row * rows.step + column);
        *reinterpret_cast<sycuda_mma_vector *>(to + row * (width + SYCUDA_MMA_PAD) + column) = x;
    }
}

/* 64 rows, transposed: to[column][row]. Rows that are not shown become 0: what lies there may be NaN, and 0 * NaN is none of a
 * sum's terms. BATCH pairs of a thread are read before the first is written. */
template <class Shown>
__device__ static inline void sycuda_mma_load_columns(sycuda_bf16 *to, sycuda_rows<sycuda_bf16> rows,
                                                      Shown shown)
{
    enum { BATCH = 4 };
    const int width = (int)rows.width, all = SYCUDA_KEYS / 2 * width, threads = (int)blockDim.x;
    for (int first = (int)threadIdx.x; first < all; first += BATCH * threads) {
        uint32_t pair[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int i = first + k * threads, row = i / width * 2, column = i % width;
            pair[k] = 0;
            if (i >= all) continue;
            if (shown(row)) pair[k] = rows.x[row * rows.step + column].bits;
            if (shown(row + 1)) pair[k] |= (uint32_t)rows.x[(row + 1) * rows.step + column].bits << 16;
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int i = first + k * threads, row = i / width * 2, column = i % width;
            if (i < all) *reinterpret_cast<sycuda_mma_two *>(to + column * SYCUDA_MMA_ACROSS + row) = pair[k];
        }
    }
}

/* ---- products of a warp ---- */

/* Its 16 positions of the tile, and the first of its columns, of which two warps have `n` together. */
struct sycuda_mma_share {
    int row, first;
};
__device__ static inline struct sycuda_mma_share sycuda_mma_share_of(int n)
{
    const int warp = (int)threadIdx.x / 32;
    return {warp / 2 * SYCUDA_MMA_ROWS, warp % 2 * (n / 2)};
}
/* Row and column of element e of tile i of a share. */
__device__ static inline int sycuda_mma_row(const struct sycuda_mma_share &share, int e)
{
    return share.row + (int)threadIdx.x % 32 / 4 + e / 2 * 8;
}
__device__ static inline int sycuda_mma_column(const struct sycuda_mma_share &share, int i, int e)
{
    return share.first + i * SYCUDA_MMA_COLUMNS + (int)threadIdx.x % 4 * 2 + e % 2;
}

/* Products of the tile's rows with 64 others: of sycuda_mma_share_of(64). */
enum { SYCUDA_MMA_SCORES = SYCUDA_KEYS / 2 / SYCUDA_MMA_COLUMNS };
struct sycuda_mma_scores {
    sycuda_mma_c at[SYCUDA_MMA_SCORES];
};
__device__ static inline struct sycuda_mma_scores sycuda_mma_dot(const sycuda_bf16 *left,
                                                                 const sycuda_bf16 *right, int width)
{
    const struct sycuda_mma_share mine = sycuda_mma_share_of(SYCUDA_KEYS);
    const int step = width + SYCUDA_MMA_PAD;
    sycuda_mma_scores c = {};
    for (int d = 0; d < width; d += SYCUDA_MMA_DEPTH) {
        const sycuda_mma_a a = sycuda_mma_rows(left + mine.row * step + d, step);
#pragma unroll
        for (int i = 0; i < SYCUDA_MMA_SCORES; i++)
            sycuda_mma(c.at[i], a,
                       sycuda_mma_columns(right + (mine.first + i * SYCUDA_MMA_COLUMNS) * step + d, step));
    }
    return c;
}

/* 16 weights, in rows of SYCUDA_SCORE_STEP, of 16 positions, rounded. mask: what each of the 16 is multiplied by before, or
 * NULL. */
__device__ static inline struct sycuda_mma_a sycuda_mma_weights(const float *weight, const float *mask)
{
    const int lane = (int)threadIdx.x % 32, first = lane % 4 * 2;
    const float *row = weight + lane / 4 * SYCUDA_SCORE_STEP + first;
    sycuda_mma_a a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = i / 2 * 8;
        float low = row[i % 2 * 8 * SYCUDA_SCORE_STEP + at],
              high = row[i % 2 * 8 * SYCUDA_SCORE_STEP + at + 1];
        if (mask) {
            low = SYI_DROP(low, mask[first + at]);
            high = SYI_DROP(high, mask[first + at + 1]);
        }
        a.pair[i] = sycuda_mma_pair(low, high);
    }
    return a;
}

/* Weighted sums of the tile's positions: of sycuda_mma_share_of(width), width at most 16 * STEPS. */
template <int STEPS> struct sycuda_mma_sums {
    sycuda_mma_c at[STEPS];
};

/* Goes on with them over 64 rows, whose columns sycuda_mma_load_columns has laid out. */
template <int STEPS>
__device__ static inline void sycuda_mma_add(sycuda_mma_sums<STEPS> &sums, const float *weight,
                                             const sycuda_bf16 *columns, int width, const float *mask)
{
    const struct sycuda_mma_share mine = sycuda_mma_share_of(width);
    for (int k = 0; k < SYCUDA_KEYS; k += SYCUDA_MMA_DEPTH) {
        const sycuda_mma_a a =
            sycuda_mma_weights(weight + mine.row * SYCUDA_SCORE_STEP + k, mask ? mask + k : nullptr);
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            if (i * SYCUDA_MMA_DEPTH < width)
                sycuda_mma(sums.at[i], a,
                           sycuda_mma_columns(
                               columns + (mine.first + i * SYCUDA_MMA_COLUMNS) * SYCUDA_MMA_ACROSS + k,
                               SYCUDA_MMA_ACROSS));
    }
}

/* to[row * step + column] = finish(row, sum) for the first n positions. */
template <int STEPS, class Out, class Finish>
__device__ static inline void sycuda_mma_write(const sycuda_mma_sums<STEPS> &sums, int width, Out *to,
                                               int64_t step, int64_t n, Finish finish)
{
    const struct sycuda_mma_share mine = sycuda_mma_share_of(width);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = sycuda_mma_row(mine, e);
            if (i * SYCUDA_MMA_DEPTH < width && row < n)
                sycuda_write(to + row * step + sycuda_mma_column(mine, i, e), finish(row, sums.at[i].at[e]));
        }
}

#endif
