/* SPDX-License-Identifier: Apache-2.0 */
/* Up to three rows times weights of float32, which nothing reads again, by AVX2: a strip (fast_gemm_strips.h) is wide, so that rows
 * of weights are read in the order they lie in. Tiles would read a line of each. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if HAS_STRIPS
#    include "backends/cpu/fast_gemm_strips.h"

#    define NN_COLUMNS 1024

void fast_gemm_compute_rows(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t n)
{
    float sums[BUFFERS][STRIP_ROWS][NN_COLUMNS] __attribute__((aligned(64)));
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel * TILE_COLUMNS;
    struct strip strip = {
        .a = worker->a, .b_step = gemm->columns, .b_next = TILE_COLUMNS, .sums = sums[0][0]};
    fast_gemm_pack_block(plan, expert, worker, row, end - row);
    for (int64_t left = n * TILE_COLUMNS; left > 0; left -= strip.columns, column += strip.columns) {
        struct walk walk = walk_of(worker, 0);
        strip.columns = least(left, NN_COLUMNS);
        strip.b = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column;
        while (next_part(&walk)) compute_part(&walk.part, &strip, strip.b_step, NN_COLUMNS);
        write_strip(plan, worker, expert, 0, sums[walk.root][0], NN_COLUMNS, column, strip.columns);
    }
}

#endif
