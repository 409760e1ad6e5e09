/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, plain and per expert: what is packed when, and which thread computes which tiles.
 * fast_gemm.h tells the plan, fast_gemm_tile.c and fast_gemm_pack.c have the inner loops; orders of
 * summation: doc/numerics.md. Ragged buffers: the filled slots of all groups of an expert follow each other
 * without gaps in the packed panels, so a product is as large as the expert has tokens; slots that are not
 * filled are not read. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

#define PACK_DEPTH  64                          /* steps in one task of packing B */
#define PACK_PANELS (512 * STEP / TILE_COLUMNS) /* panels in one task */
#define LIST_STEPS  256                         /* steps whose rows are listed together */
/* At most so many rows of A: B is read where it lies, packing it would cost more than it saves. */
#define DIRECT_ROWS (STEP == 1 ? 128 : 0)
/* Gradients of weights of more bytes go past the caches: they would not stay there until they are used. */
#define STREAM_BYTES (64 << 20)
/* Panels of B of at most so many words stay in the cache while C is written row by row. */
#define SHALLOW_WORDS (160 * 1024)
/* Products of experts: rows of A and words of B that a thread packs for itself. */
#define OWN_PANELS 42
#define OWN_WORDS  (96 * 1024)

struct plan {
    struct sycpu_gemm gemm;
    int direct;           /* 1: full panels of B are not packed */
    int own;              /* 1: a thread takes whole columns of an expert and packs what it needs of B */
    int rounded;          /* 1: C is bf16 */
    int stream;           /* 1: C is written past the caches */
    int64_t run;          /* elements of the contraction that a panel holds without padding between */
    int64_t steps;        /* of the contraction, padding included; TN: at most */
    int64_t panels;       /* of B for an expert, the last may be narrower */
    int64_t block_panels; /* of A that a thread packs together */
    int64_t own_panels;   /* of B likewise */
    int64_t depth_chunks; /* tasks of packing B: experts * depth_chunks * panel_chunks */
    int64_t panel_chunks;
    int64_t b_size;      /* words of the packed B of an expert */
    int64_t packed_size; /* words of all that is packed before the threads share the work */
    int64_t worker_size; /* words of scratch of a thread */
    int threads;
    float *packed_b; /* [experts, b_size] */
    float *workers;  /* [threads, worker_size] */
};

/* Scratch of a thread while it computes tiles of one expert. */
struct worker {
    int64_t *length; /* [leaves] steps in each leaf */
    int64_t *slot;   /* [block_panels * TILE_ROWS] buffer row (or row of C for TN) of each row of the block */
    float *a;        /* [block_panels] packed panels of the block */
    float *b;        /* [own_panels] packed panels of B */
    int64_t first_b; /* number of the first of them */
    float *pending;  /* tiles of the tree of leaves */
    float *edge;     /* a tile that cannot be written to C directly */
    int64_t rows;    /* of C that the expert has */
    int64_t depth;   /* of the contraction that the expert has, in steps */
    int64_t leaves;  /* 1 where the contraction is empty */
    int64_t row_panels;  /* panels of A in all */
    int64_t first_panel; /* of the block */
};

static inline int64_t steps_of(int64_t elements)
{
    return divide_up(elements, STEP);
}

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
    plan.rounded = call->out[0].dtype == SY_BF16;
    plan.run = gemm->form != SYCPU_GEMM_TN && gemm->leaf % STEP ? gemm->leaf : gemm->depth;
    plan.steps = gemm->leaves * steps_of(gemm->depth / gemm->leaves);
    plan.panels = divide_up(gemm->columns, TILE_COLUMNS);
    plan.panel_chunks = divide_up(plan.panels, transposed ? 1 : PACK_PANELS);
    plan.depth_chunks = divide_up(plan.steps, transposed ? 4 * PACK_DEPTH : PACK_DEPTH);
    plan.b_size = plan.panels * b_panel_size(plan.steps);
    plan.own =
        (call->op == SY_OP_GROUPED_MATMUL || call->op == SY_OP_GROUPED_MATMUL_NT) && gemm->experts >= threads;
    plan.direct &= !plan.own;
    plan.stream = gemm->form == SYCPU_GEMM_TN && !plan.rounded && gemm->columns % TILE_COLUMNS == 0 &&
                  (uintptr_t)gemm->c % 64 == 0 &&
                  gemm->experts * sycpu_gemm_c_size(gemm) > STREAM_BYTES / (int)sizeof(float);
    plan.block_panels = plan.own ? least(OWN_PANELS, divide_up(gemm->rows, TILE_ROWS)) : BLOCK_PANELS;
    plan.own_panels = plan.own ? least(plan.panels, OWN_WORDS / b_panel_size(plan.steps) + 1) : 0;
    plan.worker_size = 2 * round_floats(gemm->leaves) + 2 * round_floats(plan.block_panels * TILE_ROWS) +
                       plan.block_panels * a_panel_size(plan.steps) +
                       plan.own_panels * b_panel_size(plan.steps) +
                       (pending_tiles(gemm->leaves) + 1) * TILE_SIZE;
    plan.packed_size = plan.own ? 0 : gemm->experts * plan.b_size;
    return plan;
}

