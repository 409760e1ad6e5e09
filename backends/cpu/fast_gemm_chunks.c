/* SPDX-License-Identifier: Apache-2.0 */
/* Products with the contraction in an outer loop: on matrix tiles, sums over all tokens by AVX2, and contractions as long as a
 * vocabulary everywhere. Else a tile of C walks the whole contraction.
 * But panels of a long one do not fit in a near cache, and from a far one they come slower than tiles take them. Here C is cut into
 * blocks, and a block takes a chunk of the contraction at a time.
 *
 * x w and x w^T on tiles: a block is a panel of rows by a group of columns, whose panels are there. A chunk of the rows fits in the
 * L1 cache; the columns pass it by. It may be a part of a leaf: then the sums so far leave the matrix tiles and come back as
 * they were, which changes no bit. Rows that cannot be read in place are copied chunk by chunk for each group of columns; where
 * they are many and B lies in panels, it is a block of rows that is copied once, whole, and stays in the L2 cache, and B that
 * passes, the next chunk of a panel fetched meanwhile.
 * x^T y: the contraction is all tokens of a batch. A chunk is whole leaves, few enough that what is packed of both operands
 * stays in the L2 cache; the trees over leaves of a block's tiles need not, for a leaf meets them once. By vectors a panel of
 * columns stays in the L1 cache and rows pass it by; by AVX2, where the L2 cache is small, these may come from farther away, and
 * a few panels are packed just before they are used. By AVX-512, where the L1 cache is large (plan->copied), a chunk may be a part of a
 * leaf, and the next one is packed between the steps of tiles (fast_gemm_copied.c).
 * x w and x w^T over a vocabulary (the gradient of what gives logits): like x^T y, but a chunk may be a part of a leaf. A few panels
 * of so many steps fill the L2 cache, so rows would be copied again for every few columns. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

/* The next part of a leaf that is longer than a chunk. */
static void take_part(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t leaf,
                      int64_t left)
{
    worker->begun = left < worker->length[leaf];
    worker->taken = least(left, divide_up(equal_parts(left, plan->chunk), WHOLE) * WHOLE);
    worker->open = worker->taken < left;
    worker->end_leaf = leaf + 1;
}

/* The leaves of a chunk: at least one, and as many as fit. */
static void take_leaves(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t leaf)
{
    worker->begun = worker->open = 0;
    worker->taken = 0;
    do {
        worker->taken += worker->length[leaf++];
    } while (leaf < worker->leaves && worker->taken + worker->length[leaf] <= plan->chunk);
    worker->end_leaf = leaf;
}

int fast_gemm_take_chunk(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int first,
                         int64_t *left)
{
    int64_t leaf = first ? 0 : worker->open ? worker->first_leaf : worker->end_leaf;
    if (leaf == worker->leaves) return 0;
    worker->from = first ? 0 : worker->from + worker->taken;
    if (first || !worker->open) *left = worker->length[leaf];
    worker->first_leaf = leaf;
    if (*left > plan->chunk || *left < worker->length[leaf])
        take_part(plan, worker, leaf, *left);
    else
        take_leaves(plan, worker, leaf);
    *left -= worker->open ? worker->taken : *left;
    return 1;
}

static void compute_block(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                          int64_t expert, const struct sycpu_gemm_block *block)
{
    const int64_t end = block->panel + block->n;
    int64_t left = 0;
    worker->first_panel = block->panel;
    for (int first = 1; fast_gemm_take_chunk(plan, worker, first, &left); first = 0) {
        fast_gemm_pack_block(plan, expert, worker, block->row, block->rows);
        for (int64_t n, panel = block->panel; panel < end; panel += n) {
            n = least(plan->b_panels, end - panel);
            if (plan->blocks) fast_gemm_pack_columns(plan, expert, worker, panel, n);
            for (int64_t i = 0; WHOLE > 1 && i * TILE_ROWS < block->rows; i++)
                fast_gemm_compute_tiles(plan, worker, expert, i, panel, n);
            for (int64_t i = 0; WHOLE == 1 && i < n; i++)
                fast_gemm_compute_column(plan, worker, expert, panel + i);
        }
    }
}

/* Bytes of a panel of B to fetch beside each WHOLE steps of a tile, so that the next chunk is near once `panels` tiles have
 * been computed: in whole lines. */
static int64_t share_of_chunk(int64_t panels)
{
    return divide_up(WHOLE * TILE_COLUMNS * (int64_t)sizeof(float), panels * 64) * 64;
}

/* x w and x w^T with rows that stay. Chunks of a panel follow each other in memory, as do panels. */
static void compute_staying_rows(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                 int64_t expert, const struct sycpu_gemm_block *block)
{
    int64_t left = 0;
    worker->from = 0;
    worker->taken = plan->steps;
    worker->ahead.size = share_of_chunk(divide_up(block->rows, TILE_ROWS));
    fast_gemm_pack_block(plan, expert, worker, block->row, block->rows);
    for (int64_t panel = block->panel; panel < block->panel + block->n; panel++) {
        const float *b = b_panel_of(&plan->gemm, expert, panel);
        worker->first_b = worker->first_panel = panel;
        for (int first = 1; fast_gemm_take_chunk(plan, worker, first, &left); first = 0) {
            worker->ahead.b = (const char *)(b + (worker->from + worker->taken) * TILE_COLUMNS);
            fast_gemm_compute_column(plan, worker, expert, panel);
        }
    }
    worker->ahead.b = NULL;
}

void fast_gemm_compute_chunks(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t panels)
{
    const struct sycpu_gemm_blocks blocks = gemm_blocks(plan, row, end, panel, panels);
    for (int64_t i = 0; i < blocks.all; i++) {
        const struct sycpu_gemm_block block = gemm_block(&blocks, i);
        if (plan->rows_stay)
            compute_staying_rows(plan, worker, expert, &block);
        else
            compute_block(plan, worker, expert, &block);
    }
}
