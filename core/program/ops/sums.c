/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in a fixed order: of blocks, over axes, of pieces of ranks; maxima over axes (doc/numerics.md). */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

/* Blocks along the dims whose bit is set; the others stay as they are. */
static int block_sum(struct syi_program *p, enum sy_op op, int x, unsigned dims)
{
    if (!SYI_HAVE(p, x)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, x);
    struct sy_attr_block attr;
    for (int i = 0; i < SY_MAX_DIMS; i++) {
        int64_t count = i >= t.rank ? 1 : dims >> i & 1 ? p->leaf_count[t.axis[i]] : t.dim[i];
        if (t.dim[i] % count)
            return SYI_BAD(p, "block sum: dim %d does not divide into %lld leaves", i, (long long)count);
        attr.leaf[i] = t.dim[i] / count;
        t.dim[i] = count;
    }
    return SYI_EMIT(p, op, syi_temp(p, syi_sum_dtype(t.dtype), t.rank, t.dim, t.axis), &attr, sizeof attr, x);
}

int syi_block_sum(struct syi_program *p, enum sy_op op, int x)
{
    return block_sum(p, op, x, ~0u);
}

int syi_tree_sum(struct syi_program *p, int blocks)
{
    if (!SYI_HAVE(p, blocks)) return -1;
    return SYI_EMIT(p, SY_OP_TREE_SUM, syi_temp(p, syi_tensor_of(p, blocks)->dtype, 1, (int64_t[]){1}, NULL),
                    NULL, 0, blocks);
}

int syi_total(struct syi_program *p, int x)
{
    return syi_tree_sum(p, syi_block_sum(p, SY_OP_BLOCK_SUM, x));
}

int syi_norm_of_all(struct syi_program *p, int n, const int *x, const double *scale)
{
    struct sy_error err = {0};
    int norm = -1, *square = syi_alloc((size_t)n * sizeof *square, &err);
    if (!square) return syi_program_fail(p, SY_ENOMEM, "%s", err.text);
    norm = syi_norm_and_squares(p, n, x, scale, square);
    syi_free(square);
    return norm;
}

int syi_norm_and_squares(struct syi_program *p, int n, const int *x, const double *scale, int *square)
{
    for (int i = 0; i < n; i++) square[i] = syi_block_sum(p, SY_OP_BLOCK_SUMSQ, x[i]);
    return syi_norm_of_blocks(p, n, square, scale);
}

int syi_norm_of_blocks(struct syi_program *p, int n, int *square, const double *scale)
{
    int sum = -1;
    for (int i = 0; i < n; i++) {
        square[i] = syi_tree_sum(p, square[i]);
        if (scale && scale[i] != 1) square[i] = syi_map1(p, SY_MAP_MULS, square[i], scale[i] * scale[i]);
        sum = sum < 0 ? square[i] : syi_map2(p, SY_MAP_ADD, sum, square[i]);
    }
    return syi_map1(p, SY_MAP_SQRT, sum, 0);
}

/* tree_axis or max_axis over each of the dims whose bit is set, the last one first; those 1 long stay. */
static int over_axes(struct syi_program *p, enum sy_op op, int x, unsigned dims)
{
    for (int64_t i = SY_MAX_DIMS - 1; x >= 0 && i >= 0; i--) {
        struct syi_tensor t = *syi_tensor_of(p, x);
        if (i >= t.rank || !(dims >> i & 1) || t.dim[i] == 1) continue;
        struct sy_attr_axis attr = {i};
        t.dim[i] = 1;
        t.axis[i] = SYI_AXIS_NONE;
        x = SYI_EMIT(p, op, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, x);
    }
    return x;
}

int syi_sum_over(struct syi_program *p, enum sy_op op, int x, unsigned dims)
{
    return over_axes(p, SY_OP_TREE_AXIS, block_sum(p, op, x, dims), dims);
}

int syi_max_over(struct syi_program *p, int x, unsigned dims)
{
    return SYI_HAVE(p, x) ? over_axes(p, SY_OP_MAX_AXIS, x, dims) : -1;
}

/* ---- check ---- */

static int check_block(struct syi_check *c)
{
    const struct sy_attr_block *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, 0);
    if (x->rank != y->rank) return syi_check_bad(c, "ranks %d and %d", x->rank, y->rank);
    for (int i = 0; i < SY_MAX_DIMS; i++)
        if (attr->leaf[i] < 1 || x->dim[i] != y->dim[i] * attr->leaf[i])
            return syi_check_bad(c, "dim %d: %lld blocks of %lld in %lld", i, (long long)y->dim[i],
                                 (long long)attr->leaf[i], (long long)x->dim[i]);
    return SY_OK;
}

static int check_axis(struct syi_check *c)
{
    const struct sy_attr_axis *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, 0);
    if (attr->dim < 0 || attr->dim >= x->rank || x->rank != y->rank) return syi_check_bad(c, "no such axis");
    for (int i = 0; i < x->rank; i++)
        if (y->dim[i] != (i == attr->dim ? 1 : x->dim[i])) return syi_check_bad(c, "dim %d does not fit", i);
    return SY_OK;
}

static int check_scalar(struct syi_check *c)
{
    return syi_tensor_count(syi_check_out(c, 0)) == 1 ? SY_OK
                                                      : syi_check_bad(c, "the output has many elements");
}

/* ---- gradients ---- */

SYI_GRAD(block_sum)
{
    if (syi_tensor_count(&p->tensor[op->out[0]]) == 1 || p->tensor[dout[0]].rank == 1) {
        if (wants[0]) din[0] = syi_fill_like(p, dout[0], op->in[0]);
    } else {
        syi_program_fail(p, SY_EUNSUPPORTED, "block_sum: only its total is differentiable");
    }
}

/* The total's gradient goes to every block alike, so it stays a scalar until block_sum spreads it. */
SYI_GRAD(tree_sum)
{
    (void)op;
    if (wants[0]) din[0] = syi_map1(p, SY_MAP_COPY, dout[0], 0);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_block_sum = {.check = check_block, .grad = grad_block_sum, .flops = 1};
const struct syi_op_rules syi_op_rules_block_sumsq = {.check = check_block, .flops = 2};
const struct syi_op_rules syi_op_rules_block_max = {.check = check_block, .flops = 1};
const struct syi_op_rules syi_op_rules_tree_sum = {.check = check_scalar, .grad = grad_tree_sum, .flops = 1};
const struct syi_op_rules syi_op_rules_tree_axis = {.check = check_axis, .flops = 1};
const struct syi_op_rules syi_op_rules_max_axis = {.check = check_axis, .flops = 1};
const struct syi_op_rules syi_op_rules_count_sum = {0};
const struct syi_op_rules syi_op_rules_tree_add = {.flops = 1};
