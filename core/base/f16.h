/* SPDX-License-Identifier: Apache-2.0 */
/* float16 (IEEE 754 binary16), held in a uint16_t, as files of other programs have it. */
#ifndef SYI_F16_H
#define SYI_F16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Exact: every float16 is a float32. A NaN keeps its payload. */
static inline float syi_f16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023, bits;
    float value;
    if (!exponent) { /* zero and subnormals: fraction x 2^-24 */
        value = ldexpf((float)fraction, -24);
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
