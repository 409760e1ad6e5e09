/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fast matrix products share; compiled once for each instruction set.
 *
 * C is cut into tiles that stay in registers. Both operands are packed into panels: a panel of A holds
 * TILE_ROWS rows, one of B TILE_COLUMNS columns, the steps of the contraction outermost, so a tile reads both
 * as streams. A leaf of bf16 that has no partner for its last element gets a zero. There are no k-blocks: a
 * tile walks the whole contraction, leaf by leaf. Of a plain product B is packed once, by all threads; then
 * each thread takes an equal share of the tiles (counted in products), and packs the A rows of its tiles
 * block by block. Of experts each thread takes whole columns: it packs an expert's A once and B in groups
 * that it uses at once, since weights that a few tokens read are worth no copy in memory. Tiles of a block
 * are taken panel of B by panel of B, so the block stays in the L2 cache and a panel of B is fetched once for
 * it. */
#ifndef SYCPU_FAST_GEMM_H
#define SYCPU_FAST_GEMM_H

#include "backends/cpu/gemm.h"
#include "backends/cpu/gemm_simd.h"

#define TILE_SIZE    (TILE_ROWS * TILE_COLUMNS)
#define BLOCK_PANELS (BLOCK_ROWS / TILE_ROWS)
/* Words between panels beyond their contents: keeps panels of a power-of-two size out of the same cache sets,
 * and takes what the last step of a panel writes behind its rows. */
#define PANEL_GAP 16

static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Words from one panel to the next. */
static inline int64_t a_panel_size(int64_t steps)
{
    return divide_up(steps * TILE_ROWS, 16) * 16 + PANEL_GAP;
}
static inline int64_t b_panel_size(int64_t steps)
{
    return steps * TILE_COLUMNS + PANEL_GAP;
}

/* How a tile is written. */
enum sycpu_gemm_how {
    SYCPU_GEMM_STORE,
    SYCPU_GEMM_ROUND, /* to bf16 */
    SYCPU_GEMM_STREAM /* past the caches; rows are aligned to vectors */
};

/* One tile of C. */
struct sycpu_gemm_tile {
    const float *a;   /* panel [steps, TILE_ROWS] */
    const float *b;   /* panel; step k begins at b + k * b_stride */
    int64_t b_stride; /* floats */
    float *
        pending; /* scratch: tiles [log2(leaves) + 1] that wait for a right neighbour in the tree of leaves */
    void *c;     /* result */
    int64_t c_stride; /* elements between its rows */
    int how;          /* enum sycpu_gemm_how */
    int height;       /* rows computed and written, from gemm_height */
};

/* The lowest height of a tile that holds so many rows. */
static inline int gemm_height(int64_t rows)
{
    return rows <= LOWEST_ROWS ? LOWEST_ROWS : rows <= LOW_ROWS ? LOW_ROWS : TILE_ROWS;
}

/* Leaf number `leaf` of a tile, steps k .. k + length - 1; to be called for all leaves in ascending order.
 * Merges it into the tree; the last one leaves the sum in tile->c. */
void SYCPU_FAST(gemm_leaf)(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                           int64_t length);

/* Panels of A from `rows` row pointers (a multiple of TILE_ROWS): elements [first, first + depth) of each. */
void SYCPU_FAST(gemm_pack_a_rows)(const operand *const *row, int64_t rows, int64_t first, int64_t depth,
                                  float *panels, int64_t panel_size);
/* Panels of A from rows along its columns, STEP rows for each step, NULL: a row of zeros; the last panel is
 * filled with zeros. */
void SYCPU_FAST(gemm_pack_a_columns)(const operand *const *row, int64_t steps, int64_t width, float *panels,
                                     int64_t panel_size);
/* One panel of B from rows of a transposed matrix, at most TILE_COLUMNS of them. */
void SYCPU_FAST(gemm_pack_b_rows)(const operand *from, int64_t stride, int64_t rows, int64_t depth,
                                  float *panel);
/* Panels of B, as gemm_pack_a_columns. */
void SYCPU_FAST(gemm_pack_b_columns)(const operand *const *row, int64_t steps, int64_t width, float *panels,
                                     int64_t panel_size);

#endif
