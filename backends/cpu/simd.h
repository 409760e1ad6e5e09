/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 16 floats (vf), 16 int32 (vi) and 16 lane masks (vm) for the instruction set SYCPU_ISA names,
 * and what the fast kernels build from them: functions of fmath.h, row sums in the order of doc/numerics.md,
 * Philox. Sixteen lanes everywhere, so a kernel is written once. Every operation is one IEEE operation a
 * lane; no estimates.
 *
 *   vf_load(p), vf_store(p, v)        16 elements, any alignment
 *   vf_stream(p, v)                   ... to a multiple of 64 bytes, past the caches; vf_stream_end() after the last
 *   vf_load_first(p, n)               the first n lanes (0..16); the others read as +0
 *   vf_store_first(p, v, n)           ... and are not written
 *   vf_first(n)                       mask of the first n lanes
 *   vf_less(a, b), vf_differs(a, b)   masks of a < b (false for NaN), of a != b (true for NaN)
 *   vf_min(a, b), vf_max(a, b)        a < b ? a : b, a > b ? a : b (the second when one is NaN)
 *   vf_select(m, a, b)                a where the mask is set, else b
 *   vf_keep(m, a)                     a where the mask is set, else +0
 *   vf_sum(a), vf_top(a)              the lane sum of numerics.md; the largest lane, by vf_max in the same order
 *   vf_iload_half(p)                  16-bit integers, widened by zeros
 *   vf_istore_half(p, v)              the low halves of lanes below 2^16
 *   vf_imul_wide(a, m, &high)         low words (and high words) of the unsigned 64-bit products of a with m
 *   vf_i...                           the same for vi; vf_ishl and vf_isra shift by a constant */
#ifndef SYCPU_SIMD_H
#define SYCPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "base/fmath.h"
#include "base/philox.h"

#define SYCPU_LANES 16

/* One line an operation. */
/* clang-format off */

/* ---- registers: one of AVX-512, two of AVX2, four of NEON ---- */

/* VF_EACH1 ... 3 apply an intrinsic to each register of one to three operands; VF_EACH_SET to one scalar,
 * VF_EACH_LOAD to the memory of each register, VF_EACH_STORE to memory and register. VF_PICK chooses from
 * the intrinsics of the three instruction sets. */
#if defined(__AVX512F__)
#    include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

#    define VF_PICK(avx512, avx2, neon)   avx512
#    define VF_EACH1(type, op, x)         op(x)
#    define VF_EACH2(type, op, x, y)      op(x, y)
#    define VF_EACH3(type, op, x, y, z)   op(x, y, z)
#    define VF_EACH_SET(type, op, s)      op(s)
#    define VF_EACH_LOAD(type, op, p)     op(p)
#    define VF_EACH_STORE(op, p, v)       op(p, v)

#elif defined(__AVX2__)
#    include <immintrin.h>

typedef struct { __m256 a, b; } vf;
typedef struct { __m256i a, b; } vi;
typedef vf vm; /* lanes of all ones or all zeros */

#    define VF_PICK(avx512, avx2, neon)   avx2
#    define VF_EACH1(type, op, x)         ((type){op((x).a), op((x).b)})
#    define VF_EACH2(type, op, x, y)      ((type){op((x).a, (y).a), op((x).b, (y).b)})
#    define VF_EACH3(type, op, x, y, z)   ((type){op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b)})
#    define VF_EACH_SET(type, op, s)      ((type){op(s), op(s)})
#    define VF_EACH_LOAD(type, op, p)     ((type){op(p), op((p) + 8)})
#    define VF_EACH_STORE(op, p, v)       (op(p, (v).a), op((p) + 8, (v).b))

#elif defined(__aarch64__)
#    include <arm_neon.h>

typedef struct { float32x4_t a, b, c, d; } vf;
typedef struct { int32x4_t a, b, c, d; } vi;
typedef struct { uint32x4_t a, b, c, d; } vm;

#    define VF_PICK(avx512, avx2, neon)   neon
#    define VF_EACH1(type, op, x)         ((type){op((x).a), op((x).b), op((x).c), op((x).d)})
#    define VF_EACH2(type, op, x, y)                                                                         \
        ((type){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)})
