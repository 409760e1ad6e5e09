/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are laid out in panels both as they are and transposed, for x w and dy w^T, are read once for both. Bits do not
 * change. */
#include "config.h"

#include <string.h>

#include "passes/fold.h"

static int lays_out(const struct syi_op *op)
{
    return op->op == SY_OP_LAY_OUT || op->op == SY_OP_LAY_OUT_NT;
}

/* Whether one of them lays out what the other does, transposed. */
static int are_twins(const struct syi_program *p, const struct syi_op *a, const struct syi_op *b)
{
    return lays_out(a) && lays_out(b) && a->op != b->op && !memcmp(a->in, b->in, 3 * sizeof a->in[0]) &&
           !memcmp(syi_program_attr(p, a), syi_program_attr(p, b), sizeof(struct sy_attr_pack));
}

/* Whether the op may not come before `moved` and not after it. */
static int disturbs(const struct syi_op *op, const struct syi_op *moved)
{
    for (int i = 0; i < moved->n_in; i++)
        if (moved->in[i] >= 0 && syi_op_writes(op, moved->in[i])) return 1;
    return syi_op_writes(op, moved->out[0]) || syi_op_reads(op, moved->out[0]);
}

/* The op at `at` lays out what its twin, one of the next ops, lays out too, and goes. */
static void take_twin(struct syi_folding *pass, size_t at)
{
    struct syi_program *p = pass->program;
    const struct syi_op *first = &p->op[at];
    for (size_t i = at + 1; i < p->n_ops && i <= at + SYI_FOLD_WINDOW; i++) {
        struct syi_op *twin = &p->op[i];
        if (!are_twins(p, first, twin)) {
            if (disturbs(twin, first)) return;
            continue;
        }
        const int plain = twin->op == SY_OP_LAY_OUT ? twin->out[0] : first->out[0],
                  transposed = twin->op == SY_OP_LAY_OUT ? first->out[0] : twin->out[0];
        twin->op = SY_OP_LAY_OUT_BOTH;
        twin->out[0] = plain;
        twin->out[1] = transposed;
        twin->n_out = 2;
        pass->gone[at] = 1;
        return;
    }
}

int syi_fold_copies(struct syi_program *program, struct sy_error *err)
{
    struct syi_folding pass = {.program = program};
    int status = syi_folding_begin(&pass, err);
    for (size_t i = 0; !status && i < program->n_ops; i++)
        if (lays_out(&program->op[i])) take_twin(&pass, i);
    return syi_folding_end(&pass, status, err);
}
