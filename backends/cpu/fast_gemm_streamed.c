/* SPDX-License-Identifier: Apache-2.0 */
/* Few rows of an expert times weights that lie in memory row by row, with AVX-512. Memory answers fastest where a core reads a few
 * rows side by side, each from its beginning to its end, so weights are taken in strips of some rows. A vector of columns of a strip
 * meets all rows of the expert, whose sums are in registers meanwhile; then these go to scratch, from where the next strip takes them
 * as they were. That changes no bit. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if HAS_STREAMED

/* Steps of weights in a strip, of few rows of the expert and of more, whose sums take longer to load and store; rows that are few. */
#    define STRIP      16
#    define HIGH_STRIP 32
#    define LOW_ROWS   16
/* A line of each of the steps in so many bytes is fetched in turn: memory answers those of several pages sooner than as many of one. */
#    define TURN_BYTES (32 * 1024)

_Static_assert(STREAMED_HEIGHT <= 3 * LANES, "fast_gemm_pack_turned takes three vectors of rows");

/* Some rows of an expert times a strip of its weights, of which a step is STEP rows. */
struct strip {
    const operand *w; /* [steps, STEP, vectors * LANES] */
    int64_t stride;   /* elements between its rows */
    int64_t steps, vectors;
    const operand *next; /* the strip that is fetched, with the same stride */
    int64_t turn;        /* steps whose lines are fetched in turn */
    const float *x;      /* [rows, width]: of the expert, packed */
    int64_t width;
    const float *sums; /* [vectors, height, LANES]: of the leaf so far */
    int64_t level;     /* words from one level of the tree over leaves to the next */
    int begun;         /* 1: there are sums so far */
    int merges;        /* levels that are added at the end of a leaf */
    int last;          /* 1: all leaves are there */
};

#    define LOAD(i)    vec c##i = s->begun ? vec_load(sums + i * LANES) : vec_zero();
#    define STEP_ON(i) c##i = vec_step(vec_broadcast(x + i), wk, c##i);
#    define ADD(i)     c##i = vec_add(vec_load(pending + i * LANES), c##i);
#    define CLOSE(i)   c##i = vec_add(c##i, vec_zero());
#    define STORE(i)   vec_store(out + i * LANES, c##i);

/* Vectors [v, end), their sums to `out`. Beside each step a line of the next strip is fetched, of which a step has as many as there are
 * vectors. */
#    define DEFINE_STRIP(name, HEIGHT, ROWS)                                                                 \
        static void name(const struct strip *s, int64_t v, int64_t end, float *out)                          \
        {                                                                                                    \
            const int64_t size = HEIGHT * LANES, turns = divide_up(s->steps, s->turn) * v;                   \
            const int64_t stride = s->stride, down = STEP * stride;                                          \
            const operand *next = s->next + turns / s->vectors * s->turn * down;                             \
            int64_t line = turns % s->vectors;                                                               \
            for (; v < end; v++, out += size) {                                                              \
                const operand *w = s->w + v * LANES;                                                         \
                const float *x = s->x, *sums = s->sums + v * size, *pending = sums;                          \
                ROWS(LOAD)                                                                                   \
                for (int64_t left = s->steps; left > 0; left -= s->turn) {                                   \
                    const operand *far = next + line / STEP * STEP * LANES + line % STEP * stride;           \
                    for (int64_t i = least(left, s->turn); i > 0; i--) {                                     \
                        const vec wk = vec_load_step(w, stride);                                             \
                        __builtin_prefetch(far, 0, 2);                                                       \
                        ROWS(STEP_ON)                                                                        \
                        w += down, far += down, x += s->width;                                               \
                    }                                                                                        \
                    if (++line == s->vectors) line = 0, next += s->turn * down;                              \
                }                                                                                            \
                for (int i = 0; i < s->merges; i++) {                                                        \
                    pending -= s->level;                                                                     \
                    ROWS(ADD)                                                                                \
                }                                                                                            \
                if (s->last) {                                                                               \
                    ROWS(CLOSE)                                                                              \
                }                                                                                            \
                ROWS(STORE)                                                                                  \
            }                                                                                                \
        }
#    define STRIP_OF(height) DEFINE_STRIP(strip_##height, height, ROWS_##height)
#    define NAME(height)     strip_##height,
#    if SY_TRAINING
#        define HEIGHT_STEP    2
#        define EACH_HEIGHT(X) X(2) X(4) X(6) X(8) X(10) X(12) X(14) X(16) X(18) X(20) X(22) X(24) X(26) X(28)
#    else /* few kernels, for a small program */
#        define HEIGHT_STEP    4
#        define EACH_HEIGHT(X) X(4) X(8) X(12) X(16) X(20) X(24) X(28)
#    endif
EACH_HEIGHT(STRIP_OF)
typedef void strip_fn(const struct strip *, int64_t, int64_t, float *);
static strip_fn *const strip_of[STREAMED_HEIGHT / HEIGHT_STEP + 1] = {NULL, EACH_HEIGHT(NAME)};

