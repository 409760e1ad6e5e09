/* SPDX-License-Identifier: Apache-2.0 */
/* Sums that become outputs of an op that has their terms: those over one tensor, or over several of its shape, meet in one
 * map_sums; those of what a map writes end the map. */
#include "config.h"

#include <string.h>

#include "base/common_multiple.h"
#include "passes/fold.h"

int syi_is_block_sum(const struct syi_op *op)
{
    return op->op == SY_OP_BLOCK_SUM || op->op == SY_OP_BLOCK_SUMSQ;
}

int syi_are_blocks_narrow(const struct syi_folding *pass, const struct syi_op *op)
{
    const struct syi_tensor *x = &pass->program->tensor[op->in[0]];
    const struct sy_attr_block *attr = syi_program_attr(pass->program, op);
    for (int i = 0; i < x->rank - 2; i++)
        if (attr->leaf[i] > 1) return 0;
    return attr->leaf[x->rank - 1] <= SY_MAP_SUMS_COLUMNS;
}

int syi_is_widened(const struct syi_folding *pass, int tensor)
{
    return pass->program->tensor[tensor].dtype == SY_F32 || pass->program->tensor[tensor].dtype == SY_BF16;
}

/* ---- sums that meet ---- */

/* Whether the op at `at` may run in the place of `first`: nothing between writes what it reads or reads what it writes. */
static int may_move(const struct syi_folding *pass, size_t first, size_t at)
{
    const struct syi_op *op = &pass->program->op[at];
    for (size_t i = first; i < at; i++) {
        const struct syi_op *other = &pass->program->op[i];
        if (pass->gone[i]) continue;
        for (int k = 0; k < op->n_in; k++)
            if (syi_op_writes(other, op->in[k])) return 0;
        for (int k = 0; k < op->n_out; k++)
            if (syi_op_reads(other, op->out[k]) || syi_op_writes(other, op->out[k])) return 0;
    }
    return 1;
}

/* Columns that are whole blocks of all outputs; 0: more than map_sums takes. */
static int64_t common_columns(const struct syi_program *p, const struct syi_op *op, int64_t n)
{
    const struct syi_tensor *x = &p->tensor[op->in[0]];
    for (int o = 0; o < op->n_out && n; o++) {
        n = syi_common_multiple(n, x->dim[x->rank - 1] / p->tensor[op->out[o]].dim[x->rank - 1]);
        if (n > SY_MAP_SUMS_COLUMNS) n = 0;
    }
    return n;
}

static int add_op(const struct syi_folding *pass, struct syi_made *m, const struct syi_op *op,
                  int *out_register)
{
    int reg[SY_MAX_IN + SY_MAP_MAX_INSTR];
    if (syi_is_block_sum(op)) return (out_register[0] = syi_map_add_input(m->in, &m->n_in, op->in[0])) >= 0;
    for (int i = 0; i < op->n_in; i++)
        if ((reg[i] = syi_map_add_input(m->in, &m->n_in, op->in[i])) < 0) return 0;
    return syi_made_map(m, syi_map_attr(pass, op), op, reg, out_register);
}

/* What the outputs of sums are, which store nothing. */
static struct syi_sum_kinds kinds_of(const struct syi_folding *pass, const struct syi_op *op)
{
    if (syi_is_block_sum(op)) return (struct syi_sum_kinds){.squares = op->op == SY_OP_BLOCK_SUMSQ};
    const struct sy_attr_map *attr = syi_map_attr(pass, op);
    return (struct syi_sum_kinds){.squares = attr->squares, .maxima = attr->maxima};
}

