/* SPDX-License-Identifier: Apache-2.0 */
/* The product of a warp on tensor cores, mma.sync.m16n8k16 with bfloat16 operands and float32 sums: c[16, 8] += a[16, 16] b[16, 8].
 * Compute capability 8.0 and newer; in what order it adds is the device's.
 *
 * With g = lane / 4 and t = lane % 4 a lane holds, two neighbours along the contraction in 32 bits, the first in the low half:
 *   a  rows g, g + 8, g, g + 8 of the pairs t, t, t + 4, t + 4
 *   b  column g of the pairs t, t + 4
 *   c  row g of columns 2 t, 2 t + 1, then row g + 8 of the same */
#ifndef SYCUDA_MMA_H
#define SYCUDA_MMA_H

#include "backends/cuda/cuda.h"

enum { SYCUDA_MMA_ROWS = 16, SYCUDA_MMA_COLUMNS = 8, SYCUDA_MMA_DEPTH = 16 };

struct sycuda_mma_a {
    uint32_t pair[4];
};
struct sycuda_mma_b {
    uint32_t pair[2];
};
struct sycuda_mma_c {
    float at[4];
};

__device__ static inline void sycuda_mma(struct sycuda_mma_c &c, const struct sycuda_mma_a &a,
                                         const struct sycuda_mma_b &b)
{
#ifdef __CUDACC__
#    if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]), "r"(b.pair[1]));
#    else
    __trap(); /* never launched as compiled for this: context->tensor_cores */
#    endif
#else
    emulated_mma(c.at, a.pair, b.pair);
#endif
}

/* ---- operands from shared memory ---- */

/* Two neighbours, of which the first is at a multiple of two elements: of memcpy nvcc makes two accesses. */
typedef uint32_t __attribute__((__may_alias__)) sycuda_mma_two;
__device__ static inline uint32_t sycuda_mma_pair(const sycuda_bf16 *x)
{
    return *reinterpret_cast<const sycuda_mma_two *>(x);
}
__device__ static inline uint32_t sycuda_mma_pair(float low, float high)
{
    return syi_bf16_from_float(low) | (uint32_t)syi_bf16_from_float(high) << 16;
}

/* x: the first element of 16 rows of 16, `step` elements from one row to the next. */
__device__ static inline struct sycuda_mma_a sycuda_mma_rows(const sycuda_bf16 *x, int step)
{
    const int lane = (int)threadIdx.x % 32;
    const sycuda_bf16 *low = x + lane / 4 * step + lane % 4 * 2, *high = low + 8 * step;
    return {
        {sycuda_mma_pair(low), sycuda_mma_pair(high), sycuda_mma_pair(low + 8), sycuda_mma_pair(high + 8)}};
}
/* x: the first element of 8 columns of 16, each contiguous, `step` elements from one column to the next. */
__device__ static inline struct sycuda_mma_b sycuda_mma_columns(const sycuda_bf16 *x, int step)
{
    const int lane = (int)threadIdx.x % 32;
    const sycuda_bf16 *column = x + lane / 4 * step + lane % 4 * 2;
    return {{sycuda_mma_pair(column), sycuda_mma_pair(column + 8)}};
}

#endif
