/* SPDX-License-Identifier: Apache-2.0 */
/* What a map does beside its neighbour becomes part of that: a product of weights in panels writes the relu of what it
 * computes, and the norm of a sum computes the sum. A map less is a trip through memory less, and threads that wait for each
 * other once less. Of two ops that follow each other, so that nothing between them can be disturbed. Bits do not change, but
 * that the relu of a number that bfloat16 rounds to -0 is +0 then. */
#include "config.h"

#include "passes/fold.h"

/* The product at `at` takes the relu after it, which goes. */
static int take_relu(struct syi_folding *pass, size_t at, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *product = &p->op[at], *map = product + 1;
    const int sum = product->out[0];
    const struct sy_map_instr *instr = syi_fold_only_instruction(p, map, 1);
    if (!instr || instr->op != SY_MAP_ACTIVATION || instr->c != SY_RELU || map->in[0] != sum) return SY_OK;
    if (p->tensor[sum].kind != SYI_TEMP || pass->reads[sum] != 1 ||
        p->tensor[sum].dtype != p->tensor[map->out[0]].dtype)
        return SY_OK;
    product->out[0] = map->out[0];
    pass->gone[at + 1] = 1;
    return syi_panels_attr(p, product, SY_RELU, err);
}

/* The norm after the sum at `at` computes it, if it rounds to bf16. In float32 that gains nothing: sum, norm and what is added are in
 * memory together, so a step of decoding touches more of it (measured, doc/performance-notes.md). */
static void take_sum(struct syi_folding *pass, size_t at)
{
    struct syi_program *p = pass->program;
    struct syi_op *map = &p->op[at], *norm = map + 1;
    const struct sy_map_instr *instr = syi_fold_only_instruction(p, map, 2);
    if (!instr || instr->op != SY_MAP_ADD || instr->a == instr->b || norm->op != SY_OP_RMS_NORM) return;
    if (norm->in[0] != map->out[0] || norm->in[1] == map->out[0] || norm->in[2] == map->out[0]) return;
    for (int i = 0; i < 2; i++)
        if (p->tensor[map->in[i]].dtype != SY_F32) return;
    if (p->tensor[map->out[0]].dtype != SY_F32 || p->tensor[norm->out[0]].dtype != SY_BF16) return;
    norm->op = SY_OP_ADD_RMS_NORM;
    norm->in[3] = norm->in[2];
    norm->in[2] = norm->in[1];
    norm->in[0] = map->in[0];
    norm->in[1] = map->in[1];
    norm->out[1] = norm->out[0];
    norm->out[0] = map->out[0];
    norm->n_in = 4;
    norm->n_out = 2;
    pass->gone[at] = 1;
}

int syi_fold_maps(struct syi_program *program, int sums, struct sy_error *err)
{
    struct syi_folding pass = {.program = program};
    int status = syi_folding_begin(&pass, err);
    for (size_t i = 0; !status && i + 1 < program->n_ops; i++) {
        if (syi_op_multiplies_panels(program->op[i].op)) status = take_relu(&pass, i, err);
        if (sums && program->op[i].op == SY_OP_MAP && !pass.gone[i]) take_sum(&pass, i);
    }
    return syi_folding_end(&pass, status, err);
}
