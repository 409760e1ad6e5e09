/* SPDX-License-Identifier: Apache-2.0 */
/* What the families of ops share: the steps of a record function and of a gradient. Only the files of this
 * folder and record.c include it. */
#ifndef SYI_OPS_H
#define SYI_OPS_H

#include <string.h>

#include "program/op_rules.h"
#include "program/record.h"

/* ---- recording (record.c) ---- */

/* Fails the recording and returns -1. */
#define SYI_BAD(p, ...) syi_program_fail(p, SY_EINVAL, __VA_ARGS__)
/* Whether all n operands exist; if not, the recording has failed already or fails now. */
int syi_have(struct syi_program *p, int n, const int *tensor);
#define SYI_HAVE(p, ...) syi_have(p, (int)SYI_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__})
/* Adds an op with one output and returns that; -1 on failure, or where out is -1. */
int syi_emit(struct syi_program *p, enum sy_op op, int n_in, const int *in, int out, const void *attr,
             size_t bytes);
#define SYI_EMIT(p, op, out, attr, bytes, ...)                                                               \
    syi_emit(p, op, (int)SYI_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__}, out, attr, bytes)
/* Length of a leaf along dim `dim`: what is not split by any rule is one leaf. */
int64_t syi_leaf_length(struct syi_program *p, int tensor, int dim);

static inline struct syi_tensor *syi_tensor_of(struct syi_program *p, int tensor)
{
    return &p->tensor[tensor];
}

/* What products and norms of a dtype are added up in. */
static inline enum sy_dtype syi_sum_dtype(enum sy_dtype dtype)
{
    return dtype == SY_BF16 ? SY_F32 : dtype;
}

/* ---- gradients (map.c) ---- */

#define SYI_GRAD(name)                                                                                       \
    static void grad_##name(struct syi_program *p, const struct syi_op *op, const int *dout,                 \
                            const uint8_t *wants, int *din)
/* The attribute of the op, copied: recording may move the array it is in. */
#define SYI_ATTR_COPY(p, op, type)                                                                           \
    struct type attr;                                                                                        \
    memcpy(&attr, syi_program_attr(p, op), sizeof attr)
/* The gradient of an output that takes no part, where another one does. */
int syi_grad_zero(struct syi_program *p, int like);
/* A gradient in the dtype of the tensor next to it in a product or a kernel; -1 stays -1. */
int syi_grad_fitting(struct syi_program *p, int gradient, int like);

#endif
