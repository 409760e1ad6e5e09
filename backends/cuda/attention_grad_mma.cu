/* SPDX-License-Identifier: Apache-2.0 */
/* attention_grad of bfloat16 on tensor cores: the two products of pairs, and the sums over them, of which attention_grad.cu
 * does the rest. p and ds are float32 between both, and are rounded to bfloat16 before they are multiplied.
 *
 *     pairs, a block for a tile of queries and 64 keys:
 *         q [TILE][K], keys [64][K]         shared memory; scores, in registers
 *         dout [TILE][K], values [64][K]    in their place; dp, in registers; p and ds go to the workspace
 *     sums, a block for a tile of dq, dk or dv, over 64 positions of the other axis at a time:
 *         ds or p [TILE][64]                shared memory, 0 where a pair does not see each other
 *         keys, q or dout [K][64]           shared memory, transposed; sums [TILE][K], in registers */
#include "config.h"

#include "backends/cuda/attention_grad.h"
#include "backends/cuda/attention_mma.h"

/* ---- pairs ---- */

/* The products of a warp become p and ds. mask: dropout of keys, or NULL. */
__device__ static inline void store_pairs(const sycuda_attention_pairs &g, const sycuda_mma_scores &score,
                                          const sycuda_mma_scores &dp, const float *lse,
                                          const float *diagonal, const float *mask, int64_t pair,
                                          int64_t from, int64_t first)
{
    const sycuda_attention_call &a = g.a;
    const struct sycuda_mma_share mine = sycuda_mma_share_of(SYCUDA_KEYS);
    const int tile = (int)blockDim.x / 4;
    const int64_t head = pair % a.heads;
    for (int e = 0; e < 4; e++) {
        const int y = sycuda_mma_row(mine, e);
        const int64_t query = from + y;
        const sycuda_attention_grad_query of = sycuda_attention_grad_query_of(g, lse, pair, query, first);
        if (!of.seen) continue;
#pragma unroll
        for (int i = 0; i < SYCUDA_MMA_SCORES; i++) {
            const int key = sycuda_mma_column(mine, i, e);
            if (!(of.seen >> key & 1)) continue;
            float s = 0, product = dp.at[i].at[e];
            if (!of.blind)
                s = sycuda_attention_biased(a, score.at[i].at[e], diagonal + key - y + tile - 1, head, query,
                                            first + key);
            if (mask) product = SYI_DROP(product, mask[key]);
            sycuda_attention_grad_store(g, sycuda_attention_grad_at(g, pair, query, first + key), of, s,
                                        product);
        }
    }
}

static size_t pairs_bytes(int tile, int width)
{
    return (size_t)((tile + SYCUDA_KEYS) * (width + SYCUDA_MMA_PAD)) * sizeof(sycuda_bf16) +
           (size_t)(tile + 64 + 64) * sizeof(float);
}

/* Blocks: (row, head), tile of queries, block of keys. */
__global__ void __launch_bounds__(SYCUDA_MMA_THREADS)
    grad_pairs_mma(sycuda_attention_pairs g, const sycuda_bf16 *q, const sycuda_bf16 *kv, const float *lse,
                   const sycuda_bf16 *dout, int tiles)
{
    SYCUDA_DYNAMIC_SHARED(sycuda_bf16, memory);
    const sycuda_attention_call &a = g.a;
    const int tile = (int)blockDim.x / 4, width = (int)a.head_dim;
    const int64_t blocks = (a.keys + SYCUDA_KEYS - 1) / SYCUDA_KEYS;
    const int64_t first = blockIdx.x % blocks * SYCUDA_KEYS, from = blockIdx.x / blocks % tiles * tile;
    const int64_t pair = g.first + blockIdx.x / blocks / tiles, row = pair / a.heads, head = pair % a.heads;
    sycuda_bf16 *right = memory + tile * (width + SYCUDA_MMA_PAD);
    float *diagonal = reinterpret_cast<float *>(right + SYCUDA_KEYS * (width + SYCUDA_MMA_PAD));
    float *mask = diagonal + tile + 64;
    if (!__syncthreads_or(sycuda_attention_seen(a, row, from + threadIdx.x / 4, first) != 0)) return;
    sycuda_attention_diagonal(a, head, first, from + tile - 1, tile + SYCUDA_KEYS - 1, diagonal);
    sycuda_attention_masks(a, row, head, first, SYCUDA_KEYS, mask);
    sycuda_mma_load_rows(memory, sycuda_attention_q_rows(a, q, row, head, from), tile);
    sycuda_mma_load_rows(right, sycuda_attention_kv_rows(a, kv, row, head, first, 2), SYCUDA_KEYS);
    __syncthreads();
    const sycuda_mma_scores score = sycuda_mma_dot(memory, right, width);
    __syncthreads();
    sycuda_mma_load_rows(memory, sycuda_attention_out_rows(a, dout, row, head, from), tile);
    sycuda_mma_load_rows(right, sycuda_attention_kv_rows(a, kv, row, head, first, 1), SYCUDA_KEYS);
    __syncthreads();
    const sycuda_mma_scores dp = sycuda_mma_dot(memory, right, width);
    store_pairs(g, score, dp, lse, diagonal, a.rng ? mask : nullptr, pair, from, first);
}

/* ---- sums ---- */

/* weights[i][j] of position i of the tile and j of the other axis; 0 where they do not see each other. A thread has EACH of them,
 * which are read before the first is written. */
