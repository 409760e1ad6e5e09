/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the device: struct sy_device_table of the CUDA backend. */
#include "backends/cuda/cuda.h"

static struct sycuda_context *of(void *context)
{
    return static_cast<struct sycuda_context *>(context);
}

static int report(void *context, const char *what, cudaError_t error)
{
    return error == cudaSuccess ? SY_OK : sycuda_fail(of(context)->host, what, error);
}

static int take(void *context, uint64_t bytes, void **memory)
{
    cudaError_t error = cudaSetDevice(of(context)->device);
    if (error == cudaSuccess) error = cudaMalloc(memory, (size_t)bytes);
    return report(context, "taking memory of the device", error);
}

static void give_back(void *context, void *memory)
{
    (void)cudaSetDevice(of(context)->device);
    (void)cudaFree(memory);
}

/* A run begins with a copy or with this, in any thread of the program: each has a device of its own that it works on. */
static int sync(void *context)
{
    cudaError_t error = cudaSetDevice(of(context)->device);
    if (of(context)->nccl) return sycuda_nccl_sync(of(context)); /* it meets what is wrong here again */
    if (error == cudaSuccess) error = cudaStreamSynchronize(of(context)->stream);
    return report(context, "waiting for the device", error);
}

static int copy_async(void *context, void *to, const void *from, uint64_t bytes)
{
    cudaError_t error = cudaSetDevice(of(context)->device);
    /* To memory of the host it returns when the stream has done what was before it, however long that waits for others. */
    int status = of(context)->nccl ? sycuda_nccl_sync(of(context)) : SY_OK;
    if (status) return status;
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, of(context)->stream);
    return report(context, "copying", error);
}

static int copy(void *context, void *to, const void *from, uint64_t bytes)
{
    int status = copy_async(context, to, from, bytes);
    return status ? status : sync(context);
}

static int zero(void *context, void *memory, uint64_t bytes)
{
    return report(context, "setting memory to zero",
                  cudaMemsetAsync(memory, 0, (size_t)bytes, of(context)->stream));
}

/* Rows that are farther apart than a copy of rows can have them (cudaDeviceProp.memPitch) go one by one. */
static int copy_rows(void *context, void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                     uint64_t row, uint64_t rows)
{
    const cudaStream_t stream = of(context)->stream;
    cudaError_t error = cudaSuccess;
    if (to_stride == row && from_stride == row) row *= rows, rows = 1;
    if (rows > 1 && to_stride <= INT32_MAX && from_stride <= INT32_MAX)
        error = cudaMemcpy2DAsync(to, (size_t)to_stride, from, (size_t)from_stride, (size_t)row, (size_t)rows,
                                  cudaMemcpyDefault, stream);
    else
        for (uint64_t i = 0; i < rows && error == cudaSuccess; i++)
            error = cudaMemcpyAsync(static_cast<char *>(to) + i * to_stride,
                                    static_cast<const char *>(from) + i * from_stride, (size_t)row,
                                    cudaMemcpyDefault, stream);
    return report(context, "copying rows", error);
}

static int memory_info(void *context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t left = 0, total = 0;
    cudaError_t error = cudaSetDevice(of(context)->device);
    if (error == cudaSuccess) error = cudaMemGetInfo(&left, &total);
    *free_bytes = left;
    *total_bytes = total;
    return report(context, "asking how much memory is free", error);
}

/* ---- graphs ---- */

static int capture_begin(void *context)
{
    return report(context, "capturing a graph",
                  cudaStreamBeginCapture(of(context)->stream, cudaStreamCaptureModeThreadLocal));
}

static int capture_end(void *context, void **graph)
{
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t error = cudaStreamEndCapture(of(context)->stream, &recorded);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&ready, recorded, 0);
    if (recorded) (void)cudaGraphDestroy(recorded);
    *graph = ready;
    return report(context, "making a graph", error);
}

static int replay(void *context, void *graph)
{
    return report(context, "running a graph",
                  cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), of(context)->stream));
}

static void graph_free(void *context, void *graph)
{
    (void)context;
    (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

const struct sy_device_table sycuda_device_table = {
    sizeof sycuda_device_table,
    take,
    give_back,
    copy,
    sync,
    memory_info,
    copy_async,
    zero,
    copy_rows,
    capture_begin,
    capture_end,
    replay,
    graph_free,
};
