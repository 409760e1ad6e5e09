/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, cross entropy, their gradients, argmax and top_k.
 *
 * A block takes a row, for rows are as long as the vocabulary: the largest element is found by all threads; exp(x - m)
 * goes through tiles in shared memory, where 16 threads add what all compute, each the chain of one lane, and 16 more
 * add the logits themselves. So few rows are under way at a time that their second reading can be served by the L2
 * cache. The softmax of a short row (over experts) and its gradient have 16 threads a row. The gradient of the cross
 * entropy is elementwise. */
#include "backends/cuda/select.h"
#include "backends/cpu/xent.h"

enum {
    TILE = 4096,  /* elements of a row in shared memory */
    SHORT = 1024, /* the longest row that 16 threads take */
    MOST_THREADS = 512
};

static int row_threads(int64_t n)
{
    return sycuda_threads_for(n / 8, MOST_THREADS);
}

/* ---- what a block finds out about a row ---- */

struct top {
    float value;
    int32_t index;
};

__device__ static inline struct top higher(struct top a, struct top b)
{
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

/* The largest number of x[0..n) and its lowest index; NaN are passed over. All threads get it. */
template <class T> __device__ static inline struct top row_top(const T *x, int64_t n)
{
    __shared__ struct top of_warp[MOST_THREADS / 32];
    struct top best = {-INFINITY, INT32_MAX};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        best = higher(best, {sycuda_read(x + i), (int32_t)i});
    for (unsigned s = 16; s >= 1; s /= 2)
        best = higher(best, {__shfl_down_sync(0xffffffffu, best.value, s),
                             __shfl_down_sync(0xffffffffu, best.index, s)});
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    best = of_warp[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) best = higher(best, of_warp[w]);
    __syncthreads();
    return best;
}

/* As argmax has it: index 0 where that element is NaN. */
template <class T> __device__ static inline int32_t row_argmax(const T *x, struct top best)
{
    float first = sycuda_read(x);
    return first != first ? 0 : best.index;
}

struct row_sums {
    float exps, values; /* row sums of exp(x - m) and of x */
};

/* Elements of a tile for rows of n, and the bytes of both tiles. The second begins 16 banks after the first, so the 32
 * threads that add meet no conflict. */
static int64_t tile_of(int64_t n)
{
    return n < TILE ? (n + 31) / 32 * 32 : (int64_t)TILE;
}
static size_t tile_bytes(int64_t n)
{
    return (size_t)(2 * tile_of(n) + SYCUDA_LANES) * sizeof(float);
}

/* All threads get them. */
template <class T>
__device__ static inline struct row_sums sum_row(const T *x, int64_t n, float m, int64_t tile)
{
    SYCUDA_DYNAMIC_SHARED(float, exps);
    __shared__ struct row_sums sums;
    float *values = exps + tile + SYCUDA_LANES, lane = 0;
    const float *own = threadIdx.x < SYCUDA_LANES ? exps : values;
    for (int64_t base = 0; base < n; base += tile) {
        int64_t count = n - base < tile ? n - base : tile;
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
            float value = sycuda_read(x + base + i);
            exps[i] = syi_f32_exp(value - m);
            values[i] = value;
        }
        __syncthreads();
        for (int64_t i = sycuda_lane(); threadIdx.x < 32 && i < count; i += SYCUDA_LANES) lane += own[i];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        float sum = sycuda_lane_sum(lane);
        if (threadIdx.x == 0) sums.exps = sum;
        if (threadIdx.x == SYCUDA_LANES) sums.values = sum;
    }
    __syncthreads();
    struct row_sums all = sums;
    __syncthreads();
    return all;
}

/* ---- softmax ---- */

template <class In, class Out>
__global__ void softmax_short(const In *x, Out *p, Out *lse, int64_t rows, int64_t n)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int64_t there = row < rows ? n : 0;
        const In *from = x + row * n;
        float m = -INFINITY, s = 0;
        for (int64_t i = sycuda_lane(); i < there; i += SYCUDA_LANES) {
            float value = sycuda_read(from + i);
            m = value > m ? value : m;
        }
        m = sycuda_lane_max(m);
        for (int64_t i = sycuda_lane(); i < there; i += SYCUDA_LANES)
            s += syi_f32_exp(sycuda_read(from + i) - m);
        s = sycuda_lane_sum(s);
        for (int64_t i = sycuda_lane(); i < there; i += SYCUDA_LANES)
            sycuda_write(p + row * n + i, syi_f32_exp(sycuda_read(from + i) - m) * (1 / s));
        if (there && sycuda_lane() == 0) sycuda_write(lse + row, m + syi_f32_log(s));
    }
}

