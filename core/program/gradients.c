/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient rule of every op that has one. Rules run before fuse, so a map has one instruction. An op
 * marked Z in ops.def has no rule: nothing flows through it. */
#include "config.h"

#include <string.h>

#include "program/grad.h"
#include "program/record.h"

#define RULE(name)                                                                                           \
    static void name(struct syi_program *p, const struct syi_op *op, const int *dout, const uint8_t *wants,  \
                     int *din)

/* The attribute of the op, copied: recording may move the array it lies in. */
#define ATTR(p, op, type)                                                                                    \
    struct type attr;                                                                                        \
    memcpy(&attr, syi_program_attr(p, op), sizeof attr)

/* The gradient of an output that takes no part, where another one does. */
static int zero_like(struct syi_program *p, int like)
{
    return syi_map1(p, SY_MAP_MULS, like, 0);
}

/* A gradient in the dtype of the tensor that stands beside it in a product or a kernel. */
static int fitting(struct syi_program *p, int gradient, int beside)
{
    return gradient < 0 ? -1 : syi_cast(p, gradient, p->tensor[beside].dtype);
}

RULE(embed)
{
    if (wants[1]) din[1] = syi_embed_grad(p, op->in[0], fitting(p, dout[0], op->in[1]), op->in[1]);
}

/* The gradient of a product's operand x: bf16 as x is, where no rule can split its contraction. */
static int product_gradient(struct syi_program *p, int dx, int x, int dy)
{
    if (dx < 0) return dx;
    const struct syi_tensor *t = &p->tensor[dy];
    int axis = t->axis[t->rank - 1];
    int whole = axis == SYI_AXIS_EMBED || p->leaf_count[axis] == 1;
    return whole ? syi_as(p, dx, p->tensor[x].dtype) : dx;
}

/* Of products the gradient of x comes last: what takes it may run on its rows (core/passes/chain.c). */
RULE(matmul)
{
    int dy = fitting(p, dout[0], op->in[1]);
    if (wants[1]) din[1] = syi_matmul_tn(p, op->in[0], dy);
    if (wants[0]) din[0] = product_gradient(p, syi_matmul_nt(p, dy, op->in[1]), op->in[0], dy);
}

/* y = x w^T: dx = dy w, dw = dy^T x. */
RULE(matmul_nt)
{
    int dy = fitting(p, dout[0], op->in[1]);
    if (wants[1]) din[1] = syi_matmul_tn(p, dy, op->in[0]);
    if (wants[0]) din[0] = product_gradient(p, syi_matmul(p, dy, op->in[1]), op->in[0], dy);
}

RULE(grouped_matmul)
{
    int dy = fitting(p, dout[0], op->in[1]);
    if (wants[1]) din[1] = syi_grouped_matmul_tn(p, op->in[0], dy, op->in[2]);
    if (wants[0])
        din[0] = product_gradient(p, syi_grouped_matmul_nt(p, dy, op->in[1], op->in[2]), op->in[0], dy);
}

RULE(rms_norm)
{
    ATTR(p, op, sy_attr_rms_norm);
    int dscale;
    (void)wants;
    din[0] = syi_rms_norm_grad(p, op->in[0], op->in[1], dout[0], op->in[2], attr.epsilon, &dscale);
    din[1] = dscale;
}

RULE(glu)
{
    ATTR(p, op, sy_attr_glu);
    if (wants[0])
        din[0] = syi_glu_grad(p, op->in[0], fitting(p, dout[0], op->in[0]), op->in[1], op->in[2], &attr);
}

/* A leaf of the bias gradient is counted in rows of the batch. */
RULE(attention)
{
    ATTR(p, op, sy_attr_attention);
    struct syi_tensor q = p->tensor[op->in[0]];
    int self = op->in[0] == op->in[1], bias = op->in[4] >= 0 && wants[4];
    int dense = op->in[10] >= 0 && wants[10];
    if (dout[1] >= 0) {
        syi_program_fail(p, SY_EUNSUPPORTED, "attention: its lse has no gradient");
        return;
    }
    attr.leaf = q.dim[0] / p->leaf_count[q.axis[0]];
    int in[13] = {op->in[0],  op->in[1],  op->in[2],
                  op->in[3],  op->in[4],  op->in[5],
                  op->out[0], op->out[1], fitting(p, dout[0], op->in[0]),
                  op->in[7],  op->in[8],  op->in[9],
                  op->in[10]};
    int out[4] = {syi_temp_like(p, op->in[0]), self ? -1 : syi_temp_like(p, op->in[1]),
                  bias ? syi_temp_like(p, op->in[4]) : -1, dense ? syi_temp_like(p, op->in[10]) : -1};
    if (syi_op_add(p, SY_OP_ATTENTION_GRAD, 13, in, 4, out, &attr, sizeof attr)) return;
    din[0] = out[0];
    din[1] = out[1];
    din[4] = out[2];
    din[10] = out[3];
}

