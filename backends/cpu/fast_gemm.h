/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fast matrix products share; compiled once for each instruction set.
 *
 * C is cut into tiles that stay in registers. Both operands are packed into panels: a panel of A holds
 * TILE_ROWS rows, one of B TILE_COLUMNS columns, the contraction k outermost, so a tile reads both as
 * streams. There are no k-blocks: a tile walks the whole contraction, leaf by leaf. B is packed once, by all
 * threads. Then each thread takes an equal share of the tiles (counted in products), and packs the A rows of
 * its tiles block by block. Tiles of a block are taken panel of B by panel of B, so the block stays in the L2
 * cache and a panel of B is fetched once for it. */
#ifndef SYCPU_FAST_GEMM_H
#define SYCPU_FAST_GEMM_H

#include "gemm.h"
#include "gemm_simd.h"

#define TILE_SIZE    (TILE_ROWS * TILE_COLUMNS)
#define BLOCK_PANELS (BLOCK_ROWS / TILE_ROWS)
/* Floats between panels beyond their contents: keeps panels of a power-of-two size out of the same cache
 * sets. */
#define PANEL_GAP 16

static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Floats from one panel to the next. */
static inline int64_t a_panel_size(int64_t depth)
{
    return divide_up(depth * TILE_ROWS, 16) * 16 + PANEL_GAP;
}
static inline int64_t b_panel_size(int64_t depth)
{
    return depth * TILE_COLUMNS + PANEL_GAP;
}

/* One tile of C. */
struct sycpu_gemm_tile {
    const float *a;        /* panel [depth, TILE_ROWS] */
    const float *b;        /* panel; row k begins at b + k * b_stride */
    int64_t b_stride;      /* floats */
    const int64_t *length; /* [leaves] of each leaf */
    int64_t leaves;
    float *pending; /* scratch: tiles [log2(leaves)] that wait for a right neighbour in the tree of leaves */
    float *c;       /* result */
    int64_t c_stride; /* floats between its rows */
};

/* Computes the first `rows` rows of a tile; it may write up to the next height of tiles, at most TILE_ROWS.
 */
void SYCPU_FAST(gemm_tile)(const struct sycpu_gemm_tile *tile, int rows);
int SYCPU_FAST(gemm_tile_height)(int rows); /* rows that gemm_tile writes */

/* Panels of A from `rows` row pointers (a multiple of TILE_ROWS), all of the contraction. */
void SYCPU_FAST(gemm_pack_a_rows)(const float *const *row, int64_t rows, int64_t depth, float *panels);
/* Panels of A from columns: element (k, m) of `from`, k < depth, m < width; the last panel is filled with
 * zeros. */
void SYCPU_FAST(gemm_pack_a_columns)(const float *from, int64_t stride, int64_t depth, int64_t width,
                                     float *panels, int64_t panel_size);
/* One panel of B from rows of a transposed matrix, at most TILE_COLUMNS of them. */
void SYCPU_FAST(gemm_pack_b_rows)(const float *from, int64_t stride, int64_t rows, int64_t depth,
                                  float *panel);
/* Panels of B, as gemm_pack_a_columns. */
void SYCPU_FAST(gemm_pack_b_columns)(const float *from, int64_t stride, int64_t depth, int64_t width,
                                     float *panels, int64_t panel_size);

#endif