/* The sums at `at` join those at `first`, if they have room. */
static int meet(struct syi_folding *pass, size_t first, size_t at, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *a = &p->op[first], *b = &p->op[at];
    int out_register[2 * SY_MAX_OUT], n = a->n_out;
    struct syi_made m = {.n_in = 0};
    if (a->n_out + b->n_out > SY_MAX_OUT || !common_columns(p, b, common_columns(p, a, 1))) return SY_OK;
    if (!may_move(pass, first, at) || !add_op(pass, &m, a, out_register) ||
        !add_op(pass, &m, b, out_register + n))
        return SY_OK;
    const struct syi_sum_kinds of_a = kinds_of(pass, a), of_b = kinds_of(pass, b),
                               kinds = {.squares = (uint8_t)(of_a.squares | of_b.squares << n),
                                        .maxima = (uint8_t)(of_a.maxima | of_b.maxima << n)};
    for (int o = 0; o < b->n_out; o++) a->out[a->n_out++] = b->out[o];
    for (int i = 0; i < b->n_in; i++) pass->reads[b->in[i]]--;
    pass->gone[at] = 1;
    return syi_fold_write(pass, first, SY_OP_MAP_SUMS, &m, out_register, kinds, err);
}

/* A map_sums that stores nothing. */
static int is_of_sums(const struct syi_folding *pass, const struct syi_op *op)
{
    return op->op == SY_OP_MAP_SUMS && !syi_map_attr(pass, op)->stored;
}

/* Sums over the same tensor. */
static int read_the_same(const struct syi_folding *pass, size_t first, size_t at)
{
    const struct syi_op *op = pass->program->op;
    return is_of_sums(pass, &op[at]) && op[at].in[0] == op[first].in[0];
}

/* Sums over another tensor of the shape, which memory brings while the first is in the cache. */
static int read_alike(const struct syi_folding *pass, size_t first, size_t at)
{
    const struct syi_program *p = pass->program;
    const struct syi_op *op = &p->op[at];
    const struct syi_tensor *x = &p->tensor[p->op[first].in[0]], *y = &p->tensor[op->in[0]];
    return syi_is_block_sum(op) && syi_are_blocks_narrow(pass, op) && y->dtype == SY_F32 &&
           y->rank == x->rank && p->tensor[op->out[0]].dtype == SY_F32 &&
           !memcmp(x->dim, y->dim, sizeof x->dim);
}

static int meet_others(struct syi_folding *pass, size_t first,
                       int (*may)(const struct syi_folding *pass, size_t first, size_t at),
                       struct sy_error *err)
{
    const struct syi_program *p = pass->program;
    int status = SY_OK;
    if (pass->gone[first] || !is_of_sums(pass, &p->op[first])) return SY_OK;
    for (size_t i = first + 1; !status && i < p->n_ops && i < first + SYI_FOLD_WINDOW; i++)
        if (!pass->gone[i] && may(pass, first, i)) status = meet(pass, first, i, err);
    return status;
}

int syi_fold_meet_same(struct syi_folding *pass, size_t first, struct sy_error *err)
{
    return meet_others(pass, first, read_the_same, err);
}

int syi_fold_meet_alike(struct syi_folding *pass, size_t first, struct sy_error *err)
{
    return meet_others(pass, first, read_alike, err);
}

/* ---- sums of what a map writes ---- */

/* The input of the map that has its shape, if sums may become outputs of it: one that writes what stays. Not where rows are
 * one element long, which map_sums would take one by one. -1: none. */
static int gathers_over(const struct syi_folding *pass, const struct syi_op *op)
{
    const struct syi_program *p = pass->program;
    const struct syi_tensor *shape = &p->tensor[op->out[0]];
    int stays = 0, whole = -1;
    if (syi_map_attr(pass, op)->rng != 255 || (shape->rank && shape->dim[shape->rank - 1] == 1)) return -1;
    for (int o = 0; o < op->n_out; o++) {
        if (p->tensor[op->out[o]].dtype != SY_F32 && p->tensor[op->out[o]].kind == SYI_TEMP) return -1;
        stays |= p->tensor[op->out[o]].kind != SYI_TEMP;
    }
    for (int i = op->n_in - 1; i >= 0; i--) {
        if (!syi_is_widened(pass, op->in[i])) return -1;
        if (!memcmp(p->tensor[op->in[i]].dim, shape->dim, sizeof shape->dim)) whole = op->in[i];
    }
    return stays ? whole : -1;
}

