/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise instructions: each call records a map op of one instruction; the fuse pass joins them later. And
 * column_sum, which their gradients alone use. */
#include "config.h"

#include "base/common_multiple.h"
#include "program/ops/ops.h"

/* ---- instructions ---- */

static const struct {
    const char *name;
    int8_t arguments;
} instructions[] = {
#define SY_MAP(id, NAME, name, arguments, help) [id] = {#name, arguments},
#include "switchyard/maps.def"
#undef SY_MAP
};
_Static_assert(SYI_COUNT(instructions) == SY_MAP_COUNT, "an instruction has no row");

int syi_map_arguments(enum sy_map_op op)
{
    return op < SY_MAP_COUNT ? instructions[op].arguments : -1;
}

/* ---- recording ---- */

/* A map attribute of one instruction, with room for it (the structure ends in a flexible array). */
union one {
    struct sy_attr_map attr;
    uint8_t bytes[sizeof(struct sy_attr_map) + sizeof(struct sy_map_instr)];
};

/* The operand with the most elements: the others are broadcast to its shape. */
static int largest(const struct syi_program *p, int n, const int *in)
{
    int best = in[0];
    for (int i = 1; i < n; i++)
        if (syi_tensor_count(&p->tensor[in[i]]) > syi_tensor_count(&p->tensor[best])) best = in[i];
    return best;
}

/* f32 where any operand is, else that of the operands. */
static enum sy_dtype result_dtype(const struct syi_program *p, int n, const int *in, enum sy_dtype dtype)
{
    for (int i = 0; i < n; i++)
        if (p->tensor[in[i]].dtype == SY_F32) return SY_F32;
    return dtype;
}

static int record(struct syi_program *p, struct sy_map_instr instr, int n_in, const int *in, int rng, int out)
{
    if (p->status) return -1;
    union one one;
    memset(&one, 0, sizeof one);
    one.attr.n_instr = 1;
    one.attr.rng = (uint8_t)(rng >= 0 ? rng : 255);
    one.attr.out_register[0] = (uint8_t)n_in;
    memcpy(one.bytes + sizeof one.attr, &instr, sizeof instr);
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0) return syi_program_fail(p, SY_EINVAL, "map: operand %d is missing", i);
    if (out < 0) {
        int n = n_in - (rng >= 0), like = largest(p, n, in);
        out = syi_as(p, syi_temp_like(p, like), result_dtype(p, n, in, p->tensor[like].dtype));
    }
    if (out < 0) return -1;
    return syi_op_add(p, SY_OP_MAP, n_in, in, 1, &out, &one, sizeof one.bytes) ? -1 : out;
}

int syi_map1(struct syi_program *p, enum sy_map_op op, int a, double s)
{
    struct sy_map_instr instr = {.op = (uint8_t)op, .s = (float)s};
    return record(p, instr, 1, &a, -1, -1);
}

int syi_cast(struct syi_program *p, int x, enum sy_dtype dtype)
{
    if (p->status || x < 0 || p->tensor[x].dtype == dtype) return x;
    int there = p->tensor[x].cast - 1;
    if (there >= 0 && p->tensor[there].kind == SYI_TEMP && p->tensor[there].dtype == dtype) return there;
    struct sy_map_instr instr = {.op = SY_MAP_COPY};
    int cast = record(p, instr, 1, &x, -1, syi_as(p, syi_temp_like(p, x), dtype));
    if (cast >= 0) p->tensor[x].cast = 1 + cast;
    return cast;
}

int syi_map2(struct syi_program *p, enum sy_map_op op, int a, int b)
{
    struct sy_map_instr instr = {.op = (uint8_t)op, .a = 0, .b = 1};
    return record(p, instr, 2, (int[]){a, b}, -1, -1);
}

int syi_map3(struct syi_program *p, enum sy_map_op op, int a, int b, int c)
{
    struct sy_map_instr instr = {.op = (uint8_t)op, .a = 0, .b = 1, .c = 2};
    return record(p, instr, 3, (int[]){a, b, c}, -1, -1);
}

int syi_dropout(struct syi_program *p, int x, int rng, int site, double rate)
{
    if (rate <= 0) return x;
    struct sy_map_instr instr = {.op = SY_MAP_DROPOUT, .s = (float)rate, .site = (uint32_t)site};
    return record(p, instr, 2, (int[]){x, rng}, 1, -1);
}

