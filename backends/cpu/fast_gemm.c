/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, plain and per expert: what is packed when, and which thread computes which tiles.
 * fast_gemm.h tells the plan, fast_gemm_tile.c and fast_gemm_pack.c have the inner loops; orders of
 * summation: doc/numerics.md. Ragged buffers: the filled slots of all groups of an expert follow each other
 * without gaps in the packed panels, so a product is as large as the expert has tokens; slots that are not
 * filled are not read. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

#define PACK_DEPTH  64                   /* rows of the contraction in one task of packing B */
#define PACK_PANELS (512 / TILE_COLUMNS) /* panels in one task */
/* At most so many rows of A: B is read where it lies, packing it would cost more than it saves. */
#define DIRECT_ROWS 128

struct plan {
    struct sycpu_gemm gemm;
    int direct;           /* 1: full panels of B are not packed */
    int64_t panels;       /* of B for an expert, the last may be narrower */
    int64_t depth_chunks; /* tasks of packing B: experts * depth_chunks * panel_chunks */
    int64_t panel_chunks;
    int64_t b_size;      /* floats of the packed B of an expert */
    int64_t worker_size; /* floats of scratch of a thread */
    int threads;
    float *packed_b; /* [experts, b_size] */
    float *workers;  /* [threads, worker_size] */
};

/* Scratch of a thread while it computes tiles of one expert. */
struct worker {
    int64_t *length; /* [leaves] products in each leaf */
    int64_t *slot;   /* [BLOCK_ROWS] buffer row (or row of C for TN) of each row of the block */
    float *a;        /* [BLOCK_PANELS] packed panels of the block */
    float *pending;  /* tiles of the tree of leaves */
    float *edge;     /* a tile that cannot be written to C directly */
    int64_t rows;    /* of C that the expert has */
    int64_t depth;   /* of the contraction that the expert has */
    int64_t leaves;
    int64_t block_panels; /* panels of A in a block, at most BLOCK_PANELS */
    int64_t row_panels;   /* panels of A in all */
    int64_t block;        /* the block that is packed, -1: none */
};

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

static struct plan make_plan(const struct sy_call *call, int threads)
{
    struct plan plan = {.gemm = sycpu_gemm_of(call), .threads = threads};
    const struct sycpu_gemm *gemm = &plan.gemm;
    int transposed = gemm->form == SYCPU_GEMM_NT;
    plan.direct = gemm->form == SYCPU_GEMM_NN && gemm->rows <= DIRECT_ROWS;
    plan.panels = divide_up(gemm->columns, TILE_COLUMNS);
    plan.panel_chunks = divide_up(plan.panels, transposed ? 1 : PACK_PANELS);
    plan.depth_chunks = divide_up(gemm->depth, transposed ? 4 * PACK_DEPTH : PACK_DEPTH);
    plan.b_size = plan.panels * b_panel_size(gemm->depth);
    plan.worker_size = 2 * round_floats(gemm->leaves) + 2 * round_floats(BLOCK_ROWS) +
                       BLOCK_PANELS * a_panel_size(gemm->depth) +
                       (pending_tiles(gemm->leaves) + 1) * TILE_SIZE;
    plan.packed_b = call->workspace;
    plan.workers = plan.packed_b + gemm->experts * plan.b_size;
    return plan;
}

static uint64_t workspace_bytes(const struct sy_call *call, int threads)
{
    struct plan plan = make_plan(call, threads);
    return sizeof(float) * (uint64_t)(plan.gemm.experts * plan.b_size + threads * plan.worker_size);
}

/* Filled slots of groups [first, end). */
static int64_t filled_slots(const struct sycpu_gemm *gemm, int64_t expert, int64_t first, int64_t end)
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
    int64_t in_group = gemm->filled ? 0 : gemm->groups * gemm->slots,
            slots = gemm->filled ? gemm->slots : in_group;
    if (gemm->filled) {
        while (*skip >= (in_group = sycpu_gemm_filled(gemm, expert, *group))) {
            *skip -= in_group;
            ++*group;
        }
    }
    *row = *group * slots + *skip;
    n = least(n, in_group - *skip);
    *skip += n;
    return n;
}

/* ---- packing B, and zeros for the slots that are not filled ---- */

