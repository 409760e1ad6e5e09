/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, plain and per expert: what is packed when, and which thread computes which tiles.
 * fast_gemm.h explains the plan, fast_gemm_tile.c and fast_gemm_pack.c have the inner loops; orders of
 * summation: doc/numerics.md. Ragged buffers: the filled slots of all groups of an expert follow each other
 * without gaps in the packed panels, so a product is as large as the expert has tokens; slots that are not
 * filled are not read. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

/* At most so many rows of A: B is read where it lies, packing it would cost more than it saves. */
#define DIRECT_ROWS (STEP == 1 ? 128 : 0)
/* Rows of A that are few for transposed weights. */
#define FEW_ROWS 64
/* Gradients of weights of more bytes go past the caches: they would not stay there until they are used. */
#define STREAM_BYTES (64 << 20)
/* Panels of B of at most so many words stay in the cache while C is written row by row. */
#define SHALLOW_WORDS (160 * 1024)
/* Blocks of rows that each thread must have so that their rows are reported as they come. */
#define REPORT_BLOCKS 4
/* Rows of C that are reported together: they stay in the L2 cache. */
#define REPORT_BYTES (256 * 1024)
/* A smaller C stays in the caches anyway, and reporting all of it at once leaves them to B while it is
 * computed. */
#define REPORT_LEAST (16 << 20)
/* Words of B that a thread packs at a time where it uses them at once. */
#define OWN_WORDS (96 * 1024)
/* Bytes of the packed columns of a thread, at most, and of those of all threads, where columns can be shared:
 * more would only take each other's cache, and memory. */
#define COPY_BYTES   (16 << 20)
#define COPIES_BYTES (128 << 20)
/* Words of the packed columns of a group with SYCPU_TILES: these read B from the L2 cache for every 32 rows. */
#define NEAR_WORDS (256 * 1024)

/* To a multiple of 64 bytes. */
static int64_t round_floats(int64_t n)
{
    return divide_up(n, 16) * 16;
}

static int pending_tiles(int64_t leaves)
{
    int n = 1;
    for (; leaves > 1; leaves /= 2) n++;
    return n;
}

/* Groups of columns that threads share an expert's C in. A thread packs the rows of A and the columns of B
 * that it needs for itself, so with g groups of c columns, and r rows, t threads pack r g / t rows and c / g
 * columns each. Rows of activations cost more than columns of weights, which stay in the caches of all cores:
 * who computed a row has it near. */
static int64_t column_groups(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t threads = plan->threads / gemm->experts, best = 1;
    int64_t bytes = plan->panels * b_panel_size(plan->steps) * (int64_t)sizeof(float);
    int64_t rows = gemm->form == SYCPU_GEMM_TN ? gemm->rows : 2 * gemm->rows;
    int64_t least_cost = INT64_MAX;
    for (int64_t g = 1; g <= threads; g++) {
        int64_t cost = rows * g / threads + gemm->columns / g;
        int large = !plan->direct && (bytes / g > COPY_BYTES || bytes / g * threads > COPIES_BYTES);
        if (threads % g || (g < threads && large) || cost >= least_cost) continue;
        best = g, least_cost = cost;
    }
    return least(best, plan->panels);
}

/* Whether threads share a product by columns, so that each packs B in parts that it uses at once: of many experts, of int8
 * weights, and of few rows times transposed weights, which as a whole would take longer to pack than to multiply. */
static int takes_columns(const struct sy_call *call, const struct sycpu_gemm *gemm, int threads)
{
    if (sycpu_gemm_is_grouped(call->op) && gemm->experts >= threads) return 1;
    return gemm->scale || (WHOLE == 1 && gemm->form == SYCPU_GEMM_NT && gemm->rows <= FEW_ROWS);
}

