/* SPDX-License-Identifier: Apache-2.0 */
/* Routing in plain C: which expert and slot each token gets, chosen by tokens or by experts, and what was
 * kept. Threads take groups, or pairs of group and expert. Moving the tokens is in ref_moe.c. */
#include "config.h"

#include <math.h>

#include "backends/cpu/moe.h"

/* ---- the first of a group's tokens ---- */

/* Tokens of a group in the order they ask for slots; tokens are counted from the first of the group. */
struct queue {
    const sy_real *key; /* [tokens of the group]: the larger asks first, the lower index of equals */
    int32_t *order;     /* [n] tokens */
    int64_t n;
};

static int before(const struct queue *q, int32_t a, int32_t b)
{
    return q->key[a] > q->key[b] || (!(q->key[b] > q->key[a]) && a < b);
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t keep = *a;
    *a = *b;
    *b = keep;
}

/* Restores the heap of the first n, the first to ask at its root. */
static void sift(const struct queue *q, int64_t parent, int64_t n)
{
    for (int64_t child; (child = 2 * parent + 1) < n; parent = child) {
        if (child + 1 < n && before(q, q->order[child + 1], q->order[child])) child++;
        if (before(q, q->order[parent], q->order[child])) return;
        swap(&q->order[parent], &q->order[child]);
    }
}

/* Puts the first `count` tokens at the start, in order, the rest after them in any order. A heap gathers the
 * first ones at its end, so no memory is needed; `before` knows no equals, so the order is one. */
static void sort_first(const struct queue *q, int64_t count)
{
    for (int64_t i = q->n / 2; i-- > 0;) sift(q, i, q->n);
    for (int64_t i = 0; i < count; i++) {
        swap(&q->order[0], &q->order[q->n - 1 - i]);
        sift(q, 0, q->n - 1 - i);
    }
    for (int64_t i = 0; i < q->n / 2; i++) swap(&q->order[i], &q->order[q->n - 1 - i]);
}

/* ---- what both routers share ---- */

struct route {
    const sy_real *probability, *mask, *bias; /* [b, t, e], [b, t] or NULL, [e] or NULL */
    int32_t *expert, *slot, *chosen, *kept;   /* outputs */
    int64_t tokens, experts, groups;          /* of a group; e; g */
    int64_t selected;                         /* choices of a token */
    int64_t capacity, min_capacity;           /* slots of an expert in a group */
    double capacity_factor;                   /* 0: `capacity` is the rule */
    int prioritized;
    sy_real *keys;   /* [threads][tokens] */
    int32_t *counts; /* [threads][tokens + experts]: the order of a queue, then counts of experts */
};

static uint64_t workspace_bytes(const struct sy_call *call, int64_t group_rows, int threads)
{
    const int64_t *dim = call->in[0].dim;
    uint64_t tokens = (uint64_t)(group_rows * dim[1]), experts = (uint64_t)dim[2];
    return (uint64_t)threads * (tokens * sizeof(sy_real) + (tokens + experts) * sizeof(int32_t));
}

static struct route begin(const struct sy_call *call, int64_t group_rows, int64_t capacity,
                          int64_t min_capacity, double capacity_factor)
{
    const int64_t *dim = call->in[0].dim;
    struct route r = {.probability = call->in[0].data,
                      .mask = call->in[1].data,
                      .expert = call->out[0].data,
                      .slot = call->out[1].data,
                      .chosen = call->out[2].data,
                      .kept = call->out[3].data,
                      .tokens = group_rows * dim[1],
                      .experts = dim[2],
                      .groups = dim[0] / group_rows,
                      .selected = call->out[0].dim[2],
                      .capacity = capacity,
                      .min_capacity = min_capacity,
                      .capacity_factor = capacity_factor};
    r.keys = call->workspace;
    r.counts = (int32_t *)(r.keys + call->host->threads * r.tokens);
    return r;
}

/* The real tokens of a group in ascending order; keys are not filled. */
static struct queue real_tokens(const struct route *r, int64_t group, int thread)
{
    struct queue q = {r->keys + thread * r->tokens, r->counts + thread * (r->tokens + r->experts), 0};
    for (int64_t i = 0; i < r->tokens; i++)
        if (sycpu_is_real(r->mask, group * r->tokens + i)) q.order[q.n++] = (int32_t)i;
    return q;
}

static int64_t group_capacity(const struct route *r, int64_t tokens)
{
    if (!(r->capacity_factor > 0)) return r->capacity;
    double slots = rint(r->capacity_factor * (double)tokens / (double)r->experts);
    if (slots < (double)r->min_capacity) slots = (double)r->min_capacity;
    return slots < (double)r->capacity ? (int64_t)slots : r->capacity;
}

/* ---- tokens choose ---- */

/* The experts of largest probability plus bias in descending order, the lowest index of equals. */
static void choose(const struct route *r, int64_t token)
{
    const sy_real *p = r->probability + token * r->experts;
    int32_t *expert = r->expert + token * r->selected;
    for (int64_t j = 0; j < r->selected; j++) {
        int32_t best = -1;
        sy_real most = 0;
        for (int32_t e = 0; e < r->experts; e++) {
            sy_real score = r->bias ? p[e] + r->bias[e] : p[e];
            if (best >= 0 && !(score > most)) continue;
            int taken = 0;
            for (int64_t i = 0; i < j; i++) taken |= expert[i] == e;
            if (taken) continue;
            best = e;
            most = score;
        }
        expert[j] = best;
    }
}