int syi_jitter(struct syi_program *p, int x, int rng, int site, double amount)
{
    if (amount <= 0) return x;
    struct sy_map_instr instr = {.op = SY_MAP_JITTER, .s = (float)amount, .site = (uint32_t)site};
    return record(p, instr, 2, (int[]){x, rng}, 1, -1);
}

int syi_activation(struct syi_program *p, int x, enum sy_activation activation)
{
    struct sy_map_instr instr = {.op = SY_MAP_ACTIVATION, .c = (uint8_t)activation};
    return record(p, instr, 1, &x, -1, -1);
}

int syi_activation_grad(struct syi_program *p, int x, int dy, enum sy_activation activation)
{
    struct sy_map_instr instr = {.op = SY_MAP_ACTIVATION_GRAD, .a = 0, .b = 1, .c = (uint8_t)activation};
    return record(p, instr, 2, (int[]){x, dy}, -1, -1);
}

int syi_constant_like(struct syi_program *p, double value, int like)
{
    struct sy_map_instr instr = {.op = SY_MAP_CONST, .s = (float)value};
    return record(p, instr, 0, NULL, -1, syi_temp_like(p, like));
}

int syi_fill_like(struct syi_program *p, int scalar, int like)
{
    struct sy_map_instr instr = {.op = SY_MAP_COPY};
    int out = syi_temp_like(p, like);
    if (out < 0 || scalar < 0) return -1;
    p->tensor[out].dtype = p->tensor[scalar].dtype;
    return record(p, instr, 1, &scalar, -1, out);
}

void syi_store(struct syi_program *p, int a, int to)
{
    struct sy_map_instr instr = {.op = SY_MAP_COPY};
    if (to < 0) {
        syi_program_fail(p, SY_EINVAL, "store: no destination");
        return;
    }
    record(p, instr, 1, &a, -1, to);
}

/* The gradient of an operand that is one value a column. */
int syi_column_sum(struct syi_program *p, int x, int like)
{
    if (!SYI_HAVE(p, x, like)) return -1;
    struct sy_attr_leaf attr = {syi_leaf_length(p, x, 0)};
    return SYI_EMIT(p, SY_OP_COLUMN_SUM, syi_temp_like(p, like), &attr, sizeof attr, x);
}

/* ---- check ---- */

static int check_instr(struct syi_check *c, const struct sy_attr_map *attr, int index)
{
    const struct sy_map_instr *instr = &attr->instr[index];
    int arguments = syi_map_arguments(instr->op), limit = c->op->n_in + index;
    const uint8_t registers[3] = {instr->a, instr->b, instr->c};
    if (arguments < 0) return syi_check_bad(c, "instruction %d is unknown (%d)", index, instr->op);
    for (int i = 0; i < arguments; i++)
        if (registers[i] >= limit || registers[i] == attr->rng)
            return syi_check_bad(c, "instruction %d reads register %d", index, registers[i]);
    if ((instr->op == SY_MAP_ACTIVATION || instr->op == SY_MAP_ACTIVATION_GRAD) && instr->c > SY_SILU)
        return syi_check_bad(c, "instruction %d: no activation %d", index, instr->c);
    if (instr->op == SY_MAP_DROPOUT && (attr->rng == 255 || !(instr->s >= 0 && instr->s < 1)))
        return syi_check_bad(c, "instruction %d: dropout of rate %g, rng input %d", index, instr->s,
                             attr->rng);
    if (instr->op == SY_MAP_JITTER &&
        (attr->rng == 255 || !(instr->s >= 0 && instr->s < 1) || syi_check_out(c, 0)->rank > 3))
        return syi_check_bad(c, "instruction %d: jitter of amount %g, rng input %d, rank %d", index, instr->s,
                             attr->rng, syi_check_out(c, 0)->rank);
    return SY_OK;
}

/* The forms of a map's operand: one element, the same rank where every extent is the output's or 1, [n] a
 * value a column, or the last dim dropped: a value a row. Next to rank 2 a row's value needs the 1: [n] must
 * not change its meaning when a rank's piece happens to be square. */
