/* SPDX-License-Identifier: Apache-2.0 */
/* What sums and maxima over blocks share (doc/numerics.md): the rules of a block, the row of 16 lanes, and the chain over rows
 * of 32 columns by a thread block. Used by sums.cu and map_sums.cu. */
#ifndef SYCUDA_REDUCE_H
#define SYCUDA_REDUCE_H

#include "backends/cuda/cuda.h"

enum {
    SYCUDA_CHAIN_COLUMNS = 32,  /* of a thread block */
    SYCUDA_CHAIN_TEAMS = 8,     /* threads that share a column there */
    SYCUDA_CHAIN_TILE_ROWS = 64 /* held in shared memory */
};

/* ---- what a block is reduced to ---- */

__device__ static inline float sycuda_nan()
{
    return syi_f32_real(0x7fc00000);
}

struct sycuda_plain_sum {
    typedef float value;
    __device__ static value take(value lane, float x) { return lane + x; }
    __device__ static value lanes(value lane) { return sycuda_lane_sum(lane); }
    __device__ static value chain(value acc, value row) { return acc + row; }
    __device__ static float result(value acc) { return acc; }
};
struct sycuda_square_sum {
    typedef float value;
    __device__ static value take(value lane, float x) { return fmaf(x, x, lane); }
    __device__ static value lanes(value lane) { return sycuda_lane_sum(lane); }
    __device__ static value chain(value acc, value row) { return acc + row; }
    __device__ static float result(value acc) { return acc; }
};
/* The bits of |x| ascend with it, and those of NaN come last. */
struct sycuda_largest_size {
    typedef uint32_t value;
    __device__ static value chain(value a, value b) { return a > b ? a : b; }
    __device__ static value take(value lane, float x)
    {
        return chain(lane, (uint32_t)syi_f32_bits(x) & 0x7fffffffu);
    }
    __device__ static value lanes(value lane)
    {
        for (int s = SYCUDA_LANES / 2; s >= 1; s /= 2)
            lane = chain(lane, __shfl_xor_sync(0xffffffffu, lane, s, SYCUDA_LANES));
        return lane;
    }
    __device__ static float result(value acc)
    {
        return acc > 0x7f800000u ? sycuda_nan() : syi_f32_real((int32_t)acc);
    }
};

/* ---- rows and columns ---- */

/* Of 16 lanes together; n 0: no row. */
template <class Rule, class In>
__device__ static inline typename Rule::value sycuda_row_of(const In *x, int64_t n)
{
    typename Rule::value lane = 0;
    for (int64_t i = sycuda_lane(); i < n; i += SYCUDA_LANES) lane = Rule::take(lane, sycuda_read(x + i));
    return Rule::lanes(lane);
}

/* Of a thread block: what the rule makes of rows 0 .. rows - 1 of 32 columns, in order. read(row): the element of the
 * thread's column. The result is that of the first warp's threads. */
template <class Rule, class Read>
__device__ static inline typename Rule::value sycuda_chain_columns(int64_t rows, Read read)
{
    __shared__ float tile[SYCUDA_CHAIN_TILE_ROWS][SYCUDA_CHAIN_COLUMNS];
    const int column = (int)threadIdx.x % SYCUDA_CHAIN_COLUMNS,
              team = (int)threadIdx.x / SYCUDA_CHAIN_COLUMNS;
    float next[SYCUDA_CHAIN_TILE_ROWS / SYCUDA_CHAIN_TEAMS];
    typename Rule::value acc = 0;
    for (int k = 0; k < SYCUDA_CHAIN_TILE_ROWS / SYCUDA_CHAIN_TEAMS; k++)
        next[k] = k * SYCUDA_CHAIN_TEAMS + team < rows ? read(k * SYCUDA_CHAIN_TEAMS + team) : 0;
    for (int64_t first = 0; first < rows; first += SYCUDA_CHAIN_TILE_ROWS) {
        for (int k = 0; k < SYCUDA_CHAIN_TILE_ROWS / SYCUDA_CHAIN_TEAMS; k++)
            tile[k * SYCUDA_CHAIN_TEAMS + team][column] = next[k];
        __syncthreads();
        for (int k = 0; k < SYCUDA_CHAIN_TILE_ROWS / SYCUDA_CHAIN_TEAMS; k++) {
            const int64_t row = first + SYCUDA_CHAIN_TILE_ROWS + k * SYCUDA_CHAIN_TEAMS + team;
            next[k] = row < rows ? read(row) : 0;
        }
        const int n = rows - first < SYCUDA_CHAIN_TILE_ROWS ? (int)(rows - first) : SYCUDA_CHAIN_TILE_ROWS;
        for (int k = 0; k < n && team == 0; k++) acc = Rule::chain(acc, Rule::take(0, tile[k][column]));
        __syncthreads();
    }
    return acc;
}

#endif
