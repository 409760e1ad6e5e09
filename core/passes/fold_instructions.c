/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of maps that the fold pass puts together, and the op made of them. */
#include "config.h"

#include <string.h>

#include "passes/fold.h"

/* Register of an instruction, which may be there already; -1: no room. */
static int add_instr(struct syi_made *m, struct sy_map_instr instr)
{
    for (int i = 0; i < m->n_instr; i++)
        if (!memcmp(&m->instr[i], &instr, sizeof instr)) return SY_MAX_IN + i;
    if (m->n_instr == SY_MAP_MAX_INSTR) return -1;
    m->instr[m->n_instr] = instr;
    return SY_MAX_IN + m->n_instr++;
}

/* Unused registers are 0, so that equal instructions compare equal. */
int syi_made_mapped(struct syi_made *m, struct sy_map_instr instr, const int *reg)
{
    int arguments = syi_map_arguments(instr.op);
    int keeps_c = instr.op == SY_MAP_ACTIVATION || instr.op == SY_MAP_ACTIVATION_GRAD;
    instr.a = (uint8_t)(arguments > 0 ? reg[instr.a] : 0);
    instr.b = (uint8_t)(arguments > 1 ? reg[instr.b] : 0);
    instr.c = (uint8_t)(arguments > 2 ? reg[instr.c] : keeps_c ? instr.c : 0);
    return add_instr(m, instr);
}

int syi_made_map(struct syi_made *m, const struct sy_attr_map *attr, const struct syi_op *op, int *reg,
                 int *out_register)
{
    for (int i = 0; i < attr->n_instr; i++)
        if ((reg[op->n_in + i] = syi_made_mapped(m, attr->instr[i], reg)) < 0) return 0;
    for (int o = 0; o < op->n_out; o++) out_register[o] = reg[attr->out_register[o]];
    return 1;
}

static uint8_t final_register(const struct syi_made *m, int reg)
{
    return (uint8_t)(reg >= SY_MAX_IN ? m->n_in + reg - SY_MAX_IN : reg);
}

int syi_fold_write(struct syi_folding *pass, size_t at, enum sy_op kind, const struct syi_made *m,
                   const int *out_register, struct syi_sum_kinds kinds, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *op = &p->op[at];
    size_t bytes = sizeof(struct sy_attr_map) + (size_t)m->n_instr * sizeof(struct sy_map_instr);
    void *to;
    int status = syi_attr_new(p, op, bytes, &to, err);
    if (status) return status;
    struct sy_attr_map *attr = to;
    attr->n_instr = (uint16_t)m->n_instr;
    attr->rng = 255;
    attr->squares = kinds.squares;
    attr->maxima = kinds.maxima;
    attr->stored = kinds.stored;
    for (int i = 0; i < m->n_instr; i++) {
        struct sy_map_instr instr = m->instr[i];
        int arguments = syi_map_arguments(instr.op);
        if (arguments > 0) instr.a = final_register(m, instr.a);
        if (arguments > 1) instr.b = final_register(m, instr.b);
        if (arguments > 2) instr.c = final_register(m, instr.c);
        attr->instr[i] = instr;
    }
    for (int o = 0; o < op->n_out; o++) attr->out_register[o] = final_register(m, out_register[o]);
    for (int i = 0; i < op->n_in; i++) pass->reads[op->in[i]]--;
    for (int i = 0; i < SY_MAX_IN; i++) op->in[i] = i < m->n_in ? m->in[i] : -1;
    for (int i = 0; i < m->n_in; i++) pass->reads[m->in[i]]++;
    op->op = (uint16_t)kind;
    op->n_in = (uint8_t)m->n_in;
    return SY_OK;
}

const struct sy_map_instr *syi_fold_only_instruction(const struct syi_program *p, const struct syi_op *op,
                                                     int n)
{
    const struct sy_attr_map *attr = syi_program_attr(p, op);
    if (op->op != SY_OP_MAP || op->n_in != n || op->n_out != 1) return NULL;
    if (attr->n_instr != 1 || attr->out_register[0] != n) return NULL;
    const struct syi_tensor *out = &p->tensor[op->out[0]];
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *in = &p->tensor[op->in[i]];
        if (in->rank != out->rank || memcmp(in->dim, out->dim, sizeof in->dim)) return NULL;
    }
    return attr->instr;
}
