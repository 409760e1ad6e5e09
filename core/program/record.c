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
