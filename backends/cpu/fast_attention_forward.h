/* SPDX-License-Identifier: Apache-2.0 */
/* An attention call as the heads of fast_attention.c and fast_attention_single.c see it. */
#ifndef SYCPU_FAST_ATTENTION_FORWARD_H
#define SYCPU_FAST_ATTENTION_FORWARD_H

#include "backends/cpu/attention.h"
#include "backends/cpu/attention_bias.h"
#include "backends/cpu/attention_view.h"

struct sycpu_attention_forward {
    const struct sycpu_attention *a;
    struct bias_table table;
    struct view view;
    int half;       /* q, kv and out are bf16 */
    void *out;      /* [b, tq, h * K] */
    float *lse;     /* [b, h, tq] */
    float *scratch; /* of all threads */
    int64_t floats; /* scratch of one thread */
};

/* A head of a row: task row * heads + head of the struct, by a thread. One query, no view, no dropout. */
void fast_attend_single(const void *forward, int64_t task, int thread);

#endif
