/* SPDX-License-Identifier: Apache-2.0 */
/* Few rows of an expert times weights that lie in memory row by row. A tile that walks the whole contraction reads a piece of two
 * lines of each row, and memory gives such pieces at a third of its speed. Here some rows of weights are read as they lie, while
 * those before them, which are in the L2 cache by then, are multiplied: all tiles take a part of a leaf, their sums so far leave
 * the registers and come back as they were, which changes no bit. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

/* The first panels of A share what is fetched. */
#define FETCHING 2

/* The rows of weights from row k on, panels [first, end): of this expert, or after its last row of the next. */
static struct sycpu_gemm_ahead rows_from(const struct sycpu_gemm *gemm, int64_t expert, int64_t first,
                                         int64_t end, int64_t k, int64_t row_panels)
{
    const int64_t shares = least(row_panels, FETCHING), element = sizeof(float);
    struct sycpu_gemm_ahead ahead = {.stride = gemm->columns * element,
                                     .size = TILE_COLUMNS * element / shares,
                                     .pieces = (end - first) * shares};
    if (k == gemm->depth) expert++, k = first = 0;
    if (expert == gemm->experts) return ahead;
    ahead.b = (const char *)gemm->b +
              (expert * sycpu_gemm_b_size(gemm) + k * gemm->columns + first * TILE_COLUMNS) * element;
    return ahead;
}

/* Rows [k, k + n) of weights, a part of a leaf: all tiles take them. */
static void compute_part(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t expert,
                         int64_t first, int64_t end, int64_t k, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t done = k % gemm->leaf;
    worker->from = k;
    worker->taken = n;
    worker->begun = done > 0;
    worker->open = done + n < gemm->leaf;
    worker->first_leaf = k / gemm->leaf;
    worker->end_leaf = worker->first_leaf + 1;
    worker->ahead = rows_from(gemm, expert, first, end, k + n, worker->row_panels);
    for (int64_t i = 0; i < worker->row_panels; i++) {
        if (i == FETCHING) worker->ahead.b = NULL;
        fast_gemm_compute_tiles(plan, worker, expert, i, first, end - first);
        worker->ahead.done += (end - first) * n;
    }
}

void fast_gemm_compute_streamed(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                int64_t expert, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t rows = equal_parts(gemm->leaf, STREAMED_ROWS);
    fast_gemm_pack_block(plan, expert, worker, 0, worker->rows);
    worker->tree = plan->tree;
    worker->first_b = first;
    worker->direct = 1;
    for (int64_t n, k = 0; k < gemm->depth; k += n) {
        n = least(rows, gemm->leaf - k % gemm->leaf);
        compute_part(plan, worker, expert, first, end, k, n);
        if (k == 0) fast_gemm_fetch_rows(gemm, expert + 1, 0, 1);
    }
    worker->direct = 0;
}
