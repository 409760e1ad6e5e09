/* SPDX-License-Identifier: Apache-2.0 */
/* Values that follow, element by element, from one whole tensor that is in memory anyhow: whoever reads them makes them anew,
 * and the map that wrote them goes. */
#include "config.h"

#include <string.h>

#include "passes/fold.h"

enum {
    MOST_MADE = 8, /* instructions that are worth less than a trip to memory */
    DEPTH = 8      /* maps that are followed up from a value */
};

static int64_t count_of(const struct syi_folding *pass, int tensor)
{
    return syi_tensor_count(&pass->program->tensor[tensor]);
}

/* ---- which values can be made anew ---- */

/* Whether `tensor` holds at op `at` what it held after op `since`. */
static int is_unchanged(const struct syi_folding *pass, int tensor, size_t since, size_t at)
{
    for (size_t i = since; i < at; i++)
        if (!pass->gone[i] && syi_op_writes(&pass->program->op[i], tensor)) return 0;
    return 1;
}

static int is_cheap(const struct sy_map_instr *instr)
{
    switch (instr->op) {
    case SY_MAP_EXP:
    case SY_MAP_LOG:
    case SY_MAP_TANH:
    case SY_MAP_DROPOUT:
    case SY_MAP_JITTER:
    case SY_MAP_ACTIVATION:
    case SY_MAP_ACTIVATION_GRAD: return 0;
    default: return 1;
    }
}

/* The map whose values a whole temporary holds, or -1. */
static int map_of(const struct syi_folding *pass, int tensor)
{
    const struct syi_tensor *t = &pass->program->tensor[tensor];
    int at = pass->writer[tensor];
    if (t->kind != SYI_TEMP || t->dtype != SY_F32 || at < 0) return -1;
    const struct syi_op *op = &pass->program->op[at];
    return op->op == SY_OP_MAP && syi_map_attr(pass, op)->rng == 255 ? at : -1;
}

static int make(const struct syi_folding *pass, struct syi_made *m, int tensor, size_t at, int depth);

/* Register that holds what register `reg` of the map at `from` does, for a reader at `at`; -1: it cannot be made. */
static int make_register(const struct syi_folding *pass, struct syi_made *m, size_t from, int reg, size_t at,
                         int depth)
{
    const struct syi_op *op = &pass->program->op[from];
    const struct sy_attr_map *attr = syi_map_attr(pass, op);
    if (reg < op->n_in) {
        if (!syi_is_widened(pass, op->in[reg])) return -1;
        if (!is_unchanged(pass, op->in[reg], from, at)) return -1;
        if (count_of(pass, op->in[reg]) == count_of(pass, op->out[0]))
            return make(pass, m, op->in[reg], at, depth + 1);
        return syi_map_add_input(m->in, &m->n_in, op->in[reg]);
    }
    const struct sy_map_instr *instr = &attr->instr[reg - op->n_in];
    const uint8_t old[3] = {instr->a, instr->b, instr->c};
    int now[SY_MAX_IN + SY_MAP_MAX_INSTR] = {0};
    if (!is_cheap(instr)) return -1;
    for (int i = 0; i < syi_map_arguments(instr->op); i++)
        if ((now[old[i]] = make_register(pass, m, from, old[i], at, depth)) < 0) return -1;
    return syi_made_mapped(m, *instr, now);
}

/* Register that holds the elements of a whole tensor: made anew where a map made them, else an input. */
static int make(const struct syi_folding *pass, struct syi_made *m, int tensor, size_t at, int depth)
{
    int from = depth < DEPTH ? map_of(pass, tensor) : -1;
    if (from < 0) return syi_map_add_input(m->in, &m->n_in, tensor);
    for (int o = 0; o < pass->program->op[from].n_out; o++)
        if (pass->program->op[from].out[o] == tensor)
            return make_register(pass, m, (size_t)from,
                                 syi_map_attr(pass, &pass->program->op[from])->out_register[o], at, depth);
    return -1;
}

/* Whether a temporary can be made anew by a reader at `at`, from one whole tensor that outlives it; which is input 0. */
static int can_make(const struct syi_folding *pass, int tensor, size_t at, int *whole)
{
    struct syi_made m = {.n_in = 0};
    int n = 0;
    if (map_of(pass, tensor) < 0 || make(pass, &m, tensor, at, 0) < 0 || m.n_instr > MOST_MADE) return 0;
    for (int i = 0; i < m.n_in; i++)
        if (count_of(pass, m.in[i]) == count_of(pass, tensor)) {
            *whole = m.in[i];
            n++;
        }
    return n == 1 && pass->program->tensor[*whole].kind != SYI_TEMP;
}

/* ---- the readers of a value ---- */

/* The instructions of a reader that makes the tensor anew; 0: they have no room, or it must read the tensor. */
static int rebuild(const struct syi_folding *pass, size_t at, int tensor, int whole, struct syi_made *m,
                   int *out_register)
{
    const struct syi_op *op = &pass->program->op[at];
    int reg[SY_MAX_IN + SY_MAP_MAX_INSTR];
    *m = (struct syi_made){.in = {whole}, .n_in = 1};
    if (syi_is_block_sum(op))
        return syi_are_blocks_narrow(pass, op) && (out_register[0] = make(pass, m, tensor, at, 0)) >= 0 &&
               m->n_instr > 0;
    const struct sy_attr_map *attr = syi_map_attr(pass, op);
    if (op->op != SY_OP_MAP || attr->rng != 255 || count_of(pass, op->out[0]) != count_of(pass, tensor))
        return 0;
    for (int i = 0; i < op->n_in; i++)
        if ((reg[i] = op->in[i] == tensor ? make(pass, m, tensor, at, 0)
                                          : syi_map_add_input(m->in, &m->n_in, op->in[i])) < 0)
            return 0;
    return syi_made_map(m, attr, op, reg, out_register) && m->n_instr > 0;
}

