/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: plain, of experts over their slots (grouped_), of experts over a buffer without gaps
 * (ragged_). */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

/* The result of a product: like `like`, the last dim is that of dim `dim` of `from`. */
static int temp_with_last(struct syi_program *p, int like, int from, int dim)
{
    struct syi_tensor t = *syi_tensor_of(p, like);
    t.dim[t.rank - 1] = syi_tensor_of(p, from)->dim[dim];
    t.axis[t.rank - 1] = syi_tensor_of(p, from)->axis[dim];
    return syi_temp(p, syi_sum_dtype(t.dtype), t.rank, t.dim, t.axis);
}

/* Emits a product of x, w and what else the op reads: in[0] and in[1] are x and w, whose dims `contract` and `free` are
 * summed over and kept. */
static int product(struct syi_program *p, enum sy_op op, int n_in, const int *in, int contract, int free)
{
    if (!syi_have(p, n_in, in)) return -1;
    const struct syi_tensor *tx = syi_tensor_of(p, in[0]), *tw = syi_tensor_of(p, in[1]);
    if (tx->rank != tw->rank + 1 || tx->dim[tx->rank - 1] != tw->dim[contract])
        return SYI_BAD(p, "%s: operands of rank %d and %d, contraction %lld and %lld", syi_op_info(op)->name,
                       tx->rank, tw->rank, (long long)tx->dim[tx->rank - 1], (long long)tw->dim[contract]);
    struct sy_attr_leaf attr = {syi_leaf_length(p, in[0], tx->rank - 1)};
    return syi_emit(p, op, n_in, in, temp_with_last(p, in[0], in[1], free), &attr, sizeof attr);
}
#define PRODUCT(p, op, contract, free, ...)                                                                  \
    product(p, op, (int)SYI_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__}, contract, free)

int syi_matmul(struct syi_program *p, int x, int w)
{
    return PRODUCT(p, SY_OP_MATMUL, 0, 1, x, w);
}

int syi_matmul_nt(struct syi_program *p, int x, int w)
{
    return PRODUCT(p, SY_OP_MATMUL_NT, 1, 0, x, w);
}

int syi_matmul_int8(struct syi_program *p, int x, int w, int scales)
{
    return PRODUCT(p, SY_OP_MATMUL_INT8, 0, 1, x, w, scales);
}

int syi_matmul_nt_int8(struct syi_program *p, int x, int w, int scales)
{
    return PRODUCT(p, SY_OP_MATMUL_NT_INT8, 1, 0, x, w, scales);
}

int syi_matmul_tn(struct syi_program *p, int x, int y)
{
    if (!SYI_HAVE(p, x, y)) return -1;
    const struct syi_tensor *tx = syi_tensor_of(p, x), *ty = syi_tensor_of(p, y);
    int64_t dim[2] = {tx->dim[2], ty->dim[2]};
    uint8_t axis[2] = {tx->axis[2], ty->axis[2]};
    struct sy_attr_leaf attr = {syi_leaf_length(p, x, 0)};
    return SYI_EMIT(p, SY_OP_MATMUL_TN, syi_temp(p, syi_sum_dtype(tx->dtype), 2, dim, axis), &attr,
                    sizeof attr, x, y);
}

int syi_grouped_matmul(struct syi_program *p, int x, int w, int counts)
{
    return PRODUCT(p, SY_OP_GROUPED_MATMUL, 1, 2, x, w, counts);
}

int syi_grouped_matmul_nt(struct syi_program *p, int x, int w, int counts)
{
    return PRODUCT(p, SY_OP_GROUPED_MATMUL_NT, 2, 1, x, w, counts);
}

int syi_grouped_matmul_int8(struct syi_program *p, int x, int w, int counts, int scales)
{
    return PRODUCT(p, SY_OP_GROUPED_MATMUL_INT8, 1, 2, x, w, counts, scales);
}