#    define VF_EACH3(type, op, x, y, z)                                                                      \
        ((type){op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b),                                            \
                op((x).c, (y).c, (z).c), op((x).d, (y).d, (z).d)})
#    define VF_EACH_SET(type, op, s)      ((type){op(s), op(s), op(s), op(s)})
#    define VF_EACH_LOAD(type, op, p)     ((type){op(p), op((p) + 4), op((p) + 8), op((p) + 12)})
#    define VF_EACH_STORE(op, p, v)                                                                          \
        (op(p, (v).a), op((p) + 4, (v).b), op((p) + 8, (v).c), op((p) + 12, (v).d))

#else
#    error "simd.h: compile with the flags of AVX2, AVX-512 or AArch64"
#endif

/* ---- what every instruction set does with one instruction a register ---- */

#define VF_UNARY(type, name, operand, avx512, avx2, neon)                                                    \
    static inline type name(operand x) { return VF_EACH1(type, VF_PICK(avx512, avx2, neon), x); }
#define VF_BINARY(type, name, avx512, avx2, neon)                                                            \
    static inline type name(type x, type y) { return VF_EACH2(type, VF_PICK(avx512, avx2, neon), x, y); }
#define VF_SET(type, name, scalar, avx512, avx2, neon)                                                       \
    static inline type name(scalar s) { return VF_EACH_SET(type, VF_PICK(avx512, avx2, neon), s); }

/*        type name                AVX-512              AVX2                  NEON */
VF_SET   (vf, vf_set, float,       _mm512_set1_ps,      _mm256_set1_ps,       vdupq_n_f32)
VF_BINARY(vf, vf_add,              _mm512_add_ps,       _mm256_add_ps,        vaddq_f32)
VF_BINARY(vf, vf_sub,              _mm512_sub_ps,       _mm256_sub_ps,        vsubq_f32)
VF_BINARY(vf, vf_mul,              _mm512_mul_ps,       _mm256_mul_ps,        vmulq_f32)
VF_BINARY(vf, vf_div,              _mm512_div_ps,       _mm256_div_ps,        vdivq_f32)
VF_UNARY (vf, vf_sqrt, vf,         _mm512_sqrt_ps,      _mm256_sqrt_ps,       vsqrtq_f32)
VF_UNARY (vi, vf_bits, vf,         _mm512_castps_si512, _mm256_castps_si256,  vreinterpretq_s32_f32)
VF_UNARY (vf, vf_real, vi,         _mm512_castsi512_ps, _mm256_castsi256_ps,  vreinterpretq_f32_s32)
VF_UNARY (vf, vf_convert, vi,      _mm512_cvtepi32_ps,  _mm256_cvtepi32_ps,   vcvtq_f32_s32)
VF_SET   (vi, vf_iset, int32_t,    _mm512_set1_epi32,   _mm256_set1_epi32,    vdupq_n_s32)
VF_BINARY(vi, vf_iadd,             _mm512_add_epi32,    _mm256_add_epi32,     vaddq_s32)
VF_BINARY(vi, vf_isub,             _mm512_sub_epi32,    _mm256_sub_epi32,     vsubq_s32)
VF_BINARY(vi, vf_iand,             _mm512_and_si512,    _mm256_and_si256,     vandq_s32)
VF_BINARY(vi, vf_ior,              _mm512_or_si512,     _mm256_or_si256,      vorrq_s32)
VF_BINARY(vi, vf_ixor,             _mm512_xor_si512,    _mm256_xor_si256,     veorq_s32)

