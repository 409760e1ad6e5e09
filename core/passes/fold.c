/* SPDX-License-Identifier: Apache-2.0 */
/* The fold pass. A sum of blocks reads values that a map wrote, which costs a write and a read of the whole tensor. Where the
 * map writes what stays (a parameter, with the sums of weight metrics after it), the sum becomes an output of the map, which
 * is then `map_sums`. Where the values follow, element by element, from one whole tensor that is in memory anyhow (a gradient,
 * with a scale and vectors of rows and columns), whoever reads them makes them anew instead: the sum becomes `map_sums`, other
 * maps get the instructions, and the map that wrote them goes. Last, those map_sums over one tensor that meet become one, and
 * take sums over another one of its shape with them. And a product writes a gradient in bfloat16 itself that a map only
 * rounded. Each value and each sum is rounded as before, so bits do not change. Runs after fuse. */
#include "config.h"

#include "passes/fold.h"

int syi_folding_begin(struct syi_folding *pass, struct sy_error *err)
{
    const struct syi_program *p = pass->program;
    pass->writer = syi_alloc((p->n_tensors + 1) * sizeof *pass->writer, err);
    pass->reads = syi_alloc((p->n_tensors + 1) * sizeof *pass->reads, err);
    pass->gone = syi_alloc(p->n_ops + 1, err);
    if (!pass->writer || !pass->reads || !pass->gone) return SY_ENOMEM;
    for (size_t i = 0; i < p->n_tensors; i++) pass->writer[i] = -1;
    for (size_t i = 0; i < p->n_ops; i++) {
        for (int k = 0; k < p->op[i].n_in; k++)
            if (p->op[i].in[k] >= 0) pass->reads[p->op[i].in[k]]++;
        for (int k = 0; k < p->op[i].n_out; k++)
            if (p->op[i].out[k] >= 0)
                pass->writer[p->op[i].out[k]] = pass->writer[p->op[i].out[k]] == -1 ? (int)i : -2;
    }
    return SY_OK;
}

int syi_folding_end(struct syi_folding *pass, int status, struct sy_error *err)
{
    if (!status) syi_program_remove(pass->program, pass->gone);
    syi_free(pass->writer);
    syi_free(pass->reads);
    syi_free(pass->gone);
    return status ? status : syi_program_check(pass->program, "fold", err);
}

int syi_fold(struct syi_program *program, struct sy_error *err)
{
    struct syi_folding pass = {.program = program};
    int status = syi_folding_begin(&pass, err);
    for (size_t i = 0; !status && i < program->n_ops; i++) syi_fold_rounding(&pass, i);
    for (size_t i = 0; !status && i < program->n_ops; i++)
        if (!pass.gone[i] && program->op[i].op == SY_OP_MAP) status = syi_fold_gather(&pass, i, err);
    for (size_t i = 0; !status && i < program->n_ops; i++)
        if (!pass.gone[i] && syi_is_block_sum(&program->op[i]))
            status = syi_fold_value(&pass, program->op[i].in[0], i, err);
    for (size_t i = 0; !status && i < program->n_ops; i++) status = syi_fold_meet_same(&pass, i, err);
    for (size_t i = program->n_ops; !status && i-- > 0;) /* the nearest before them takes them */
        status = syi_fold_meet_alike(&pass, i, err);
    return syi_folding_end(&pass, status, err);
}
