/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16: the upper half of a float32, held in a uint16_t. Rounding is to nearest, ties to even; a NaN
 * stays one. Vector forms: backends/cpu/simd.h. */
#ifndef SYI_BF16_H
#define SYI_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/inline.h"

SYI_INLINE float syi_bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

SYI_INLINE uint16_t syi_bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* quiet */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* n bfloat16 in the second half of the place of n floats become these floats. */
SYI_INLINE void syi_bf16_widen(float *place, size_t n)
{
    const char *half = (const char *)place + n * sizeof(uint16_t);
    for (size_t i = 0; i < n; i++) {
        uint16_t value;
        memcpy(&value, half + i * sizeof value, sizeof value);
        place[i] = syi_bf16_to_float(value);
    }
}

/* n floats become n bfloat16 in the first half of their place. */
SYI_INLINE void syi_bf16_narrow(float *place, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half = syi_bf16_from_float(place[i]);
        memcpy((char *)place + i * sizeof half, &half, sizeof half);
    }
}

#endif
