/* SPDX-License-Identifier: Apache-2.0 */
/* The dense relative position bias of a table, and the table's gradient. Buckets are found by the host at bind (logf),
 * by the distance key - query + t.
 *
 * relpos_bias: a thread an element. relpos_bias_grad: a thread block for each element of the table: all its threads read
 * the elements of the bucket into shared memory, query by query, one adds them in order. */
#include "backends/cuda/cuda.h"

#include "base/relpos.h"

enum { HELD = 1024 }; /* elements in shared memory */

/* The distances that have a bucket lie between these. */
struct range {
    int32_t low, high;
};

/* bucket: [distances]; range: [buckets], after it in the same memory. */
struct relpos {
    int32_t *bucket;
    struct range *range;
};

/* Tables of the host: bucket [t + s], then range [buckets]. */
static void fill(const struct sy_attr_relpos *attr, int64_t t, int64_t s, int64_t buckets, int32_t *table)
{
    struct range *range = reinterpret_cast<struct range *>(table + t + s);
    for (int64_t b = 0; b < buckets; b++) range[b] = {(int32_t)(t + s), -1};
    for (int64_t i = 0; i < t + s; i++) {
        const int64_t b = syi_relpos_bucket(i - t, (int)attr->bidirectional, buckets, attr->max_distance);
        table[i] = (int32_t)b;
        if (range[b].low > i) range[b].low = (int32_t)i;
        range[b].high = (int32_t)i;
    }
}

static int upload(struct sycuda_context *context, const int32_t *table, size_t bytes, struct relpos *r)
{
    cudaError_t error = cudaSetDevice(context->device);
    if (error == cudaSuccess) error = cudaMalloc(&r->bucket, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(r->bucket, table, bytes, cudaMemcpyDefault, context->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(context->stream);
    return error == cudaSuccess ? SY_OK
                                : sycuda_fail(context->host, "preparing the relative positions", error);
}

static void release(void *plan)
{
    struct relpos *r = static_cast<struct relpos *>(plan);
    if (r) (void)cudaFree(r->bucket);
    free(r);
}

static int prepare(void *context, const struct sy_call *call, const struct sy_tensor *dense, int64_t buckets,
                   void **plan)
{
    struct sycuda_context *c = static_cast<struct sycuda_context *>(context);
    const int64_t t = dense->dim[1], s = dense->dim[2];
    const size_t bytes = (size_t)(t + s) * sizeof(int32_t) + (size_t)buckets * sizeof(struct range);
    struct relpos *r = static_cast<struct relpos *>(calloc(1, sizeof *r));
    int32_t *table = static_cast<int32_t *>(malloc(bytes));
    int status = SY_ENOMEM;
    if (r && table) {
        fill(sycuda_attr<sy_attr_relpos>(call), t, s, buckets, table);
        status = upload(c, table, bytes, r);
    } else {
        c->host->error(c->host->arg, "out of memory for the buckets of relative positions");
    }
    free(table);
    if (status) {
        release(r);
        return status;
    }
    r->range = reinterpret_cast<struct range *>(r->bucket + t + s);
    *plan = r;
    return SY_OK;
}

/* ---- relpos_bias ---- */

template <class In, class Out>
__global__ void spread_table(const In *table, const int32_t *bucket, Out *dense, int64_t n, int64_t t,
                             int64_t s, int64_t buckets)
{
    for (int64_t i = sycuda_first(); i < n; i += sycuda_stride()) {
        const int64_t row = i / s, key = i - row * s, head = row / t, query = row - head * t;
        sycuda_write(dense + i, sycuda_read(table + head * buckets + bucket[key - query + t]));
    }
}

uint64_t sycuda_relpos_bias_workspace(const struct sy_call *, int)
{
    return 0;
}

int sycuda_relpos_bias_prepare(void *context, const struct sy_call *call, void **plan)
{
    return prepare(context, call, &call->out[0], call->in[0].dim[1], plan);
}

void sycuda_relpos_bias_release(void *, void *plan)
{
    release(plan);
}

int sycuda_relpos_bias(void *context, const struct sy_call *call)
{
    const struct relpos *r = static_cast<const struct relpos *>(call->plan);
    const int64_t n = sycuda_count(&call->out[0]), t = call->out[0].dim[1], s = call->out[0].dim[2];
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((spread_table<In, Out>), sycuda_blocks(n, SYCUDA_THREADS), SYCUDA_THREADS,
                           sycuda_stream(context), sycuda_in<In>(call, 0), r->bucket,
                           sycuda_out<Out>(call, 0), n, t, s, call->in[0].dim[1]);
    });
    return sycuda_launched(context, "relpos_bias");
}

