/* SPDX-License-Identifier: Apache-2.0 */
/* Products of experts that share the work by columns: a thread packs an expert's A once, and B in groups of
 * panels that it uses at once. And zeros for the slots that are not filled. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"
#include "backends/cpu/fast_far.h"

/* Of so few panels of A the first reads B where it lies, while what follows of B is fetched: packing would
 * leave the multipliers idle until memory answers. */
#define FEW_PANELS 6
/* What fetching a panel of B costs, or writing C where nothing is multiplied, in tokens. */
#define READING 4

/* Of bf16, whose words must be made of two rows, those that fast_gemm_compute_pair takes. */
static int64_t few_panels(const struct sycpu_gemm *gemm)
{
    if (STEP == 1) return FEW_PANELS;
    int takes = !gemm->panels && gemm->leaf % STEP == 0 && gemm->columns % TILE_COLUMNS == 0;
    return PAIRED_PANELS && takes ? 2 : 0;
}

/* One panel of B and all panels of A, few: the first reads B where it lies. */
static void compute_panel(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                          int64_t expert, int64_t panel, int last)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t size = b_element(gemm), all = sycpu_gemm_b_size(gemm) * size;
    const char *b = (const char *)gemm->b + expert * all;
    int direct = !gemm->panels && (panel + 1) * TILE_COLUMNS <= gemm->columns &&
                 (!gemm->scale || worker->panel_rows <= INT8_ROWS);
    worker->next_b = !last ? b + (panel + 1) * TILE_COLUMNS * size : expert + 1 < gemm->experts ? b + all : b;
#if PAIRED_PANELS
    /* One panel of float32 reads B once in any case, two vectors at a time. */
    if (direct && !gemm->scale && (worker->row_panels == 2 || (STEP > 1 && worker->row_panels == 1))) {
        fast_gemm_compute_pair(plan, worker, expert, panel);
        return;
    }
#endif
    worker->first_b = panel;
    worker->direct = direct;
    if (!direct) fast_gemm_pack_columns(plan, expert, worker, panel, 1);
    for (int64_t i = 0; i < worker->row_panels; i++, worker->direct = 0)
        fast_gemm_compute_tiles(plan, worker, expert, i, panel, 1);
}

/* Columns [first, end) of an expert, in panels: what is packed of A is used for all of them, what is packed
 * of B is used at once. */
static void compute_columns(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t first, int64_t end)
{
    int64_t block = equal_parts(worker->row_panels, plan->block_panels);
    int few = plan->gemm.form == SYCPU_GEMM_NN && worker->row_panels <= few_panels(&plan->gemm);
#if COLUMN_VECTORS
    if (worker->rows <= plan->column_rows) {
        fast_gemm_compute_columns(plan, worker, expert, first * TILE_COLUMNS,
                                  least(end * TILE_COLUMNS, plan->gemm.columns));
        return;
    }
#endif
#if BROADCAST_VECTORS
    if (worker->rows <= plan->broadcast_rows) {
        fast_gemm_compute_broadcast(plan, worker, expert, first * TILE_COLUMNS, end * TILE_COLUMNS);
        return;
    }
#endif
#if TURNED_VECTORS
    if (worker->rows <= plan->turned_rows) {
        fast_gemm_compute_few(plan, worker, expert, first * TILE_COLUMNS, end * TILE_COLUMNS);
        return;
    }
#endif
#if DIRECT_LEAST
    if (goes_direct(&plan->gemm, worker->rows)) {
        fast_gemm_compute_direct(plan, worker, expert, 0, worker->rows, first, end - first);
        return;
    }
#endif
#ifdef SYCPU_TILES
    if (SY_TRAINING && fast_gemm_compute_tokens(plan, worker, expert, 0, worker->rows, first, end - first))
        return;
#endif
    fast_gemm_measure_leaves(&plan->gemm, worker, expert);
#if HAS_STRIPS
    if (worker->rows <= plan->strip_rows) {
        fast_gemm_compute_rows(plan, worker, expert, 0, worker->rows, first, end - first);
        return;
    }
#endif
#if IS_AVX2
    if (plan->buffered && worker->row_panels <= BUFFERED_PANELS) {
        fast_gemm_compute_buffered(plan, worker, expert, first, end);
        return;
    }
#endif
#if HAS_STREAMED
    if (worker->rows > plan->streamed_over && worker->rows <= plan->streamed_most) {
        fast_gemm_compute_streamed(plan, worker, expert, first, end);
        return;
    }
#endif
    for (int64_t from = 0; from < worker->row_panels; from += block) {
        int64_t n = least(block, worker->row_panels - from), row = from * worker->panel_rows;
        fast_gemm_pack_block(plan, expert, worker, row, least(n * worker->panel_rows, worker->rows - row));
        for (int64_t panel = first; few && panel < end; panel++) {
            fast_gemm_fetch_rows(&plan->gemm, expert + 1, panel - first, end - first);
            compute_panel(plan, worker, expert, panel, panel + 1 == end);
        }
        for (int64_t panel = first; !few && panel < end; panel += plan->b_panels) {
            int64_t columns = least(plan->b_panels, end - panel);
            fast_gemm_pack_columns(plan, expert, worker, panel, columns);
#if HAS_STRIPS
            if (gemm_is_shallow(&plan->gemm, worker->leaves, worker->depth)) {
                const int64_t next = from == 0 && panel == first ? expert + 1 : plan->gemm.experts;
                fast_gemm_compute_strips(plan, worker, expert, panel, columns, next);
                continue;
            }
#endif
            for (int64_t i = 0; i < n; i++) {
                if (from == 0 && panel == first) fast_gemm_fetch_rows(&plan->gemm, expert + 1, i, n);
                fast_gemm_compute_tiles(plan, worker, expert, i, panel, columns);
            }
        }
    }
}

/* Of a panel of B: the tokens it takes part with. */
static int64_t panel_weight(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker)
{
    if (plan->gemm.form == SYCPU_GEMM_TN) return worker->depth * STEP + READING;
    return worker->rows ? worker->rows + READING : 0;
}

/* The share of one thread in panels of B. */
void fast_gemm_compute_own(void *arg, int64_t share, int thread)
{
    const struct sycpu_gemm_plan *plan = arg;
    struct sycpu_gemm_rest rest;
    struct sycpu_gemm_worker worker = fast_gemm_make_worker(plan, thread, &rest);
    int64_t total = 0, base = 0;
    enter_tiles();
    for (int64_t expert = 0; expert < plan->gemm.experts; expert++) {
        fast_gemm_enter_expert(plan, &worker, expert);
        total += panel_weight(plan, &worker) * plan->panels;
    }
    int64_t from = total * share / plan->threads, to = total * (share + 1) / plan->threads;
    for (int64_t expert = 0; expert < plan->gemm.experts && base < to; expert++) {
        fast_gemm_enter_expert(plan, &worker, expert);
        int64_t weight = panel_weight(plan, &worker), first, end;
        if (!weight) continue;
        items_between(from, to, base, weight, plan->panels, &first, &end);
        if (first < end) compute_columns(plan, &worker, expert, first, end);
        base += weight * plan->panels;
    }
    fast_gemm_merge_rest(&rest);
    leave_tiles();
    finish_streams();
}

void fast_gemm_zero_empty_slots(void *arg, int64_t task, int thread)
{
    const struct sycpu_gemm_plan *plan = arg;
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t size = c_element(plan) * gemm->columns, first, rows = sycpu_gemm_empty(gemm, task, &first);
    (void)thread;
    fast_zero_bytes((char *)gemm->c + first * size, rows * size, gemm->experts * gemm->rows * size);
}
