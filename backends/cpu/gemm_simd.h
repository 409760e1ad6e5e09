/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between instruction sets in the fast matrix products: the vector operations they use, a
 * transposing copy, and the shape of a tile. A tile is TILE_ROWS x TILE_COLUMNS of C with TILE_COLUMNS = 2
 * vectors; its accumulators, two vectors of B and a broadcast of A fill the register file. ROWS_n(X) is X for
 * each of n rows; tiles of fewer rows have any even height.
 *
 * Packed operands consist of words of 32 bits, and a step of the contraction takes a word of each: a float32,
 * or with SYCPU_PAIRS (the instructions of avx512_bf16) two bf16 that are neighbours along the contraction,
 * the earlier one in the lower half. Words have the type float in either case.
 *
 * With SYCPU_TILES (amx_bf16, and SYCPU_PAIRS too) the matrix tiles of amx_tile.h compute: TILE_ROWS x TILE_COLUMNS of C
 * are 2 x 2 of them. A leaf then ends with zeros so that its steps are a multiple of WHOLE, and a panel of A has a
 * row of C after the other instead of a step after the other. */
#ifndef SYCPU_GEMM_SIMD_H
#define SYCPU_GEMM_SIMD_H

#include <stdint.h>

#include "base/inline.h"

#ifdef SYCPU_PAIRS
typedef uint16_t operand;
#else
typedef float operand;
#endif
#define STEP ((int)(sizeof(float) / sizeof(operand))) /* elements in a word */
#ifdef SYCPU_TILES
#    include "base/amx_tile.h"
#    define WHOLE TILE_LINES /* steps of a leaf are a multiple of it */
#else
#    define WHOLE 1
static inline void enter_tiles(void) {}
static inline void leave_tiles(void) {}
#endif

#define ROWS_2(X)  X(0) X(1)
#define ROWS_4(X)  ROWS_2(X) X(2) X(3)
#define ROWS_6(X)  ROWS_4(X) X(4) X(5)
#define ROWS_8(X)  ROWS_6(X) X(6) X(7)
#define ROWS_10(X) ROWS_8(X) X(8) X(9)
#define ROWS_12(X) ROWS_10(X) X(10) X(11)
#define ROWS_14(X) ROWS_12(X) X(12) X(13)
#define ROWS_16(X) ROWS_14(X) X(14) X(15)
#define ROWS_18(X) ROWS_16(X) X(16) X(17)
#define ROWS_20(X) ROWS_18(X) X(18) X(19)
#define ROWS_22(X) ROWS_20(X) X(20) X(21)
#define ROWS_24(X) ROWS_22(X) X(22) X(23)
#define ROWS_26(X) ROWS_24(X) X(24) X(25)
#define ROWS_28(X) ROWS_26(X) X(26) X(27)

/* vec_max(a, b) is b where one of them is NaN. */
#if defined(__AVX512F__)
#    include <immintrin.h>

#    define LANES 16
#    ifdef SYCPU_TILES
#        define TILE_ROWS  32
#        define BLOCK_ROWS 32
#    else
#        define TILE_ROWS  14
#        define BLOCK_ROWS 84 /* rows of A that a thread packs together */
#    endif

typedef __m512 vec;

