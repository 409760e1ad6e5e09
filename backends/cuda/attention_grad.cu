/* SPDX-License-Identifier: Apache-2.0 */
/* attention_grad, for as many (row, head) at a time as the workspace holds:
 * - pairs: a block for 64 queries by 64 keys finds p and ds of its pairs and stores both;
 * - sums: a block for a tile of dq, dk or dv and 64 columns goes over the other axis in order: thread (y, x) has
 *   positions 4 y .. 4 y + 3 and columns 4 x .. 4 x + 3;
 * - diagonals, buckets: a thread for each distance, then a block for a row's bias table, a thread for each bucket;
 * - dense: a thread for each element of the dense bias's gradient, rows in order, the tree's partial sums in memory.
 * At the end a thread for each element of the table adds the rows. attention_grad_mma.cu does pairs and sums of bfloat16 on tensor
 * cores. */
#include "config.h"

#include "backends/cuda/attention_grad.h"

enum { SEGMENTS = 9, OUT = SYCUDA_GRAD_OUT, LSE = SYCUDA_GRAD_LSE, DOUT = SYCUDA_GRAD_DOUT, SUM_STEP = 68 };

enum { SPREAD = 64 /* threads of a block */, DIAGONAL = 16, BUCKETS = 64, DISTANCES = 512 };

/* Bytes of p and ds at a time, where one (row, head) does not want more: what a GPU's cache holds. */
static const uint64_t pairs_bytes = UINT64_C(32) << 20;

/* Sizes, and places where memory is not NULL; returns the bytes. */
static uint64_t attention_grad_place(sycuda_attention_pairs *g, void *memory, int bias, int dense)
{
    const sycuda_attention_call &a = g->a;
    const uint64_t matrix = (uint64_t)(a.queries * a.keys) * sizeof(float), most = pairs_bytes / (2 * matrix);
    const int64_t all = a.rows * a.heads, leaves = sycuda_pieces(a.rows, g->leaf);
    uint64_t levels = 0, used = sycuda_attention_place(&g->a, memory);
    const auto take = [&](uint64_t floats) {
        float *at = memory ? reinterpret_cast<float *>(static_cast<char *>(memory) + used) : nullptr;
        used += (floats * sizeof(float) + 63) / 64 * 64;
        return at;
    };
    for (int64_t i = leaves; i > 1; i = (i + 1) / 2) levels++;
    g->pairs = most < 1 ? 1 : most < (uint64_t)all ? (int64_t)most : all;
    const uint64_t pairs = (uint64_t)g->pairs;
    g->mean = take((uint64_t)(a.rows * a.queries * a.heads));
    g->p = take(pairs * matrix / sizeof(float));
    g->ds = take(pairs * matrix / sizeof(float));
    g->diagonal = take(bias ? pairs * (uint64_t)(a.queries + a.keys) : 0);
    g->row_bias = take(bias ? (uint64_t)(all * a.buckets) : 0);
    g->partial = take(dense ? levels * (uint64_t)a.heads * matrix / sizeof(float) : 0);
    return used;
}

static sycuda_attention_pairs attention_grad_of(const struct sy_call *call, uint64_t *bytes)
{
    sycuda_attention_pairs g = {};
    g.a = sycuda_attention_of(call, &call->in[OUT], SEGMENTS, -1);
    g.leaf = sycuda_attr<sy_attr_attention>(call)->leaf;
    g.ddense = call->out[3].rank ? sycuda_out<float>(call, 3) : nullptr;
    *bytes = attention_grad_place(&g, call->workspace, call->out[2].rank, call->out[3].rank);
    return g;
}

/* ---- the mean of the gradient of a query's weights ---- */

/* 16 lanes for each (row, query, head). */
template <class T> __global__ void attention_grad_means(sycuda_attention_pairs g, const T *out, const T *dout)
{
    const int64_t dim = g.a.head_dim, n = g.a.rows * g.a.queries * g.a.heads;
    for (int64_t i = sycuda_row(); i - sycuda_row_of_warp() < n; i += sycuda_row_stride()) {
        const int there = i < n;
        float lane = 0;
        for (int64_t d = sycuda_lane(); there && d < dim; d += SYCUDA_LANES)
            lane = fmaf(sycuda_read(dout + i * dim + d), sycuda_read(out + i * dim + d), lane);
        lane = sycuda_lane_sum(lane);
        if (there && sycuda_lane() == 0) g.mean[i] = lane;
    }
}

