/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a program is sound: every operand exists, is written before it is read and fits the row of ops.def.
 * Runs after every stage, in linear time. Finds mistakes of passes and recorders, not of users: those are
 * refused where they enter. */
#include "config.h"

#include <string.h>

#include "program/program.h"

struct check {
    const struct syi_program *program;
    const struct syi_op *op; /* looked at now; NULL: the tensors */
    uint8_t *written;        /* [n_tensors] 1: an op before this one wrote it */
    char what[200];          /* the mistake */
};

static int bad(struct check *c, const char *format, ...) SYI_PRINTF(2, 3);

static int bad(struct check *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->what, sizeof c->what, format, arguments);
    va_end(arguments);
    return SY_EINTERNAL;
}

static const struct syi_tensor *input(const struct check *c, int i)
{
    return c->op->in[i] < 0 ? NULL : &c->program->tensor[c->op->in[i]];
}

static const struct syi_tensor *output(const struct check *c, int i)
{
    return c->op->out[i] < 0 ? NULL : &c->program->tensor[c->op->out[i]];
}

static int same_dims(const struct syi_tensor *a, const struct syi_tensor *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof a->dim);
}

/* ---- tensors ---- */

static int check_tensor(struct check *c, size_t index)
{
    const struct syi_tensor *t = &c->program->tensor[index];
    if (t->dtype >= SY_DTYPE_COUNT || t->rank < 1 || t->rank > SY_MAX_DIMS || t->kind > SYI_CARRY ||
        t->name >= c->program->n_names)
        return bad(c, "tensor %zu has dtype %d, rank %d, kind %d", index, t->dtype, t->rank, t->kind);
    if (t->kind != SYI_TEMP && !t->name) return bad(c, "tensor %zu is shared by name but has none", index);
    if (t->kind != SYI_TEMP && t->partial)
        return bad(c, "tensor %s holds terms of a sum", syi_program_name(c->program, t->name));
    for (int i = 0; i < SY_MAX_DIMS; i++)
        if (t->dim[i] < 1 || (i >= t->rank && t->dim[i] != 1) || t->axis[i] >= SYI_AXIS_COUNT)
            return bad(c, "tensor %zu: dim %d is %lld with axis %d", index, i, (long long)t->dim[i],
                       t->axis[i]);
    return SY_OK;
}

/* ---- order ---- */

static int reads_partials(int op)
{
    return op == SY_OP_ALL_REDUCE || op == SY_OP_REDUCE_SCATTER || op == SY_OP_SEND_PIECES ||
           op == SY_OP_GATHER_PIECES || op == SY_OP_JOIN;
}

static int check_reads(struct check *c)
{
    for (int i = 0; i < c->op->n_in; i++) {
        int tensor = c->op->in[i];
        if (tensor < -1 || tensor >= (int)c->program->n_tensors)
            return bad(c, "input %d is tensor %d", i, tensor);
        if (tensor < 0) continue;
        const struct syi_tensor *t = &c->program->tensor[tensor];
        if ((t->kind == SYI_TEMP || t->kind == SYI_OUTPUT) && !c->written[tensor])
            return bad(c, "input %d (t%d) is read before it is written", i, tensor);
        if (t->partial && !reads_partials(c->op->op))
            return bad(c, "input %d (t%d) holds terms of a sum over mesh axes %d", i, tensor, t->partial);
    }
    return SY_OK;
}

static int check_writes(struct check *c)
{
    for (int i = 0; i < c->op->n_out; i++) {
        int tensor = c->op->out[i];
        if (tensor < -1 || tensor >= (int)c->program->n_tensors)
            return bad(c, "output %d is tensor %d", i, tensor);
        if (tensor < 0) continue;
        int kind = c->program->tensor[tensor].kind;
        if (kind == SYI_INPUT) return bad(c, "output %d (t%d) is an input of the program", i, tensor);
        if (kind == SYI_TEMP && c->written[tensor])
            return bad(c, "output %d (t%d) is written twice", i, tensor);
        for (int j = 0; j < i; j++)
            if (c->op->out[j] == tensor) return bad(c, "outputs %d and %d are both t%d", j, i, tensor);
        c->written[tensor] = 1;
    }
    return SY_OK;
}