static void pack_weights(const struct plan *plan, int64_t expert, int64_t k, int64_t n, int64_t panel)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const float *b = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    int64_t panel_size = b_panel_size(gemm->depth), column = panel * TILE_COLUMNS;
    float *to = plan->packed_b + expert * plan->b_size + panel * panel_size + k * TILE_COLUMNS;
    if (gemm->form == SYCPU_GEMM_NT) SYCPU_FAST(gemm_pack_b_rows)
    (b + column * gemm->depth + k, gemm->depth, gemm->columns - column, n, to);
    else SYCPU_FAST(gemm_pack_b_columns)(b + k * gemm->columns + column, gemm->columns, n,
                                         least(gemm->columns - column, PACK_PANELS * TILE_COLUMNS), to,
                                         panel_size);
}

/* Products k .. k + n - 1 of the contraction over filled slots. */
static void pack_slots(const struct plan *plan, int64_t expert, int64_t k, int64_t n, int64_t panel)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const float *b = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    int64_t panel_size = b_panel_size(gemm->depth), column = panel * TILE_COLUMNS, group = 0, skip = k, row;
    float *to = plan->packed_b + expert * plan->b_size + panel * panel_size + k * TILE_COLUMNS;
    while (n > 0) {
        int64_t run = next_run(gemm, expert, n, &group, &skip, &row);
        SYCPU_FAST(gemm_pack_b_columns)
        (b + row * gemm->columns + column, gemm->columns, run,
         least(gemm->columns - column, PACK_PANELS * TILE_COLUMNS), to, panel_size);
        to += run * TILE_COLUMNS;
        n -= run;
    }
}

static void pack_b_task(void *arg, int64_t task, int thread)
{
    const struct plan *plan = arg;
    const struct sycpu_gemm *gemm = &plan->gemm;
    int transposed = gemm->form == SYCPU_GEMM_NT, ragged = gemm->form == SYCPU_GEMM_TN;
    int64_t panel = task % plan->panel_chunks * (transposed ? 1 : PACK_PANELS);
    int64_t k = task / plan->panel_chunks % plan->depth_chunks * (transposed ? 4 * PACK_DEPTH : PACK_DEPTH);
    int64_t expert = task / plan->panel_chunks / plan->depth_chunks;
    int64_t slots = filled_slots(gemm, expert, 0, gemm->groups);
    int64_t n = least((ragged ? slots : gemm->depth) - k, transposed ? 4 * PACK_DEPTH : PACK_DEPTH);
    (void)thread;
    if (slots > 0 && n > 0) (ragged ? pack_slots : pack_weights)(plan, expert, k, n, panel);
}

/* The last panel alone, when the full ones are used where they lie. */
static void pack_last_panel(const struct plan *plan)
{
    for (int64_t expert = 0; expert < plan->gemm.experts; expert++)
        pack_weights(plan, expert, 0, plan->gemm.depth, plan->panels - 1);
}

static void zero_empty_slots(void *arg, int64_t task, int thread)
{
    const struct sycpu_gemm *gemm = &((struct plan *)arg)->gemm;
    int64_t filled = sycpu_gemm_filled(gemm, task / gemm->groups, task % gemm->groups);
    float *c = (float *)gemm->c + (task * gemm->slots + filled) * gemm->columns;
    (void)thread;
    memset(c, 0, sizeof(float) * (gemm->slots - filled) * gemm->columns);
}

/* ---- blocks of A ---- */

/* Which row of the buffer and of C each row of a block is; the rows behind the last repeat it. */
static void locate_rows(const struct sycpu_gemm *gemm, int64_t expert, struct worker *worker, int64_t first,
                        int64_t n)
{
    int64_t done = 0, group = 0, skip = first, row, padded = divide_up(n, TILE_ROWS) * TILE_ROWS;
    while (done < n) {
        int64_t run = next_run(gemm, expert, n - done, &group, &skip, &row);
        while (run-- > 0) worker->slot[done++] = row++;
    }
    for (; done < padded; done++) worker->slot[done] = worker->slot[n - 1];
}

static void pack_block_of_rows(const struct sycpu_gemm *gemm, int64_t expert, struct worker *worker,
                               int64_t first, int64_t n)
{
    const float *a = (const float *)gemm->a + expert * sycpu_gemm_a_size(gemm);
    const float *row[BLOCK_ROWS];
    int64_t padded = divide_up(n, TILE_ROWS) * TILE_ROWS;
    locate_rows(gemm, expert, worker, first, n);
    for (int64_t i = 0; i < padded; i++) row[i] = a + worker->slot[i] * gemm->a_width;
    SYCPU_FAST(gemm_pack_a_rows)(row, padded, gemm->depth, worker->a);
}