/* ---- pairs ---- */

/* p and ds of four queries and four keys of a thread. */
__device__ static inline void attention_grad_store(const sycuda_attention_pairs &g, const sycuda_sums &score,
                                                   const sycuda_sums &dp, const float *lse,
                                                   const float *diagonal, int64_t pair, int64_t from,
                                                   int64_t first)
{
    const sycuda_attention_call &a = g.a;
    const int tile = (int)blockDim.x / 4, y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
    const int64_t head = pair % a.heads;
    for (int r = 0; r < 4; r++) {
        const int64_t query = from + 4 * y + r;
        const sycuda_attention_grad_query of = sycuda_attention_grad_query_of(g, lse, pair, query, first);
        if (!of.seen) continue;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int key = x + 16 * c;
            if (!(of.seen >> key & 1)) continue;
            const float s =
                of.blind ? 0
                         : sycuda_attention_biased(a, score.at[r][c], diagonal + key - (4 * y + r) + tile - 1,
                                                   head, query, first + key);
            sycuda_attention_grad_store(g, sycuda_attention_grad_at(g, pair, query, first + key), of, s,
                                        dp.at[r][c]);
        }
    }
}

/* Blocks: (row, head), tile of queries, block of keys. */
template <class T>
__global__ void __launch_bounds__(256) attention_grad_pairs(sycuda_attention_pairs g, const T *q, const T *kv,
                                                            const float *lse, const T *dout, int tiles)
{
    SYCUDA_DYNAMIC_SHARED(float, memory);
    const sycuda_attention_call &a = g.a;
    const int tile = (int)blockDim.x / 4;
    const int64_t blocks = (a.keys + SYCUDA_KEYS - 1) / SYCUDA_KEYS;
    const int64_t first = blockIdx.x % blocks * SYCUDA_KEYS, from = blockIdx.x / blocks % tiles * tile;
    const int64_t pair = g.first + blockIdx.x / blocks / tiles, row = pair / a.heads, head = pair % a.heads;
    float *diagonal = memory + (tile + SYCUDA_KEYS) * SYCUDA_DEPTH_STEP, *mask = diagonal + tile + 64;
    if (!__syncthreads_or(sycuda_attention_seen(a, row, from + threadIdx.x / 4, first) != 0)) return;
    sycuda_attention_diagonal(a, head, first, from + tile - 1, tile + SYCUDA_KEYS - 1, diagonal);
    sycuda_attention_masks(a, row, head, first, SYCUDA_KEYS, mask);
    const sycuda_sums score =
        sycuda_attention_dot(sycuda_attention_q_rows(a, q, row, head, from),
                             sycuda_attention_kv_rows(a, kv, row, head, first, 2), nullptr, memory);
    __syncthreads(); /* the masks are there, however few barriers the product had */
    const sycuda_sums dp = sycuda_attention_dot(sycuda_attention_out_rows(a, dout, row, head, from),
                                                sycuda_attention_kv_rows(a, kv, row, head, first, 1),
                                                a.rng ? mask : nullptr, memory);
    attention_grad_store(g, score, dp, lse, diagonal, pair, from, first);
}

/* ---- sums: dq over keys, dk and dv over queries ---- */

/* weights[j][i] of the pairs that see each other. */
__device__ static inline void attention_grad_weights(const float *weight, int of_queries, int64_t keys,
                                                     int64_t from, int64_t at, const uint64_t *bits,
                                                     float *weights)
{
    const int tile = (int)blockDim.x / 4;
    for (int e = (int)threadIdx.x; e < SYCUDA_KEYS * tile; e += (int)blockDim.x) {
        const int i = of_queries ? e / SYCUDA_KEYS : e % tile, j = of_queries ? e % SYCUDA_KEYS : e / tile;
        const int64_t query = of_queries ? from + i : at + j, key = of_queries ? at + j : from + i;
        weights[j * SUM_STEP + i] = bits[j] >> i & 1 ? weight[query * keys + key] : 0;
    }
}

