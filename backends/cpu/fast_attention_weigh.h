/* SPDX-License-Identifier: Apache-2.0 */
/* Four queries against a whole block of 64 keys, which all of them see: scores with their bias and maxima as they leave the
 * product, then weights and sums. The bits are those of products that are stored before. */
#ifndef SYCPU_FAST_ATTENTION_WEIGH_H
#define SYCPU_FAST_ATTENTION_WEIGH_H

#include "backends/cpu/fast_attention_four.h"

struct weighing {
    struct four scores;
    const float *bias; /* of query 0 and key 0, or NULL */
    const float *mask; /* pairs: dropout of the keys, or NULL */
    float *top, *sum;  /* [4] so far, then with this block */
    float *factor;     /* [4] what was summed so far is to be scaled by; NULL: nothing was */
    float *to;         /* [4, 64] scores, then weights */
};

#define SCORES_STORE(r, c) vf_store(g->to + r * SYCPU_KEY_BLOCK + c * SYCPU_LANES, s##r##c);
#define SCORES_TOP(r)      vf_max(vf_max(vf_max(s##r##0, s##r##1), s##r##2), s##r##3)

/* Not inlined: the loop needs the registers. */
static __attribute__((noinline)) void score_four(const struct weighing *g)
{
    const float *bias = g->bias;
    FOUR_PRODUCT(&g->scores)
    FOUR_SCORES(bias)
    EACH_OF_FOUR(SCORES_STORE)
    vf top = four_top(SCORES_TOP(0), SCORES_TOP(1), SCORES_TOP(2), SCORES_TOP(3));
    if (g->factor) {
        const vf old = four_load(g->top);
        top = vf_max(old, top);
        const vf factor = vf_exp(vf_sub(old, top));
        four_store(g->sum, vf_mul(four_load(g->sum), factor));
        four_store(g->factor, factor);
    }
    four_store(g->top, top);
}

#undef SCORES_STORE
#undef SCORES_TOP

static inline void weigh_four(const struct weighing *g)
{
    vf sum[4];
    for (int r = 0; r < 4; r++)
        sum[r] = seen_weights(g->to + r * SYCPU_KEY_BLOCK, g->mask, SYCPU_KEY_BLOCK, vf_set(g->top[r]));
    four_store(g->sum, vf_add(four_load(g->sum), four_sum(sum[0], sum[1], sum[2], sum[3])));
}

#endif