static uint64_t workspace_bytes(const struct sy_call *call, int threads)
{
    struct plan plan = make_plan(call, threads);
    return sizeof(float) * (uint64_t)(plan.packed_size + threads * plan.worker_size);
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

/* Filled rows of a leaf, TN: its products. */
static int64_t leaf_length(const struct sycpu_gemm *gemm, int64_t expert, int64_t leaf)
{
    if (gemm->form != SYCPU_GEMM_TN) return gemm->leaf;
    return filled_slots(gemm, expert, leaf * gemm->leaf, (leaf + 1) * gemm->leaf);
}

static int64_t filled_steps(const struct sycpu_gemm *gemm, int64_t expert)
{
    int64_t steps = 0;
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) steps += steps_of(leaf_length(gemm, expert, leaf));
    return steps;
}

/* Where rows of weights or filled slots begin that steps [first, first + n) of the contraction take, STEP for
 * each; NULL: there is none. */
static void list_rows(const struct sycpu_gemm *gemm, int64_t expert, const operand *from, int64_t stride,
                      int64_t first, int64_t n, const operand **list)
{
    int64_t leaf = 0, length, begin = 0, group, skip, row;
    while (first >= steps_of(length = leaf_length(gemm, expert, leaf))) {
        first -= steps_of(length);
        begin += length;
        leaf++;
    }
    for (first *= STEP, n *= STEP; n > 0; first = 0) {
        length = leaf_length(gemm, expert, leaf++);
        int64_t left = least(n, length - first);
        n -= steps_of(left) * STEP;
        group = 0, skip = begin + first;
        for (int64_t run, odd = left % STEP; left > 0 || odd--; left -= run) {
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

/* ---- packing B, and zeros for the slots that are not filled ---- */

/* Steps k .. k + n - 1 of one panel of transposed weights. */
static void pack_transposed(const struct plan *plan, int64_t expert, int64_t k, int64_t n, int64_t panel,
                            float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel * TILE_COLUMNS, run_steps = steps_of(plan->run);
    const operand *b = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column * gemm->depth;
    for (int64_t piece, end = k + n; k < end; k += piece) {
        int64_t skip = k % run_steps;
        piece = least(end - k, run_steps - skip);
        SYCPU_FAST(gemm_pack_b_rows)
        (b + k / run_steps * plan->run + skip * STEP, gemm->depth, gemm->columns - column,
         least(piece * STEP, plan->run - skip * STEP), to + k * TILE_COLUMNS);
    }
}

/* Steps k .. k + n - 1 of `panels` panels whose rows are rows of weights or filled slots. */
static void pack_straight(const struct plan *plan, int64_t expert, int64_t k, int64_t n, int64_t panel,
                          int64_t panels, float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *row[LIST_STEPS * STEP];
    int64_t panel_size = b_panel_size(plan->steps), column = panel * TILE_COLUMNS;
    const operand *b = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column;
    for (int64_t piece, end = k + n; k < end; k += piece) {
        piece = least(end - k, LIST_STEPS);
        list_rows(gemm, expert, b, gemm->columns, k, piece, row);
        SYCPU_FAST(gemm_pack_b_columns)
        (row, piece, least(gemm->columns - column, panels * TILE_COLUMNS), to + k * TILE_COLUMNS, panel_size);
    }
}

static void pack_b_task(void *arg, int64_t task, int thread)
{
    const struct plan *plan = arg;
    const struct sycpu_gemm *gemm = &plan->gemm;
    int transposed = gemm->form == SYCPU_GEMM_NT;
    int64_t chunk = transposed ? 4 * PACK_DEPTH : PACK_DEPTH;
    int64_t panel = task % plan->panel_chunks * (transposed ? 1 : PACK_PANELS);
    int64_t k = task / plan->panel_chunks % plan->depth_chunks * chunk;
    int64_t expert = task / plan->panel_chunks / plan->depth_chunks;
    int64_t steps = gemm->form == SYCPU_GEMM_TN ? filled_steps(gemm, expert) : plan->steps;
    int64_t n = least(steps - k, chunk);
    float *to = plan->packed_b + expert * plan->b_size + panel * b_panel_size(plan->steps);
    (void)thread;
    if (n <= 0 || filled_slots(gemm, expert, 0, gemm->groups) == 0) return;
    if (transposed)
        pack_transposed(plan, expert, k, n, panel, to);
    else
        pack_straight(plan, expert, k, n, panel, PACK_PANELS, to);
}

/* The last panel alone, when the full ones are used where they lie. */
static void pack_last_panel(const struct plan *plan)
{
    for (int64_t expert = 0; expert < plan->gemm.experts; expert++)
        pack_straight(plan, expert, 0, plan->steps, plan->panels - 1, 1,
                      plan->packed_b + expert * plan->b_size +
                          (plan->panels - 1) * b_panel_size(plan->steps));
}

/* Panels of B of one expert for this thread alone. */
static void pack_own(const struct plan *plan, struct worker *worker, int64_t expert, int64_t panel, int64_t n)
{
    worker->first_b = panel;
    if (plan->gemm.form == SYCPU_GEMM_NN)
        pack_straight(plan, expert, 0, plan->steps, panel, n, worker->b);
    else
        for (int64_t i = 0; i < n; i++)
            pack_transposed(plan, expert, 0, plan->steps, panel + i,
                            worker->b + i * b_panel_size(plan->steps));
}

/* Bytes. */
static int64_t c_element(const struct plan *plan)
{
    return plan->rounded ? 2 : sizeof(float);
}

static void zero_empty_slots(void *arg, int64_t task, int thread)
{
    const struct plan *plan = arg;
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t filled = sycpu_gemm_filled(gemm, task / gemm->groups, task % gemm->groups);
    int64_t size = c_element(plan) * gemm->columns;
    (void)thread;
    memset((char *)gemm->c + (task * gemm->slots + filled) * size, 0, (gemm->slots - filled) * size);
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

static void pack_block_of_rows(const struct plan *plan, int64_t expert, struct worker *worker, int64_t first,
                               int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *a = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm);
    const operand *row[OWN_PANELS * TILE_ROWS];
    int64_t padded = divide_up(n, TILE_ROWS) * TILE_ROWS;
    float *to = worker->a;
    locate_rows(gemm, expert, worker, first, n);
    for (int64_t i = 0; i < padded; i++) row[i] = a + worker->slot[i] * gemm->a_width;
    for (int64_t k = 0; k < gemm->depth; k += plan->run) {
        SYCPU_FAST(gemm_pack_a_rows)(row, padded, k, plan->run, to, a_panel_size(plan->steps));
        to += steps_of(plan->run) * TILE_ROWS;
    }
}

static void pack_block_of_columns(const struct plan *plan, int64_t expert, struct worker *worker,
                                  int64_t first, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *a = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm) + first;
    const operand *row[LIST_STEPS * STEP];
    for (int64_t i = 0; i < n; i++) worker->slot[i] = first + i;
    for (int64_t piece, k = 0; k < worker->depth; k += piece) {
        piece = least(worker->depth - k, LIST_STEPS);
        list_rows(gemm, expert, a, gemm->a_width, k, piece, row);
        SYCPU_FAST(gemm_pack_a_columns)
        (row, piece, n, worker->a + k * TILE_ROWS, a_panel_size(plan->steps));
    }
}

/* ---- tiles ---- */

static struct worker make_worker(const struct plan *plan, int thread)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct worker worker = {0};
    float *scratch = plan->workers + thread * plan->worker_size;
    worker.a = scratch;
    worker.b = worker.a + plan->block_panels * a_panel_size(plan->steps);
    worker.pending = worker.b + plan->own_panels * b_panel_size(plan->steps);
    worker.edge = worker.pending + pending_tiles(gemm->leaves) * TILE_SIZE;
    worker.length = (int64_t *)(worker.edge + TILE_SIZE);
    worker.slot = worker.length + round_floats(gemm->leaves);
    return worker;
}

/* Sizes of an expert. */
static void enter_expert(const struct plan *plan, struct worker *worker, int64_t expert)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int ragged = gemm->form == SYCPU_GEMM_TN;
    worker->rows = ragged ? gemm->rows : filled_slots(gemm, expert, 0, gemm->groups);
    worker->depth = ragged ? filled_steps(gemm, expert) : plan->steps;
    worker->leaves = worker->depth ? gemm->leaves : 1; /* an empty sum is one empty leaf */
    worker->row_panels = divide_up(worker->rows, TILE_ROWS);
}

