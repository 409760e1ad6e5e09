/* SPDX-License-Identifier: Apache-2.0 */
/* The fold pass. A sum of blocks reads values that a map wrote, which costs a write and a read of the whole tensor. Where the
 * map writes what stays (a parameter, with the sums of weight metrics after it), the sum becomes an output of the map, which
 * is then `map_sums`. Where the values follow, element by element, from one whole tensor that is in memory anyhow (a gradient,
 * with a scale and vectors of rows and columns), whoever reads them makes them anew instead: the sum becomes `map_sums`, other
 * maps get the instructions, and the map that wrote them goes. Last, those map_sums over one tensor that meet become one, and
 * take sums over another one of its shape with them. And a product writes a gradient in bfloat16 itself that a map only
 * rounded. Each value and each sum is rounded as before, so bits do not change. Runs after fuse. */
#include "config.h"

#include <string.h>

#include "base/common_multiple.h"
#include "passes/passes.h"

enum {
    WINDOW = 64,   /* ops looked at after a map_sums for others to join it */
    MOST_MADE = 8, /* instructions that are worth less than a trip to memory */
    DEPTH = 8      /* maps that are followed up from a value */
};

struct pass {
    struct syi_program *program;
    int *writer;     /* [n_tensors] the op that writes it, -1: none, -2: several */
    uint32_t *reads; /* [n_tensors] operands that read it */
    uint8_t *gone;   /* [n_ops] */
};

/* Instructions that grow, over inputs that are numbered when they end: register of instruction i is SY_MAX_IN + i. */
struct made {
    int in[SY_MAX_IN];
    struct sy_map_instr instr[SY_MAP_MAX_INSTR];
    int n_in, n_instr;
};

/* ---- instructions ---- */

/* Register of an instruction, which may be there already; -1: no room. */
static int add_instr(struct made *m, struct sy_map_instr instr)
{
    for (int i = 0; i < m->n_instr; i++)
        if (!memcmp(&m->instr[i], &instr, sizeof instr)) return SY_MAX_IN + i;
    if (m->n_instr == SY_MAP_MAX_INSTR) return -1;
    m->instr[m->n_instr] = instr;
    return SY_MAX_IN + m->n_instr++;
}

/* An instruction whose registers are now reg[old]; unused ones 0, so that equal ones compare equal. -1: no room. */
static int add_mapped(struct made *m, struct sy_map_instr instr, const int *reg)
{
    int arguments = syi_map_arguments(instr.op);
    int keeps_c = instr.op == SY_MAP_ACTIVATION || instr.op == SY_MAP_ACTIVATION_GRAD;
    instr.a = (uint8_t)(arguments > 0 ? reg[instr.a] : 0);
    instr.b = (uint8_t)(arguments > 1 ? reg[instr.b] : 0);
    instr.c = (uint8_t)(arguments > 2 ? reg[instr.c] : keeps_c ? instr.c : 0);
    return add_instr(m, instr);
}

/* The instructions of a map whose inputs are reg[0 .. n_in); the registers of its outputs. 0: no room. */
static int add_map(struct made *m, const struct sy_attr_map *attr, const struct syi_op *op, int *reg,
                   int *out_register)
{
    for (int i = 0; i < attr->n_instr; i++)
        if ((reg[op->n_in + i] = add_mapped(m, attr->instr[i], reg)) < 0) return 0;
    for (int o = 0; o < op->n_out; o++) out_register[o] = reg[attr->out_register[o]];
    return 1;
}

static uint8_t final_register(const struct made *m, int reg)
{
    return (uint8_t)(reg >= SY_MAX_IN ? m->n_in + reg - SY_MAX_IN : reg);
}

/* ---- which values can be made anew ---- */

static const struct sy_attr_map *attr_of(const struct pass *pass, const struct syi_op *op)
{
    return syi_program_attr(pass->program, op);
}

static int64_t count_of(const struct pass *pass, int tensor)
{
    return syi_tensor_count(&pass->program->tensor[tensor]);
}

/* Whether `tensor` holds at op `at` what it held after op `since`. */
static int is_unchanged(const struct pass *pass, int tensor, size_t since, size_t at)
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

/* Whether ops compute with it in float32. */
static int is_widened(const struct pass *pass, int tensor)
{
    return pass->program->tensor[tensor].dtype == SY_F32 || pass->program->tensor[tensor].dtype == SY_BF16;
}

