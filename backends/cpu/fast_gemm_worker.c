/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's part in a matrix product: its scratch, the sizes of the expert at hand, and one tile of C, from where its operands
 * lie to where it belongs. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#define C_STEPS 1024 /* the last ones of a tile, in which its rows of C are fetched */

struct sycpu_gemm_worker fast_gemm_make_worker(const struct sycpu_gemm_plan *plan, int thread,
                                               struct sycpu_gemm_rest *rest)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct sycpu_gemm_worker worker = {.rest = rest};
    float *scratch = plan->workers + thread * plan->worker_size;
    worker.a = scratch;
    worker.b = worker.a + plan->a_words;
    worker.pending = worker.b + plan->b_words;
    worker.edge = worker.pending + pending_size(plan);
    worker.length = (int64_t *)(worker.edge + TILE_SIZE);
    worker.slot = worker.length + round_floats(gemm->leaves);
    rest->held = rest->row = rest->tile.height = 0;
    return worker;
}

/* Sizes of an expert. */
void fast_gemm_enter_expert(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int tn = gemm->form == SYCPU_GEMM_TN;
    worker->rows = tn ? gemm->rows : fast_gemm_filled_slots(gemm, expert, 0, gemm->groups);
    worker->depth = fast_gemm_filled_steps(gemm, expert);
    worker->leaves = worker->depth ? gemm->leaves : 1; /* an empty sum is one empty leaf */
    worker->row_panels = divide_up(worker->rows, TILE_ROWS);
    worker->from = worker->first_leaf = 0;
    worker->taken = worker->depth;
    worker->end_leaf = worker->leaves;
    worker->begun = worker->open = 0;
    worker->ahead.b = NULL;
    worker->tree = plan->chunk ? plan->tree : 0;
    worker->panel_rows = TILE_ROWS;
    if (plan->own && !tn && worker->rows)
        worker->panel_rows = gemm_height(divide_up(worker->rows, worker->row_panels));
}

void fast_gemm_measure_leaves(const struct sycpu_gemm *gemm, struct sycpu_gemm_worker *worker, int64_t expert)
{
    for (int64_t i = 0; i < worker->leaves; i++)
        worker->length[i] = worker->depth ? steps_of(fast_gemm_leaf_length(gemm, expert, i)) : 0;
}

/* Rows of a panel of A of the block. */
static int64_t rows_of(const struct sycpu_gemm_worker *worker, int64_t panel_a)
{
    return least(worker->panel_rows, worker->block_rows - panel_a * worker->panel_rows);
}

/* Whether tiles that are so written fetch the rows of C that they write. By AVX2 it gained nothing; on matrix tiles weights of experts,
 * which come from memory, would wait behind them. */
static int fetches_c(const struct sycpu_gemm_plan *plan, enum sycpu_gemm_how how)
{
    return !IS_AVX2 && (WHOLE == 1 || !plan->own) && (how == SYCPU_GEMM_STORE || how == SYCPU_GEMM_ROUND);
}

/* Tile of panel_a of the block: goes to C if it fits there and its rows are neighbours, else to scratch. */
static struct sycpu_gemm_tile make_tile(const struct sycpu_gemm_plan *plan,
                                        const struct sycpu_gemm_worker *worker, int64_t expert,
                                        int64_t panel_a, int64_t panel_b, int64_t rows)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel_b * TILE_COLUMNS;
    const int64_t *slot = worker->slot + panel_a * TILE_ROWS;
    int whole = column + TILE_COLUMNS <= gemm->columns, direct = (plan->direct || worker->direct) && whole;
    struct sycpu_gemm_tile tile = {
        .a = worker->a + panel_a * a_panel_size(plan->a_steps),
        .a_row = a_row_size(plan->a_steps),
        .b = direct ? (const char *)gemm->b +
                          (expert * sycpu_gemm_b_size(gemm) + worker->from * gemm->columns + column) *
                              b_element(gemm)
                    : (const char *)(worker->b + (panel_b - worker->first_b) * b_panel_size(plan->steps)),
        .b_stride = direct ? gemm->columns : TILE_COLUMNS,
        .scale = direct && gemm->scale ? (const float *)gemm->scale + expert * gemm->columns + column : NULL,
        .steps = plan->steps,
        .pending =
            worker->pending + worker->tree * ((panel_b - worker->first_panel) * plan->tree_rows + panel_a),
        .c = worker->edge,
        .c_stride = TILE_COLUMNS,
        .how = plan->rounded ? SYCPU_GEMM_ROUND : SYCPU_GEMM_STORE,
        .relu = gemm->relu,
        .height = gemm_height(rows),
        .rest = worker->rest,
        .ahead = worker->ahead,
        .pieces = worker->pieces,
        .a_passes = plan->rows_stay || plan->panels == 1,
        .begun = worker->begun,
        .open = worker->open,
    };
    if (b_in_panels(gemm)) {
        tile.b = b_panel_of(gemm, expert, panel_b);
        tile.b_stride = TILE_COLUMNS;
        if (plan->own && worker->row_panels == 1) tile.next = b_panel_of(gemm, expert, panel_b + 1);
    }
    if (plan->rows_stay) tile.a += worker->from * A_STEP; /* A is packed whole */
    if (!direct && (!plan->blocks || b_in_panels(gemm)))
        tile.b = (const float *)tile.b + worker->from * TILE_COLUMNS;
    const operand *in_place = fast_gemm_in_place(plan, expert, slot, rows);
    if (in_place) {
        tile.a = (const float *)in_place + worker->from;
        tile.a_row = gemm->a_width / STEP;
    }
    if (worker->unpacked && panel_b == worker->first_b) {
        tile.row_stride = gemm->a_width;
        tile.unpacked = worker->unpacked + panel_a * TILE_ROWS * gemm->a_width;
    }
    if (worker->direct && whole) {
        tile.next = worker->next_b;
        tile.copy = worker->row_panels > 1 ? worker->b : NULL;
    }
    if (whole && tile.height == rows && slots_follow(slot, rows)) {
        tile.c = (char *)gemm->c +
                 (expert * sycpu_gemm_c_size(gemm) + slot[0] * gemm->columns + column) * c_element(plan);
        tile.c_stride = gemm->columns;
        if (plan->stream) tile.how = plan->rounded ? SYCPU_GEMM_ROUND_STREAM : SYCPU_GEMM_STREAM;
    }
    tile.fetches_c = fetches_c(plan, tile.how);
    return tile;
}

