/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CPU backend share: types and names of kernels, feature bits, small helpers on calls.
 * Reference kernels (ref_*.c) are written over sy_real and are compiled twice: float, and double for tests
 * only. Fast kernels (fast_*.c) are compiled once for each instruction set with SYCPU_ISA = avx2, avx512,
 * avx512_bf16, amx_bf16, amx_emulated or neon. Every op of ops.def but
 * those of the host has a reference kernel; fast_kernels.def lists the fast ones, cpu.c makes one list of all. */
#ifndef SYCPU_CPU_H
#define SYCPU_CPU_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "switchyard/ops.h"
#include "switchyard/switchyard.h"

#ifdef SY_REAL_DOUBLE
typedef double sy_real;
#    define SYCPU_REF(name) sycpu_ref64_##name
#else
typedef float sy_real;
#    define SYCPU_REF(name) sycpu_ref_##name
#endif

/* Feature bits a kernel may need. */
enum sycpu_feature {
    SYCPU_AVX2 = 1,
    SYCPU_AVX512 = 2,
    SYCPU_NEON = 4,
    SYCPU_AVX512_BF16 = 8,
    SYCPU_BLAS = 16, /* a library, not the processor: chosen by name only */
    SYCPU_AMX_BF16 = 32,
    SYCPU_AMX_EMULATED = 64 /* tiles computed in C: chosen by name and option only */
};

/* Bytes of the L1 data cache and of the L2 cache of a core, 0 or less where the system does not tell. SY_TEST_L1_BYTES and
 * SY_TEST_L2_BYTES say them for tests. */
int64_t sycpu_l1_bytes(void);
int64_t sycpu_l2_bytes(void);

/* Functions of a kernel, as struct sy_kernel has them. */
typedef int sycpu_run(void *context, const struct sy_call *call);
typedef uint64_t sycpu_workspace(const struct sy_call *call, int threads);
typedef int sycpu_prepare(void *context, const struct sy_call *call, void **plan);

/* The reference kernels, in float and double, of every op that the host does not run itself. */
#define SY_HOST_OP(...)
#define SY_OP(id, NAME, name, ...)                                                                           \
    sycpu_run sycpu_ref_##name, sycpu_ref64_##name;                                                          \
    sycpu_workspace sycpu_ref_##name##_workspace, sycpu_ref64_##name##_workspace;
#include "switchyard/ops.def"
#undef SY_OP

/* Begins a reference kernel that needs no workspace; one that does defines both functions. */
#define SYCPU_REF_KERNEL(name)                                                                               \
    uint64_t SYCPU_REF(name##_workspace)(const struct sy_call *call, int threads)                            \
    {                                                                                                        \
        (void)call, (void)threads;                                                                           \
        return 0;                                                                                            \
    }                                                                                                        \
    int SYCPU_REF(name)(void *context, const struct sy_call *call)

/* For prepare: *plan is a copy of what was made, in the host's memory; release in cpu.c, which is not given the host, finds
 * it SYCPU_PLAN_HOST bytes before. SY_OK or SY_ENOMEM. */
enum { SYCPU_PLAN_HOST = 64 };
static inline int sycpu_keep(const struct sy_call *call, const void *made, size_t bytes, void **plan)
{
    const struct sy_host *host = call->host;
    char *memory = (char *)host->take(host->arg, SYCPU_PLAN_HOST + bytes);
    if (!memory) {
        host->error(host->arg, "out of memory for the plan of a kernel");
        return SY_ENOMEM;
    }
    memcpy(memory, &host, sizeof(host));
    *plan = memory + SYCPU_PLAN_HOST;
    memcpy(*plan, made, bytes);
    return SY_OK;
}

/* Elements of a tensor, and of its leading dims [0, end). */
static inline int64_t sycpu_extent(const struct sy_tensor *tensor, int end)
{
    int64_t n = 1;
    for (int i = 0; i < end; i++) n *= tensor->dim[i];
    return n;
}
static inline int64_t sycpu_count(const struct sy_tensor *tensor)
{
    return sycpu_extent(tensor, tensor->rank);
}

/* fn(arg, task, thread) for n tasks. */
static inline void sycpu_parallel(const struct sy_call *call, int64_t n, void (*fn)(void *, int64_t, int),
                                  const void *arg)
{
    call->host->parallel_for(call->host->arg, n, fn, (void *)arg);
}

#endif
