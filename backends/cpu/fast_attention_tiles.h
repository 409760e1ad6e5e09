/* SPDX-License-Identifier: Apache-2.0 */
/* The products of attention on matrix tiles (amx_tile.h): 16 rows of C and up to 4 tiles of columns at a time, over steps of
 * pairs of bf16, 16 of them a tile. Operands are whole tiles in memory: the steps of a row of A are neighbours,
 * rows of A and C go on to a multiple of 16 (with rubbish, in C too), steps of A and B to one of 16 with zeros. All are
 * fastest where rows begin at multiples of 64 bytes. Included by fast_attention.h.
 *
 * The limits of a product count elements here, two a step. Outside its range a row of A holds zeros, so that a tile may be
 * multiplied whole; what lies outside the ranges of all 16 rows is left out. That changes no sum but the sign of a
 * zero, which the + 0 that follows takes back. */
#ifndef SYCPU_FAST_ATTENTION_TILES_H
#define SYCPU_FAST_ATTENTION_TILES_H

#include "backends/cpu/attention.h"

enum { PRODUCT_TILES = 4 /* of C, side by side: tile 4 holds A, 5 and 6 B */ };

/* Elements begin .. end - 1 of the contraction. */
struct span {
    int64_t begin, end;
};
/* That lie in the range of one of n rows from `row` on. */
static inline struct span span_of(const struct product *p, int64_t row, int64_t n)
{
    const int64_t most = p->steps * STEP;
    return (struct span){sycpu_clamp(p->begin + row, 0, most), sycpu_clamp(p->end + row + n - 1, 0, most)};
}

#define COLUMN_BEGIN(t)                                                                                      \
    if (t < tiles && p->fresh) TILE_ZERO(t);                                                                 \
    if (t < tiles && !p->fresh) TILE_LOAD(t, c + t * LANES, c_bytes);
#define COLUMN_STEP(t, right)                                                                                \
    if (t < tiles) {                                                                                         \
        TILE_LOAD(right, b + t * LANES, b_bytes);                                                            \
        TILE_DOT(t, 4, right);                                                                               \
    }
#define COLUMN_END(t)                                                                                        \
    if (t < tiles) TILE_STORE(t, c + t * LANES, c_bytes);

/* `tiles` of C from row and column on. */
static inline void product_tiles(const struct product *p, struct span span, int64_t row, int64_t column,
                                 int64_t tiles)
{
    const int64_t a_bytes = p->a_row * (int64_t)sizeof *p->a, b_bytes = p->b_step * (int64_t)sizeof *p->b,
                  c_bytes = p->c_row * (int64_t)sizeof *p->c;
    int64_t i = span.begin / TILE_ELEMENTS * TILE_LINES, end = (span.end + STEP - 1) / STEP;
    const float *a = p->a + row * p->a_row + i, *b = p->b + i * p->b_step + column;
    float *c = p->c + row * p->c_row + column;
    COLUMN_BEGIN(0)
    COLUMN_BEGIN(1)
    COLUMN_BEGIN(2)
    COLUMN_BEGIN(3)
    for (; i < end; i += TILE_LINES, a += TILE_LINES, b += TILE_LINES * p->b_step) {
        TILE_LOAD(4, a, a_bytes);
        COLUMN_STEP(0, 5)
        COLUMN_STEP(1, 6)
        COLUMN_STEP(2, 5)
        COLUMN_STEP(3, 6)
    }
    COLUMN_END(0)
    COLUMN_END(1)
    COLUMN_END(2)
    COLUMN_END(3)
}

/* ---- operands that are not finite ---- */

/* Whether n words, a multiple of 16, have a bf16 that is an infinity or NaN. */
static inline int has_wild(const float *pairs, int64_t n)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 wild = 0;
    for (int64_t i = 0; i < n; i += SYCPU_LANES)
        wild |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(vf_iload((const int32_t *)(pairs + i)), exponent),
                                        exponent);
    return wild != 0;
}

/* A tile of 16 steps of B from `step` on; elements outside the span are zeros. */
static inline void copy_tile(const struct product *p, struct span span, int64_t step, int64_t column,
                             float *to)
{
    for (int64_t i = step; i < step + TILE_LINES; i++, to += LANES) {
        const int early = STEP * i >= span.begin && STEP * i < span.end,
                  late = STEP * i + 1 >= span.begin && STEP * i + 1 < span.end;
        const vi mask = vf_iset((int32_t)((early ? 0xffffu : 0) | (late ? 0xffff0000u : 0)));
        vf_istore((int32_t *)to, vf_iand(vf_iload((const int32_t *)(p->b + i * p->b_step + column)), mask));
    }
}

/* A row that takes nothing from outside its range, for 0 does not hide what is not finite there. */
static inline void product_alone(const struct product *p, int64_t row, int64_t columns)
{
    float tile[TILE_LINES * LANES] __attribute__((aligned(64)));
    const struct span span = span_of(p, row, 1);
    for (int64_t column = 0; column < columns; column += LANES) {
        float *c = p->c + row * p->c_row + column;
        int64_t i = span.begin / TILE_ELEMENTS * TILE_LINES;
        TILE_LOAD(0, c, 0); /* 16 times the row */
        for (; STEP * i < span.end; i += TILE_LINES) {
            copy_tile(p, span, i, column, tile);
            TILE_LOAD(4, p->a + row * p->a_row + i, 0);
            TILE_LOAD(5, tile, (int64_t)sizeof *tile * LANES);
            TILE_DOT(0, 4, 5);
        }
        TILE_STORE(0, tile, (int64_t)sizeof *tile * LANES);
        vf_store(c, vf_load(tile));
    }
}

/* ---- products ---- */

static inline void multiply(const struct product *p, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; p->wild && row < rows; row++) product_alone(p, row, columns);
    for (int64_t row = 0; !p->wild && row < rows; row += TILE_LINES) {
        const struct span span = span_of(p, row, TILE_LINES);
        for (int64_t column = 0; span.begin < span.end && column < columns; column += PRODUCT_TILES * LANES)
            product_tiles(p, span, row, column, sycpu_clamp((columns - column) / LANES, 1, PRODUCT_TILES));
    }
}

/* Calls with masks go to other kernels (pairs_fit), so there are no sets. */
static inline void multiply_part(const struct product *p, int64_t rows, int64_t columns, const uint64_t *set)
{
    (void)set;
    multiply(p, rows, columns);
}

#endif