__device__ static inline void attention_grad_add(sycuda_sums &sums, const float *weights, const float *x,
                                                 const uint64_t *bits)
{
    const int y = (int)threadIdx.x / 16, column = (int)threadIdx.x % 16 * 4;
    for (int j = 0; j < SYCUDA_KEYS; j++) {
        const unsigned seen = (unsigned)(bits[j] >> (4 * y)) & 15;
        if (!seen) continue;
        const sycuda_four w = sycuda_read_four(weights + j * SUM_STEP + 4 * y);
        const sycuda_four v = sycuda_read_four(x + j * 64 + column);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (seen >> r & 1) sums.at[r][c] = fmaf(w.v[r], v.v[c], sums.at[r][c]);
    }
}

/* Closes the sums: + 0, then the dropout of keys where there is a mask. */
template <class Out>
__device__ static inline void attention_grad_write(const sycuda_sums &sums, const float *mask, Out *to,
                                                   int64_t step, int64_t n, int64_t column, int64_t width)
{
    const int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int r = 4 * y + i / 4;
        const int64_t d = column + 4 * x + i % 4;
        float sum = sums.at[i / 4][i % 4] + 0.0f;
        if (r >= n || d >= width) continue;
        if (mask) sum = SYI_DROP(sum, mask[r]);
        sycuda_write(to + r * step + d, sum);
    }
}

/* Blocks: (row, head), tile: those of dq before those of dk, then dv, piece of 64 columns. */
template <class In, class Out>
__global__ void __launch_bounds__(256)
    attention_grad_sums(sycuda_attention_pairs g, const In *q, const In *kv, const In *dout, Out *dq,
                        Out *dkv, int q_tiles, int k_tiles, int chunks)
{
    SYCUDA_DYNAMIC_SHARED(float, memory);
    const sycuda_attention_call &a = g.a;
    const int tile = (int)blockDim.x / 4, all = q_tiles + 2 * k_tiles;
    const int64_t pair = g.first + blockIdx.x / chunks / all, row = pair / a.heads;
    int task = (int)(blockIdx.x / chunks % all), which = 0;
    if (task >= q_tiles) task -= q_tiles, which = 1 + task / k_tiles, task %= k_tiles;
    const int64_t from = (int64_t)task * tile, column = (int64_t)(blockIdx.x % chunks) * 64;
    float *x = memory, *weights = x + SYCUDA_KEYS * 64, *mask = weights + SYCUDA_KEYS * SUM_STEP;
    uint64_t *bits = reinterpret_cast<uint64_t *>(mask + SYCUDA_KEYS);
    sycuda_attention_grad_sum<In, Out> sum =
        sycuda_attention_grad_task(g, which, q, kv, dout, dq, dkv, pair, from);
    sycuda_sums sums = {};
    for (int64_t at = 0; sum.x.n > 0; at += SYCUDA_KEYS) {
        __syncthreads();
        if (sycuda_attention_grad_bits(a, which == 0, row, from, at, bits)) {
            attention_grad_weights(sum.weight, which == 0, a.keys, from, at, bits, weights);
            sycuda_load_rows<64>(x, 64, sum.x, SYCUDA_KEYS, column, nullptr);
            __syncthreads();
            attention_grad_add(sums, weights, x, bits);
        }
        sum.x.x += SYCUDA_KEYS * sum.x.step;
        sum.x.n -= SYCUDA_KEYS;
    }
    const int masked = which == 2 && a.rng;
    if (masked) sycuda_attention_masks(a, row, pair % a.heads, from, tile, mask);
    __syncthreads();
    attention_grad_write(sums, masked ? mask : nullptr, sum.to, sum.to_step, sum.n, column, a.head_dim);
}

/* ---- biases ---- */

