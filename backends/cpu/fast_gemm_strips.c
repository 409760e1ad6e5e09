/* SPDX-License-Identifier: Apache-2.0 */
/* x^T y whose leaves have few steps each, by AVX2: what fast_gemm_shallow does elsewhere, for which 16 registers are too few. C
 * is cut into strips of three rows by some panels of columns. A leaf, or a part of up to four of its steps, is computed for a
 * whole strip at once: the elements of x stay in registers, y passes from the L1 cache, and sums wait there, in buffers, for
 * their neighbours in the tree over leaves. What a leaf needs beside multiply-adds is so shared by the vectors of a strip.
 * C is written row by row in whole lines, which is what memory takes fastest past the caches. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"
#include "base/bf16.h"

#if HAS_STRIPS

#define STRIP_ROWS    3 /* TILE_ROWS is a multiple of it */
#define STRIP_PANELS  8
#define STRIP_COLUMNS (STRIP_PANELS * TILE_COLUMNS)
#define PART_STEPS    4
#define MOST_MERGES   3 /* of the tree over SHALLOW_LEAVES */
#define BUFFERS       (MOST_MERGES + 1)
#define MOST_PARTS    (SHALLOW_LEAVES * (1 + SHALLOW_STEPS / PART_STEPS))

/* Sums of a strip. */
typedef float buffer[STRIP_ROWS][STRIP_COLUMNS];

/* What is computed for a strip at a time: sums over steps of a leaf, and with its last ones what is complete then of the tree. */
struct part {
    int64_t step;           /* the first */
    int steps;              /* 0: of an empty leaf */
    int begun;              /* 1: the chains go on at `to` */
    int merges;             /* sums that are added */
    int merge[MOST_MERGES]; /* their buffers, the nearest leaf first */
    int to;                 /* buffer */
};
struct parts {
    struct part part[MOST_PARTS];
    int n;
};

/* ---- which parts ---- */

/* The buffers of sums that wait for a right neighbour, by their height in the tree; -1: none. */
struct waiting {
    int buffer[MOST_MERGES + 1];
};

static int free_buffer(const struct waiting *waiting)
{
    int buffer = 0;
    for (int i = 0; i < MOST_MERGES; i++)
        if (waiting->buffer[i] == buffer) buffer++, i = -1;
    return buffer;
}

/* Takes what is complete with this leaf into the part that ends it; gives the height of the sum. */
static int take_neighbours(struct waiting *waiting, int leaf, int last, struct part *end)
{
    int height = 0;
    for (; height < MOST_MERGES && (last || leaf >> height & 1); height++) {
        if (waiting->buffer[height] >= 0) end->merge[end->merges++] = waiting->buffer[height];
        waiting->buffer[height] = -1;
    }
    return height;
}

/* The parts of a leaf. An empty one adds nothing: a neighbour takes its place. */
static void list_leaf(struct parts *parts, struct waiting *waiting, int leaf, int last, int64_t step, int n)
{
    struct part next = {.step = step, .to = free_buffer(waiting)};
    for (; n > PART_STEPS; n -= PART_STEPS) {
        next.steps = PART_STEPS;
        parts->part[parts->n++] = next;
        next.step += PART_STEPS;
        next.begun = 1;
    }
    next.steps = n;
    const int height = take_neighbours(waiting, leaf, last, &next);
    if (n == 0 && next.merges < 2 && !last) {
        waiting->buffer[height] = next.merges ? next.merge[0] : -1;
        return;
    }
    waiting->buffer[height] = next.to;
    parts->part[parts->n++] = next;
}

static void list_parts(const struct sycpu_gemm_worker *worker, struct parts *parts)
{
    struct waiting waiting = {{-1, -1, -1, -1}};
    int64_t step = 0;
    parts->n = 0;
    for (int leaf = 0; leaf < worker->leaves; step += worker->length[leaf++])
        list_leaf(parts, &waiting, leaf, leaf + 1 == worker->leaves, step, (int)worker->length[leaf]);
}

