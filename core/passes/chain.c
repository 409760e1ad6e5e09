/* SPDX-License-Identifier: Apache-2.0 */
/* The chain pass: residuals, dropout, activations, scales, gated linear units and norms after a matrix
 * product work row by row, so they can run on its rows as soon as these are complete, while they are in the
 * cache, as an epilogue of the product. An op that may do so is marked (op.chained); the memory plan keeps
 * what a chain touches apart, and bind.c asks the kernels for it. The order of work changes, no value. */
#include "config.h"

#include "passes/passes.h"

static int same_rows(const struct syi_tensor *a, const struct syi_tensor *b)
{
    if (a->rank != b->rank) return 0;
    for (int i = 0; i + 1 < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return 0;
    return 1;
}

static int is_written(const struct syi_program *p, size_t first, size_t at, int tensor)
{
    for (; first < at; first++)
        if (syi_op_writes(&p->op[first], tensor)) return 1;
    return 0;
}

static int is_named(const struct syi_program *p, size_t first, size_t at, int tensor)
{
    for (; first < at; first++)
        if (syi_op_reads(&p->op[first], tensor) || syi_op_writes(&p->op[first], tensor)) return 1;
    return 0;
}

/* Whether the op at `at` may work on the rows of the chain that begins at `first`: it is row by row, takes
 * something of the chain, of which it reads its own rows only, and writes over nothing that others of the
 * chain need. */
static int may_follow(const struct syi_program *p, size_t first, size_t at)
{
    const struct syi_op *op = &p->op[at];
    const struct syi_tensor *product = &p->tensor[p->op[first].out[0]];
    int takes = 0;
    if (op->queue || !syi_op_has_flag(op->op, 'R')) return 0;
    for (int i = 0; i < op->n_in; i++) {
        if (op->in[i] < 0 || !is_written(p, first, at, op->in[i])) continue;
        if (!same_rows(product, &p->tensor[op->in[i]])) return 0;
        takes = 1;
    }
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] >= 0 &&
            (!same_rows(product, &p->tensor[op->out[i]]) || is_named(p, first, at, op->out[i])))
            return 0;
    return takes;
}

void syi_chain(struct syi_program *program)
{
    for (size_t at = 0; at < program->n_ops; at++) program->op[at].chained = 0;
    for (size_t first = 0; first < program->n_ops; first++) {
        if (!syi_op_has_flag(program->op[first].op, 'B')) continue;
        for (size_t at = first + 1; at < program->n_ops && may_follow(program, first, at); at++)
            program->op[at].chained = 1;
    }
}

size_t syi_chain_end(const struct syi_program *program, size_t at)
{
    do at++;
    while (at < program->n_ops && program->op[at].chained);
    return at;
}
