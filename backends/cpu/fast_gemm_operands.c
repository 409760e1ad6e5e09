/* SPDX-License-Identifier: Apache-2.0 */
/* What a product reads, brought into panels: which rows the filled slots of an expert are, its panels of B
 * and the blocks of A that a thread works on. The filled slots of all groups of an expert follow each other
 * without gaps; slots that are not filled are not read. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#define LIST_STEPS  256                         /* steps whose rows are listed together */
#define LIST_PANELS 16                          /* panels of A likewise */
#define PACK_PANELS (512 * STEP / TILE_COLUMNS) /* of B that are written together */

/* Of buffer rows that are fetched while an expert before is computed, at most. */
#define NEAR_BYTES (256 * 1024)

/* Filled slots of groups [first, end). */
int64_t fast_gemm_filled_slots(const struct sycpu_gemm *gemm, int64_t expert, int64_t first, int64_t end)
{
    int64_t n = 0;
    if (!gemm->filled) return (end - first) * gemm->slots;
    for (int64_t group = first; group < end; group++) n += sycpu_gemm_filled(gemm, expert, group);
    return n;
}

/* Filled slots [first, first + n) of an expert as runs of neighbouring buffer rows. Start with group = 0 and
 * skip = first; each call gives the next run, at most n rows, and its length. */
static int64_t next_run(const struct sycpu_gemm *gemm, int64_t expert, int64_t n, int64_t *group,
                        int64_t *skip, int64_t *row)
{
    int64_t in_group = gemm->filled ? 0 : gemm->groups * gemm->slots;
    if (gemm->filled) {
        while (*skip >= (in_group = sycpu_gemm_filled(gemm, expert, *group))) {
            *skip -= in_group;
            ++*group;
        }
    }
    *row = sycpu_gemm_first_row(gemm, expert, *group) + *skip;
    n = least(n, in_group - *skip);
    *skip += n;
    return n;
}

/* Into the L2 cache. */
ALWAYS_INLINE void fetch(const operand *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64 / (int64_t)sizeof *from) __builtin_prefetch(from + i, 0, 2);
}

/* Filled rows of a leaf, TN: its products. */
int64_t fast_gemm_leaf_length(const struct sycpu_gemm *gemm, int64_t expert, int64_t leaf)
{
    if (gemm->form != SYCPU_GEMM_TN) return gemm->leaf;
    return fast_gemm_filled_slots(gemm, expert, leaf * gemm->leaf, (leaf + 1) * gemm->leaf);
}

int64_t fast_gemm_filled_steps(const struct sycpu_gemm *gemm, int64_t expert)
{
    int64_t steps = 0;
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++)
        steps += steps_of(fast_gemm_leaf_length(gemm, expert, leaf));
    return steps;
}

void fast_gemm_fetch_rows(const struct sycpu_gemm *gemm, int64_t expert, int64_t part, int64_t parts)
{
    int64_t n = expert < gemm->experts ? fast_gemm_filled_slots(gemm, expert, 0, gemm->groups) : 0;
    int64_t y_width = gemm->form == SYCPU_GEMM_TN ? gemm->columns : 0;
    int64_t group = 0, skip = n * part / parts, left = n * (part + 1) / parts - skip, row;
    if (n * (gemm->a_width + y_width) * (int64_t)sizeof(operand) > NEAR_BYTES) return;
    const operand *x = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm);
    const operand *y = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    for (int64_t run; left > 0; left -= run) {
        run = next_run(gemm, expert, left, &group, &skip, &row);
        fetch(x + row * gemm->a_width, run * gemm->a_width);
        if (y_width) fetch(y + row * y_width, run * y_width);
    }
}

/* Where rows of weights or filled slots begin that steps [first, first + n) of the contraction take, STEP for
 * each; NULL: there is none. */
static void list_rows(const struct sycpu_gemm *gemm, int64_t expert, const operand *from, int64_t stride,
                      int64_t first, int64_t n, const operand **list)
{
    int64_t leaf = 0, length, begin = 0, group, skip, row;
    while (first >= steps_of(length = fast_gemm_leaf_length(gemm, expert, leaf))) {
        first -= steps_of(length);
        begin += length;
        leaf++;
    }
    for (first *= STEP, n *= STEP; n > 0; first = 0) {
        length = fast_gemm_leaf_length(gemm, expert, leaf++);
        int64_t left = least(n, length - first);
        n -= steps_of(left) * STEP;
        group = 0, skip = begin + first;
        for (int64_t run, none = steps_of(left) * STEP - left; left > 0 || none--; left -= run) {
            run = 1, row = -1;
            if (left > 0 && gemm->form == SYCPU_GEMM_TN)
                run = next_run(gemm, expert, left, &group, &skip, &row);
            else if (left > 0)
                run = left, row = skip;
            for (int64_t i = 0; i < run; i++) *list++ = row < 0 ? NULL : from + (row + i) * stride;
        }
        begin += length;
    }
}

