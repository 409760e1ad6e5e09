/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of any op: its operands' bytes and its arithmetic by element, changed by the rules of its family. */
#include "config.h"

#include <string.h>

#include "program/op_rules.h"

static double all_bytes(const struct sy_call *call)
{
    double sum = 0;
    for (int i = 0; i < call->n_in; i++) sum += syi_operand_bytes(&call->in[i]);
    for (int i = 0; i < call->n_out; i++) sum += syi_operand_bytes(&call->out[i]);
    return sum;
}

struct syi_cost syi_call_cost(const struct sy_call *call)
{
    const struct syi_op_rules *rules = syi_op_rules(call->op);
    const struct sy_tensor *of = rules->of < 0 ? &call->out[-rules->of - 1] : &call->in[rules->of];
    struct syi_cost cost = {.bytes = all_bytes(call)};
    if (rules->flops) cost.flops = rules->flops * syi_operand_elements(of);
    if (rules->cost) rules->cost(call, &cost);
    return cost;
}

uint64_t syi_op_received(const struct syi_program *program, const struct syi_op *op, uint64_t ranks)
{
    const struct syi_tensor *x = &program->tensor[op->in[0]], *y = &program->tensor[op->out[0]];
    const struct syi_op_rules *rules = syi_op_rules(op->op);
    uint64_t in = (uint64_t)syi_tensor_count(x) * syi_dtype_bytes(x->dtype);
    uint64_t out = (uint64_t)syi_tensor_count(y) * syi_dtype_bytes(y->dtype);
    return rules->received ? rules->received(in, out, ranks) : out - out / ranks;
}

struct syi_cost syi_op_cost(const struct syi_program *program, const struct syi_op *op)
{
    struct sy_tensor side[SY_MAX_IN + SY_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        int index = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
        if (index < 0) continue;
        const struct syi_tensor *t = &program->tensor[index];
        side[i].dtype = t->dtype;
        side[i].rank = t->rank;
        memcpy(side[i].dim, t->dim, sizeof side[i].dim);
    }
    struct sy_call call = {.in = side,
                           .out = side + op->n_in,
                           .attr = syi_program_attr(program, op),
                           .attr_bytes = op->attr_bytes,
                           .op = op->op,
                           .n_in = op->n_in,
                           .n_out = op->n_out};
    return syi_call_cost(&call);
}