static int rewrite(struct syi_folding *pass, size_t at, int tensor, int whole, struct sy_error *err)
{
    const struct syi_op *op = &pass->program->op[at];
    int out_register[SY_MAX_OUT], is_sum = syi_is_block_sum(op);
    const struct syi_sum_kinds kinds = {.squares = op->op == SY_OP_BLOCK_SUMSQ};
    struct syi_made m;
    if (!rebuild(pass, at, tensor, whole, &m, out_register)) return SY_OK;
    return syi_fold_write(pass, at, is_sum ? SY_OP_MAP_SUMS : SY_OP_MAP, &m, out_register, kinds, err);
}

/* Ops from `at` on that read the tensor; the last in *end. Returns whether all of them can do without. */
static int readers_agree(const struct syi_folding *pass, int tensor, int whole, size_t at, size_t *end)
{
    uint32_t left = pass->reads[tensor];
    int out_register[SY_MAX_OUT];
    struct syi_made m;
    for (size_t i = at; left && i < pass->program->n_ops; i++) {
        const struct syi_op *op = &pass->program->op[i];
        if (pass->gone[i] || !syi_op_reads(op, tensor)) continue;
        if (!rebuild(pass, i, tensor, whole, &m, out_register)) return 0;
        for (int k = 0; k < op->n_in; k++) left -= op->in[k] == tensor;
        *end = i;
    }
    return !left;
}

/* Register that holds what register `reg` of a map does; only what it needs is added. */
static int keep_register(const struct syi_folding *pass, struct syi_made *m, const struct syi_op *op, int reg)
{
    const struct sy_map_instr *instr = &syi_map_attr(pass, op)->instr[reg - op->n_in];
    int now[SY_MAX_IN + SY_MAP_MAX_INSTR] = {0};
    if (reg < op->n_in) return syi_map_add_input(m->in, &m->n_in, op->in[reg]);
    const uint8_t old[3] = {instr->a, instr->b, instr->c};
    for (int i = 0; i < syi_map_arguments(instr->op); i++) now[old[i]] = keep_register(pass, m, op, old[i]);
    return syi_made_mapped(m, *instr, now);
}

/* The map at `at` without the output that holds the tensor, and without what only that one needs. */
static int drop_output(struct syi_folding *pass, size_t at, int tensor, struct sy_error *err)
{
    struct syi_op *op = &pass->program->op[at];
    struct syi_made m = {.n_in = 0};
    int out_register[SY_MAX_OUT], kept = 0;
    for (int o = 0; o < op->n_out; o++) {
        if (op->out[o] == tensor) continue;
        out_register[kept] = keep_register(pass, &m, op, syi_map_attr(pass, op)->out_register[o]);
        op->out[kept++] = op->out[o];
    }
    for (int o = kept; o < op->n_out; o++) op->out[o] = -1;
    op->n_out = (uint8_t)kept;
    pass->writer[tensor] = -1; /* what else is written here must not go with it, whoever asks again */
    return syi_fold_write(pass, at, SY_OP_MAP, &m, out_register, (struct syi_sum_kinds){0}, err);
}

/* A temporary that nobody reads any more is not written; a map that writes nothing goes, and so on upwards. What else its map
 * wrote, or was made of, others may still read: they may make it anew as well. */
static int drop_unread(struct syi_folding *pass, int tensor, struct sy_error *err)
{
    int at = pass->writer[tensor], status = SY_OK;
    if (at < 0 || pass->reads[tensor] || pass->program->tensor[tensor].kind != SYI_TEMP) return SY_OK;
    const struct syi_op *op = &pass->program->op[at];
    if (op->op != SY_OP_MAP || pass->gone[at] || syi_map_attr(pass, op)->rng != 255) return SY_OK;
    if (op->n_out > 1) {
        status = drop_output(pass, (size_t)at, tensor, err);
        for (int o = op->n_out - 1; o >= 0 && !status && !pass->gone[at]; o--)
            if (o < op->n_out) status = syi_fold_value(pass, op->out[o], (size_t)at + 1, err);
        return status;
    }
    pass->gone[at] = 1;
    for (int i = 0; i < op->n_in; i++) {
        pass->reads[op->in[i]]--;
        if (!status && pass->reads[op->in[i]]) status = syi_fold_value(pass, op->in[i], (size_t)at + 1, err);
        if (!status) status = drop_unread(pass, op->in[i], err);
    }
    return status;
}

int syi_fold_value(struct syi_folding *pass, int tensor, size_t at, struct sy_error *err)
{
    int whole = -1, status = SY_OK;
    size_t end = at, from;
    if (pass->program->tensor[tensor].kind != SYI_TEMP || pass->writer[tensor] < 0) return SY_OK;
    from = (size_t)pass->writer[tensor] + 1;
    if (!can_make(pass, tensor, at, &whole) || !readers_agree(pass, tensor, whole, from, &end)) return SY_OK;
    for (size_t i = from; i <= end && !status; i++)
        if (!pass->gone[i] && syi_op_reads(&pass->program->op[i], tensor))
            status = rewrite(pass, i, tensor, whole, err);
    return status ? status : drop_unread(pass, tensor, err);
}