__device__ static inline void load_weights(const float *weight, int of_queries, int64_t keys, int64_t from,
                                           int64_t at, const uint64_t *bits, float *weights)
{
    enum { EACH = SYCUDA_KEYS / 4 };
    const int tile = (int)blockDim.x / 4, e = (int)threadIdx.x;
    const int i = of_queries ? e / SYCUDA_KEYS : e % tile, j = of_queries ? e % SYCUDA_KEYS : e / tile;
    const int i_step = of_queries ? tile / EACH : 0, j_step = of_queries ? 0 : 4;
    const float *x = weight + (of_queries ? (from + i) * keys + at + j : (at + j) * keys + from + i);
    const int64_t step = (i_step + j_step) * keys;
    float next[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) next[k] = bits[j + k * j_step] >> (i + k * i_step) & 1 ? x[k * step] : 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) weights[(i + k * i_step) * SYCUDA_SCORE_STEP + j + k * j_step] = next[k];
}

static size_t sums_bytes(int tile, int width)
{
    return (size_t)(width * SYCUDA_MMA_ACROSS) * sizeof(sycuda_bf16) + SYCUDA_KEYS * sizeof(uint64_t) +
           (size_t)(tile * SYCUDA_SCORE_STEP + SYCUDA_KEYS) * sizeof(float);
}

/* Blocks: (row, head), tile: those of dq before those of dk, then dv. */
template <int STEPS, class Out>
__global__ void __launch_bounds__(SYCUDA_MMA_THREADS)
    grad_sums_mma(sycuda_attention_pairs g, const sycuda_bf16 *q, const sycuda_bf16 *kv,
                  const sycuda_bf16 *dout, Out *dq, Out *dkv, int q_tiles, int k_tiles)
{
    SYCUDA_DYNAMIC_SHARED(sycuda_bf16, columns);
    const sycuda_attention_call &a = g.a;
    const int tile = (int)blockDim.x / 4, all = q_tiles + 2 * k_tiles, width = (int)a.head_dim;
    const int64_t pair = g.first + blockIdx.x / all, row = pair / a.heads;
    int task = (int)(blockIdx.x % all), which = 0;
    if (task >= q_tiles) task -= q_tiles, which = 1 + task / k_tiles, task %= k_tiles;
    const int64_t from = (int64_t)task * tile;
    uint64_t *bits = reinterpret_cast<uint64_t *>(columns + width * SYCUDA_MMA_ACROSS);
    float *weights = reinterpret_cast<float *>(bits + SYCUDA_KEYS),
          *mask = weights + tile * SYCUDA_SCORE_STEP;
    sycuda_attention_grad_sum<sycuda_bf16, Out> sum =
        sycuda_attention_grad_task(g, which, q, kv, dout, dq, dkv, pair, from);
    sycuda_mma_sums<STEPS> sums = {};
    for (int64_t at = 0; sum.x.n > 0; at += SYCUDA_KEYS) {
        __syncthreads();
        if (sycuda_attention_grad_bits(a, which == 0, row, from, at, bits)) {
            load_weights(sum.weight, which == 0, a.keys, from, at, bits, weights);
            sycuda_mma_load_columns(columns, sum.x, [=](int i) { return bits[i] << (64 - tile) != 0; });
            __syncthreads();
            sycuda_mma_add(sums, weights, columns, width, nullptr);
        }
        sum.x.x += SYCUDA_KEYS * sum.x.step;
        sum.x.n -= SYCUDA_KEYS;
    }
    const int masked = which == 2 && a.rng;
    if (masked) sycuda_attention_masks(a, row, pair % a.heads, from, tile, mask);
    __syncthreads();
    sycuda_mma_write(sums, width, sum.to, sum.to_step, sum.n,
                     [=](int i, float value) { return masked ? SYI_DROP(value, mask[i]) : value; });
}

/* ---- the call ---- */

template <int STEPS>
static void launch_sums(const struct sycuda_attention_pairs &g, const struct sy_call *call,
                        cudaStream_t stream)
{
    const sycuda_attention_call &a = g.a;
    const int tile = sycuda_attention_tile(a.queries > a.keys ? a.queries : a.keys);
    const int q_tiles = (int)sycuda_pieces(a.queries, tile), k_tiles = (int)sycuda_pieces(a.keys, tile);
    sycuda_by_dtype(call->out[0].dtype, [&](auto y) {
        using Out = decltype(y);
        Out *dq = sycuda_out<Out>(call, 0), *dkv = call->out[1].rank ? sycuda_out<Out>(call, 1) : dq;
        SYCUDA_LAUNCH((grad_sums_mma<STEPS, Out>), g.n * (q_tiles + 2 * k_tiles), 4 * tile,
                      sums_bytes(tile, (int)a.head_dim), stream, g, sycuda_in<sycuda_bf16>(call, 0),
                      sycuda_in<sycuda_bf16>(call, 1), sycuda_in<sycuda_bf16>(call, SYCUDA_GRAD_DOUT), dq,
                      dkv, q_tiles, k_tiles);
    });
}

void sycuda_attention_grad_mma(const struct sycuda_attention_pairs *g, const struct sy_call *call,
                               cudaStream_t stream)
{
    const sycuda_attention_call &a = g->a;
    const int tile = sycuda_attention_tile(a.queries), tiles = (int)sycuda_pieces(a.queries, tile);
    SYCUDA_LAUNCH(grad_pairs_mma, g->n * tiles * sycuda_pieces(a.keys, SYCUDA_KEYS), 4 * tile,
                  pairs_bytes(tile, (int)a.head_dim), stream, *g, sycuda_in<sycuda_bf16>(call, 0),
                  sycuda_in<sycuda_bf16>(call, 1), sycuda_in<float>(call, SYCUDA_GRAD_LSE),
                  sycuda_in<sycuda_bf16>(call, SYCUDA_GRAD_DOUT), tiles);
    if (a.head_dim <= 4 * SYCUDA_MMA_DEPTH)
        launch_sums<4>(*g, call, stream);
    else
        launch_sums<8>(*g, call, stream);
}
