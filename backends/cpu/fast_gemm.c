/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, plain and per expert: what is packed when, and which thread computes which tiles.
 * fast_gemm_parts.h explains the plan, fast_gemm_worker.c computes a tile, fast_gemm_tile.c and fast_gemm_pack.c have the
 * inner loops; orders of summation: doc/numerics.md. Ragged buffers: the filled slots of all groups of an expert follow each other
 * without gaps in the packed panels, so a product is as large as the expert has tokens; slots that are not
 * filled are not read. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

/* At most so many rows of A: B is read where it lies, packing it would cost more than it saves. */
#define DIRECT_ROWS (STEP == 1 ? 128 : 0)
/* Rows of A that are few for transposed weights. */
#define FEW_ROWS 64
/* Results of more bytes may go past the caches: they would not stay there until they are used, and tiles would wait for
 * room for them. */
#define STREAM_BYTES (WHOLE > 1 ? 4 << 20 : 64 << 20)
/* Panels of B of at most so many words stay in the cache while C is written row by row; so many where tiles copy the rows of A, for the
 * more of them need not stay as well. */
#define SHALLOW_WORDS     (160 * 1024)
#define COPIED_ROWS_WORDS (384 * 1024)
/* Words of B that a thread packs at a time where it uses them at once, and of sums over few tokens, which read B so often that
 * it should lie in the L1 cache. */
#define OWN_WORDS     (96 * 1024)
#define NEAREST_WORDS (8 * 1024)
/* Bytes of the packed columns of a thread, at most, and of those of all threads, where columns can be shared:
 * more would only take each other's cache, and memory. */
#define COPY_BYTES   (16 << 20)
#define COPIES_BYTES (128 << 20)
/* Columns of B that are read where they lie cost so many times less than those that are packed. */
#define READ_COLUMNS 8
/* Packed columns of more words are taken in groups of so many, and of so many panels at least, for they would come from memory for
 * each block of rows; rows are packed for each group. */
#define LARGE_WORDS   (8 << 20)
#define PASSED_WORDS  (1 << 20)
#define PASSED_PANELS 32
/* Words of the packed columns of a group with SYCPU_TILES, which read B from the L2 cache for every 32 rows; where rows of A are
 * copied, once for each group. */
#define NEAR_WORDS   (128 * 1024)
#define COPIED_WORDS (256 * 1024)
/* Or words of rows of A that are copied once and stay in the L2 cache while B passes; so many panels of them for each thread pay. */
#define STAYING_WORDS  (160 * 1024)
#define STAYING_PANELS 4
/* Words of the packed rows of A that a thread keeps from one group of columns to the next, at most: with SYCPU_TILES turning
 * x takes a large part of the time of x^T y. */
#define KEPT_WORDS (1024 * 1024)
/* With SYCPU_TILES: steps of a chunk of the contraction of x w and x w^T, of which a panel of rows fits in the L1 cache. */
#define NEAR_STEPS 256
/* The same of x^T y, by AVX2 as well, steps of one leaf at most, rows and panels of columns of a block of C, how many of these panels
 * are packed at a time, and how many chunks pay at least. */
#define CHUNK_STEPS  256
#define LEAF_STEPS   512
#define CHUNK_ROWS   (IS_AVX2 ? 1024 : 512)
#define CHUNK_WIDTH  (IS_AVX2 ? 32 : 16)
#define CHUNK_PANELS (IS_AVX2 ? 4 : 16)
#define CHUNKS_LEAST 3
/* Of x^T y by AVX-512: panels of columns of a block, most columns, least steps, where the L2 cache is large and where it is not, for
 * then fewer fit in it; and these where C has few elements. */
#define COPIED_PANELS         8
#define COPIED_COLUMNS        4096
#define COPIED_STEPS          2048
#define COPIED_STEPS_SMALL_L2 768
#define COPIED_FEW            (512 * 512)
#define COPIED_FEW_STEPS      512
/* Contractions of x w and x w^T of so many steps are taken so as well: tiles wait for far operands earlier than vectors. */
#define LONG_STEPS (WHOLE > 1 ? 4096 : 12288)

