/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix tiles (Intel AMX) for products of bf16: eight tiles of TILE_LINES rows of 64 bytes. Kernels are written over
 * the operations below and compiled twice: as instructions, and with SYCPU_TILES_EMULATED as C that gives the same
 * bits on any processor, slowly.
 *
 *     enter_tiles()              in each thread, before the others; costs little where it was done before
 *     TILE_ZERO(t)
 *     TILE_LOAD(t, p, stride)    rows of 64 bytes, `stride` bytes apart; slow where they are not aligned to 64 bytes
 *     TILE_LOAD_ONCE(t, p, stride)   the same of what is not read again soon: it takes no room in the L1 cache
 *     TILE_STORE(t, p, stride)
 *     TILE_DOT(c, a, b)          c += a b: c float32 [16, 16], a bf16 [16, 32], b bf16 [16, 16, 2], pairs innermost
 *     leave_tiles()              their contents are lost; the system saves them no more
 *
 * t, a, b, c are the digits 0 to 7. TILE_DOT is the instruction TDPBF16PS; its arithmetic is that of tile_dot. */
#ifndef SYI_AMX_TILE_H
#define SYI_AMX_TILE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/bf16.h"

enum {
    TILE_LINES = 16,   /* rows of a tile; columns of a tile of float32; pairs in a row of bf16 */
    TILE_ELEMENTS = 32 /* of the contraction that a TILE_DOT takes */
};

/* ---- the arithmetic of TILE_DOT ---- */

/* Denormals count as zero, in operands and results, whatever the thread's settings say. */
static inline float tile_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static inline float tile_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The same NaN, quiet. */
static inline float tile_quiet(float nan)
{
    uint32_t bits;
    memcpy(&bits, &nan, sizeof bits);
    return tile_from_bits(bits | 0x400000);
}

/* What an invalid operation gives: inf - inf, inf * 0. */
static inline float tile_invalid(void)
{
    return tile_from_bits(0xffc00000);
}

/* a * b + c. A result is tiny where it is so after rounding to 24 bits with an exponent as small as need be; fmaf
 * rounds what is below 2^-126 to fewer bits, so where it gives 2^-126 the scaled sum decides. */
static inline float tile_fma(float a, float b, float c)
{
    a = tile_flush(a), b = tile_flush(b), c = tile_flush(c);
    if (isnan(a)) return tile_quiet(a);
    if (isnan(b)) return tile_quiet(b);
    if (isnan(c)) return tile_quiet(c);
    float r = fmaf(a, b, c);
    if (isnan(r)) return tile_invalid();
    if (fabsf(r) == 0x1p-126f && fabsf(fmaf(a * 0x1p64f, b, c * 0x1p64f)) < 0x1p-62f)
        return copysignf(0.0f, r);
    return tile_flush(r);
}

/* a + b; sums of float32 below 2^-126 are exact. */
static inline float tile_add(float a, float b)
{
    a = tile_flush(a), b = tile_flush(b);
    if (isnan(a)) return tile_quiet(a);
    if (isnan(b)) return tile_quiet(b);
    float r = a + b;
    return isnan(r) ? tile_invalid() : tile_flush(r);
}

/* One element of C and up to TILE_ELEMENTS of the contraction, neighbours in a and b_stride apart in pairs of b: even
 * and odd elements are a chain each, started at +0 and ascending; their sum is added to c. */
static inline float tile_dot_element(float c, const uint16_t *a, const uint16_t *b, int64_t b_stride)
{
    float even = 0.0f, odd = 0.0f;
    for (int i = 0; i < TILE_LINES; i++, a += 2, b += b_stride) {
        even = tile_fma(syi_bf16_to_float(a[0]), syi_bf16_to_float(b[0]), even);
        odd = tile_fma(syi_bf16_to_float(a[1]), syi_bf16_to_float(b[1]), odd);
    }
    return tile_add(c, tile_add(even, odd));
}

/* 1 where x is not 0 and at most 2^-126, infinite or NaN: where tile_fma and tile_add may differ from one operation. */
static inline uint32_t tile_is_special(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffff;
    return (uint32_t)(bits - 1 < 0x800000) | (uint32_t)(bits >= 0x7f800000);
}

