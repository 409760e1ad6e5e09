/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLASLt that products use, found in the library when the backend is opened, so that the plugin loads
 * where there is none. */
#ifndef SYCUDA_CUBLASLT_H
#define SYCUDA_CUBLASLT_H

#include "backends/cuda/cuda.h"

#ifdef __CUDACC__
#    include <cublasLt.h>
#else
#    include "tests/cuda/cublaslt.h"
#endif

#define SYCUDA_CUBLASLT_FUNCTIONS(FUNCTION)                                                                  \
    FUNCTION(Create)                                                                                         \
    FUNCTION(Destroy)                                                                                        \
    FUNCTION(GetStatusString)                                                                                \
    FUNCTION(Matmul)                                                                                         \
    FUNCTION(MatmulAlgoCheck)                                                                                \
    FUNCTION(MatmulAlgoConfigGetAttribute)                                                                   \
    FUNCTION(MatmulAlgoGetHeuristic)                                                                         \
    FUNCTION(MatmulDescCreate)                                                                               \
    FUNCTION(MatmulDescDestroy)                                                                              \
    FUNCTION(MatmulDescSetAttribute)                                                                         \
    FUNCTION(MatmulPreferenceCreate)                                                                         \
    FUNCTION(MatmulPreferenceDestroy)                                                                        \
    FUNCTION(MatmulPreferenceSetAttribute)                                                                   \
    FUNCTION(MatrixLayoutCreate)                                                                             \
    FUNCTION(MatrixLayoutDestroy)                                                                            \
    FUNCTION(MatrixLayoutSetAttribute)

struct sycuda_cublaslt {
    void *library; /* of dlopen */
    cublasLtHandle_t handle;
    int tf32; /* float32 products may round their operands to TF32 */
#define FUNCTION(name) decltype(&cublasLt##name) name;
    SYCUDA_CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

#endif