static void measure_leaves(const struct sycpu_gemm *gemm, struct worker *worker, int64_t expert)
{
    for (int64_t i = 0; i < worker->leaves; i++)
        worker->length[i] = worker->depth ? steps_of(leaf_length(gemm, expert, i)) : 0;
}

/* Tile of panel_a of the block: goes to C if it fits there and its rows are neighbours, else to scratch. */
static struct sycpu_gemm_tile make_tile(const struct plan *plan, const struct worker *worker, int64_t expert,
                                        int64_t panel_a, int64_t panel_b, int64_t rows)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel_b * TILE_COLUMNS;
    const int64_t *slot = worker->slot + panel_a * TILE_ROWS;
    int whole = column + TILE_COLUMNS <= gemm->columns, direct = plan->direct && whole;
    const float *packed = plan->own ? worker->b - worker->first_b * b_panel_size(plan->steps)
                                    : plan->packed_b + expert * plan->b_size;
    struct sycpu_gemm_tile tile = {
        .a = worker->a + panel_a * a_panel_size(plan->steps),
        .b = direct ? (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column
                    : packed + panel_b * b_panel_size(plan->steps),
        .b_stride = direct ? gemm->columns : TILE_COLUMNS,
        .pending = worker->pending,
        .c = worker->edge,
        .c_stride = TILE_COLUMNS,
        .how = plan->rounded ? SYCPU_GEMM_ROUND : SYCPU_GEMM_STORE,
        .height = gemm_height(rows),
    };
    if (whole && tile.height == rows && slot[rows - 1] - slot[0] == rows - 1) {
        tile.c = (char *)gemm->c +
                 (expert * sycpu_gemm_c_size(gemm) + slot[0] * gemm->columns + column) * c_element(plan);
        tile.c_stride = gemm->columns;
        if (plan->stream) tile.how = SYCPU_GEMM_STREAM;
    }
    return tile;
}