/* ---- the row of ops.def ---- */

/* Operands on one side of a row's labels, and a bit for each with '?'. */
static int count_operands(const char *side, unsigned *optional)
{
    int n = 0;
    *optional = 0;
    for (;; side++) {
        if (!*side || *side == '-') return n + 1;
        if (*side == ',') n++;
        if (*side == '?') *optional |= 1u << n;
    }
}

static int check_numbers(struct check *c, const char *labels)
{
    unsigned optional_in = 0, optional_out = 0;
    if (*labels) {
        int n_in = count_operands(labels, &optional_in);
        int n_out = count_operands(strstr(labels, "->") + 2, &optional_out);
        if (c->op->n_in != n_in || c->op->n_out != n_out)
            return bad(c, "%d inputs and %d outputs, not %d and %d", c->op->n_in, c->op->n_out, n_in, n_out);
    }
    for (int i = 0; i < c->op->n_in; i++)
        if (c->op->in[i] < 0 && !(optional_in >> i & 1)) return bad(c, "input %d is missing", i);
    for (int i = 0; i < c->op->n_out; i++)
        if (c->op->out[i] < 0 && !(optional_out >> i & 1)) return bad(c, "output %d is missing", i);
    return SY_OK;
}

/* Attribute fields are 8 bytes each; a structure may have more than the row names (sy_attr_rms_norm). */
static int check_attr_bytes(struct check *c, const char *fields)
{
    size_t bytes = *fields ? 8 : 0;
    for (; *fields; fields++) bytes += *fields == ' ' ? 8 : 0;
    if ((size_t)c->op->attr + c->op->attr_bytes > c->program->n_attrs || c->op->attr % 8 ||
        c->op->attr_bytes < bytes)
        return bad(c, "attribute of %u bytes at %u", c->op->attr_bytes, c->op->attr);
    return SY_OK;
}

/* One type letter; operands marked f of one side share a dtype, as a kernel is chosen by one of each side. */
static int check_type(struct check *c, char type, const struct syi_tensor *t, int *float_dtype)
{
    if (!t) return SY_OK;
    if (type == 'i' && t->dtype != SY_I32) return bad(c, "operand is %s, not i32", syi_dtype_name(t->dtype));
    if (type == 'l' && t->dtype != SY_I64) return bad(c, "operand is %s, not i64", syi_dtype_name(t->dtype));
    if (type == 's' && t->dtype != SY_F32 && t->dtype != SY_F64)
        return bad(c, "operand is %s, not f32", syi_dtype_name(t->dtype));
    if (type != 'f') return SY_OK;
    if (!syi_is_float(t->dtype)) return bad(c, "operand is %s, not floating point", syi_dtype_name(t->dtype));
    if (*float_dtype >= 0 && *float_dtype != t->dtype)
        return bad(c, "operands are %s and %s", syi_dtype_name(*float_dtype), syi_dtype_name(t->dtype));
    *float_dtype = t->dtype;
    return SY_OK;
}

static int check_types(struct check *c, const char *types)
{
    int status = SY_OK, in_dtype = -1, out_dtype = -1;
    if (!*types) return SY_OK;
    for (int i = 0; !status && i < c->op->n_in; i++) status = check_type(c, types[i], input(c, i), &in_dtype);
    for (int i = 0; !status && i < c->op->n_out; i++)
        status = check_type(c, types[c->op->n_in + i], output(c, i), &out_dtype);
    return status;
}

/* Extents by letter; the batch letter by axis too, since it stands for rows and for groups of rows. */
struct extents {
    int64_t of[26 + SYI_AXIS_COUNT]; /* 0: not seen */
};

static int tie(struct check *c, struct extents *extents, int out, int index, int tied)
{
    const struct syi_tensor *t = out ? output(c, index) : input(c, index);
    char letters[SY_MAX_DIMS + 1];
    if (!t) return SY_OK;
    if (!syi_op_letters(c->op->op, out, index, t->rank, letters) || strlen(letters) != t->rank)
        return bad(c, "%s %d has rank %d", out ? "output" : "input", index, t->rank);
    for (int i = 0; tied && i < t->rank; i++) {
        int64_t *extent = &extents->of[letters[i] == 'b' ? 26 + t->axis[i] : letters[i] - 'a'];
        if (*extent && *extent != t->dim[i])
            return bad(c, "%s %d: dim %c is %lld, elsewhere %lld", out ? "output" : "input", index,
                       letters[i], (long long)t->dim[i], (long long)*extent);
        *extent = t->dim[i];
    }
    return SY_OK;
}

