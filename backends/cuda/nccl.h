/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend uses of NCCL 2 (2.14 or newer), as its nccl.h has it: the library is found when a run asks for it, so
 * neither a build nor a run without links needs it. Values and sizes are part of the library's binary interface. */
#ifndef SYCUDA_NCCL_H
#define SYCUDA_NCCL_H

#include "backends/cuda/cuda.h"

extern "C" {
typedef struct ncclComm *ncclComm_t;
struct ncclUniqueId {
    char internal[SY_LINK_ID_BYTES];
};
enum ncclResult_t {
    ncclSuccess = 0,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
};
enum ncclDataType_t { ncclUint8 = 1, ncclInt64 = 4, ncclFloat32 = 7, ncclFloat64 = 8 };
enum ncclRedOp_t { ncclSum = 0 };

#define SYCUDA_NCCL_FUNCTIONS(FUNCTION)                                                                      \
    FUNCTION(GetVersion, (int *version))                                                                     \
    FUNCTION(GetUniqueId, (ncclUniqueId * id))                                                               \
    FUNCTION(CommInitRank, (ncclComm_t * comm, int n, ncclUniqueId id, int rank))                            \
    FUNCTION(CommDestroy, (ncclComm_t comm))                                                                 \
    FUNCTION(CommAbort, (ncclComm_t comm))                                                                   \
    FUNCTION(CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                     \
    FUNCTION(GroupStart, ())                                                                                 \
    FUNCTION(GroupEnd, ())                                                                                   \
    FUNCTION(Send, (const void *from, size_t n, ncclDataType_t type, int to, ncclComm_t comm,                \
                    cudaStream_t stream))                                                                    \
    FUNCTION(Recv,                                                                                           \
             (void *to, size_t n, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream))      \
    FUNCTION(AllGather, (const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm,         \
                         cudaStream_t stream))                                                               \
    FUNCTION(AllReduce, (const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,          \
                         ncclComm_t comm, cudaStream_t stream))

#ifndef __CUDACC__
/* Of the emulation, linked. */
#    define FUNCTION(name, parameters) ncclResult_t nccl##name parameters;
SYCUDA_NCCL_FUNCTIONS(FUNCTION)
#    undef FUNCTION
const char *ncclGetErrorString(ncclResult_t error);
#endif
}

#endif
