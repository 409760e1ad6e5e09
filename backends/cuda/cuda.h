/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CUDA backend share: the context, operands as kernels see them, launches, sums.
 *
 * Kernels are written in the part of CUDA C++ that tests/cuda/emulation.h has for the host's compiler, so every one of
 * them runs without a GPU in `make check`. Rules:
 * - In float32 an own kernel adds in the order of doc/numerics.md and gives the bits of the CPU's reference kernel;
 *   bfloat16 operands are widened when read and rounded when written. Products by cuBLASLt add in another order.
 * - Floating-point sums use no atomics.
 * - A launch depends on shapes, attributes and pointers only: what a tensor holds (lengths, counts, the rng state, a
 *   position) is read by the kernel. So launches can be recorded once and replayed.
 * - run launches on context->stream and returns; it allocates nothing and waits for nothing. */
#ifndef SYCUDA_CUDA_H
#define SYCUDA_CUDA_H

#include <stdint.h>
#include <stdlib.h>

#ifdef __CUDACC__
#    include <cuda_runtime.h>
#    define SYCUDA_DYNAMIC_SHARED(type, name)                                                                \
        extern __shared__ __align__(16) unsigned char sycuda_dynamic[];                                      \
        type *name = reinterpret_cast<type *>(sycuda_dynamic)
/* Launches a kernel. Its arguments are evaluated now and passed by value. */
#    define SYCUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                \
        kernel<<<(unsigned)(blocks), (unsigned)(threads), (size_t)(shared_bytes), stream>>>(__VA_ARGS__)
/* The same for a kernel whose threads never wait for each other: no barrier, no shuffle, no shared memory. */
#    define SYCUDA_LAUNCH_FREE(kernel, blocks, threads, stream, ...)                                         \
        kernel<<<(unsigned)(blocks), (unsigned)(threads), 0, stream>>>(__VA_ARGS__)
/* The same with dynamic shared memory, of which a thread touches nothing but a part of its own. */
#    define SYCUDA_LAUNCH_OWN(kernel, blocks, threads, shared_bytes, stream, ...)                            \
        SYCUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, __VA_ARGS__)
#elif !defined EMULATION_H
#    error "compile this with nvcc, or for the CPU through tests/cuda"
#endif

#include "base/bf16.h"
#include "base/fmath.h"
#include "base/philox.h"
#include "switchyard/ops.h"
#include "switchyard/switchyard.h"

/* ---- context ---- */

/* One a rank, made by open. */
struct sycuda_context {
    const struct sy_host *host;
    cudaStream_t stream; /* everything of the rank runs on it, in order */
    int device;
    int multiprocessors;
    int tensor_cores;                 /* it multiplies bfloat16 on them (mma.h) */
    struct sycuda_cublaslt *cublaslt; /* of products; NULL: the own kernels do them */
    struct sycuda_nccl *nccl;         /* of links; NULL: collectives go through the host */
};

/* Tells the host why a function fails; SY_EBACKEND. what: "starting rms_norm" */
int sycuda_fail(const struct sy_host *host, const char *what, cudaError_t error);

/* The status of a kernel's run after its launches. */
static inline int sycuda_launched(void *context, const char *op)
{
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? SY_OK : sycuda_fail(((struct sycuda_context *)context)->host, op, error);
}

static inline cudaStream_t sycuda_stream(void *context)
{
    return ((struct sycuda_context *)context)->stream;
}

extern const struct sy_device_table sycuda_device_table;
extern const struct sy_link_table sycuda_link_table;

/* ---- nccl.cu ---- */

enum {
    SYCUDA_PATIENCE = 600
}; /* seconds that ranks wait for each other, unless SWITCHYARD_COMM_TIMEOUT says otherwise */
/* Sets context->nccl; a failure has told the host why. */
int sycuda_nccl_open(struct sycuda_context *context);
void sycuda_nccl_close(struct sycuda_context *context);
/* Waits for the stream, on which collectives may wait for other ranks: not longer than their patience. */
int sycuda_nccl_sync(struct sycuda_context *context);

