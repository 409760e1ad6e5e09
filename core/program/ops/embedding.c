/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table by id. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

int syi_embed_int8(struct syi_program *p, int ids, int table, int scales)
{
    if (!SYI_HAVE(p, ids, table, scales)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, ids);
    t.dim[2] = syi_tensor_of(p, table)->dim[1];
    t.axis[2] = syi_tensor_of(p, table)->axis[1];
    return SYI_EMIT(p, SY_OP_EMBED_INT8, syi_temp(p, SY_F32, 3, t.dim, t.axis), NULL, 0, ids, table, scales);
}

int syi_embed_grad(struct syi_program *p, int ids, int dy, int table)
{
    if (!SYI_HAVE(p, ids, dy, table)) return -1;
    struct sy_attr_leaf attr = {syi_leaf_length(p, dy, 0)};
    return SYI_EMIT(p, SY_OP_EMBED_GRAD, syi_temp_like(p, table), &attr, sizeof attr, ids, dy);
}

/* ---- gradients ---- */

SYI_GRAD(embed)
{
    if (wants[1]) din[1] = syi_embed_grad(p, op->in[0], syi_grad_fitting(p, dout[0], op->in[1]), op->in[1]);
}

/* ---- cost ---- */

/* Of the table the rows that are copied. */
static void cost_embed(const struct sy_call *call, struct syi_cost *cost)
{
    cost->bytes = syi_operand_bytes(&call->in[0]) + 2 * syi_operand_bytes(&call->out[0]);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_embed = {.grad = grad_embed, .cost = cost_embed};
const struct syi_op_rules syi_op_rules_embed_int8 = {.cost = cost_embed};
const struct syi_op_rules syi_op_rules_embed_grad = {.leaf_dim = 0, .flops = 1, .of = 1};