static int check_extents(struct check *c, struct extents *extents)
{
    int status = SY_OK, tied = !syi_op_has_flag(c->op->op, 'N');
    for (int i = 0; !status && i < c->op->n_in; i++) status = tie(c, extents, 0, i, tied);
    for (int i = 0; !status && i < c->op->n_out; i++) status = tie(c, extents, 1, i, tied);
    return status;
}

/* ---- attributes ---- */

/* Where the leaf of an op stands in its attribute and which dim of input 0 it divides. */
static const struct leaf_place {
    uint16_t op;
    uint8_t field, dim;
} leaf_places[] = {
    {SY_OP_EMBED_GRAD, 0, 0},        {SY_OP_MATMUL, 0, 2},         {SY_OP_MATMUL_NT, 0, 2},
    {SY_OP_MATMUL_TN, 0, 0},         {SY_OP_GROUPED_MATMUL, 0, 3}, {SY_OP_GROUPED_MATMUL_NT, 0, 3},
    {SY_OP_GROUPED_MATMUL_TN, 0, 1}, {SY_OP_RMS_NORM_GRAD, 1, 0},  {SY_OP_ATTENTION_GRAD, 8, 0},
    {SY_OP_COLUMN_SUM, 0, 0},        {SY_OP_RAGGED_MATMUL, 0, 3},
};

static int check_leaf(struct check *c, const struct leaf_place *place)
{
    if (c->op->attr_bytes < 8u * (place->field + 1u)) return bad(c, "attribute has no leaf");
    int64_t leaf, extent = input(c, 0)->dim[place->dim];
    memcpy(&leaf, (const char *)syi_program_attr(c->program, c->op) + 8 * place->field, sizeof leaf);
    if (leaf < 1 || extent % leaf)
        return bad(c, "leaf %lld does not divide %lld elements", (long long)leaf, (long long)extent);
    int64_t leaves = extent / leaf;
    if (leaves & (leaves - 1)) return bad(c, "%lld leaves, not a power of two", (long long)leaves);
    return SY_OK;
}

/* Rows of a batch against groups of them, where the op has both. */
static int check_groups(struct check *c, const struct extents *extents, int64_t group_rows)
{
    int64_t rows = extents->of[26 + SYI_AXIS_BATCH], groups = extents->of[26 + SYI_AXIS_GROUP];
    int64_t buffer_groups = extents->of[26 + SYI_AXIS_EXPERT_GROUP];
    if (!rows) return group_rows == 1 ? SY_OK : bad(c, "groups of %lld rows", (long long)group_rows);
    if (group_rows < 1) return bad(c, "groups of %lld rows", (long long)group_rows);
    if (!groups) groups = buffer_groups;
    if ((rows && groups && groups * group_rows != rows) || (buffer_groups && groups != buffer_groups))
        return bad(c, "%lld or %lld groups of %lld rows in %lld rows", (long long)groups,
                   (long long)buffer_groups, (long long)group_rows, (long long)rows);
    return SY_OK;
}

static int check_glu(struct check *c, const struct syi_tensor *packed, const struct syi_tensor *gated)
{
    const struct sy_attr_glu *attr = syi_program_attr(c->program, c->op);
    int last = packed->rank - 1;
    if (packed->rank != gated->rank || packed->dim[last] != 2 * gated->dim[last] || attr->width < 1 ||
        gated->dim[last] % attr->width)
        return bad(c, "%lld packed columns for %lld in blocks of %lld", (long long)packed->dim[last],
                   (long long)gated->dim[last], (long long)attr->width);
    return attr->activation < SY_LINEAR || attr->activation > SY_SILU ? bad(c, "no such activation") : SY_OK;
}

