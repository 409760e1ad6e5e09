/* SPDX-License-Identifier: Apache-2.0 */
/* The softmax cross-entropy of logits. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

struct syi_xent syi_xent(struct syi_program *p, int logits, int targets, int weights, double label_smoothing,
                         double z_loss)
{
    struct syi_xent x = {-1, -1, -1, -1};
    if (!SYI_HAVE(p, logits, targets, weights)) return x;
    struct sy_attr_xent attr = {label_smoothing, z_loss};
    int in[3] = {logits, targets, weights}, out[4];
    for (int i = 0; i < 4; i++) out[i] = syi_temp_like(p, weights);
    if (out[3] < 0 || syi_op_add(p, SY_OP_XENT, 3, in, 4, out, &attr, sizeof attr)) return x;
    return (struct syi_xent){out[0], out[1], out[2], out[3]};
}

/* ---- gradients ---- */

SYI_GRAD(xent)
{
    SYI_ATTR_COPY(p, op, sy_attr_xent);
    if (dout[1] >= 0 || dout[2] >= 0)
        syi_program_fail(p, SY_EUNSUPPORTED, "xent: only its loss is differentiable");
    else if (wants[0] && dout[0] >= 0)
        din[0] = SYI_RECORD(p, SY_OP_XENT_GRAD, &attr, op->in[0], op->in[1], op->in[2], op->out[2], dout[0]);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_xent = {.grad = grad_xent, .flops = 4};
const struct syi_op_rules syi_op_rules_xent_grad = {.flops = 4};