template <class In, class Out>
__global__ void softmax_long(const In *x, Out *p, Out *lse, int64_t rows, int64_t n, int64_t tile)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const In *from = x + row * n;
        float m = row_top(from, n).value, s = sum_row(from, n, m, tile).exps;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            sycuda_write(p + row * n + i, syi_f32_exp(sycuda_read(from + i) - m) * (1 / s));
        if (threadIdx.x == 0) sycuda_write(lse + row, m + syi_f32_log(s));
    }
}

int sycuda_softmax(void *context, const struct sy_call *call)
{
    int64_t n = call->in[0].dim[2], rows = sycuda_extent(&call->in[0], 2);
    cudaStream_t stream = sycuda_stream(context);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        const In *x = sycuda_in<In>(call, 0);
        Out *p = sycuda_out<Out>(call, 0), *lse = sycuda_out<Out>(call, 1);
        if (n <= SHORT)
            SYCUDA_LAUNCH((softmax_short<In, Out>), sycuda_row_blocks(rows), SYCUDA_THREADS, 0, stream, x, p,
                          lse, rows, n);
        else
            SYCUDA_LAUNCH((softmax_long<In, Out>), sycuda_blocks(rows, 1), row_threads(n), tile_bytes(n),
                          stream, x, p, lse, rows, n, tile_of(n));
    });
    return sycuda_launched(context, "softmax");
}

template <class In, class Out>
__global__ void softmax_grad_rows(const In *p, const In *dp, const In *dlse, Out *out, int64_t rows,
                                  int64_t n)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int64_t there = row < rows ? n : 0, at = row * n;
        float lane = 0, more = there && dlse ? sycuda_read(dlse + row) : 0;
        for (int64_t i = sycuda_lane(); i < there; i += SYCUDA_LANES)
            lane = fmaf(sycuda_read(p + at + i), sycuda_read(dp + at + i), lane);
        float c = sycuda_lane_sum(lane);
        for (int64_t i = sycuda_lane(); i < there; i += SYCUDA_LANES) {
            float value = sycuda_read(p + at + i), y = value * (sycuda_read(dp + at + i) - c);
            sycuda_write(out + at + i, dlse ? fmaf(more, value, y) : y);
        }
    }
}

int sycuda_softmax_grad(void *context, const struct sy_call *call)
{
    int64_t n = call->in[0].dim[2], rows = sycuda_extent(&call->in[0], 2);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((softmax_grad_rows<In, Out>), sycuda_row_blocks(rows), SYCUDA_THREADS, 0,
                      sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_in<In>(call, 1),
                      sycuda_optional<In>(call, 2), sycuda_out<Out>(call, 0), rows, n);
    });
    return sycuda_launched(context, "softmax_grad");
}

/* ---- cross entropy ---- */

/* Operands by row. */
struct xent_rows {
    const int32_t *target;
    const float *weight;
    float *loss, *z_part, *lse, *correct; /* outputs of xent */
    int64_t rows, n;
    float z_loss;
    struct xent_constants k;
};

/* One thread: the outputs of a row whose weight is not 0. */
template <class T>
__device__ static inline void xent_row(const struct xent_rows &r, int64_t row, const T *x, struct top best,
                                       struct row_sums sums)
{
    int64_t t = r.target[row];
    float w = r.weight[row], lse = best.value + syi_f32_log(sums.exps);
    float l = xent_loss(&r.k, lse, t >= 0 && t < r.n ? sycuda_read(x + t) : 0, sums.values);
    float z = (r.z_loss * lse) * lse;
    r.loss[row] = w * (l + z);
    r.z_part[row] = w * z;
    r.lse[row] = lse;
    r.correct[row] = row_argmax(x, best) == t;
}

template <class T> __global__ void xent_forward(const T *x, struct xent_rows r, int64_t tile)
{
    for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
        if (r.weight[row] == 0) {
            if (threadIdx.x == 0) r.loss[row] = r.z_part[row] = r.lse[row] = r.correct[row] = 0;
            continue;
        }
        const T *from = x + row * r.n;
        struct top best = row_top(from, r.n);
        struct row_sums sums = sum_row(from, r.n, best.value, tile);
        if (threadIdx.x == 0) xent_row(r, row, from, best, sums);
    }
}