static void copy_edge(const struct plan *plan, const struct worker *worker, int64_t expert, int64_t panel_a,
                      int64_t panel_b, int64_t rows)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel_b * TILE_COLUMNS, size = c_element(plan);
    char *c = (char *)gemm->c + (expert * sycpu_gemm_c_size(gemm) + column) * size;
    for (int64_t i = 0; i < rows; i++)
        memcpy(c + worker->slot[panel_a * TILE_ROWS + i] * gemm->columns * size,
               (char *)worker->edge + i * TILE_COLUMNS * size,
               size * least(TILE_COLUMNS, gemm->columns - column));
}

/* Fetches the rows of C that a tile will write, which are far apart. */
static void fetch_c(const struct plan *plan, const struct worker *worker, int64_t expert, int64_t panel_a,
                    int64_t panel_b, int64_t rows)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t size = c_element(plan), first = panel_b * TILE_COLUMNS,
            bytes = size * least(TILE_COLUMNS, gemm->columns - first);
    const char *c = (const char *)gemm->c + (expert * sycpu_gemm_c_size(gemm) + first) * size;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < bytes; j += 64)
            __builtin_prefetch(c + worker->slot[panel_a * TILE_ROWS + i] * gemm->columns * size + j, 1);
}

static void compute_tile(const struct plan *plan, const struct worker *worker, int64_t expert,
                         int64_t panel_a, int64_t panel_b)
{
    int64_t rows = least(TILE_ROWS, worker->rows - (worker->first_panel + panel_a) * TILE_ROWS), k = 0;
    struct sycpu_gemm_tile tile = make_tile(plan, worker, expert, panel_a, panel_b, rows);
    if (tile.how != SYCPU_GEMM_STREAM) fetch_c(plan, worker, expert, panel_a, panel_b, rows);
    for (int64_t leaf = 0; leaf < worker->leaves; k += worker->length[leaf++])
        SYCPU_FAST(gemm_leaf)(&tile, leaf, worker->leaves, k, worker->length[leaf]);
    if (tile.c == worker->edge) copy_edge(plan, worker, expert, panel_a, panel_b, rows);
}

/* Tiles [first, end) of an expert, counted panel of A by panel of A, in the order block of A, panel of B,
 * panel of A; a shallow product, which mostly writes, row by row. Blocks are of equal size. */