static struct sycpu_gemm_plan make_plan(const struct sy_call *call, int threads)
{
    struct sycpu_gemm_plan plan = {
        .gemm = sycpu_gemm_of(call), .threads = threads, .workers = call->workspace};
    const struct sycpu_gemm *gemm = &plan.gemm;
    plan.direct = gemm->form == SYCPU_GEMM_NN && gemm->rows <= DIRECT_ROWS;
    plan.rounded = call->out[0].dtype == SY_BF16;
    plan.in_place = WHOLE > 1 && gemm->form != SYCPU_GEMM_TN && gemm->leaf % 32 == 0 &&
                    gemm->a_width % 32 == 0 && gemm->a_width % 1024 && (uintptr_t)gemm->a % 64 == 0;
    plan.run = gemm->form != SYCPU_GEMM_TN && gemm->leaf % (STEP * WHOLE) ? gemm->leaf : gemm->depth;
    plan.steps = gemm->leaves * steps_of(gemm->depth / gemm->leaves);
    plan.panels = divide_up(gemm->columns, TILE_COLUMNS);
    plan.own = takes_columns(call, gemm, threads) &&
               (gemm->form != SYCPU_GEMM_TN || plan.panels * b_panel_size(plan.steps) <= OWN_WORDS);
    plan.direct &= !plan.own;
    plan.stream = gemm->form == SYCPU_GEMM_TN && !plan.rounded && gemm->columns % TILE_COLUMNS == 0 &&
                  (uintptr_t)gemm->c % 64 == 0 &&
                  gemm->experts * sycpu_gemm_c_size(gemm) > STREAM_BYTES / (int)sizeof(float);
    plan.block_panels = plan.own ? least(OWN_PANELS, divide_up(gemm->rows, TILE_ROWS)) : BLOCK_PANELS;
    plan.group_panels = divide_up(plan.panels, column_groups(&plan));
    if (WHOLE > 1 && gemm->rows >= DIRECT_LEAST)
        plan.group_panels = least(plan.group_panels, NEAR_WORDS / b_panel_size(plan.steps) + 1);
    plan.groups = divide_up(plan.panels, plan.group_panels);
    plan.by_blocks = !plan.own && plan.groups == 1 && gemm->rows >= REPORT_BLOCKS * BLOCK_ROWS * threads &&
                     gemm->rows * gemm->columns * c_element(&plan) >= REPORT_LEAST;
    plan.b_panels = plan.direct ? 1 : plan.group_panels;
    if (plan.own) plan.b_panels = least(plan.panels, OWN_WORDS / b_panel_size(plan.steps) + 1);
    if (plan.own && gemm->form == SYCPU_GEMM_NT)
        plan.turned_rows = least(TURNED_VECTORS, 2 * plan.b_panels) * LANES;
    plan.worker_size = 2 * round_floats(gemm->leaves) + 2 * round_floats(plan.block_panels * TILE_ROWS) +
                       plan.block_panels * a_panel_size(plan.steps) +
                       plan.b_panels * b_panel_size(plan.steps) +
                       (pending_tiles(gemm->leaves) + 1) * TILE_SIZE;
    return plan;
}

/* ---- tiles ---- */

struct sycpu_gemm_worker fast_gemm_make_worker(const struct sycpu_gemm_plan *plan, int thread)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct sycpu_gemm_worker worker = {0};
    float *scratch = plan->workers + thread * plan->worker_size;
    worker.a = scratch;
    worker.b = worker.a + plan->block_panels * a_panel_size(plan->steps);
    worker.pending = worker.b + plan->b_panels * b_panel_size(plan->steps);
    worker.edge = worker.pending + pending_tiles(gemm->leaves) * TILE_SIZE;
    worker.length = (int64_t *)(worker.edge + TILE_SIZE);
    worker.slot = worker.length + round_floats(gemm->leaves);
    return worker;
}

/* Sizes of an expert. */
void fast_gemm_enter_expert(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int tn = gemm->form == SYCPU_GEMM_TN;
    worker->rows = tn ? gemm->rows : fast_gemm_filled_slots(gemm, expert, 0, gemm->groups);
    worker->depth = tn ? fast_gemm_filled_steps(gemm, expert) : plan->steps;
    worker->leaves = worker->depth ? gemm->leaves : 1; /* an empty sum is one empty leaf */
    worker->row_panels = divide_up(worker->rows, TILE_ROWS);
    worker->panel_rows = TILE_ROWS;
    if (plan->own && !tn && worker->rows)
        worker->panel_rows = gemm_height(divide_up(worker->rows, worker->row_panels));
}

