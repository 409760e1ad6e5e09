/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that record functions of all families (ops/) are made of. */
#include "config.h"

#include <string.h>

#include "program/ops/ops.h"

int syi_have(struct syi_program *p, int n, const int *tensor)
{
    if (p->status) return 0;
    for (int i = 0; i < n; i++)
        if (tensor[i] < 0 || (size_t)tensor[i] >= p->n_tensors) {
            SYI_BAD(p, "operand %d is missing", i);
            return 0;
        }
    return 1;
}

int syi_emit(struct syi_program *p, enum sy_op op, int n_in, const int *in, int out, const void *attr,
             size_t bytes)
{
    if (out < 0) return -1;
    return syi_op_add(p, (int)op, n_in, in, 1, &out, attr, bytes) ? -1 : out;
}

/* ---- an op by its row ---- */

/* What is recorded. */
struct record {
    struct syi_program *p;
    enum sy_op op;
    int n_in;
    const int *in;
};

/* The first input with a dim of that letter, and which dim it is; NULL: none has it. */
static const struct syi_tensor *find_letter(const struct record *r, char letter, int *dim)
{
    char letters[SY_MAX_DIMS + 1];
    for (int i = 0; i < r->n_in; i++) {
        if (r->in[i] < 0) continue;
        const struct syi_tensor *t = syi_tensor_of(r->p, r->in[i]);
        const char *at = syi_op_letters(r->op, 0, i, t->rank, letters) ? strchr(letters, letter) : NULL;
        *dim = at ? (int)(at - letters) : 0;
        if (at && *dim < t->rank) return t;
    }
    return NULL;
}

/* The dtype that a mark of the row says; the sticky error where it says none. */
static enum sy_dtype marked_dtype(const struct record *r, char mark)
{
    const char *types = syi_op_info(r->op)->types;
    if (mark == 'i') return SY_I32;
    if (mark == 'l') return SY_I64;
    for (int i = 0; i < r->n_in; i++)
        if (types[i] == mark && r->in[i] >= 0) return syi_tensor_of(r->p, r->in[i])->dtype;
    SYI_BAD(r->p, "%s: no input has the type of an output", syi_op_info(r->op)->name);
    return SY_F32;
}

static int output_of_row(const struct record *r, int index)
{
    char letters[SY_MAX_DIMS + 1];
    int64_t dim[SY_MAX_DIMS] = {0};
    uint8_t axis[SY_MAX_DIMS] = {0};
    const char *name = syi_op_info(r->op)->name;
    if (!syi_op_letters(r->op, 1, index, syi_tensor_of(r->p, r->in[0])->rank, letters))
        return SYI_BAD(r->p, "%s: its row has no output %d", name, index);
    for (int i = 0, from = 0; letters[i]; i++) {
        const struct syi_tensor *t = find_letter(r, letters[i], &from);
        if (!t && letters[i] != 'z') return SYI_BAD(r->p, "%s: no input says what %c is", name, letters[i]);
        dim[i] = t ? t->dim[from] : 1;
        axis[i] = t ? t->axis[from] : SYI_AXIS_NONE;
    }
    enum sy_dtype dtype = marked_dtype(r, syi_op_info(r->op)->types[r->n_in + index]);
    return syi_temp(r->p, dtype, (int)strlen(letters), dim, axis);
}

int syi_record(struct syi_program *p, enum sy_op op, const void *attr, int n_in, const int *in, int n_out,
               int *out)
{
    const struct syi_op_info *info = syi_op_info(op);
    const struct record r = {p, op, n_in, in};
    unsigned optional = 0, left_out = 0;
    int made[SY_MAX_OUT] = {-1};
    for (int i = 0; out && i < n_out; i++) out[i] = -1;
    if (!*info->labels || syi_op_operands(op, 0, &optional) != n_in ||
        syi_op_operands(op, 1, &left_out) != n_out || !attr != !info->attr_bytes)
        return SYI_BAD(p, "%s: not recorded as its row says", info->name);
    for (int i = 0; i < n_in; i++)
        if ((in[i] >= 0 || !(optional >> i & 1)) && !SYI_HAVE(p, in[i])) return -1;
    for (int i = 0; i < n_out; i++)
        if ((made[i] = output_of_row(&r, i)) < 0) return -1;
    if (syi_op_add(p, (int)op, n_in, in, n_out, made, attr, info->attr_bytes)) return -1;
    if (out) memcpy(out, made, (size_t)n_out * sizeof *out);
    return made[0];
}

int64_t syi_leaf_length(struct syi_program *p, int tensor, int dim)
{
    const struct syi_tensor *t = syi_tensor_of(p, tensor);
    int axis = t->axis[dim];
    int64_t count = axis == SYI_AXIS_EMBED ? 1 : p->leaf_count[axis];
    if (t->dim[dim] % count) {
        SYI_BAD(p, "axis %s has %lld elements, which %lld leaves do not divide",
                syi_axis_name((enum syi_axis)axis), (long long)t->dim[dim], (long long)count);
        return 1;
    }
    return t->dim[dim] / count;
}

int syi_temp(struct syi_program *p, enum sy_dtype dtype, int rank, const int64_t *dim, const uint8_t *axis)
{
    return syi_tensor_add(p, NULL, SYI_TEMP, dtype, rank, dim, axis);
}

int syi_temp_like(struct syi_program *p, int like)
{
    if (!SYI_HAVE(p, like)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, like);
    return syi_temp(p, t.dtype, t.rank, t.dim, t.axis);
}

int syi_as(struct syi_program *p, int tensor, enum sy_dtype dtype)
{
    if (SYI_HAVE(p, tensor)) syi_tensor_of(p, tensor)->dtype = (uint8_t)dtype;
    return p->status ? -1 : tensor;
}

void syi_output(struct syi_program *p, int tensor, const char *name)
{
    if (!SYI_HAVE(p, tensor)) return;
    struct syi_tensor *t = syi_tensor_of(p, tensor);
    if (t->kind != SYI_TEMP) {
        SYI_BAD(p, "output %s: not a temporary", name);
        return;
    }
    t->kind = SYI_OUTPUT;
    syi_tensor_rename(p, tensor, name);
    memset(t->axis, SYI_AXIS_NONE, sizeof t->axis);
}