RULE(relpos_bias)
{
    ATTR(p, op, sy_attr_relpos);
    int table = syi_temp_like(p, op->in[0]);
    if (wants[0] && !syi_op_add(p, SY_OP_RELPOS_BIAS_GRAD, 1, &dout[0], 1, &table, &attr, sizeof attr))
        din[0] = table;
}

RULE(softmax)
{
    if (!wants[0]) return;
    int dp = dout[0] >= 0 ? dout[0] : zero_like(p, op->out[0]);
    din[0] = syi_softmax_grad(p, op->out[0], dp, dout[1]);
}

RULE(xent)
{
    ATTR(p, op, sy_attr_xent);
    if (dout[1] >= 0 || dout[2] >= 0)
        syi_program_fail(p, SY_EUNSUPPORTED, "xent: only its loss is differentiable");
    else if (wants[0] && dout[0] >= 0)
        din[0] = syi_xent_grad(p, op->in[0], op->in[1], op->in[2], op->out[2], dout[0], &attr);
}

RULE(gate)
{
    ATTR(p, op, sy_attr_gate);
    if (wants[0]) din[0] = syi_gate_grad(p, dout[0], op->in[1], op->in[2], op->in[0], (int)attr.normalize);
}

RULE(dispatch)
{
    ATTR(p, op, sy_attr_group);
    if (wants[0]) din[0] = syi_dispatch_grad(p, dout[0], op->in[1], op->in[2], op->in[0], attr.group_rows);
}

RULE(regroup)
{
    ATTR(p, op, sy_attr_regroup);
    if (wants[0]) din[0] = syi_ungroup(p, dout[0], attr.rows, attr.length, op->in[0]);
}

RULE(ungroup)
{
    ATTR(p, op, sy_attr_regroup);
    if (wants[0]) din[0] = syi_regroup(p, dout[0], attr.rows, attr.length, p->tensor[op->in[0]].dim[0]);
}

RULE(combine)
{
    ATTR(p, op, sy_attr_group);
    int dgate;
    (void)wants;
    int dy = fitting(p, dout[0], op->in[3]);
    din[0] = syi_combine_grad(p, op->in[0], op->in[1], op->in[2], op->in[3], dy, attr.group_rows, &dgate);
    din[3] = dgate;
}

RULE(router_loss)
{
    ATTR(p, op, sy_attr_group);
    (void)wants;
    int dbalance = dout[0] >= 0 ? dout[0] : zero_like(p, dout[1]),
        dz = dout[1] >= 0 ? dout[1] : zero_like(p, dout[0]);
    int in[5] = {op->in[1], op->in[2], op->in[3], dbalance, dz};
    int out[2] = {syi_temp_like(p, op->in[0]), syi_temp_like(p, op->in[1])};
    if (syi_op_add(p, SY_OP_ROUTER_LOSS_GRAD, 5, in, 2, out, &attr, sizeof attr)) return;
    din[0] = out[0];
    din[1] = out[1];
}

RULE(block_sum)
{
    if (syi_tensor_count(&p->tensor[op->out[0]]) == 1 || p->tensor[dout[0]].rank == 1) {
        if (wants[0]) din[0] = syi_fill_like(p, dout[0], op->in[0]);
    } else {
        syi_program_fail(p, SY_EUNSUPPORTED, "block_sum: only its total is differentiable");
    }
}

/* The total's gradient goes to every block alike, so it stays a scalar until block_sum spreads it. */
RULE(tree_sum)
{
    (void)op;
    if (wants[0]) din[0] = syi_map1(p, SY_MAP_COPY, dout[0], 0);
}

RULE(pack)
{
    int parts[3];
    (void)wants;
    if (syi_unpack(p, fitting(p, dout[0], op->in[0]), op->n_in, op->in, parts) < 0) return;
    for (int i = 0; i < op->n_in; i++) din[i] = parts[i];
}

RULE(unpack)
{
    int parts[3];
    (void)wants;
    for (int i = 0; i < op->n_out; i++) parts[i] = dout[i] >= 0 ? dout[i] : zero_like(p, op->out[i]);
    din[0] = syi_pack(p, op->n_out, parts);
}

