/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend: its descriptor, the list of kernels made from kernels.def, and the choice of the device at open. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/product.h"

/* Whether it is the device that has failed, not the call. */
static int is_of_device(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown: return 1;
    default: return 0;
    }
}

int sycuda_fail(const struct sy_host *host, const char *what, cudaError_t error)
{
    char line[400];
    snprintf(line, sizeof line, "%s: CUDA reports \"%s\" (%d)%s", what, cudaGetErrorString(error), (int)error,
             is_of_device(error)
                 ? "; if the device does not answer any more, `nvidia-smi` and the kernel's log "
                   "say why, and --resume goes on from the newest checkpoint"
                 : "");
    host->error(host->arg, line);
    (void)cudaGetLastError(); /* it is told: the next launch would report it once more as its own */
    return error == cudaErrorMemoryAllocation ? SY_ENOMEM : SY_EBACKEND;
}

/* ---- kernels ---- */

/* clang-format off */
#define ENTRY(NAME, in, out, workspace, prepare, release, run)                                               \
    {SY_OP_##NAME, in, out, 0, "cuda", workspace, prepare, release, run},
#define ENTRIES(NAME, ...)                                                                                   \
    ENTRY(NAME, SY_F32, SY_F32, __VA_ARGS__)                                                                 \
    ENTRY(NAME, SY_BF16, SY_BF16, __VA_ARGS__)                                                               \
    ENTRY(NAME, SY_BF16, SY_F32, __VA_ARGS__)                                                                \
    ENTRY(NAME, SY_F32, SY_BF16, __VA_ARGS__)
#define SYCUDA_KERNEL(NAME, name) ENTRIES(NAME, NULL, NULL, NULL, sycuda_##name)
#define SYCUDA_SCRATCH(NAME, name) ENTRIES(NAME, sycuda_##name##_workspace, NULL, NULL, sycuda_##name)
#define SYCUDA_PLANNED(NAME, name)                                                                           \
    ENTRIES(NAME, sycuda_##name##_workspace, sycuda_##name##_prepare, sycuda_##name##_release, sycuda_##name)
#define SYCUDA_PRODUCT(NAME, name) SYCUDA_PLANNED(NAME, name)
static const struct sy_kernel kernels[] = {
#include "backends/cuda/kernels.def"
};
/* clang-format on */

/* ---- the device ---- */

/* Why no device can be used here; NULL: one can. */
static const char *missing(int *devices, char *text, size_t bytes)
{
    int driver = 0, runtime = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess && driver == 0) return "no NVIDIA driver is loaded (libcuda.so.1 was not found)";
    if (error == cudaSuccess) error = cudaRuntimeGetVersion(&runtime);
    if (error == cudaSuccess && driver / 1000 < runtime / 1000) {
        snprintf(
            text, bytes,
            "the NVIDIA driver is one of CUDA %d.%d, and the backend was built for CUDA %d: install a newer driver, "
            "or build with an older CUDA (NVCC=)",
            driver / 1000, driver % 1000 / 10, runtime / 1000);
        return text;
    }
    if (error == cudaSuccess) error = cudaGetDeviceCount(devices);
    (void)cudaGetLastError();
    if (error != cudaSuccess) return cudaGetErrorString(error);
    return *devices > 0 ? NULL : "the driver shows no device";
}

/* Stands for all kernels: they are compiled for the same devices. */
__global__ void any_kernel() {}

/* Whether this failure to look at a kernel is that it was not compiled for the device, which is then said. */
static int lacks_code(cudaError_t error, int device, const cudaDeviceProp *properties, char *text,
                      size_t bytes)
{
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
        error != cudaErrorUnsupportedPtxVersion)
        return 0;
    snprintf(
        text, bytes,
        "device %d (%.80s) has compute capability %d.%d, for which the plugin has no kernels: configure with "
        "NVCC_ARCHITECTURES=%d%d (CUDA reports \"%s\")",
        device, properties->name, properties->major, properties->minor, properties->major, properties->minor,
        cudaGetErrorString(error));
    (void)cudaGetLastError();
    return 1;
}

static int probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    int devices = 0;
    char line[200];
    const char *why = missing(&devices, line, sizeof line);
    cudaDeviceProp properties;
    cudaFuncAttributes code;
    (void)host;
    *score = 0;
    if (why) {
        snprintf(text, text_bytes, "%s", why);
    } else if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
        snprintf(text, text_bytes, "device 0 cannot be asked what it is");
    } else if (cudaSetDevice(0) != cudaSuccess) {
        snprintf(text, text_bytes, "device 0, %s, cannot be used", properties.name);
    } else if (!lacks_code(cudaFuncGetAttributes(&code, any_kernel), 0, &properties, text, text_bytes)) {
        *score = 20;
        snprintf(text, text_bytes, "%d device%s, the first %s", devices, devices == 1 ? "" : "s",
                 properties.name);
    }
    return SY_OK;
}

/* What options say. */
struct choice {
    int device;
    int own, tf32; /* products: by the own kernels; float32 ones may round to TF32 */
    int nccl;      /* collectives */
};

static int bad_option(const struct sy_host *host, const struct sy_backend_option *option, int devices)
{
    char line[256];
    if (strcmp(option->key, "device") == 0)
        snprintf(line, sizeof line, "device %.40s: the devices here are 0 to %d", option->value, devices - 1);
    else if (strcmp(option->key, "products") == 0)
        snprintf(line, sizeof line, "products %.40s: there are cublaslt and own", option->value);
    else if (strcmp(option->key, "tf32") == 0)
        snprintf(line, sizeof line, "tf32 %.40s: it is true or false", option->value);
    else if (strcmp(option->key, "collectives") == 0)
        snprintf(line, sizeof line, "collectives %.40s: there are staged and nccl", option->value);
    else
        snprintf(line, sizeof line,
                 "unknown option \"%.80s\": there are device, local_rank, products, tf32 and "
                 "collectives",
                 option->key);
    host->error(host->arg, line);
    return SY_EINVAL;
}

