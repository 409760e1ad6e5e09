/* SPDX-License-Identifier: Apache-2.0 */
/* What vectors need to have the bits of matrix tiles (amx_tile.h) where there is too little to multiply for tiles: the even and
 * the odd elements of pairs of bf16 as float32, and the floating-point mode in which denormals count as zero, in operands
 * and results. The compiler must move no arithmetic into that mode or out of it: call what computes there through a
 * volatile pointer. */
#ifndef SYCPU_TILE_CHAINS_H
#define SYCPU_TILE_CHAINS_H

#include <immintrin.h>

#define FLUSH_TO_ZERO      0x8000 /* of MXCSR: results */
#define DENORMALS_ARE_ZERO 0x0040 /* operands */
#define UNDERFLOWED        0x0010 /* set, and stays so, when a result became zero that way */

/* Gives the mode to go back to. */
static inline unsigned enter_tile_mode(void)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr((before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO) & ~(unsigned)UNDERFLOWED);
    return before;
}
/* Whether a result was too small for an ordinary number since enter_tile_mode. */
static inline int tile_mode_underflowed(void)
{
    return (_mm_getcsr() & UNDERFLOWED) != 0;
}
static inline void leave_tile_mode(unsigned before)
{
    _mm_setcsr(before);
}

static inline __m512 even_of(__m512 pairs)
{
    return (__m512)_mm512_slli_epi32((__m512i)pairs, 16);
}
static inline __m512 odd_of(__m512 pairs)
{
    return (__m512)_mm512_and_si512((__m512i)pairs, _mm512_set1_epi32((int)0xffff0000));
}

#endif
