/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, streams, events and graphs of emulation.h. An allocation ends where an unmapped page begins.
 *
 * SY_EMULATED_CUDA_BYTES: the memory of all devices, SY_EMULATED_CUDA_DEVICES: how many there are,
 * SY_EMULATED_CUDA_DRIVER: the version of the driver, SY_EMULATED_CUDA_PTX: the compute capability that kernels were
 * compiled for, 0: none of the device's, SY_EMULATED_CUDA_LOST: the work on streams after so much of it
 * is not done any more, and every call fails, as of a device that is gone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>
#include <vector>

#include "tests/cuda/emulated_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#    define GUARDED 0 /* AddressSanitizer guards better what malloc gives */
#else
#    define GUARDED 1
#endif

struct emulated_stream;
struct emulated_graph {
    struct launch {
        emulated_shape shape;
        std::function<void()> body;
    };
    std::vector<launch> launches;
    std::vector<emulated_stream *> beside; /* streams that joined the capture */
};
struct emulated_stream {
    emulated_graph *capturing = nullptr;
    int device = 0;
    bool beside = false; /* capturing by an event of another stream, which has not waited for it since */
};
struct emulated_event {
    emulated_graph *capturing = nullptr;
    emulated_stream *stream = nullptr;
};

namespace
{

enum : size_t { PAGE = 4096, LINE = 64 };
enum { MOST_DEVICES = 64 };

struct region {
    unsigned char *map, *memory;
    size_t bytes, mapped;
};
std::vector<region> regions;
size_t used;
int open_count;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
thread_local cudaError_t last = cudaSuccess;
thread_local int device;
std::atomic<long> work;
std::atomic<bool> lost;
std::atomic<bool> waits[MOST_DEVICES];

cudaError_t failed(cudaError_t error)
{
    if (lost) error = cudaErrorLaunchFailure;
    if (error != cudaSuccess) last = error;
    return error;
}

long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

int devices()
{
    static const long n = setting("SY_EMULATED_CUDA_DEVICES", 1);
    return n < MOST_DEVICES ? (int)n : (int)MOST_DEVICES;
}

/* One more piece of work: whether the device is there to do it. */
bool alive()
{
    static const long end = setting("SY_EMULATED_CUDA_LOST", 0);
    if (end && work.fetch_add(1) >= end) lost = true;
    return !lost && !waits[device];
}

bool is_of_device(const void *at)
{
    const unsigned char *byte = static_cast<const unsigned char *>(at);
    bool found = false;
    pthread_mutex_lock(&mutex);
    for (const region &r : regions) found = found || (byte >= r.memory && byte < r.memory + r.bytes);
    pthread_mutex_unlock(&mutex);
    return found;
}

/* Ends the test where CUDA would wait for work that is never done. */
void must_end(const char *call)
{
    if (lost || !waits[device]) return;
    fprintf(stderr, "CUDA emulation: %s waits for ever\n", call);
    abort();
}

/* Bytes of the device, from the environment of a test. */
size_t total_bytes()
{
    const char *text = getenv("SY_EMULATED_CUDA_BYTES");
    return text ? (size_t)strtoull(text, nullptr, 10) : (size_t)4 << 30;
}

void protect(const region &r, int how)
{
    if (GUARDED && mprotect(r.map, r.mapped - PAGE, how)) {
        perror("CUDA emulation: mprotect");
        abort();
    }
}

region take(size_t bytes)
{
    region r = {nullptr, nullptr, bytes, 0};
    size_t lines = (bytes + LINE - 1) / LINE * LINE;
    if (!GUARDED) {
        r.map = r.memory = static_cast<unsigned char *>(aligned_alloc(LINE, lines ? lines : LINE));
        return r;
    }
    r.mapped = (lines + PAGE - 1) / PAGE * PAGE + PAGE;
    void *map = mmap(nullptr, r.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return r;
    r.map = static_cast<unsigned char *>(map);
    r.memory = r.map + (r.mapped - PAGE - lines);
    return r;
}

} // namespace

void emulated_open_memory()
{
    pthread_mutex_lock(&mutex);
    if (open_count++ == 0)
        for (const region &r : regions) protect(r, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&mutex);
}

void emulated_close_memory()
{
    pthread_mutex_lock(&mutex);
    if (--open_count == 0)
        for (const region &r : regions) protect(r, PROT_NONE);
    pthread_mutex_unlock(&mutex);
}

/* ---- device and memory ---- */

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    default: return "invalid argument";
    }
}

cudaError_t cudaGetLastError()
{
    cudaError_t error = lost ? cudaErrorLaunchFailure : last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)setting("SY_EMULATED_CUDA_DRIVER", 13000);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    int driver, runtime;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    *count = devices();
    return failed(driver / 1000 < runtime / 1000 ? cudaErrorInsufficientDriver : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int which)
{
    if (which < 0 || which >= devices()) return failed(cudaErrorInvalidDevice);
    *properties = cudaDeviceProp();
    snprintf(properties->name, sizeof properties->name, "emulated on the CPU");
    properties->major = 9;
    properties->multiProcessorCount = 2;
    properties->totalGlobalMem = total_bytes();
    return cudaSuccess;
}

