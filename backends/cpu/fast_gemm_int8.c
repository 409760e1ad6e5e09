/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of int8 weights: each number times the scale of its column of C, as float32, which the tiles then take as they
 * take any other. Where rows of C are few the first tile of a panel reads the weights itself (fast_gemm_tile.c). */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#ifndef SYCPU_PAIRS  /* whose products are those of bf16 */
#    define PIECE 64 /* elements of a row of transposed weights that are widened together */

/* n neighbours times a scale each. */
static void widen_columns(const int8_t *q, const float *scale, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) vec_store(to + i, vec_mul(vec_load_int8(q + i), vec_load(scale + i)));
    for (; i < n; i++) to[i] = (float)q[i] * scale[i];
}

/* n neighbours, a multiple of LANES or the end of a row, times one scale. */
static void widen_row(const int8_t *q, float scale, int64_t n, float *to)
{
    const vec scales = vec_broadcast(&scale);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) vec_store(to + i, vec_mul(vec_load_int8(q + i), scales));
    for (; i < n; i++) to[i] = (float)q[i] * scale;
}

/* Weights [depth, columns], row by row: these are read in long pieces. */
static void pack_straight(const struct sycpu_gemm *gemm, const int8_t *q, const float *scale, int64_t column,
                          int64_t n, int64_t panel_size, float *to)
{
    int64_t end = least(gemm->columns, column + n * TILE_COLUMNS);
    for (int64_t k = 0; k < gemm->depth; k++, q += gemm->columns) {
        float *panel = to + k * TILE_COLUMNS;
        for (int64_t i = column; i < end; i += TILE_COLUMNS, panel += panel_size) {
            int64_t width = least(TILE_COLUMNS, end - i);
            widen_columns(q + i, scale + i, width, panel);
            for (int64_t rest = width; rest < TILE_COLUMNS; rest++) panel[rest] = 0;
        }
    }
}

/* One panel of weights [columns, depth]. */
static void pack_transposed(const struct sycpu_gemm *gemm, const int8_t *q, const float *scale,
                            int64_t column, float *to)
{
    float piece[TILE_COLUMNS * PIECE];
    int64_t rows = least(TILE_COLUMNS, gemm->columns - column);
    q += column * gemm->depth;
    for (int64_t k = 0; k < gemm->depth; k += PIECE) {
        int64_t n = least(PIECE, gemm->depth - k);
        for (int64_t i = 0; i < rows; i++)
            widen_row(q + i * gemm->depth + k, scale[column + i], n, piece + i * PIECE);
        fast_gemm_pack_b_rows(piece, PIECE, rows, n, to + k * TILE_COLUMNS);
    }
}

void fast_gemm_pack_int8(const struct sycpu_gemm_plan *plan, int64_t expert, int64_t panel, int64_t n,
                         float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int8_t *q = (const int8_t *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    const float *scale = (const float *)gemm->scale + expert * gemm->columns;
    int64_t size = b_panel_size(plan->steps), column = panel * TILE_COLUMNS;
    if (gemm->form != SYCPU_GEMM_NT) {
        pack_straight(gemm, q, scale, column, n, size, to);
        return;
    }
    for (int64_t i = 0; i < n; i++) pack_transposed(gemm, q, scale, column + i * TILE_COLUMNS, to + i * size);
}
#endif