static void pack_block_of_columns(const struct sycpu_gemm *gemm, int64_t expert, struct worker *worker,
                                  int64_t first, int64_t n)
{
    const float *a = (const float *)gemm->a + expert * sycpu_gemm_a_size(gemm) + first;
    int64_t group = 0, skip = 0, row, left = worker->depth;
    float *to = worker->a;
    for (int64_t i = 0; i < n; i++) worker->slot[i] = first + i;
    while (left > 0) {
        int64_t run = next_run(gemm, expert, left, &group, &skip, &row);
        SYCPU_FAST(gemm_pack_a_columns)
        (a + row * gemm->a_width, gemm->a_width, run, n, to, a_panel_size(gemm->depth));
        to += run * TILE_ROWS;
        left -= run;
    }
}

/* ---- tiles ---- */

static struct worker make_worker(const struct plan *plan, int thread)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct worker worker = {.block = -1};
    float *scratch = plan->workers + thread * plan->worker_size;
    worker.a = scratch;
    worker.pending = worker.a + BLOCK_PANELS * a_panel_size(gemm->depth);
    worker.edge = worker.pending + pending_tiles(gemm->leaves) * TILE_SIZE;
    worker.length = (int64_t *)(worker.edge + TILE_SIZE);
    worker.slot = worker.length + round_floats(gemm->leaves);
    return worker;
}

/* Sizes of an expert: rows, depth, leaves; blocks of A of equal size. */
static void enter_expert(const struct plan *plan, struct worker *worker, int64_t expert)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t slots = filled_slots(gemm, expert, 0, gemm->groups);
    int ragged = gemm->form == SYCPU_GEMM_TN;
    worker->rows = ragged ? gemm->rows : slots;
    worker->depth = ragged ? slots : gemm->depth;
    worker->leaves = worker->depth ? gemm->leaves : 1; /* an empty sum is one empty leaf */
    worker->row_panels = divide_up(worker->rows, TILE_ROWS);
    worker->block_panels =
        worker->rows ? divide_up(worker->row_panels, divide_up(worker->row_panels, BLOCK_PANELS)) : 1;
    worker->block = -1;
}

static void measure_leaves(const struct sycpu_gemm *gemm, struct worker *worker, int64_t expert)
{
    for (int64_t i = 0; i < worker->leaves; i++) {
        if (!worker->depth)
            worker->length[i] = 0;
        else if (gemm->form != SYCPU_GEMM_TN)
            worker->length[i] = gemm->leaf;
        else
            worker->length[i] = filled_slots(gemm, expert, i * gemm->leaf, (i + 1) * gemm->leaf);
    }
}

static int64_t rows_of_panel(const struct worker *worker, int64_t panel_a)
{
    return least(TILE_ROWS, worker->rows - (worker->block * worker->block_panels + panel_a) * TILE_ROWS);
}

static void enter_block(const struct plan *plan, struct worker *worker, int64_t expert, int64_t block)
{
    int64_t block_rows = worker->block_panels * TILE_ROWS, first = block * block_rows;
    (plan->gemm.form == SYCPU_GEMM_TN ? pack_block_of_columns : pack_block_of_rows)(
        &plan->gemm, expert, worker, first, least(block_rows, worker->rows - first));
    worker->block = block;
}

/* Tile of panel_a of the block: goes to C if it fits there and its rows are neighbours, else to scratch. */
static struct sycpu_gemm_tile make_tile(const struct plan *plan, const struct worker *worker, int64_t expert,
                                        int64_t panel_a, int64_t panel_b)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel_b * TILE_COLUMNS, rows = rows_of_panel(worker, panel_a);
    const int64_t *slot = worker->slot + panel_a * TILE_ROWS;
    int whole = column + TILE_COLUMNS <= gemm->columns, direct = plan->direct && whole;
    struct sycpu_gemm_tile tile = {
        .a = worker->a + panel_a * a_panel_size(gemm->depth),
        .b = direct ? (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column
                    : plan->packed_b + expert * plan->b_size + panel_b * b_panel_size(gemm->depth),
        .b_stride = direct ? gemm->columns : TILE_COLUMNS,
        .pending = worker->pending,
        .c = worker->edge,
        .c_stride = TILE_COLUMNS,
        .height = gemm_height(rows),
    };
    if (whole && tile.height == rows && slot[rows - 1] - slot[0] == rows - 1) {
        tile.c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm) + slot[0] * gemm->columns + column;
        tile.c_stride = gemm->columns;
    }
    return tile;
}

