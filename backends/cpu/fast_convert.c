/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16 to float32 and back, for float32 kernels between conversions (bf16.c). */
#include "config.h"

#include "backends/cpu/bf16.h"
#include "backends/cpu/fast.h"

void fast_widen(const struct sycpu_conversion *c, int64_t begin, int64_t n)
{
#define BODY(i, count) fast_put(c->full, 0, begin + i, fast_get(c->half, 1, begin + i, count), count)
    FAST_COLUMNS(i, n, BODY);
#undef BODY
}

void fast_narrow(const struct sycpu_conversion *c, int64_t begin, int64_t n)
{
#define BODY(i, count) fast_put(c->half, 1, begin + i, fast_get(c->full, 0, begin + i, count), count)
    FAST_COLUMNS(i, n, BODY);
#undef BODY
}