/* ---- panels of B ---- */

/* Of the steps at hand, NN and NT, those from number `done` on whose elements follow each other without padding. */
struct stretch {
    int64_t steps, element, elements; /* element: of the contraction, the first */
};
static struct stretch next_stretch(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                                   int64_t done)
{
    const int64_t whole = steps_of(plan->run), step = worker->from + done, skip = step % whole,
                  steps = least(worker->taken - done, whole - skip);
    return (struct stretch){steps, step / whole * plan->run + skip * STEP,
                            least(steps * STEP, plan->run - skip * STEP)};
}

/* One panel of transposed weights. */
static void pack_transposed(const struct sycpu_gemm_plan *plan, int64_t expert,
                            const struct sycpu_gemm_worker *worker, int64_t panel, float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t column = panel * TILE_COLUMNS;
    const operand *b = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column * gemm->depth;
    struct stretch s;
    for (int64_t k = 0; k < worker->taken; k += s.steps) {
        s = next_stretch(plan, worker, k);
        fast_gemm_pack_b_rows(b + s.element, gemm->depth, gemm->columns - column, s.elements,
                              to + k * TILE_COLUMNS);
    }
}

/* `panels` panels whose rows are rows of weights or filled slots. */
static void pack_straight(const struct sycpu_gemm_plan *plan, int64_t expert,
                          const struct sycpu_gemm_worker *worker, int64_t panel, int64_t panels, float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *row[LIST_STEPS * STEP];
    int64_t panel_size = b_panel_size(plan->steps), column = panel * TILE_COLUMNS;
    const operand *b = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column;
    for (int64_t piece, k = 0; k < worker->taken; k += piece) {
        piece = least(worker->taken - k, LIST_STEPS);
        list_rows(gemm, expert, b, gemm->columns, worker->from + k, piece, row);
        fast_gemm_pack_b_columns(row, piece, least(gemm->columns - column, panels * TILE_COLUMNS),
                                 to + k * TILE_COLUMNS, panel_size);
    }
}

void fast_gemm_pack_columns(const struct sycpu_gemm_plan *plan, int64_t expert,
                            struct sycpu_gemm_worker *worker, int64_t panel, int64_t n)
{
    int64_t most = plan->gemm.form == SYCPU_GEMM_NT ? 1 : PACK_PANELS;
    float *to = worker->b;
    worker->first_b = panel;
    if (b_in_panels(&plan->gemm)) return;
#ifndef SYCPU_PAIRS
    if (plan->gemm.panels) {
        fast_gemm_widen_panels(plan, expert, panel, n, to);
        return;
    }
    if (plan->gemm.scale) {
        fast_gemm_pack_int8(plan, expert, panel, n, to);
        return;
    }
#endif
    for (int64_t panels; n > 0; n -= panels, panel += panels, to += panels * b_panel_size(plan->steps)) {
        panels = least(n, most);
        if (plan->gemm.form == SYCPU_GEMM_NT)
            pack_transposed(plan, expert, worker, panel, to);
        else
            pack_straight(plan, expert, worker, panel, panels, to);
    }
}

/* ---- blocks of A ---- */

/* Which row of the buffer and of C each row of a block is; the rows past the last of a panel repeat it.
 * Returns the rows of all panels. */
static int64_t locate_rows(const struct sycpu_gemm *gemm, int64_t expert, struct sycpu_gemm_worker *worker,
                           int64_t first, int64_t n)
{
    int64_t group = 0, skip = first, row, *slot = worker->slot;
    for (; n > 0; n -= worker->panel_rows) {
        int64_t done = 0, rows = least(n, worker->panel_rows);
        while (done < rows) {
            int64_t run = next_run(gemm, expert, rows - done, &group, &skip, &row);
            while (run-- > 0) slot[done++] = row++;
        }
        for (; done < TILE_ROWS; done++) slot[done] = slot[rows - 1];
        slot += TILE_ROWS;
    }
    return slot - worker->slot;
}