__device__ static inline int attention_grad_sees(const sycuda_attention_call &a, int64_t row, int64_t query,
                                                 int64_t key)
{
    return (int)(sycuda_attention_seen(a, row, query, key) >> (key % SYCUDA_KEYS) & 1);
}

/* Threads for the distances of a (row, head): whole warps. */
SYI_INLINE int64_t attention_grad_distances(const sycuda_attention_call &a)
{
    return (a.queries + a.keys + SYCUDA_WARP - 1) / SYCUDA_WARP * SYCUDA_WARP;
}

/* The sum of the distance `by`, one of those of a warp, least .. least + SYCUDA_WARP - 1. The warp goes over the queries that any of
 * these has, so its threads read neighbouring keys of one query. A thread reads DIAGONAL elements and what their queries see at a
 * time, without a branch, so that none waits for another; in the place of an element that it has not, one that there is. */
__device__ static inline float attention_grad_diagonal(const sycuda_attention_pairs &g, int64_t pair, int by,
                                                       int least)
{
    const sycuda_attention_call &a = g.a;
    const int keys = (int)a.keys, queries = (int)a.queries, most = least + SYCUDA_WARP - 1;
    const int begin = most < 0 ? -most : 0, end = keys - least < queries ? keys - least : queries;
    const int blocks = (keys + SYCUDA_KEYS - 1) / SYCUDA_KEYS;
    const float *ds = g.ds + sycuda_attention_grad_at(g, pair, 0, 0);
    const uint64_t *seen = a.seen + pair / a.heads * a.queries * blocks;
    float sum = 0;
    for (int first = begin; first < end; first += DIAGONAL) {
        float next[DIAGONAL];
        uint64_t word[DIAGONAL];
#pragma unroll
        for (int j = 0; j < DIAGONAL; j++) {
            const int query = first + j < end ? first + j : end - 1, at = query + by;
            const int key = at < 0 ? 0 : at < keys ? at : keys - 1;
            word[j] = seen[(int64_t)query * blocks + key / SYCUDA_KEYS];
            next[j] = ds[(int64_t)query * keys + key];
        }
#pragma unroll
        for (int j = 0; j < DIAGONAL; j++) {
            const int key = first + j + by, there = (first + j < end) & (key >= 0) & (key < keys);
            const int sees = (int)(word[j] >> (key & (SYCUDA_KEYS - 1))) & there;
            sum += sees ? next[j] : 0.0f; /* + 0 changes no bit of a sum that begins at +0 */
        }
    }
    return sum;
}

/* A thread for each (row, head) and distance; a warp has those of one (row, head). */
__global__ void __launch_bounds__(SPREAD) attention_grad_diagonals(sycuda_attention_pairs g)
{
    const sycuda_attention_call &a = g.a;
    const int64_t distances = a.queries + a.keys, threads = attention_grad_distances(a);
    for (int64_t i = sycuda_first(); i < g.n * threads; i += sycuda_stride()) {
        const int64_t pair = i / threads;
        const int index = (int)(i % threads), first = index / SYCUDA_WARP * SYCUDA_WARP;
        const float sum =
            attention_grad_diagonal(g, g.first + pair, index - (int)a.queries, first - (int)a.queries);
        if (index < distances) g.diagonal[pair * distances + index] = sum;
    }
}

/* Blocks: (row, head), BUCKETS buckets. DISTANCES lie in shared memory at a time. */
__global__ void attention_grad_buckets(sycuda_attention_pairs g)
{
    __shared__ float diagonal[DISTANCES];
    __shared__ int32_t bucket[DISTANCES];
    const sycuda_attention_call &a = g.a;
    const int64_t distances = a.queries + a.keys, blocks = (a.buckets + BUCKETS - 1) / BUCKETS;
    const int64_t pair = blockIdx.x / blocks, mine = blockIdx.x % blocks * BUCKETS + threadIdx.x;
    float sum = 0;
    for (int64_t first = 0; first < distances; first += DISTANCES) {
        const int64_t left = distances - first, most = DISTANCES;
        const int n = (int)(left < most ? left : most);
        __syncthreads();
        for (int d = (int)threadIdx.x; d < n; d += (int)blockDim.x) {
            diagonal[d] = g.diagonal[pair * distances + first + d];
            bucket[d] = sycuda_attention_bucket(a, first + d - a.queries);
        }
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < n; d++) sum = bucket[d] == mine ? sum + diagonal[d] : sum;
    }
    if (mine < a.buckets) g.row_bias[(g.first + pair) * a.buckets + mine] = sum;
}