/* clang-format off */
static inline vec vec_zero(void)                { return _mm512_setzero_ps(); }
static inline vec vec_load(const void *p)       { return _mm512_loadu_ps(p); }
static inline vec vec_broadcast(const float *p) { return _mm512_set1_ps(*p); }
static inline void vec_store(float *p, vec v)   { _mm512_storeu_ps(p, v); }
static inline void vec_stream(float *p, vec v)  { _mm512_stream_ps(p, v); }
static inline vec vec_add(vec a, vec b)         { return _mm512_add_ps(a, b); }
static inline vec vec_mul(vec a, vec b)         { return _mm512_mul_ps(a, b); }
static inline vec vec_max(vec a, vec b)         { return _mm512_max_ps(a, b); }
/* clang-format on */
/* As syi_bf16_from_float. */
static inline void vec_store_rounded_bits(uint16_t *p, vec v)
{
    const __m512i bits = _mm512_castps_si512(v), one = _mm512_set1_epi32(1),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one),
                  rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd),
                  best = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                                              _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(best, 16)));
}
#    ifdef SYCPU_PAIRS
static inline vec vec_step(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
/* Denormals, which the instructions that round make zero. */
static inline __mmask16 vec_denormals(vec v)
{
    return _mm512_fpclass_ps_mask(v, 0x20);
}
static inline void vec_store_rounded(uint16_t *p, vec v)
{
    if (__builtin_expect(vec_denormals(v) != 0, 0))
        vec_store_rounded_bits(p, v);
    else
        _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
}
/* Two vectors without denormals, a line of 64 bytes. */
static inline void vec_store_two_normal(uint16_t *p, vec low, vec high)
{
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
/* The same of any vectors. */
static inline void vec_store_two_rounded(uint16_t *p, vec low, vec high)
{
    if (__builtin_expect((vec_denormals(low) | vec_denormals(high)) != 0, 0)) {
        vec_store_rounded_bits(p, low);
        vec_store_rounded_bits(p + LANES, high);
    } else {
        vec_store_two_normal(p, low, high);
    }
}

/* Words of two rows, the first `count` columns in *low and the next `count` in *high. Only n columns exist,
 * the others are zeros, as is a row that is NULL; without SYCPU_TILES the early one never is. */
ALWAYS_INLINE void interleave(const operand *early, const operand *late, int64_t n, int count, vec *low,
                              vec *high)
{
#        define PICK(i) ((i) | (32 + (i)) << 16)
    const __m512i first = _mm512_setr_epi32(PICK(0), PICK(1), PICK(2), PICK(3), PICK(4), PICK(5), PICK(6),
                                            PICK(7), PICK(8), PICK(9), PICK(10), PICK(11), PICK(12), PICK(13),
                                            PICK(14), PICK(15)),
                  second = _mm512_add_epi16(first, _mm512_set1_epi16((short)count));
#        undef PICK
    const __mmask32 some = n < 32 ? (1u << n) - 1 : ~0u;
    const __m512i a = WHOLE > 1 && !early ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(some, early),
                  b = late ? _mm512_maskz_loadu_epi16(some, late) : _mm512_setzero_si512();
    *low = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, first, b));
    *high = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, second, b));
}
#    else
#        define vec_store_rounded vec_store_rounded_bits
static inline vec vec_step(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vec vec_load_int8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
#    endif

#    ifdef SYCPU_PAIRS
/* A vector of words: a row of pairs, whose second elements lie `below` elements behind the first. */
ALWAYS_INLINE vec vec_load_step(const operand *b, int64_t below)
{
#        define PICK(i) ((i) | (16 + (i)) << 16)
    const __m512i order =
        _mm512_setr_epi32(PICK(0), PICK(1), PICK(2), PICK(3), PICK(4), PICK(5), PICK(6), PICK(7), PICK(8),
                          PICK(9), PICK(10), PICK(11), PICK(12), PICK(13), PICK(14), PICK(15));
#        undef PICK
    const __m512i early = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)b)),
                  both = _mm512_inserti64x4(early, _mm256_loadu_si256((const __m256i *)(b + below)), 1);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both));
}
#    else
/* A zero of its own, which takes no time. Of several the compiler would make one and copy it, which takes the place of a multiply-add. */
static inline vec vec_zero_apart(void)
{
    vec v;
    __asm__("vpxord %0, %0, %0" : "=v"(v));
    return v;
}

/* Broadcasts *p and copies it to *to. The compiler would load it once for both and broadcast by a shuffle, which takes the place of a
 * multiply-add. */
ALWAYS_INLINE vec vec_broadcast_copied(const float *p, float *to)
{
    vec v = vec_broadcast(p);
    __asm__("" : "+v"(v));
    _mm_store_ss(to, _mm512_castps512_ps128(v));
    return v;
}
#    endif

typedef __m256 half; /* a vector of half the lanes, which takes half the time on some processors */
#    define HALF_LANES 8

/* clang-format off */
static inline half half_zero(void)              { return _mm256_setzero_ps(); }
static inline half half_load(const float *p)    { return _mm256_loadu_ps(p); }
static inline void half_store(float *p, half v) { _mm256_storeu_ps(p, v); }
static inline half half_add(half a, half b)     { return _mm256_add_ps(a, b); }
/* clang-format on */
#    ifndef SYCPU_PAIRS
/* a: the same in all lanes. */
static inline half half_step(vec a, half b, half c)
{
    return _mm256_fmadd_ps(_mm512_castps512_ps256(a), b, c);
}
#    endif

