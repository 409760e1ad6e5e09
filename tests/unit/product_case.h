/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and operands of matrix products, plain and per expert, in any dtype, for the tests of their kernels.
 */
#ifndef PRODUCT_CASE_H
#define PRODUCT_CASE_H

#include "kernel_harness.h"

#include "program/program.h"

struct shape {
    int experts, groups, slots, k, n; /* experts 0: a plain product; ragged: slots are those of all experts */
};

static const int plain_ops[] = {SY_OP_MATMUL, SY_OP_MATMUL_NT, SY_OP_MATMUL_TN};
static const int grouped_ops[] = {SY_OP_GROUPED_MATMUL, SY_OP_GROUPED_MATMUL_NT, SY_OP_GROUPED_MATMUL_TN,
                                  SY_OP_RAGGED_MATMUL};
enum { N_GROUPED = sizeof grouped_ops / sizeof grouped_ops[0] };

static inline int is_tn(int op)
{
    return op == SY_OP_MATMUL_TN || op == SY_OP_GROUPED_MATMUL_TN;
}
static inline int is_nt(int op)
{
    return op == SY_OP_MATMUL_NT || op == SY_OP_GROUPED_MATMUL_NT;
}

/* Extent of the axis that is cut into leaves. */
static inline int leaf_axis(int op, const struct shape *s)
{
    return is_tn(op) ? s->groups : is_nt(op) ? s->n : s->k;
}

/* All orders of a small extent, a large one and one of a vocabulary, each with leaves that wait and with one: what is cut into
 * blocks, chunks and groups fits its scratch. */
static inline void each_order(int op, int experts, const int *size,
                              void (*check)(int op, const struct shape *s, int leaf))
{
    for (int i = 0; i < 27; i++) {
        const int rows = i / 9, k = i / 3 % 3, n = i % 3, groups = is_tn(op) && rows ? 8 : 1;
        const struct shape s = {experts, groups, size[rows] / groups, size[k], size[n]};
        const int axis = leaf_axis(op, &s);
        if (rows == k || k == n || n == rows) continue;
        check(op, &s, axis);
        if (axis % 8 == 0) check(op, &s, axis / 8);
    }
}

/* Operands of a product whose x is [.., k] and whose weights are [k, n]; NT has x [.., n], TN y [.., n].
 * Those of experts want add_counts too. */
static inline void add_operands(struct kh *k, const struct shape *s, int in, int out)
{
    int x_width = is_nt(k->op) ? s->n : s->k, out_width = is_nt(k->op) ? s->k : s->n;
    if (s->experts == 0) {
        kh_in(k, in, 3, s->groups, s->slots, x_width);
        if (is_tn(k->op)) {
            kh_in(k, in, 3, s->groups, s->slots, s->n);
            kh_out(k, out, 2, s->k, s->n);
        } else {
            kh_in(k, in, 2, s->k, s->n);
            kh_out(k, out, 3, s->groups, s->slots, out_width);
        }
        return;
    }
    int buffers = k->op == SY_OP_RAGGED_MATMUL ? 1 : s->experts;
    kh_in(k, in, 4, buffers, s->groups, s->slots, x_width);
    if (is_tn(k->op)) {
        kh_in(k, in, 4, s->experts, s->groups, s->slots, s->n);
        kh_out(k, out, 3, s->experts, s->k, s->n);
    } else {
        kh_in(k, in, 3, s->experts, s->k, s->n);
        kh_out(k, out, 4, buffers, s->groups, s->slots, out_width);
    }
}

/* NaN in the slots of a group from `used` on, which would show if they were read; group: counted over all
 * experts where each has slots of its own. */
static inline void spoil_empty(struct kh *k, const struct shape *s, int group, int used)
{
    for (int in = 0; in < (is_tn(k->op) ? 2 : 1); in++) {
        int64_t width = k->in[in].dim[3], end = (int64_t)(group + 1) * s->slots * width;
        for (int64_t i = ((int64_t)group * s->slots + used) * width; i < end; i++)
            if (k->in[in].dtype == SY_BF16)
                ((uint16_t *)k->in[in].data)[i] = 0x7fc0;
            else
                ((float *)k->in[in].data)[i] = NAN;
    }
}

