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

#    define STRIP_ROWS    3 /* TILE_ROWS is a multiple of it */
#    define STRIP_PANELS  8
#    define STRIP_COLUMNS (STRIP_PANELS * TILE_COLUMNS)
#    define PART_STEPS    4
#    define MOST_PARTS    (SHALLOW_LEAVES + SHALLOW_LEAVES * SHALLOW_STEPS / PART_STEPS)

/* Sums of a strip: those of each height in the tree over SHALLOW_LEAVES, which wait for a right neighbour, the root, and chains that
 * go on. */
enum { ROOT = 3, CHAIN, BUFFERS };
typedef float strip_sums[STRIP_ROWS][STRIP_COLUMNS];

/* What is computed for a strip at a time: sums over some steps of a leaf, and with its last ones what is complete then of the
 * tree, for which `to` buffers are added. */
struct part {
    int steps; /* 0: of an empty leaf */
    int begun; /* 1: the chains so far are in CHAIN */
    int to;    /* buffer */
};
struct parts {
    struct part part[MOST_PARTS];
    int n;
};

static void list_leaf(struct parts *parts, int leaf, int64_t steps)
{
    int begun = 0;
    for (; steps > PART_STEPS; steps -= PART_STEPS, begun = 1)
        parts->part[parts->n++] = (struct part){PART_STEPS, begun, CHAIN};
    parts->part[parts->n++] = (struct part){(int)steps, begun, __builtin_ctz(~(unsigned)leaf)};
}

/* Leaves that do not exist are empty. */
static void list_parts(const struct sycpu_gemm_worker *worker, struct parts *parts)
{
    parts->n = 0;
    for (int leaf = 0; leaf < SHALLOW_LEAVES; leaf++)
        list_leaf(parts, leaf, leaf < worker->leaves ? worker->length[leaf] : 0);
}

/* ---- a part of a strip ---- */

/* A named field for each vector: an array would be written to memory. */
#    define EACH_ROW(X)     X(0) X(1) X(2)
#    define EACH_STEP(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#    define FIELD(i, k)     vec x##i##k;
#    define ROW_FIELDS(i)   EACH_STEP(FIELD, i)
#    define ELEMENT(i, k)   .x##i##k = (k) < steps ? vec_broadcast(a + (k)*TILE_ROWS + (i)) : vec_zero(),
#    define ROW_ELEMENTS(i) EACH_STEP(ELEMENT, i)

/* Elements of x: of row i at step k. */
struct elements {
    EACH_ROW(ROW_FIELDS)
};

