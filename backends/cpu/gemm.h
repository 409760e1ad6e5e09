/* SPDX-License-Identifier: Apache-2.0 */
/* One description for all matrix products, made from a call: C = A' B' for each expert, where the rows of
 * buffers lie in groups of slots; of a group the first slots are filled, or (ragged) those of all experts one
 * after the other. A plain product is one expert with all slots filled. Used by the reference and the fast
 * kernels; computes nothing itself. */
#ifndef SYCPU_GEMM_H
#define SYCPU_GEMM_H

#include "backends/cpu/cpu.h"
#include "base/base.h"

enum sycpu_gemm_form {
    SYCPU_GEMM_NN, /* buffer rows [x] times w [depth, columns] */
    SYCPU_GEMM_NT, /* buffer rows [x] times w [columns, depth] transposed */
    SYCPU_GEMM_TN  /* x^T y: the contraction runs over the filled buffer rows */
};

struct sycpu_gemm {
    const void *a;         /* x: [experts, groups, slots, a_width]; ragged: [groups, slots, a_width] */
    const void *b;         /* w: [experts, ...], TN: y [experts, groups, slots, columns] */
    const void *scale;     /* of int8 weights: [experts, columns]; NULL: b is floating point */
    void *c;               /* NN, NT: as x, with `columns`; TN: [experts, rows, columns] */
    const int32_t *filled; /* [experts, groups] slots in use, NULL: all */
    const int32_t *first;  /* ragged: [experts, groups] where they begin */
    int relu;              /* 1: C is what the sum has above 0 */
    int panels;      /* 1: b is bf16 in panels [experts, columns / 32, depth / 2, 32, 2], whatever a is */
    int ragged;      /* 1: all experts share the slots of a group */
    int64_t experts; /* 1 for plain products */
    int64_t groups, slots; /* buffer rows are groups * slots */
    int64_t a_width;       /* elements in a row of x */
    int64_t rows;          /* of C for an expert; NN, NT: at most */
    int64_t columns;       /* of C */
    int64_t depth;         /* of the contraction for an expert; TN: at most */
    int64_t leaf;          /* NN, NT: elements of the contraction; TN: groups */
    int64_t leaves;        /* of the contraction */
    enum sycpu_gemm_form form;
};

/* The op with weights as they are; the same op where it has those. */
static inline int sycpu_gemm_plain_op(int op)
{
    switch (op) {
    case SY_OP_MATMUL_INT8: return SY_OP_MATMUL;
    case SY_OP_MATMUL_NT_INT8: return SY_OP_MATMUL_NT;
    case SY_OP_GROUPED_MATMUL_INT8: return SY_OP_GROUPED_MATMUL;
    case SY_OP_RAGGED_MATMUL_INT8: return SY_OP_RAGGED_MATMUL;
    case SY_OP_MATMUL_PANELS: return SY_OP_MATMUL;
    case SY_OP_GROUPED_MATMUL_PANELS: return SY_OP_GROUPED_MATMUL;
    case SY_OP_RAGGED_MATMUL_PANELS: return SY_OP_RAGGED_MATMUL;
    default: return op;
    }
}

static inline int sycpu_gemm_has_panels(int op)
{
    return op == SY_OP_MATMUL_PANELS || op == SY_OP_GROUPED_MATMUL_PANELS || op == SY_OP_RAGGED_MATMUL_PANELS;
}

static inline int sycpu_gemm_is_grouped(int op)
{
    op = sycpu_gemm_plain_op(op);
    return op == SY_OP_GROUPED_MATMUL || op == SY_OP_GROUPED_MATMUL_NT || op == SY_OP_GROUPED_MATMUL_TN ||
           op == SY_OP_RAGGED_MATMUL;
}

