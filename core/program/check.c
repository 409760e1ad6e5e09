/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a program is sound: every operand exists, is written before it is read and fits the row of ops.def
 * and what its family knows (op_rules.h). Runs after every stage, in linear time. Finds mistakes of passes and
 * recorders, not of users: those are refused where they enter. */
#include "config.h"

#include <string.h>

#include "program/op_rules.h"

/* ---- tensors ---- */

static int check_tensor(struct syi_check *c, size_t index)
{
    const struct syi_tensor *t = &c->program->tensor[index];
    if (t->dtype >= SY_DTYPE_COUNT || t->rank < 1 || t->rank > SY_MAX_DIMS || t->kind > SYI_CARRY ||
        t->name >= c->program->n_names)
        return syi_check_bad(c, "tensor %zu has dtype %d, rank %d, kind %d", index, t->dtype, t->rank,
                             t->kind);
    if (t->kind != SYI_TEMP && !t->name)
        return syi_check_bad(c, "tensor %zu is shared by name but has none", index);
    if (t->kind != SYI_TEMP && t->partial)
        return syi_check_bad(c, "tensor %s holds terms of a sum", syi_program_name(c->program, t->name));
    for (int i = 0; i < SY_MAX_DIMS; i++)
        if (t->dim[i] < 1 || (i >= t->rank && t->dim[i] != 1) || t->axis[i] >= SYI_AXIS_COUNT)
            return syi_check_bad(c, "tensor %zu: dim %d is %lld with axis %d", index, i, (long long)t->dim[i],
                                 t->axis[i]);
    return SY_OK;
}

/* ---- order ---- */

static int is_tensor(const struct syi_check *c, int tensor)
{
    return tensor >= -1 && tensor < (int)c->program->n_tensors;
}

static int check_reads(struct syi_check *c)
{
    for (int i = 0; i < c->op->n_in; i++) {
        int tensor = c->op->in[i];
        if (!is_tensor(c, tensor)) return syi_check_bad(c, "input %d is tensor %d", i, tensor);
        if (tensor < 0) continue;
        const struct syi_tensor *t = &c->program->tensor[tensor];
        if ((t->kind == SYI_TEMP || t->kind == SYI_OUTPUT) && !c->written[tensor])
            return syi_check_bad(c, "input %d (t%d) is read before it is written", i, tensor);
        if (t->partial && !syi_op_has_flag(c->op->op, 'P'))
            return syi_check_bad(c, "input %d (t%d) holds terms of a sum over mesh axes %d", i, tensor,
                                 t->partial);
    }
    return SY_OK;
}

static int check_writes(struct syi_check *c)
{
    for (int i = 0; i < c->op->n_out; i++) {
        int tensor = c->op->out[i];
        if (!is_tensor(c, tensor)) return syi_check_bad(c, "output %d is tensor %d", i, tensor);
        if (tensor < 0) continue;
        int kind = c->program->tensor[tensor].kind;
        if (kind == SYI_INPUT)
            return syi_check_bad(c, "output %d (t%d) is an input of the program", i, tensor);
        if (kind == SYI_TEMP && c->written[tensor])
            return syi_check_bad(c, "output %d (t%d) is written twice", i, tensor);
        for (int j = 0; j < i; j++)
            if (c->op->out[j] == tensor)
                return syi_check_bad(c, "outputs %d and %d are both t%d", j, i, tensor);
        c->written[tensor] = 1;
    }
    return SY_OK;
}

/* ---- the row of ops.def ---- */

static int check_numbers(struct syi_check *c, const char *labels)
{
    unsigned optional_in = 0, optional_out = 0;
    if (*labels) {
        int n_in = syi_op_operands(c->op->op, 0, &optional_in);
        int n_out = syi_op_operands(c->op->op, 1, &optional_out);
        if (c->op->n_in != n_in || c->op->n_out != n_out)
            return syi_check_bad(c, "%d inputs and %d outputs, not %d and %d", c->op->n_in, c->op->n_out,
                                 n_in, n_out);
    }
    for (int i = 0; i < c->op->n_in; i++)
        if (c->op->in[i] < 0 && !(optional_in >> i & 1)) return syi_check_bad(c, "input %d is missing", i);
    for (int i = 0; i < c->op->n_out; i++)
        if (c->op->out[i] < 0 && !(optional_out >> i & 1)) return syi_check_bad(c, "output %d is missing", i);
    return SY_OK;
}

static int check_attr_bytes(struct syi_check *c, size_t bytes)
{
    if ((size_t)c->op->attr + c->op->attr_bytes > c->program->n_attrs || c->op->attr % 8 ||
        c->op->attr_bytes < bytes)
        return syi_check_bad(c, "attribute of %u bytes at %u", c->op->attr_bytes, c->op->attr);
    return SY_OK;
}