#    define SUM(buffer, i) sum[((buffer)*STRIP_ROWS + (i)) * STRIP_COLUMNS]
#    define BEGIN(i)       vec c##i = begun ? vec_load(&SUM(CHAIN, i)) : vec_zero();
#    define MULTIPLY_0(i)  c##i = begun ? vec_step(x->x##i##0, y, c##i) : vec_mul(x->x##i##0, y);
#    define MULTIPLY_1(i)  c##i = vec_step(x->x##i##1, y, c##i);
#    define MULTIPLY_2(i)  c##i = vec_step(x->x##i##2, y, c##i);
#    define MULTIPLY_3(i)  c##i = vec_step(x->x##i##3, y, c##i);
#    define MULTIPLY(k)                                                                                      \
        if ((k) < steps) {                                                                                   \
            const vec y = vec_load(b + (k)*TILE_COLUMNS);                                                    \
            EACH_ROW(MULTIPLY_##k)                                                                           \
        }
#    define MERGE_0(i) c##i = vec_add(c##i, vec_load(&SUM(0, i)));
#    define MERGE_1(i) c##i = vec_add(c##i, vec_load(&SUM(1, i)));
#    define MERGE_2(i) c##i = vec_add(c##i, vec_load(&SUM(2, i)));
#    define MERGE(n)                                                                                         \
        if ((n) < to && to != CHAIN) {                                                                       \
            EACH_ROW(MERGE_##n)                                                                              \
        }
#    define END(i) vec_store(&SUM(to, i), c##i);

/* A vector of each row; sum: its place in the first buffer. The first step of a leaf is a product alone, which may be -0 for +0:
 * write_row closes the sum of all. */
ALWAYS_INLINE void sum_vectors(const struct elements *x, const float *b, float *sum, int steps, int begun,
                               int to)
{
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

/* What a part reads and writes; a and b: its first step in panels of A and B. */
struct operands {
    const float *a, *b;
    int64_t b_panel; /* words from a panel to the next */
    int64_t columns; /* in whole panels */
    float *sum;      /* strip_sums[BUFFERS] */
};

ALWAYS_INLINE void sum_part(const struct operands *o, int steps, int begun, int to)
{
    const float *a = o->a, *b = o->b;
    const struct elements x = {EACH_ROW(ROW_ELEMENTS)};
    for (float *sum = o->sum, *end = sum + o->columns; sum < end; sum += TILE_COLUMNS, b += o->b_panel) {
        sum_vectors(&x, b, sum, steps, begun, to);
        sum_vectors(&x, b + LANES, sum + LANES, steps, begun, to);
    }
}

/* Each kind of part is compiled for itself, so that nothing is asked in its loop. */
#    define KIND(steps, begun, to) (((steps)*2 + (begun)) * BUFFERS + (to))
#    define CASE(steps, begun, to)                                                                           \
    case KIND(steps, begun, to):                                                                             \
        sum_part(o, steps, begun, to);                                                                       \
        break;
#    define CASES(steps, begun)                                                                              \
        CASE(steps, begun, 0) CASE(steps, begun, 1) CASE(steps, begun, 2) CASE(steps, begun, ROOT)
static void compute_part(const struct part *part, const struct operands *o)
{
    switch (KIND(part->steps, part->begun, part->to)) {
        CASES(0, 0)
        CASES(1, 0)
        CASES(2, 0)
        CASES(3, 0)
        CASES(4, 0)
        CASES(1, 1)
        CASES(2, 1)
        CASES(3, 1)
        CASES(4, 1)
        CASE(PART_STEPS, 0, CHAIN)
        CASE(PART_STEPS, 1, CHAIN)
    }
}

/* ---- strips ---- */

/* Sums, + 0, of whole panels of a row to C. */
ALWAYS_INLINE void write_panels(const float *sum, int64_t columns, enum sycpu_gemm_how how, void *c)
{
    for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
        const vec left = vec_add(vec_load(sum + j), vec_zero()),
                  right = vec_add(vec_load(sum + j + LANES), vec_zero());
        if (how == SYCPU_GEMM_STREAM) {
            vec_stream((float *)c + j, left);
            vec_stream((float *)c + j + LANES, right);
        } else if (how == SYCPU_GEMM_STORE) {
            vec_store((float *)c + j, left);
            vec_store((float *)c + j + LANES, right);
        } else {
            vec_store_rounded((uint16_t *)c + j, left);
            vec_store_rounded((uint16_t *)c + j + LANES, right);
        }
    }
}

/* The same of any number of columns, from element c of C on. */
static void write_row(const struct sycpu_gemm_plan *plan, const float *sum, int64_t c, int64_t columns)
{
    const int64_t whole = columns / TILE_COLUMNS * TILE_COLUMNS;
    uint16_t *rounded = (uint16_t *)plan->gemm.c + c;
    float *floats = (float *)plan->gemm.c + c;
    if (plan->rounded) {
        write_panels(sum, whole, SYCPU_GEMM_ROUND, rounded);
        for (int64_t j = whole; j < columns; j++) rounded[j] = syi_bf16_from_float(sum[j] + 0.0f);
    } else if (plan->stream) {
        write_panels(sum, columns, SYCPU_GEMM_STREAM, floats);
    } else {
        write_panels(sum, whole, SYCPU_GEMM_STORE, floats);
        for (int64_t j = whole; j < columns; j++) floats[j] = sum[j] + 0.0f;
    }
}

/* Rows [row, row + STRIP_ROWS) of the block, as far as it has them, by `panels` panels of columns. */
static void compute_strip(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                          int64_t expert, const struct parts *parts, int64_t row, int64_t panel,
                          int64_t panels)
{
    strip_sums sums[BUFFERS] __attribute__((aligned(64)));
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t column = panel * TILE_COLUMNS,
                  columns = least(panels * TILE_COLUMNS, gemm->columns - column),
                  c = expert * sycpu_gemm_c_size(gemm) + worker->slot[row] * gemm->columns + column;
    struct operands o = {
        .a = worker->a + row / TILE_ROWS * a_panel_size(plan->a_steps) + row % TILE_ROWS,
        .b = worker->b + (panel - worker->first_b) * b_panel_size(plan->steps),
        .b_panel = b_panel_size(plan->steps),
        .columns = panels * TILE_COLUMNS,
        .sum = sums[0][0],
    };
    for (int i = 0; i < parts->n; i++) {
        compute_part(&parts->part[i], &o);
        o.a += parts->part[i].steps * TILE_ROWS;
        o.b += parts->part[i].steps * TILE_COLUMNS;
    }
    for (int64_t i = 0; i < least(STRIP_ROWS, worker->block_rows - row); i++)
        write_row(plan, sums[ROOT][i], c + i * gemm->columns, columns);
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
            compute_strip(plan, worker, expert, &parts, i * STRIP_ROWS, panel,
                          least(STRIP_PANELS, end - panel));
        }
}

#endif
