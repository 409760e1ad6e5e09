/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference and the fast `normal` share: where an element is in the whole tensor. */
#ifndef SYCPU_NORMAL_H
#define SYCPU_NORMAL_H

#include "backends/cpu/cpu.h"
#include "base/normal.h"

/* The global index of row i of a tensor: all dims but the last, one after the other. */
static inline uint64_t normal_row(const struct sy_tensor *t, const struct sy_attr_normal *attr, int64_t i)
{
    uint64_t row = 0, stride = 1;
    for (int d = t->rank - 2; d >= 0; d--) {
        row += (uint64_t)(t->first[d] + i % t->dim[d]) * stride;
        i /= t->dim[d];
        if (d > 0) stride *= (uint64_t)attr->extent[d - 1];
    }
    return row;
}

#endif
