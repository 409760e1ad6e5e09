/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of attention with operands of bf16, made of float32 ones, and how near results are to those of the reference
 * on the widened operands. */
#ifndef ATTENTION_HALF_H
#define ATTENTION_HALF_H

#include "attention_case.h"
#include "base/bf16.h"

/* Operands of the compute dtype: bit i of an op's inputs and of its outputs. */
static inline int is_half(int op, int output, int i)
{
    const int forward = op == SY_OP_ATTENTION;
    const int inputs = forward ? 0x3 : 0x3 | 1 << IN_OUT | 1 << IN_DOUT, outputs = forward ? 0x1 : 0x3;
    return (output ? outputs : inputs) >> i & 1;
}

static inline uint16_t *narrowed(const float *x, int64_t n)
{
    uint16_t *half = calloc((size_t)n + 1, sizeof *half);
    cr_assert_not_null(half);
    for (int64_t i = 0; i < n; i++) half[i] = syi_bf16_from_float(x[i]);
    return half;
}

static inline void widen(float *x, const uint16_t *half, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = syi_bf16_to_float(half[i]);
}

/* Operands are rounded where the dtype asks for it. */
static inline void round_inputs(struct kh *k)
{
    for (int i = 0; i < k->n_in; i++) {
        if (!k->in[i].rank || !is_half(k->op, 0, i)) continue;
        uint16_t *half = narrowed(k->in[i].data, sycpu_count(&k->in[i]));
        widen(k->in[i].data, half, sycpu_count(&k->in[i]));
        free(half);
    }
}

/* The same call with bf16 operands. */
static inline struct kh half_of(const struct kh *k)
{
    struct kh h = *k;
    memset(h.want, 0, sizeof h.want);
    for (int i = 0; i < k->n_in; i++) {
        const struct sy_tensor *t = &k->in[i];
        int half = t->rank && is_half(k->op, 0, i);
        h.in[i].data = NULL;
        if (!t->rank) continue;
        h.in[i].data = half ? (void *)narrowed(t->data, sycpu_count(t)) : malloc(kh_bytes(t) + 1);
        cr_assert_not_null(h.in[i].data);
        if (half)
            h.in[i].dtype = SY_BF16;
        else
            memcpy(h.in[i].data, t->data, kh_bytes(t));
    }
    for (int i = 0; i < k->n_out; i++)
        if (k->out[i].rank && is_half(k->op, 1, i)) h.out[i].dtype = SY_BF16;
    return h;
}

/* Weights and gradients of scores are rounded to bf16 on the way: errors are small against the largest
 * element. What is float32 and sums nothing rounded (lse) keeps the tolerance of the op table. */
static inline void compare_near(const struct kh *k, const struct kh *h, int i, const void *got,
                                const char *what)
{
    const struct sy_tensor *t = &k->out[i];
    const float *want = k->want[i];
    const int exact = k->op == SY_OP_ATTENTION && i == 1;
    double most = 0;
    for (int64_t j = 0; t->rank && j < sycpu_count(t); j++)
        most = fabs(want[j]) > most ? fabs(want[j]) : most;
    for (int64_t j = 0; t->rank && j < sycpu_count(t); j++) {
        double have = h->out[i].dtype == SY_BF16 ? syi_bf16_to_float(((const uint16_t *)got)[j])
                                                 : ((const float *)got)[j];
        cr_assert(fabs(have - want[j]) <= most * (exact ? 2e-5 : 0x1p-7),
                  "%s: output %d element %lld: %g, the reference has %g; the largest is %g", what, i,
                  (long long)j, have, want[j], most);
    }
}

#endif