static int is_broadcast(const struct syi_tensor *t, const struct syi_tensor *shape)
{
    int last = shape->rank - 1;
    if (syi_tensor_count(t) == 1) return 1;
    if (t->rank == shape->rank) {
        for (int i = 0; i <= last; i++)
            if (t->dim[i] != shape->dim[i] && t->dim[i] != 1) return 0;
        return 1;
    }
    if (t->rank == 1) return t->dim[0] == shape->dim[last];
    return t->rank == last && !memcmp(t->dim, shape->dim, (size_t)last * sizeof t->dim[0]);
}

/* Operands of a map are f32 or bf16 as they come, or all f64. */
static int check_map_type(struct syi_check *c, const struct syi_tensor *t, int *dtype)
{
    int now = t->dtype == SY_BF16 ? SY_F32 : t->dtype;
    if (!syi_is_float(t->dtype))
        return syi_check_bad(c, "operand is %s, not floating point", syi_dtype_name(t->dtype));
    if (*dtype >= 0 && *dtype != now)
        return syi_check_bad(c, "operands are f64 and %s", syi_dtype_name(t->dtype));
    *dtype = now;
    return SY_OK;
}

static int same_dims(const struct syi_tensor *a, const struct syi_tensor *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof a->dim);
}

/* Inputs broadcast to the shape. */
static int check_map_inputs(struct syi_check *c, const struct sy_attr_map *attr,
                            const struct syi_tensor *shape, int *dtype)
{
    int status = SY_OK;
    for (int i = 0; !status && i < c->op->n_in; i++) {
        const struct syi_tensor *t = syi_check_in(c, i);
        if (i == attr->rng) {
            if (t->dtype != SY_I64 || syi_tensor_count(t) != 4)
                return syi_check_bad(c, "input %d is no rng state", i);
            continue;
        }
        if (!is_broadcast(t, shape))
            return syi_check_bad(c, "input %d neither has the whole shape nor broadcasts", i);
        status = check_map_type(c, t, dtype);
    }
    return status;
}

static int check_map_outputs(struct syi_check *c, const struct sy_attr_map *attr,
                             const struct syi_tensor *shape, int dtype)
{
    int status = SY_OK;
    for (int i = 0; !status && i < c->op->n_out; i++) {
        int reg = attr->out_register[i];
        if ((c->op->op == SY_OP_MAP || attr->stored >> i & 1) && !same_dims(syi_check_out(c, i), shape))
            return syi_check_bad(c, "output %d has not the shape of the map", i);
        if (reg >= c->op->n_in + attr->n_instr || reg == attr->rng)
            return syi_check_bad(c, "output %d stores register %d", i, reg);
        status = check_map_type(c, syi_check_out(c, i), &dtype);
    }
    return status;
}

/* The operands of a map whose values have that shape. */
static int check_over(struct syi_check *c, const struct syi_tensor *shape)
{
    const struct sy_attr_map *attr = syi_program_attr(c->program, c->op);
    int dtype = -1;
    if (attr->n_instr < 1 || attr->n_instr > SY_MAP_MAX_INSTR ||
        c->op->attr_bytes != sizeof *attr + attr->n_instr * sizeof attr->instr[0])
        return syi_check_bad(c, "%d instructions in %u bytes", attr->n_instr, c->op->attr_bytes);
    if (c->op->n_out < 1 || (attr->rng != 255 && attr->rng >= c->op->n_in))
        return syi_check_bad(c, "%d outputs, rng input %d", c->op->n_out, attr->rng);
    int status = check_map_inputs(c, attr, shape, &dtype);
    if (!status) status = check_map_outputs(c, attr, shape, dtype);
    for (int i = 0; !status && i < attr->n_instr; i++) status = check_instr(c, attr, i);
    return status;
}

static int check_map(struct syi_check *c)
{
    return check_over(c, syi_check_out(c, 0));
}

/* Blocks of output `out` as ops.h has them. */
static int check_blocks(struct syi_check *c, int out)
{
    const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, out);
    const struct sy_attr_map *attr = syi_program_attr(c->program, c->op);
    int stored = attr->stored >> out & 1;
    if (x->rank != y->rank || (x->dtype != SY_F32 && x->dtype != SY_BF16) || (y->dtype != SY_F32 && !stored))
        return syi_check_bad(c, "output %d has another rank than input 0, or is a sum that is not float32",
                             out);
    for (int i = 0; i < x->rank; i++) {
        int64_t leaf = x->dim[i] / y->dim[i], last = x->rank - 1;
        if (leaf * y->dim[i] != x->dim[i] || (i < last - 1 && leaf > 1) ||
            (i == last && leaf > SY_MAP_SUMS_COLUMNS))
            return syi_check_bad(c, "output %d: dim %d: %lld blocks of %lld elements", out, i,
                                 (long long)y->dim[i], (long long)x->dim[i]);
    }
    return SY_OK;
}

