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

/* The same elements as bfloat16 and as float32. */
struct sycpu_conversion {
    uint16_t *half;
    float *full;
};
/* Elements begin .. begin + n - 1, into the other form. */
typedef void sycpu_convert(const struct sycpu_conversion *c, int64_t begin, int64_t n);
/* By vectors of an instruction set (fast_convert.c). */
sycpu_convert sycpu_avx512_fast_widen, sycpu_avx512_fast_narrow, sycpu_avx2_fast_widen,
    sycpu_avx2_fast_narrow, sycpu_neon_fast_widen, sycpu_neon_fast_narrow;

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