/* Whether operand j of a map is broadcast. */
static int is_spread(const struct syi_program *p, const struct syi_op *op, int j)
{
    return syi_tensor_count(&p->tensor[op->in[j]]) != syi_tensor_count(&p->tensor[op->out[0]]);
}

/* x + bias, one value a column. */
static int column_bias(struct syi_program *p, const struct syi_op *op, const struct sy_map_instr *i)
{
    const struct syi_tensor *b = &p->tensor[op->in[1]], *y = &p->tensor[op->out[0]];
    return i->op == SY_MAP_ADD && b->rank == 1 && y->rank == 3 && b->dim[0] == y->dim[2];
}

/* Elementwise instructions a model uses; operands must have the shape of the result, or want no gradient, or
 * be the bias of columns. */
RULE(map)
{
    const struct sy_attr_map *attr = syi_program_attr(p, op);
    struct sy_map_instr i;
    memcpy(&i, attr->instr, sizeof i);
    int dy = dout[0], a = op->in[i.a], rng = attr->rng == 255 ? -1 : op->in[attr->rng];
    for (int j = 0; j < op->n_in; j++)
        if (wants[j] && is_spread(p, op, j) && !(j == 1 && column_bias(p, op, &i))) {
            syi_program_fail(p, SY_EUNSUPPORTED, "map: a broadcast operand has no gradient");
            return;
        }
    switch (i.op) {
    case SY_MAP_COPY:
    case SY_MAP_ADDS: din[0] = dy; break;
    case SY_MAP_ADD:
        din[0] = dy;
        din[1] = wants[1] && is_spread(p, op, 1) ? syi_column_sum(p, dy, op->in[1]) : dy;
        break;
    case SY_MAP_SUB:
        din[0] = dy;
        if (wants[1]) din[1] = syi_map1(p, SY_MAP_NEG, dy, 0);
        break;
    case SY_MAP_MULS: din[0] = syi_map1(p, SY_MAP_MULS, dy, i.s); break;
    case SY_MAP_MUL:
        if (wants[0]) din[0] = syi_map2(p, SY_MAP_MUL, dy, op->in[1]);
        if (wants[1]) din[1] = syi_map2(p, SY_MAP_MUL, dy, a);
        break;
    case SY_MAP_DIV: /* by a constant scalar */
        if (wants[1]) syi_program_fail(p, SY_EUNSUPPORTED, "map: no gradient of a divisor");
        if (wants[0]) din[0] = syi_map2(p, SY_MAP_DIV, dy, op->in[1]);
        break;
    case SY_MAP_NEG: din[0] = syi_map1(p, SY_MAP_NEG, dy, 0); break;
    case SY_MAP_DROPOUT: din[0] = syi_dropout(p, dy, rng, (int)i.site, i.s); break;
    case SY_MAP_JITTER: din[0] = syi_jitter(p, dy, rng, (int)i.site, i.s); break;
    case SY_MAP_ACTIVATION: din[0] = syi_activation_grad(p, a, dy, i.c); break;
    default: syi_program_fail(p, SY_EUNSUPPORTED, "map: instruction %d has no gradient", i.op);
    }
}

syi_grad_fn syi_grad_rule(int op)
{
    static const syi_grad_fn rules[SY_OP_COUNT] = {
        [SY_OP_MAP] = map,
        [SY_OP_BLOCK_SUM] = block_sum,
        [SY_OP_TREE_SUM] = tree_sum,
        [SY_OP_PACK] = pack,
        [SY_OP_UNPACK] = unpack,
        [SY_OP_EMBED] = embed,
        [SY_OP_MATMUL] = matmul,
        [SY_OP_MATMUL_NT] = matmul_nt,
        [SY_OP_GROUPED_MATMUL] = grouped_matmul,
        [SY_OP_RMS_NORM] = rms_norm,
        [SY_OP_GLU] = glu,
        [SY_OP_ATTENTION] = attention,
        [SY_OP_SOFTMAX] = softmax,
        [SY_OP_XENT] = xent,
        [SY_OP_GATE] = gate,
        [SY_OP_DISPATCH] = dispatch,
        [SY_OP_COMBINE] = combine,
        [SY_OP_ROUTER_LOSS] = router_loss,
        [SY_OP_REGROUP] = regroup,
        [SY_OP_UNGROUP] = ungroup,
        [SY_OP_RELPOS_BIAS] = relpos_bias,
    };
    return rules[op];
}
