/* SPDX-License-Identifier: Apache-2.0 */
/* Opens cuBLASLt. */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>

#include "backends/cuda/cublaslt.h"
#include "backends/cuda/product.h"

#ifdef __CUDACC__
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

/* NULL: all functions are there; else what is missing. */
static const char *find_functions(struct sycuda_cublaslt *lt)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !lt->library; i++)
        lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lt->library) return dlerror();
#    define FUNCTION(name)                                                                                   \
        lt->name = reinterpret_cast<decltype(lt->name)>(dlsym(lt->library, "cublasLt" #name));               \
        if (!lt->name) return "it lacks cublasLt" #name;
    SYCUDA_CUBLASLT_FUNCTIONS(FUNCTION)
#    undef FUNCTION
    return nullptr;
}
#else
static const char *find_functions(struct sycuda_cublaslt *lt)
{
#    define FUNCTION(name) lt->name = cublasLt##name;
    SYCUDA_CUBLASLT_FUNCTIONS(FUNCTION)
#    undef FUNCTION
    return nullptr;
}
#endif

int sycuda_cublaslt_open(const struct sy_host *host, int tf32, struct sycuda_cublaslt **library)
{
    struct sycuda_cublaslt *lt = static_cast<sycuda_cublaslt *>(calloc(1, sizeof *lt));
    if (!lt) {
        host->error(host->arg, "out of memory for cuBLASLt");
        return SY_ENOMEM;
    }
    char line[512];
    int status = SY_OK;
    lt->tf32 = tf32;
    const char *why = find_functions(lt);
    if (why) {
        snprintf(
            line, sizeof line,
            "cuBLASLt cannot be used (%s); install libcublasLt.so.13 or .12 where the linker looks, or open the "
            "backend with products = own",
            why);
        status = SY_EUNSUPPORTED;
    } else {
        cublasStatus_t error = lt->Create(&lt->handle);
        if (error != CUBLAS_STATUS_SUCCESS) {
            snprintf(line, sizeof line, "cuBLASLt cannot be opened: %s", lt->GetStatusString(error));
            status = SY_EBACKEND;
        }
    }
    if (status) {
        host->error(host->arg, line);
        sycuda_cublaslt_close(lt);
        return status;
    }
    *library = lt;
    return SY_OK;
}

void sycuda_cublaslt_close(struct sycuda_cublaslt *lt)
{
    if (!lt) return;
    if (lt->handle) (void)lt->Destroy(lt->handle);
    if (lt->library) (void)dlclose(lt->library);
    free(lt);
}
