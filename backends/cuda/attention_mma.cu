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
 * Values of keys that no query of the tile sees become 0: what lies there may be NaN, and 0 * NaN is none of a sum's terms. Every
 * row of a product is by itself, so a query's bits do not depend on the others of its tile. */
#include "config.h"

#include "backends/cuda/attention_softmax.h"
#include "backends/cuda/mma.h"

enum {
    MOST_COLUMNS = 128,
    MOST_THREADS = 256,
    PAD = 8, /* elements after a row in shared memory: eight rows of pairs are read from all banks */
    VALUE_STEP = SYCUDA_KEYS + PAD,
    SHARED_BYTES = 48 << 10,
    VECTOR = 8 /* elements of one access of 16 bytes */
};

struct alignas(16) vector {
    sycuda_bf16 at[VECTOR];
};

/* ---- operands ---- */

/* `count` rows of a head, 0 after the last that there is. Rows begin at multiples of 16 elements. */
__device__ static inline void load_rows(sycuda_bf16 *to, sycuda_rows<sycuda_bf16> rows, int count)
{
    const int width = (int)rows.width, vectors = width / VECTOR;
    for (int i = (int)threadIdx.x; i < count * vectors; i += (int)blockDim.x) {
        const int row = i / vectors, column = i % vectors * VECTOR;
        vector x = {};
        if (row < rows.n) x = *reinterpret_cast<const vector *>(rows.x + row * rows.step + column);
        *reinterpret_cast<vector *>(to + row * (width + PAD) + column) = x;
    }
}

/* The element of a key that is shown, else 0. */
__device__ static inline uint32_t value_bits(const sycuda_rows<sycuda_bf16> &rows, int key, int column,
                                             uint64_t shown)
{
    return shown >> key & 1 ? rows.x[key * rows.step + column].bits : 0;
}

/* Values of 64 keys, transposed: to[column][key]. */
__device__ static inline void load_values(sycuda_bf16 *to, sycuda_rows<sycuda_bf16> rows, uint64_t shown)
{
    const int width = (int)rows.width;
    for (int i = (int)threadIdx.x; i < SYCUDA_KEYS / 2 * width; i += (int)blockDim.x) {
        const int key = i / width * 2, column = i % width;
        const uint32_t pair = value_bits(rows, key, column, shown) | value_bits(rows, key + 1, column, shown)
                                                                         << 16;
        memcpy(__builtin_assume_aligned(to + column * VALUE_STEP + key, sizeof pair), &pair, sizeof pair);
    }
}

/* The keys that any query of the block sees, of which `seen` is the thread's. Has a barrier. */
__device__ static inline uint64_t seen_by_any(uint64_t seen)
{
    __shared__ uint64_t by_warp[MOST_THREADS / 32];
    uint64_t all = 0;
    for (int with = 4; with < 32; with *= 2) seen |= __shfl_xor_sync(0xffffffffu, seen, with);
    if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = seen;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) all |= by_warp[w];
    return all;
}

/* ---- products of a warp ---- */

/* Its 16 queries, and the first of its keys or columns of which two warps have `n` together. */
struct share {
    int row, first;
};
__device__ static inline struct share share_of(int n)
{
    const int warp = (int)threadIdx.x / 32;
    return {warp / 2 * SYCUDA_MMA_ROWS, warp % 2 * (n / 2)};
}

__device__ static inline void make_scores(const sycuda_bf16 *queries, const sycuda_bf16 *keys, int width,
                                          float *score)
{
    enum { TILES = SYCUDA_KEYS / 2 / SYCUDA_MMA_COLUMNS };
    const struct share mine = share_of(SYCUDA_KEYS);
    const int lane = (int)threadIdx.x % 32, step = width + PAD;
    sycuda_mma_c c[TILES] = {};
    for (int d = 0; d < width; d += SYCUDA_MMA_DEPTH) {
        const sycuda_mma_a a = sycuda_mma_rows(queries + mine.row * step + d, step);
#pragma unroll
        for (int i = 0; i < TILES; i++)
            sycuda_mma(c[i], a,
                       sycuda_mma_columns(keys + (mine.first + i * SYCUDA_MMA_COLUMNS) * step + d, step));
    }
    float *to = score + (mine.row + lane / 4) * SYCUDA_SCORE_STEP + mine.first + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[e / 2 * 8 * SYCUDA_SCORE_STEP + i * SYCUDA_MMA_COLUMNS + e % 2] = c[i].at[e];
}

/* 16 weights of 16 queries, rounded after dropout: of keys, so mask[key] may multiply the weight in place of the value. */
__device__ static inline struct sycuda_mma_a round_weights(const float *weight, const float *mask)
{
    const int lane = (int)threadIdx.x % 32, key = lane % 4 * 2;
    const float *row = weight + lane / 4 * SYCUDA_SCORE_STEP + key;
    sycuda_mma_a a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = i / 2 * 8;
        float low = row[i % 2 * 8 * SYCUDA_SCORE_STEP + at],
              high = row[i % 2 * 8 * SYCUDA_SCORE_STEP + at + 1];
        if (mask) {
            low = SYI_DROP(low, mask[key + at]);
            high = SYI_DROP(high, mask[key + at + 1]);
        }
        a.pair[i] = sycuda_mma_pair(low, high);
    }
    return a;
}

/* Of a head of at most 16 * STEPS columns. */
template <int STEPS> struct head_sums {
    sycuda_mma_c at[STEPS];
};