/* Every op with a kernel: functions of the files of this folder. */
#define SYCUDA_KERNEL(NAME, name) int sycuda_##name(void *context, const struct sy_call *call);
#define SYCUDA_SCRATCH(NAME, name)                                                                           \
    SYCUDA_KERNEL(NAME, name)                                                                                \
    uint64_t sycuda_##name##_workspace(const struct sy_call *call, int threads);
#define SYCUDA_PLANNED(NAME, name)                                                                           \
    SYCUDA_SCRATCH(NAME, name)                                                                               \
    int sycuda_##name##_prepare(void *context, const struct sy_call *call, void **plan);                     \
    void sycuda_##name##_release(void *context, void *plan);
#define SYCUDA_PRODUCT(NAME, name) SYCUDA_PLANNED(NAME, name)
#include "backends/cuda/kernels.def"
#undef SYCUDA_PRODUCT
#undef SYCUDA_KERNEL
#undef SYCUDA_SCRATCH
#undef SYCUDA_PLANNED

/* ---- elements ---- */

struct sycuda_bf16 {
    uint16_t bits;
};

SYI_INLINE float sycuda_read(const float *x)
{
    return *x;
}
SYI_INLINE float sycuda_read(const sycuda_bf16 *x)
{
    return syi_bf16_to_float(x->bits);
}
/* Of int8 weights: to be multiplied by the scale of the output channel. */
SYI_INLINE float sycuda_read(const int8_t *x)
{
    return (float)*x;
}
SYI_INLINE void sycuda_write(float *y, float value)
{
    *y = value;
}
SYI_INLINE void sycuda_write(sycuda_bf16 *y, float value)
{
    y->bits = syi_bf16_from_float(value);
}

/* fn(float or sycuda_bf16), by a dtype of the host; kernels' templates are chosen with it:
 *     sycuda_by_dtype(call->in[0].dtype, [&](auto element) { using T = decltype(element); ... }); */
template <class Fn> static inline void sycuda_by_dtype(int dtype, Fn fn)
{
    if (dtype == SY_BF16)
        fn(sycuda_bf16());
    else
        fn(float());
}
template <class Fn> static inline void sycuda_by_dtypes(int in, int out, Fn fn)
{
    sycuda_by_dtype(in, [&](auto a) { sycuda_by_dtype(out, [&](auto b) { fn(a, b); }); });
}

/* ---- operands ---- */

template <class T> static inline const T *sycuda_in(const struct sy_call *call, int i)
{
    return static_cast<const T *>(call->in[i].data);
}
/* Of an optional operand: NULL where it is absent. */
template <class T> static inline const T *sycuda_optional(const struct sy_call *call, int i)
{
    return i < call->n_in && call->in[i].rank ? static_cast<const T *>(call->in[i].data) : nullptr;
}
template <class T> static inline T *sycuda_out(const struct sy_call *call, int i)
{
    return static_cast<T *>(call->out[i].data);
}
template <class Attr> static inline const Attr *sycuda_attr(const struct sy_call *call)
{
    return static_cast<const Attr *>(call->attr);
}
/* Elements of a tensor, and of its leading dims [0, end). */
static inline int64_t sycuda_extent(const struct sy_tensor *tensor, int end)
{
    int64_t n = 1;
    for (int i = 0; i < end; i++) n *= tensor->dim[i];
    return n;
}
static inline int64_t sycuda_count(const struct sy_tensor *tensor)
{
    return sycuda_extent(tensor, tensor->rank);
}

/* ---- shapes of launches ---- */

enum { SYCUDA_THREADS = 256, SYCUDA_LANES = 16, SYCUDA_WARP = 32 };

