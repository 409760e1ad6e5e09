/* SPDX-License-Identifier: Apache-2.0 */
/* Four neighbouring elements, which a thread takes at a time from memory or a tile of floats: one access of 16 bytes
 * (bfloat16: 8) where rows begin at multiples of four elements, else four accesses; and their random bits. */
#ifndef SYCUDA_FOUR_H
#define SYCUDA_FOUR_H

#include "backends/cuda/cuda.h"

enum { SYCUDA_FOUR = 4 };

template <class T> struct alignas(SYCUDA_FOUR * sizeof(T)) sycuda_four_of {
    T v[SYCUDA_FOUR];
};
typedef sycuda_four_of<float> sycuda_four;

/* How many fours a row of n elements has; the last may be short. */
static inline int64_t sycuda_fours(int64_t n)
{
    return (n + SYCUDA_FOUR - 1) / SYCUDA_FOUR;
}

/* ---- reading and writing ---- */

/* Of elements at a multiple of four. */
template <class T> __device__ static inline sycuda_four sycuda_read_four(const T *x)
{
    const sycuda_four_of<T> stored = *reinterpret_cast<const sycuda_four_of<T> *>(x);
    sycuda_four four;
    for (int e = 0; e < SYCUDA_FOUR; e++) four.v[e] = sycuda_read(&stored.v[e]);
    return four;
}
template <class T> __device__ static inline void sycuda_write_four(T *y, const sycuda_four &four)
{
    sycuda_four_of<T> stored;
    for (int e = 0; e < SYCUDA_FOUR; e++) sycuda_write(&stored.v[e], four.v[e]);
    *reinterpret_cast<sycuda_four_of<T> *>(y) = stored;
}

/* The first n (at least 1) of four, 0 for the others. aligned: x is at a multiple of four elements. */
template <class T> __device__ static inline sycuda_four sycuda_read_some(const T *x, int n, int aligned)
{
    if (aligned && n == SYCUDA_FOUR) return sycuda_read_four(x);
    sycuda_four four;
    for (int e = 0; e < SYCUDA_FOUR; e++) four.v[e] = e < n ? sycuda_read(x + e) : 0;
    return four;
}
template <class T>
__device__ static inline void sycuda_write_some(T *y, const sycuda_four &four, int n, int aligned)
{
    if (aligned && n == SYCUDA_FOUR)
        sycuda_write_four(y, four);
    else
        for (int e = 0; e < SYCUDA_FOUR; e++)
            if (e < n) sycuda_write(y + e, four.v[e]);
}

/* The same from element `at` of an operand whose dtype is not that of the kernel's template. */
__device__ static inline sycuda_four sycuda_read_any(const void *x, int dtype, int64_t at, int n, int aligned)
{
    if (dtype == SY_BF16) return sycuda_read_some(static_cast<const sycuda_bf16 *>(x) + at, n, aligned);
    return sycuda_read_some(static_cast<const float *>(x) + at, n, aligned);
}
__device__ static inline void sycuda_write_any(void *y, int dtype, int64_t at, const sycuda_four &four, int n,
                                               int aligned)
{
    if (dtype == SY_BF16)
        sycuda_write_some(static_cast<sycuda_bf16 *>(y) + at, four, n, aligned);
    else
        sycuda_write_some(static_cast<float *>(y) + at, four, n, aligned);
}

/* ---- random bits ---- */

/* 16 bits of each of channels `channel` to `channel` + 3: syi_channel_bits without an array that is indexed. */
__device__ static inline void sycuda_four_bits(const uint32_t counter[3], const uint32_t key[2],
                                               int64_t channel, uint32_t bits[4])
{
    uint32_t words[4];
    for (int e = 0; e < SYCUDA_FOUR; e++) {
        const int64_t c = channel + e;
        if (e == 0 || c % 8 == 0) {
            const uint32_t whole[4] = {counter[0], counter[1], counter[2], (uint32_t)(c / 8)};
            syi_philox(whole, key, words);
        }
        const uint32_t low = c & 2 ? words[1] : words[0], high = c & 2 ? words[3] : words[2];
        bits[e] = (c & 4 ? high : low) >> (c & 1 ? 16 : 0) & 0xffffu;
    }
}

/* Of a dropout whose key and step are still to be read from the rng state: see syi_dropout_init. */
static inline struct syi_dropout sycuda_dropout(int64_t site, double rate)
{
    static const int64_t unknown[4] = {0, 0, 0, 0};
    return syi_dropout_init(unknown, site, rate);
}

/* Masks of four channels. rng: on the device. */
__device__ static inline sycuda_four sycuda_four_masks(const struct syi_dropout &d, const int64_t *rng,
                                                       uint32_t row, uint32_t position, int64_t channel)
{
    const uint32_t counter[3] = {(uint32_t)rng[SY_RNG_STEP], row, position};
    const uint32_t key[2] = {(uint32_t)rng[SY_RNG_SEED], d.key[1]};
    uint32_t bits[4];
    sycuda_four mask;
    sycuda_four_bits(counter, key, channel, bits);
    for (int e = 0; e < SYCUDA_FOUR; e++) mask.v[e] = bits[e] >= d.threshold ? d.scale : 0;
    return mask;
}

#endif