/* Goes on with the sums over 64 keys. */
template <int STEPS>
__device__ static inline void add_values(head_sums<STEPS> &sums, const sycuda_attention_shared &s,
                                         const sycuda_bf16 *values, int width, const float *mask)
{
    const struct share mine = share_of(width);
    const float *factor = s.factor + mine.row + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums.at[i].at[e] *= factor[e / 2 * 8];
    for (int k = 0; k < SYCUDA_KEYS; k += SYCUDA_MMA_DEPTH) {
        const sycuda_mma_a a =
            round_weights(s.weight + mine.row * SYCUDA_SCORE_STEP + k, mask ? mask + k : nullptr);
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            if (i * SYCUDA_MMA_DEPTH < width)
                sycuda_mma(sums.at[i], a,
                           sycuda_mma_columns(values + (mine.first + i * SYCUDA_MMA_COLUMNS) * VALUE_STEP + k,
                                              VALUE_STEP));
    }
}

template <int STEPS, class Out>
__device__ static inline void write_sums(const sycuda_attention_call &a, const head_sums<STEPS> &sums,
                                         const float *factor, Out *out, int64_t queries)
{
    const int width = (int)a.head_dim, lane = (int)threadIdx.x % 32;
    const struct share mine = share_of(width);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = mine.row + lane / 4 + e / 2 * 8;
            const int column = mine.first + i * SYCUDA_MMA_COLUMNS + lane % 4 * 2 + e % 2;
            if (i * SYCUDA_MMA_DEPTH < width && row < queries)
                sycuda_write(out + row * a.columns + column, sums.at[i].at[e] * factor[row]);
        }
}

/* ---- the kernel ---- */

/* Floats of shared memory that the operands of products take. */
static int work_floats(int tile, int width)
{
    const int keys = SYCUDA_KEYS * (width + PAD), values = width * VALUE_STEP;
    return (tile * (width + PAD) + (keys > values ? keys : values)) / 2;
}

/* Blocks: (row, head, tile of queries). */
template <int STEPS, class Out>
__global__ void __launch_bounds__(MOST_THREADS)
    attention_mma(sycuda_attention_call a, const sycuda_bf16 *q, const sycuda_bf16 *kv, Out *out, float *lse,
                  int tiles, int work)
{
    SYCUDA_DYNAMIC_SHARED(float, memory);
    const int tile = (int)blockDim.x / 4, mine = (int)threadIdx.x / 4, width = (int)a.head_dim;
    const int64_t pair = blockIdx.x / tiles, from = (int64_t)(blockIdx.x % tiles) * tile, query = from + mine;
    const int64_t row = pair / a.heads, head = pair % a.heads;
    const sycuda_attention_shared s = sycuda_attention_shared_at(memory, tile, work);
    sycuda_bf16 *queries = reinterpret_cast<sycuda_bf16 *>(s.work), *right = queries + tile * (width + PAD);
    sycuda_attention_softmax softmax = {0, 0, 0};
    head_sums<STEPS> sums = {};
    load_rows(queries, sycuda_attention_q_rows(a, q, row, head, from), tile);
    for (int64_t first = 0; first < a.keys; first += SYCUDA_KEYS) {
        const uint64_t seen = sycuda_attention_seen(a, row, query, first), shown = seen_by_any(seen);
        if (!shown) {
            __syncthreads();
            continue;
        }
        sycuda_attention_diagonal(a, head, first, from + tile - 1, tile + SYCUDA_KEYS - 1, s.diagonal);
        sycuda_attention_masks(a, row, head, first, SYCUDA_KEYS, s.mask);
        load_rows(right, sycuda_attention_kv_rows(a, kv, row, head, first, 2), SYCUDA_KEYS);
        __syncthreads();
        make_scores(queries, right, width, s.weight);
        __syncthreads();
        s.factor[mine] = sycuda_attention_softmax_block(a, s, softmax, row, head, query, first, seen);
        load_values(right, sycuda_attention_kv_rows(a, kv, row, head, first, 1), shown);
        __syncthreads();
        add_values<STEPS>(sums, s, right, width, a.rng ? s.mask : nullptr);
    }
    __syncthreads();
    s.factor[mine] = softmax.begun ? 1 / softmax.sum : 1;
    if (threadIdx.x % 4 == 0 && query < a.queries)
        lse[pair * a.queries + query] = softmax.begun ? softmax.top + syi_log(softmax.sum) : 0;
    __syncthreads();
    write_sums<STEPS>(a, sums, s.factor, out + sycuda_attention_out(a, row, head) + from * a.columns,
                      a.queries - from);
}

/* ---- the call ---- */

int sycuda_attention_mma_fits(const struct sycuda_context *context, const struct sycuda_attention_call *a,
                              int in_dtype)
{
    return context->cublaslt && context->tensor_cores && in_dtype == SY_BF16 &&
           a->head_dim % SYCUDA_MMA_DEPTH == 0 && a->head_dim <= MOST_COLUMNS;
}

template <int STEPS>
static void launch(const sycuda_attention_call &a, const struct sy_call *call, cudaStream_t stream)
{
    const int width = (int)a.head_dim;
    int tile = sycuda_attention_tile(a.queries);
    while (sycuda_attention_shared_bytes(tile, work_floats(tile, width)) >
           SHARED_BYTES - sizeof(uint64_t[MOST_THREADS / 32]))
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