cudaError_t emulated_attributes(cudaFuncAttributes *attributes)
{
    attributes->ptxVersion = (int)setting("SY_EMULATED_CUDA_PTX", 90);
    return failed(attributes->ptxVersion ? cudaSuccess : cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaSetDevice(int which)
{
    if (which < 0 || which >= devices()) return failed(cudaErrorInvalidDevice);
    device = which;
    return failed(cudaSuccess);
}

int emulated_device()
{
    return device;
}

void emulated_lose()
{
    lost = true;
}

bool emulated_is_lost()
{
    return lost;
}

void emulated_hang(int which, bool now)
{
    waits[which] = now;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    pthread_mutex_lock(&mutex);
    *total = total_bytes();
    *free_bytes = used < *total ? *total - used : 0;
    pthread_mutex_unlock(&mutex);
    return failed(cudaSuccess);
}

cudaError_t emulated_malloc(void **memory, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    region r = {nullptr, nullptr, bytes, 0};
    if (used + bytes <= total_bytes()) r = take(bytes);
    if (r.memory) {
        regions.push_back(r);
        used += bytes;
        if (open_count) protect(r, PROT_READ | PROT_WRITE);
    }
    pthread_mutex_unlock(&mutex);
    *memory = r.memory;
    return failed(r.memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *memory)
{
    cudaError_t error = memory ? cudaErrorInvalidValue : cudaSuccess;
    must_end("cudaFree");
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < regions.size(); i++) {
        if (regions[i].memory != memory) continue;
        if (GUARDED)
            munmap(regions[i].map, regions[i].mapped);
        else
            free(regions[i].map);
        used -= regions[i].bytes;
        regions.erase(regions.begin() + (ptrdiff_t)i);
        error = cudaSuccess;
        break;
    }
    pthread_mutex_unlock(&mutex);
    return failed(error);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    *memory = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    return failed(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

/* ---- streams ---- */

static bool in_beside(cudaStream_t stream)
{
    for (emulated_stream *other : stream->capturing->beside)
        if (other == stream) return true;
    return false;
}

void emulated_launch(const emulated_shape &shape, cudaStream_t stream, std::function<void()> body)
{
    if (shape.blocks == 0 || (shape.threads == 0 && !shape.free)) {
        failed(cudaErrorInvalidValue);
        return;
    }
    if (stream->device != device) failed(cudaErrorInvalidResourceHandle);
    if (stream->device != device || !alive()) return;
    if (stream->capturing && in_beside(stream)) stream->beside = true;
    if (stream->capturing)
        stream->capturing->launches.push_back({shape, body});
    else
        emulated_run(shape, body);
}

/* Work of one call. */
static cudaError_t once(cudaStream_t stream, std::function<void()> body)
{
    emulated_launch({1, 0, 0, true}, stream, body);
    return stream->device == device ? failed(cudaSuccess) : last;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    if (!is_of_device(to) || !is_of_device(from)) must_end("cudaMemcpyAsync");
    return once(stream, [=] { memmove(to, from, bytes); });
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch) return failed(cudaErrorInvalidValue);
    if (to_pitch > INT32_MAX || from_pitch > INT32_MAX) return failed(cudaErrorInvalidPitchValue);
    return once(stream, [=] {
        for (size_t i = 0; i < height; i++)
            memmove(static_cast<char *>(to) + i * to_pitch, static_cast<const char *>(from) + i * from_pitch,
                    width);
    });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return once(stream, [=] { memset(to, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new emulated_stream();
    (*stream)->device = device;
    return failed(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    must_end("cudaStreamSynchronize");
    return failed(stream->capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return !lost && waits[stream->device] ? cudaErrorNotReady : cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return cudaSuccess;
}

/* ---- events: work is done when it is launched, so they order nothing but captures ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new emulated_event();
    return failed(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->capturing = stream->capturing;
    event->stream = stream;
    return failed(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    if (!event->capturing) return failed(stream->capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    if (stream->capturing && stream->capturing != event->capturing) return failed(cudaErrorInvalidValue);
    if (stream->capturing) {
        event->stream->beside = false;
        return failed(cudaSuccess);
    }
    stream->capturing = event->capturing;
    stream->beside = true;
    stream->capturing->beside.push_back(stream);
    return failed(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    if (stream->capturing) return failed(cudaErrorStreamCaptureUnsupported);
    stream->capturing = new emulated_graph();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    bool joined = true;
    *graph = stream->capturing;
    stream->capturing = nullptr;
    if (!*graph) return failed(cudaErrorInvalidValue);
    for (emulated_stream *other : (*graph)->beside) {
        joined = joined && !other->beside;
        other->capturing = nullptr;
        other->beside = false;
    }
    return failed(joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (stream->capturing) return failed(cudaErrorStreamCaptureUnsupported);
    if (stream->device != device) return failed(cudaErrorInvalidResourceHandle);
    for (const emulated_graph::launch &launch : exec->launches)
        if (alive()) emulated_run(launch.shape, launch.body);
    return failed(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