static void copy_edge(const struct plan *plan, const struct worker *worker, int64_t expert, int64_t panel_a,
                      int64_t panel_b)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel_b * TILE_COLUMNS, rows = rows_of_panel(worker, panel_a);
    float *c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm) + column;
    for (int64_t i = 0; i < rows; i++)
        memcpy(c + worker->slot[panel_a * TILE_ROWS + i] * gemm->columns, worker->edge + i * TILE_COLUMNS,
               sizeof(float) * least(TILE_COLUMNS, gemm->columns - column));
}

/* Tiles of panels [first, end) of the block with one panel of B. */
static void compute_tile(const struct plan *plan, const struct worker *worker, int64_t expert,
                         int64_t panel_a, int64_t panel_b)
{
    struct sycpu_gemm_tile tile = make_tile(plan, worker, expert, panel_a, panel_b);
    int64_t k = 0;
    for (int64_t leaf = 0; leaf < worker->leaves; k += worker->length[leaf++])
        SYCPU_FAST(gemm_leaf)(&tile, leaf, worker->leaves, k, worker->length[leaf]);
    if (tile.c == worker->edge) copy_edge(plan, worker, expert, panel_a, panel_b);
}

/* Tiles [first, end) of an expert, in the order block of A, panel of B, panel of A. */
static void compute_tiles(const struct plan *plan, struct worker *worker, int64_t expert, int64_t first,
                          int64_t end)
{
    int64_t tiles_of_block = worker->block_panels * plan->panels;
    measure_leaves(&plan->gemm, worker, expert);
    while (first < end) {
        int64_t block = first / tiles_of_block, in_block = first % tiles_of_block;
        int64_t panels_a = least(worker->block_panels, worker->row_panels - block * worker->block_panels);
        int64_t panel_a = in_block % panels_a, n = least(panels_a - panel_a, end - first);
        if (block != worker->block) enter_block(plan, worker, expert, block);
        for (int64_t i = 0; i < n; i++) compute_tile(plan, worker, expert, panel_a + i, in_block / panels_a);
        first += n;
    }
}

/* The share of one thread: tiles that begin in [share, share + 1) / threads of all work, a tile weighing its
 * depth. */
static void compute_share(void *arg, int64_t share, int thread)
{
    const struct plan *plan = arg;
    struct worker worker = make_worker(plan, thread);
    int64_t total = 0, base = 0;
    for (int64_t expert = 0; expert < plan->gemm.experts; expert++) {
        enter_expert(plan, &worker, expert);
        total += worker.row_panels * (worker.depth + 1);
    }
    total *= plan->panels;
    int64_t from = total / plan->threads * share + least(share, total % plan->threads);
    int64_t to = from + total / plan->threads + (share < total % plan->threads);
    for (int64_t expert = 0; expert < plan->gemm.experts && base < to; expert++) {
        enter_expert(plan, &worker, expert);
        int64_t weight = worker.depth + 1, tiles = worker.row_panels * plan->panels;
        int64_t first = from <= base ? 0 : least(tiles, divide_up(from - base, weight));
        int64_t end = least(tiles, divide_up(to - base, weight));
        if (first < end) compute_tiles(plan, &worker, expert, first, end);
        base += tiles * weight;
    }
}

static int multiply(const struct sy_call *call)
{
    struct plan plan = make_plan(call, call->host->threads);
    const struct sycpu_gemm *gemm = &plan.gemm;
    if (!plan.direct)
        sycpu_parallel(call, gemm->experts * plan.depth_chunks * plan.panel_chunks, pack_b_task, &plan);
    else if (gemm->columns % TILE_COLUMNS)
        pack_last_panel(&plan);
    if (gemm->filled && gemm->form != SYCPU_GEMM_TN)
        sycpu_parallel(call, gemm->experts * gemm->groups, zero_empty_slots, &plan);
    sycpu_parallel(call, plan.threads, compute_share, &plan);
    return SY_OK;
}

/* ---- the ops ---- */

#define DEFINE_OP(name)                                                                                      \
    uint64_t SYCPU_FAST(name##_workspace)(const struct sy_call *call, int threads)                           \
    {                                                                                                        \
        return workspace_bytes(call, threads);                                                               \
    }                                                                                                        \
    int SYCPU_FAST(name)(void *context, const struct sy_call *call)                                          \
    {                                                                                                        \
        (void)context;                                                                                       \
        return multiply(call);                                                                               \
    }

DEFINE_OP(matmul)
DEFINE_OP(matmul_nt)
DEFINE_OP(matmul_tn)
DEFINE_OP(grouped_matmul)
DEFINE_OP(grouped_matmul_nt)
DEFINE_OP(grouped_matmul_tn)