/* A thread for each element of the table: chains over the rows of each leaf, then the tree. */
__global__ void attention_grad_table(sycuda_attention_pairs g, float *dbias)
{
    const int64_t n = g.a.heads * g.a.buckets, rows = g.a.rows, leaf = g.leaf;
    for (int64_t i = sycuda_first(); i < n; i += sycuda_stride())
        dbias[i] = sycuda_tree((rows + leaf - 1) / leaf, [&](int64_t l) {
            float sum = g.row_bias[l * leaf * n + i];
            for (int64_t row = l * leaf + 1; row < (l + 1) * leaf && row < rows; row++)
                sum += g.row_bias[row * n + i];
            return sum;
        });
}

/* Partial sum `level` of an element of the dense bias's gradient. */
__device__ static inline float *attention_grad_partial(const sycuda_attention_pairs &g, int level,
                                                       int64_t element)
{
    const int64_t n = g.a.heads * g.a.queries * g.a.keys;
    return level ? g.partial + (level - 1) * n + element : g.ddense + element;
}

/* The rows of one element that the launch has. The partial sum of `held` leaves' trees goes on where the last launch
 * left it. */
__device__ static inline void attention_grad_dense_rows(const sycuda_attention_pairs &g, int64_t element,
                                                        int64_t first, int64_t end)
{
    const sycuda_attention_call &a = g.a;
    const int64_t head = element / (a.queries * a.keys), query = element / a.keys % a.queries;
    const int64_t key = element % a.keys;
    float sum = 0;
    for (int64_t row = first; row < end; row++) {
        const unsigned done = (unsigned)(row / g.leaf);
        int level = __popc(done);
        if (row % g.leaf == 0) sum = 0;
        if (row % g.leaf && row == first) sum = *attention_grad_partial(g, level, element);
        if (attention_grad_sees(a, row, query, key))
            sum += g.ds[sycuda_attention_grad_at(g, row * a.heads + head, query, key)];
        const int last = row + 1 == a.rows;
        if ((row + 1) % g.leaf && row + 1 < end && !last) continue;
        if ((row + 1) % g.leaf == 0)
            for (unsigned bits = done; bits & 1; bits >>= 1)
                sum = *attention_grad_partial(g, --level, element) + sum;
        for (; last && level > 0; level--) sum = *attention_grad_partial(g, level - 1, element) + sum;
        *attention_grad_partial(g, level, element) = sum;
    }
}

__global__ void attention_grad_dense(sycuda_attention_pairs g)
{
    const sycuda_attention_call &a = g.a;
    const int64_t size = a.queries * a.keys, end = g.first + g.n;
    for (int64_t i = sycuda_first(); i < a.heads * size; i += sycuda_stride()) {
        const int64_t head = i / size;
        attention_grad_dense_rows(g, i, (g.first + a.heads - 1 - head) / a.heads,
                                  (end + a.heads - 1 - head) / a.heads);
    }
}

/* ---- the call ---- */

int sycuda_attention_grad_prepare(void *context, const struct sy_call *call, void **plan)
{
    return sycuda_attention_plan_make(context, call, plan);
}

void sycuda_attention_grad_release(void *context, void *plan)
{
    sycuda_attention_plan_free(context, plan);
}

uint64_t sycuda_attention_grad_workspace(const struct sy_call *call, int)
{
    struct sy_call early = *call;
    uint64_t bytes;
    early.workspace = nullptr;
    (void)attention_grad_of(&early, &bytes);
    return bytes;
}

