/* SPDX-License-Identifier: Apache-2.0 */
/* Writing past the caches, to tensors so large that they would not stay there until they are read. Their lines are not read from
 * memory before they are written. And zeros for what nothing fills: places of expert buffers past their tokens; few ops read
 * them, and the tokens between them would be driven out. */
#ifndef SYCPU_FAST_FAR_H
#define SYCPU_FAST_FAR_H

#include <string.h>

#include "backends/cpu/cpu.h"
#ifdef __AVX2__
#    include <immintrin.h>
#endif

/* Tensors of more bytes are large. */
#define SYCPU_FAR_BYTES (8 << 20)

/* Whether vf_stream may write all vectors of a tensor of float32, whose rows are whole ones. Not of bf16: there kernels are not
 * bound by memory, and were slower so. */
static inline int fast_is_far(const struct sy_tensor *tensor)
{
    return tensor->dtype == SY_F32 && sycpu_count(tensor) * 4 > SYCPU_FAR_BYTES &&
           (uintptr_t)tensor->data % 64 == 0;
}

#ifdef __AVX2__
/* Whole lines of 64 bytes. */
static inline void fast_zero_lines(char *to, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 32) _mm256_stream_si256((__m256i *)(to + i), _mm256_setzero_si256());
    _mm_sfence(); /* before other threads are told */
}
#else
static inline void fast_zero_lines(char *to, int64_t bytes)
{
    memset(to, 0, (size_t)bytes);
}
#endif

/* all: bytes of the tensor that these are a part of. */
static inline void fast_zero_bytes(char *to, int64_t bytes, int64_t all)
{
    if (all > SYCPU_FAR_BYTES && (uintptr_t)to % 64 == 0 && bytes % 64 == 0)
        fast_zero_lines(to, bytes);
    else
        memset(to, 0, (size_t)bytes);
}

/* Elements [first, first + n) of a tensor of float32 or bf16 become +0. */
static inline void fast_zero(const struct sy_tensor *tensor, int64_t first, int64_t n)
{
    const int64_t size = tensor->dtype == SY_BF16 ? 2 : 4;
    fast_zero_bytes((char *)tensor->data + first * size, n * size, sycpu_count(tensor) * size);
}

#endif
