/* SPDX-License-Identifier: Apache-2.0 */
/* Routing in plain C: which expert and slot each token gets, moving tokens into expert buffers and back, and
 * the two router losses. The experts themselves are grouped matmuls; the router's logits and softmax are ops
 * of their own. */
#include "config.h"

#include "backends/cpu/moe.h"
#include "backends/cpu/ref.h"

/* ---- route ---- */

struct route {
    const struct sy_attr_route *attr;
    const sy_real *probability;             /* [b, t, e] */
    const int32_t *length;                  /* [b] */
    int32_t *expert, *slot, *chosen, *kept; /* outputs */
    int64_t rows, tokens, experts, groups;  /* b, t, e, g */
    int32_t *scratch;                       /* [threads][tokens of a group + experts] */
};

/* Tokens of a group in the order they ask for slots: `order` holds their indices in [b, t]. */
struct queue {
    const struct route *route;
    int32_t *order;
    int64_t n;
};

static sy_real first_probability(const struct route *r, int64_t token)
{
    return r->probability[token * r->experts + r->expert[token * r->attr->selected]];
}

/* Whether token a asks before token b: the larger first probability, the earlier token of equals. */
static int before(const struct route *r, int64_t a, int64_t b)
{
    sy_real pa = first_probability(r, a), pb = first_probability(r, b);
    return pa > pb || (!(pb > pa) && a < b);
}

static void sift(const struct queue *q, int64_t parent, int64_t n)
{
    for (int64_t child; (child = 2 * parent + 1) < n; parent = child) {
        if (child + 1 < n && before(q->route, q->order[child], q->order[child + 1])) child++;
        if (before(q->route, q->order[child], q->order[parent])) return;
        int32_t swap = q->order[parent];
        q->order[parent] = q->order[child];
        q->order[child] = swap;
    }
}

/* Heapsort: no memory, and `before` leaves no equals, so the result is that of a stable sort. */
static void sort_queue(const struct queue *q)
{
    for (int64_t i = q->n / 2; i-- > 0;) sift(q, i, q->n);
    for (int64_t n = q->n - 1; n > 0; n--) {
        int32_t swap = q->order[0];
        q->order[0] = q->order[n];
        q->order[n] = swap;
        sift(q, 0, n);
    }
}

/* The most probable experts in descending order, the lowest index of equals. */
static void choose(const struct route *r, int64_t token)
{
    const sy_real *p = r->probability + token * r->experts;
    int32_t *expert = r->expert + token * r->attr->selected;
    for (int64_t j = 0; j < r->attr->selected; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < r->experts; e++) {
            int taken = 0;
            for (int64_t i = 0; i < j; i++) taken |= expert[i] == e;
            if (!taken && (best < 0 || p[e] > p[best])) best = e;
        }
        expert[j] = best;
    }
}

static int64_t group_capacity(const struct route *r, int64_t tokens)
{
    const struct sy_attr_route *a = r->attr;
    if (!(a->capacity_factor > 0)) return a->capacity;
    double slots = rint(a->capacity_factor * (double)tokens / (double)r->experts);
    if (slots < (double)a->min_capacity) slots = (double)a->min_capacity;
    return slots < (double)a->capacity ? (int64_t)slots : a->capacity;
}

/* Chooses for the real tokens of a group and queues them; the others get -1. */
static void fill_queue(const struct route *r, int64_t group, struct queue *q)
{
    int64_t k = r->attr->selected;
    q->n = 0;
    for (int64_t row = group * r->attr->group_rows; row < (group + 1) * r->attr->group_rows; row++) {
        int64_t real = sycpu_row_length(r->length, row, r->tokens);
        for (int64_t t = 0; t < r->tokens; t++) {
            int64_t token = row * r->tokens + t;
            for (int64_t j = 0; j < k; j++) r->expert[token * k + j] = r->slot[token * k + j] = -1;
            if (t >= real) continue;
            choose(r, token);
            q->order[q->n++] = (int32_t)token;
        }
    }
}

static void route_group(void *arg, int64_t group, int thread)
{
    const struct route *r = arg;
    int64_t k = r->attr->selected, room = r->attr->group_rows * r->tokens;
    int32_t *count = r->scratch + thread * (room + r->experts); /* [e] choices so far */
    struct queue q = {r, count + r->experts, 0};
    fill_queue(r, group, &q);
    if (r->attr->prioritized) sort_queue(&q);
    int64_t capacity = group_capacity(r, q.n);
    for (int64_t e = 0; e < r->experts; e++) count[e] = 0;
    for (int64_t j = 0; j < k; j++)
        for (int64_t i = 0; i < q.n; i++) {
            int64_t choice = q.order[i] * k + j;
            if (r->expert[choice] < 0) continue;
            int32_t asked = count[r->expert[choice]]++;
            r->slot[choice] = asked < capacity ? asked : -1;
        }
    for (int64_t e = 0; e < r->experts; e++) {
        r->chosen[e * r->groups + group] = count[e];
        r->kept[e * r->groups + group] = count[e] < capacity ? count[e] : (int32_t)capacity;
    }
}