/* The map whose values a whole temporary holds, or -1. */
static int map_of(const struct pass *pass, int tensor)
{
    const struct syi_tensor *t = &pass->program->tensor[tensor];
    int at = pass->writer[tensor];
    if (t->kind != SYI_TEMP || t->dtype != SY_F32 || at < 0) return -1;
    const struct syi_op *op = &pass->program->op[at];
    return op->op == SY_OP_MAP && attr_of(pass, op)->rng == 255 ? at : -1;
}

static int make(const struct pass *pass, struct made *m, int tensor, size_t at, int depth);

/* Register that holds what register `reg` of the map at `from` does, for a reader at `at`; -1: it cannot be made. */
static int make_register(const struct pass *pass, struct made *m, size_t from, int reg, size_t at, int depth)
{
    const struct syi_op *op = &pass->program->op[from];
    const struct sy_attr_map *attr = attr_of(pass, op);
    if (reg < op->n_in) {
        if (!is_widened(pass, op->in[reg])) return -1;
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
    return add_mapped(m, *instr, now);
}

/* Register that holds the elements of a whole tensor: made anew where a map made them, else an input. */
static int make(const struct pass *pass, struct made *m, int tensor, size_t at, int depth)
{
    int from = depth < DEPTH ? map_of(pass, tensor) : -1;
    if (from < 0) return syi_map_add_input(m->in, &m->n_in, tensor);
    for (int o = 0; o < pass->program->op[from].n_out; o++)
        if (pass->program->op[from].out[o] == tensor)
            return make_register(pass, m, (size_t)from,
                                 attr_of(pass, &pass->program->op[from])->out_register[o], at, depth);
    return -1;
}

/* Whether a temporary can be made anew by a reader at `at`, from one whole tensor that outlives it; which is input 0. */
static int can_make(const struct pass *pass, int tensor, size_t at, int *whole)
{
    struct made m = {.n_in = 0};
    int n = 0;
    if (map_of(pass, tensor) < 0 || make(pass, &m, tensor, at, 0) < 0 || m.n_instr > MOST_MADE) return 0;
    for (int i = 0; i < m.n_in; i++)
        if (count_of(pass, m.in[i]) == count_of(pass, tensor)) {
            *whole = m.in[i];
            n++;
        }
    return n == 1 && pass->program->tensor[*whole].kind != SYI_TEMP;
}

/* ---- writing ops ---- */

/* What outputs of a map_sums are, bits as in sy_attr_map. */
struct kinds {
    uint8_t squares, maxima, stored;
};

/* Makes an op of the instructions. out_register: of `op`'s outputs, as registers of `m`. */
static int write_op(struct pass *pass, size_t at, enum sy_op kind, const struct made *m,
                    const int *out_register, struct kinds kinds, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *op = &p->op[at];
    size_t bytes = sizeof(struct sy_attr_map) + (size_t)m->n_instr * sizeof(struct sy_map_instr);
    int status = SYI_GROW(p->attrs, p->cap_attrs, p->n_attrs + bytes + 8, err);
    if (status) return status;
    struct sy_attr_map *attr = (struct sy_attr_map *)(void *)(p->attrs + p->n_attrs);
    memset(attr, 0, bytes);
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
    op->attr = (uint32_t)p->n_attrs;
    op->attr_bytes = (uint32_t)bytes;
    p->n_attrs += (bytes + 7) & ~(size_t)7;
    return SY_OK;
}

/* ---- the readers of a value ---- */

static int is_block_sum(const struct syi_op *op)
{
    return op->op == SY_OP_BLOCK_SUM || op->op == SY_OP_BLOCK_SUMSQ;
}

/* Whether map_sums takes blocks like these. */
static int are_blocks_narrow(const struct pass *pass, const struct syi_op *op)
{
    const struct syi_tensor *x = &pass->program->tensor[op->in[0]];
    const struct sy_attr_block *attr = syi_program_attr(pass->program, op);
    for (int i = 0; i < x->rank - 2; i++)
        if (attr->leaf[i] > 1) return 0;
    return attr->leaf[x->rank - 1] <= SY_MAP_SUMS_COLUMNS;
}

/* The instructions of a reader that makes the tensor anew; 0: they have no room, or it must read the tensor. */
static int rebuild(const struct pass *pass, size_t at, int tensor, int whole, struct made *m,
                   int *out_register)
{
    const struct syi_op *op = &pass->program->op[at];
    int reg[SY_MAX_IN + SY_MAP_MAX_INSTR];
    *m = (struct made){.in = {whole}, .n_in = 1};
    if (is_block_sum(op))
        return are_blocks_narrow(pass, op) && (out_register[0] = make(pass, m, tensor, at, 0)) >= 0 &&
               m->n_instr > 0;
    const struct sy_attr_map *attr = attr_of(pass, op);
    if (op->op != SY_OP_MAP || attr->rng != 255 || count_of(pass, op->out[0]) != count_of(pass, tensor))
        return 0;
    for (int i = 0; i < op->n_in; i++)
        if ((reg[i] = op->in[i] == tensor ? make(pass, m, tensor, at, 0)
                                          : syi_map_add_input(m->in, &m->n_in, op->in[i])) < 0)
            return 0;
    return add_map(m, attr, op, reg, out_register) && m->n_instr > 0;
}

static int rewrite(struct pass *pass, size_t at, int tensor, int whole, struct sy_error *err)
{
    const struct syi_op *op = &pass->program->op[at];
    int out_register[SY_MAX_OUT], is_sum = is_block_sum(op);
    const struct kinds kinds = {.squares = op->op == SY_OP_BLOCK_SUMSQ};
    struct made m;
    if (!rebuild(pass, at, tensor, whole, &m, out_register)) return SY_OK;
    return write_op(pass, at, is_sum ? SY_OP_MAP_SUMS : SY_OP_MAP, &m, out_register, kinds, err);
}

/* Ops from `at` on that read the tensor; the last in *end. Returns whether all of them can do without. */
static int readers_agree(const struct pass *pass, int tensor, int whole, size_t at, size_t *end)
{
    uint32_t left = pass->reads[tensor];
    int out_register[SY_MAX_OUT];
    struct made m;
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
static int keep_register(const struct pass *pass, struct made *m, const struct syi_op *op, int reg)
{
    const struct sy_map_instr *instr = &attr_of(pass, op)->instr[reg - op->n_in];
    int now[SY_MAX_IN + SY_MAP_MAX_INSTR] = {0};
    if (reg < op->n_in) return syi_map_add_input(m->in, &m->n_in, op->in[reg]);
    const uint8_t old[3] = {instr->a, instr->b, instr->c};
    for (int i = 0; i < syi_map_arguments(instr->op); i++) now[old[i]] = keep_register(pass, m, op, old[i]);
    return add_mapped(m, *instr, now);
}

/* The map at `at` without the output that holds the tensor, and without what only that one needs. */
static int drop_output(struct pass *pass, size_t at, int tensor, struct sy_error *err)
{
    struct syi_op *op = &pass->program->op[at];
    struct made m = {.n_in = 0};
    int out_register[SY_MAX_OUT], kept = 0;
    for (int o = 0; o < op->n_out; o++) {
        if (op->out[o] == tensor) continue;
        out_register[kept] = keep_register(pass, &m, op, attr_of(pass, op)->out_register[o]);
        op->out[kept++] = op->out[o];
    }
    for (int o = kept; o < op->n_out; o++) op->out[o] = -1;
    op->n_out = (uint8_t)kept;
    return write_op(pass, at, SY_OP_MAP, &m, out_register, (struct kinds){0}, err);
}

static int fold_value(struct pass *pass, int tensor, size_t at, struct sy_error *err);

/* A temporary that nobody reads any more is not written; a map that writes nothing goes, and so on upwards. What else its map
 * wrote, or was made of, others may still read: they may make it anew as well. */
static int drop_unread(struct pass *pass, int tensor, struct sy_error *err)
{
    int at = pass->writer[tensor], status = SY_OK;
    if (at < 0 || pass->reads[tensor] || pass->program->tensor[tensor].kind != SYI_TEMP) return SY_OK;
    const struct syi_op *op = &pass->program->op[at];
    if (op->op != SY_OP_MAP || pass->gone[at] || attr_of(pass, op)->rng != 255) return SY_OK;
    if (op->n_out > 1) {
        status = drop_output(pass, (size_t)at, tensor, err);
        for (int o = op->n_out - 1; o >= 0 && !status && !pass->gone[at]; o--)
            if (o < op->n_out) status = fold_value(pass, op->out[o], (size_t)at + 1, err);
        return status;
    }
    pass->gone[at] = 1;
    for (int i = 0; i < op->n_in; i++) {
        pass->reads[op->in[i]]--;
        if (!status && pass->reads[op->in[i]]) status = fold_value(pass, op->in[i], (size_t)at + 1, err);
        if (!status) status = drop_unread(pass, op->in[i], err);
    }
    return status;
}

/* Folds values that are read at `at` or later: all readers make them anew, or none. */
static int fold_value(struct pass *pass, int tensor, size_t at, struct sy_error *err)
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

/* ---- sums that meet ---- */

/* Whether the op at `at` may run in the place of `first`: nothing between writes what it reads or reads what it writes. */
static int may_move(const struct pass *pass, size_t first, size_t at)
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

static int add_op(const struct pass *pass, struct made *m, const struct syi_op *op, int *out_register)
{
    int reg[SY_MAX_IN + SY_MAP_MAX_INSTR];
    if (is_block_sum(op)) return (out_register[0] = syi_map_add_input(m->in, &m->n_in, op->in[0])) >= 0;
    for (int i = 0; i < op->n_in; i++)
        if ((reg[i] = syi_map_add_input(m->in, &m->n_in, op->in[i])) < 0) return 0;
    return add_map(m, attr_of(pass, op), op, reg, out_register);
}

/* What the outputs of sums are, which store nothing. */
static struct kinds kinds_of(const struct pass *pass, const struct syi_op *op)
{
    if (is_block_sum(op)) return (struct kinds){.squares = op->op == SY_OP_BLOCK_SUMSQ};
    const struct sy_attr_map *attr = attr_of(pass, op);
    return (struct kinds){.squares = attr->squares, .maxima = attr->maxima};
}

/* The sums at `at` join those at `first`, if they have room. */
static int meet(struct pass *pass, size_t first, size_t at, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *a = &p->op[first], *b = &p->op[at];
    int out_register[2 * SY_MAX_OUT], n = a->n_out;
    struct made m = {.n_in = 0};
    if (a->n_out + b->n_out > SY_MAX_OUT || !common_columns(p, b, common_columns(p, a, 1))) return SY_OK;
    if (!may_move(pass, first, at) || !add_op(pass, &m, a, out_register) ||
        !add_op(pass, &m, b, out_register + n))
        return SY_OK;
    const struct kinds of_a = kinds_of(pass, a), of_b = kinds_of(pass, b),
                       kinds = {.squares = (uint8_t)(of_a.squares | of_b.squares << n),
                                .maxima = (uint8_t)(of_a.maxima | of_b.maxima << n)};
    for (int o = 0; o < b->n_out; o++) a->out[a->n_out++] = b->out[o];
    for (int i = 0; i < b->n_in; i++) pass->reads[b->in[i]]--;
    pass->gone[at] = 1;
    return write_op(pass, first, SY_OP_MAP_SUMS, &m, out_register, kinds, err);
}

/* A map_sums that stores nothing. */
static int is_of_sums(const struct pass *pass, const struct syi_op *op)
{
    return op->op == SY_OP_MAP_SUMS && !attr_of(pass, op)->stored;
}

/* Sums over the same tensor. */
static int read_the_same(const struct pass *pass, size_t first, size_t at)
{
    const struct syi_op *op = pass->program->op;
    return is_of_sums(pass, &op[at]) && op[at].in[0] == op[first].in[0];
}

/* Sums over another tensor of the shape, which memory brings while the first is in the cache. */
static int read_alike(const struct pass *pass, size_t first, size_t at)
{
    const struct syi_program *p = pass->program;
    const struct syi_op *op = &p->op[at];
    const struct syi_tensor *x = &p->tensor[p->op[first].in[0]], *y = &p->tensor[op->in[0]];
    return is_block_sum(op) && are_blocks_narrow(pass, op) && y->dtype == SY_F32 && y->rank == x->rank &&
           p->tensor[op->out[0]].dtype == SY_F32 && !memcmp(x->dim, y->dim, sizeof x->dim);
}

static int meet_others(struct pass *pass, size_t first,
                       int (*may)(const struct pass *pass, size_t first, size_t at), struct sy_error *err)
{
    const struct syi_program *p = pass->program;
    int status = SY_OK;
    if (pass->gone[first] || !is_of_sums(pass, &p->op[first])) return SY_OK;
    for (size_t i = first + 1; !status && i < p->n_ops && i < first + WINDOW; i++)
        if (!pass->gone[i] && may(pass, first, i)) status = meet(pass, first, i, err);
    return status;
}

/* ---- sums of what a map writes ---- */

/* The input of the map that has its shape, if sums may become outputs of it: one that writes what stays. Not where rows are
 * one element long, which map_sums would take one by one. -1: none. */
static int gathers_over(const struct pass *pass, const struct syi_op *op)
{
    const struct syi_program *p = pass->program;
    const struct syi_tensor *shape = &p->tensor[op->out[0]];
    int stays = 0, whole = -1;
    if (attr_of(pass, op)->rng != 255 || (shape->rank && shape->dim[shape->rank - 1] == 1)) return -1;
    for (int o = 0; o < op->n_out; o++) {
        if (p->tensor[op->out[o]].dtype != SY_F32 && p->tensor[op->out[o]].kind == SYI_TEMP) return -1;
        stays |= p->tensor[op->out[o]].kind != SYI_TEMP;
    }
    for (int i = op->n_in - 1; i >= 0; i--) {
        if (!is_widened(pass, op->in[i])) return -1;
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
static int may_gather(const struct pass *pass, size_t first, size_t at)
{
    const struct syi_program *p = pass->program;
    const struct syi_op *map = &p->op[first], *op = &p->op[at];
    struct syi_op with = *map;
    if (pass->gone[at] || (!is_block_sum(op) && op->op != SY_OP_BLOCK_MAX)) return 0;
    if (output_of(map, op->in[0]) < 0 || map->n_out == SY_MAX_OUT || !are_blocks_narrow(pass, op)) return 0;
    if (p->tensor[op->in[0]].dtype != SY_F32 || p->tensor[op->out[0]].dtype != SY_F32) return 0;
    with.in[0] = map->out[0]; /* of the whole shape */
    with.out[with.n_out++] = op->out[0];
    return common_columns(p, &with, 1) && may_move(pass, first + 1, at);
}

/* Takes outputs that only sums have read away. */
static void drop_summed(const struct pass *pass, struct syi_op *op, int *out_register, struct kinds *kinds)
{
    struct kinds left = {0};
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
static int gather(struct pass *pass, size_t first, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *op = &p->op[first];
    int out_register[SY_MAX_OUT], whole = gathers_over(pass, op), joined = 0;
    struct made m = {.in = {whole}, .n_in = 1};
    struct kinds kinds = {.stored = (uint8_t)((1 << op->n_out) - 1)};
    if (whole < 0 || !add_op(pass, &m, op, out_register)) return SY_OK;
    for (size_t i = first + 1; i < p->n_ops && i < first + WINDOW; i++) {
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
    return write_op(pass, first, SY_OP_MAP_SUMS, &m, out_register, kinds, err);
}

/* ---- gradients in bfloat16 ---- */

/* A map that does nothing but round a gradient to bfloat16 (train.gradient_dtype). */
static int rounds_gradient(const struct pass *pass, size_t at)
{
    const struct syi_op *op = &pass->program->op[at];
    if (pass->gone[at] || op->op != SY_OP_MAP || op->n_in != 1 || op->n_out != 1) return 0;
    const struct sy_attr_map *attr = attr_of(pass, op);
    const struct syi_tensor *from = &pass->program->tensor[op->in[0]],
                            *to = &pass->program->tensor[op->out[0]];
    return attr->n_instr == 1 && attr->instr[0].op == SY_MAP_COPY && attr->out_register[0] == 1 &&
           from->dtype == SY_F32 && to->role == SYI_ROLE_GRADIENT && to->dtype == SY_BF16;
}

/* The map that rounds what only it reads of the op at `first`, if that may write its output in its place; 0: none. */
static size_t rounder_of(const struct pass *pass, size_t first, int tensor)
{
    const struct syi_program *p = pass->program;
    size_t at = first + 1;
    if (p->tensor[tensor].kind != SYI_TEMP || pass->reads[tensor] != 1) return 0; /* before all ops are asked */
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
static void round_at_once(struct pass *pass, size_t first)
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

/* ---- the walk ---- */

static int count(struct pass *pass, struct sy_error *err)
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

int syi_fold(struct syi_program *program, struct sy_error *err)
{
    struct pass pass = {.program = program};
    int status = count(&pass, err);
    for (size_t i = 0; !status && i < program->n_ops; i++) round_at_once(&pass, i);
    for (size_t i = 0; !status && i < program->n_ops; i++)
        if (!pass.gone[i] && program->op[i].op == SY_OP_MAP) status = gather(&pass, i, err);
    for (size_t i = 0; !status && i < program->n_ops; i++)
        if (!pass.gone[i] && is_block_sum(&program->op[i]))
            status = fold_value(&pass, program->op[i].in[0], i, err);
    for (size_t i = 0; !status && i < program->n_ops; i++) status = meet_others(&pass, i, read_the_same, err);
    for (size_t i = program->n_ops; !status && i-- > 0;) /* the nearest before them takes them */
        status = meet_others(&pass, i, read_alike, err);
    if (!status) syi_program_remove(program, pass.gone);
    syi_free(pass.writer);
    syi_free(pass.reads);
    syi_free(pass.gone);
    return status ? status : syi_program_check(program, "fold", err);
}