int syi_grouped_matmul_tn(struct syi_program *p, int x, int y, int counts)
{
    if (!SYI_HAVE(p, x, y, counts)) return -1;
    const struct syi_tensor *tx = syi_tensor_of(p, x), *ty = syi_tensor_of(p, y);
    int64_t dim[3] = {tx->dim[0], tx->dim[3], ty->dim[3]};
    uint8_t axis[3] = {tx->axis[0], tx->axis[3], ty->axis[3]};
    struct sy_attr_leaf attr = {syi_leaf_length(p, x, 1)};
    return SYI_EMIT(p, SY_OP_GROUPED_MATMUL_TN, syi_temp(p, syi_sum_dtype(tx->dtype), 3, dim, axis), &attr,
                    sizeof attr, x, y, counts);
}

int syi_ragged_matmul(struct syi_program *p, int x, int w, int counts, int first)
{
    return PRODUCT(p, SY_OP_RAGGED_MATMUL, 1, 2, x, w, counts, first);
}

int syi_ragged_matmul_int8(struct syi_program *p, int x, int w, int counts, int first, int scales)
{
    return PRODUCT(p, SY_OP_RAGGED_MATMUL_INT8, 1, 2, x, w, counts, first, scales);
}

/* As product, of w in panels. */
static int panels(struct syi_program *p, enum sy_op op, int n_in, const int *in)
{
    if (!syi_have(p, n_in, in)) return -1;
    const struct syi_tensor *x = syi_tensor_of(p, in[0]), *w = syi_tensor_of(p, in[1]);
    struct syi_tensor t = *x;
    t.dim[t.rank - 1] = w->dim[w->rank - 3] * SY_PANEL_COLUMNS;
    t.axis[t.rank - 1] = w->axis[w->rank - 3];
    struct sy_attr_panels attr = {syi_leaf_length(p, in[0], x->rank - 1), SY_LINEAR};
    return syi_emit(p, op, n_in, in, syi_temp(p, syi_sum_dtype(t.dtype), t.rank, t.dim, t.axis), &attr,
                    sizeof attr);
}

int syi_matmul_panels(struct syi_program *p, int x, int w)
{
    return panels(p, SY_OP_MATMUL_PANELS, 2, (int[]){x, w});
}

int syi_grouped_matmul_panels(struct syi_program *p, int x, int w, int counts)
{
    return panels(p, SY_OP_GROUPED_MATMUL_PANELS, 3, (int[]){x, w, counts});
}

int syi_ragged_matmul_panels(struct syi_program *p, int x, int w, int counts, int first)
{
    return panels(p, SY_OP_RAGGED_MATMUL_PANELS, 4, (int[]){x, w, counts, first});
}

/* ---- check ---- */

/* Letters do not tie a panel's columns to those of the output, so extents are looked at here. */
static int check_panels(struct syi_check *c)
{
    const struct syi_tensor *x = syi_check_in(c, 0), *w = syi_check_in(c, 1), *y = syi_check_out(c, 0);
    const struct syi_tensor *counts = c->op->n_in > 2 ? syi_check_in(c, 2) : NULL;
    int last = x->rank - 1, n = w->rank - 3, ragged = c->op->op == SY_OP_RAGGED_MATMUL_PANELS;
    int64_t leaf = syi_op_field(c->program, c->op, "leaf", 0);
    int fits = w->dim[n + 1] == x->dim[last] && w->dim[n + 2] == SY_PANEL_COLUMNS &&
               leaf % SY_PANEL_LEAF == 0 && y->dim[last] == w->dim[n] * SY_PANEL_COLUMNS &&
               !memcmp(x->dim, y->dim, (size_t)last * sizeof *x->dim);
    if (fits && counts) fits = counts->dim[0] == w->dim[0] && counts->dim[1] == x->dim[1];
    if (fits && counts) fits = x->dim[0] == (ragged ? 1 : w->dim[0]);
    if (!fits) return syi_check_bad(c, "operands do not fit panels");
    int64_t activation = syi_op_field(c->program, c->op, "activation", -1);
    if (activation != SY_LINEAR && activation != SY_RELU)
        return syi_check_bad(c, "activation %lld", (long long)activation);
    return SY_OK;
}

/* ---- gradients ---- */

