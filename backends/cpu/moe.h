/* SPDX-License-Identifier: Apache-2.0 */
/* Index arithmetic of routing that the reference and the fast kernels share. A group is group_rows
 * consecutive rows of the batch; the expert buffer is [expert, group, slot, column]. */
#ifndef SYCPU_MOE_H
#define SYCPU_MOE_H

#include "backends/cpu/cpu.h"

/* Sizes of a dispatch or combine call. */
struct sycpu_moe {
    int64_t rows, length, choices;       /* of expert and slot: [b, t, k] */
    int64_t experts, groups, slots, dim; /* of the buffer: [e, g, c, d] */
    int64_t group_rows;                  /* rows of a group */
    const int32_t *expert, *slot;        /* [b, t, k]; slot -1: the choice has no place in the buffer */
};

static inline struct sycpu_moe sycpu_moe_sizes(const struct sy_call *call, const struct sy_tensor *buffer,
                                               const struct sy_tensor *expert, const struct sy_tensor *slot)
{
    const struct sy_attr_group *attr = call->attr;
    struct sycpu_moe moe = {expert->dim[0], expert->dim[1], expert->dim[2],   buffer->dim[0], buffer->dim[1],
                            buffer->dim[2], buffer->dim[3], attr->group_rows, expert->data,   slot->data};
    return moe;
}

/* Place of a choice (its index in [b, t, k]) of a row of the batch: a row of the buffer, or -1. */
static inline int64_t sycpu_moe_place(const struct sycpu_moe *moe, int64_t row, int64_t choice)
{
    if (moe->slot[choice] < 0) return -1;
    return (moe->expert[choice] * moe->groups + row / moe->group_rows) * moe->slots + moe->slot[choice];
}

/* Whether a token (its index in [b, t]) is real; mask: [b, t], or NULL: all are. */
static inline int sycpu_is_real(const sy_real *mask, int64_t token)
{
    return !mask || mask[token] != 0;
}

#endif