static inline vf vf_load(const float *p)
{
    return VF_EACH_LOAD(vf, VF_PICK(_mm512_loadu_ps, _mm256_loadu_ps, vld1q_f32), p);
}
static inline void vf_store(float *p, vf v)
{
    VF_EACH_STORE(VF_PICK(_mm512_storeu_ps, _mm256_storeu_ps, vst1q_f32), p, v);
}
static inline void vf_stream(float *p, vf v)
{
    VF_EACH_STORE(VF_PICK(_mm512_stream_ps, _mm256_stream_ps, vst1q_f32), p, v);
}
/* Before other threads are told. */
static inline void vf_stream_end(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

/* The last three steps of a sum over 16 lanes, of the halves' sum; and of the largest lane. */
#if defined(__AVX2__)
static inline float vf_sum_8(__m256 x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline float vf_top_8(__m256 x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
#endif

/* ---- AVX-512 ---- */

#if defined(__AVX512F__)

#    define vf_ishl(x, count) _mm512_slli_epi32((x), (count))
#    define vf_isra(x, count) _mm512_srai_epi32((x), (count))

static inline vi vf_iload(const int32_t *p)           { return _mm512_loadu_si512(p); }
static inline void vf_istore(int32_t *p, vi v)        { _mm512_storeu_si512(p, v); }
static inline vf vf_fma(vf x, vf y, vf z)             { return _mm512_fmadd_ps(x, y, z); }
static inline vf vf_min(vf x, vf y)                   { return _mm512_min_ps(x, y); }
static inline vf vf_max(vf x, vf y)                   { return _mm512_max_ps(x, y); }
static inline vm vf_less(vf x, vf y)                  { return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ); }
static inline vm vf_differs(vf x, vf y)               { return _mm512_cmp_ps_mask(x, y, _CMP_NEQ_UQ); }
static inline vf vf_select(vm m, vf x, vf y)          { return _mm512_mask_blend_ps(m, y, x); }
static inline vf vf_keep(vm m, vf x)                  { return _mm512_maskz_mov_ps(m, x); }
static inline vm vf_first(int64_t n)                  { return (vm)((1u << n) - 1u); }
static inline vf vf_load_first(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}
static inline void vf_store_first(float *p, vf v, int64_t n)
{
    _mm512_mask_storeu_ps(p, vf_first(n), v);
}
static inline vi vf_iload_half(const uint16_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vf_istore_half(uint16_t *p, vi v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(v));
}

static inline float vf_sum(vf a)
{
    return vf_sum_8(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}

static inline float vf_top(vf a)
{
    return vf_top_8(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}

static inline vi vf_imul_wide(vi a, uint32_t m, vi *high)
{
    const __m512i factor = _mm512_set1_epi32((int32_t)m);
    __m512i even = _mm512_mul_epu32(a, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
    *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

/* ---- AVX2 ---- */

#elif defined(__AVX2__)

#    define vf_ishl(x, count) ((vi){_mm256_slli_epi32((x).a, (count)), _mm256_slli_epi32((x).b, (count))})
#    define vf_isra(x, count) ((vi){_mm256_srai_epi32((x).a, (count)), _mm256_srai_epi32((x).b, (count))})
#    define VF_BELOW(x, y)    _mm256_cmp_ps(x, y, _CMP_LT_OQ)
#    define VF_UNEQUAL(x, y)  _mm256_cmp_ps(x, y, _CMP_NEQ_UQ)
#    define VF_BLEND(m, x, y) _mm256_blendv_ps(y, x, m)

static inline vf vf_fma(vf x, vf y, vf z)    { return VF_EACH3(vf, _mm256_fmadd_ps, x, y, z); }
static inline vf vf_min(vf x, vf y)          { return VF_EACH2(vf, _mm256_min_ps, x, y); }
static inline vf vf_max(vf x, vf y)          { return VF_EACH2(vf, _mm256_max_ps, x, y); }
static inline vm vf_less(vf x, vf y)         { return VF_EACH2(vm, VF_BELOW, x, y); }
static inline vm vf_differs(vf x, vf y)      { return VF_EACH2(vm, VF_UNEQUAL, x, y); }
static inline vf vf_select(vm m, vf x, vf y) { return VF_EACH3(vf, VF_BLEND, m, x, y); }
static inline vf vf_keep(vm m, vf x)         { return VF_EACH2(vf, _mm256_and_ps, m, x); }

static inline vi vf_iload(const int32_t *p)
{
    return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 8))};
}
static inline void vf_istore(int32_t *p, vi v)
{
    _mm256_storeu_si256((__m256i *)p, v.a);
    _mm256_storeu_si256((__m256i *)(p + 8), v.b);
}
static inline vm vf_first(int64_t n)
{
    const __m256i count = _mm256_set1_epi32((int32_t)n), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i upper = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
    return vf_real((vi){_mm256_cmpgt_epi32(count, lane), _mm256_cmpgt_epi32(count, upper)});
}
static inline vf vf_load_first(const float *p, int64_t n)
{
    vi m = vf_bits(vf_first(n));
    return (vf){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
static inline void vf_store_first(float *p, vf v, int64_t n)
{
    vi m = vf_bits(vf_first(n));
    _mm256_maskstore_ps(p, m.a, v.a);
    _mm256_maskstore_ps(p + 8, m.b, v.b);
}
static inline vi vf_iload_half(const uint16_t *p)
{
    return (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void vf_istore_half(uint16_t *p, vi v)
{
    __m256i halves = _mm256_packus_epi32(v.a, v.b);
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(halves, 0xd8));
}

static inline float vf_sum(vf v)
{
    return vf_sum_8(_mm256_add_ps(v.a, v.b));
}

static inline float vf_top(vf v)
{
    return vf_top_8(_mm256_max_ps(v.a, v.b));
}

static inline __m256i vf_imul_wide_half(__m256i a, uint32_t m, __m256i *high)
{
    const __m256i factor = _mm256_set1_epi32((int32_t)m);
    __m256i even = _mm256_mul_epu32(a, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
static inline vi vf_imul_wide(vi x, uint32_t m, vi *high)
{
    vi low;
    low.a = vf_imul_wide_half(x.a, m, &high->a);
    low.b = vf_imul_wide_half(x.b, m, &high->b);
    return low;
}

/* ---- NEON (AArch64) ---- */

#else

#    define vf_ishl(x, count) vf_ishift((x), (count))
#    define vf_isra(x, count) vf_ishift((x), -(count))

static inline vi vf_iload(const int32_t *p)       { return VF_EACH_LOAD(vi, vld1q_s32, p); }
static inline void vf_istore(int32_t *p, vi v)    { VF_EACH_STORE(vst1q_s32, p, v); }
static inline vf vf_fma(vf x, vf y, vf z)         { return VF_EACH3(vf, vfmaq_f32, z, x, y); } /* z + x y */
static inline vm vf_less(vf x, vf y)              { return VF_EACH2(vm, vcltq_f32, x, y); }
static inline vf vf_select(vm m, vf x, vf y)      { return VF_EACH3(vf, vbslq_f32, m, x, y); }
static inline vf vf_keep(vm m, vf x)              { return vf_select(m, x, vf_set(0.0f)); }
static inline vi vf_ishift(vi x, int32_t count)   { return VF_EACH2(vi, vshlq_s32, x, vf_iset(count)); }
/* Not vminq and vmaxq: those return NaN when either is. */
static inline vf vf_min(vf x, vf y)               { return vf_select(vf_less(x, y), x, y); }
static inline vf vf_max(vf x, vf y)               { return vf_select(vf_less(y, x), x, y); }
static inline vm vf_differs(vf x, vf y)
{
    vm equal = VF_EACH2(vm, vceqq_f32, x, y);
    return VF_EACH1(vm, vmvnq_u32, equal);
}
static inline vm vf_first(int64_t n)
{
    static const int32_t lane[SYCPU_LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return VF_EACH2(vm, vcltq_s32, vf_iload(lane), vf_iset((int32_t)n));
}
/* There are no masked loads and stores: tails go over a buffer. */
static inline vf vf_load_first(const float *p, int64_t n)
{
    float lanes[SYCPU_LANES] = {0};
    memcpy(lanes, p, (size_t)n * sizeof(float));
    return vf_load(lanes);
}
static inline void vf_store_first(float *p, vf v, int64_t n)
{
    float lanes[SYCPU_LANES];
    vf_store(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof(float));
}
static inline vi vf_iload_half(const uint16_t *p)
{
    uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return (vi){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
                vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}
static inline void vf_istore_half(uint16_t *p, vi v)
{
    vst1q_u16(p, vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(v.a)), vmovn_u32(vreinterpretq_u32_s32(v.b))));
    vst1q_u16(p + 8,
              vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(v.c)), vmovn_u32(vreinterpretq_u32_s32(v.d))));
}

static inline float vf_sum(vf v)
{
    float32x4_t x = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
    float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
}

static inline float32x4_t vf_top_part(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

static inline float vf_top(vf v)
{
    float32x4_t x = vf_top_part(vf_top_part(v.a, v.c), vf_top_part(v.b, v.d));
    x = vf_top_part(x, vextq_f32(x, x, 2));
    return vgetq_lane_f32(vf_top_part(x, vextq_f32(x, x, 1)), 0);
}

static inline int32x4_t vf_imul_wide_part(int32x4_t a, uint32_t m, int32x4_t *high)
{
    uint32x4_t u = vreinterpretq_u32_s32(a);
    uint32x4_t lower = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(u), m));
    uint32x4_t upper = vreinterpretq_u32_u64(vmull_n_u32(vget_high_u32(u), m));
    *high = vreinterpretq_s32_u32(vuzp2q_u32(lower, upper));
    return vreinterpretq_s32_u32(vuzp1q_u32(lower, upper));
}
static inline vi vf_imul_wide(vi x, uint32_t m, vi *high)
{
    vi low;
    low.a = vf_imul_wide_part(x.a, m, &high->a);
    low.b = vf_imul_wide_part(x.b, m, &high->b);
    low.c = vf_imul_wide_part(x.c, m, &high->c);
    low.d = vf_imul_wide_part(x.d, m, &high->d);
    return low;
}

#endif
/* clang-format on */

/* ---- the same for all ---- */

#if defined(__AVX512F__)
#    define FM_SCALES
static inline vf vf_scale(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}
#endif
#define FM(op) vf_##op
#define FM_F   vf
#define FM_S   float
#define FM_I   vi
#include "base/fmath_body.h"
#undef FM
#undef FM_F
#undef FM_S
#undef FM_I

/* ---- bfloat16 (base/bf16.h) ---- */

static inline vf vf_load_bf16(const uint16_t *p)
{
    return vf_real(vf_ishl(vf_iload_half(p), 16));
}

/* In the upper halves of lanes, to nearest, ties to even; a NaN becomes a quiet one. The lower halves are what is left. */
static inline vi vf_round_bf16(vf v)
{
    vi bits = vf_bits(v), odd = vf_iand(vf_isra(bits, 16), vf_iset(1));
    vi rounded = vf_iadd(vf_iadd(bits, vf_iset(0x7fff)), odd), quiet = vf_ior(bits, vf_iset(0x400000));
    return vf_bits(vf_select(vf_differs(v, v), vf_real(quiet), vf_real(rounded)));
}

/* Upper halves of lanes, as lower ones. The arithmetic shift copies the sign into bits 16 to 31, which are masked off. */
static inline vi vf_upper_halves(vi v)
{
    return vf_iand(vf_isra(v, 16), vf_iset(0xffff));
}

static inline void vf_store_bf16(uint16_t *p, vf v)
{
    vf_istore_half(p, vf_upper_halves(vf_round_bf16(v)));
}

static inline vf vf_load_bf16_first(const uint16_t *p, int64_t n)
{
    uint16_t lanes[SYCPU_LANES] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *lanes);
    return vf_load_bf16(lanes);
}

static inline void vf_store_bf16_first(uint16_t *p, vf v, int64_t n)
{
    uint16_t lanes[SYCPU_LANES];
    vf_store_bf16(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof *lanes);
}

/* Row sum of x[0..n). */
static inline float vf_row_sum(const float *x, int64_t n)
{
    vf acc = vf_set(0.0f);
    int64_t i = 0;
    for (; i + SYCPU_LANES <= n; i += SYCPU_LANES) acc = vf_add(acc, vf_load(x + i));
    if (i < n) acc = vf_add(acc, vf_load_first(x + i, n - i)); /* a lane is never -0: + 0 changes nothing */
    return vf_sum(acc);
}

/* Row sum of fma(x, y, lane). */
static inline float vf_row_dot(const float *x, const float *y, int64_t n)
{
    vf acc = vf_set(0.0f);
    int64_t i = 0;
    for (; i + SYCPU_LANES <= n; i += SYCPU_LANES) acc = vf_fma(vf_load(x + i), vf_load(y + i), acc);
    if (i < n) { /* a lane may be -0 here (a product that underflowed), so missing lanes are left alone */
        vf more = vf_fma(vf_load_first(x + i, n - i), vf_load_first(y + i, n - i), acc);
        acc = vf_select(vf_first(n - i), more, acc);
    }
    return vf_sum(acc);
}

/* Row max of x[0..n), n >= 1. */
static inline float vf_row_max(const float *x, int64_t n)
{
    vf top = vf_set(-__builtin_inff());
    int64_t i = 0;
    for (; i + SYCPU_LANES <= n; i += SYCPU_LANES) top = vf_max(top, vf_load(x + i));
    if (i < n) top = vf_select(vf_first(n - i), vf_max(top, vf_load_first(x + i, n - i)), top);
    return vf_top(top);
}

/* Philox-4x32-10 on 16 counters: c[i] holds word i of each. */
static inline void vf_philox(vi c[4], const uint32_t key[2])
{
    vi c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        vi high0, high1;
        vi low0 = vf_imul_wide(c0, SYI_PHILOX_M0, &high0);
        vi low1 = vf_imul_wide(c2, SYI_PHILOX_M1, &high1);
        c0 = vf_ixor(vf_ixor(high1, c1), vf_iset((int32_t)k0));
        c2 = vf_ixor(vf_ixor(high0, c3), vf_iset((int32_t)k1));
        c1 = low1;
        c3 = low0;
        k0 += SYI_PHILOX_W0;
        k1 += SYI_PHILOX_W1;
    }
    c[0] = c0;
    c[1] = c1;
    c[2] = c2;
    c[3] = c3;
}

/* The bits of the 128 channels from 8 * block on. */
static inline void vf_channel_bits(const uint32_t key[2], uint32_t step, uint32_t row, uint32_t position,
                                   uint32_t block, uint16_t bits[8 * SYCPU_LANES])
{
    static const int32_t lane[SYCPU_LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint32_t words[4][SYCPU_LANES], in_order[SYCPU_LANES][4];
    vi c[4] = {vf_iset((int32_t)step), vf_iset((int32_t)row), vf_iset((int32_t)position),
               vf_iadd(vf_iset((int32_t)block), vf_iload(lane))};
    vf_philox(c, key);
    for (int w = 0; w < 4; w++) vf_istore((int32_t *)words[w], c[w]);
    for (int l = 0; l < SYCPU_LANES; l++)
        for (int w = 0; w < 4; w++) in_order[l][w] = words[w][l];
    memcpy(bits, in_order, sizeof in_order); /* low halves first: all processors here are little-endian */
}

/* The masks of the 128 channels from 8 * block on. */
static inline void vf_dropout_block(const struct syi_dropout *d, uint32_t row, uint32_t position,
                                    uint32_t block, float mask[8 * SYCPU_LANES])
{
    uint16_t bits[8 * SYCPU_LANES];
    vf_channel_bits(d->key, d->step, row, position, block, bits);
    for (int i = 0; i < 8 * SYCPU_LANES; i++) mask[i] = bits[i] >= d->threshold ? d->scale : 0.0f;
}

/* syi_dropout_mask. */
static inline void vf_dropout_mask(const struct syi_dropout *d, uint32_t row, uint32_t position,
                                   int64_t first, int64_t n, float *mask)
{
    float block[8 * SYCPU_LANES];
    for (int64_t i = 0, count; i < n; i += count) {
        int64_t skip = (first + i) % 8;
        count = 8 * SYCPU_LANES - skip < n - i ? 8 * SYCPU_LANES - skip : n - i;
        vf_dropout_block(d, row, position, (uint32_t)((first + i) / 8), block);
        memcpy(mask + i, block + skip, (size_t)count * sizeof *mask);
    }
}

/* syi_jitter_factors. */
static inline void vf_jitter_factors(const struct syi_jitter *j, uint32_t row, uint32_t position,
                                     int64_t first, int64_t n, float *factor)
{
    uint16_t bits[8 * SYCPU_LANES];
    for (int64_t i = 0, count; i < n; i += count) {
        int64_t skip = (first + i) % 8;
        count = 8 * SYCPU_LANES - skip < n - i ? 8 * SYCPU_LANES - skip : n - i;
        vf_channel_bits(j->key, j->step, row, position, (uint32_t)((first + i) / 8), bits);
        for (int64_t c = 0; c < count; c++) factor[i + c] = syi_jitter_factor(j->amount, bits[skip + c]);
    }
}

/* SYI_DROP. */
static inline vf vf_drop(vf value, vf mask)
{
    return vf_keep(vf_differs(mask, vf_set(0.0f)), vf_mul(value, mask));
}

#endif
