/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls of the two routers for the tests of routing and of the kernels that follow it. */
#ifndef ROUTING_CASE_H
#define ROUTING_CASE_H

#include "kernel_harness.h"

struct shape {
    int rows, tokens, experts, selected, dim; /* tokens: of a row */
    int capacity, min_capacity, prioritized;
    int levels;                 /* distinct probabilities; few make ties */
    int masked, biased;         /* whether the operands are there */
    double factor;              /* of the capacity, 0: none */
    struct sy_attr_group group; /* group_rows */
    struct sy_attr_gate gate;
};

static inline struct shape random_shape(void)
{
    struct shape s = {.tokens = 1 + (int)(kh_random() % 12), .experts = 1 + (int)(kh_random() % 8)};
    int groups = 1 + (int)(kh_random() % 4), group_rows = 1 + (int)(kh_random() % 3);
    s.rows = groups * group_rows;
    s.selected = 1 + (int)(kh_random() % 3);
    if (s.selected > s.experts) s.selected = s.experts;
    s.dim = 1 + (int)(kh_random() % 70);
    s.capacity = 1 + (int)(kh_random() % (uint32_t)(group_rows * s.tokens));
    s.min_capacity = (int)(kh_random() % 4);
    s.prioritized = kh_random() % 2;
    s.levels = kh_random() % 2 ? 3 : 1 << 20;
    s.masked = kh_random() % 4 != 0;
    s.biased = kh_random() % 2;
    s.factor = kh_random() % 3 ? 0.25 * (double)(1 + kh_random() % 6) : 0;
    s.group.group_rows = group_rows;
    s.gate.normalize = kh_random() % 2;
    return s;
}

static inline int groups_of(const struct shape *s)
{
    return s->rows / (int)s->group.group_rows;
}

static inline struct sy_attr_route route_attr(const struct shape *s)
{
    struct sy_attr_route attr = {s->selected, s->group.group_rows, s->capacity,
                                 s->factor,   s->min_capacity,     s->prioritized};
    return attr;
}

static inline struct sy_attr_route_experts route_experts_attr(const struct shape *s)
{
    struct sy_attr_route_experts attr = {s->group.group_rows, s->capacity, s->factor, s->min_capacity};
    return attr;
}

/* Padding after the tokens of a row, or anywhere; at times a group without tokens. */
static inline void fill_mask(float *mask, const struct shape *s)
{
    int anywhere = kh_random() % 2;
    for (int row = 0; row < s->rows; row++) {
        int length = kh_random() % 3 ? (int)(kh_random() % (uint32_t)(s->tokens + 1)) : s->tokens;
        for (int t = 0; t < s->tokens; t++)
            mask[row * s->tokens + t] = anywhere ? (float)(kh_random() % 3 != 0) : (float)(t < length);
    }
    if (kh_random() % 4 == 0) memset(mask, 0, (size_t)(s->group.group_rows * s->tokens) * sizeof *mask);
}

/* Operands of either router, op SY_OP_ROUTE or SY_OP_ROUTE_EXPERTS. */
static inline void add_route(struct kh *k, int op, const struct shape *s, const void *attr, size_t attr_bytes)
{
    int choices = op == SY_OP_ROUTE ? s->selected : s->experts;
    kh_begin(k, op, attr, attr_bytes);
    float *p = kh_in(k, SY_F32, 3, s->rows, s->tokens, s->experts);
    for (int64_t i = 0; i < sycpu_count(&k->in[0]); i++)
        p[i] = (float)(kh_random() % (uint32_t)s->levels + 1) / ((float)s->levels * (float)s->experts);
    if (s->masked)
        fill_mask(kh_in(k, SY_F32, 2, s->rows, s->tokens), s);
    else
        kh_in_absent(k);
    if (op == SY_OP_ROUTE && s->biased) {
        float *bias = kh_in(k, SY_F32, 1, s->experts);
        for (int e = 0; e < s->experts; e++) bias[e] = (float)(kh_random() % 3) / (float)(3 * s->experts);
    } else if (op == SY_OP_ROUTE) {
        kh_in_absent(k);
    }
    kh_out(k, SY_I32, 3, s->rows, s->tokens, choices);
    kh_out(k, SY_I32, 3, s->rows, s->tokens, choices);
    kh_out(k, SY_I32, 2, s->experts, groups_of(s));
    kh_out(k, SY_I32, 2, s->experts, groups_of(s));
}

/* A call of route that was run by the reference. */
static inline void route_of(struct kh *route, const struct shape *s, struct sy_attr_route *attr)
{
    *attr = route_attr(s);
    add_route(route, SY_OP_ROUTE, s, attr, sizeof *attr);
    kh_reference(route, "route");
}

static inline int is_real(const struct kh *route, int token)
{
    const float *mask = route->in[1].data;
    return !mask || mask[token] != 0;
}

/* An input like another call's operand, absent where that is. */
static inline void *copy_in(struct kh *k, const struct sy_tensor *t, const void *data)
{
    struct sy_tensor *in = &k->in[k->n_in++];
    *in = *t;
    if (!data) return NULL;
    in->data = malloc(kh_bytes(t) + 1);
    cr_assert_not_null(in->data);
    return memcpy(in->data, data, kh_bytes(t));
}

#endif
