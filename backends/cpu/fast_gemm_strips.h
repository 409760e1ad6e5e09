/* SPDX-License-Identifier: Apache-2.0 */
/* Strips, by AVX2: up to three rows of C by some columns. A part of a leaf, up to four of its steps, or two leaves of up to three
 * together, is computed for a whole strip at once: the elements of A stay in registers, B passes, and sums wait in buffers for the
 * next part and for their neighbours in the tree over leaves. What a part needs beside multiply-adds is so shared by the vectors of
 * a strip. fast_gemm_strips.c multiplies so with few tokens, fast_gemm_rows.c few rows with weights. */
#ifndef SYCPU_FAST_GEMM_STRIPS_H
#define SYCPU_FAST_GEMM_STRIPS_H

#include "backends/cpu/fast_gemm_parts.h"
#include "base/bf16.h"

#define PART_STEPS 4
#define PAIR_STEPS 3 /* of two leaves; with four they were slower than one after the other */

/* Sums of a strip [BUFFERS, STRIP_ROWS, columns]: those of each height in the tree over SHALLOW_LEAVES, which wait for a right
 * neighbour, the root among them, and chains that go on. */
enum { CHAIN = 4, BUFFERS };

/* ---- the parts of a strip ---- */

/* Some steps of a leaf, or all steps of two that are neighbours in the tree over leaves; with the last of them all is added that is
 * complete then of the tree, which is in buffers 0 .. to - 1. */
struct part {
    int64_t step; /* the first */
    int steps;    /* 0: of empty leaves */
    int first;    /* steps of the first of two leaves; ONE_LEAF: there is only one */
    int begun;    /* 1: the chains so far are in CHAIN */
    int to;       /* buffer; CHAIN: the leaf goes on */
};
#define ONE_LEAF (-1)

/* Leaves in their order. Those missing to a power of two are empty. */
struct walk {
    const int64_t *length;
    int pairs;        /* 1: a part may be two leaves; there are more than one then */
    int leaf, leaves; /* the next; how many there are */
    int root;         /* the height of the tree, which is the buffer of its sum */
    int64_t left;     /* steps of the leaf at hand that follow the part */
    struct part part;
};

static struct walk walk_of(const struct sycpu_gemm_worker *worker, int pairs)
{
    struct walk walk = {.length = worker->length, .leaves = (int)worker->leaves, .pairs = pairs};
    while (1 << walk.root < walk.leaves) walk.root++;
    return walk;
}

static int64_t length_of(const struct walk *w, int leaf)
{
    return leaf < w->leaves ? w->length[leaf] : 0;
}

/* The first part, or the next one; 0: there is none. */
static int next_part(struct walk *w)
{
    struct part *part = &w->part;
    part->step += part->steps;
    part->first = ONE_LEAF;
    part->begun = w->left > 0;
    if (!part->begun) {
        if (w->leaf == 1 << w->root) return 0;
        const int64_t both = length_of(w, w->leaf) + length_of(w, w->leaf + 1);
        const int pair = w->pairs && w->leaf % 2 == 0 && both <= PAIR_STEPS;
        if (pair) part->first = (int)length_of(w, w->leaf++);
        w->left = pair ? both : length_of(w, w->leaf);
        w->leaf++;
    }
    part->steps = (int)least(w->left, PART_STEPS);
    w->left -= part->steps;
    part->to = w->left ? CHAIN : __builtin_ctz(~(unsigned)(w->leaf - 1));
    return 1;
}

/* A named field for each vector: an array would be written to memory. */
#define EACH_ROW(X)     X(0) X(1) X(2)
#define EACH_STEP(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define FIELD(i, k)     vec x##i##k;
#define ROW_FIELDS(i)   EACH_STEP(FIELD, i)
#define ELEMENT(i, k)   .x##i##k = (k) < steps ? vec_broadcast(a + (k)*TILE_ROWS + (i)) : vec_zero(),
#define ROW_ELEMENTS(i) EACH_STEP(ELEMENT, i)

/* Elements of x: of row i at step k. */
struct elements {
    EACH_ROW(ROW_FIELDS)
};