/* Reads shapes and pointers of a call of a matrix product. */
static inline struct sycpu_gemm sycpu_gemm_of(const struct sy_call *call)
{
    const struct sy_attr_leaf *attr = call->attr;
    const struct sy_tensor *x = &call->in[0], *w = &call->in[1];
    int grouped = sycpu_gemm_is_grouped(call->op), op = sycpu_gemm_plain_op(call->op);
    struct sycpu_gemm gemm = {.a = x->data, .b = w->data, .c = call->out[0].data, .leaf = attr->leaf};
    gemm.filled = grouped ? call->in[2].data : NULL;
    gemm.ragged = op == SY_OP_RAGGED_MATMUL;
    gemm.first = gemm.ragged ? call->in[3].data : NULL;
    gemm.panels = sycpu_gemm_has_panels(call->op);
    gemm.relu = gemm.panels && ((const struct sy_attr_panels *)call->attr)->activation == SY_RELU;
    if (op != call->op && !gemm.panels)
        gemm.scale = call->in[2 + grouped + gemm.ragged].data; /* the last input */
    gemm.experts = gemm.ragged ? w->dim[0] : grouped ? x->dim[0] : 1;
    gemm.groups = x->dim[grouped];
    gemm.slots = x->dim[grouped + 1];
    gemm.a_width = x->dim[grouped + 2];
    gemm.rows = gemm.groups * gemm.slots;
    gemm.depth = gemm.a_width;
    gemm.columns = gemm.panels ? w->dim[w->rank - 3] * SY_PANEL_COLUMNS : w->dim[w->rank - 1];
    if (op == SY_OP_MATMUL_TN || op == SY_OP_GROUPED_MATMUL_TN) {
        gemm.form = SYCPU_GEMM_TN;
        gemm.rows = gemm.a_width;
        gemm.depth = gemm.groups * gemm.slots;
        gemm.leaves = gemm.groups / gemm.leaf;
    } else {
        gemm.form = SYCPU_GEMM_NN;
        gemm.leaves = gemm.depth / gemm.leaf;
        if (op == SY_OP_MATMUL_NT || op == SY_OP_GROUPED_MATMUL_NT) {
            gemm.form = SYCPU_GEMM_NT;
            gemm.columns = w->dim[w->rank - 2];
        }
    }
    return gemm;
}

static inline int64_t sycpu_gemm_filled(const struct sycpu_gemm *gemm, int64_t expert, int64_t group)
{
    return gemm->filled ? gemm->filled[expert * gemm->groups + group] : gemm->slots;
}

/* The row of an expert's first slot in a group, from sycpu_gemm_a_size or _c_size of the expert on. */
static inline int64_t sycpu_gemm_first_row(const struct sycpu_gemm *gemm, int64_t expert, int64_t group)
{
    return group * gemm->slots + (gemm->ragged ? gemm->first[expert * gemm->groups + group] : 0);
}

/* Rows of C that no token fills, of (expert, group) number `task`: how many, and the first. Ragged: after
 * the last expert's. */
static inline int64_t sycpu_gemm_empty(const struct sycpu_gemm *gemm, int64_t task, int64_t *first)
{
    int64_t expert = task / gemm->groups, group = task % gemm->groups;
    int64_t row = sycpu_gemm_first_row(gemm, expert, group) + sycpu_gemm_filled(gemm, expert, group);
    *first = row + (gemm->ragged ? 0 : expert * gemm->rows);
    return gemm->ragged && expert < gemm->experts - 1 ? 0 : (group + 1) * gemm->slots - row;
}

/* Elements from one expert to the next. */
static inline int64_t sycpu_gemm_a_size(const struct sycpu_gemm *gemm)
{
    return gemm->ragged ? 0 : gemm->groups * gemm->slots * gemm->a_width;
}
static inline int64_t sycpu_gemm_b_size(const struct sycpu_gemm *gemm)
{
    return gemm->depth * gemm->columns;
}
/* Of weights in panels: the place of an element of an expert. */
static inline int64_t sycpu_gemm_in_panel(int64_t depth, int64_t k, int64_t column)
{
    return (column / SY_PANEL_COLUMNS * depth + k / 2 * 2) * SY_PANEL_COLUMNS +
           column % SY_PANEL_COLUMNS * 2 + k % 2;
}
static inline int64_t sycpu_gemm_c_size(const struct sycpu_gemm *gemm)
{
    return gemm->ragged ? 0 : gemm->rows * gemm->columns;
}

#endif
