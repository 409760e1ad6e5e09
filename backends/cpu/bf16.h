/* SPDX-License-Identifier: Apache-2.0 */
/* Any op on bf16 operands: a float32 kernel between conversions. What it computes is the meaning of bf16 for
 * every op: operands are widened, results rounded to nearest. One pair of functions for each set of features,
 * because a workspace is asked for without a context. */
#ifndef SYCPU_BF16_H
#define SYCPU_BF16_H

#include "backends/cpu/cpu.h"
#include "base/base.h"

/* The first float32 kernel of the op that these features allow (cpu.c). */
const struct sy_kernel *sycpu_find_float(int op, uint32_t features);
/* What the processor has and this build has kernels for: enum sycpu_feature without SYCPU_BLAS (cpu.c). */
uint32_t sycpu_detect(void);

#define SYCPU_CONVERTED(name)                                                                                \
    sycpu_workspace sycpu_converted_##name##_workspace;                                                      \
    sycpu_prepare sycpu_converted_##name##_prepare;                                                          \
    sycpu_run sycpu_converted_##name;
SYCPU_CONVERTED(avx512)
SYCPU_CONVERTED(avx2)
SYCPU_CONVERTED(neon)
SYCPU_CONVERTED(portable)
#undef SYCPU_CONVERTED

#endif
