/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its relative position bias. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

int syi_attention(struct syi_program *p, const struct syi_attention *a, int *lse)
{
    *lse = -1;
    if (!SYI_HAVE(p, a->q, a->kv)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, a->q);
    int64_t columns = a->heads * a->head_dim, blocks = p->leaf_count[SYI_AXIS_HEADS];
    if (t.dim[2] % columns || a->heads % blocks)
        return SYI_BAD(p, "attention: %lld columns for %lld heads of %lld in %lld blocks",
                       (long long)t.dim[2], (long long)a->heads, (long long)a->head_dim, (long long)blocks);
    t.dim[2] = columns;
    int64_t lse_dim[3] = {t.dim[0], a->heads, t.dim[1]};
    uint8_t lse_axis[3] = {t.axis[0], SYI_AXIS_HEADS, t.axis[1]};
    struct sy_attr_attention attr = {a->head_dim, columns / blocks, a->bidirectional,
                                     a->causal,   a->max_distance,  a->site,
                                     a->rate,     a->uniform,       0};
    int out[2] = {syi_temp(p, t.dtype, 3, t.dim, t.axis),
                  syi_temp(p, syi_sum_dtype(t.dtype), 3, lse_dim, lse_axis)};
    int in[11] = {
        a->q,        a->kv,         a->q_lengths,  a->k_lengths, a->bias,      a->rate > 0 ? a->rng : -1,
        a->position, a->q_segments, a->k_segments, a->mask,      a->dense_bias};
    *lse = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_ATTENTION, 11, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

int syi_relpos_bias(struct syi_program *p, int table, int64_t queries, int64_t keys, int bidirectional,
                    int64_t max_distance)
{
    if (!SYI_HAVE(p, table)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, table);
    int64_t dim[3] = {t.dim[0], queries, keys};
    uint8_t axis[3] = {t.axis[0], SYI_AXIS_LENGTH, SYI_AXIS_LENGTH};
    struct sy_attr_relpos attr = {bidirectional, max_distance};
    return SYI_EMIT(p, SY_OP_RELPOS_BIAS, syi_temp(p, t.dtype, 3, dim, axis), &attr, sizeof attr, table);
}

/* ---- check ---- */

/* columns: a tensor of one part; segments: input of the queries' segments, the keys' are the next. */
static int check_attention(struct syi_check *c, const struct syi_tensor *packed,
                           const struct syi_tensor *columns, int segments)
{
    const struct sy_attr_attention *attr = syi_program_attr(c->program, c->op);
    if (attr->head_dim < 1 || attr->width < 1 || attr->width % attr->head_dim ||
        columns->dim[2] % attr->width || packed->dim[2] % columns->dim[2])
        return syi_check_bad(c, "%lld packed columns for %lld in blocks of %lld, heads of %lld",
                             (long long)packed->dim[2], (long long)columns->dim[2], (long long)attr->width,
                             (long long)attr->head_dim);
    if (syi_check_in(c, segments) && !syi_check_in(c, segments + 1))
        return syi_check_bad(c, "segments of queries, none of keys");
    return SY_OK;
}

static int check_forward(struct syi_check *c)
{
    return check_attention(c, syi_check_in(c, 0), syi_check_out(c, 0), 7);
}

static int check_grad(struct syi_check *c)
{
    return check_attention(c, syi_check_in(c, 0), syi_check_in(c, 8), 9);
}

/* ---- gradients ---- */

/* A leaf of the bias gradient is counted in rows of the batch. */
SYI_GRAD(attention)
{
    SYI_ATTR_COPY(p, op, sy_attr_attention);
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
                  op->out[0], op->out[1], syi_grad_fitting(p, dout[0], op->in[0]),
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

SYI_GRAD(relpos_bias)
{
    SYI_ATTR_COPY(p, op, sy_attr_relpos);
    int table = syi_temp_like(p, op->in[0]);
    if (wants[0] && !syi_op_add(p, SY_OP_RELPOS_BIAS_GRAD, 1, &dout[0], 1, &table, &attr, sizeof attr))
        din[0] = table;
}

/* ---- cost ---- */

static int has_lengths(const struct sy_call *call, int index)
{
    return index < call->n_in && syi_operand_present(&call->in[index]) && call->in[index].data;
}

/* The length of a row; input `index` holds them, where it is there. */
static int64_t length_at(const struct sy_call *call, int index, int64_t row, int64_t most)
{
    if (!has_lengths(call, index)) return most;
    int64_t n = ((const int32_t *)call->in[index].data)[row];
    return n < 0 ? 0 : n < most ? n : most;
}

/* Pairs in a row of t queries and s keys. */
static double pairs(const struct sy_call *call, int64_t t, int64_t s)
{
    if (!((const struct sy_attr_attention *)call->attr)->causal || call->in[0].dim[1] == 1)
        return (double)t * (double)s;
    /* query i sees min(i + 1, s) keys */
    return t <= s ? (double)t * (double)(t + 1) / 2
                  : (double)s * (double)(s + 1) / 2 + (double)(t - s) * (double)s;
}

/* Pairs of a query and a key it may see; segments and dense masks hide none here. */
static double visible_pairs(const struct sy_call *call)
{
    int64_t rows = call->in[0].dim[0], queries = call->in[0].dim[1], keys = call->in[1].dim[1];
    double sum = 0;
    if (!has_lengths(call, 2) && !has_lengths(call, 3))
        return (double)rows * pairs(call, queries, keys); /* a plan may be of millions of rows */
    for (int64_t b = 0; b < rows; b++)
        sum += pairs(call, length_at(call, 2, b, queries), length_at(call, 3, b, keys));
    return sum;
}

/* flops for each visible (query, key) and column. A pack may hold more than is read of it: one h columns for
 * q, two for k and v. */
static void cost_attention(const struct sy_call *call, int flops, const struct sy_tensor *one_part,
                           struct syi_cost *cost)
{
    const struct sy_tensor *q = &call->in[0], *kv = &call->in[1];
    double columns = (double)one_part->dim[2];
    double positions = (double)q->dim[0] * ((double)q->dim[1] + 2 * (double)kv->dim[1]);
    cost->flops = flops * visible_pairs(call) * columns;
    cost->bytes -= syi_operand_bytes(q) + syi_operand_bytes(kv);
    cost->bytes += positions * columns * (double)syi_dtype_bytes(q->dtype);
    cost->product = 1;
}

static void cost_forward(const struct sy_call *call, struct syi_cost *cost)
{
    cost_attention(call, 4, &call->out[0], cost);
}

static void cost_grad(const struct sy_call *call, struct syi_cost *cost)
{
    cost_attention(call, 10, &call->in[6], cost);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_attention = {
    .check = check_forward, .grad = grad_attention, .cost = cost_forward};
const struct syi_op_rules syi_op_rules_attention_grad = {
    .check = check_grad, .leaf_dim = 0, .cost = cost_grad};
const struct syi_op_rules syi_op_rules_relpos_bias = {.grad = grad_relpos_bias};
const struct syi_op_rules syi_op_rules_relpos_bias_grad = {.flops = 1};