/* 1: the value is one of both words, and *which is set. */
static int is_word(const char *value, const char *no, const char *yes, int *which)
{
    *which = strcmp(value, yes) == 0;
    return *which || strcmp(value, no) == 0;
}

/* The device is that of the index, or the ranks of a host take them in turns. */
static int choose(const struct sy_host *host, const struct sy_backend_option *option, int devices,
                  struct choice *choice)
{
    *choice = {0, 0, 0, 0};
    for (; option->key; option++) {
        char *end;
        long number = strtol(option->value, &end, 10);
        int whole = end != option->value && !*end && number >= 0, right = 0;
        if (whole && strcmp(option->key, "local_rank") == 0)
            choice->device = (int)(number % devices), right = 1;
        else if (whole && number < devices && strcmp(option->key, "device") == 0)
            choice->device = (int)number, right = 1;
        else if (strcmp(option->key, "products") == 0)
            right = is_word(option->value, "cublaslt", "own", &choice->own);
        else if (strcmp(option->key, "tf32") == 0)
            right = is_word(option->value, "false", "true", &choice->tf32);
        else if (strcmp(option->key, "collectives") == 0)
            right = is_word(option->value, "staged", "nccl", &choice->nccl);
        if (!right) return bad_option(host, option, devices);
    }
    if (!choice->own || !choice->tf32) return SY_OK;
    host->error(host->arg, "tf32 = true needs products = cublaslt: the own kernels have no TF32");
    return SY_EINVAL;
}

static void close(void *opened)
{
    struct sycuda_context *context = static_cast<struct sycuda_context *>(opened);
    if (!context) return;
    sycuda_cublaslt_close(context->cublaslt);
    sycuda_nccl_close(context);
    if (context->stream) (void)cudaStreamDestroy(context->stream);
    free(context);
}

/* Whether the plugin's kernels run on this device, and as what they were compiled. */
static int find_code(struct sycuda_context *context, const cudaDeviceProp *properties)
{
    char line[400];
    cudaFuncAttributes code;
    cudaError_t error = cudaFuncGetAttributes(&code, any_kernel);
    if (error == cudaSuccess) {
        context->tensor_cores = properties->major >= 8 && code.ptxVersion >= 80;
        return SY_OK;
    }
    if (!lacks_code(error, context->device, properties, line, sizeof line))
        return sycuda_fail(context->host, "opening the device", error);
    context->host->error(context->host->arg, line);
    return SY_EUNSUPPORTED;
}

static int start(struct sycuda_context *context, char *description, size_t bytes)
{
    cudaDeviceProp properties;
    cudaError_t error = cudaSetDevice(context->device);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, context->device);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&context->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return sycuda_fail(context->host, "opening the device", error);
    context->multiprocessors = properties.multiProcessorCount;
    snprintf(description, bytes, "%s, compute capability %d.%d, device %d", properties.name, properties.major,
             properties.minor, context->device);
    return find_code(context, &properties);
}

static int open(const struct sy_host *host, const struct sy_backend_option *options, void **opened,
                uint32_t *features, char *description, size_t description_bytes)
{
    int devices = 0;
    struct choice choice;
    char line[200];
    const char *why = missing(&devices, line, sizeof line);
    if (why) {
        host->error(host->arg, why);
        return SY_EUNSUPPORTED;
    }
    int status = choose(host, options, devices, &choice);
    if (status) return status;
    struct sycuda_context *context = static_cast<struct sycuda_context *>(calloc(1, sizeof *context));
    if (!context) {
        host->error(host->arg, "out of memory for the context of a device");
        return SY_ENOMEM;
    }
    context->host = host;
    context->device = choice.device;
    status = start(context, description, description_bytes);
    if (!status && !choice.own) status = sycuda_cublaslt_open(host, choice.tf32, &context->cublaslt);
    if (!status && choice.nccl) status = sycuda_nccl_open(context);
    if (status) {
        close(context);
        return status;
    }
    *opened = context;
    *features = 0;
    return SY_OK;
}

/* ---- descriptor ---- */

/* clang-format off */
#ifdef __CUDACC__
#    define TEXT(x)    #x
#    define TEXT_OF(x) TEXT(x)
#    define BUILD      "nvcc " TEXT_OF(__CUDACC_VER_MAJOR__) "." TEXT_OF(__CUDACC_VER_MINOR__)
#else
#    define BUILD "emulation on the CPU, " __VERSION__
#endif
/* clang-format on */

static sy_backend_desc describe()
{
    sy_backend_desc d = {};
    d.magic = SY_ABI_MAGIC;
    d.abi_major = SY_ABI_MAJOR;
    d.abi_minor = SY_ABI_MINOR;
    d.min_host_minor = SY_ABI_MINOR;
    d.desc_bytes = sizeof d;
    d.layout = SY_ABI_LAYOUT;
    d.caps = SY_CAP_KERNELS | SY_CAP_DEVICE;
    d.name = "cuda";
    d.version = PACKAGE_VERSION;
    d.build = BUILD;
    d.probe = probe;
    d.open = open;
    d.close = close;
    d.device = &sycuda_device_table;
    d.kernels = kernels;
    d.n_kernels = sizeof kernels / sizeof kernels[0];
    d.links = &sycuda_link_table;
    return d;
}

/* Made when the plugin is loaded: C++17 has no designated initializers. */
extern "C" {
SY_API extern const struct sy_backend_desc sy_backend_cuda;
const struct sy_backend_desc sy_backend_cuda = describe();
}
