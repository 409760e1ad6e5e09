/* SPDX-License-Identifier: Apache-2.0 */
/* x^T y whose leaves have few steps each, by AVX2: what fast_gemm_shallow.c does elsewhere, for which 16 registers are too few. A
 * strip (fast_gemm_strips.h) is as wide as B and the sums stay in the L1 cache. C is written row by row in whole lines, which is what
 * memory takes fastest past the caches. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if HAS_STRIPS
#    include "backends/cpu/fast_gemm_strips.h"

#    define TN_COLUMNS 128

/* Each kind of two leaves is compiled for itself. */
#    define PAIR_KIND(steps, first, to) (((steps)*8 + (first)) * BUFFERS + (to))
#    define PAIR_CASE(steps, first, to)                                                                      \
    case PAIR_KIND(steps, first, to):                                                                        \
        sum_part(part, s, TILE_COLUMNS, TN_COLUMNS, steps, first, 0, to);                                    \
        break;
#    define PAIR_CASES(steps, first)                                                                         \
        PAIR_CASE(steps, first, 1) PAIR_CASE(steps, first, 2) PAIR_CASE(steps, first, 3)
static void compute_pair(const struct part *part, const struct strip *s)
{
    switch (PAIR_KIND(part->steps, part->first, part->to)) {
        PAIR_CASES(0, 0)
        PAIR_CASES(1, 0)
        PAIR_CASES(1, 1)
        PAIR_CASES(2, 0)
        PAIR_CASES(2, 1)
        PAIR_CASES(2, 2)
        PAIR_CASES(3, 0)
        PAIR_CASES(3, 1)
        PAIR_CASES(3, 2)
        PAIR_CASES(3, 3)
    }
}

static void compute_tn_part(const struct part *part, const struct strip *strip)
{
    if (part->first != ONE_LEAF)
        compute_pair(part, strip);
    else
        compute_part(part, strip, TILE_COLUMNS, TN_COLUMNS);
}

/* The parts of gemm_is_shallow leaves, which all strips have in common. */
struct parts {
    struct part part[SHALLOW_LEAVES + SHALLOW_LEAVES * SHALLOW_STEPS / PART_STEPS];
    int n, root;
};

static void list_parts(const struct sycpu_gemm_worker *worker, struct parts *parts)
{
    struct walk walk = walk_of(worker, 1);
    parts->root = walk.root;
    for (parts->n = 0; next_part(&walk); parts->n++) parts->part[parts->n] = walk.part;
}

/* Rows [row, row + STRIP_ROWS) of the block. */
static void compute_tn(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                       int64_t expert, const struct parts *parts, int64_t row, int64_t panel, int64_t panels)
{
    float sums[BUFFERS][STRIP_ROWS][TN_COLUMNS] __attribute__((aligned(64)));
    const int64_t column = panel * TILE_COLUMNS;
    const struct strip strip = {
        .a = worker->a + row / TILE_ROWS * a_panel_size(plan->a_steps) + row % TILE_ROWS,
        .b = worker->b + (panel - worker->first_b) * b_panel_size(plan->steps),
        .b_next = b_panel_size(plan->steps),
        .columns = panels * TILE_COLUMNS,
        .sums = sums[0][0],
    };
    for (int i = 0; i < parts->n; i++) compute_tn_part(&parts->part[i], &strip);
    write_strip(plan, worker, expert, row, sums[parts->root][0], TN_COLUMNS, column,
                least(strip.columns, plan->gemm.columns - column));
}

void fast_gemm_compute_strips(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t panel, int64_t n, int64_t next)
{
    const int64_t end = panel + n, most = TN_COLUMNS / TILE_COLUMNS,
                  strips = divide_up(worker->block_rows, STRIP_ROWS);
    struct parts parts;
    list_parts(worker, &parts);
    for (; panel < end; panel += most, next = plan->gemm.experts)
        for (int64_t i = 0; i < strips; i++) {
            fast_gemm_fetch_rows(&plan->gemm, next, i, strips);
            compute_tn(plan, worker, expert, &parts, i * STRIP_ROWS, panel, least(most, end - panel));
        }
}

#endif