uint64_t SYCPU_REF(route_workspace)(const struct sy_call *call, int threads)
{
    const struct sy_attr_route *attr = call->attr;
    const int64_t *dim = call->in[0].dim;
    return (uint64_t)threads * (uint64_t)(attr->group_rows * dim[1] + dim[2]) * sizeof(int32_t);
}

int SYCPU_REF(route)(void *context, const struct sy_call *call)
{
    const int64_t *dim = call->in[0].dim;
    const struct sy_attr_route *attr = call->attr;
    (void)context;
    struct route r = {attr,
                      call->in[0].data,
                      call->in[1].data,
                      call->out[0].data,
                      call->out[1].data,
                      call->out[2].data,
                      call->out[3].data,
                      dim[0],
                      dim[1],
                      dim[2],
                      dim[0] / attr->group_rows,
                      call->workspace};
    sycpu_parallel(call, r.groups, route_group, &r);
    return SY_OK;
}

/* ---- gate ---- */

int SYCPU_REF(gate)(void *context, const struct sy_call *call)
{
    const sy_real *probability = call->in[0].data;
    const int32_t *expert = call->in[1].data, *slot = call->in[2].data;
    sy_real *gate = call->out[0].data;
    int64_t experts = call->in[0].dim[2], k = call->in[1].dim[2], n = sycpu_count(&call->in[1]);
    (void)context;
    for (int64_t i = 0; i < n; i++) gate[i] = slot[i] < 0 ? 0 : probability[i / k * experts + expert[i]];
    return SY_OK;
}

int SYCPU_REF(gate_grad)(void *context, const struct sy_call *call)
{
    const sy_real *dgate = call->in[0].data;
    const int32_t *expert = call->in[1].data, *slot = call->in[2].data;
    sy_real *dprobability = call->out[0].data;
    int64_t experts = call->out[0].dim[2], k = call->in[1].dim[2], n = sycpu_count(&call->in[1]);
    (void)context;
    for (int64_t i = 0, all = sycpu_count(&call->out[0]); i < all; i++) dprobability[i] = 0;
    for (int64_t i = 0; i < n; i++)
        if (slot[i] >= 0) dprobability[i / k * experts + expert[i]] += dgate[i];
    return SY_OK;
}

/* ---- dispatch and combine ---- */

int SYCPU_REF(dispatch)(void *context, const struct sy_call *call)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->out[0], &call->in[1], &call->in[2]);
    const sy_real *x = call->in[0].data;
    sy_real *buffer = call->out[0].data;
    (void)context;
    for (int64_t i = 0, all = sycpu_count(&call->out[0]); i < all; i++) buffer[i] = 0;
    for (int64_t i = 0; i < moe.rows * moe.length * moe.choices; i++) {
        int64_t place = sycpu_moe_place(&moe, i / moe.choices / moe.length, i);
        for (int64_t d = 0; place >= 0 && d < moe.dim; d++)
            buffer[place * moe.dim + d] = x[i / moe.choices * moe.dim + d];
    }
    return SY_OK;
}

/* Sum over the kept choices of each token: gate * slot, or the slot itself where gate is NULL. */
static void gather(const struct sycpu_moe *moe, const sy_real *buffer, const sy_real *gate, sy_real *out)
{
    for (int64_t token = 0; token < moe->rows * moe->length; token++)
        for (int64_t d = 0; d < moe->dim; d++) {
            sy_real sum = 0;
            for (int64_t i = token * moe->choices; i < (token + 1) * moe->choices; i++) {
                int64_t place = sycpu_moe_place(moe, token / moe->length, i);
                if (place < 0) continue;
                sy_real value = buffer[place * moe->dim + d];
                sum = gate ? syi_fma(gate[i], value, sum) : sum + value;
            }
            out[token * moe->dim + d] = sum;
        }
}

int SYCPU_REF(dispatch_grad)(void *context, const struct sy_call *call)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    (void)context;
    gather(&moe, call->in[0].data, NULL, call->out[0].data);
    return SY_OK;
}

int SYCPU_REF(combine)(void *context, const struct sy_call *call)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    (void)context;
    gather(&moe, call->in[0].data, call->in[3].data, call->out[0].data);
    return SY_OK;
}

