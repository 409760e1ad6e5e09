/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of experts times weights, by AVX2: weights are packed some rows at a time, into two buffers in turn. While all tiles take
 * what is in one, the rows that follow are copied to the other, a line beside each step of a tile. So memory is read in the order in
 * which weights lie in it, all along and not in turn with multiplying, and tiles find panels. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if IS_AVX2
#    define LINES_AHEAD 32 /* at least so many before it is copied a line is fetched */

/* Weights of an expert: steps [step, step + steps), a part of a leaf, by some panels. */
struct part {
    int64_t expert, step, steps, panel, panels;
};

/* A part that begins at this step: as much of a leaf as a buffer holds. */
static struct part part_from(const struct sycpu_gemm *gemm, struct part part, int64_t step)
{
    part.step = step;
    part.steps = least(equal_parts(gemm->leaf, BUFFERED_STEPS), gemm->leaf - step % gemm->leaf);
    return part;
}

static struct sycpu_gemm_lines lines_of(const struct sycpu_gemm *gemm, const struct part *part, float *buffer)
{
    const float *b = (const float *)gemm->b + part->expert * sycpu_gemm_b_size(gemm);
    return (struct sycpu_gemm_lines){
        .from = b + part->step * gemm->columns + part->panel * TILE_COLUMNS,
        .to = buffer,
        .ahead = divide_up(LINES_AHEAD, greatest(1, part->panels)) * gemm->columns,
        .stride = gemm->columns,
        .panels = part->panels,
        .in_row = part->panels,
        .left = part->panels * part->steps,
    };
}

/* All lines that are left. */
static void copy_lines(struct sycpu_gemm_lines lines)
{
    for (; lines.left > 0; lines.left--) copy_line(&lines);
}

static float *buffer_of(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                        int buffer)
{
    return worker->b + buffer * buffer_size(plan);
}

/* A tile's tree over leaves, whose first place has the sum at last. */
static float *tree_of(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                      int64_t panel_a, int64_t panel)
{
    return worker->pending + (panel * worker->row_panels + panel_a) * plan->tree;
}

static int64_t rows_of(const struct sycpu_gemm_worker *worker, int64_t panel_a)
{
    return least(worker->panel_rows, worker->rows - panel_a * worker->panel_rows);
}

/* All tiles of a part, which is in `buffer`, and `lines` beside them. */
static void compute_part(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                         const struct part *part, const float *buffer, struct sycpu_gemm_lines lines)
{
    const int64_t leaf = plan->gemm.leaf;
    struct sycpu_gemm_tile tile = {.b_stride = TILE_COLUMNS,
                                   .c_stride = TILE_COLUMNS,
                                   .how = SYCPU_GEMM_STORE,
                                   .begun = part->step % leaf > 0,
                                   .open = (part->step + part->steps) % leaf > 0};
    for (int64_t i = 0; i < part->panels; i++) {
        tile.b = buffer + i * b_panel_size(BUFFERED_STEPS);
        for (int64_t panel_a = 0; panel_a < worker->row_panels; panel_a++) {
            tile.lines = panel_a == 0 && lines.left >= part->steps ? &lines : NULL;
            tile.a = worker->a + panel_a * a_panel_size(plan->a_steps) + part->step * TILE_ROWS;
            tile.height = gemm_height(rows_of(worker, panel_a));
            tile.c = tile.pending = tree_of(plan, worker, panel_a, i);
            fast_gemm_leaf(&tile, part->step / leaf, worker->leaves, 0, part->steps);
        }
    }
    copy_lines(lines);
}

/* The sums to C, row by row. */
static void write_rows(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                       const struct part *part)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t c = part->expert * sycpu_gemm_c_size(gemm) + part->panel * TILE_COLUMNS;
    for (int64_t panel_a = 0; panel_a < worker->row_panels; panel_a++)
        for (int64_t row = 0; row < rows_of(worker, panel_a); row++) {
            int64_t to = c + worker->slot[panel_a * TILE_ROWS + row] * gemm->columns;
            for (int64_t i = 0; i < part->panels; i++, to += TILE_COLUMNS) {
                const float *sum = tree_of(plan, worker, panel_a, i) + row * TILE_COLUMNS;
                fast_gemm_put(plan, to, vec_load(sum));
                fast_gemm_put(plan, to + LANES, vec_load(sum + LANES));
            }
        }
}

/* All rows by some columns, of which `part` is the first. With the last the first part of `next` is copied, which may be empty. */
static void compute_columns(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            struct part part, const struct part *next)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct sycpu_gemm_held *held = &worker->held;
    if (held->expert != part.expert || held->panel != part.panel || held->panels != part.panels)
        copy_lines(lines_of(gemm, &part, buffer_of(plan, worker, held->buffer)));
    for (int last = 0; !last; held->buffer = !held->buffer) {
        last = part.step + part.steps == gemm->depth;
        const struct part after = last ? *next : part_from(gemm, part, part.step + part.steps);
        compute_part(plan, worker, &part, buffer_of(plan, worker, held->buffer),
                     lines_of(gemm, &after, buffer_of(plan, worker, !held->buffer)));
        if (last) write_rows(plan, worker, &part);
        part = after;
    }
    held->expert = part.expert, held->panel = part.panel, held->panels = part.panels;
}

void fast_gemm_compute_buffered(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                int64_t expert, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t most = least(BUFFERED_COLUMNS, plan->tree_panels / worker->row_panels),
                  width = equal_parts(end - first, most);
    fast_gemm_pack_block(plan, expert, worker, 0, worker->rows);
    fast_gemm_fetch_rows(gemm, expert + 1, 0, 1);
    for (int64_t stop; first < end; first = stop) {
        stop = least(first + width, end);
        const struct part part = {.expert = expert, .panel = first, .panels = stop - first};
        struct part next = {.expert = expert, .panel = stop, .panels = least(width, end - stop)};
        if (stop == end)
            next = (struct part){.expert = expert + 1,
                                 .panels = expert + 1 < gemm->experts ? least(width, plan->panels) : 0};
        next = part_from(gemm, next, 0);
        compute_columns(plan, worker, part_from(gemm, part, 0), &next);
    }
}
#endif