/* columns: a tensor of one part; segments: input of the queries' segments, the keys' are the next. */
static int check_attention(struct check *c, const struct syi_tensor *packed, const struct syi_tensor *columns,
                           int segments)
{
    const struct sy_attr_attention *attr = syi_program_attr(c->program, c->op);
    if (attr->head_dim < 1 || attr->width < 1 || attr->width % attr->head_dim ||
        columns->dim[2] % attr->width || packed->dim[2] % columns->dim[2])
        return bad(c, "%lld packed columns for %lld in blocks of %lld, heads of %lld",
                   (long long)packed->dim[2], (long long)columns->dim[2], (long long)attr->width,
                   (long long)attr->head_dim);
    if (input(c, segments) && !input(c, segments + 1)) return bad(c, "segments of queries, none of keys");
    return SY_OK;
}

static int check_top_k(struct check *c)
{
    const struct syi_tensor *x = input(c, 0), *best = output(c, 0);
    return best->dim[2] > x->dim[2]
               ? bad(c, "the best %lld of %lld elements", (long long)best->dim[2], (long long)x->dim[2])
               : SY_OK;
}

static int check_attributes(struct check *c, const struct extents *extents)
{
    const void *attr = syi_program_attr(c->program, c->op);
    switch (c->op->op) {
    case SY_OP_GLU: return check_glu(c, input(c, 0), output(c, 0));
    case SY_OP_GLU_GRAD: return check_glu(c, input(c, 0), input(c, 1));
    case SY_OP_ATTENTION: return check_attention(c, input(c, 0), output(c, 0), 7);
    case SY_OP_ATTENTION_GRAD: return check_attention(c, input(c, 0), input(c, 8), 9);
    case SY_OP_TOP_K: return check_top_k(c);
    case SY_OP_ROUTE: return check_groups(c, extents, ((const struct sy_attr_route *)attr)->group_rows);
    case SY_OP_ROUTE_EXPERTS:
        return check_groups(c, extents, ((const struct sy_attr_route_experts *)attr)->group_rows);
    case SY_OP_DISPATCH:
    case SY_OP_DISPATCH_GRAD:
    case SY_OP_COMBINE:
    case SY_OP_COMBINE_GRAD:
    case SY_OP_ROUTER_LOSS:
    case SY_OP_ROUTER_LOSS_GRAD:
    case SY_OP_RAGGED_PLACES:
        return check_groups(c, extents, ((const struct sy_attr_group *)attr)->group_rows);
    default: return SY_OK;
    }
}

/* ---- rows without labels ---- */

/* Registers an instruction reads. */
static int map_arguments(int op)
{
    static const int8_t arguments[SY_MAP_COUNT] = {
#define SY_MAP(id, NAME, name, arguments, help) [id] = arguments,
#include "switchyard/maps.def"
#undef SY_MAP
    };
    return op < SY_MAP_COUNT ? arguments[op] : -1;
}

static int check_instr(struct check *c, const struct sy_attr_map *attr, int index)
{
    const struct sy_map_instr *instr = &attr->instr[index];
    int arguments = map_arguments(instr->op), limit = c->op->n_in + index;
    const uint8_t registers[3] = {instr->a, instr->b, instr->c};
    if (arguments < 0) return bad(c, "instruction %d is unknown (%d)", index, instr->op);
    for (int i = 0; i < arguments; i++)
        if (registers[i] >= limit || registers[i] == attr->rng)
            return bad(c, "instruction %d reads register %d", index, registers[i]);
    if ((instr->op == SY_MAP_ACTIVATION || instr->op == SY_MAP_ACTIVATION_GRAD) && instr->c > SY_SILU)
        return bad(c, "instruction %d: no activation %d", index, instr->c);
    if (instr->op == SY_MAP_DROPOUT && (attr->rng == 255 || !(instr->s >= 0 && instr->s < 1)))
        return bad(c, "instruction %d: dropout of rate %g, rng input %d", index, instr->s, attr->rng);
    if (instr->op == SY_MAP_JITTER &&
        (attr->rng == 255 || !(instr->s >= 0 && instr->s < 1) || output(c, 0)->rank > 3))
        return bad(c, "instruction %d: jitter of amount %g, rng input %d, rank %d", index, instr->s,
                   attr->rng, output(c, 0)->rank);
    return SY_OK;
}

