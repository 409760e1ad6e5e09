/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar part of the cross entropy, shared by the reference, the fast kernels and those of CUDA
 * (doc/numerics.md, xent). */
#ifndef SYCPU_XENT_H
#define SYCPU_XENT_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "base/inline.h"

struct xent_constants {
    sy_real on, off; /* what the target's column and the others are compared with */
    sy_real entropy; /* K: of the smoothed target */
    int smooth;      /* 0: label_smoothing is 0 */
};

static inline struct xent_constants xent_constants(const struct sy_attr_xent *attr, int64_t V)
{
    double on = 1 - attr->label_smoothing, off = V > 1 ? attr->label_smoothing / (double)(V - 1) : 0;
    double entropy = -((on > 0 ? on * log(on) : 0) + (double)(V - 1) * off * log(off + 1e-20));
    struct xent_constants k = {(sy_real)on, (sy_real)off, (sy_real)entropy, attr->label_smoothing != 0};
    return k;
}

/* Loss of one row before the z-loss; x_t: logit of the target, sum: row sum of the logits. */
SYI_INLINE sy_real xent_loss(const struct xent_constants *k, sy_real lse, sy_real x_t, sy_real sum)
{
    if (!k->smooth) return lse - x_t;
    return (lse - ((k->on - k->off) * x_t + k->off * sum)) - k->entropy;
}

#endif
