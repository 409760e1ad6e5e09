/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of differentiation: which tensors matter, the reverse walk, the adding up of contributions. What
 * each op's gradient is stands in its family (ops/). */
#include "config.h"

#include <string.h>

#include "program/grad.h"
#include "program/op_rules.h"
#include "program/record.h"

/* Marks tensors that depend on one of the n tensors asked for: only their gradients are recorded. */
static void mark_dependents(const struct syi_program *p, int n, const int *of, uint8_t *wanted)
{
    for (int i = 0; i < n; i++) wanted[of[i]] = 1;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct syi_op *op = &p->op[i];
        if (!syi_op_rules(op->op)->grad) continue;
        int depends = 0;
        for (int j = 0; j < op->n_in; j++)
            if (op->in[j] >= 0) depends |= wanted[op->in[j]];
        for (int j = 0; depends && j < op->n_out; j++)
            if (op->out[j] >= 0 && p->tensor[op->out[j]].dtype != SY_I32 &&
                p->tensor[op->out[j]].dtype != SY_I64)
                wanted[op->out[j]] = 1;
    }
}

static void accumulate(struct syi_program *p, int *gradient, int tensor, int term)
{
    if (term < 0) return;
    if (gradient[tensor] < 0) {
        gradient[tensor] = term;
        return;
    }
    int sum = syi_map2(p, SY_MAP_ADD, gradient[tensor], term);
    if (sum >= 0 && p->tensor[sum].dtype == SY_BF16)
        syi_as(p, sum, SY_F32); /* rounded once, where it is used */
    gradient[tensor] = sum;
}

static void differentiate_op(struct syi_program *p, size_t index, const uint8_t *wanted, int *gradient)
{
    struct syi_op op = p->op[index]; /* a copy: recording moves the array */
    int dout[SY_MAX_OUT], din[SY_MAX_IN], flows = 0;
    uint8_t wants[SY_MAX_IN];
    for (int j = 0; j < SY_MAX_OUT; j++) {
        dout[j] = op.out[j] >= 0 ? gradient[op.out[j]] : -1;
        flows |= dout[j] >= 0;
    }
    for (int j = 0; j < SY_MAX_IN; j++) {
        din[j] = -1;
        wants[j] = op.in[j] >= 0 && wanted[op.in[j]];
    }
    syi_grad_fn rule = syi_op_rules(op.op)->grad;
    if (!flows || !rule) return;
    p->file = op.file;
    p->line = op.line;
    p->layer = op.layer;
    rule(p, &op, dout, wants, din);
    for (int j = 0; j < op.n_in; j++)
        if (wants[j]) accumulate(p, gradient, op.in[j], din[j]);
}

/* ---- joined gradients ---- */

enum { UNPACK_DELAY = 16 }; /* ops other than maps: about four sums further */

static int needs(const struct syi_op *op, const struct syi_op *unpack)
{
    for (int i = 0; i < unpack->n_out; i++)
        if (syi_op_reads(op, unpack->out[i])) return 1;
    return 0;
}

/* Moves what takes a gradient apart some ops down: between ranks the gradient is a sum, which travels while
 * those ops run. The same on every mesh, so that runs can be compared op by op. */
static void delay_unpacking(struct syi_program *p, size_t at)
{
    struct syi_op unpack = p->op[at];
    size_t to = at;
    for (int n = 0; to + 1 < p->n_ops && n < UNPACK_DELAY && !needs(&p->op[to + 1], &unpack); to++)
        n += p->op[to + 1].op != SY_OP_MAP;
    memmove(&p->op[at], &p->op[at + 1], (to - at) * sizeof unpack);
    p->op[to] = unpack;
}

int syi_grad(struct syi_program *p, int loss, int n, const int *of, int *gradient, struct sy_error *err)
{
    int status = syi_program_status(p, err);
    if (status) return status;
    size_t tensors = p->n_tensors, ops = p->n_ops;
    uint8_t *wanted = syi_alloc(tensors, err);
    int *of_tensor = syi_alloc(tensors * sizeof *of_tensor, err);
    if (!wanted || !of_tensor) {
        syi_free(wanted);
        syi_free(of_tensor);
        return SY_ENOMEM;
    }
    mark_dependents(p, n, of, wanted);
    for (size_t i = 0; i < tensors; i++) of_tensor[i] = -1;
    uint32_t layer = p->layer;
    syi_scope_push(p, "loss");
    SYI_AT(p);
    of_tensor[loss] = syi_constant_like(p, 1, loss);
    for (size_t i = ops; i-- > 0 && !p->status;) differentiate_op(p, i, wanted, of_tensor);
    for (int i = 0; i < n; i++) gradient[i] = of_tensor[of[i]];
    for (size_t i = p->n_ops; i-- > ops;)
        if (p->op[i].op == SY_OP_UNPACK) delay_unpacking(p, i);
    p->layer = layer;
    syi_free(wanted);
    syi_free(of_tensor);
    return syi_program_status(p, err);
}