/* Rows of an expert times its transposed weights, at most, that fast_gemm_compute_columns takes on cores as said at AHEAD_L1 without a
 * large L2 cache: COLUMN_ROWS, but where rows of weights lie a multiple of COLUMN_SET apart. */
#define COLUMN_ROWS_IN_SET 12

static int has_large_l2(void)
{
    return sycpu_l2_bytes() >= LARGE_L2;
}

/* Groups of columns that threads share an expert's C in. A thread packs the rows of A and the columns of B
 * that it needs for itself, so with g groups of c columns, and r rows, t threads pack r g / t rows and c / g
 * columns each. Rows of activations cost more than columns of weights, which stay in the caches of all cores:
 * who computed a row has it near. So rows stay with their thread, also where few tokens are decoded. Rows that tiles copy cost as much
 * as columns. */
static int64_t column_groups(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t threads = plan->threads / gemm->experts, best = 1;
    int64_t bytes = plan->panels * b_panel_size(plan->steps) * (int64_t)sizeof(float);
    int64_t rows = gemm->form == SYCPU_GEMM_TN || plan->from_rows ? gemm->rows : 2 * gemm->rows;
    int64_t least_cost = INT64_MAX;
    int packed = !plan->direct && !b_in_panels(gemm);
    for (int64_t g = 1; g <= threads; g++) {
        int64_t cost = rows * g / threads + gemm->columns / g / (packed ? 1 : READ_COLUMNS);
        int large = packed && (bytes / g > COPY_BYTES || bytes / g * threads > COPIES_BYTES);
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

/* Whether the contraction of x w or x w^T is so long, as that over a vocabulary, that a few panels fill the L2 cache. Weights in
 * panels have no padding between leaves. */
static int is_long(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int fits = b_in_panels(gemm) ? plan->run == gemm->depth : !gemm->panels && !gemm->scale;
    return gemm->form != SYCPU_GEMM_TN && fits && !plan->direct && plan->steps >= LONG_STEPS;
}

/* Whether the next chunk of x^T y is packed meanwhile: of so many steps, for of fewer, or of more columns, it gains nothing; of a row
 * as long as the vectors that copy it. */
static int copies_chunks(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t least_steps = gemm->rows * gemm->columns <= COPIED_FEW ? COPIED_FEW_STEPS
                                : has_large_l2()                         ? COPIED_STEPS
                                                                         : COPIED_STEPS_SMALL_L2;
    return plan->ahead && gemm->form == SYCPU_GEMM_TN && !gemm->filled && gemm->leaf % STEP == 0 &&
           plan->steps >= least_steps && gemm->rows >= LANES && gemm->columns % TILE_COLUMNS == 0 &&
           gemm->columns <= COPIED_COLUMNS;
}

/* Steps of a chunk where chunks of the contraction are an outer loop (fast_gemm_chunks.c), else 0. Tiles
 * take operands so fast that they wait for all that does not come from a near cache. Vectors wait where panels are many times
 * the L1 cache, that is for sums over all tokens; gradients of experts are of few. */
static int64_t chunk_of(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    if (is_long(plan)) return CHUNK_STEPS;
    if (gemm->form != SYCPU_GEMM_TN) /* leaves that are padded do not lie where the others would */
        return WHOLE > 1 && plan->run == gemm->depth && plan->steps > NEAR_STEPS ? NEAR_STEPS : 0;
    const int64_t leaf = plan->steps / gemm->leaves;
    if (plan->copied) return CHUNK_STEPS;
    if (!CHUNKED_SUMS || gemm->filled || plan->steps <= CHUNKS_LEAST * CHUNK_STEPS || leaf > LEAF_STEPS)
        return 0;
    return leaf < CHUNK_STEPS ? CHUNK_STEPS : leaf;
}

/* With SYCPU_TILES and chunks: whether rows stay near, for they would be copied for each group of columns, and not B, which needs no
 * packing. */
static int rows_stay(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    return plan->chunk && !plan->blocks && b_in_panels(gemm) && !plan->in_place &&
           gemm->rows >= STAYING_PANELS * TILE_ROWS * plan->threads;
}

/* With SYCPU_TILES: tokens of an expert that are few for tiles, TN; 0: it has too many leaves, or part of a panel. */
static int64_t few_tokens(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    if (gemm->form != SYCPU_GEMM_TN || !gemm->filled || gemm->columns % TILE_COLUMNS) return 0;
    return gemm->leaves > SHALLOW_LEAVES ? 0 : gemm->leaves * SHALLOW_TOKENS;
}

/* Whether it is x w of experts, of weights that fill panels, with a partner for each element of bf16. */
static int is_plain_nn(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    return plan->own && gemm->form == SYCPU_GEMM_NN && !gemm->scale && !gemm->panels &&
           gemm->columns % TILE_COLUMNS == 0 && gemm->leaf % STEP == 0;
}

/* Whether C is written past the caches, if it is large, for its lines would have to be read from memory before they are written:
 * floats, on matrix tiles those of gradients alone; and bf16 that tiles compute of experts, between whose weights they would be read. */
static int goes_past_caches(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int takes = plan->rounded ? WHOLE > 1 && plan->own && gemm->form != SYCPU_GEMM_TN
                                    : WHOLE == 1 || gemm->form == SYCPU_GEMM_TN;
    return takes && gemm->columns % TILE_COLUMNS == 0 && (uintptr_t)gemm->c % 64 == 0 &&
           gemm->experts * sycpu_gemm_c_size(gemm) * c_element(plan) > STREAM_BYTES;
}

/* Rows of an expert that are few for strips, NN: of float32, in whole panels. With chunks there is no room for whole rows. */
static int64_t strip_rows(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int takes =
        HAS_STRIPS && gemm->form == SYCPU_GEMM_NN && !gemm->scale && !gemm->panels && !plan->chunk;
    return takes && gemm->columns % TILE_COLUMNS == 0 && gemm->leaves <= SHALLOW_LEAVES ? STRIP_ROWS : 0;
}

/* Rows of an expert whose weights are read row by row. Of bf16 beside a large L2 cache, where tiles take them, it was not measured. */
static void plan_streamed(struct sycpu_gemm_plan *plan)
{
    if (!HAS_STREAMED || !plan->ahead || !is_plain_nn(plan)) return;
    const int large = has_large_l2();
    if (STEP > 1 && large) return;
    plan->streamed_over = large || STEP > 1 ? 0 : TILE_ROWS;
    plan->streamed_most = large ? STREAMED_ROWS : STREAMED_HEIGHT;
}

/* Which tiles' trees over leaves grow together: those of a block, in chunks, or of some columns of an expert, buffered. */
static void plan_trees(struct sycpu_gemm_plan *plan)
{
    /* Weights of experts of few rows are packed into two buffers, or read row by row where the processor has the cache for it. */
    plan->buffered = BUFFERED_PANELS && is_plain_nn(plan);
    plan_streamed(plan);
    if (!plan->chunk && !plan->buffered) return;
    plan->tree = pending_tiles(plan->gemm.leaves) * TILE_SIZE;
    if (plan->buffered) {
        plan->tree_rows = 1;
        plan->tree_panels = greatest(BUFFERED_PANELS, BUFFERED_SUMS / plan->tree);
        return;
    }
    plan->tree_rows = plan->block_panels;
    plan->tree_panels = plan->width;
}

/* Words for what a thread packs of A; where it has few rows or tokens of an expert, these as float32. */
static int64_t a_words_of(const struct sycpu_gemm_plan *plan)
{
    const int64_t words = plan->block_panels * a_panel_size(plan->a_steps),
                  rows = plan->gemm.form == SYCPU_GEMM_NN ? round_floats(DIRECT_LEAST * plan->gemm.depth) : 0,
                  panels = plan->tokens ? divide_up(plan->gemm.rows, SHALLOW_ROWS) : 0;
    if (plan->streamed_most)
        return greatest(words, round_floats(streamed_rows(plan) * plan->gemm.depth / STEP));
    return greatest(words, greatest(rows, panels * a_token_panel(plan->tokens)));
}

/* Rows of an expert times transposed weights that are few for fast_gemm_compute_columns. */
static int64_t column_rows(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t room = plan->b_words * STEP / gemm->depth / LANES,
                  rows = least(COLUMN_VECTORS, room) * LANES;
    if (gemm->scale || gemm->leaf % (LANES * STEP) || gemm->columns % LANES) return 0;
    if (STEP > 1 || !plan->ahead || has_large_l2()) return rows;
    return least(rows, gemm->depth % COLUMN_SET ? COLUMN_ROWS : COLUMN_ROWS_IN_SET);
}

/* Words of B that a thread packs at a time, with plan->own. */
static int64_t own_words(const struct sycpu_gemm_plan *plan)
{
    const int shallow = gemm_is_shallow(&plan->gemm, plan->gemm.leaves, plan->steps);
    return WHOLE == 1 && shallow ? NEAREST_WORDS : OWN_WORDS;
}

/* Groups of columns: what threads share C by, and with SYCPU_TILES what of B stays near. */
static void plan_groups(struct sycpu_gemm_plan *plan)
{
    plan->group_panels = divide_up(plan->panels, column_groups(plan));
    if (WHOLE > 1 && plan->gemm.rows >= DIRECT_LEAST && !plan->rows_stay && !plan->blocks) {
        const int64_t near = plan->in_place ? NEAR_WORDS : COPIED_WORDS;
        plan->group_panels = least(plan->group_panels, near / b_panel_size(plan->steps) + 1);
    }
    if (WHOLE == 1 && !plan->own && !plan->direct && !plan->blocks &&
        plan->group_panels * b_panel_size(plan->steps) > LARGE_WORDS)
        plan->group_panels =
            least(plan->group_panels, greatest(PASSED_PANELS, PASSED_WORDS / b_panel_size(plan->steps) + 1));
    plan->groups = divide_up(plan->panels, plan->group_panels);
}

/* Panels of A and of B that a thread takes together. */
static void plan_blocks(struct sycpu_gemm_plan *plan)
{
    const int64_t row_panels = divide_up(plan->gemm.rows, TILE_ROWS);
    plan->kept = WHOLE > 1 && plan->gemm.form == SYCPU_GEMM_TN && !plan->own && !plan->chunk &&
                 plan->groups > 1 && row_panels * a_panel_size(plan->steps) <= KEPT_WORDS;
    plan->block_panels = plan->kept ? row_panels : BLOCK_PANELS;
    plan->b_panels = plan->direct ? 1 : plan->group_panels;
    if (plan->own) {
        plan->block_panels = least(OWN_PANELS, row_panels);
        plan->b_panels = least(plan->panels, own_words(plan) / b_panel_size(plan->steps) + 1);
    } else if (plan->rows_stay) {
        plan->block_panels = least(OWN_PANELS, greatest(1, STAYING_WORDS / a_panel_size(plan->steps)));
        plan->b_panels = 1;
    } else if (plan->blocks) {
        const int64_t share = divide_up(plan->gemm.rows * plan->gemm.experts * plan->groups, plan->threads);
        plan->block_panels = least(CHUNK_ROWS / TILE_ROWS, row_panels);
        if (IS_AVX2) /* where blocks are large: no more than a thread has */
            plan->block_panels = least(plan->block_panels, share / TILE_ROWS + 1);
        plan->width = least(plan->copied ? COPIED_PANELS : CHUNK_WIDTH, plan->group_panels);
        plan->b_panels = least(CHUNK_PANELS, plan->width);
    }
    if (!plan->blocks) plan->width = plan->b_panels;
}

static struct sycpu_gemm_plan make_plan(const struct sy_call *call, int threads)
{
    struct sycpu_gemm_plan plan = {
        .gemm = sycpu_gemm_of(call), .threads = threads, .workers = call->workspace};
    const struct sycpu_gemm *gemm = &plan.gemm;
    plan.direct = gemm->form == SYCPU_GEMM_NN && !gemm->panels && gemm->rows <= DIRECT_ROWS;
    plan.rounded = call->out[0].dtype == SY_BF16;
    plan.ahead = HAS_AHEAD && sycpu_l1_bytes() >= AHEAD_L1;
    plan.waits = (STEP == 1 && plan.ahead) || IS_AVX2;
    plan.in_place = WHOLE > 1 && gemm->form != SYCPU_GEMM_TN && gemm->leaf % 32 == 0 &&
                    gemm->a_width % 32 == 0 && gemm->a_width % 1024 && (uintptr_t)gemm->a % 64 == 0;
    plan.run = gemm->form != SYCPU_GEMM_TN && gemm->leaf % (STEP * WHOLE) ? gemm->leaf : gemm->depth;
    plan.steps = gemm->leaves * steps_of(gemm->depth / gemm->leaves);
    plan.panels = divide_up(gemm->columns, TILE_COLUMNS);
    plan.own = takes_columns(call, gemm, threads) &&
               (gemm->form != SYCPU_GEMM_TN || plan.panels * b_panel_size(plan.steps) <= OWN_WORDS);
    plan.tokens = WHOLE > 1 ? few_tokens(&plan) : 0;
    plan.copied = !plan.own && copies_chunks(&plan);
    plan.chunk = plan.own ? 0 : chunk_of(&plan);
    plan.strip_rows = strip_rows(&plan);
    plan.from_rows =
        STEP == 1 && plan.ahead && gemm->form != SYCPU_GEMM_TN && !plan.own && !plan.chunk && !plan.direct;
    plan.blocks = plan.chunk && (gemm->form == SYCPU_GEMM_TN || is_long(&plan));
    plan.rows_stay = rows_stay(&plan);
    plan.a_steps = plan.chunk && !plan.rows_stay ? plan.chunk : plan.steps;
    if (plan.blocks) plan.steps = plan.chunk;
    plan.direct &= !plan.own;
    plan.stream = goes_past_caches(&plan);
    plan_groups(&plan);
    plan_blocks(&plan);
    plan_trees(&plan);
    plan.b_words = b_in_panels(gemm) ? 0 : plan.b_panels * b_panel_size(plan.steps);
    if (plan.buffered) plan.b_words = greatest(plan.b_words, 2 * buffer_size(&plan));
    if (plan.tokens) plan.b_words = greatest(plan.b_words, plan.panels * b_panel_size(plan.tokens));
    if (plan.own && gemm->form == SYCPU_GEMM_NT) {
        plan.turned_rows = least(TURNED_VECTORS, 2 * plan.b_panels) * LANES;
        if (!gemm->scale && gemm->columns % TILE_COLUMNS == 0)
            plan.broadcast_rows = least(BROADCAST_VECTORS, 2 * plan.b_panels) * LANES;
        plan.column_rows = column_rows(&plan);
    }
    plan.a_words = a_words_of(&plan);
    if (plan.copied) plan.a_words *= 2, plan.b_words *= 2; /* of a chunk and of the next */
    plan.worker_size = 2 * round_floats(gemm->leaves) + 2 * round_floats(plan.block_panels * TILE_ROWS) +
                       plan.a_words + plan.b_words + pending_size(&plan) + TILE_SIZE;
    return plan;
}

/* Panels of B in a group of columns. */
static int64_t panels_of(const struct sycpu_gemm_plan *plan, int64_t group)
{
    return least(plan->group_panels, plan->panels - group * plan->group_panels);
}

/* Rows [row, row + n) of A, in panels; as a beginning of those of the group of columns before, where that is kept. */
static void need_block(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t expert,
                       int64_t row, int64_t n)
{
    if (plan->kept && worker->kept_rows >= n && worker->kept_expert == expert && worker->kept_row == row) {
        worker->block_rows = n;
        return;
    }
    fast_gemm_pack_block(plan, expert, worker, row, n);
    worker->kept_expert = expert, worker->kept_row = row, worker->kept_rows = n;
}

/* Rows [row, end) of a group of columns of an expert, in the order block of rows, panel of B, panel of A; a
 * shallow product, which mostly writes, row by row. Blocks are of equal size. */
static void compute_rows(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t expert,
                         int64_t group, int64_t row, int64_t end)
{
    int64_t left = group * plan->group_panels, panels = panels_of(plan, group);
    int64_t all = divide_up(end - row, TILE_ROWS), block = plan->kept ? all : equal_parts(all, BLOCK_PANELS);
    const int64_t near = plan->from_rows ? COPIED_ROWS_WORDS : SHALLOW_WORDS;
    int by_rows = plan->kept || worker->depth * panels * TILE_COLUMNS <= near;
#if DIRECT_LEAST
    if (goes_direct(&plan->gemm, worker->rows)) {
        fast_gemm_compute_direct(plan, worker, expert, row, end, left, panels);
        return;
    }
#endif
#ifdef SYCPU_TILES
    if (SY_TRAINING && fast_gemm_compute_tokens(plan, worker, expert, row, end, left, panels)) return;
#endif
    fast_gemm_measure_leaves(&plan->gemm, worker, expert);
#if HAS_STRIPS
    if (end - row <= plan->strip_rows) {
        fast_gemm_compute_rows(plan, worker, expert, row, end, left, panels);
        return;
    }
#endif
    if (!plan->direct && !plan->blocks)
        fast_gemm_pack_columns(plan, expert, worker, left, panels);
    else if (plan->direct && left + panels == plan->panels && plan->gemm.columns % TILE_COLUMNS)
        fast_gemm_pack_columns(plan, expert, worker, plan->panels - 1, 1);
#if HAS_COPIED
    if (plan->copied) {
        fast_gemm_compute_copied(plan, worker, expert, row, end, left, panels);
        return;
    }
#endif
    if (plan->chunk) {
        fast_gemm_compute_chunks(plan, worker, expert, row, end, left, panels);
        return;
    }
    for (int64_t rows; row < end; row += rows) {
        rows = least(block * TILE_ROWS, end - row);
        need_block(plan, worker, expert, row, rows);
#if HAS_STRIPS
        if (gemm_is_shallow(&plan->gemm, worker->leaves, worker->depth)) {
            fast_gemm_compute_strips(plan, worker, expert, left, panels, plan->gemm.experts);
            continue;
        }
#endif
        for (int64_t i = 0; by_rows && i * TILE_ROWS < rows; i++)
            fast_gemm_compute_tiles(plan, worker, expert, i, left, panels);
        for (int64_t i = 0; !by_rows && i < panels; i++)
            fast_gemm_compute_column(plan, worker, expert, left + i);
    }
}

/* The share of one thread: rows of groups of columns that begin in [share, share + 1) / threads of all work,
 * a row weighing its panels of B times their depth. */
static void compute_share(void *arg, int64_t share, int thread)
{
    const struct sycpu_gemm_plan *plan = arg;
    struct sycpu_gemm_rest rest;
    struct sycpu_gemm_worker worker = fast_gemm_make_worker(plan, thread, &rest);
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
        if (first < end) compute_rows(plan, &worker, expert, group, first, end);
        base += worker.rows * weight;
    }
    fast_gemm_merge_rest(&rest);
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

#ifndef SYCPU_PAIRS
/* Whether fast_gemm_compute_narrow takes it. */
static int is_narrow(const struct sycpu_gemm_plan *plan)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    return !plan->chunk && gemm->form == SYCPU_GEMM_NN && gemm->columns <= LANES && gemm->leaves == 1 &&
           gemm->experts == 1 && !gemm->filled && !gemm->scale && !gemm->panels;
}
#endif

int fast_product(void *context, const struct sy_call *call)
{
    const struct sycpu_gemm_plan *plan = call->plan;
    const struct sycpu_gemm *gemm = &plan->gemm;
    (void)context;
    if (gemm->filled && gemm->form != SYCPU_GEMM_TN)
        sycpu_parallel(call, gemm->experts * gemm->groups, fast_gemm_zero_empty_slots, plan);
    void (*compute)(void *, int64_t, int) = plan->own ? fast_gemm_compute_own : compute_share;
#ifndef SYCPU_PAIRS
    if (is_narrow(plan)) compute = fast_gemm_compute_narrow;
#endif
    sycpu_parallel(call, plan->threads, compute, plan);
    return SY_OK;
}