/* The forms of a map's operand: one element, the same rank where every extent is the output's or 1, [n] a
 * value a column, or the last dim dropped: a value a row. Beside rank 2 a row's value needs the 1: [n] must
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
static int check_map_type(struct check *c, const struct syi_tensor *t, int *dtype)
{
    int now = t->dtype == SY_BF16 ? SY_F32 : t->dtype;
    if (!syi_is_float(t->dtype)) return bad(c, "operand is %s, not floating point", syi_dtype_name(t->dtype));
    if (*dtype >= 0 && *dtype != now) return bad(c, "operands are f64 and %s", syi_dtype_name(t->dtype));
    *dtype = now;
    return SY_OK;
}

static int check_map_operands(struct check *c, const struct sy_attr_map *attr)
{
    int status = SY_OK, dtype = -1;
    for (int i = 0; !status && i < c->op->n_in; i++) {
        const struct syi_tensor *t = input(c, i);
        if (i == attr->rng) {
            if (t->dtype != SY_I64 || syi_tensor_count(t) != 4) return bad(c, "input %d is no rng state", i);
            continue;
        }
        if (!is_broadcast(t, output(c, 0)))
            return bad(c, "input %d neither has the output's shape nor broadcasts", i);
        status = check_map_type(c, t, &dtype);
    }
    for (int i = 0; !status && i < c->op->n_out; i++) {
        int reg = attr->out_register[i];
        if (!same_dims(output(c, i), output(c, 0)))
            return bad(c, "output %d has another shape than output 0", i);
        if (reg >= c->op->n_in + attr->n_instr || reg == attr->rng)
            return bad(c, "output %d stores register %d", i, reg);
        status = check_map_type(c, output(c, i), &dtype);
    }
    return status;
}

static int check_map(struct check *c)
{
    const struct sy_attr_map *attr = syi_program_attr(c->program, c->op);
    if (c->op->attr_bytes < sizeof *attr) return bad(c, "no instructions");
    if (attr->n_instr < 1 || attr->n_instr > SY_MAP_MAX_INSTR ||
        c->op->attr_bytes != sizeof *attr + attr->n_instr * sizeof attr->instr[0])
        return bad(c, "%d instructions in %u bytes", attr->n_instr, c->op->attr_bytes);
    if (c->op->n_out < 1 || (attr->rng != 255 && attr->rng >= c->op->n_in))
        return bad(c, "%d outputs, rng input %d", c->op->n_out, attr->rng);
    int status = check_map_operands(c, attr);
    for (int i = 0; !status && i < attr->n_instr; i++) status = check_instr(c, attr, i);
    return status;
}

static int check_pack(struct check *c, int n, const struct syi_tensor *packed)
{
    const struct sy_attr_pack *attr = syi_program_attr(c->program, c->op);
    int64_t total = 0, width = 0;
    int last = packed->rank - 1;
    if (n < 2 || n > 3 || (c->op->op == SY_OP_PACK ? c->op->n_out : c->op->n_in) != 1)
        return bad(c, "%d parts", n);
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *t = c->op->op == SY_OP_PACK ? input(c, i) : output(c, i);
        if (t->rank != packed->rank || !syi_is_float(t->dtype) || attr->width[i] < 1 ||
            t->dim[last] % attr->width[i] || memcmp(t->dim, packed->dim, (size_t)last * sizeof t->dim[0]))
            return bad(c, "part %d does not fit", i);
        total += t->dim[last];
        width += attr->width[i];
        if (t->dim[last] / attr->width[i] * width != total)
            return bad(c, "part %d has another number of blocks", i);
    }
    return total == packed->dim[last] ? SY_OK : bad(c, "parts have %lld columns", (long long)total);
}

static int check_block(struct check *c)
{
    const struct sy_attr_block *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = input(c, 0), *y = output(c, 0);
    if (x->rank != y->rank) return bad(c, "ranks %d and %d", x->rank, y->rank);
    for (int i = 0; i < SY_MAX_DIMS; i++)
        if (attr->leaf[i] < 1 || x->dim[i] != y->dim[i] * attr->leaf[i])
            return bad(c, "dim %d: %lld blocks of %lld in %lld", i, (long long)y->dim[i],
                       (long long)attr->leaf[i], (long long)x->dim[i]);
    return SY_OK;
}

/* Collectives keep shapes but for the dims they cut or join; values keep their type. */
static int check_collective(struct check *c)
{
    const struct sy_attr_collective *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = input(c, 0), *y = output(c, 0);
    int64_t dims[2] = {-1, -1}, mesh = attr->a; /* dims that change */
    if (c->op->op != SY_OP_ALL_REDUCE) dims[0] = attr->a, mesh = attr->b;
    if (c->op->op == SY_OP_ALL_TO_ALL) dims[1] = attr->b, mesh = attr->c;
    if (mesh < 1 || mesh > 7 || dims[0] >= x->rank || dims[1] >= x->rank)
        return bad(c, "dims %lld and %lld over mesh axes %lld", (long long)dims[0], (long long)dims[1],
                   (long long)mesh);
    if (x->dtype != y->dtype || x->rank != y->rank) return bad(c, "operands of different type or rank");
    for (int i = 0; i < x->rank; i++) {
        int64_t more = x->dim[i] > y->dim[i] ? x->dim[i] : y->dim[i], less = x->dim[i] + y->dim[i] - more;
        if (i != dims[0] && i != dims[1] ? more != less : more % less != 0)
            return bad(c, "dim %d goes from %lld to %lld", i, (long long)x->dim[i], (long long)y->dim[i]);
    }
    return c->op->op == SY_OP_ALL_TO_ALL && syi_tensor_count(x) != syi_tensor_count(y)
               ? bad(c, "elements are lost")
               : SY_OK;
}