/* ---- relpos_bias_grad ---- */

/* Keys of a query that may have the bucket. */
struct keys {
    int64_t first, n;
};
__device__ static inline struct keys keys_of(const struct range &range, int64_t query, int64_t t, int64_t s)
{
    int64_t first = range.low + query - t, end = range.high + query - t + 1;
    if (first < 0) first = 0;
    if (end > s) end = s;
    return {first, end > first ? end - first : 0};
}

/* The chain over what is held, by thread 0. All threads come. */
__device__ static inline float add_held(const float *held, int64_t n, float acc)
{
    __syncthreads();
    for (int64_t k = 0; k < n && threadIdx.x == 0; k++) acc += held[k];
    __syncthreads();
    return acc;
}

/* An element of another bucket is read as -0, which adds nothing to any sum. */
template <class In, class Out>
__global__ void add_buckets(const In *dense, const struct relpos r, Out *table, int64_t t, int64_t s,
                            int64_t buckets, int64_t elements)
{
    __shared__ float held[HELD];
    for (int64_t i = blockIdx.x; i < elements; i += gridDim.x) {
        const int64_t head = i / buckets, bucket = i - head * buckets;
        const struct range range = r.range[bucket];
        float acc = 0;
        int64_t filled = 0;
        for (int64_t query = 0; query < t; query++) {
            const struct keys keys = keys_of(range, query, t, s);
            const In *row = dense + (head * t + query) * s + keys.first;
            const int32_t *of = r.bucket + keys.first - query + t;
            for (int64_t done = 0, n; done < keys.n; done += n) {
                n = keys.n - done < HELD - filled ? keys.n - done : HELD - filled;
                for (int64_t k = threadIdx.x; k < n; k += blockDim.x)
                    held[filled + k] = of[done + k] == bucket ? sycuda_read(row + done + k) : -0.0f;
                filled += n;
                if (filled < HELD) continue;
                acc = add_held(held, filled, acc);
                filled = 0;
            }
        }
        acc = add_held(held, filled, acc);
        if (threadIdx.x == 0) sycuda_write(table + i, acc);
    }
}

uint64_t sycuda_relpos_bias_grad_workspace(const struct sy_call *, int)
{
    return 0;
}

int sycuda_relpos_bias_grad_prepare(void *context, const struct sy_call *call, void **plan)
{
    return prepare(context, call, &call->in[0], call->out[0].dim[1], plan);
}

void sycuda_relpos_bias_grad_release(void *, void *plan)
{
    release(plan);
}

int sycuda_relpos_bias_grad(void *context, const struct sy_call *call)
{
    const struct relpos *r = static_cast<const struct relpos *>(call->plan);
    const int64_t t = call->in[0].dim[1], s = call->in[0].dim[2], elements = sycuda_count(&call->out[0]);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((add_buckets<In, Out>), sycuda_blocks(elements, 1), SYCUDA_THREADS / 4, 0,
                      sycuda_stream(context), sycuda_in<In>(call, 0), *r, sycuda_out<Out>(call, 0), t, s,
                      call->out[0].dim[1], elements);
    });
    return sycuda_launched(context, "relpos_bias_grad");
}