/* The gradient of a product's operand x: bf16 as x is, where no rule can split its contraction. */
static int product_gradient(struct syi_program *p, int dx, int x, int dy)
{
    if (dx < 0) return dx;
    const struct syi_tensor *t = &p->tensor[dy];
    int axis = t->axis[t->rank - 1];
    int whole = axis == SYI_AXIS_EMBED || p->leaf_count[axis] == 1;
    return whole ? syi_as(p, dx, p->tensor[x].dtype) : dx;
}

/* Of products the gradient of x comes last: what takes it follows, and finds it in the cache. */
SYI_GRAD(matmul)
{
    int dy = syi_grad_fitting(p, dout[0], op->in[1]);
    if (wants[1]) din[1] = syi_matmul_tn(p, op->in[0], dy);
    if (wants[0]) din[0] = product_gradient(p, syi_matmul_nt(p, dy, op->in[1]), op->in[0], dy);
}

/* y = x w^T: dx = dy w, dw = dy^T x. */
SYI_GRAD(matmul_nt)
{
    int dy = syi_grad_fitting(p, dout[0], op->in[1]);
    if (wants[1]) din[1] = syi_matmul_tn(p, dy, op->in[0]);
    if (wants[0]) din[0] = product_gradient(p, syi_matmul(p, dy, op->in[1]), op->in[0], dy);
}

SYI_GRAD(grouped_matmul)
{
    int dy = syi_grad_fitting(p, dout[0], op->in[1]);
    if (wants[1]) din[1] = syi_grouped_matmul_tn(p, op->in[0], dy, op->in[2]);
    if (wants[0])
        din[0] = product_gradient(p, syi_grouped_matmul_nt(p, dy, op->in[1], op->in[2]), op->in[0], dy);
}

/* ---- cost ---- */

/* The product of the extents of all letters of an op's operands. */
static double combinations(const struct sy_call *call)
{
    char letters[SY_MAX_DIMS + 1], seen[32] = "";
    double n = 1;
    for (int output = 0, filled = 0; output < 2; output++)
        for (int i = 0; i < (output ? call->n_out : call->n_in); i++) {
            const struct sy_tensor *t = output ? &call->out[i] : &call->in[i];
            if (!syi_operand_present(t) || !syi_op_letters(call->op, output, i, t->rank, letters)) continue;
            for (int d = 0; d < t->rank && letters[d]; d++) {
                if (strchr(seen, letters[d]) || filled >= (int)sizeof seen - 1) continue;
                seen[filled++] = letters[d];
                n *= (double)t->dim[d];
            }
        }
    return n;
}

static void cost_product(const struct sy_call *call, struct syi_cost *cost)
{
    cost->flops = 2 * combinations(call);
    cost->product = 1;
}

static void cost_grouped(const struct sy_call *call, struct syi_cost *cost)
{
    cost_product(call, cost);
    syi_cost_filled(call, &call->in[2], cost);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_matmul = {.leaf_dim = 2, .grad = grad_matmul, .cost = cost_product};
const struct syi_op_rules syi_op_rules_matmul_nt = {
    .leaf_dim = 2, .grad = grad_matmul_nt, .cost = cost_product};
const struct syi_op_rules syi_op_rules_matmul_tn = {.leaf_dim = 0, .cost = cost_product};
const struct syi_op_rules syi_op_rules_grouped_matmul = {
    .leaf_dim = 3, .grad = grad_grouped_matmul, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_grouped_matmul_nt = {.leaf_dim = 3, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_grouped_matmul_tn = {.leaf_dim = 1, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_ragged_matmul = {.leaf_dim = 3, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_matmul_int8 = {.leaf_dim = 2, .cost = cost_product};
const struct syi_op_rules syi_op_rules_matmul_nt_int8 = {.leaf_dim = 2, .cost = cost_product};
const struct syi_op_rules syi_op_rules_grouped_matmul_int8 = {.leaf_dim = 3, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_ragged_matmul_int8 = {.leaf_dim = 3, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_matmul_panels = {
    .leaf_dim = 2, .check = check_panels, .cost = cost_product};
const struct syi_op_rules syi_op_rules_grouped_matmul_panels = {
    .leaf_dim = 3, .check = check_panels, .cost = cost_grouped};
const struct syi_op_rules syi_op_rules_ragged_matmul_panels = {
    .leaf_dim = 3, .check = check_panels, .cost = cost_grouped};
