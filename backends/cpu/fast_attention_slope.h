/* SPDX-License-Identifier: Apache-2.0 */
/* Four queries against a whole block of 64 keys, which all of them see: weights and gradients of scores as they leave their
 * products. The bits are those of products that are stored before. */
#ifndef SYCPU_FAST_ATTENTION_SLOPE_H
#define SYCPU_FAST_ATTENTION_SLOPE_H

#include "backends/cpu/fast_attention_four.h"

struct slope {
    struct four scores, dp;
    const float *bias;       /* of query 0 and key 0, or NULL */
    const float *mask;       /* pairs: dropout of the keys, or NULL */
    const float *lse, *mean; /* [4] */
    float *p;                /* [4, 64] weights */
    float *ds;               /* [4, 64] gradients of scores and 16 zeros, rows ds_row apart */
    int64_t ds_row;
};

#define WEIGHTS(r, c)                                                                                        \
    vf_store(s->p + r * SYCPU_KEY_BLOCK + c * SYCPU_LANES, vf_exp(vf_sub(s##r##c, vf_set(s->lse[r]))));
static __attribute__((noinline)) void weigh_four(const struct slope *s)
{
    const float *bias = s->bias;
    FOUR_PRODUCT(&s->scores)
    FOUR_SCORES(bias)
    EACH_OF_FOUR(WEIGHTS)
}
#undef WEIGHTS

#define DROP(r, c) s##r##c = vf_drop(s##r##c, vf_load(s->mask + c * SYCPU_LANES));
#define GRADIENT(r, c)                                                                                       \
    vf_store(                                                                                                \
        s->ds + r * s->ds_row + c * SYCPU_LANES,                                                             \
        vf_mul(vf_load(s->p + r * SYCPU_KEY_BLOCK + c * SYCPU_LANES), vf_sub(s##r##c, vf_set(s->mean[r]))));
#define ZEROS(r) vf_store(s->ds + r * s->ds_row + SYCPU_KEY_BLOCK, vf_set(0.0f));
static __attribute__((noinline)) void slope_four(const struct slope *s)
{
    FOUR_PRODUCT(&s->dp)
    EACH_OF_FOUR(FOUR_PLUS_ZERO)
    if (s->mask) {
        EACH_OF_FOUR(DROP)
    }
    EACH_OF_FOUR(GRADIENT)
    ROWS_4(ZEROS)
}
#undef DROP
#undef GRADIENT
#undef ZEROS

#endif
