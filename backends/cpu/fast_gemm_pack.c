/* SPDX-License-Identifier: Apache-2.0 */
/* Copies parts of matrices into panels (see fast_gemm.h), straight or transposed. Rows of a panel that do not
 * exist repeat the last one or are zeros; what is computed from them is thrown away. The contraction is never
 * padded. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

#define ROWS_AHEAD 8 /* that are fetched early: rows far apart look random to the processor */

/* Element (k, m) goes to panel m / panel_width; k is the outer loop so that `from` is read in long pieces. */
ALWAYS_INLINE void pack_columns(const float *from, int64_t stride, int64_t depth, int64_t width,
                                float *panels, int64_t panel_size, int panel_width)
{
    int64_t full = width / panel_width, rest = width % panel_width;
    for (int64_t k = 0; k < depth; k++) {
        const float *source = from + k * stride;
        float *to = panels + k * panel_width;
        if (k + ROWS_AHEAD < depth)
            for (int64_t i = 0; i < width; i += 16) __builtin_prefetch(source + ROWS_AHEAD * stride + i);
        for (int64_t p = 0; p < full; p++) {
            memcpy(to, source, sizeof(float) * panel_width);
            source += panel_width;
            to += panel_size;
        }
        for (int i = 0; rest && i < panel_width; i++) to[i] = i < rest ? source[i] : 0.0f;
    }
}

void SYCPU_FAST(gemm_pack_a_columns)(const float *from, int64_t stride, int64_t depth, int64_t width,
                                     float *panels, int64_t panel_size)
{
    pack_columns(from, stride, depth, width, panels, panel_size, TILE_ROWS);
}

void SYCPU_FAST(gemm_pack_b_columns)(const float *from, int64_t stride, int64_t depth, int64_t width,
                                     float *panels, int64_t panel_size)
{
    pack_columns(from, stride, depth, width, panels, panel_size, TILE_COLUMNS);
}

/* One panel of panel_width rows, each running along the contraction. */
ALWAYS_INLINE void pack_rows(const float *const *row, int64_t depth, float *panel, int panel_width)
{
    int64_t k = 0;
    for (; k + LANES <= depth; k += LANES)
        for (int i = 0; i < panel_width; i += LANES)
            transpose(row + i, k, panel + k * panel_width + i, panel_width,
                      panel_width - i < LANES ? panel_width - i : LANES);
    for (; k < depth; k++)
        for (int i = 0; i < panel_width; i++) panel[k * panel_width + i] = row[i][k];
}

void SYCPU_FAST(gemm_pack_a_rows)(const float *const *row, int64_t rows, int64_t depth, float *panels)
{
    for (int64_t i = 0; i < rows; i += TILE_ROWS) {
        pack_rows(row + i, depth, panels, TILE_ROWS);
        panels += a_panel_size(depth);
    }
}

void SYCPU_FAST(gemm_pack_b_rows)(const float *from, int64_t stride, int64_t rows, int64_t depth,
                                  float *panel)
{
    const float *row[TILE_COLUMNS];
    for (int i = 0; i < TILE_COLUMNS; i++) row[i] = from + least(i, rows - 1) * stride;
    pack_rows(row, depth, panel, TILE_COLUMNS);
}
