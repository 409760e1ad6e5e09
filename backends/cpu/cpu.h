/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CPU backend share: names of kernels by variant, feature bits, small helpers on calls.
 * Reference kernels (ref_*.c) are written over sy_real and are compiled twice: float, and double for tests
 * only. Fast kernels (fast_*.c) are compiled once for each instruction set with SYCPU_ISA = avx2, avx512 or
 * neon. Which op has what stands in kernels_*.def; cpu.c makes the list from it. */
#ifndef SYCPU_CPU_H
#define SYCPU_CPU_H

#include <stdint.h>
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

#ifdef SYCPU_ISA
#    define SYCPU_JOIN2(isa, name) sycpu_##isa##_##name
#    define SYCPU_JOIN(isa, name)  SYCPU_JOIN2(isa, name)
#    define SYCPU_FAST(name)       SYCPU_JOIN(SYCPU_ISA, name) /* sycpu_avx2_matmul ... */
#endif

/* Feature bits a kernel may need. */
enum sycpu_feature {
    SYCPU_AVX2 = 1,
    SYCPU_AVX512 = 2,
    SYCPU_NEON = 4,
    SYCPU_AVX512_BF16 = 8,
    SYCPU_BLAS = 16 /* a library, not the processor: chosen by name only */
};

/* Declarations of every kernel: int sycpu_ref_X(void *, const struct sy_call *), sycpu_ref64_X, sycpu_avx2_X,
 * ... and the workspace functions sycpu_*_X_workspace(const struct sy_call *, int threads). A kernel without
 * workspace has none. Rows: SYCPU_KERNEL(NAME, name, reference workspace 0/1, fast, fast workspace 0/1).
 * fast: 0 there is none; 1; ROWS and a function for rows of a call, sycpu_avx2_X_rows, ...; TELLS its
 * rows_done.
 */
#define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                        \
    int sycpu_ref_##name(void *, const struct sy_call *);                                                    \
    int sycpu_ref64_##name(void *, const struct sy_call *);                                                  \
    int sycpu_avx2_##name(void *, const struct sy_call *);                                                   \
    int sycpu_avx512_##name(void *, const struct sy_call *);                                                 \
    int sycpu_neon_##name(void *, const struct sy_call *);                                                   \
    void sycpu_avx2_##name##_rows(void *, const struct sy_call *, int64_t, int64_t);                         \
    void sycpu_avx512_##name##_rows(void *, const struct sy_call *, int64_t, int64_t);                       \
    void sycpu_neon_##name##_rows(void *, const struct sy_call *, int64_t, int64_t);                         \
    uint64_t sycpu_ref_##name##_workspace(const struct sy_call *, int);                                      \
    uint64_t sycpu_ref64_##name##_workspace(const struct sy_call *, int);                                    \
    uint64_t sycpu_avx2_##name##_workspace(const struct sy_call *, int);                                     \
    uint64_t sycpu_avx512_##name##_workspace(const struct sy_call *, int);                                   \
    uint64_t sycpu_neon_##name##_workspace(const struct sy_call *, int);
#include "backends/cpu/kernels.def"
#undef SYCPU_KERNEL

#define SYCPU_NATIVE(NAME, name, in, out, fast, workspace)                                                   \
    int sycpu_avx512_bf16_##name(void *, const struct sy_call *);                                            \
    uint64_t sycpu_avx512_bf16_##name##_workspace(const struct sy_call *, int);
#include "backends/cpu/kernels_bf16.def"
#undef SYCPU_NATIVE

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

static inline void sycpu_parallel(const struct sy_call *call, int64_t n, void (*fn)(void *, int64_t, int),
                                  void *arg)
{
    call->host->parallel_for(call->host->arg, n, fn, arg);
}

#endif
