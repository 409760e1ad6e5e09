/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's model of threads and the part of its runtime that the CUDA backend uses, on the CPU, for the host's C++
 * compiler: kernels are tested where there is no GPU, under sanitizers, too.
 *
 * A block's threads are fibers of one host thread; blocks run one after the other, threads of a block in another random
 * order after every barrier, so that a race between two barriers shows in the results. A barrier or a warp function that
 * not all threads reach ends the process with a message. Memory of the device may be touched by kernels and copies only:
 * the host that reads it crashes (not under AddressSanitizer, which then sees what lies beyond an allocation). Work is
 * done when it is launched, or recorded while a graph is captured. Shared memory holds rubbish at first. */
#ifndef EMULATION_H
#define EMULATION_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>

/* ---- the language ---- */

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local

struct dim3 {
    unsigned x, y, z;
};

/* The thread that runs now. */
struct emulated_position {
    dim3 thread, block, threads, blocks;
};
const emulated_position *emulated_now();
#define threadIdx (emulated_now()->thread)
#define blockIdx  (emulated_now()->block)
#define blockDim  (emulated_now()->threads)
#define gridDim   (emulated_now()->blocks)

void emulated_barrier();
/* A barrier; whether a thread came with a predicate that is not 0. */
int emulated_barrier_or(int predicate);
/* Gives `value` to the warp and returns that of lane `source` once all lanes of mask have come. */
uint64_t emulated_shuffle(unsigned mask, uint64_t value, int source);
/* Gives `value` to the warp; all[lane] is what each of the lanes of mask gave once all have come. */
void emulated_gather(unsigned mask, uint64_t value, uint64_t all[32]);
/* The lanes of the warp whose predicate is not 0. */
unsigned emulated_ballot(unsigned mask, int predicate);
void *emulated_dynamic_shared();

static inline void __syncthreads()
{
    emulated_barrier();
}
static inline int __syncthreads_or(int predicate)
{
    return emulated_barrier_or(predicate);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    (void)emulated_ballot(mask, 0);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return emulated_ballot(mask, predicate);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return emulated_ballot(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return emulated_ballot(mask, !predicate) == 0;
}

int emulated_lane();

template <class T> static inline T emulated_exchange(unsigned mask, T value, int source)
{
    uint64_t bits = 0;
    static_assert(sizeof value <= sizeof bits, "a shuffle moves at most 8 bytes");
    memcpy(&bits, &value, sizeof value);
    bits = emulated_shuffle(mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    int lane = emulated_lane();
    return emulated_exchange(mask, value, lane / width * width + (source & (width - 1)));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane = emulated_lane(), source = lane % width + (int)by;
    return emulated_exchange(mask, value, source < width ? lane + (int)by : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane = emulated_lane(), source = lane % width - (int)by;
    return emulated_exchange(mask, value, source >= 0 ? lane - (int)by : lane);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32)
{
    int lane = emulated_lane(), source = lane ^ with;
    return emulated_exchange(mask, value, source / width == lane / width ? source : lane);
}

static inline float emulated_bf16(uint32_t bits)
{
    float value;
    bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* mma.sync.m16n8k16 of bfloat16 with float32 sums, c += a b, as the PTX manual deals out elements to lanes (mma.h). Lanes show
 * each other where their operands lie, and wait until all have read them. Added in ascending order. */
static inline void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    const struct operands {
        uint32_t a[4], b[2];
    } mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const int lane = emulated_lane(), row = lane / 4, column = lane % 4 * 2;
    uint64_t of[32];
    emulated_gather(0xffffffffu, (uint64_t)(uintptr_t)&mine, of);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) {
            const int t = k % 8 / 2, half = k / 8, high = k % 2 * 16;
            const operands *left = reinterpret_cast<const operands *>(of[row * 4 + t]);
            const operands *right = reinterpret_cast<const operands *>(of[(column + i % 2) * 4 + t]);
            c[i] = fmaf(emulated_bf16(left->a[2 * half + i / 2] >> high & 0xffff),
                        emulated_bf16(right->b[half] >> high & 0xffff), c[i]);
        }
    __syncwarp();
}

/* Atomics on integers; sums of floating-point numbers would depend on the order. */
template <class T> static inline T atomicAdd(T *at, T value)
{
    static_assert((T)0.5 == 0, "no atomics in floating-point sums");
    T before = *at;
    *at = before + value;
    return before;
}
template <class T> static inline T atomicMax(T *at, T value)
{
    T before = *at;
    if (value > before) *at = value;
    return before;
}
template <class T> static inline T atomicMin(T *at, T value)
{
    T before = *at;
    if (value < before) *at = value;
    return before;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

#define SYCUDA_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulated_dynamic_shared())

/* ---- the runtime ---- */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidPitchValue = 12,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorNvlinkUncorrectable = 220,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorUnknown = 999
};
struct emulated_stream;
struct emulated_graph;
struct emulated_event;
typedef emulated_stream *cudaStream_t;
typedef emulated_event *cudaEvent_t;
typedef emulated_graph *cudaGraph_t;
typedef emulated_graph *cudaGraphExec_t;
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum { cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0, cudaEventDisableTiming = 2 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
};

struct cudaFuncAttributes {
    int ptxVersion;
};

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t emulated_attributes(cudaFuncAttributes *attributes);
template <class T> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, T *)
{
    return emulated_attributes(attributes);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t emulated_malloc(void **memory, size_t bytes);
template <class T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    return emulated_malloc(reinterpret_cast<void **>(memory), bytes);
}
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* ---- launches ---- */

/* The device that the calling thread has set. */
int emulated_device();
/* Says that what was launched has failed: the next calls return it, as those of a device that is gone. */
void emulated_lose();
/* Whether that is so. */
bool emulated_is_lost();
/* Says that the work of a device waits for others from here on: what is queued behind is not done, and what would wait for it
 * ends the test, until it waits no more. */
void emulated_hang(int device, bool waits);

struct emulated_shape {
    unsigned blocks, threads;
    size_t shared_bytes;
    bool free; /* no thread waits for another: no fibers are needed */
};
/* Runs work on the stream, or adds it to the graph being captured: a launch, or with threads 0 one call of `body` (what a
 * library does, a copy). */
void emulated_launch(const emulated_shape &shape, cudaStream_t stream, std::function<void()> body);

template <class... Parameters, class... Arguments>
static inline void emulated_start(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                                  size_t shared_bytes, bool free, cudaStream_t stream, Arguments... arguments)
{
    std::tuple<Parameters...> values(arguments...);
    emulated_launch({blocks, threads, shared_bytes, free}, stream, [=] { std::apply(kernel, values); });
}
#define SYCUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                    \
    emulated_start(kernel, (unsigned)(blocks), (unsigned)(threads), (size_t)(shared_bytes), false, stream,   \
                   __VA_ARGS__)
#define SYCUDA_LAUNCH_FREE(kernel, blocks, threads, stream, ...)                                             \
    emulated_start(kernel, (unsigned)(blocks), (unsigned)(threads), 0, true, stream, __VA_ARGS__)
#define SYCUDA_LAUNCH_OWN(kernel, blocks, threads, shared_bytes, stream, ...)                                \
    emulated_start(kernel, (unsigned)(blocks), (unsigned)(threads), (size_t)(shared_bytes), true, stream,    \
                   __VA_ARGS__)

#endif