static int check_axis(struct check *c)
{
    const struct sy_attr_axis *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = input(c, 0), *y = output(c, 0);
    if (attr->dim < 0 || attr->dim >= x->rank || x->rank != y->rank) return bad(c, "no such axis");
    for (int i = 0; i < x->rank; i++)
        if (y->dim[i] != (i == attr->dim ? 1 : x->dim[i])) return bad(c, "dim %d does not fit", i);
    return SY_OK;
}

static int check_regroup(struct check *c, const struct syi_tensor *plain, const struct syi_tensor *grouped)
{
    const struct sy_attr_regroup *attr = syi_program_attr(c->program, c->op);
    if (plain->rank != grouped->rank || plain->rank < 2 || attr->rows < plain->dim[0] ||
        attr->length < plain->dim[1] || grouped->dim[0] * grouped->dim[1] != attr->rows * attr->length ||
        plain->dim[2] != grouped->dim[2])
        return bad(c, "groups do not fit %lld x %lld positions", (long long)attr->rows,
                   (long long)attr->length);
    return SY_OK;
}

/* Operands of one type, each cut in equal pieces along its dim, within the rows of the joined tensor. */
static int check_join(struct check *c)
{
    const struct sy_attr_join *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *y = output(c, 0);
    int64_t elements = 0;
    if (c->op->n_out != 1 || y->rank != 2) return bad(c, "the output is not pieces by elements");
    for (int i = 0; i < c->op->n_in; i++) {
        const struct syi_tensor *x = input(c, i);
        int64_t dim = attr->dims >> 4 * i & 15;
        if (x->dtype != y->dtype || dim >= x->rank || x->dim[dim] % y->dim[0])
            return bad(c, "operand %d does not fit %lld pieces along dim %lld", i, (long long)y->dim[0],
                       (long long)dim);
        elements += syi_tensor_count(x) / y->dim[0];
    }
    return elements > y->dim[1]
               ? bad(c, "%lld elements in a piece of %lld", (long long)elements, (long long)y->dim[1])
               : SY_OK;
}

static int check_part(struct check *c)
{
    const struct sy_attr_part *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = input(c, 0), *y = output(c, 0);
    if (x->rank != 2 || x->dtype != y->dtype || attr->dim < 0 || attr->dim >= y->rank ||
        y->dim[attr->dim] % x->dim[0] || attr->at < 0 ||
        attr->at + syi_tensor_count(y) / x->dim[0] > x->dim[1])
        return bad(c, "no part at %lld of %lld x %lld", (long long)attr->at, (long long)x->dim[0],
                   (long long)x->dim[1]);
    return SY_OK;
}

