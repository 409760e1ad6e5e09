/* SPDX-License-Identifier: Apache-2.0 */
/* What works row by row next to products: norms, gated units, softmax. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

int syi_rms_norm(struct syi_program *p, int x, int scale, int mask, double epsilon)
{
    if (!SYI_HAVE(p, x, scale)) return -1;
    struct sy_attr_rms_norm attr = {epsilon, 0};
    return SYI_EMIT(p, SY_OP_RMS_NORM, syi_temp_like(p, x), &attr, sizeof attr, x, scale, mask);
}

int syi_rms_norm_grad(struct syi_program *p, int x, int scale, int dy, int mask, double epsilon, int *dscale)
{
    *dscale = -1;
    if (!SYI_HAVE(p, x, scale, dy)) return -1;
    struct sy_attr_rms_norm attr = {epsilon, syi_leaf_length(p, x, 0)};
    int out[2] = {syi_temp_like(p, x), syi_temp_like(p, scale)}, in[4] = {x, scale, dy, mask};
    *dscale = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_RMS_NORM_GRAD, 4, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

int syi_glu(struct syi_program *p, int gate, int linear, int rng, int counts, int activation, int site,
            double rate)
{
    if (!SYI_HAVE(p, gate)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, gate);
    struct sy_attr_glu attr = {0, activation, site, rate};
    int last = t.rank - 1;
    if (linear < 0) {
        t.dim[last] /= 2;
        attr.width = t.dim[last] / p->leaf_count[t.axis[last]];
    }
    return SYI_EMIT(p, SY_OP_GLU, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, gate,
                    rate > 0 ? rng : -1, counts, linear);
}

int syi_softmax(struct syi_program *p, int x, int *lse)
{
    int out[2];
    int y = syi_record(p, SY_OP_SOFTMAX, NULL, 1, &x, 2, out);
    *lse = out[1];
    return y;
}

/* ---- check ---- */

static int check_glu(struct syi_check *c, const struct syi_tensor *gated, int linear)
{
    const struct sy_attr_glu *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *gate = syi_check_in(c, 0);
    int last = gate->rank - 1, packed = c->op->in[linear] < 0;
    if (attr->activation < SY_LINEAR || attr->activation > SY_SILU)
        return syi_check_bad(c, "no such activation");
    if (packed != (attr->width > 0) || (packed && gated->dim[last] % attr->width))
        return syi_check_bad(c, "blocks of %lld columns", (long long)attr->width);
    if (gate->rank != gated->rank || gate->dim[last] != (1 + packed) * gated->dim[last])
        return syi_check_bad(c, "%lld columns of gate for %lld", (long long)gate->dim[last],
                             (long long)gated->dim[last]);
    return SY_OK;
}

static int check_glu_forward(struct syi_check *c)
{
    return check_glu(c, syi_check_out(c, 0), 3);
}

static int check_glu_grad(struct syi_check *c)
{
    if ((c->op->in[4] < 0) != (c->op->out[1] < 0))
        return syi_check_bad(c, "gradients of %d of two tensors", 1 + (c->op->out[1] >= 0));
    return check_glu(c, syi_check_in(c, 1), 4);
}

/* ---- gradients ---- */

SYI_GRAD(rms_norm)
{
    SYI_ATTR_COPY(p, op, sy_attr_rms_norm);
    (void)wants;
    din[0] = syi_rms_norm_grad(p, op->in[0], op->in[1], dout[0], op->in[2], attr.epsilon, &din[1]);
}

SYI_GRAD(glu)
{
    SYI_ATTR_COPY(p, op, sy_attr_glu);
    int gate = op->in[0], linear = op->in[3];
    if (!wants[0] && !wants[3]) return;
    int in[] = {gate, syi_grad_fitting(p, dout[0], gate), op->in[1], op->in[2], linear};
    int out[] = {syi_temp_like(p, gate), linear < 0 ? -1 : syi_temp_like(p, linear)};
    if (in[1] < 0 || out[0] < 0 || syi_op_add(p, SY_OP_GLU_GRAD, 5, in, 2, out, &attr, sizeof attr)) return;
    din[0] = out[0];
    din[3] = out[1];
}

SYI_GRAD(softmax)
{
    if (!wants[0]) return;
    int dp = dout[0] >= 0 ? dout[0] : syi_grad_zero(p, op->out[0]);
    din[0] = SYI_RECORD(p, SY_OP_SOFTMAX_GRAD, NULL, op->out[0], dp, dout[1]);
}

/* ---- cost ---- */

/* Counts of filled slots are the last input but one. */
static void cost_glu(const struct sy_call *call, struct syi_cost *cost)
{
    syi_cost_filled(call, &call->in[call->n_in - 2], cost);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_rms_norm = {.grad = grad_rms_norm, .flops = 4};
const struct syi_op_rules syi_op_rules_add_rms_norm = {.flops = 5};
const struct syi_op_rules syi_op_rules_rms_norm_grad = {.leaf_dim = 0, .flops = 10};
const struct syi_op_rules syi_op_rules_glu = {
    .check = check_glu_forward, .grad = grad_glu, .flops = 10, .of = -1, .cost = cost_glu};
const struct syi_op_rules syi_op_rules_glu_grad = {
    .check = check_glu_grad, .flops = 20, .of = 1, .cost = cost_glu};
const struct syi_op_rules syi_op_rules_softmax = {.grad = grad_softmax, .flops = 5};
const struct syi_op_rules syi_op_rules_softmax_grad = {.flops = 5};