/* Groups that are full, empty, odd; every third expert has no token at all. Ragged: the experts of a group
 * share its slots. An expert has at most so many tokens in a group. */
static inline void add_counts_up_to(struct kh *k, const struct shape *s, int most)
{
    int ragged = k->op == SY_OP_RAGGED_MATMUL;
    int32_t *counts = kh_in(k, SY_I32, 2, s->experts, s->groups),
            *first = ragged ? kh_in(k, SY_I32, 2, s->experts, s->groups) : NULL;
    for (int group = 0; group < s->groups; group++) {
        int used = 0;
        for (int expert = 0; expert < s->experts; expert++) {
            int i = expert * s->groups + group, left = s->slots - used < most ? s->slots - used : most;
            counts[i] = kh_random() % 4 == 0 ? left : (int32_t)(kh_random() % (uint32_t)(left + 1));
            if (expert % 3 == 1) counts[i] = 0;
            if (ragged)
                first[i] = used, used += counts[i];
            else
                spoil_empty(k, s, i, counts[i]);
        }
        if (ragged) spoil_empty(k, s, group, used);
    }
}

static inline void add_counts(struct kh *k, const struct shape *s)
{
    add_counts_up_to(k, s, s->slots);
}

/* ---- shapes drawn at random ---- */

/* How many a test draws: SY_TEST_DRAWN times as many as it does by itself. SY_TEST_SEED: others than those of every run. */
static inline int draw_begin(int few)
{
    const char *times = getenv("SY_TEST_DRAWN"), *seed = getenv("SY_TEST_SEED");
    if (seed) kh_state ^= strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15u;
    return times ? few * atoi(times) : few;
}

/* 1 .. most, small ones as often as large ones, about half of them multiples of 8, of 16 or of what blocks have. */
static inline int draw_extent(int most)
{
    static const int step[] = {8, 16, 32, 48, 64, 96};
    int bits = 1, of = step[kh_random() % 6];
    while (most >> bits) bits++;
    int n = 1 + (int)(kh_random() % (1u << (1 + kh_random() % (uint32_t)bits)));
    if (kh_random() % 2) n = (n + of - 1) / of * of;
    return n < most ? n : most;
}

/* An op, plain or of experts, and its shape. At most so many multiplications, one of thirty 20 times as many. */
static inline int draw_product(struct shape *s, double multiplications)
{
    static const int most[] = {40, 8, 400, 700, 1200};
    int *extent[] = {&s->experts, &s->groups, &s->slots, &s->k, &s->n}, experts = kh_random() % 3 > 0;
    for (int i = 0; i < 5; i++) *extent[i] = draw_extent(most[i]);
    if (kh_random() % 30 == 0) multiplications *= 20;
    for (;;) { /* the larger an extent is, the sooner it is halved */
        double size = (double)s->experts * s->groups * s->slots * s->k * s->n / (experts ? 1 : s->experts);
        int i = !experts + (int)(kh_random() % (uint32_t)(5 - !experts));
        if (size <= multiplications) break;
        if ((int)(kh_random() % (uint32_t)most[i]) < *extent[i]) *extent[i] = (*extent[i] + 1) / 2;
    }
    if (!experts) s->experts = 0;
    return experts ? grouped_ops[kh_random() % N_GROUPED] : plain_ops[kh_random() % 3];
}

/* Of one leaf as often as of several, of at most 16 or of one element each. */
static inline int draw_leaf(int axis)
{
    int leaves = 2 + (int)(kh_random() % 15);
    if (kh_random() % 2) return axis;
    while (axis % leaves) leaves--;
    return kh_random() % 8 ? axis / leaves : 1;
}

#endif
