/* SPDX-License-Identifier: Apache-2.0 */
/* The first n of a row's items in order, by one block: top_k and the router in which experts choose.
 *
 * Items are compared by a rank of 64 bits, the key and then the index, so no two are equal. The first SYCUDA_CHOSEN are
 * found by counting digits of the ranks (a byte at a time, from the top, until the rest of a digit is taken whole),
 * gathered in shared memory and placed by counting who is before them; then the next SYCUDA_CHOSEN, down to n. */
#ifndef SYCUDA_SELECT_H
#define SYCUDA_SELECT_H

#include "backends/cuda/cuda.h"

enum { SYCUDA_CHOSEN = 1024 };

/* Keys are in the order of numbers, +0 and -0 equal; every NaN has the lowest, 1. 0: not to be chosen. */
__device__ static inline uint32_t sycuda_key(float x)
{
    if (x != x) return 1;
    uint32_t bits = (uint32_t)syi_f32_bits(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Counts of a digit, and what the choice of one says to all threads. */
struct sycuda_digits {
    unsigned items[256];
    unsigned digit, before; /* that of the last item wanted; items of higher digits */
};

/* One warp: the digit in which the wanted-th item lies, counted from the highest; each lane adds 8 digits. */
__device__ static inline void sycuda_find_digit(struct sycuda_digits *d, unsigned wanted)
{
    const unsigned lane = threadIdx.x % 32, base = 8 * (31 - lane);
    unsigned own = 0;
    for (unsigned i = 0; i < 8; i++) own += d->items[base + i];
    unsigned sum = own; /* of this lane and those before it */
    for (unsigned s = 1; s < 32; s *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, sum, s);
        if (lane >= s) sum += other;
    }
    if (sum - own >= wanted || sum < wanted) return;
    unsigned before = sum - own, digit = base + 7;
    while (before + d->items[digit] < wanted) before += d->items[digit--];
    d->digit = digit;
    d->before = before;
}

/* The lowest rank of the first n among those below `end`; rank(i) for i in [0, count). All threads call it. */
template <class Rank>
__device__ static inline uint64_t sycuda_lowest_chosen(int64_t count, unsigned n, uint64_t end, Rank rank)
{
    __shared__ struct sycuda_digits d;
    uint64_t known = 0; /* of the rank looked for */
    for (int shift = 56;; shift -= 8) {
        for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) d.items[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
            uint64_t r = rank(i);
            if (r < end && (r ^ known) >> shift < 256) atomicAdd(&d.items[r >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x < 32) sycuda_find_digit(&d, n);
        __syncthreads();
        n -= d.before;
        known |= (uint64_t)d.digit << shift;
        int whole = d.items[d.digit] == n;
        __syncthreads();
        if (whole) return known;
    }
}

/* give(place, index) for the first n items, n at most count, the largest key(i) first, of equals the lowest i. One
 * thread makes each call of it. All threads of the block call this function. */
template <class Key, class Give>
__device__ static inline void sycuda_select(int64_t count, int64_t n, Key key, Give give)
{
    __shared__ uint64_t chosen[SYCUDA_CHOSEN];
    __shared__ unsigned held;
    uint64_t end = UINT64_MAX;
    auto rank = [&](int64_t i) { return (uint64_t)key(i) << 32 | (uint64_t)(count - 1 - i); };
    for (int64_t done = 0; done < n; done += SYCUDA_CHOSEN) {
        unsigned most = n - done < SYCUDA_CHOSEN ? (unsigned)(n - done) : (unsigned)SYCUDA_CHOSEN;
        uint64_t from = count <= SYCUDA_CHOSEN ? 0 : sycuda_lowest_chosen(count, most, end, rank);
        if (threadIdx.x == 0) held = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
            uint64_t r = rank(i);
            if (r >= from && r < end) chosen[atomicAdd(&held, 1u)] = r;
        }
        __syncthreads();
        for (unsigned i = threadIdx.x; i < held; i += blockDim.x) {
            unsigned place = 0;
            for (unsigned j = 0; j < held; j++) place += chosen[j] > chosen[i];
            if (place < most) give(done + place, count - 1 - (int64_t)(chosen[i] & 0xffffffffu));
        }
        __syncthreads();
        end = from;
    }
}

#endif