void fast_gemm_copy_edge(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                         int64_t expert, int64_t panel_a, int64_t panel_b, int64_t rows)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t *slot = worker->slot + panel_a * TILE_ROWS;
    int64_t column = panel_b * TILE_COLUMNS, size = c_element(plan);
    int64_t bytes = size * least(TILE_COLUMNS, gemm->columns - column);
    char *c = (char *)gemm->c + (expert * sycpu_gemm_c_size(gemm) + column) * size;
    const char *edge = (const char *)worker->edge;
    for (int64_t i = 0; i < rows; i++, edge += TILE_COLUMNS * size) {
        char *to = c + slot[i] * gemm->columns * size;
        if (WHOLE > 1 && plan->stream && plan->rounded) /* whole lines */
            vec_stream((float *)to, vec_load((const float *)edge));
        else if (bytes == TILE_COLUMNS * sizeof(float)) /* a size that the compiler knows costs no call */
            memcpy(to, edge, TILE_COLUMNS * sizeof(float));
        else if (bytes == TILE_COLUMNS * sizeof(uint16_t))
            memcpy(to, edge, TILE_COLUMNS * sizeof(uint16_t));
        else
            memcpy(to, edge, (size_t)bytes);
    }
}

/* Fetches rows [first, end) of C that a tile will write, which are far apart. */
ALWAYS_INLINE void fetch_c(const struct sycpu_gemm_plan *plan, int64_t expert, const int64_t *slot,
                           int64_t panel_b, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t size = c_element(plan), column = panel_b * TILE_COLUMNS,
            bytes = size * least(TILE_COLUMNS, gemm->columns - column);
    const char *c = (const char *)gemm->c + (expert * sycpu_gemm_c_size(gemm) + column) * size;
    for (int64_t i = first; i < end; i++)
        for (int64_t j = 0; j < bytes; j += 64) __builtin_prefetch(c + slot[i] * gemm->columns * size + j, 1);
}

/* Leaves of a tile before the last ones, in which rows of C are fetched: fetched earlier they would not stay. */
static int64_t early_leaves(const int64_t *length, int64_t leaves)
{
    int64_t early = leaves - 1;
    for (int64_t steps = length[early]; early > 0 && steps + length[early - 1] <= C_STEPS; early--)
        steps += length[early - 1];
    return early;
}

/* All leaves of a tile, or the part of one. Rows of C are fetched a few before each leaf: all at once they take every buffer of the
 * core for lines from memory, and the first leaf waits for it. */
static void compute_tile(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                         int64_t expert, int64_t panel_a, int64_t panel_b, int64_t rows,
                         const struct sycpu_gemm_tile *tile)
{
    const int whole = worker->end_leaf == worker->leaves && !worker->open; /* C is written */
    const int part = tile->begun || tile->open, fetching = WHOLE == 1 && !IS_AVX2 && whole && tile->fetches_c;
    const int64_t *length = worker->length + worker->first_leaf;
    const int64_t leaves = worker->end_leaf - worker->first_leaf,
                  early = fetching ? early_leaves(length, leaves) : 0;
    const int64_t share = fetching ? divide_up(rows, leaves - early) : 0;
    int done = 0;
#if HAS_WAITING
    if (plan->waits && !worker->tree && (IS_AVX2 || tile->c != worker->edge))
        done = fast_gemm_whole_tile(tile, leaves, length, fetching ? early : leaves, share);
#endif
    for (int64_t i = 0, k = 0, row = 0; !done && i < leaves; k += length[i++]) {
        if (fetching && i >= early) {
            fetch_c(plan, expert, worker->slot + panel_a * TILE_ROWS, panel_b, row, least(row + share, rows));
            row += share;
        }
        fast_gemm_leaf(tile, worker->first_leaf + i, worker->leaves, k, part ? worker->taken : length[i]);
    }
    if (whole && tile->c == worker->edge) {
        fast_gemm_merge_rest(worker->rest);
        fast_gemm_copy_edge(plan, worker, expert, panel_a, panel_b, rows);
    }
}

