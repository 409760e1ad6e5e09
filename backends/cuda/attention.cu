/* SPDX-License-Identifier: Apache-2.0 */
/* attention: one block for a tile of queries of one (row, head), which goes over the keys in blocks of 64 and keeps the
 * running softmax (attention.h has the tile of scores). Four threads share the softmax of a query. For the weighted
 * values thread (y, x) has queries 4 y .. 4 y + 3 and columns 4 x .. 4 x + 3 of every 64; heads of more than 128 columns
 * are done by several blocks, which find the same scores. A kernel before it finds what each query sees. */
#include "config.h"

#include "backends/cuda/attention_softmax.h"
#include "base/relpos.h"

enum { ATTENTION_SEGMENTS = 7, ATTENTION_POSITION = 6 };

/* ---- operands ---- */

struct sycuda_attention_call sycuda_attention_of(const struct sy_call *call, const struct sy_tensor *out,
                                                 int segments, int position)
{
    const struct sy_attr_attention *attr = sycuda_attr<sy_attr_attention>(call);
    const struct sy_tensor *in = call->in;
    const struct sycuda_attention_plan *plan = static_cast<const sycuda_attention_plan *>(call->plan);
    struct sycuda_attention_call a = {};
    a.q_length = sycuda_optional<int32_t>(call, 2);
    a.kv_length = sycuda_optional<int32_t>(call, 3);
    a.bias = sycuda_optional<float>(call, 4);
    a.rng = attr->rate > 0 ? sycuda_optional<int64_t>(call, 5) : nullptr;
    a.position = position < 0 ? nullptr : sycuda_optional<int32_t>(call, position);
    a.q_segment = sycuda_optional<int32_t>(call, segments);
    a.kv_segment = sycuda_optional<int32_t>(call, segments + 1);
    a.mask = sycuda_optional<float>(call, segments + 2);
    a.dense = sycuda_optional<float>(call, segments + 3);
    if (plan) {
        a.bucket = plan->bucket;
        a.reach = plan->reach;
    }
    a.rows = out->dim[0];
    a.queries = out->dim[1];
    a.keys = in[1].dim[1];
    a.head_dim = attr->head_dim;
    a.columns = out->dim[2];
    a.heads = a.columns / a.head_dim;
    a.width = attr->width;
    a.q_parts = in[0].dim[2] / a.columns;
    a.kv_parts = in[1].dim[2] / a.columns;
    a.buckets = in[4].rank ? in[4].dim[1] : 0;
    a.first_row = out->first[0];
    a.first_head = out->first[2] / a.head_dim;
    a.site = attr->site;
    a.rate = attr->rate;
    a.causal = attr->causal != 0;
    a.uniform = attr->uniform != 0;
    return a;
}

uint64_t sycuda_attention_place(struct sycuda_attention_call *a, void *memory)
{
    uint64_t queries = (uint64_t)(a->rows * a->queries);
    uint64_t seen = queries * (uint64_t)sycuda_pieces(a->keys, SYCUDA_KEYS) * sizeof *a->seen;
    if (memory) {
        a->seen = static_cast<uint64_t *>(memory);
        a->blind = reinterpret_cast<int32_t *>(static_cast<char *>(memory) + seen);
    }
    return (seen + queries * sizeof *a->blind + 63) / 64 * 64;
}

/* ---- the plan ---- */

/* Buckets are the same from this distance on. A position is not known before the call runs: then no sequence is longer
 * than the limit here. */
static int64_t reach_of(const struct sycuda_attention_call *a, const struct sy_attr_attention *attr,
                        int has_position)
{
    int64_t same = attr->max_distance > a->buckets ? attr->max_distance : a->buckets;
    int64_t most = has_position ? INT64_C(1) << 22 : a->queries > a->keys ? a->queries : a->keys;
    return same < most ? same : most;
}

