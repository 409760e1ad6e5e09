/* SPDX-License-Identifier: Apache-2.0 */
/* Copies parts of matrices into panels (see fast_gemm_parts.h), straight or transposed. Rows of a panel that do not
 * exist repeat the last one or are zeros; what is computed from them is thrown away. The contraction is
 * padded only to whole words, with SYCPU_TILES to whole tiles. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#define STEPS_AHEAD 8   /* that are fetched early: rows far apart look random to the processor */
#define WORDS_AHEAD 128 /* of rows along the contraction likewise */

ALWAYS_INLINE void fetch_row(const operand *row, int64_t width)
{
    for (int64_t i = 0; i < width; i += 16) __builtin_prefetch(row + i);
}

#ifdef SYCPU_PAIRS
/* One step of all panels. A load holds the columns of two panels of A or of one panel of B. */
ALWAYS_INLINE void pack_step(const operand *const *row, int64_t width, float *to, int64_t panel_size,
                             int panel_width)
{
    const int count = panel_width < LANES ? panel_width : LANES;
    const int64_t next = panel_width < LANES ? panel_size : LANES;
    for (int64_t i = 0; i < width; i += 2 * count) {
        vec low, high;
        const operand *early = WHOLE > 1 && !row[0] ? NULL : row[0] + i;
        interleave(early, row[1] ? row[1] + i : NULL, width - i, count, &low, &high);
        vec_store(to, low);
        if (panel_width == TILE_COLUMNS || width - i > count) vec_store(to + next, high);
        to += panel_width < LANES ? 2 * panel_size : panel_size;
    }
}
#else
ALWAYS_INLINE void pack_step(const operand *const *row, int64_t width, float *to, int64_t panel_size,
                             int panel_width)
{
    const float *source = *row;
    int64_t full = width / panel_width, rest = width % panel_width;
    for (int64_t p = 0; p < full; p++) {
        memcpy(to, source, sizeof(float) * panel_width);
        source += panel_width;
        to += panel_size;
    }
    for (int i = 0; rest && i < panel_width; i++) to[i] = i < rest ? source[i] : 0.0f;
}
#endif

/* Element m of a step's rows goes to panel m / panel_width; steps are the outer loop so that rows are read in
 * long pieces. */
ALWAYS_INLINE void pack_columns(const operand *const *row, int64_t steps, int64_t width, float *panels,
                                int64_t panel_size, int panel_width)
{
    for (int64_t k = 0; k < steps; k++) {
        if (STEP == 1 && k + STEPS_AHEAD < steps) fetch_row(row[k + STEPS_AHEAD], width); /* pairs: slower */
        pack_step(row + k * STEP, width, panels + k * panel_width, panel_size, panel_width);
    }
}

#ifndef SYCPU_TILES /* whose panels of A are others: fast_gemm_amx.c */
void fast_gemm_pack_a_columns(const operand *const *row, int64_t steps, int64_t width, float *panels,
                              int64_t panel_size)
{
    pack_columns(row, steps, width, panels, panel_size, TILE_ROWS);
}
#endif

void fast_gemm_pack_b_columns(const operand *const *row, int64_t steps, int64_t width, float *panels,
                              int64_t panel_size)
{
    pack_columns(row, steps, width, panels, panel_size, TILE_COLUMNS);
}

/* `rows` rows, known when compiling and each running along the contraction, as columns of a panel whose steps
 * are `stride` words apart. */
ALWAYS_INLINE void pack_rows(const operand *const *row, int64_t first, int64_t depth, float *panel,
                             int64_t stride, int rows)
{
    int64_t k = 0, end = first + depth;
    for (; k + LANES * STEP <= depth; k += LANES * STEP) {
        for (int i = 0; k % (16 * STEP) == 0 && i < rows; i++)
            __builtin_prefetch(row[i] + first + k + WORDS_AHEAD * STEP);
        for (int i = 0; i < rows; i += LANES)
            transpose(row + i, first + k, panel + k / STEP * stride + i, stride,
                      rows - i < LANES ? rows - i : LANES);
    }
    for (panel += k / STEP * stride, k += first; k < end; k += STEP, panel += stride)
        for (int i = 0; i < rows; i++) {
            panel[i] = 0.0f;
            memcpy(panel + i, row[i] + k, sizeof(operand) * least(STEP, end - k));
        }
    for (; k < first + steps_of(depth) * STEP; k += STEP, panel += stride)
        for (int i = 0; i < rows; i++) panel[i] = 0.0f;
}

#ifndef SYCPU_TILES
void fast_gemm_pack_a_rows(const operand *const *row, int64_t rows, int64_t first, int64_t depth,
                           float *panels, int64_t panel_size)
{
    for (int64_t i = 0; i < rows; i += TILE_ROWS) {
        pack_rows(row + i, first, depth, panels, TILE_ROWS, TILE_ROWS);
        panels += panel_size;
    }
}
#endif

void fast_gemm_pack_b_rows(const operand *from, int64_t stride, int64_t rows, int64_t depth, float *panel)
{
    const operand *row[TILE_COLUMNS];
    for (int i = 0; i < TILE_COLUMNS; i++) row[i] = from + least(i, rows - 1) * stride;
    pack_rows(row, 0, depth, panel, TILE_COLUMNS, TILE_COLUMNS);
}

void fast_gemm_pack_vectors(const operand *const *row, int64_t width, int64_t depth, float *panel)
{
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) pack_rows(row + i, 0, depth, panel + i, width, LANES);
    if (i < width) pack_rows(row + i, 0, depth, panel + i, width, HALF_LANES);
}
