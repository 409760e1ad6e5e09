/* SPDX-License-Identifier: Apache-2.0 */
/* What checks and costs of all families are written with: operands, mistakes, bytes, filled slots. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- check ---- */

int syi_check_bad(struct syi_check *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->what, sizeof c->what, format, arguments);
    va_end(arguments);
    return SY_EINTERNAL;
}

const struct syi_tensor *syi_check_in(const struct syi_check *c, int i)
{
    return c->op->in[i] < 0 ? NULL : &c->program->tensor[c->op->in[i]];
}

const struct syi_tensor *syi_check_out(const struct syi_check *c, int i)
{
    return c->op->out[i] < 0 ? NULL : &c->program->tensor[c->op->out[i]];
}

/* ---- cost ---- */

double syi_operand_elements(const struct sy_tensor *t)
{
    double n = syi_operand_present(t) ? 1 : 0;
    for (int i = 0; i < t->rank; i++) n *= (double)t->dim[i];
    return n;
}

double syi_operand_bytes(const struct sy_tensor *t)
{
    return syi_operand_present(t) ? syi_operand_elements(t) * (double)syi_dtype_bytes(t->dtype) : 0;
}

/* Shares that take part: of pairs of an expert and a slot, of the buffer's rows, of experts. The first two
 * are one where each expert has slots of its own; not knowing the counts, all rows are filled. */
struct filling {
    double slots, rows, experts;
};

static struct filling filling_of(const struct sy_tensor *counts, const struct sy_tensor *buffer)
{
    struct filling f = {1, 1, 1};
    if (!syi_operand_present(counts)) return f;
    f.slots = (double)buffer->dim[0] / (double)counts->dim[0];
    if (!counts->data) return f;
    const int32_t *count = counts->data;
    int64_t experts = counts->dim[0], groups = counts->dim[1], slots = 0, busy = 0;
    for (int64_t e = 0; e < experts; e++) {
        int64_t mine = 0;
        for (int64_t g = 0; g < groups; g++) mine += count[e * groups + g];
        slots += mine;
        busy += mine > 0;
    }
    f.rows = (double)slots / (double)(buffer->dim[0] * groups * buffer->dim[2]);
    f.slots *= f.rows;
    f.experts = (double)busy / (double)experts;
    return f;
}

void syi_cost_filled(const struct sy_call *call, const struct sy_tensor *counts, struct syi_cost *cost)
{
    struct filling f = filling_of(counts, &call->in[0]);
    cost->flops *= f.slots;
    cost->bytes = 0;
    for (int i = 0; i < call->n_in; i++) {
        const int rank = call->in[i].rank, panels = i == 1 && syi_op_multiplies_panels(call->op);
        const double share = panels || rank == 3 ? f.experts : rank == 4 ? f.rows : 1;
        cost->bytes += syi_operand_bytes(&call->in[i]) * share;
    }
    for (int i = 0; i < call->n_out; i++)
        cost->bytes += syi_operand_bytes(&call->out[i]) * (call->out[i].rank == 4 ? f.rows : 1);
}