static void launch_biases(const sycuda_attention_pairs &g, int bias, cudaStream_t stream)
{
    const sycuda_attention_call &a = g.a;
    if (bias) {
        SYCUDA_LAUNCH_FREE(attention_grad_diagonals, sycuda_blocks(g.n * attention_grad_distances(a), SPREAD),
                           SPREAD, stream, g);
        SYCUDA_LAUNCH(attention_grad_buckets, g.n * sycuda_pieces(a.buckets, BUCKETS), BUCKETS, 0, stream, g);
    }
    if (g.ddense)
        SYCUDA_LAUNCH_FREE(attention_grad_dense, sycuda_blocks(a.heads * a.queries * a.keys, SYCUDA_THREADS),
                           SYCUDA_THREADS, stream, g);
}

/* The (row, head) of g. */
template <class In, class Out>
static void launch_pairs(const sycuda_attention_pairs &g, const struct sy_call *call, cudaStream_t stream)
{
    const sycuda_attention_call &a = g.a;
    const In *q = sycuda_in<In>(call, 0), *kv = sycuda_in<In>(call, 1), *dout = sycuda_in<In>(call, DOUT);
    Out *dq = sycuda_out<Out>(call, 0), *dkv = call->out[1].rank ? sycuda_out<Out>(call, 1) : dq;
    const int tile = sycuda_attention_tile(a.queries);
    const int tiles = (int)sycuda_pieces(a.queries, tile), chunks = (int)sycuda_pieces(a.head_dim, 64);
    const int64_t blocks = sycuda_pieces(a.keys, SYCUDA_KEYS);
    SYCUDA_LAUNCH((attention_grad_pairs<In>), g.n * tiles * blocks, 4 * tile,
                  (size_t)(sycuda_attention_dot_floats(tile) + tile + 64 + 64) * sizeof(float), stream, g, q,
                  kv, sycuda_in<float>(call, LSE), dout, tiles);
    const int side = sycuda_attention_tile(a.queries > a.keys ? a.queries : a.keys);
    const int q_tiles = (int)sycuda_pieces(a.queries, side), k_tiles = (int)sycuda_pieces(a.keys, side);
    const size_t floats = SYCUDA_KEYS * 64 + SYCUDA_KEYS * SUM_STEP + SYCUDA_KEYS;
    SYCUDA_LAUNCH((attention_grad_sums<In, Out>), g.n * (q_tiles + 2 * k_tiles) * chunks, 4 * side,
                  floats * sizeof(float) + SYCUDA_KEYS * sizeof(uint64_t), stream, g, q, kv, dout, dq, dkv,
                  q_tiles, k_tiles, chunks);
}

int sycuda_attention_grad(void *context, const struct sy_call *call)
{
    uint64_t bytes;
    sycuda_attention_pairs g = attention_grad_of(call, &bytes);
    const sycuda_attention_call &a = g.a;
    const int bias = call->out[2].rank;
    const int mma = sycuda_attention_mma_fits(static_cast<sycuda_context *>(context), &a, call->in[0].dtype);
    cudaStream_t stream = sycuda_stream(context);
    sycuda_attention_look(&a, stream);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto x, auto y) {
        using In = decltype(x);
        using Out = decltype(y);
        SYCUDA_LAUNCH((attention_grad_means<In>), sycuda_row_blocks(a.rows * a.queries * a.heads),
                      SYCUDA_THREADS, 0, stream, g, sycuda_in<In>(call, OUT), sycuda_in<In>(call, DOUT));
        for (g.first = 0; g.first < a.rows * a.heads; g.first += g.n) {
            const int64_t left = a.rows * a.heads - g.first;
            g.n = left < g.pairs ? left : g.pairs;
            if (mma)
                sycuda_attention_grad_mma(&g, call, stream);
            else
                launch_pairs<In, Out>(g, call, stream);
            launch_biases(g, bias, stream);
        }
    });
    if (bias)
        SYCUDA_LAUNCH_FREE(attention_grad_table, sycuda_blocks(a.heads * a.buckets, 64), 64, stream, g,
                           sycuda_out<float>(call, 2));
    return sycuda_launched(context, "attention_grad");
}