static int check_map_sums(struct syi_check *c)
{
    const struct sy_attr_map *attr = syi_program_attr(c->program, c->op);
    int status = attr->rng == 255 ? check_over(c, syi_check_in(c, 0)) : syi_check_bad(c, "random numbers");
    int64_t columns = 1; /* whole blocks of every output */
    for (int i = 0; !status && i < c->op->n_out; i++) {
        const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, i);
        if ((attr->squares >> i & 1) + (attr->maxima >> i & 1) + (attr->stored >> i & 1) > 1)
            return syi_check_bad(c, "output %d is of two kinds", i);
        status = check_blocks(c, i);
        if (!status) columns = syi_common_multiple(columns, x->dim[x->rank - 1] / y->dim[x->rank - 1]);
        if (columns > SY_MAP_SUMS_COLUMNS) status = syi_check_bad(c, "output %d: no common blocks", i);
    }
    return status;
}

/* ---- gradients ---- */

/* No number is less than itself, and neither is NaN, which times 0 would stay. */
int syi_grad_zero(struct syi_program *p, int like)
{
    return syi_map2(p, SY_MAP_LESS, like, like);
}

int syi_grad_fitting(struct syi_program *p, int gradient, int like)
{
    return gradient < 0 ? -1 : syi_cast(p, gradient, p->tensor[like].dtype);
}

/* Whether operand j of a map is broadcast. */
static int is_spread(const struct syi_program *p, const struct syi_op *op, int j)
{
    return syi_tensor_count(&p->tensor[op->in[j]]) != syi_tensor_count(&p->tensor[op->out[0]]);
}

/* x + bias, one value a column. */
static int column_bias(struct syi_program *p, const struct syi_op *op, const struct sy_map_instr *i)
{
    const struct syi_tensor *b = &p->tensor[op->in[1]], *y = &p->tensor[op->out[0]];
    return i->op == SY_MAP_ADD && b->rank == 1 && y->rank == 3 && b->dim[0] == y->dim[2];
}

/* Elementwise instructions a model uses; operands must have the shape of the result, or want no gradient, or
 * be the bias of columns. */
SYI_GRAD(map)
{
    const struct sy_attr_map *attr = syi_program_attr(p, op);
    struct sy_map_instr i;
    memcpy(&i, attr->instr, sizeof i);
    int dy = dout[0], a = op->in[i.a], rng = attr->rng == 255 ? -1 : op->in[attr->rng];
    for (int j = 0; j < op->n_in; j++)
        if (wants[j] && is_spread(p, op, j) && !(j == 1 && column_bias(p, op, &i))) {
            syi_program_fail(p, SY_EUNSUPPORTED, "map: a broadcast operand has no gradient");
            return;
        }
    switch (i.op) {
    case SY_MAP_COPY:
    case SY_MAP_ADDS: din[0] = dy; break;
    case SY_MAP_ADD:
        din[0] = dy;
        din[1] = wants[1] && is_spread(p, op, 1) ? syi_column_sum(p, dy, op->in[1]) : dy;
        break;
    case SY_MAP_SUB:
        din[0] = dy;
        if (wants[1]) din[1] = syi_map1(p, SY_MAP_NEG, dy, 0);
        break;
    case SY_MAP_MULS: din[0] = syi_map1(p, SY_MAP_MULS, dy, i.s); break;
    case SY_MAP_MUL:
        if (wants[0]) din[0] = syi_map2(p, SY_MAP_MUL, dy, op->in[1]);
        if (wants[1]) din[1] = syi_map2(p, SY_MAP_MUL, dy, a);
        break;
    case SY_MAP_DIV: /* by a constant scalar */
        if (wants[1]) syi_program_fail(p, SY_EUNSUPPORTED, "map: no gradient of a divisor");
        if (wants[0]) din[0] = syi_map2(p, SY_MAP_DIV, dy, op->in[1]);
        break;
    case SY_MAP_NEG: din[0] = syi_map1(p, SY_MAP_NEG, dy, 0); break;
    case SY_MAP_DROPOUT: din[0] = syi_dropout(p, dy, rng, (int)i.site, i.s); break;
    case SY_MAP_JITTER: din[0] = syi_jitter(p, dy, rng, (int)i.site, i.s); break;
    case SY_MAP_ACTIVATION: din[0] = syi_activation_grad(p, a, dy, i.c); break;
    default: syi_program_fail(p, SY_EUNSUPPORTED, "map: instruction %d has no gradient", i.op);
    }
}