void fast_gemm_measure_leaves(const struct sycpu_gemm *gemm, struct sycpu_gemm_worker *worker, int64_t expert)
{
    for (int64_t i = 0; i < worker->leaves; i++)
        worker->length[i] = worker->depth ? steps_of(fast_gemm_leaf_length(gemm, expert, i)) : 0;
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
        .a = worker->a + panel_a * a_panel_size(plan->steps),
        .a_row = a_row_size(plan->steps),
        .b = direct ? (const char *)gemm->b + (expert * sycpu_gemm_b_size(gemm) + column) * b_element(gemm)
                    : (const char *)(worker->b + (panel_b - worker->first_b) * b_panel_size(plan->steps)),
        .b_stride = direct ? gemm->columns : TILE_COLUMNS,
        .scale = direct && gemm->scale ? (const float *)gemm->scale + expert * gemm->columns + column : NULL,
        .steps = plan->steps,
        .pending = worker->pending,
        .c = worker->edge,
        .c_stride = TILE_COLUMNS,
        .how = plan->rounded ? SYCPU_GEMM_ROUND : SYCPU_GEMM_STORE,
        .height = gemm_height(rows),
    };
    const operand *in_place = fast_gemm_in_place(plan, expert, slot, rows);
    if (in_place) {
        tile.a = (const float *)in_place;
        tile.a_row = gemm->a_width / STEP;
    }
    if (worker->direct && whole) {
        tile.next = worker->next_b;
        tile.copy = worker->row_panels > 1 ? worker->b : NULL;
    }
    if (whole && tile.height == rows && slot[rows - 1] - slot[0] == rows - 1) {
        tile.c = (char *)gemm->c +
                 (expert * sycpu_gemm_c_size(gemm) + slot[0] * gemm->columns + column) * c_element(plan);
        tile.c_stride = gemm->columns;
        if (plan->stream) tile.how = SYCPU_GEMM_STREAM;
    }
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
        if (bytes == TILE_COLUMNS * sizeof(float))
            memcpy(c + slot[i] * gemm->columns * size, edge, TILE_COLUMNS * sizeof(float));
        else
            memcpy(c + slot[i] * gemm->columns * size, edge, (size_t)bytes);
    }
}

/* Fetches the rows of C that a tile will write, which are far apart. */
static void fetch_c(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                    int64_t expert, int64_t panel_a, int64_t panel_b, int64_t rows)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t size = c_element(plan), first = panel_b * TILE_COLUMNS,
            bytes = size * least(TILE_COLUMNS, gemm->columns - first);
    const char *c = (const char *)gemm->c + (expert * sycpu_gemm_c_size(gemm) + first) * size;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < bytes; j += 64)
            __builtin_prefetch(c + worker->slot[panel_a * TILE_ROWS + i] * gemm->columns * size + j, 1);
}

#ifndef SYCPU_TILES
static int is_shallow(const struct sycpu_gemm_worker *worker)
{
    return worker->leaves > 1 && worker->leaves <= SHALLOW_LEAVES &&
           worker->depth <= SHALLOW_STEPS * worker->leaves;
}
#endif

void fast_gemm_compute_tile(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t panel_a, int64_t panel_b)
{
    int64_t height = worker->panel_rows, k = 0, rows = least(height, worker->block_rows - panel_a * height);
    struct sycpu_gemm_tile tile = make_tile(plan, worker, expert, panel_a, panel_b, rows);
    if (tile.how != SYCPU_GEMM_STREAM) fetch_c(plan, worker, expert, panel_a, panel_b, rows);
#ifndef SYCPU_TILES
    if (plan->gemm.form == SYCPU_GEMM_TN && !plan->rounded && is_shallow(worker))
        fast_gemm_shallow(&tile, worker->leaves, worker->length);
    else
#endif
        for (int64_t leaf = 0; leaf < worker->leaves; k += worker->length[leaf++])
            fast_gemm_leaf(&tile, leaf, worker->leaves, k, worker->length[leaf]);
    if (tile.c == worker->edge) fast_gemm_copy_edge(plan, worker, expert, panel_a, panel_b, rows);
}

/* Panels of B in a group of columns. */
static int64_t panels_of(const struct sycpu_gemm_plan *plan, int64_t group)
{
    return least(plan->group_panels, plan->panels - group * plan->group_panels);
}

/* Rows [row, end) of a group of columns of an expert, in the order block of rows, panel of B, panel of A; a
 * shallow product, which mostly writes, row by row. Blocks are of equal size. */
