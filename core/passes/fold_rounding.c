/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients in bfloat16 (train.gradient_dtype): a product takes over the rounding of a map that does nothing else. */
#include "config.h"

#include "passes/fold.h"

/* A map that does nothing but round a gradient to bfloat16 (train.gradient_dtype). */
static int rounds_gradient(const struct syi_folding *pass, size_t at)
{
    const struct syi_op *op = &pass->program->op[at];
    const struct sy_map_instr *instr = syi_fold_only_instruction(pass->program, op, 1);
    if (pass->gone[at] || !instr || instr->op != SY_MAP_COPY) return 0;
    const struct syi_tensor *from = &pass->program->tensor[op->in[0]],
                            *to = &pass->program->tensor[op->out[0]];
    return from->dtype == SY_F32 && to->role == SYI_ROLE_GRADIENT && to->dtype == SY_BF16;
}

/* The map that rounds what only it reads of the op at `first`, if that may write its output in its place; 0: none. */
static size_t rounder_of(const struct syi_folding *pass, size_t first, int tensor)
{
    const struct syi_program *p = pass->program;
    size_t at = first + 1;
    if (p->tensor[tensor].kind != SYI_TEMP || pass->reads[tensor] != 1)
        return 0; /* before all ops are asked */
    while (at < p->n_ops && (pass->gone[at] || !syi_op_reads(&p->op[at], tensor))) at++;
    if (at == p->n_ops || !rounds_gradient(pass, at)) return 0;
    for (size_t i = first; i < at; i++)
        if (syi_op_reads(&p->op[i], p->op[at].out[0]) || syi_op_writes(&p->op[i], p->op[at].out[0])) return 0;
    return at;
}

static int is_weight_gradient(int op)
{
    return op == SY_OP_MATMUL_TN || op == SY_OP_GROUPED_MATMUL_TN;
}

/* What an op leaves in float32 that maps only round is written rounded: by a product, or where a joined gradient is taken
 * apart, which then is rounded before if it comes from a product. The maps go. Between ranks a product's terms are summed
 * first: it is the sum that is read, and no product's. */
void syi_fold_rounding(struct syi_folding *pass, size_t first)
{
    struct syi_program *p = pass->program;
    struct syi_op *op = &p->op[first];
    size_t rounder[SY_MAX_OUT];
    if (pass->gone[first] || (op->op != SY_OP_UNPACK && !is_weight_gradient(op->op))) return;
    for (int o = 0; o < op->n_out; o++)
        if (!(rounder[o] = rounder_of(pass, first, op->out[o]))) return;
    for (int o = 0; o < op->n_out; o++) {
        op->out[o] = p->op[rounder[o]].out[0];
        pass->writer[op->out[o]] = (int)first;
        pass->gone[rounder[o]] = 1;
    }
    if (op->op != SY_OP_UNPACK || p->tensor[op->in[0]].kind != SYI_TEMP || pass->reads[op->in[0]] != 1)
        return;
    int from = pass->writer[op->in[0]];
    if (from >= 0 && is_weight_gradient(p->op[from].op)) p->tensor[op->in[0]].dtype = SY_BF16;
}