/* All first choices in the order of the queue, then all second choices, ...; count: [e] choices so far. */
static void grant(const struct route *r, int64_t group, const struct queue *q, int64_t capacity,
                  int32_t *count)
{
    for (int64_t j = 0; j < r->selected; j++)
        for (int64_t i = 0; i < q->n; i++) {
            int64_t choice = (group * r->tokens + q->order[i]) * r->selected + j;
            if (r->expert[choice] < 0) continue;
            int32_t asked = count[r->expert[choice]]++;
            r->slot[choice] = asked < capacity ? asked : -1;
        }
}

static void route_group(void *arg, int64_t group, int thread)
{
    const struct route *r = arg;
    struct queue q = real_tokens(r, group, thread);
    sy_real *key = r->keys + thread * r->tokens;
    int64_t first = group * r->tokens, k = r->selected, capacity = group_capacity(r, q.n);
    int32_t *count = q.order + r->tokens;
    memset(r->expert + first * k, 0xff, (size_t)(r->tokens * k) * sizeof(int32_t)); /* -1 */
    memset(r->slot + first * k, 0xff, (size_t)(r->tokens * k) * sizeof(int32_t));
    for (int64_t i = 0; i < q.n; i++) {
        int64_t token = first + q.order[i];
        choose(r, token);
        key[q.order[i]] = r->probability[token * r->experts + r->expert[token * k]];
    }
    if (r->prioritized) sort_first(&q, q.n);
    for (int64_t e = 0; e < r->experts; e++) count[e] = 0;
    grant(r, group, &q, capacity, count);
    for (int64_t e = 0; e < r->experts; e++) {
        r->chosen[e * r->groups + group] = count[e];
        r->kept[e * r->groups + group] = count[e] < capacity ? count[e] : (int32_t)capacity;
    }
}

uint64_t SYCPU_REF(route_workspace)(const struct sy_call *call, int threads)
{
    return workspace_bytes(call, ((const struct sy_attr_route *)call->attr)->group_rows, threads);
}

int SYCPU_REF(route)(void *context, const struct sy_call *call)
{
    const struct sy_attr_route *attr = call->attr;
    struct route r = begin(call, attr->group_rows, attr->capacity, attr->min_capacity, attr->capacity_factor);
    (void)context;
    r.bias = call->in[2].data;
    r.prioritized = attr->prioritized != 0;
    sycpu_parallel(call, r.groups, route_group, &r);
    return SY_OK;
}

/* ---- experts choose ---- */

/* Task: one expert of one group. Choice e of a token belongs to expert e, so tasks never meet. */
static void choose_tokens(void *arg, int64_t task, int thread)
{
    const struct route *r = arg;
    int64_t group = task / r->experts, e = task % r->experts, first = group * r->tokens;
    sy_real *key = r->keys + thread * r->tokens;
    struct queue q = real_tokens(r, group, thread);
    int64_t capacity = group_capacity(r, q.n), n = q.n < capacity ? q.n : capacity;
    for (int64_t i = 0; i < r->tokens; i++) {
        int64_t choice = (first + i) * r->experts + e;
        key[i] = r->probability[choice];
        r->expert[choice] = r->slot[choice] = -1;
    }
    sort_first(&q, n);
    for (int64_t rank = 0; rank < n; rank++) {
        int64_t choice = (first + q.order[rank]) * r->experts + e;
        r->expert[choice] = (int32_t)e;
        r->slot[choice] = (int32_t)rank;
    }
    r->chosen[e * r->groups + group] = r->kept[e * r->groups + group] = (int32_t)n;
}

uint64_t SYCPU_REF(route_experts_workspace)(const struct sy_call *call, int threads)
{
    return workspace_bytes(call, ((const struct sy_attr_route_experts *)call->attr)->group_rows, threads);
}

int SYCPU_REF(route_experts)(void *context, const struct sy_call *call)
{
    const struct sy_attr_route_experts *attr = call->attr;
    struct route r = begin(call, attr->group_rows, attr->capacity, attr->min_capacity, attr->capacity_factor);
    (void)context;
    sycpu_parallel(call, r.groups * r.experts, choose_tokens, &r);
    return SY_OK;
}

/* ---- what was kept ---- */

SYCPU_REF_KERNEL(kept_tokens)
{
    const int32_t *slot = call->in[0].data;
    int32_t *kept = call->out[0].data;
    const int64_t *dim = call->in[0].dim;
    (void)context;
    for (int64_t row = 0; row < dim[0]; row++) {
        kept[row] = 0;
        for (int64_t t = 0; t < dim[1]; t++, slot += dim[2]) {
            int any = 0;
            for (int64_t j = 0; j < dim[2]; j++) any |= slot[j] >= 0;
            kept[row] += any;
        }
    }
    return SY_OK;
}