static int check_unlabelled(struct check *c)
{
    int op = c->op->op, n_in = c->op->n_in, n_out = c->op->n_out;
    if (op == SY_OP_MAP) return check_map(c);
    if (n_in < 1 || (n_out < 1 && op != SY_OP_WAIT)) return bad(c, "%d inputs and %d outputs", n_in, n_out);
    if (op == SY_OP_PACK) return check_pack(c, n_in, output(c, 0));
    if (op == SY_OP_UNPACK) return check_pack(c, n_out, input(c, 0));
    if (op == SY_OP_JOIN) return check_join(c);
    if (n_in != 1 || n_out > 1) return bad(c, "%d inputs and %d outputs", n_in, n_out);
    switch (op) {
    case SY_OP_BLOCK_SUM:
    case SY_OP_BLOCK_SUMSQ: return check_block(c);
    case SY_OP_TREE_AXIS: return check_axis(c);
    case SY_OP_REGROUP: return check_regroup(c, input(c, 0), output(c, 0));
    case SY_OP_UNGROUP: return check_regroup(c, output(c, 0), input(c, 0));
    case SY_OP_PART: return check_part(c);
    case SY_OP_TREE_SUM:
        return syi_tensor_count(output(c, 0)) == 1 ? SY_OK : bad(c, "the output has many elements");
    case SY_OP_ALL_GATHER:
    case SY_OP_ALL_TO_ALL:
    case SY_OP_ALL_REDUCE:
    case SY_OP_REDUCE_SCATTER:
    case SY_OP_SLICE:
        return c->op->attr_bytes < sizeof(struct sy_attr_collective) ? bad(c, "no attribute")
                                                                     : check_collective(c);
    default: return SY_OK;
    }
}

/* ---- the walk ---- */

static int check_op(struct check *c)
{
    if (c->op->op >= SY_OP_COUNT) return bad(c, "there is no op %d", c->op->op);
    if (c->op->n_in > SY_MAX_IN || c->op->n_out > SY_MAX_OUT)
        return bad(c, "%d inputs and %d outputs", c->op->n_in, c->op->n_out);
    const struct syi_op_info *info = syi_op_info(c->op->op);
    struct extents extents = {{0}};
    int status = check_reads(c);
    if (!status) status = check_writes(c);
    if (!status) status = check_numbers(c, info->labels);
    if (!status) status = check_attr_bytes(c, info->attributes);
    if (!status && !*info->labels) status = check_unlabelled(c);
    if (!status) status = check_types(c, info->types);
    if (status || !*info->labels) return status;
    status = check_extents(c, &extents);
    for (size_t i = 0; !status && i < SYI_COUNT(leaf_places); i++)
        if (leaf_places[i].op == c->op->op) status = check_leaf(c, &leaf_places[i]);
    return status ? status : check_attributes(c, &extents);
}

static int report(const struct check *c, const char *stage, size_t index, struct sy_error *err)
{
    const struct syi_program *p = c->program;
    if (!c->op) return syi_error(err, SY_EINTERNAL, "after %s: program %s: %s", stage, p->title, c->what);
    const char *name = c->op->op < SY_OP_COUNT ? syi_op_info(c->op->op)->name : "?";
    return syi_error(err, SY_EINTERNAL, "after %s: program %s: op %zu %s (%s, %s:%u): %s", stage, p->title,
                     index, name, syi_program_name(p, c->op->layer), syi_program_name(p, c->op->file),
                     c->op->line, c->what);
}

int syi_program_check(const struct syi_program *program, const char *stage, struct sy_error *err)
{
    struct check c = {.program = program};
    int status = syi_program_status(program, err);
    if (status) return status;
    c.written = syi_alloc(program->n_tensors + 1, err);
    if (!c.written) return SY_ENOMEM;
    size_t index = 0;
    for (size_t i = 0; !status && i < program->n_tensors; i++) status = check_tensor(&c, i);
    for (; !status && index < program->n_ops; index++) {
        c.op = &program->op[index];
        status = check_op(&c);
    }
    if (status) status = report(&c, stage, index - 1, err);
    syi_free(c.written);
    return status;
}