/* Columns of an expert, in vectors, times its rows of x. */
struct block {
    int64_t expert, first, vectors;
    int64_t most;          /* rows that are multiplied together */
    int64_t width, height; /* as many, packed and multiplied */
    const operand *after;  /* the weights that are fetched at last */
    int last;              /* 1: the next block is another expert's */
};

static const operand *weights_of(const struct sycpu_gemm *gemm, int64_t expert, int64_t vector)
{
    return (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + vector * LANES;
}

/* The last strip of n rows of the expert from `row` on: each vector goes to C as soon as it is there. */
static void finish(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                   const struct block *block, const struct strip *strip, int64_t row, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t *slot = worker->slot + row;
    int64_t c = block->expert * sycpu_gemm_c_size(gemm) + block->first * LANES;
    for (int64_t v = 0; v < block->vectors; v++, c += LANES) {
        strip_of[block->height / HEIGHT_STEP](strip, v, v + 1, worker->edge);
        for (int64_t i = 0; i < n; i++)
            fast_gemm_put(plan, c + slot[i] * gemm->columns, vec_load(worker->edge + i * LANES));
    }
}

/* A strip from step k of the weights on, a part of a leaf, times all rows of the expert. */
static void compute_strip(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                          const struct block *block, struct strip *strip, int64_t k)
{
    const int64_t leaf = plan->gemm.leaf / STEP;
    const struct sycpu_gemm_place place = gemm_place_of(k / leaf, plan->gemm.leaves);
    const int ends = (k + strip->steps) % leaf == 0;
    float *tree = worker->pending;
    strip->x = worker->a + k * block->width;
    strip->begun = k % leaf > 0;
    strip->merges = ends ? place.merges : 0;
    strip->last = ends && place.last;
    for (int64_t row = 0; row < worker->rows; row += block->most) {
        float *sums = tree + place.top / TILE_SIZE * strip->level,
              *out = ends ? tree + place.to / TILE_SIZE * strip->level : sums;
        strip->sums = sums;
        if (strip->last)
            finish(plan, worker, block, strip, row, least(block->most, worker->rows - row));
        else
            strip_of[block->height / HEIGHT_STEP](strip, 0, block->vectors, out);
        strip->next = strip->w; /* the first rows have fetched it */
        strip->x += worker->depth * block->width;
        tree += pending_tiles(plan->gemm.leaves) * strip->level;
    }
}

/* All strips of a block. The rows that the next expert multiplies are fetched beside the last leaf: earlier they would not stay. */
static void compute_block(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                          const struct block *block)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const operand *w = weights_of(gemm, block->expert, block->first);
    const int64_t leaf = gemm->leaf / STEP, down = STEP * gemm->columns,
                  steps = equal_parts(leaf, block->most > LOW_ROWS ? HIGH_STRIP : STRIP),
                  turn = TURN_BYTES / (block->vectors * LANES * (int64_t)sizeof(float));
    struct strip strip = {.stride = gemm->columns,
                          .vectors = block->vectors,
                          .width = block->width,
                          .level = block->vectors * block->height * LANES};
    for (int64_t k = 0; k < worker->depth; k += strip.steps) {
        const int64_t in_leaf = k % leaf;
        strip.steps = least(steps, leaf - in_leaf);
        strip.turn = least(turn, strip.steps);
        strip.w = w + k * down;
        strip.next = k + strip.steps < worker->depth ? strip.w + strip.steps * down : block->after;
        if (block->last && k - in_leaf + leaf == worker->depth)
            fast_gemm_fetch_rows(gemm, block->expert + 1, in_leaf / steps, divide_up(leaf, steps));
        compute_strip(plan, worker, block, &strip, k);
    }
}

/* Blocks of an expert's columns, in vectors. */
static void compute_blocks(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                           struct block *block, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t most = equal_parts(end - block->first, STREAMED_COLUMNS / LANES),
                  next = least(block->expert + 1, gemm->experts - 1);
    for (int64_t stop; block->first < end; block->first = stop) {
        stop = least(block->first + most, end);
        block->vectors = stop - block->first;
        block->last = stop == end;
        block->after = block->last ? weights_of(gemm, next, 0) : weights_of(gemm, block->expert, stop);
        compute_block(plan, worker, block);
    }
}

void fast_gemm_compute_streamed(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                int64_t expert, int64_t first, int64_t end)
{
    const int64_t most = equal_parts(worker->rows, STREAMED_HEIGHT), vectors = TILE_COLUMNS / LANES;
    struct block block = {.expert = expert,
                          .first = first * vectors,
                          .most = most,
                          .width = fast_gemm_pack_parts(plan, expert, worker, most, worker->a),
                          .height = divide_up(most, HEIGHT_STEP) * HEIGHT_STEP};
    compute_blocks(plan, worker, &block, end * vectors);
}

#endif