/* Panels of A of the block's rows [first, end), at most LIST_PANELS of them; with SYCPU_TILES those that tiles read in place are left
 * out. */
static void pack_listed_rows(const struct sycpu_gemm_plan *plan, int64_t expert,
                             const struct sycpu_gemm_worker *worker, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *a = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm);
    const operand *row[LIST_PANELS * TILE_ROWS];
    const int64_t n = end - first, *slot = worker->slot + first;
    float *to = worker->a + first / TILE_ROWS * a_panel_size(plan->a_steps);
    struct stretch s;
    for (int64_t i = 0; i < n; i++) row[i] = a + slot[i] * gemm->a_width;
    for (int64_t i = 0; WHOLE > 1 && i < n; i += TILE_ROWS) {
        const int64_t rows = worker->block_rows - (first + i) / TILE_ROWS * worker->panel_rows;
        if (fast_gemm_in_place(plan, expert, slot + i, least(worker->panel_rows, rows))) row[i] = NULL;
    }
    for (int64_t k = 0; k < worker->taken; k += s.steps) {
        s = next_stretch(plan, worker, k);
        fast_gemm_pack_a_rows(row, n, s.element, s.elements, to + k * A_STEP, a_panel_size(plan->a_steps));
    }
}

static void pack_block_of_rows(const struct sycpu_gemm_plan *plan, int64_t expert,
                               struct sycpu_gemm_worker *worker, int64_t first, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const float *a = (const float *)gemm->a + expert * sycpu_gemm_a_size(gemm);
    const int64_t padded = locate_rows(gemm, expert, worker, first, n), most = LIST_PANELS * TILE_ROWS;
    const int unpacked = plan->from_rows && n % 2 == 0 && slots_follow(worker->slot, n);
    worker->unpacked = unpacked ? a + worker->slot[0] * gemm->a_width : NULL;
    for (int64_t i = 0; !unpacked && i < padded; i += most)
        pack_listed_rows(plan, expert, worker, i, least(i + most, padded));
}

static void pack_block_of_columns(const struct sycpu_gemm_plan *plan, int64_t expert,
                                  struct sycpu_gemm_worker *worker, int64_t first, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *a = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm) + first;
    const operand *row[LIST_STEPS * STEP];
    for (int64_t i = 0; i < n; i++) worker->slot[i] = first + i;
    for (int64_t piece, k = 0; k < worker->taken; k += piece) {
        piece = least(worker->taken - k, LIST_STEPS);
        list_rows(gemm, expert, a, gemm->a_width, worker->from + k, piece, row);
        fast_gemm_pack_a_columns(row, piece, n, worker->a + k * A_STEP, a_panel_size(plan->a_steps));
    }
}

void fast_gemm_pack_block(const struct sycpu_gemm_plan *plan, int64_t expert,
                          struct sycpu_gemm_worker *worker, int64_t first, int64_t n)
{
    worker->block_rows = n;
    if (plan->gemm.form == SYCPU_GEMM_TN)
        pack_block_of_columns(plan, expert, worker, first, n);
    else
        pack_block_of_rows(plan, expert, worker, first, n);
}

void fast_gemm_list_slots(const struct sycpu_gemm *gemm, int64_t expert, struct sycpu_gemm_worker *worker)
{
    int64_t done = 0, group = 0, skip = 0, row;
    while (done < worker->rows) {
        int64_t run = next_run(gemm, expert, worker->rows - done, &group, &skip, &row);
        while (run-- > 0) worker->slot[done++] = row++;
    }
}

void fast_gemm_pack_turned(const struct sycpu_gemm_plan *plan, int64_t expert,
                           const struct sycpu_gemm_worker *worker, int64_t first, int width, float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *a = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm), *row[3 * LANES];
    for (int i = 0; i < 3 * LANES; i++)
        row[i] = a + worker->slot[least(first + i, worker->rows - 1)] * gemm->a_width;
    fast_gemm_pack_vectors(row, width, gemm->depth, to);
}

int64_t fast_gemm_pack_parts(const struct sycpu_gemm_plan *plan, int64_t expert,
                             struct sycpu_gemm_worker *worker, int64_t rows, float *to)
{
    const int64_t width = turned_width(rows), size = width * plan->gemm.depth / STEP;
    fast_gemm_list_slots(&plan->gemm, expert, worker);
    for (int64_t i = 0; i * rows < worker->rows; i++)
        fast_gemm_pack_turned(plan, expert, worker, i * rows, (int)width, to + i * size);
    return width;
}