/* ---- neighbours: to make a tile anew would take up to a tenth of what one of few steps takes ---- */

/* Words from a panel of B to the next. */
static int64_t next_panel(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker)
{
    if (b_in_panels(&plan->gemm)) return SY_PANEL_COLUMNS * plan->gemm.depth / 2;
    return worker->direct ? TILE_COLUMNS : b_panel_size(plan->steps);
}

/* From a whole tile to its right neighbour, whole too. What goes to scratch goes there again. */
static void move_right(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                       struct sycpu_gemm_tile *tile)
{
    tile->b = (const float *)tile->b + next_panel(plan, worker);
    if (tile->c != worker->edge) tile->c = (char *)tile->c + TILE_COLUMNS * c_element(plan);
    tile->pending += worker->tree * plan->tree_rows;
    tile->unpacked = NULL;
    if (tile->next) tile->next = (const float *)tile->next + next_panel(plan, worker);
    tile->ahead.done += worker->taken;
}

#if HAS_SHALLOW
/* Tiles of panel_a and n panels from panel_b on, whose leaves have few steps: all that go to C together. */
static void compute_shallow(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t panel_a, int64_t panel_b, int64_t n)
{
    const int64_t rows = rows_of(worker, panel_a), end = panel_b + n;
    const int64_t whole = least(end, plan->gemm.columns / TILE_COLUMNS);
    for (int64_t tiles; panel_b < end; panel_b += tiles) {
        const struct sycpu_gemm_tile tile = make_tile(plan, worker, expert, panel_a, panel_b, rows);
        const int scratch = tile.c == worker->edge;
        tiles = scratch ? 1 : whole - panel_b;
        fast_gemm_shallow(&tile, worker->leaves, worker->length, tiles);
        if (scratch) fast_gemm_copy_edge(plan, worker, expert, panel_a, panel_b, rows);
    }
}
#endif

void fast_gemm_compute_tiles(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                             int64_t expert, int64_t panel_a, int64_t panel_b, int64_t n)
{
#if HAS_SHALLOW
    if (gemm_is_shallow(&plan->gemm, worker->leaves, worker->depth)) {
        compute_shallow(plan, worker, expert, panel_a, panel_b, n);
        return;
    }
#endif
    const int64_t rows = rows_of(worker, panel_a);
    int64_t whole = plan->direct || worker->direct ? 0 : plan->gemm.columns / TILE_COLUMNS;
    struct sycpu_gemm_tile tile = make_tile(plan, worker, expert, panel_a, panel_b, rows);
    for (int64_t end = panel_b + n; panel_b < end; panel_b++) {
        compute_tile(plan, worker, expert, panel_a, panel_b, rows, &tile);
        if (panel_b + 1 < whole)
            move_right(plan, worker, &tile);
        else if (panel_b + 1 < end)
            tile = make_tile(plan, worker, expert, panel_a, panel_b + 1, rows);
    }
}

void fast_gemm_compute_column(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t panel_b)
{
    const int64_t all = worker->block_rows, *slot = worker->slot;
#if HAS_SHALLOW
    if (gemm_is_shallow(&plan->gemm, worker->leaves, worker->depth)) {
        for (int64_t i = 0; i * TILE_ROWS < all; i++) compute_shallow(plan, worker, expert, i, panel_b, 1);
        return;
    }
#endif
    const int follow = slots_follow(slot, all);
    struct sycpu_gemm_tile tile = make_tile(plan, worker, expert, 0, panel_b, rows_of(worker, 0));
    const int64_t down = fast_gemm_in_place(plan, expert, slot, rows_of(worker, 0))
                             ? TILE_ROWS * tile.a_row
                             : a_panel_size(plan->a_steps);
    for (int64_t panel_a = 0; panel_a * TILE_ROWS < all; panel_a++) {
        const int64_t rows = rows_of(worker, panel_a);
        if (panel_a && follow && rows == TILE_ROWS && tile.c != worker->edge) {
            tile.a += down;
            if (tile.unpacked) tile.unpacked += TILE_ROWS * tile.row_stride;
            tile.c = (char *)tile.c + TILE_ROWS * tile.c_stride * c_element(plan);
            tile.pending += worker->tree;
        } else if (panel_a) {
            tile = make_tile(plan, worker, expert, panel_a, panel_b, rows);
        }
        tile.ahead.done = worker->ahead.done + panel_a * worker->taken;
        compute_tile(plan, worker, expert, panel_a, panel_b, rows, &tile);
    }
}