static void compute_rows(const struct sy_call *call, struct sycpu_gemm_worker *worker, int64_t expert,
                         int64_t group, int64_t row, int64_t end)
{
    const struct sycpu_gemm_plan *plan = call->plan;
    int64_t left = group * plan->group_panels, panels = panels_of(plan, group);
    int64_t all = divide_up(end - row, TILE_ROWS), block = divide_up(all, divide_up(all, BLOCK_PANELS));
    int64_t unreported = row, bytes = plan->gemm.columns * c_element(plan);
    int by_rows = worker->depth * panels * TILE_COLUMNS <= SHALLOW_WORDS;
#if DIRECT_LEAST
    if (plan->gemm.form == SYCPU_GEMM_NN && worker->rows < DIRECT_LEAST) {
        fast_gemm_compute_direct(plan, worker, expert, row, end, left, panels);
        return;
    }
#endif
    fast_gemm_measure_leaves(&plan->gemm, worker, expert);
    if (!plan->direct)
        fast_gemm_pack_columns(plan, expert, worker, left, panels);
    else if (left + panels == plan->panels && plan->gemm.columns % TILE_COLUMNS)
        fast_gemm_pack_columns(plan, expert, worker, plan->panels - 1, 1);
    for (int64_t rows; row < end; row += rows) {
        rows = least(block * TILE_ROWS, end - row);
        fast_gemm_pack_block(plan, expert, worker, row, rows);
        for (int64_t j = 0, n = divide_up(rows, TILE_ROWS); j < n * panels; j++) {
            int64_t i = by_rows ? j / panels : j % n, panel_b = by_rows ? j % panels : j / n;
            fast_gemm_compute_tile(plan, worker, expert, i, left + panel_b);
        }
        int64_t done = row + rows;
        if (plan->by_blocks && call->rows_done &&
            ((done - unreported) * bytes >= REPORT_BYTES || done == end)) {
            call->rows_done(call->rows_arg, unreported, done);
            unreported = done;
        }
    }
}

/* The share of one thread of the rows that are reported at the end. */
static void report_rows(void *arg, int64_t share, int thread)
{
    const struct sy_call *call = arg;
    const struct sycpu_gemm_plan *plan = call->plan;
    int64_t rows = plan->gemm.rows;
    (void)thread;
    call->rows_done(call->rows_arg, rows * share / plan->threads, rows * (share + 1) / plan->threads);
}

/* The share of one thread: rows of groups of columns that begin in [share, share + 1) / threads of all work,
 * a row weighing its panels of B times their depth. */
static void compute_share(void *arg, int64_t share, int thread)
{
    const struct sy_call *call = arg;
    const struct sycpu_gemm_plan *plan = call->plan;
    struct sycpu_gemm_worker worker = fast_gemm_make_worker(plan, thread);
    int64_t total = 0, base = 0;
    enter_tiles();
    for (int64_t expert = 0; expert < plan->gemm.experts; expert++) {
        fast_gemm_enter_expert(plan, &worker, expert);
        total += worker.rows * plan->panels * (worker.depth + 1);
    }
    int64_t from = total / plan->threads * share + least(share, total % plan->threads);
    int64_t to = from + total / plan->threads + (share < total % plan->threads);
    for (int64_t i = 0; i < plan->gemm.experts * plan->groups && base < to; i++) {
        int64_t expert = i / plan->groups, group = i % plan->groups;
        fast_gemm_enter_expert(plan, &worker, expert);
        int64_t weight = panels_of(plan, group) * (worker.depth + 1), first, end;
        items_between(from, to, base, weight, worker.rows, &first, &end);
        if (first < end) compute_rows(call, &worker, expert, group, first, end);
        base += worker.rows * weight;
    }
    leave_tiles();
    finish_streams();
}

/* ---- the kernel: one for all products, the call says which ---- */

uint64_t fast_product_workspace(const struct sy_call *call, int threads)
{
    struct sycpu_gemm_plan plan = make_plan(call, threads);
    return syi_mul_u64((uint64_t)plan.worker_size, (uint64_t)threads * sizeof(float));
}

int fast_product_prepare(void *context, const struct sy_call *call, void **plan)
{
    struct sycpu_gemm_plan made = make_plan(call, call->host->threads);
    (void)context;
    return sycpu_keep(call, &made, sizeof made, plan);
}

int fast_product(void *context, const struct sy_call *call)
{
    const struct sycpu_gemm_plan *plan = call->plan;
    const struct sycpu_gemm *gemm = &plan->gemm;
    (void)context;
    if (gemm->filled && gemm->form != SYCPU_GEMM_TN)
        sycpu_parallel(call, gemm->experts * gemm->groups, fast_gemm_zero_empty_slots, plan);
    if (plan->own)
        sycpu_parallel(call, plan->threads, fast_gemm_compute_own, plan);
    else
        sycpu_parallel(call, plan->threads, compute_share, call);
    if (call->rows_done && !plan->by_blocks) sycpu_parallel(call, plan->threads, report_rows, call);
    return SY_OK;
}