/* What both directions take from the call. */
static struct xent_rows xent_of(const struct sy_call *call)
{
    const struct sy_attr_xent *attr = sycuda_attr<sy_attr_xent>(call);
    struct xent_rows r = {};
    r.target = sycuda_in<int32_t>(call, 1);
    r.weight = sycuda_in<float>(call, 2);
    r.rows = sycuda_extent(&call->in[0], 2);
    r.n = call->in[0].dim[2];
    r.z_loss = (float)attr->z_loss;
    r.k = xent_constants(attr, r.n);
    return r;
}

int sycuda_xent(void *context, const struct sy_call *call)
{
    struct xent_rows r = xent_of(call);
    r.loss = sycuda_out<float>(call, 0);
    r.z_part = sycuda_out<float>(call, 1);
    r.lse = sycuda_out<float>(call, 2);
    r.correct = sycuda_out<float>(call, 3);
    sycuda_by_dtype(call->in[0].dtype, [&](auto element) {
        using T = decltype(element);
        SYCUDA_LAUNCH((xent_forward<T>), sycuda_blocks(r.rows, 1), row_threads(r.n), tile_bytes(r.n),
                      sycuda_stream(context), sycuda_in<T>(call, 0), r, tile_of(r.n));
    });
    return sycuda_launched(context, "xent");
}

/* out may be the memory of x. */
template <class In, class Out>
__global__ void xent_backward(const In *x, struct xent_rows r, const float *lse, const float *dloss, Out *out)
{
    for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
        float w = r.weight[row], g = dloss[row] * w, a = fmaf(2 * r.z_loss, lse[row], 1.0f);
        for (int64_t i = threadIdx.x; i < r.n; i += blockDim.x) {
            float q = i == r.target[row] ? r.k.on : r.k.off, y = 0;
            if (w != 0) y = g * (a * syi_f32_exp(sycuda_read(x + row * r.n + i) - lse[row]) - q);
            sycuda_write(out + row * r.n + i, y);
        }
    }
}

int sycuda_xent_grad(void *context, const struct sy_call *call)
{
    struct xent_rows r = xent_of(call);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((xent_backward<In, Out>), sycuda_blocks(r.rows, 1),
                           sycuda_threads_for(r.n, SYCUDA_THREADS), sycuda_stream(context),
                           sycuda_in<In>(call, 0), r, sycuda_in<float>(call, 3), sycuda_in<float>(call, 4),
                           sycuda_out<Out>(call, 0));
    });
    return sycuda_launched(context, "xent_grad");
}

/* ---- argmax, top_k ---- */

template <class T> __global__ void argmax_rows(const T *x, int32_t *out, int64_t rows, int64_t n)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        struct top best = row_top(x + row * n, n);
        if (threadIdx.x == 0) out[row] = row_argmax(x + row * n, best);
    }
}

int sycuda_argmax(void *context, const struct sy_call *call)
{
    int64_t n = call->in[0].dim[2], rows = sycuda_extent(&call->in[0], 2);
    sycuda_by_dtype(call->in[0].dtype, [&](auto element) {
        using T = decltype(element);
        SYCUDA_LAUNCH((argmax_rows<T>), sycuda_blocks(rows, 1), row_threads(n), 0, sycuda_stream(context),
                      sycuda_in<T>(call, 0), sycuda_out<int32_t>(call, 0), rows, n);
    });
    return sycuda_launched(context, "argmax");
}

/* Places beyond a row's n elements get -inf and -1. */
template <class In, class Out>
__global__ void top_k_rows(const In *x, Out *value, int32_t *index, int64_t rows, int64_t n, int64_t k)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const In *from = x + row * n;
        sycuda_select(
            n, k < n ? k : n, [=](int64_t i) { return sycuda_key(sycuda_read(from + i)); },
            [=](int64_t place, int64_t i) {
                sycuda_write(value + row * k + place, sycuda_read(from + i));
                index[row * k + place] = (int32_t)i;
            });
        for (int64_t place = n + threadIdx.x; place < k; place += blockDim.x) {
            sycuda_write(value + row * k + place, -INFINITY);
            index[row * k + place] = -1;
        }
    }
}

int sycuda_top_k(void *context, const struct sy_call *call)
{
    int64_t n = call->in[0].dim[2], k = call->out[0].dim[2], rows = sycuda_extent(&call->in[0], 2);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((top_k_rows<In, Out>), sycuda_blocks(rows, 1), row_threads(n), 0,
                      sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_out<Out>(call, 0),
                      sycuda_out<int32_t>(call, 1), rows, n, k);
    });
    return sycuda_launched(context, "top_k");
}
