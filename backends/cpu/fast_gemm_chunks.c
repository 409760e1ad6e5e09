/* SPDX-License-Identifier: Apache-2.0 */
/* x^T y on matrix tiles with the contraction in the outer loop. Elsewhere a tile of C walks the whole contraction, which for
 * gradients of weights is all tokens of a batch: packed, they do not fit in a cache, and from memory they come slower than tiles
 * take them. Here C is cut into blocks, and a block takes a chunk of the contraction at a time: whole leaves, few enough that
 * what is packed of both operands stays in the L2 cache. The trees over leaves of a block's tiles need not: a leaf meets
 * them once. Sums are those of any other order of the loops, since a leaf is never cut. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

/* The leaves of a chunk from `leaf` on: at least one, and as many as fit in what is packed. */
static void take_chunk(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t leaf)
{
    worker->first_leaf = leaf;
    worker->taken = 0;
    do {
        worker->taken += worker->length[leaf++];
    } while (leaf < worker->leaves && worker->taken + worker->length[leaf] <= plan->steps);
    worker->end_leaf = leaf;
}

/* Rows [row, row + rows) of C by n panels of columns from `panel` on. */
static void compute_block(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                          int64_t expert, int64_t row, int64_t rows, int64_t panel, int64_t n)
{
    worker->from = 0;
    for (int64_t leaf = 0; leaf < worker->leaves; leaf = worker->end_leaf) {
        take_chunk(plan, worker, leaf);
        fast_gemm_pack_columns(plan, expert, worker, panel, n);
        fast_gemm_pack_block(plan, expert, worker, row, rows);
        for (int64_t i = 0; i < n; i++) fast_gemm_compute_column(plan, worker, expert, panel + i);
        worker->from += worker->taken;
    }
}

void fast_gemm_compute_chunks(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t panels)
{
    const int64_t height = equal_parts(divide_up(end - row, TILE_ROWS), plan->block_panels) * TILE_ROWS,
                  width = equal_parts(panels, plan->b_panels), last = panel + panels;
    fast_gemm_measure_leaves(&plan->gemm, worker, expert);
    for (; row < end; row += height)
        for (int64_t first = panel; first < last; first += width)
            compute_block(plan, worker, expert, row, least(height, end - row), first,
                          least(width, last - first));
}