int sycuda_attention_plan_make(void *opened, const struct sy_call *call, void **made)
{
    const struct sycuda_context *context = static_cast<const sycuda_context *>(opened);
    const struct sy_attr_attention *attr = sycuda_attr<sy_attr_attention>(call);
    const int forward = call->op == SY_OP_ATTENTION;
    const struct sycuda_attention_call a =
        sycuda_attention_of(call, forward ? &call->out[0] : &call->in[6], ATTENTION_SEGMENTS, -1);
    if (!a.bias) return SY_OK;
    const int64_t reach = reach_of(&a, attr, forward && call->in[ATTENTION_POSITION].rank), n = 2 * reach + 1;
    struct sycuda_attention_plan *plan = static_cast<sycuda_attention_plan *>(calloc(1, sizeof *plan));
    int32_t *bucket = static_cast<int32_t *>(malloc((size_t)n * sizeof *bucket));
    cudaError_t error = plan && bucket ? cudaSetDevice(context->device) : cudaErrorMemoryAllocation;
    for (int64_t i = 0; error == cudaSuccess && i < n; i++)
        bucket[i] =
            (int32_t)syi_relpos_bucket(i - reach, (int)attr->bidirectional, a.buckets, attr->max_distance);
    const size_t bytes = (size_t)n * sizeof *bucket;
    if (error == cudaSuccess) error = cudaMalloc(&plan->bucket, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(plan->bucket, bucket, bytes, cudaMemcpyDefault, context->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(context->stream);
    free(bucket);
    if (error != cudaSuccess) {
        sycuda_attention_plan_free(opened, plan);
        return sycuda_fail(context->host, "planning attention", error);
    }
    plan->reach = reach;
    *made = plan;
    return SY_OK;
}

void sycuda_attention_plan_free(void *opened, void *made)
{
    struct sycuda_attention_plan *plan = static_cast<sycuda_attention_plan *>(made);
    if (!plan) return;
    (void)cudaSetDevice(static_cast<const sycuda_context *>(opened)->device);
    (void)cudaFree(plan->bucket);
    free(plan);
}

/* ---- what queries see: a thread a query ---- */

/* Keys 0 .. n - 1 that lengths and causality leave to a query. */
__device__ static inline int64_t attention_bound(const sycuda_attention_call &a, int64_t row, int64_t query)
{
    int64_t keys = a.keys, position = a.position && *a.position > 0 ? *a.position : 0;
    if (a.q_length && query >= a.q_length[row]) return 0;
    if (a.kv_length && a.kv_length[row] < keys) keys = a.kv_length[row];
    if (a.causal && query + position + 1 < keys) keys = query + position + 1;
    return keys > 0 ? keys : 0;
}

/* Whether segments and the dense mask show a key. */
__device__ static inline int attention_shown(const sycuda_attention_call &a, int64_t row, int64_t query,
                                             int64_t key)
{
    int64_t at = row * a.queries + query;
    if (a.kv_segment) {
        int32_t segment = a.kv_segment[row * a.keys + key];
        if (segment <= 0 || (a.q_segment && a.q_segment[at] != segment)) return 0;
    }
    return !a.mask || a.mask[at * a.keys + key] != 0;
}

__device__ static inline uint64_t attention_first_keys(int64_t n)
{
    return n <= 0 ? 0 : n >= SYCUDA_KEYS ? ~UINT64_C(0) : ~UINT64_C(0) >> (SYCUDA_KEYS - n);
}

/* Bit k: the query sees key first + k. */
__device__ static inline uint64_t attention_block(const sycuda_attention_call &a, int64_t row, int64_t query,
                                                  int64_t first, int64_t bound)
{
    uint64_t keys = attention_first_keys(bound - first);
    if (!a.kv_segment && !a.mask) return keys;
    for (int64_t k = 0; k < SYCUDA_KEYS && first + k < bound; k++)
        keys &= ~((uint64_t)!attention_shown(a, row, query, first + k) << k);
    return keys;
}

__global__ void attention_look(sycuda_attention_call a)
{
    const int64_t blocks = (a.keys + SYCUDA_KEYS - 1) / SYCUDA_KEYS;
    for (int64_t i = sycuda_first(); i < a.rows * a.queries; i += sycuda_stride()) {
        const int64_t row = i / a.queries, query = i % a.queries, bound = attention_bound(a, row, query);
        uint64_t *seen = a.seen + i * blocks, any = 0;
        for (int64_t b = 0; b < blocks; b++)
            any |= seen[b] = attention_block(a, row, query, b * SYCUDA_KEYS, bound);
        const int blind = a.uniform && !any;
        for (int64_t b = 0; blind && b < blocks; b++)
            seen[b] = attention_first_keys(a.keys - b * SYCUDA_KEYS);
        a.blind[i] = blind;
    }
}

void sycuda_attention_look(const struct sycuda_attention_call *a, cudaStream_t stream)
{
    SYCUDA_LAUNCH_FREE(attention_look, sycuda_blocks(a->rows * a->queries, SYCUDA_THREADS), SYCUDA_THREADS,
                       stream, *a);
}

/* ---- forward ---- */

/* Of the tile of scores' operands, then of values [64 / FOURS][64 * FOURS]. */
static int attention_work_floats(int tile)
{
    const int dot = sycuda_attention_dot_floats(tile), values = SYCUDA_KEYS * 64;
    return dot > values ? dot : values;
}

template <int FOURS> struct attention_sums {
    float at[4][4 * FOURS];
};

/* Goes on with the sums over keys first .. first + n - 1 of the block, whose values are in s.work. */
template <int FOURS>
__device__ static inline void attention_add(attention_sums<FOURS> &sums, const sycuda_attention_shared &s,
                                            int first, int n)
{
    const int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
    uint64_t seen[4];
#pragma unroll
    for (int r = 0; r < 4; r++) seen[r] = s.seen[4 * y + r] >> first;
    for (int k = 0; k < n; k += 4) {
        sycuda_four p[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
            p[r] = sycuda_read_four(s.weight + (4 * y + r) * SYCUDA_SCORE_STEP + first + k);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int f = 0; f < FOURS; f++) {
                const sycuda_four v = sycuda_read_four(s.work + (k + i) * 64 * FOURS + 64 * f + 4 * x);
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        if (seen[r] >> (k + i) & 1)
                            sums.at[r][4 * f + c] = fmaf(p[r].v[i], v.v[c], sums.at[r][4 * f + c]);
            }
    }
}

/* The weighted values of a block of keys: columns column .. column + 64 * FOURS - 1 of them. */
template <class In, int FOURS>
__device__ static inline void attention_add_block(attention_sums<FOURS> &sums,
                                                  const sycuda_attention_shared &s, sycuda_rows<In> values,
                                                  int64_t column, const float *mask)
{
    enum { KEYS = SYCUDA_KEYS / FOURS, WIDTH = 64 * FOURS };
    const int y = (int)threadIdx.x / 16;
    for (int first = 0; first < SYCUDA_KEYS; first += KEYS) {
        if (first) __syncthreads();
        sycuda_load_rows<WIDTH>(s.work, WIDTH, values, KEYS, column, mask ? mask + first : nullptr);
        __syncthreads();
        if (first == 0) {
#pragma unroll
            for (int i = 0; i < 16 * FOURS; i++)
                sums.at[i / (4 * FOURS)][i % (4 * FOURS)] *= s.factor[4 * y + i / (4 * FOURS)];
        }
        attention_add<FOURS>(sums, s, first, KEYS);
        values.x += KEYS * values.step;
        values.n -= KEYS;
    }
}

template <int FOURS, class Out>
__device__ static inline void attention_write(const sycuda_attention_call &a,
                                              const attention_sums<FOURS> &sums, const float *factor,
                                              Out *out, int64_t queries, int64_t column)
{
    const int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 16 * FOURS; i++) {
        const int r = i / (4 * FOURS), c = i % (4 * FOURS);
        const int64_t d = column + c / 4 * 64 + 4 * x + c % 4;
        if (4 * y + r < queries && d < a.head_dim)
            sycuda_write(out + (4 * y + r) * a.columns + d, sums.at[r][c] * factor[4 * y + r]);
    }
}

/* Blocks: (row, head, tile of queries, piece of columns). work: floats of sycuda_attention_shared.work. */
template <class In, class Out, int FOURS>
__global__ void __launch_bounds__(256) attention_tiles(sycuda_attention_call a, const In *q, const In *kv,
                                                       Out *out, float *lse, int tiles, int pieces, int work)
{
    SYCUDA_DYNAMIC_SHARED(float, memory);
    const int tile = (int)blockDim.x / 4, mine = (int)threadIdx.x / 4;
    const int64_t piece = blockIdx.x % pieces, pair = blockIdx.x / pieces / tiles;
    const int64_t from = (int64_t)(blockIdx.x / pieces % tiles) * tile, query = from + mine;
    const int64_t row = pair / a.heads, head = pair % a.heads;
    const sycuda_attention_shared s = sycuda_attention_shared_at(memory, tile, work);
    const sycuda_rows<In> left = sycuda_attention_q_rows(a, q, row, head, from);
    const float *mask = a.rng ? s.mask : nullptr;
    sycuda_attention_softmax softmax = {0, 0, 0};
    attention_sums<FOURS> sums = {};
    for (int64_t first = 0; first < a.keys; first += SYCUDA_KEYS) {
        const uint64_t seen = sycuda_attention_seen(a, row, query, first);
        if (!__syncthreads_or(seen != 0)) continue;
        sycuda_attention_diagonal(a, head, first, from + tile - 1, tile + SYCUDA_KEYS - 1, s.diagonal);
        sycuda_attention_masks(a, row, head, first, SYCUDA_KEYS, s.mask);
        const sycuda_sums scores =
            sycuda_attention_dot(left, sycuda_attention_kv_rows(a, kv, row, head, first, 2), nullptr, s.work);
#pragma unroll
        for (int i = 0; i < 16; i++)
            s.weight[((int)threadIdx.x / 16 * 4 + i / 4) * SYCUDA_SCORE_STEP + (int)threadIdx.x % 16 +
                     i % 4 * 16] = scores.at[i / 4][i % 4];
        __syncthreads();
        s.factor[mine] = sycuda_attention_softmax_block(a, s, softmax, row, head, query, first, seen);
        s.seen[mine] = seen;
        attention_add_block<In, FOURS>(sums, s, sycuda_attention_kv_rows(a, kv, row, head, first, 1),
                                       piece * 64 * FOURS, mask);
    }
    __syncthreads();
    s.factor[mine] = softmax.begun ? 1 / softmax.sum : 1;
    if (threadIdx.x % 4 == 0 && piece == 0 && query < a.queries)
        lse[pair * a.queries + query] = softmax.begun ? softmax.top + syi_log(softmax.sum) : 0;
    __syncthreads();
    attention_write<FOURS>(a, sums, s.factor, out + sycuda_attention_out(a, row, head) + from * a.columns,
                           a.queries - from, piece * 64 * FOURS);
}

/* ---- the call ---- */

int sycuda_attention_prepare(void *context, const struct sy_call *call, void **plan)
{
    return sycuda_attention_plan_make(context, call, plan);
}

void sycuda_attention_release(void *context, void *plan)
{
    sycuda_attention_plan_free(context, plan);
}

uint64_t sycuda_attention_workspace(const struct sy_call *call, int)
{
    struct sycuda_attention_call a =
        sycuda_attention_of(call, &call->out[0], ATTENTION_SEGMENTS, ATTENTION_POSITION);
    return sycuda_attention_place(&a, nullptr);
}

template <int FOURS>
static void attention_launch(const sycuda_attention_call &a, const sy_call *call, cudaStream_t stream)
{
    const int tile = sycuda_attention_tile(a.queries), tiles = (int)sycuda_pieces(a.queries, tile);
    const int pieces = (int)sycuda_pieces(a.head_dim, 64 * FOURS);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto x, auto y) {
        using In = decltype(x);
        using Out = decltype(y);
        SYCUDA_LAUNCH((attention_tiles<In, Out, FOURS>), a.rows * a.heads * tiles * pieces, 4 * tile,
                      sycuda_attention_shared_bytes(tile, attention_work_floats(tile)), stream, a,
                      sycuda_in<In>(call, 0), sycuda_in<In>(call, 1), sycuda_out<Out>(call, 0),
                      sycuda_out<float>(call, 1), tiles, pieces, attention_work_floats(tile));
    });
}

int sycuda_attention(void *context, const struct sy_call *call)
{
    struct sycuda_attention_call a =
        sycuda_attention_of(call, &call->out[0], ATTENTION_SEGMENTS, ATTENTION_POSITION);
    cudaStream_t stream = sycuda_stream(context);
    (void)sycuda_attention_place(&a, call->workspace);
    sycuda_attention_look(&a, stream);
    if (sycuda_attention_mma_fits(static_cast<sycuda_context *>(context), &a, call->in[0].dtype))
        sycuda_attention_mma(&a, call, stream);
    else if (a.head_dim <= 64)
        attention_launch<1>(a, call, stream);
    else
        attention_launch<2>(a, call, stream);
    return sycuda_launched(context, "attention");
}