#define SUM(buffer, i) sum[((buffer)*STRIP_ROWS + (i)) * width]
#define BEGIN(i)       vec c##i = begun ? vec_load(&SUM(CHAIN, i)) : vec_zero();
#define MULTIPLY_0(i)  c##i = begun ? vec_step(x->x##i##0, y, c##i) : vec_mul(x->x##i##0, y);
#define MULTIPLY_1(i)  c##i = vec_step(x->x##i##1, y, c##i);
#define MULTIPLY_2(i)  c##i = vec_step(x->x##i##2, y, c##i);
#define MULTIPLY_3(i)  c##i = vec_step(x->x##i##3, y, c##i);
#define MULTIPLY(k)                                                                                          \
    if ((k) < steps) {                                                                                       \
        const vec y = vec_load(b + (k)*b_step);                                                              \
        EACH_ROW(MULTIPLY_##k)                                                                               \
    }
#define MERGE_0(i) c##i = vec_add(c##i, vec_load(&SUM(0, i)));
#define MERGE_1(i) c##i = vec_add(c##i, vec_load(&SUM(1, i)));
#define MERGE_2(i) c##i = vec_add(c##i, vec_load(&SUM(2, i)));
#define MERGE(n)                                                                                             \
    if ((n) < to && to != CHAIN) {                                                                           \
        EACH_ROW(MERGE_##n)                                                                                  \
    }
#define END(i) vec_store(&SUM(to, i), c##i);

/* A vector of each row; sum: its place in the first buffer. The first step of a leaf is a product alone, which may be -0 for +0:
 * write_row closes the sum of all. */
ALWAYS_INLINE void sum_vectors(const struct elements *x, const float *b, float *sum, int64_t b_step,
                               int64_t width, int steps, int begun, int to)
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

/* What a strip reads and writes. */
struct strip {
    const float *a, *b; /* step 0: its first row in a panel of A, its first column */
    int64_t b_step;     /* words of B from a step to the next */
    int64_t b_next;     /* words of B from TILE_COLUMNS columns to the next */
    int64_t columns;    /* in whole panels */
    float *sums;
};

/* The sum of two leaves of a row. Rows read y anew, as an operand of the multiply-adds, which is faster than y in registers. */
#define PAIR_STEP(i, k)                                                                                      \
    if ((k) < steps) {                                                                                       \
        const vec y = vec_load(b + (k)*b_step);                                                              \
        if ((k) == 0 || (k) == first)                                                                        \
            last = vec_mul(x->x##i##k, y);                                                                   \
        else                                                                                                 \
            last = vec_step(x->x##i##k, y, last);                                                            \
        if ((k) == first - 1) before = last;                                                                 \
    }
#define PAIR_ROW(i)                                                                                          \
    {                                                                                                        \
        vec last = vec_zero(), before = vec_zero();                                                          \
        __asm__("" : "+r"(b));                                                                               \
        EACH_STEP(PAIR_STEP, i)                                                                              \
        if (first > 0 && first < steps) last = vec_add(last, before);                                        \
        if (to > 1) last = vec_add(last, vec_load(&SUM(1, i)));                                              \
        if (to > 2) last = vec_add(last, vec_load(&SUM(2, i)));                                              \
        vec_store(&SUM(to, i), last);                                                                        \
    }
ALWAYS_INLINE void sum_pair(const struct elements *x, const float *b, float *sum, int64_t b_step,
                            int64_t width, int steps, int first, int to)
{
    EACH_ROW(PAIR_ROW);
}

ALWAYS_INLINE void sum_part(const struct part *part, const struct strip *s, int64_t b_step, int64_t width,
                            int steps, int first, int begun, int to)
{
    const float *a = s->a + part->step * TILE_ROWS, *b = s->b + part->step * b_step;
    const struct elements x = {EACH_ROW(ROW_ELEMENTS)};
    for (float *sum = s->sums, *end = sum + s->columns; sum < end; sum += TILE_COLUMNS, b += s->b_next)
        for (int i = 0; i < TILE_COLUMNS; i += LANES)
            if (first == ONE_LEAF)
                sum_vectors(&x, b + i, sum + i, b_step, width, steps, begun, to);
            else
                sum_pair(&x, b + i, sum + i, b_step, width, steps, first, to);
}

/* Each kind of part is compiled for itself, so that nothing is asked in its loop. */
#define KIND(steps, begun, to) (((steps)*2 + (begun)) * BUFFERS + (to))
#define CASE(steps, begun, to)                                                                               \
case KIND(steps, begun, to):                                                                                 \
    sum_part(part, s, b_step, width, steps, ONE_LEAF, begun, to);                                            \
    break;
#define CASES(steps, begun)                                                                                  \
    CASE(steps, begun, 0) CASE(steps, begun, 1) CASE(steps, begun, 2) CASE(steps, begun, 3)
ALWAYS_INLINE void compute_part(const struct part *part, const struct strip *s, int64_t b_step, int64_t width)
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

/* ---- what a strip gives ---- */

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
    if (plan->rounded) {
        uint16_t *to = (uint16_t *)plan->gemm.c + c;
        write_panels(sum, whole, SYCPU_GEMM_ROUND, to);
        for (int64_t j = whole; j < columns; j++) to[j] = syi_bf16_from_float(sum[j] + 0.0f);
    } else {
        float *to = (float *)plan->gemm.c + c;
        write_panels(sum, whole, plan->stream ? SYCPU_GEMM_STREAM : SYCPU_GEMM_STORE, to);
        for (int64_t j = whole; j < columns; j++) to[j] = sum[j] + 0.0f;
    }
}

/* Rows [row, row + STRIP_ROWS) of the block, as far as it has them, by `columns` columns of C. */
static void write_strip(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                        int64_t expert, int64_t row, const float *sums, int64_t width, int64_t column,
                        int64_t columns)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const int64_t c = expert * sycpu_gemm_c_size(gemm) + column;
    for (int64_t i = 0; i < least(STRIP_ROWS, worker->block_rows - row); i++)
        write_row(plan, sums + i * width, c + worker->slot[row + i] * gemm->columns, columns);
}

#endif