static void compute_tiles(const struct plan *plan, struct worker *worker, int64_t expert, int64_t first,
                          int64_t end)
{
    int64_t from = first / plan->panels, to = divide_up(end, plan->panels);
    int64_t block = divide_up(to - from, divide_up(to - from, BLOCK_PANELS));
    int by_rows = worker->depth * plan->panels * TILE_COLUMNS <= SHALLOW_WORDS;
    measure_leaves(&plan->gemm, worker, expert);
    for (; from < to; from += block) {
        int64_t n = least(block, to - from), row = from * TILE_ROWS;
        (plan->gemm.form == SYCPU_GEMM_TN ? pack_block_of_columns : pack_block_of_rows)(
            plan, expert, worker, row, least(n * TILE_ROWS, worker->rows - row));
        worker->first_panel = from;
        for (int64_t j = 0; j < n * plan->panels; j++) {
            int64_t i = by_rows ? j / plan->panels : j % n, panel_b = by_rows ? j % plan->panels : j / n;
            int64_t tile = (from + i) * plan->panels + panel_b;
            if (tile >= first && tile < end) compute_tile(plan, worker, expert, i, panel_b);
        }
    }
}

/* Which of n items that lie behind `base`, each of this weight, begin in [from, to). */
static void items_between(int64_t from, int64_t to, int64_t base, int64_t weight, int64_t n, int64_t *first,
                          int64_t *end)
{
    *first = from <= base ? 0 : least(n, divide_up(from - base, weight));
    *end = least(n, divide_up(to - base, weight));
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
        int64_t weight = worker.depth + 1, tiles = worker.row_panels * plan->panels, first, end;
        items_between(from, to, base, weight, tiles, &first, &end);
        if (first < end) compute_tiles(plan, &worker, expert, first, end);
        base += tiles * weight;
    }
    finish_streams();
}

/* Columns [first, end) of an expert, in panels: what is packed of A is used for all of them, what is packed
 * of B is used at once. */
static void compute_columns(const struct plan *plan, struct worker *worker, int64_t expert, int64_t first,
                            int64_t end)
{
    int64_t block = divide_up(worker->row_panels, divide_up(worker->row_panels, plan->block_panels));
    measure_leaves(&plan->gemm, worker, expert);
    for (int64_t from = 0; from < worker->row_panels; from += block) {
        int64_t n = least(block, worker->row_panels - from), row = from * TILE_ROWS;
        pack_block_of_rows(plan, expert, worker, row, least(n * TILE_ROWS, worker->rows - row));
        worker->first_panel = from;
        for (int64_t panel = first; panel < end; panel += plan->own_panels) {
            int64_t columns = least(plan->own_panels, end - panel);
            pack_own(plan, worker, expert, panel, columns);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < columns; j++) compute_tile(plan, worker, expert, i, panel + j);
        }
    }
}

/* The share of one thread in panels of B, each weighing the tiles it takes part in, and one for packing it.
 */
static void compute_own(void *arg, int64_t share, int thread)
{
    const struct plan *plan = arg;
    struct worker worker = make_worker(plan, thread);
    int64_t total = 0, base = 0;
    for (int64_t expert = 0; expert < plan->gemm.experts; expert++) {
        enter_expert(plan, &worker, expert);
        if (worker.rows) total += (worker.row_panels + 1) * plan->panels;
    }
    int64_t from = total * share / plan->threads, to = total * (share + 1) / plan->threads;
    for (int64_t expert = 0; expert < plan->gemm.experts && base < to; expert++) {
        enter_expert(plan, &worker, expert);
        int64_t weight = worker.row_panels + 1, first, end;
        if (!worker.rows) continue;
        items_between(from, to, base, weight, plan->panels, &first, &end);
        if (first < end) compute_columns(plan, &worker, expert, first, end);
        base += weight * plan->panels;
    }
}

static int multiply(const struct sy_call *call)
{
    struct plan plan = make_plan(call, call->host->threads);
    const struct sycpu_gemm *gemm = &plan.gemm;
    plan.packed_b = call->workspace;
    plan.workers = plan.packed_b + plan.packed_size;
    if (!plan.direct && !plan.own)
        sycpu_parallel(call, gemm->experts * plan.depth_chunks * plan.panel_chunks, pack_b_task, &plan);
    else if (plan.direct && gemm->columns % TILE_COLUMNS)
        pack_last_panel(&plan);
    if (gemm->filled && gemm->form != SYCPU_GEMM_TN)
        sycpu_parallel(call, gemm->experts * gemm->groups, zero_empty_slots, &plan);
    sycpu_parallel(call, plan.threads, plan.own ? compute_own : compute_share, &plan);
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
