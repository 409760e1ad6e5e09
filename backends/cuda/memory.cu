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

static int sync(void *context)
{
    return report(context, "waiting for the device", cudaStreamSynchronize(of(context)->stream));
}

static int copy(void *context, void *to, const void *from, uint64_t bytes)
{
    cudaError_t error = cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, of(context)->stream);
    return error == cudaSuccess ? sync(context) : report(context, "copying", error);
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

const struct sy_device_table sycuda_device_table = {
    sizeof sycuda_device_table, take, give_back, copy, sync, memory_info};
