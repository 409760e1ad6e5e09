/* SPDX-License-Identifier: Apache-2.0 */
/* Four vectors of 16 floats whose operations alternate, vw, and the formulas of fmath.h for them. A formula of one vector is a
 * chain of operations that wait for each other, and a processor looks ahead for no more than a few of the next ones. With
 * vectors of 512 bits; narrower ones are of several registers each (simd.h), whose operations alternate already. */
#ifndef SYCPU_SIMD_WIDE_H
#define SYCPU_SIMD_WIDE_H

#include "backends/cpu/fast.h"
#include "backends/cpu/simd.h"

typedef struct {
    vf a, b, c, d;
} vw;
typedef struct {
    vi a, b, c, d;
} vwi;
typedef struct {
    vm a, b, c, d;
} vwm;

#define VW_LANES (4 * SYCPU_LANES)

#define VW_1(type, op, x)    ((type){op((x).a), op((x).b), op((x).c), op((x).d)})
#define VW_2(type, op, x, y) ((type){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)})
#define VW_3(type, op, x, y, z)                                                                              \
    ((type){op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b), op((x).c, (y).c, (z).c),                       \
            op((x).d, (y).d, (z).d)})

/* clang-format off */
static inline vw vw_set(float s)                     { const vf v = vf_set(s); return (vw){v, v, v, v}; }
static inline vw vw_add(vw x, vw y)                  { return VW_2(vw, vf_add, x, y); }
static inline vw vw_sub(vw x, vw y)                  { return VW_2(vw, vf_sub, x, y); }
static inline vw vw_mul(vw x, vw y)                  { return VW_2(vw, vf_mul, x, y); }
static inline vw vw_div(vw x, vw y)                  { return VW_2(vw, vf_div, x, y); }
static inline vw vw_sqrt(vw x)                       { return VW_1(vw, vf_sqrt, x); }
static inline vw vw_fma(vw x, vw y, vw z)            { return VW_3(vw, vf_fma, x, y, z); }
static inline vw vw_min(vw x, vw y)                  { return VW_2(vw, vf_min, x, y); }
static inline vw vw_max(vw x, vw y)                  { return VW_2(vw, vf_max, x, y); }
static inline vwm vw_less(vw x, vw y)                { return VW_2(vwm, vf_less, x, y); }
static inline vw vw_select(vwm m, vw x, vw y)        { return VW_3(vw, vf_select, m, x, y); }
static inline vw vw_scale(vw x, vw n)                { return VW_2(vw, vf_scale, x, n); }
static inline vw vw_drop(vw x, vw mask)              { return VW_2(vw, vf_drop, x, mask); }
static inline vwi vw_bits(vw x)                      { return VW_1(vwi, vf_bits, x); }
static inline vw vw_real(vwi x)                      { return VW_1(vw, vf_real, x); }
static inline vw vw_convert(vwi x)                   { return VW_1(vw, vf_convert, x); }
static inline vwi vw_iset(int32_t s)                 { const vi v = vf_iset(s); return (vwi){v, v, v, v}; }
static inline vwi vw_iadd(vwi x, vwi y)              { return VW_2(vwi, vf_iadd, x, y); }
static inline vwi vw_isub(vwi x, vwi y)              { return VW_2(vwi, vf_isub, x, y); }
static inline vwi vw_iand(vwi x, vwi y)              { return VW_2(vwi, vf_iand, x, y); }
static inline vwi vw_ior(vwi x, vwi y)               { return VW_2(vwi, vf_ior, x, y); }
/* clang-format on */
#define vw_ishl(x, count)                                                                                    \
    ((vwi){vf_ishl((x).a, count), vf_ishl((x).b, count), vf_ishl((x).c, count), vf_ishl((x).d, count)})
#define vw_isra(x, count)                                                                                    \
    ((vwi){vf_isra((x).a, count), vf_isra((x).b, count), vf_isra((x).c, count), vf_isra((x).d, count)})

/* Values of four vectors are passed in registers only where calls are inlined. */
#pragma push_macro("SYI_INLINE")
#undef SYI_INLINE
#define SYI_INLINE ALWAYS_INLINE
#define FM_SCALES
#define FM(op) vw_##op
#define FM_F   vw
#define FM_S   float
#define FM_I   vwi
#include "base/fmath_body.h"
#undef FM
#undef FM_F
#undef FM_S
#undef FM_I
#pragma pop_macro("SYI_INLINE")

/* 64 elements of x from i on. */
static inline vw vw_get(const void *x, int half, int64_t i)
{
    return (vw){fast_get(x, half, i, SYCPU_LANES), fast_get(x, half, i + SYCPU_LANES, SYCPU_LANES),
                fast_get(x, half, i + 2 * SYCPU_LANES, SYCPU_LANES),
                fast_get(x, half, i + 3 * SYCPU_LANES, SYCPU_LANES)};
}

#endif