static int output_of(const struct syi_op *op, int tensor)
{
    for (int o = 0; o < op->n_out; o++)
        if (op->out[o] == tensor) return o;
    return -1;
}

/* Whether the reduction at `at` may become an output of the map at `first`. */
static int may_gather(const struct syi_folding *pass, size_t first, size_t at)
{
    const struct syi_program *p = pass->program;
    const struct syi_op *map = &p->op[first], *op = &p->op[at];
    struct syi_op with = *map;
    if (pass->gone[at] || (!syi_is_block_sum(op) && op->op != SY_OP_BLOCK_MAX)) return 0;
    if (output_of(map, op->in[0]) < 0 || map->n_out == SY_MAX_OUT || !syi_are_blocks_narrow(pass, op))
        return 0;
    if (p->tensor[op->in[0]].dtype != SY_F32 || p->tensor[op->out[0]].dtype != SY_F32) return 0;
    with.in[0] = map->out[0]; /* of the whole shape */
    with.out[with.n_out++] = op->out[0];
    return common_columns(p, &with, 1) && may_move(pass, first + 1, at);
}

/* Takes outputs that only sums have read away. */
static void drop_summed(const struct syi_folding *pass, struct syi_op *op, int *out_register,
                        struct syi_sum_kinds *kinds)
{
    struct syi_sum_kinds left = {0};
    int kept = 0;
    for (int o = 0; o < op->n_out; o++) {
        int tensor = op->out[o];
        if (kinds->stored >> o & 1 && pass->program->tensor[tensor].kind == SYI_TEMP && !pass->reads[tensor])
            continue;
        left.squares |= (uint8_t)((kinds->squares >> o & 1) << kept);
        left.maxima |= (uint8_t)((kinds->maxima >> o & 1) << kept);
        left.stored |= (uint8_t)((kinds->stored >> o & 1) << kept);
        out_register[kept] = out_register[o];
        op->out[kept++] = tensor;
    }
    for (int o = kept; o < op->n_out; o++) op->out[o] = -1;
    op->n_out = (uint8_t)kept;
    *kinds = left;
}

/* Sums and maxima of blocks of what the map at `first` writes become outputs of it. */
int syi_fold_gather(struct syi_folding *pass, size_t first, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *op = &p->op[first];
    int out_register[SY_MAX_OUT], whole = gathers_over(pass, op), joined = 0;
    struct syi_made m = {.in = {whole}, .n_in = 1};
    struct syi_sum_kinds kinds = {.stored = (uint8_t)((1 << op->n_out) - 1)};
    if (whole < 0 || !add_op(pass, &m, op, out_register)) return SY_OK;
    for (size_t i = first + 1; i < p->n_ops && i < first + SYI_FOLD_WINDOW; i++) {
        if (!may_gather(pass, first, i)) continue;
        const struct syi_op *sum = &p->op[i];
        out_register[op->n_out] = out_register[output_of(op, sum->in[0])];
        kinds.squares |= (uint8_t)((sum->op == SY_OP_BLOCK_SUMSQ) << op->n_out);
        kinds.maxima |= (uint8_t)((sum->op == SY_OP_BLOCK_MAX) << op->n_out);
        pass->reads[sum->in[0]]--;
        pass->writer[sum->out[0]] = (int)first;
        pass->gone[i] = 1;
        op->out[op->n_out++] = sum->out[0];
        drop_summed(pass, op, out_register, &kinds);
        joined = 1;
    }
    if (!joined) return SY_OK;
    return syi_fold_write(pass, first, SY_OP_MAP_SUMS, &m, out_register, kinds, err);
}
