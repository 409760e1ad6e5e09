/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, tanh, sin, cos, the activations of the ops and normal numbers, as fixed sequences of IEEE
 * operations: the same bits on every processor, in scalar and in vector form. The formulas stand in
 * fmath_body.h; backends/cpu/simd.h instantiates them for vectors.
 *
 * Errors in float against the true value (tests/unit/test_fmath.c): exp and log 1.1 ulp, tanh 2.5 ulp, sin
 * and cos (of parts of a turn) 2 ulp, relu exact, silu 3e-7 relative, gelu 1e-6 relative for |x| < 3 and 2e-5
 * in its far tail (below 1e-30), their derivatives 3e-6 absolute, normal numbers 1e-6 + 2^-24 / radius
 * absolute. Overflow gives inf, underflow denormals, then 0; NaN gives NaN (the derivative of relu: 0).
 *
 * syi_f32_X are the float forms, syi_f64_X the double forms (libm; for the double build of the reference
 * kernels). The names syi_exp, syi_log, syi_tanh, syi_fma, syi_sqrt, syi_activation, syi_activation_grad are
 * one of them: that of sy_real (SY_REAL_DOUBLE). */
#ifndef SYI_FMATH_H
#define SYI_FMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/inline.h"

/* ---- float ---- */

SYI_INLINE float syi_f32_set(float s)
{
    return s;
}
SYI_INLINE float syi_f32_add(float a, float b)
{
    return a + b;
}
SYI_INLINE float syi_f32_sub(float a, float b)
{
    return a - b;
}
SYI_INLINE float syi_f32_mul(float a, float b)
{
    return a * b;
}
SYI_INLINE float syi_f32_div(float a, float b)
{
    return a / b;
}
SYI_INLINE float syi_f32_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
SYI_INLINE float syi_f32_sqrt(float a)
{
    return sqrtf(a);
}
SYI_INLINE float syi_f32_min(float a, float b)
{
    return a < b ? a : b;
}
SYI_INLINE float syi_f32_max(float a, float b)
{
    return a > b ? a : b;
}
SYI_INLINE int syi_f32_less(float a, float b)
{
    return a < b;
}
SYI_INLINE float syi_f32_select(int mask, float a, float b)
{
    return mask ? a : b;
}
SYI_INLINE int32_t syi_f32_bits(float f)
{
    int32_t i;
    memcpy(&i, &f, sizeof i);
    return i;
}
SYI_INLINE float syi_f32_real(int32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}
SYI_INLINE float syi_f32_convert(int32_t i)
{
    return (float)i;
}
SYI_INLINE int32_t syi_f32_iset(int32_t i)
{
    return i;
}
/* Integers wrap around: NaN gives any value here, which a NaN factor then hides. */
SYI_INLINE int32_t syi_f32_iadd(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
SYI_INLINE int32_t syi_f32_isub(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}
SYI_INLINE int32_t syi_f32_iand(int32_t a, int32_t b)
{
    return a & b;
}
SYI_INLINE int32_t syi_f32_ior(int32_t a, int32_t b)
{
    return a | b;
}
SYI_INLINE int32_t syi_f32_ishl(int32_t a, int count)
{
    return (int32_t)((uint32_t)a << count);
}
SYI_INLINE int32_t syi_f32_isra(int32_t a, int count)
{
    return a >> count;
}

#define FM(op) syi_f32_##op
#define FM_F   float
#define FM_S   float
#define FM_I   int32_t
#include "base/fmath_body.h"
#undef FM
#undef FM_F
#undef FM_S
#undef FM_I

/* ---- double ---- */

SYI_INLINE double syi_f64_set(double s)
{
    return s;
}
SYI_INLINE double syi_f64_add(double a, double b)
{
    return a + b;
}
SYI_INLINE double syi_f64_sub(double a, double b)
{
    return a - b;
}
SYI_INLINE double syi_f64_mul(double a, double b)
{
    return a * b;
}
SYI_INLINE double syi_f64_div(double a, double b)
{
    return a / b;
}
SYI_INLINE double syi_f64_fma(double a, double b, double c)
{
    return fma(a, b, c);
}
SYI_INLINE double syi_f64_sqrt(double a)
{
    return sqrt(a);
}
SYI_INLINE double syi_f64_min(double a, double b)
{
    return a < b ? a : b;
}
SYI_INLINE double syi_f64_max(double a, double b)
{
    return a > b ? a : b;
}
SYI_INLINE int syi_f64_less(double a, double b)
{
    return a < b;
}
SYI_INLINE double syi_f64_select(int mask, double a, double b)
{
    return mask ? a : b;
}
SYI_INLINE double syi_f64_exp(double x)
{
    return exp(x);
}
SYI_INLINE double syi_f64_log(double x)
{
    return log(x);
}
SYI_INLINE double syi_f64_tanh(double x)
{
    return tanh(x);
}

#define FM(op) syi_f64_##op
#define FM_F   double
#define FM_S   double
#define FM_LIBM
#include "base/fmath_body.h"
#undef FM
#undef FM_F
#undef FM_S
#undef FM_LIBM

/* ---- sy_real ---- */

#ifdef SY_REAL_DOUBLE
#    define syi_exp             syi_f64_exp
#    define syi_log             syi_f64_log
#    define syi_tanh            syi_f64_tanh
#    define syi_fma             syi_f64_fma
#    define syi_sqrt            syi_f64_sqrt
#    define syi_activation      syi_f64_activation
#    define syi_activation_grad syi_f64_activation_grad
#    define syi_activation_both syi_f64_activation_both
#else
#    define syi_exp             syi_f32_exp
#    define syi_log             syi_f32_log
#    define syi_tanh            syi_f32_tanh
#    define syi_fma             syi_f32_fma
#    define syi_sqrt            syi_f32_sqrt
#    define syi_activation      syi_f32_activation
#    define syi_activation_grad syi_f32_activation_grad
#    define syi_activation_both syi_f32_activation_both
#endif

#endif
