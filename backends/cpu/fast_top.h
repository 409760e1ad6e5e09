/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of many numbers, sixteen at a time; NaN where one is NaN. */
#ifndef SYCPU_FAST_TOP_H
#define SYCPU_FAST_TOP_H

#include "backends/cpu/fast.h"

/* Of sixteen lines: the largest numbers, and NaN where there was one, else 0. */
struct fast_top {
    vf most, nan;
};

static inline void fast_top_take(struct fast_top *top, vf x)
{
    top->most = vf_max(x, top->most);
    top->nan = vf_select(vf_differs(x, x), vf_set(__builtin_nanf("")), top->nan);
}

/* The sum makes a zero +0. */
static inline vf fast_top_result(const struct fast_top *top)
{
    return vf_select(vf_differs(top->nan, top->nan), top->nan, vf_add(top->most, vf_set(0.0f)));
}

/* The largest lane; NaN where a lane is. */
static inline float fast_top_lane(const struct fast_top *top)
{
    float nan = vf_sum(top->nan);
    return nan != nan ? nan : vf_top(vf_add(top->most, vf_set(0.0f)));
}

static inline vf fast_magnitude(vf x)
{
    return vf_max(x, vf_sub(vf_set(0.0f), x)); /* NaN of NaN */
}

#endif