/* Stores the first n lanes; n is TILE_ROWS, LANES or HALF_LANES, known when compiling. */
ALWAYS_INLINE void vec_store_first(float *p, vec v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}

#    define UNPACK_SINGLES(a, b, lo, hi)                                                                     \
        const __m512d lo = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)),                                       \
                      hi = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
#    define UNPACK_DOUBLES(a, b, lo, hi)                                                                     \
        const vec lo = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),                                           \
                  hi = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
/* Rows 4q .. 4q+3: 4x4 transposes inside the 128-bit quarters; quarter i of tqj is then column 4i + j. */
#    define TRANSPOSE_ROWS(q, r0, r1, r2, r3)                                                                \
        UNPACK_SINGLES(vec_load(row[r0] + k), vec_load(row[r1] + k), l##q, h##q)                             \
        UNPACK_SINGLES(vec_load(row[r2] + k), vec_load(row[r3] + k), m##q, n##q)                             \
        UNPACK_DOUBLES(l##q, m##q, t##q##0, t##q##1)                                                         \
        UNPACK_DOUBLES(h##q, n##q, t##q##2, t##q##3)
#    define GATHER_COLUMNS(j)                                                                                \
        {                                                                                                    \
            vec even_low = _mm512_shuffle_f32x4(t0##j, t1##j, 0x88),                                         \
                odd_low = _mm512_shuffle_f32x4(t0##j, t1##j, 0xdd);                                          \
            vec even_high = _mm512_shuffle_f32x4(t2##j, t3##j, 0x88),                                        \
                odd_high = _mm512_shuffle_f32x4(t2##j, t3##j, 0xdd);                                         \
            vec_store_first(to + (j)*stride, _mm512_shuffle_f32x4(even_low, even_high, 0x88), used);         \
            vec_store_first(to + (j + 4) * stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88), used);     \
            vec_store_first(to + (j + 8) * stride, _mm512_shuffle_f32x4(even_low, even_high, 0xdd), used);   \
            vec_store_first(to + (j + 12) * stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd), used);    \
        }

/* Words k / STEP + i of the rows go to to[i * stride], of the first `used` rows, for i < LANES. */
ALWAYS_INLINE void transpose(const operand *const *row, int64_t k, float *to, int64_t stride, int used)
{
    const int last = used - 1; /* rows that are not used repeat it */
    TRANSPOSE_ROWS(0, 0, 1, 2, 3)
    TRANSPOSE_ROWS(1, 4, 5, 6, 7)
    TRANSPOSE_ROWS(2, 8, 9, 10, 11)
    TRANSPOSE_ROWS(3, 12, 13, (14 < used ? 14 : last), (15 < used ? 15 : last))
    GATHER_COLUMNS(0)
    GATHER_COLUMNS(1)
    GATHER_COLUMNS(2)
    GATHER_COLUMNS(3)
}

#elif defined(__AVX2__)
#    include <immintrin.h>

#    define LANES      8
#    define TILE_ROWS  6
#    define BLOCK_ROWS 48

typedef __m256 vec;

/* clang-format off */
static inline vec vec_zero(void)                { return _mm256_setzero_ps(); }
static inline vec vec_load(const float *p)      { return _mm256_loadu_ps(p); }
static inline vec vec_broadcast(const float *p) { return _mm256_broadcast_ss(p); }
static inline void vec_store(float *p, vec v)   { _mm256_storeu_ps(p, v); }
static inline void vec_stream(float *p, vec v)  { _mm256_stream_ps(p, v); }
static inline vec vec_add(vec a, vec b)         { return _mm256_add_ps(a, b); }
static inline vec vec_mul(vec a, vec b)         { return _mm256_mul_ps(a, b); }
static inline vec vec_max(vec a, vec b)         { return _mm256_max_ps(a, b); }
static inline vec vec_step(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
/* clang-format on */
/* As syi_bf16_from_float. */
static inline void vec_store_rounded(uint16_t *p, vec v)
{
    const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1),
                  odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one),
                  rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd),
                  quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)),
                  best = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                                                              _mm256_castsi256_ps(quiet),
                                                              _mm256_cmp_ps(v, v, _CMP_UNORD_Q))),
                  high = _mm256_srli_epi32(best, 16);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}
static inline vec vec_load_int8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

ALWAYS_INLINE void vec_store_first(float *p, vec v, int n)
{
    if (n == LANES) {
        _mm256_storeu_ps(p, v);
    } else {
        _mm_storeu_ps(p, _mm256_castps256_ps128(v));
        _mm_storel_pi((__m64 *)(p + 4), _mm256_extractf128_ps(v, 1));
    }
}