/* ---- cost ---- */

static void cost_map(const struct sy_call *call, struct syi_cost *cost)
{
    cost->flops = ((const struct sy_attr_map *)call->attr)->n_instr * syi_operand_elements(&call->out[0]);
}

static void cost_map_sums(const struct sy_call *call, struct syi_cost *cost)
{
    const struct sy_attr_map *attr = call->attr;
    cost->flops = (attr->n_instr + call->n_out) * syi_operand_elements(&call->in[0]);
}

/* ---- text ---- */

static void put_instr(struct syi_text *text, const struct sy_map_instr *instr, int to)
{
    static const char *const activations[] = {"linear", "relu", "gelu", "silu"};
    const uint8_t registers[3] = {instr->a, instr->b, instr->c};
    if (instr->op >= SY_MAP_COUNT) {
        syi_text_printf(text, "r%d=?%d", to, instr->op);
        return;
    }
    syi_text_printf(text, "r%d=%s(", to, instructions[instr->op].name);
    for (int i = 0; i < instructions[instr->op].arguments; i++)
        syi_text_printf(text, "%sr%d", i ? "," : "", registers[i]);
    switch (instr->op) {
    case SY_MAP_CONST:
    case SY_MAP_ADDS:
    case SY_MAP_MULS: {
        char number[SYI_NUMBER_BYTES];
        syi_format_float(number, instr->s);
        syi_text_printf(text, "%s%s", instructions[instr->op].arguments ? "," : "", number);
        break;
    }
    case SY_MAP_DROPOUT: syi_text_printf(text, ",site %u,rate %g", instr->site, instr->s); break;
    case SY_MAP_JITTER: syi_text_printf(text, ",site %u,amount %g", instr->site, instr->s); break;
    case SY_MAP_ACTIVATION:
    case SY_MAP_ACTIVATION_GRAD:
        syi_text_printf(text, ",%s", instr->c < SYI_COUNT(activations) ? activations[instr->c] : "?");
        break;
    default: break;
    }
    syi_text_puts(text, ")");
}

static const char *output_kind(const struct syi_op *op, const struct sy_attr_map *attr, int output)
{
    if (op->op != SY_OP_MAP_SUMS || attr->stored >> output & 1) return "";
    return attr->squares >> output & 1 ? " sum of squares" : attr->maxima >> output & 1 ? " max" : " sum";
}

/* "{r2=mul(r0,r1); r3=adds(r2,1)} r3": registers below n_in are the inputs in order, after the brace stands
 * what each output stores, or what of it. */
static void put_map(struct syi_text *text, const struct syi_op *op, const void *bytes)
{
    const struct sy_attr_map *attr = bytes;
    if (op->attr_bytes < sizeof *attr) return;
    size_t n = (op->attr_bytes - sizeof *attr) / sizeof attr->instr[0];
    if (n > attr->n_instr) n = attr->n_instr;
    syi_text_puts(text, "  {");
    for (size_t i = 0; i < n; i++) {
        syi_text_puts(text, i ? "; " : "");
        put_instr(text, &attr->instr[i], (int)(op->n_in + i));
    }
    syi_text_puts(text, "}");
    for (int i = 0; i < op->n_out && i < SY_MAX_OUT; i++)
        syi_text_printf(text, " r%d%s", attr->out_register[i], output_kind(op, attr, i));
    if (attr->rng != 255) syi_text_printf(text, " rng=r%d", attr->rng);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_map = {
    .check = check_map, .grad = grad_map, .cost = cost_map, .explain = put_map};
const struct syi_op_rules syi_op_rules_map_sums = {
    .check = check_map_sums, .cost = cost_map_sums, .explain = put_map};
const struct syi_op_rules syi_op_rules_column_sum = {.leaf_dim = 0, .flops = 1};