int SYCPU_REF(combine_grad)(void *context, const struct sy_call *call)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    const sy_real *buffer = call->in[0].data, *gate = call->in[3].data, *dout = call->in[4].data;
    sy_real *dbuffer = call->out[0].data, *dgate = call->out[1].data;
    (void)context;
    for (int64_t i = 0, all = sycpu_count(&call->out[0]); i < all; i++) dbuffer[i] = 0;
    for (int64_t i = 0; i < moe.rows * moe.length * moe.choices; i++) {
        int64_t place = sycpu_moe_place(&moe, i / moe.choices / moe.length, i);
        const sy_real *row = dout + i / moe.choices * moe.dim;
        dgate[i] = place < 0 ? 0 : ref_row_dot(row, buffer + place * moe.dim, moe.dim);
        for (int64_t d = 0; place >= 0 && d < moe.dim; d++) dbuffer[place * moe.dim + d] = gate[i] * row[d];
    }
    return SY_OK;
}

/* ---- router losses ---- */

struct loss {
    const sy_real *probability, *lse;      /* [b, t, e], [b, t] */
    const int32_t *chosen, *length;        /* [e, g], [b] */
    int64_t tokens, experts, groups, rows; /* t, e, g, rows of a group */
    sy_real *balance, *z;                  /* [g] */
    sy_real *scratch;                      /* [threads][e] */
};

static int64_t real_tokens(const int32_t *length, int64_t group, int64_t group_rows, int64_t longest)
{
    int64_t n = 0;
    for (int64_t row = group * group_rows; row < (group + 1) * group_rows; row++)
        n += sycpu_row_length(length, row, longest);
    return n;
}

static void loss_group(void *arg, int64_t group, int thread)
{
    const struct loss *l = arg;
    sy_real *mass = l->scratch + thread * l->experts, z = 0, sum = 0;
    int64_t n = real_tokens(l->length, group, l->rows, l->tokens);
    for (int64_t e = 0; e < l->experts; e++) mass[e] = 0;
    for (int64_t row = group * l->rows; row < (group + 1) * l->rows; row++) {
        int64_t real = sycpu_row_length(l->length, row, l->tokens);
        const sy_real *p = l->probability + row * l->tokens * l->experts, *lse = l->lse + row * l->tokens;
        for (int64_t t = 0; t < real; t++)
            for (int64_t e = 0; e < l->experts; e++) mass[e] += p[t * l->experts + e];
        z += ref_row_dot(lse, lse, real);
    }
    for (int64_t e = 0; e < l->experts; e++)
        sum = syi_fma((sy_real)l->chosen[e * l->groups + group], mass[e], sum);
    l->balance[group] = n ? (sy_real)l->experts * sum / (sy_real)n : 0;
    l->z[group] = z;
}

uint64_t SYCPU_REF(router_loss_workspace)(const struct sy_call *call, int threads)
{
    return (uint64_t)threads * (uint64_t)call->in[0].dim[2] * sizeof(sy_real);
}

int SYCPU_REF(router_loss)(void *context, const struct sy_call *call)
{
    const struct sy_attr_group *attr = call->attr;
    const int64_t *dim = call->in[0].dim;
    (void)context;
    struct loss l = {call->in[0].data,          call->in[1].data, call->in[2].data,
                     call->in[3].data,          dim[1],           dim[2],
                     dim[0] / attr->group_rows, attr->group_rows, call->out[0].data,
                     call->out[1].data,         call->workspace};
    sycpu_parallel(call, l.groups, loss_group, &l);
    return SY_OK;
}

int SYCPU_REF(router_loss_grad)(void *context, const struct sy_call *call)
{
    const struct sy_attr_group *attr = call->attr;
    const sy_real *lse = call->in[0].data, *dbalance = call->in[3].data, *dz = call->in[4].data;
    const int32_t *chosen = call->in[1].data, *length = call->in[2].data;
    sy_real *dprobability = call->out[0].data, *dlse = call->out[1].data;
    int64_t rows = call->out[0].dim[0], tokens = call->out[0].dim[1], experts = call->out[0].dim[2];
    (void)context;
    for (int64_t row = 0; row < rows; row++) {
        int64_t g = row / attr->group_rows, groups = rows / attr->group_rows;
        int64_t n = real_tokens(length, g, attr->group_rows, tokens);
        int64_t real = sycpu_row_length(length, row, tokens);
        for (int64_t t = 0; t < tokens; t++) {
            int64_t i = row * tokens + t;
            dlse[i] = t < real ? 2 * lse[i] * dz[g] : 0;
            for (int64_t e = 0; e < experts; e++) {
                sy_real share =
                    t < real ? (sy_real)experts * (sy_real)chosen[e * groups + g] / (sy_real)n : 0;
                dprobability[i * experts + e] = t < real ? share * dbalance[g] : 0;
            }
        }
    }
    return SY_OK;
}