/* A row of C by one operation for each of tile_dot_element's, in loops that compilers make vectors of; 0, and nothing done,
 * where a value comes up that needs more. */
static inline int tile_dot_row(float c[TILE_LINES], const uint16_t a[TILE_ELEMENTS],
                               const uint16_t (*b)[TILE_LINES][2])
{
    float even[TILE_LINES] = {0}, odd[TILE_LINES] = {0}, sum[TILE_LINES];
    uint32_t differs[TILE_LINES] = {0}, any = 0;
    for (int i = 0; i < TILE_LINES; i++) {
        const float first = tile_flush(syi_bf16_to_float(a[2 * i])),
                    second = tile_flush(syi_bf16_to_float(a[2 * i + 1]));
        for (int j = 0; j < TILE_LINES; j++) {
            even[j] = fmaf(first, tile_flush(syi_bf16_to_float(b[i][j][0])), even[j]);
            odd[j] = fmaf(second, tile_flush(syi_bf16_to_float(b[i][j][1])), odd[j]);
            differs[j] |= tile_is_special(even[j]) | tile_is_special(odd[j]);
        }
    }
    for (int j = 0; j < TILE_LINES; j++) {
        const float both = even[j] + odd[j];
        sum[j] = c[j] + both;
        differs[j] |= tile_is_special(both) | tile_is_special(c[j]) | tile_is_special(sum[j]);
    }
    for (int j = 0; j < TILE_LINES; j++) any |= differs[j];
    if (any) return 0;
    memcpy(c, sum, sizeof sum);
    return 1;
}

static inline void tile_dot(float (*c)[TILE_LINES], const uint16_t (*a)[TILE_ELEMENTS],
                            const uint16_t (*b)[TILE_LINES][2])
{
    for (int i = 0; i < TILE_LINES; i++) {
        if (tile_dot_row(c[i], a[i], b)) continue;
        for (int j = 0; j < TILE_LINES; j++)
            c[i][j] = tile_dot_element(c[i][j], a[i], b[0][j], 2 * TILE_LINES);
    }
}

/* ---- operations on tiles ---- */

#ifdef SYCPU_TILES_EMULATED
static _Thread_local union {
    float full[TILE_LINES][TILE_LINES];
    uint16_t half[TILE_LINES][TILE_ELEMENTS], pair[TILE_LINES][TILE_LINES][2];
} tile_of[8];

static inline void enter_tiles(void) {}
static inline void leave_tiles(void) {}
static inline void tile_load(int t, const void *p, int64_t stride)
{
    for (int i = 0; i < TILE_LINES; i++)
        memcpy(tile_of[t].full[i], (const char *)p + i * stride, sizeof tile_of[t].full[i]);
}
static inline void tile_store(int t, void *p, int64_t stride)
{
    for (int i = 0; i < TILE_LINES; i++)
        memcpy((char *)p + i * stride, tile_of[t].full[i], sizeof tile_of[t].full[i]);
}
#    define TILE_ZERO(t)             memset(&tile_of[t], 0, sizeof tile_of[t])
#    define TILE_LOAD(t, p, stride)  tile_load(t, p, stride)
#    define TILE_LOAD_ONCE           TILE_LOAD
#    define TILE_STORE(t, p, stride) tile_store(t, p, stride)
#    define TILE_DOT(c, a, b)        tile_dot(tile_of[c].full, tile_of[a].half, tile_of[b].pair)
#elif SYCPU_HAS_AMX_BF16
/* The operand of LDTILECFG. */
struct tile_shapes {
    uint8_t palette, first_row, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_shapes) == 64, "LDTILECFG reads 64 bytes");

static inline void enter_tiles(void)
{
    struct tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = TILE_LINES;
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}
static inline void leave_tiles(void)
{
    __asm__ volatile("tilerelease");
}
/* The compiler's own functions do not say which memory they read and write. */
#    define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #    t : :)
#    define TILE_LOAD(t, p, stride)                                                                          \
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#    define TILE_LOAD_ONCE(t, p, stride)                                                                     \
        __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#    define TILE_STORE(t, p, stride)                                                                         \
        __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#    define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #    b ", %%tmm" #    a ", %%tmm" #    c : :)
#endif

#endif
