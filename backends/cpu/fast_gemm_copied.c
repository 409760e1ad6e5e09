/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over all tokens, x^T y, by AVX-512, where the L1 cache is large. A block of C takes a chunk of the contraction at a
 * time (fast_gemm_chunks.c), whose panels of both operands lie in that cache. While tiles multiply one chunk, the next one, which may be
 * the first of the next block, is copied to panels of its own, a piece every few steps: so neither packing nor memory is waited
 * for. */
#include "config.h"

#include "backends/cpu/fast_gemm_pieces.h"

#if HAS_COPIED

/* Steps from those that are copied to those that are fetched. */
#    define STEPS_AHEAD 4

_Static_assert(LANES <= TILE_ROWS + PANEL_GAP, "a vector for TILE_ROWS rows may end behind a panel");
_Static_assert(TILE_COLUMNS == 2 * LANES, "a piece of B is two rows of a panel");

/* A chunk of the contraction of a block of C. The worker that goes with it holds its steps and its buffers. */
struct chunk {
    int64_t i; /* number of the block */
    struct sycpu_gemm_block block;
    int64_t left; /* of a leaf that is longer than a chunk, after it */
};

/* To the next chunk; 0: there is none. */
static int move_on(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                   const struct sycpu_gemm_blocks *blocks, struct chunk *chunk)
{
    if (fast_gemm_take_chunk(plan, worker, 0, &chunk->left)) return 1;
    if (++chunk->i == blocks->all) return 0;
    chunk->block = gemm_block(blocks, chunk->i);
    return fast_gemm_take_chunk(plan, worker, 1, &chunk->left);
}

/* A chunk that is copied: now the steps of x, as long as there are any, then those of y. */
struct copies {
    struct sycpu_gemm_pieces now, y;
    int64_t x_steps, y_steps; /* that are so copied; the others are packed after them */
};

/* Of rows `below` elements apart, `together` steps at a time: `n` pieces of `width` elements of each, whose places are `panel` words
 * apart. */
static struct sycpu_gemm_pieces pieces_of(const operand *from, int64_t below, int64_t together, float *to,
                                          int64_t width, int64_t panel, int64_t n)
{
    return (struct sycpu_gemm_pieces){
        .from = from,
        .below = below,
        .width = width,
        .jump = together * STEP * below - n * width,
        .ahead = STEPS_AHEAD * STEP * below,
        .to = to,
        .panel = panel,
        .back = together * width - n * panel,
        .in_rows = n,
        .left = n,
    };
}

static struct sycpu_gemm_pieces pieces_of_x(const struct sycpu_gemm_plan *plan,
                                            const struct sycpu_gemm_worker *worker,
                                            const struct sycpu_gemm_block *block)
{
    const int64_t stride = plan->gemm.a_width, step = STEP * stride;
    struct sycpu_gemm_pieces x =
        pieces_of((const operand *)plan->gemm.a + worker->from * step + block->row, stride, A_TOGETHER,
                  worker->a, TILE_ROWS, a_panel_size(plan->a_steps), divide_up(block->rows, TILE_ROWS));
    x.second = step, x.third = 2 * step, x.vector = TILE_ROWS;
    return x;
}

static struct sycpu_gemm_pieces pieces_of_y(const struct sycpu_gemm_plan *plan,
                                            const struct sycpu_gemm_worker *worker,
                                            const struct sycpu_gemm_block *block)
{
    const int64_t stride = plan->gemm.columns, step = STEP * stride;
    struct sycpu_gemm_pieces y =
        pieces_of((const operand *)plan->gemm.b + worker->from * step + block->panel * TILE_COLUMNS, stride,
                  B_TOGETHER, worker->b, TILE_COLUMNS, b_panel_size(plan->steps), block->n);
    y.second = LANES, y.third = step, y.vector = LANES;
    return y;
}

/* Begins to copy a chunk, to the buffers of its worker, beside so many steps of tiles. A vector of x may reach past the end of its row,
 * so the last rows of all are not copied so. */
static void begin_copies(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                         const struct sycpu_gemm_block *block, int64_t steps, struct copies *c)
{
    const int last = worker->from + worker->taken == worker->depth;
    struct sycpu_gemm_pieces x = pieces_of_x(plan, worker, block), y = pieces_of_y(plan, worker, block);
    x.steps = (worker->taken - last) / A_TOGETHER;
    y.steps = worker->taken / B_TOGETHER;
    x.every = y.every = greatest(1, steps / greatest(1, x.steps * x.in_rows + y.steps * y.in_rows));
    x.wait = y.wait = x.every;
    x.then = &c->y;
    if (!y.steps) y.wait = y.every = NO_PIECE;
    c->now = x.steps ? x : y;
    c->y = y;
    c->x_steps = x.steps * A_TOGETHER;
    c->y_steps = y.steps * B_TOGETHER;
}

/* Packs the steps of a chunk from these on, and makes its block the worker's. */
static void pack_from(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int64_t expert,
                      const struct sycpu_gemm_block *block, int64_t x_step, int64_t y_step)
{
    struct sycpu_gemm_worker x = *worker, y = *worker;
    x.from += x_step, x.taken -= x_step, x.a += x_step * TILE_ROWS;
    y.from += y_step, y.taken -= y_step, y.b += y_step * TILE_COLUMNS;
    fast_gemm_pack_block(plan, expert, &x, block->row, block->rows);
    fast_gemm_pack_columns(plan, expert, &y, block->panel, block->n);
    worker->first_b = worker->first_panel = block->panel;
    worker->block_rows = block->rows;
}

/* The tiles of a chunk. */
static void compute_columns(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert, const struct sycpu_gemm_block *block)
{
    for (int64_t i = 0; i < block->n; i++) fast_gemm_compute_column(plan, worker, expert, block->panel + i);
}

void fast_gemm_compute_copied(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t panels)
{
    const struct sycpu_gemm_blocks blocks = gemm_blocks(plan, row, end, panel, panels);
    float *const a[] = {worker->a, worker->a + plan->a_words / 2};
    float *const b[] = {worker->b, worker->b + plan->b_words / 2};
    struct chunk chunk = {.block = gemm_block(&blocks, 0)};
    fast_gemm_take_chunk(plan, worker, 1, &chunk.left);
    pack_from(plan, worker, expert, &chunk.block, 0, 0);
    for (int more = 1, turn = 1; more; turn = !turn) {
        struct sycpu_gemm_worker after = *worker;
        struct chunk next = chunk;
        struct copies copies;
        const int64_t tiles = divide_up(chunk.block.rows, TILE_ROWS) * chunk.block.n;
        after.a = a[turn], after.b = b[turn];
        more = move_on(plan, &after, &blocks, &next);
        if (more) begin_copies(plan, &after, &next.block, tiles * worker->taken, &copies);
        worker->pieces = more ? &copies.now : NULL;
        compute_columns(plan, worker, expert, &chunk.block);
        if (!more) break;
        while (copies.now.steps) copy_piece(&copies.now);
        pack_from(plan, &after, expert, &next.block, copies.x_steps, copies.y_steps);
        *worker = after;
        chunk = next;
    }
    worker->pieces = NULL;
    worker->a = a[0], worker->b = b[0];
}

#endif
