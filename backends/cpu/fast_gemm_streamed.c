/* SPDX-License-Identifier: Apache-2.0 */
/* Few rows of an expert times weights that lie in memory row by row. A tile that walks the whole contraction reads a piece of two
 * lines of each row, and memory gives such pieces at a third of its speed. Here some rows of weights are fetched whole, while
 * those before them, which are in the L2 cache by then, are multiplied: all tiles take a part of a leaf, their sums so far leave
 * the registers and come back as they were, which changes no bit. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if HAS_STREAMED

/* Rows that are fetched in turn, a piece of each: memory answers pieces of several pages sooner than as many of one. */
#    define TURN 8

/* So many panels of A share what is fetched, the first. */
static int64_t fetching(int64_t row_panels)
{
    return least(row_panels, 2);
}

/* Columns of weights that take turns with others: panels [first, end) of an expert. */
struct columns {
    int64_t expert, first, end;
};

/* Their rows from row k on, to be fetched beside tiles of so many steps. Such a tile must not begin with some rows and end with others
 * where these take turns. */
static struct sycpu_gemm_ahead rows_from(const struct sycpu_gemm *gemm, const struct columns *columns,
                                         int64_t k, int64_t row_panels, int64_t steps)
{
    const int64_t shares = fetching(row_panels), pieces = (columns->end - columns->first) * shares,
                  element = sizeof(float);
    const int64_t begin =
        columns->expert * sycpu_gemm_b_size(gemm) + k * gemm->columns + columns->first * TILE_COLUMNS;
    return (struct sycpu_gemm_ahead){.b = (const char *)gemm->b + begin * element,
                                     .stride = gemm->columns * element,
                                     .size = TILE_COLUMNS * element / shares,
                                     .pieces = pieces,
                                     .turn = TURN * pieces % steps == 0 ? TURN : 1,
                                     .every = 1};
}

/* Rows [k, k + n) of weights, a part of a leaf: all tiles take them. */
static void compute_part(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                         const struct columns *columns, int64_t k, int64_t n)
{
    const int64_t leaf = plan->gemm.leaf;
    worker->from = k;
    worker->taken = n;
    worker->begun = k % leaf > 0;
    worker->open = k % leaf + n < leaf;
    worker->first_leaf = k / leaf;
    worker->end_leaf = worker->first_leaf + 1;
    fast_gemm_compute_panels(plan, worker, columns->expert, columns->first, columns->end - columns->first,
                             fetching(worker->row_panels));
}

/* All rows of these columns, while the first rows of the next are fetched at last. */
static void compute_columns(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            const struct columns *columns, const struct columns *next)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t rows = equal_parts(gemm->leaf, STREAMED_ROWS);
    worker->first_b = columns->first;
    for (int64_t n, k = 0; k < gemm->depth; k += n) {
        n = least(rows, gemm->leaf - k % gemm->leaf);
        if (k + n < gemm->depth)
            worker->ahead = rows_from(gemm, columns, k + n, worker->row_panels, n);
        else if (next->expert < gemm->experts)
            worker->ahead = rows_from(gemm, next, 0, worker->row_panels, n);
        else
            worker->ahead.b = NULL;
        compute_part(plan, worker, columns, k, n);
    }
}

void fast_gemm_compute_streamed(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                int64_t expert, int64_t first, int64_t end)
{
    const int64_t width = equal_parts(end - first, STREAMED_COLUMNS);
    fast_gemm_pack_block(plan, expert, worker, 0, worker->rows);
    fast_gemm_fetch_rows(&plan->gemm, expert + 1, 0, 1);
    worker->tree = plan->tree;
    worker->direct = 1;
    for (int64_t stop; first < end; first = stop) {
        stop = least(first + width, end);
        struct columns next = {expert, stop, least(stop + width, end)};
        if (stop == end) next = (struct columns){expert + 1, 0, least(width, plan->panels)};
        compute_columns(plan, worker, &(struct columns){expert, first, stop}, &next);
    }
    worker->direct = 0;
}

#endif