/* One type letter; operands marked f of one side share a dtype, as a kernel is chosen by one of each side. */
static int check_type(struct syi_check *c, char type, const struct syi_tensor *t, int *float_dtype)
{
    if (!t) return SY_OK;
    if (type == 'i' && t->dtype != SY_I32)
        return syi_check_bad(c, "operand is %s, not i32", syi_dtype_name(t->dtype));
    if (type == 'l' && t->dtype != SY_I64)
        return syi_check_bad(c, "operand is %s, not i64", syi_dtype_name(t->dtype));
    if (type == 'q' && t->dtype != SY_I8)
        return syi_check_bad(c, "operand is %s, not i8", syi_dtype_name(t->dtype));
    if (type == 'p' && t->dtype != SY_BF16)
        return syi_check_bad(c, "operand is %s, not bf16", syi_dtype_name(t->dtype));
    if (type == 's' && t->dtype != SY_F32 && t->dtype != SY_F64)
        return syi_check_bad(c, "operand is %s, not f32", syi_dtype_name(t->dtype));
    if (type != 'f') return SY_OK;
    if (!syi_is_float(t->dtype))
        return syi_check_bad(c, "operand is %s, not floating point", syi_dtype_name(t->dtype));
    if (*float_dtype >= 0 && *float_dtype != t->dtype)
        return syi_check_bad(c, "operands are %s and %s", syi_dtype_name((enum sy_dtype) * float_dtype),
                             syi_dtype_name(t->dtype));
    *float_dtype = t->dtype;
    return SY_OK;
}

static int check_types(struct syi_check *c, const char *types)
{
    int status = SY_OK, in_dtype = -1, out_dtype = -1;
    if (!*types) return SY_OK;
    for (int i = 0; !status && i < c->op->n_in; i++)
        status = check_type(c, types[i], syi_check_in(c, i), &in_dtype);
    for (int i = 0; !status && i < c->op->n_out; i++)
        status = check_type(c, types[c->op->n_in + i], syi_check_out(c, i), &out_dtype);
    return status;
}

static int tie(struct syi_check *c, int out, int index, int tied)
{
    const struct syi_tensor *t = out ? syi_check_out(c, index) : syi_check_in(c, index);
    char letters[SY_MAX_DIMS + 1];
    if (!t) return SY_OK;
    if (!syi_op_letters(c->op->op, out, index, t->rank, letters) || strlen(letters) != t->rank)
        return syi_check_bad(c, "%s %d has rank %d", out ? "output" : "input", index, t->rank);
    for (int i = 0; tied && i < t->rank; i++) {
        int64_t *extent = &c->extent[letters[i] == 'b' ? SYI_EXTENT_OF_AXIS + t->axis[i] : letters[i] - 'a'];
        if (*extent && *extent != t->dim[i])
            return syi_check_bad(c, "%s %d: dim %c is %lld, elsewhere %lld", out ? "output" : "input", index,
                                 letters[i], (long long)t->dim[i], (long long)*extent);
        *extent = t->dim[i];
    }
    return SY_OK;
}

static int check_extents(struct syi_check *c)
{
    int status = SY_OK, tied = !syi_op_has_flag(c->op->op, 'N');
    memset(c->extent, 0, sizeof c->extent);
    for (int i = 0; !status && i < c->op->n_in; i++) status = tie(c, 0, i, tied);
    for (int i = 0; !status && i < c->op->n_out; i++) status = tie(c, 1, i, tied);
    return status;
}

/* ---- attributes ---- */

/* The leaf of a sum divides its dimension into a power of two of leaves. */
static int check_leaf(struct syi_check *c, int dim)
{
    int64_t leaf = syi_op_field(c->program, c->op, "leaf", -1), extent = syi_check_in(c, 0)->dim[dim];
    if (leaf < 1 || extent % leaf)
        return syi_check_bad(c, "leaf %lld does not divide %lld elements", (long long)leaf,
                             (long long)extent);
    int64_t leaves = extent / leaf;
    if (leaves & (leaves - 1)) return syi_check_bad(c, "%lld leaves, not a power of two", (long long)leaves);
    return SY_OK;
}

/* ---- the walk ---- */

/* A row with labels: operands by letters, types, the leaf, then what the family knows. */
static int check_labelled(struct syi_check *c, const struct syi_op_info *info)
{
    const struct syi_op_rules *rules = syi_op_rules(c->op->op);
    int status = check_types(c, info->types);
    if (!status) status = check_extents(c);
    if (!status && syi_op_has_field(c->op->op, "leaf")) status = check_leaf(c, rules->leaf_dim);
    return status || !rules->check ? status : rules->check(c);
}

static int check_unlabelled(struct syi_check *c, const struct syi_op_info *info)
{
    const struct syi_op_rules *rules = syi_op_rules(c->op->op);
    int status = SY_OK, one_each = c->op->n_in == 1 && c->op->n_out == 1;
    if (!one_each && !syi_op_has_flag(c->op->op, 'V'))
        return syi_check_bad(c, "%d inputs and %d outputs", c->op->n_in, c->op->n_out);
    if (rules->check) status = rules->check(c);
    return status ? status : check_types(c, info->types);
}

static int check_op(struct syi_check *c)
{
    if (c->op->op >= SY_OP_COUNT) return syi_check_bad(c, "there is no op %d", c->op->op);
    if (c->op->n_in > SY_MAX_IN || c->op->n_out > SY_MAX_OUT)
        return syi_check_bad(c, "%d inputs and %d outputs", c->op->n_in, c->op->n_out);
    const struct syi_op_info *info = syi_op_info(c->op->op);
    int status = check_reads(c);
    if (!status) status = check_writes(c);
    if (!status) status = check_numbers(c, info->labels);
    if (!status) status = check_attr_bytes(c, info->attr_bytes);
    if (status) return status;
    return *info->labels ? check_labelled(c, info) : check_unlabelled(c, info);
}

static int report(const struct syi_check *c, const char *stage, size_t index, struct sy_error *err)
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
    struct syi_check c = {.program = program};
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
