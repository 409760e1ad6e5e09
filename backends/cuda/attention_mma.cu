/* SPDX-License-Identifier: Apache-2.0 */
/* attention of bfloat16 on tensor cores, for heads of a multiple of 16 columns, up to 128. The softmax is that of attention.cu, in
 * float32 (attention_softmax.h); weights are rounded to bfloat16 before they are multiplied by values.
 *
 * A block has a tile of 16, 32 or 64 queries of one (row, head), a warp for 8 of them, and goes over the keys in blocks of 64:
 *
 *     queries [TILE][K]           once, to shared memory
 *     keys [64][K]                to shared memory
 *     scores [TILE][64]           two warps share 16 queries, 32 keys each; to shared memory, float32
 *     weights [TILE][64]          in their place, by the running softmax: four threads a query
 *     values [K][64], transposed  in the place of the keys
 *     sums [TILE][K]              two warps share 16 queries, K / 2 columns each; they stay in registers
 *
 * Every row of a product is by itself, so a query's bits do not depend on the others of its tile, but that a value which is not finite
 * makes NaN of all queries of a tile of which one sees it. */
#include "config.h"

#include "backends/cuda/attention_mma.h"
#include "backends/cuda/attention_softmax.h"

enum { SHARED_BYTES = 48 << 10 };

/* The keys that any query of the block sees, of which `seen` is the thread's. Has a barrier. */
__device__ static inline uint64_t seen_by_any(uint64_t seen)
{
    __shared__ uint64_t by_warp[SYCUDA_MMA_THREADS / 32];
    uint64_t all = 0;
    for (int with = 4; with < 32; with *= 2) seen |= __shfl_xor_sync(0xffffffffu, seen, with);
    if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = seen;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) all |= by_warp[w];
    return all;
}

__device__ static inline void store_scores(const struct sycuda_mma_scores &scores, float *to)
{
    const struct sycuda_mma_share mine = sycuda_mma_share_of(SYCUDA_KEYS);
#pragma unroll
    for (int i = 0; i < SYCUDA_MMA_SCORES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[sycuda_mma_row(mine, e) * SYCUDA_SCORE_STEP + sycuda_mma_column(mine, i, e)] =
                scores.at[i].at[e];
}

/* factor: of each query. */
template <int STEPS>
__device__ static inline void scale_sums(sycuda_mma_sums<STEPS> &sums, int width, const float *factor)
{
    const struct sycuda_mma_share mine = sycuda_mma_share_of(width);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums.at[i].at[e] *= factor[sycuda_mma_row(mine, e)];
}

/* ---- the kernel ---- */

/* Floats of shared memory that the operands of products take. */
static int work_floats(int tile, int width)
{
    const int keys = SYCUDA_KEYS * (width + SYCUDA_MMA_PAD), values = width * SYCUDA_MMA_ACROSS;
    return (tile * (width + SYCUDA_MMA_PAD) + (keys > values ? keys : values)) / 2;
}

/* Blocks: (row, head, tile of queries). */
template <int STEPS, class Out>
__global__ void __launch_bounds__(SYCUDA_MMA_THREADS)
    attention_mma(sycuda_attention_call a, const sycuda_bf16 *q, const sycuda_bf16 *kv, Out *out, float *lse,
                  int tiles, int work)
{
    SYCUDA_DYNAMIC_SHARED(float, memory);
    const int tile = (int)blockDim.x / 4, mine = (int)threadIdx.x / 4, width = (int)a.head_dim;
    const int64_t pair = blockIdx.x / tiles, from = (int64_t)(blockIdx.x % tiles) * tile, query = from + mine;
    const int64_t row = pair / a.heads, head = pair % a.heads;
    const sycuda_attention_shared s = sycuda_attention_shared_at(memory, tile, work);
    sycuda_bf16 *queries = reinterpret_cast<sycuda_bf16 *>(s.work),
                *right = queries + tile * (width + SYCUDA_MMA_PAD);
    sycuda_attention_softmax softmax = {0, 0, 0};
    sycuda_mma_sums<STEPS> sums = {};
    sycuda_mma_load_rows(queries, sycuda_attention_q_rows(a, q, row, head, from), tile);
    for (int64_t first = 0; first < a.keys; first += SYCUDA_KEYS) {
        const uint64_t seen = sycuda_attention_seen(a, row, query, first), shown = seen_by_any(seen);
        if (!shown) {
            __syncthreads();
            continue;
        }
        sycuda_attention_diagonal(a, head, first, from + tile - 1, tile + SYCUDA_KEYS - 1, s.diagonal);
        sycuda_attention_masks(a, row, head, first, SYCUDA_KEYS, s.mask);
        sycuda_mma_load_rows(right, sycuda_attention_kv_rows(a, kv, row, head, first, 2), SYCUDA_KEYS);
        __syncthreads();
        store_scores(sycuda_mma_dot(queries, right, width), s.weight);
        __syncthreads();
        s.factor[mine] = sycuda_attention_softmax_block(a, s, softmax, row, head, query, first, seen);
        sycuda_mma_load_columns(right, sycuda_attention_kv_rows(a, kv, row, head, first, 1),
                                [=](int key) { return shown >> key & 1; });
        __syncthreads();
        scale_sums(sums, width, s.factor);
        sycuda_mma_add(sums, s.weight, right, width, a.rng ? s.mask : nullptr);
    }
    __syncthreads();
    s.factor[mine] = softmax.begun ? 1 / softmax.sum : 1;
    if (threadIdx.x % 4 == 0 && query < a.queries)
        lse[pair * a.queries + query] = softmax.begun ? softmax.top + syi_log(softmax.sum) : 0;
    __syncthreads();
    sycuda_mma_write(sums, width, out + sycuda_attention_out(a, row, head) + from * a.columns, a.columns,
                     a.queries - from, [=](int at, float sum) { return sum * s.factor[at]; });
}

/* ---- the call ---- */

int sycuda_attention_mma_fits(const struct sycuda_context *context, const struct sycuda_attention_call *a,
                              int in_dtype)
{
    return context->cublaslt && context->tensor_cores && in_dtype == SY_BF16 &&
           a->head_dim % SYCUDA_MMA_DEPTH == 0 && a->head_dim <= SYCUDA_MMA_MOST;
}

template <int STEPS>
static void launch(const sycuda_attention_call &a, const struct sy_call *call, cudaStream_t stream)
{
    const int width = (int)a.head_dim;
    int tile = sycuda_attention_tile(a.queries);
    while (sycuda_attention_shared_bytes(tile, work_floats(tile, width)) >
           SHARED_BYTES - sizeof(uint64_t[SYCUDA_MMA_THREADS / 32]))
        tile /= 2;
    const int tiles = (int)sycuda_pieces(a.queries, tile), work = work_floats(tile, width);
    sycuda_by_dtype(call->out[0].dtype, [&](auto y) {
        using Out = decltype(y);
        SYCUDA_LAUNCH((attention_mma<STEPS, Out>), a.rows * a.heads * tiles, 4 * tile,
                      sycuda_attention_shared_bytes(tile, work), stream, a, sycuda_in<sycuda_bf16>(call, 0),
                      sycuda_in<sycuda_bf16>(call, 1), sycuda_out<Out>(call, 0), sycuda_out<float>(call, 1),
                      tiles, work);
    });
}

void sycuda_attention_mma(const struct sycuda_attention_call *a, const struct sy_call *call,
                          cudaStream_t stream)
{
    if (a->head_dim <= 4 * SYCUDA_MMA_DEPTH)
        launch<4>(*a, call, stream);
    else
        launch<8>(*a, call, stream);
}
