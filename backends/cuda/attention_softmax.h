/* SPDX-License-Identifier: Apache-2.0 */
/* The running softmax of attention, which both forward kernels have: scores of a tile of queries and 64 keys are in shared memory,
 * four threads a query make weights of them there. */
#ifndef SYCUDA_ATTENTION_SOFTMAX_H
#define SYCUDA_ATTENTION_SOFTMAX_H

#include "backends/cuda/attention.h"

/* What a block has in shared memory; floats but for `seen`. */
struct sycuda_attention_shared {
    float *work;     /* of the kernel: operands of products */
    float *weight;   /* [TILE][SYCUDA_SCORE_STEP] scores, then weights */
    float *diagonal; /* [TILE + 64] bias by distance */
    float *factor;   /* [TILE] what earlier sums are multiplied by */
    float *mask;     /* [64] dropout of keys */
    uint64_t *seen;  /* [TILE] */
};

/* Bytes of it; work: floats of `work`. */
static inline size_t sycuda_attention_shared_bytes(int tile, int work)
{
    const int floats = work + tile * SYCUDA_SCORE_STEP + tile + 64 + tile + 64;
    return (size_t)floats * sizeof(float) + (size_t)tile * sizeof(uint64_t);
}

__device__ static inline sycuda_attention_shared sycuda_attention_shared_at(float *memory, int tile, int work)
{
    sycuda_attention_shared s;
    s.work = memory;
    s.weight = s.work + work;
    s.diagonal = s.weight + tile * SYCUDA_SCORE_STEP;
    s.factor = s.diagonal + tile + 64;
    s.mask = s.factor + tile;
    s.seen = reinterpret_cast<uint64_t *>(s.mask + 64);
    return s;
}

/* The running softmax of a query, held by each of its four threads. */
struct sycuda_attention_softmax {
    float top, sum; /* largest score, sum of weights */
    int begun;      /* a key was seen */
};

/* Scores of a block of keys become weights; part 0 .. 3 of four threads has keys part, part + 4, ... Returns the factor
 * for earlier sums. Lane l of the row sum is in part l % 4. */
__device__ static inline float sycuda_attention_weigh(sycuda_attention_softmax &s, const float score[16],
                                                      uint64_t seen, int part, float *weight)
{
    float high = -INFINITY, lane[4] = {0, 0, 0, 0}, factor = 1, old = s.top;
#pragma unroll
    for (int j = 0; j < 16; j++)
        if (seen >> (part + 4 * j) & 1) high = high > score[j] ? high : score[j];
    for (int with = 1; with <= 2; with *= 2) {
        float other = __shfl_xor_sync(0xffffffffu, high, with);
        high = high > other ? high : other;
    }
    if (seen) s.top = s.begun && s.top > high ? s.top : high;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float p = seen >> (part + 4 * j) & 1 ? syi_exp(score[j] - s.top) : 0;
        weight[part + 4 * j] = p;
        lane[j % 4] += p;
    }
    float sum = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    for (int with = 2; with >= 1; with /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, with);
    if (!seen) return 1;
    if (s.begun) factor = syi_exp(old - s.top);
    s.sum = s.sum * factor + sum;
    s.begun = 1;
    return factor;
}

/* The scores of the block's keys, seen from a softmax thread, go through sycuda_attention_weigh. */
__device__ static inline float sycuda_attention_softmax_block(const sycuda_attention_call &a,
                                                              const sycuda_attention_shared &s,
                                                              sycuda_attention_softmax &softmax, int64_t row,
                                                              int64_t head, int64_t query, int64_t first,
                                                              uint64_t seen)
{
    const int tile = (int)blockDim.x / 4, mine = (int)threadIdx.x / 4, part = (int)threadIdx.x % 4;
    const int blind = seen && a.blind[row * a.queries + query];
    float *weight = s.weight + mine * SYCUDA_SCORE_STEP, score[16];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const int key = part + 4 * j;
        score[j] = blind ? 0 : weight[key];
        if (!blind && seen >> key & 1)
            score[j] = sycuda_attention_biased(a, score[j], s.diagonal + key - mine + tile - 1, head, query,
                                               first + key);
    }
    return sycuda_attention_weigh(softmax, score, seen, part, weight);
}

#endif