/* Blocks for n items, `each` a block; kernels go on in strides of the whole grid. At least 1. */
static inline int64_t sycuda_blocks(int64_t n, int64_t each)
{
    const int64_t most = 1 << 20, blocks = (n + each - 1) / each;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

/* for (int64_t i = sycuda_first(); i < n; i += sycuda_stride()): one item a thread. */
__device__ static inline int64_t sycuda_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ static inline int64_t sycuda_stride()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* ---- rows: a block a row ----
 *     for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
 *         for (int64_t i = threadIdx.x; i < n; i += blockDim.x) ... */

/* Threads of a block that does n items, one a thread and time: whole warps, 32 to `most`. */
static inline int sycuda_threads_for(int64_t n, int most)
{
    return n >= most ? most : n <= 32 ? 32 : (int)((n + 31) / 32 * 32);
}

/* ---- rows: 16 lanes a row, two rows a warp ----
 * All 32 threads of a warp call the sums together: rows are taken by
 *     for (int64_t r = sycuda_row(); r - sycuda_row_of_warp() < rows; r += sycuda_row_stride()) {
 *         int there = r < rows; ... }
 * so that a half without a row goes along. blockDim.x is a multiple of 32. */
__device__ static inline int sycuda_lane()
{
    return (int)(threadIdx.x % SYCUDA_LANES);
}
__device__ static inline int64_t sycuda_row()
{
    return sycuda_first() / SYCUDA_LANES;
}
/* 0 or 1: which row of the warp's two. */
__device__ static inline int64_t sycuda_row_of_warp()
{
    return threadIdx.x / SYCUDA_LANES % 2;
}
__device__ static inline int64_t sycuda_row_stride()
{
    return sycuda_stride() / SYCUDA_LANES;
}
static inline int64_t sycuda_row_blocks(int64_t rows)
{
    return sycuda_blocks(rows, SYCUDA_THREADS / SYCUDA_LANES);
}

/* The row sum of doc/numerics.md of what 16 lanes hold; every lane gets it. */
__device__ static inline float sycuda_lane_sum(float lane)
{
    for (int s = SYCUDA_LANES / 2; s >= 1; s /= 2)
        lane += __shfl_down_sync(0xffffffffu, lane, (unsigned)s, SYCUDA_LANES);
    return __shfl_sync(0xffffffffu, lane, 0, SYCUDA_LANES);
}
/* a > b ? a : b over 16 lanes, from the last lane to the first; every lane gets it. */
__device__ static inline float sycuda_lane_max(float lane)
{
    for (int s = SYCUDA_LANES / 2; s >= 1; s /= 2) {
        float other = __shfl_down_sync(0xffffffffu, lane, (unsigned)s, SYCUDA_LANES);
        lane = other > lane ? other : lane;
    }
    return __shfl_sync(0xffffffffu, lane, 0, SYCUDA_LANES);
}

/* ---- trees ---- */

/* The balanced tree over leaf(0) .. leaf(n - 1) in one thread: a stack as in binary counting. */
template <class Leaf> __device__ static inline float sycuda_tree(int64_t n, Leaf leaf)
{
    float pending[40], sum = 0;
    int held = 0;
    for (int64_t i = 0; i < n; i++) {
        sum = leaf(i);
        for (int64_t bits = i; bits & 1; bits >>= 1) sum = pending[--held] + sum;
        pending[held++] = sum;
    }
    for (held--; held > 0;) sum = pending[--held] + sum;
    return sum;
}

/* The same over leaf(first) .. leaf(first + N - 1), written out: the largest power of two below N, then the others. */
template <int N, class Leaf> __device__ static inline float sycuda_tree_of(int64_t first, Leaf leaf)
{
    if constexpr (N == 1) {
        return leaf(first);
    } else {
        constexpr int left = N > 8 ? 8 : N > 4 ? 4 : N > 2 ? 2 : 1;
        static_assert(N <= 16, "the left part is the largest power of two below N");
        return sycuda_tree_of<left>(first, leaf) + sycuda_tree_of<N - left>(first + left, leaf);
    }
}

#endif
