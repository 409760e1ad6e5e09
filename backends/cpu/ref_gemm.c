/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of the matrix products: every element by itself, in the order of doc/numerics.md, with no
 * thought of speed. The fast kernels (fast_gemm*.c) must give the same bits. */
#include "config.h"

#include <math.h>

#include "backends/cpu/gemm.h"
#include "base/bf16.h"

/* Balanced binary tree over leaves that come one by one: pending[i] waits for a right neighbour of equal
 * weight. */
struct tree {
    sy_real pending[64];
    int n_pending;
    int64_t n_leaves; /* pushed so far */
};

static sy_real fused(sy_real a, sy_real b, sy_real acc)
{
#ifdef SY_REAL_DOUBLE
    return fma(a, b, acc);
#else
    return fmaf(a, b, acc);
#endif
}

static void push(struct tree *tree, sy_real leaf)
{
    for (int64_t i = tree->n_leaves++; i & 1; i >>= 1) leaf = tree->pending[--tree->n_pending] + leaf;
    tree->pending[tree->n_pending++] = leaf;
}

static sy_real total(struct tree *tree)
{
    sy_real sum = tree->pending[--tree->n_pending];
    while (tree->n_pending) sum = tree->pending[--tree->n_pending] + sum;
    return sum;
}

/* Goes on with a chain over n products; the steps are distances between elements. */
static sy_real chain(sy_real acc, const sy_real *a, int64_t a_step, const sy_real *b, int64_t b_step,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) acc = fused(a[i * a_step], b[i * b_step], acc);
    return acc;
}

/* The same with int8 weights, each times the scale. */
static sy_real chain_int8(const sy_real *a, const int8_t *b, int64_t b_step, sy_real scale, int64_t n)
{
    sy_real acc = 0;
    for (int64_t i = 0; i < n; i++) acc = fused(a[i], (sy_real)b[i * b_step] * scale, acc);
    return acc;
}

/* The same with bf16 in panels, elements [k, k + n) of a column. */
static sy_real chain_panels(const sy_real *a, const uint16_t *b, int64_t depth, int64_t k, int64_t column,
                            int64_t n)
{
    sy_real acc = 0;
    for (int64_t i = 0; i < n; i++)
        acc = fused(a[i], (sy_real)syi_bf16_to_float(b[sycpu_gemm_in_panel(depth, k + i, column)]), acc);
    return acc;
}

/* Whose token a buffer row holds, -1: nobody's. */
static int64_t expert_of(const struct sycpu_gemm *gemm, int64_t row)
{
    int64_t from = gemm->ragged ? 0 : row / gemm->rows, to = gemm->ragged ? gemm->experts : from + 1;
    row %= gemm->rows;
    for (int64_t expert = from; expert < to; expert++) {
        int64_t group = row / gemm->slots, first = sycpu_gemm_first_row(gemm, expert, group);
        if (row >= first && row < first + sycpu_gemm_filled(gemm, expert, group)) return expert;
    }
    return -1;
}

/* Buffer row times the weights of its expert. */
static void row_times_weights(void *arg, int64_t row, int thread)
{
    const struct sycpu_gemm *gemm = arg;
    int64_t expert = expert_of(gemm, row);
    const sy_real *a = (const sy_real *)gemm->a + row * gemm->depth;
    int64_t skip = (expert < 0 ? 0 : expert) * sycpu_gemm_b_size(gemm);
    const sy_real *b = (const sy_real *)gemm->b + skip;
    const int8_t *q = (const int8_t *)gemm->b + skip;
    const uint16_t *half = (const uint16_t *)gemm->b + skip;
    const sy_real *scale = gemm->scale;
    sy_real *c = (sy_real *)gemm->c + row * gemm->columns;
    int transposed = gemm->form == SYCPU_GEMM_NT;
    int64_t along = transposed ? 1 : gemm->columns, across = transposed ? gemm->depth : 1;
    (void)thread;
    for (int64_t n = 0; n < gemm->columns; n++) {
        struct tree tree = {.n_leaves = 0};
        if (expert < 0) {
            c[n] = 0;
            continue;
        }
        for (int64_t k = 0; k < gemm->depth; k += gemm->leaf) {
            int64_t at = k * along + n * across;
            sy_real leaf =
                scale ? chain_int8(a + k, q + at, along, scale[expert * gemm->columns + n], gemm->leaf)
                : gemm->panels ? chain_panels(a + k, half, gemm->depth, k, n, gemm->leaf)
                               : chain(0, a + k, 1, b + at, along, gemm->leaf);
            push(&tree, leaf + (sy_real)0);
        }
        c[n] = total(&tree);
        if (gemm->relu && c[n] < 0) c[n] = 0;
    }
}

/* One leaf of x^T y: the filled slots of `leaf` groups, a and b at the columns wanted. */
static sy_real leaf_over_slots(const struct sycpu_gemm *gemm, int64_t expert, int64_t first_group,
                               const sy_real *a, const sy_real *b)
{
    sy_real acc = 0;
    for (int64_t group = first_group; group < first_group + gemm->leaf; group++) {
        int64_t row = group * gemm->slots;
        acc = chain(acc, a + row * gemm->a_width, gemm->a_width, b + row * gemm->columns, gemm->columns,
                    sycpu_gemm_filled(gemm, expert, group));
    }
    return acc + (sy_real)0;
}

static void row_of_gradient(void *arg, int64_t task, int thread)
{
    const struct sycpu_gemm *gemm = arg;
    int64_t expert = task / gemm->rows, row = task % gemm->rows;
    const sy_real *a = (const sy_real *)gemm->a + expert * sycpu_gemm_a_size(gemm) + row;
    const sy_real *b = (const sy_real *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    sy_real *c = (sy_real *)gemm->c + task * gemm->columns;
    (void)thread;
    for (int64_t n = 0; n < gemm->columns; n++) {
        struct tree tree = {.n_leaves = 0};
        for (int64_t group = 0; group < gemm->groups; group += gemm->leaf)
            push(&tree, leaf_over_slots(gemm, expert, group, a, b + n));
        c[n] = total(&tree);
    }
}

static int multiply(const struct sy_call *call)
{
    struct sycpu_gemm gemm = sycpu_gemm_of(call);
    sycpu_parallel(call, (gemm.ragged ? 1 : gemm.experts) * gemm.rows,
                   gemm.form == SYCPU_GEMM_TN ? row_of_gradient : row_times_weights, &gemm);
    return SY_OK;
}

#define PRODUCT(name)                                                                                        \
    SYCPU_REF_KERNEL(name)                                                                                   \
    {                                                                                                        \
        (void)context;                                                                                       \
        return multiply(call);                                                                               \
    }
PRODUCT(matmul)
PRODUCT(matmul_nt)
PRODUCT(matmul_tn)
PRODUCT(grouped_matmul)
PRODUCT(grouped_matmul_nt)
PRODUCT(grouped_matmul_tn)
PRODUCT(ragged_matmul)
PRODUCT(matmul_int8)
PRODUCT(matmul_nt_int8)
PRODUCT(grouped_matmul_int8)
PRODUCT(ragged_matmul_int8)
PRODUCT(matmul_panels)
PRODUCT(grouped_matmul_panels)
PRODUCT(ragged_matmul_panels)
