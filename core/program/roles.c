/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of tensors in a program that is being recorded. A bound session has an index (runtime/find.c). */
#include "config.h"

#include "program/program.h"

const char *syi_role_name(enum syi_role role)
{
    static const char *const names[SYI_ROLE_COUNT] = {
#define SYI_ROLE_TEXT(NAME, name) [SYI_ROLE_##NAME] = #name,
        SYI_ROLE_MAP(SYI_ROLE_TEXT)
#undef SYI_ROLE_TEXT
    };
    return (unsigned)role < SYI_ROLE_COUNT ? names[role] : "?";
}

int syi_role_set(struct syi_program *program, int tensor, enum syi_role role, uint32_t of)
{
    if (program->status || tensor < 0) return tensor;
    program->tensor[tensor].role = (uint8_t)role;
    program->tensor[tensor].of = of;
    return tensor;
}

void syi_role_list(const struct syi_program *program, enum syi_role role, int *tensor, size_t n)
{
    for (size_t of = 0; of < n; of++) tensor[of] = -1;
    for (size_t i = 0; i < program->n_tensors; i++)
        if (program->tensor[i].role == role && program->tensor[i].of < n)
            tensor[program->tensor[i].of] = (int)i;
}

int syi_role_find(const struct syi_program *program, enum syi_role role, uint32_t of)
{
    for (size_t i = 0; i < program->n_tensors; i++)
        if (program->tensor[i].role == role && program->tensor[i].of == of) return (int)i;
    return -1;
}

static int is_of_gradients(const struct syi_tensor *t)
{
    return t->role == SYI_ROLE_GRADIENT || t->role == SYI_ROLE_GRADIENT_BLOCKS;
}

int syi_op_ends_gradients(const struct syi_program *program, const struct syi_op *op)
{
    if (op->op != SY_OP_MAP && op->op != SY_OP_MAP_SUMS && op->op != SY_OP_BLOCK_SUMSQ) return 0;
    for (int i = 0; i < op->n_out; i++)
        if (!is_of_gradients(&program->tensor[op->out[i]])) return 0;
    return 1;
}