/* Half rows i and i + 4 in one vector, so that only shuffles inside 128 bits are left to do. */
#    define LOAD_HALVES(v, i, j, offset)                                                                     \
        const vec v = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[i] + k + offset)),        \
                                           _mm_loadu_ps(row[j] + k + offset), 1);
#    define TRANSPOSE_HALF(o)                                                                                \
        {                                                                                                    \
            LOAD_HALVES(a, 0, 4, o)                                                                          \
            LOAD_HALVES(b, 1, 5, o)                                                                          \
            LOAD_HALVES(c, 2, (6 < used ? 6 : last), o)                                                      \
            LOAD_HALVES(d, 3, (7 < used ? 7 : last), o)                                                      \
            const vec ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d);                          \
            const vec AB = _mm256_unpackhi_ps(a, b), CD = _mm256_unpackhi_ps(c, d);                          \
            vec_store_first(to + (o)*stride, _mm256_shuffle_ps(ab, cd, 0x44), used);                         \
            vec_store_first(to + (o + 1) * stride, _mm256_shuffle_ps(ab, cd, 0xee), used);                   \
            vec_store_first(to + (o + 2) * stride, _mm256_shuffle_ps(AB, CD, 0x44), used);                   \
            vec_store_first(to + (o + 3) * stride, _mm256_shuffle_ps(AB, CD, 0xee), used);                   \
        }

ALWAYS_INLINE void transpose(const operand *const *row, int64_t k, float *to, int64_t stride, int used)
{
    const int last = used - 1;
    TRANSPOSE_HALF(0)
    TRANSPOSE_HALF(4)
}

#elif defined(__aarch64__)
#    include <arm_neon.h>

#    define LANES      4
#    define TILE_ROWS  12
#    define BLOCK_ROWS 48

typedef float32x4_t vec;

/* clang-format off */
static inline vec vec_zero(void)                { return vdupq_n_f32(0.0f); }
static inline vec vec_load(const float *p)      { return vld1q_f32(p); }
static inline vec vec_broadcast(const float *p) { return vld1q_dup_f32(p); }
static inline void vec_store(float *p, vec v)   { vst1q_f32(p, v); }
static inline void vec_stream(float *p, vec v)  { vst1q_f32(p, v); }
static inline vec vec_add(vec a, vec b)         { return vaddq_f32(a, b); }
static inline vec vec_mul(vec a, vec b)         { return vmulq_f32(a, b); }
static inline vec vec_max(vec a, vec b)         { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vec vec_step(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
/* clang-format on */
/* As syi_bf16_from_float. */
static inline void vec_store_rounded(uint16_t *p, vec v)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1)),
                     rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd),
                     quiet = vorrq_u32(bits, vdupq_n_u32(0x400000)),
                     best = vbslq_u32(vceqq_f32(v, v), rounded, quiet);
    vst1_u16(p, vshrn_n_u32(best, 16));
}
static inline vec vec_load_int8(const int8_t *p)
{
    const int8_t four[8] = {p[0], p[1], p[2], p[3]};
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(four)))));
}

ALWAYS_INLINE void transpose(const operand *const *row, int64_t k, float *to, int64_t stride, int used)
{
    const float32x4x2_t ab = vtrnq_f32(vld1q_f32(row[0] + k), vld1q_f32(row[1] + k));
    const float32x4x2_t cd = vtrnq_f32(vld1q_f32(row[2] + k), vld1q_f32(row[3] + k));
    (void)used; /* always 4 */
    vst1q_f32(to, vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0])));
    vst1q_f32(to + stride, vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1])));
    vst1q_f32(to + 2 * stride, vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0])));
    vst1q_f32(to + 3 * stride, vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1])));
}
#else
#    error "fast matrix products need AVX-512, AVX2 or 64-bit ARM"
#endif

#ifndef SYCPU_PAIRS
/* A vector of words: a row of them. */
static inline vec vec_load_step(const operand *b, int64_t below)
{
    (void)below;
    return vec_load(b);
}
#endif

/* What vec_stream wrote is seen by other threads before what is written from here on. */
static inline void finish_streams(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

#define TILE_COLUMNS (2 * LANES)
#ifndef HALF_LANES
#    define HALF_LANES LANES
#endif

#endif