/* ---- a part of a strip ---- */

/* A named field for each vector: an array would be written to memory. */
#define EACH_ROW(X)      X(0) X(1) X(2)
#define EACH_STEP(X, i)  X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define FIELD(i, k)      vec x##i##k;
#define ROW_FIELDS(i)    EACH_STEP(FIELD, i)
#define ELEMENT(i, k)    .x##i##k = (k) < steps ? vec_broadcast(a + (k)*TILE_ROWS + (i)) : vec_zero(),
#define ROW_ELEMENTS(i)  EACH_STEP(ELEMENT, i)

/* Elements of x: of row i at step k. */
struct elements {
    EACH_ROW(ROW_FIELDS)
};

#define BEGIN(i)      vec c##i = begun ? vec_load(sum + (i)*STRIP_COLUMNS) : vec_zero();
#define MULTIPLY_0(i) c##i = begun ? vec_step(x->x##i##0, y, c##i) : vec_mul(x->x##i##0, y);
#define MULTIPLY_1(i) c##i = vec_step(x->x##i##1, y, c##i);
#define MULTIPLY_2(i) c##i = vec_step(x->x##i##2, y, c##i);
#define MULTIPLY_3(i) c##i = vec_step(x->x##i##3, y, c##i);
#define MULTIPLY(k)                                                                                          \
    if ((k) < steps) {                                                                                       \
        const vec y = vec_load(b + (k)*TILE_COLUMNS);                                                        \
        EACH_ROW(MULTIPLY_##k)                                                                               \
    }
#define MERGE_0(i) c##i = vec_add(c##i, vec_load(merge[0] + at + (i)*STRIP_COLUMNS));
#define MERGE_1(i) c##i = vec_add(c##i, vec_load(merge[1] + at + (i)*STRIP_COLUMNS));
#define MERGE_2(i) c##i = vec_add(c##i, vec_load(merge[2] + at + (i)*STRIP_COLUMNS));
#define MERGE(n)                                                                                             \
    if ((n) < merges) {                                                                                      \
        EACH_ROW(MERGE_##n)                                                                                  \
    }
#define END(i) vec_store(sum + (i)*STRIP_COLUMNS, c##i);

/* A vector of each row. The first step of a leaf is a product alone, which may be -0 for +0: write_strip closes the sum of all. */
ALWAYS_INLINE void sum_vectors(const struct elements *x, const float *b, float *sum, int64_t at,
                               const float *const *merge, int steps, int begun, int merges)
{
    sum += at;
    EACH_ROW(BEGIN)
    MULTIPLY(0)
    MULTIPLY(1)
    MULTIPLY(2)
    MULTIPLY(3)
    MERGE(0)
    MERGE(1)
    MERGE(2)
    EACH_ROW(END)
}

/* What a part reads and writes: elements of its first step, in panels of A and B. */
struct operands {
    const float *a, *b;
    int64_t b_panel; /* words from a panel to the next */
    int64_t columns; /* in whole panels */
    buffer *buffers;
};

ALWAYS_INLINE void sum_part(const struct part *part, const struct operands *o, int steps, int begun,
                            int merges)
{
    const float *a = o->a, *b = o->b;
    const struct elements x = {EACH_ROW(ROW_ELEMENTS)};
    const float *const merge[MOST_MERGES] = {
        o->buffers[part->merge[0]][0], o->buffers[part->merge[1]][0], o->buffers[part->merge[2]][0]};
    float *sum = o->buffers[part->to][0];
    for (int64_t at = 0; at < o->columns; at += TILE_COLUMNS, b += o->b_panel) {
        sum_vectors(&x, b, sum, at, merge, steps, begun, merges);
        sum_vectors(&x, b + LANES, sum, at + LANES, merge, steps, begun, merges);
    }
}

/* Each kind of part is compiled for itself, so that nothing is asked in its loop. */
#define KIND(steps, begun, merges) (((steps)*2 + (begun)) * (MOST_MERGES + 1) + (merges))
#define CASE(steps, begun, merges)                                                                           \
    case KIND(steps, begun, merges):                                                                         \
        sum_part(part, o, steps, begun, merges);                                                             \
        break;
#define CASES(steps, begun)                                                                                  \
    CASE(steps, begun, 0) CASE(steps, begun, 1) CASE(steps, begun, 2) CASE(steps, begun, 3)
static void compute_part(const struct part *part, const struct operands *o)
{
    switch (KIND(part->steps, part->begun, part->merges)) {
        CASES(0, 0)
        CASES(1, 0)
        CASES(2, 0)
        CASES(3, 0)
        CASES(4, 0)
        CASES(1, 1)
        CASES(2, 1)
        CASES(3, 1)
        CASES(4, 1)
    }
}

/* ---- strips ---- */

/* The sums of a row to element c of C and those after it, + 0. */
static void write_row(const struct sycpu_gemm_plan *plan, const float *sum, int64_t c, int64_t columns)
{
    const int64_t whole = columns / LANES * LANES;
    for (int64_t j = 0; plan->stream && j < whole; j += LANES)
        vec_stream((float *)plan->gemm.c + c + j, vec_add(vec_load(sum + j), vec_zero()));
    for (int64_t j = 0; !plan->stream && j < whole; j += LANES)
        fast_gemm_put(plan, c + j, vec_add(vec_load(sum + j), vec_zero()));
    for (int64_t j = whole; j < columns; j++) {
        if (plan->rounded)
            ((uint16_t *)plan->gemm.c)[c + j] = syi_bf16_from_float(sum[j] + 0.0f);
        else
            ((float *)plan->gemm.c)[c + j] = sum[j] + 0.0f;
    }
}

/* Rows [row, row + STRIP_ROWS) of the block, as far as it has them, by `panels` panels of columns. */
static void compute_strip(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                          int64_t expert, const struct parts *parts, int64_t row, int64_t panel,
                          int64_t panels)
{
    buffer buffers[BUFFERS] __attribute__((aligned(64)));
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t column = panel * TILE_COLUMNS,
                  columns = least(panels * TILE_COLUMNS, gemm->columns - column),
                  c = expert * sycpu_gemm_c_size(gemm) + worker->slot[row] * gemm->columns + column;
    const float *a = worker->a + row / TILE_ROWS * a_panel_size(plan->a_steps) + row % TILE_ROWS;
    const float *b = worker->b + (panel - worker->first_b) * b_panel_size(plan->steps);
    struct operands o = {
        .b_panel = b_panel_size(plan->steps), .columns = panels * TILE_COLUMNS, .buffers = buffers};
    for (const struct part *part = parts->part; part < parts->part + parts->n; part++) {
        o.a = a + part->step * TILE_ROWS;
        o.b = b + part->step * TILE_COLUMNS;
        compute_part(part, &o);
    }
    const float(*sum)[STRIP_COLUMNS] = buffers[parts->part[parts->n - 1].to];
    for (int64_t i = 0; i < least(STRIP_ROWS, worker->block_rows - row); i++)
        write_row(plan, sum[i], c + i * gemm->columns, columns);
}

void fast_gemm_compute_strips(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t panel, int64_t n, int64_t next)
{
    const int64_t end = panel + n, strips = divide_up(worker->block_rows, STRIP_ROWS);
    struct parts parts;
    list_parts(worker, &parts);
    for (; panel < end; panel += STRIP_PANELS, next = plan->gemm.experts)
        for (int64_t i = 0; i < strips; i++) {
            fast_gemm_fetch_rows(&plan->gemm, next, i, strips);
            compute_strip(plan, worker, expert, &parts, i * STRIP_ROWS, panel, least(STRIP_PANELS, end - panel));
        }
}

#endif
