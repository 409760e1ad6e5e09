/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of routing: every fast variant gives the bits of the reference; routing agrees with an oracle that
 * follows the words of doc/numerics.md another way; gradients agree with finite differences. */
#include "config.h"

#include "kernel_harness.h"

struct shape {
    int rows, tokens, experts, selected, group_rows, dim;
    int capacity, min_capacity, prioritized, levels; /* levels: distinct probabilities; few make ties */
    double factor;
};

static struct shape random_shape(void)
{
    struct shape s = {.tokens = 1 + (int)(kh_random() % 12), .experts = 1 + (int)(kh_random() % 8)};
    int groups = 1 + (int)(kh_random() % 4);
    s.group_rows = 1 + (int)(kh_random() % 3);
    s.rows = groups * s.group_rows;
    s.selected = 1 + (int)(kh_random() % 3);
    if (s.selected > s.experts) s.selected = s.experts;
    s.dim = 1 + (int)(kh_random() % 70);
    s.capacity = 1 + (int)(kh_random() % (uint32_t)(s.group_rows * s.tokens));
    s.min_capacity = (int)(kh_random() % 4);
    s.prioritized = kh_random() % 2;
    s.levels = kh_random() % 2 ? 3 : 1 << 20;
    s.factor = kh_random() % 3 ? 0.25 * (double)(1 + kh_random() % 6) : 0;
    return s;
}

static struct sy_attr_route attr_of(const struct shape *s)
{
    struct sy_attr_route attr = {s->selected, s->group_rows,   s->capacity,
                                 s->factor,   s->min_capacity, s->prioritized};
    return attr;
}

static void fill_lengths(int32_t *length, const struct shape *s)
{
    for (int row = 0; row < s->rows; row++)
        length[row] = kh_random() % 3 ? (int32_t)(kh_random() % (uint32_t)(s->tokens + 1)) : s->tokens;
    if (kh_random() % 4 == 0) /* a group without tokens */
        for (int row = 0; row < s->group_rows; row++) length[row] = 0;
}

static void add_route(struct kh *k, const struct shape *s, const struct sy_attr_route *attr)
{
    int groups = s->rows / s->group_rows;
    kh_begin(k, SY_OP_ROUTE, attr, sizeof *attr);
    float *p = kh_in(k, SY_F32, 3, s->rows, s->tokens, s->experts);
    for (int64_t i = 0; i < sycpu_count(&k->in[0]); i++)
        p[i] = (float)(kh_random() % (uint32_t)s->levels + 1) / (float)(s->levels * s->experts);
    fill_lengths(kh_in(k, SY_I32, 1, s->rows), s);
    kh_out(k, SY_I32, 3, s->rows, s->tokens, s->selected);
    kh_out(k, SY_I32, 3, s->rows, s->tokens, s->selected);
    kh_out(k, SY_I32, 2, s->experts, groups);
    kh_out(k, SY_I32, 2, s->experts, groups);
}

/* ---- the oracle ---- */

struct token {
    int index, choice[3], slot[3]; /* index in [b, t] */
};

/* Rank of an expert: how many others the token prefers. */
static int rank_of(const float *p, int experts, int e)
{
    int rank = 0;
    for (int other = 0; other < experts; other++) rank += p[other] > p[e] || (p[other] == p[e] && other < e);
    return rank;
}

static int oracle_capacity(const struct shape *s, int tokens)
{
    double exact = s->factor * tokens / s->experts, whole = floor(exact);
    if (s->factor <= 0) return s->capacity;
    if (exact - whole > 0.5 || (exact - whole == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    if (whole < s->min_capacity) whole = s->min_capacity;
    return whole < s->capacity ? (int)whole : s->capacity;
}

/* Tokens of a group in the order they are served. */
static int oracle_tokens(const struct kh *k, const struct shape *s, int group, struct token *tokens)
{
    const float *p = k->in[0].data;
    const int32_t *length = k->in[1].data;
    int n = 0;
    for (int i = group * s->group_rows * s->tokens; i < (group + 1) * s->group_rows * s->tokens; i++) {
        if (i % s->tokens >= length[i / s->tokens]) continue;
        struct token t = {.index = i};
        for (int e = 0; e < s->experts; e++) {
            int rank = rank_of(p + i * s->experts, s->experts, e);
            if (rank < s->selected) t.choice[rank] = e;
        }
        int at = n++;
        for (; s->prioritized && at > 0; at--) { /* insertion, stable */
            const struct token *left = &tokens[at - 1];
            if (p[left->index * s->experts + left->choice[0]] >= p[i * s->experts + t.choice[0]]) break;
            tokens[at] = *left;
        }
        tokens[at] = t;
    }
    return n;
}

static void check_group(const struct kh *k, const struct shape *s, int group)
{
    static struct token tokens[64];
    const int32_t *expert = k->want[0], *slot = k->want[1], *chosen = k->want[2], *kept = k->want[3];
    int n = oracle_tokens(k, s, group, tokens), capacity = oracle_capacity(s, n),
        groups = s->rows / s->group_rows;
    int chosen_sum = 0;
    for (int e = 0; e < s->experts; e++) {
        int count = 0;
        for (int j = 0; j < s->selected; j++)
            for (int i = 0; i < n; i++) {
                int at = tokens[i].index * s->selected + j;
                if (tokens[i].choice[j] != e) continue;
                cr_assert_eq(expert[at], e);
                cr_assert_eq(slot[at], count < capacity ? count : -1);
                count++;
            }
        cr_assert_eq(chosen[e * groups + group], count);
        cr_assert_eq(kept[e * groups + group], count < capacity ? count : capacity);
        chosen_sum += count;
    }
    cr_assert_eq(chosen_sum, n * s->selected);
}

Test(moe_kernels, route_agrees_with_the_oracle)
{
    for (int i = 0; i < 3000; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr = attr_of(&s);
        struct kh k;
        add_route(&k, &s, &attr);
        if (i % 10)
            kh_reference(&k, "route");
        else
            kh_check(&k, "route");
        for (int group = 0; group < s.rows / s.group_rows; group++) check_group(&k, &s, group);
        for (int at = 0; at < s.rows * s.tokens * s.selected; at++) {
            int token = at / s.selected,
                real = token % s.tokens < ((int32_t *)k.in[1].data)[token / s.tokens];
            cr_assert_eq(((int32_t *)k.want[0])[at] >= 0, real, "padding has no expert, tokens have one");
            cr_assert(real || ((int32_t *)k.want[1])[at] == -1);
        }
        kh_end(&k);
    }
}

/* ---- moving tokens ---- */

static void *copy_in(struct kh *k, const struct sy_tensor *t, const void *data)
{
    struct sy_tensor *in = &k->in[k->n_in++];
    *in = *t;
    in->data = malloc(kh_bytes(t) + 1);
    cr_assert_not_null(in->data);
    return memcpy(in->data, data, kh_bytes(t));
}

/* Input buffers hold NaN in empty slots, which would show if they were read. */
static void add_buffer(struct kh *k, const struct shape *s, const struct kh *route)
{
    int groups = s->rows / s->group_rows;
    float *x = kh_in(k, SY_F32, 4, s->experts, groups, s->capacity, s->dim);
    for (int i = 0; i < s->experts * groups; i++)
        for (int64_t j = ((int32_t *)route->want[3])[i] * s->dim; j < s->capacity * s->dim; j++)
            x[(int64_t)i * s->capacity * s->dim + j] = NAN;
}

static void add_choices(struct kh *k, const struct kh *route)
{
    copy_in(k, &route->out[0], route->want[0]);
    copy_in(k, &route->out[1], route->want[1]);
}

static void begin_group(struct kh *k, int op, const struct sy_attr_group *attr, int wild)
{
    kh_begin(k, op, attr, sizeof *attr);
    k->wild = wild;
}

static void build(struct kh *k, int op, const struct shape *s, const struct sy_attr_group *attr,
                  const struct kh *route, int wild)
{
    int groups = s->rows / s->group_rows;
    begin_group(k, op, attr, wild);
    switch (op) {
    case SY_OP_GATE: copy_in(k, &route->in[0], route->in[0].data); break;
    case SY_OP_GATE_GRAD: kh_in(k, SY_F32, 3, s->rows, s->tokens, s->selected); break;
    case SY_OP_DISPATCH: kh_in(k, SY_F32, 3, s->rows, s->tokens, s->dim); break;
    default: add_buffer(k, s, route);
    }
    add_choices(k, route);
    if (op == SY_OP_COMBINE || op == SY_OP_COMBINE_GRAD) kh_in(k, SY_F32, 3, s->rows, s->tokens, s->selected);
    if (op == SY_OP_COMBINE_GRAD) kh_in(k, SY_F32, 3, s->rows, s->tokens, s->dim);
    switch (op) {
    case SY_OP_GATE: kh_out(k, SY_F32, 3, s->rows, s->tokens, s->selected); break;
    case SY_OP_GATE_GRAD: kh_out(k, SY_F32, 3, s->rows, s->tokens, s->experts); break;
    case SY_OP_DISPATCH:
    case SY_OP_COMBINE_GRAD: kh_out(k, SY_F32, 4, s->experts, groups, s->capacity, s->dim); break;
    default: kh_out(k, SY_F32, 3, s->rows, s->tokens, s->dim);
    }
    if (op == SY_OP_COMBINE_GRAD) kh_out(k, SY_F32, 3, s->rows, s->tokens, s->selected);
}

static void build_loss(struct kh *k, int op, const struct shape *s, const struct sy_attr_group *attr,
                       const struct kh *route, int wild)
{
    int groups = s->rows / s->group_rows;
    begin_group(k, op, attr, wild);
    if (op == SY_OP_ROUTER_LOSS) copy_in(k, &route->in[0], route->in[0].data);
    kh_in(k, SY_F32, 2, s->rows, s->tokens);
    copy_in(k, &route->out[2], route->want[2]);
    copy_in(k, &route->in[1], route->in[1].data);
    if (op == SY_OP_ROUTER_LOSS) {
        kh_out(k, SY_F32, 1, groups);
        kh_out(k, SY_F32, 1, groups);
    } else {
        kh_in(k, SY_F32, 1, groups);
        kh_in(k, SY_F32, 1, groups);
        kh_out(k, SY_F32, 3, s->rows, s->tokens, s->experts);
        kh_out(k, SY_F32, 2, s->rows, s->tokens);
    }
}

static void route_of(struct kh *route, const struct shape *s, struct sy_attr_route *attr)
{
    *attr = attr_of(s);
    add_route(route, s, attr);
    kh_reference(route, "route");
}

Test(moe_kernels, variants_equal_the_reference)
{
    static const int ops[] = {SY_OP_GATE,          SY_OP_GATE_GRAD, SY_OP_DISPATCH,
                              SY_OP_DISPATCH_GRAD, SY_OP_COMBINE,   SY_OP_COMBINE_GRAD};
    for (int i = 0; i < 60; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct sy_attr_group group = {s.group_rows};
        struct kh route, k;
        int wild = i % 3 == 0 ? 0 : i % 3 == 1 ? -20 : 5;
        route_of(&route, &s, &attr);
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
            build(&k, ops[o], &s, &group, &route, wild);
            kh_check(&k, "moving tokens");
            kh_end(&k);
        }
        for (int op = SY_OP_ROUTER_LOSS; op <= SY_OP_ROUTER_LOSS_GRAD; op++) {
            build_loss(&k, op, &s, &group, &route, wild);
            kh_check(&k, "router loss");
            kh_end(&k);
        }
        kh_end(&route);
    }
}

/* Each kept token comes back as it was, times the sum of its gates; empty slots are zero. */
Test(moe_kernels, combine_undoes_dispatch)
{
    for (int i = 0; i < 100; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct sy_attr_group group = {s.group_rows};
        struct kh route, there, back;
        route_of(&route, &s, &attr);
        build(&there, SY_OP_DISPATCH, &s, &group, &route, 0);
        kh_reference(&there, "dispatch");
        build(&back, SY_OP_COMBINE, &s, &group, &route, 0);
        memcpy(back.in[0].data, there.want[0], kh_bytes(&back.in[0]));
        kh_reference(&back, "combine");
        const float *x = there.in[0].data, *gate = back.in[3].data, *y = back.want[0];
        for (int at = 0; at < s.rows * s.tokens * s.dim; at++) {
            double sum = 0;
            for (int j = 0; j < s.selected; j++) {
                int choice = at / s.dim * s.selected + j;
                if (((int32_t *)route.want[1])[choice] >= 0) sum += gate[choice];
            }
            cr_assert_float_eq(y[at], sum * x[at], 1e-5);
        }
        int64_t sent = 0, kept = 0;
        for (int64_t at = 0; at < sycpu_count(&there.out[0]); at++) sent += ((float *)there.want[0])[at] != 0;
        for (int64_t at = 0; at < sycpu_count(&route.out[3]); at++) kept += ((int32_t *)route.want[3])[at];
        cr_assert_leq(sent, kept * s.dim);
        kh_end(&route);
        kh_end(&there);
        kh_end(&back);
    }
}

/* A uniform router that chooses every expert equally often has balance 1 a token; z is the sum of lse^2. */
Test(moe_kernels, router_loss_of_known_cases)
{
    struct shape s = {.rows = 2, .tokens = 4, .experts = 4, .selected = 1, .group_rows = 2};
    struct sy_attr_group group = {2};
    struct kh k;
    begin_group(&k, SY_OP_ROUTER_LOSS, &group, 0);
    float *p = kh_in(&k, SY_F32, 3, s.rows, s.tokens, s.experts),
          *lse = kh_in(&k, SY_F32, 2, s.rows, s.tokens);
    int32_t *chosen = kh_in(&k, SY_I32, 2, s.experts, 1), *length = kh_in(&k, SY_I32, 1, s.rows);
    kh_out(&k, SY_F32, 1, 1);
    kh_out(&k, SY_F32, 1, 1);
    for (int i = 0; i < 32; i++) p[i] = 0.25f;
    for (int i = 0; i < 8; i++) lse[i] = i < 3 || i == 4 ? 2.0f : NAN; /* padding is not read */
    for (int e = 0; e < 4; e++) chosen[e] = 1;
    length[0] = 3;
    length[1] = 1;
    kh_check(&k, "balance");
    cr_assert_float_eq(((float *)k.want[0])[0], 4, 1e-6);
    cr_assert_float_eq(((float *)k.want[1])[0], 16, 1e-6);
    length[0] = length[1] = 0;
    kh_check(&k, "no tokens");
    cr_assert_eq(((float *)k.want[0])[0], 0);
    cr_assert_eq(((float *)k.want[1])[0], 0);
    kh_end(&k);
}

/* ---- gradients: operands widened to double ---- */

static void serial(void *arg, int64_t n, void (*fn)(void *, int64_t, int), void *fn_arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) fn(fn_arg, i, 0);
}

struct doubles {
    struct sy_host host;
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
    struct sy_call call;
};

static void widen(struct sy_tensor *to, const struct sy_tensor *from)
{
    *to = *from;
    to->data = calloc((size_t)sycpu_count(from) + 1, sizeof(double));
    cr_assert_not_null(to->data);
    if (from->data && from->dtype != SY_F32) memcpy(to->data, from->data, kh_bytes(from));
    for (int64_t i = 0; from->data && from->dtype == SY_F32 && i < sycpu_count(from); i++)
        ((double *)to->data)[i] = ((float *)from->data)[i];
}

static void doubles_begin(struct doubles *d, const struct kh *k)
{
    memset(d, 0, sizeof *d);
    d->host.threads = 1;
    d->host.parallel_for = serial;
    for (int i = 0; i < k->n_in; i++) widen(&d->in[i], &k->in[i]);
    for (int i = 0; i < k->n_out; i++) widen(&d->out[i], &k->out[i]);
    d->call = (struct sy_call){.host = &d->host, .in = d->in, .out = d->out, .attr = k->attr};
    d->call.workspace = calloc(64, sizeof(double)); /* router_loss: one number an expert */
}

static void doubles_end(struct doubles *d)
{
    for (int i = 0; i < SY_MAX_IN; i++) free(d->in[i].data);
    for (int i = 0; i < SY_MAX_OUT; i++) free(d->out[i].data);
    free(d->call.workspace);
}

/* Output o of an op, weighted with w and summed, with element `at` of input `in` moved by `by`. */
static double weighted(struct doubles *d, sy_kernel_fn run, int o, const double *w, int in, int64_t at,
                       double by)
{
    double *x = d->in[in].data, *y = d->out[o].data, sum = 0;
    x[at] += by;
    run(NULL, &d->call);
    x[at] -= by;
    for (int64_t i = 0; i < sycpu_count(&d->out[o]); i++) sum += w[i] * y[i];
    return sum;
}

/* got: gradient of sum w * output o with respect to input `in`. */
static void check_gradient(struct doubles *d, sy_kernel_fn run, int o, const double *w, int in,
                           const double *got)
{
    for (int64_t i = 0; i < sycpu_count(&d->in[in]); i++) {
        if (isnan(((double *)d->in[in].data)[i])) {
            cr_assert_eq(got[i], 0);
            continue;
        }
        double want = (weighted(d, run, o, w, in, i, 1e-4) - weighted(d, run, o, w, in, i, -1e-4)) / 2e-4;
        cr_assert_float_eq(got[i], want, 1e-6 * (1 + fabs(want)),
                           "input %d element %d: %.10g, differences give %.10g", in, (int)i, got[i], want);
    }
}

/* The gradient op's input `weight` is what output 0 of the op is weighted with; both share operands by
 * position. */
static void check_pair(const struct shape *s, int op, sy_kernel_fn run, int grad_op, sy_kernel_fn grad,
                       int weight)
{
    struct sy_attr_route attr;
    struct sy_attr_group group = {s->group_rows};
    struct kh route, k, g;
    struct doubles d, b;
    route_of(&route, s, &attr);
    build(&k, op, s, &group, &route, 0);
    build(&g, grad_op, s, &group, &route, 0);
    if (op == SY_OP_COMBINE)
        for (int i = 0; i < 4; i++) memcpy(g.in[i].data, k.in[i].data, kh_bytes(&k.in[i]));
    doubles_begin(&d, &k);
    doubles_begin(&b, &g);
    grad(NULL, &b.call);
    check_gradient(&d, run, 0, b.in[weight].data, 0, b.out[0].data);
    if (op == SY_OP_COMBINE) check_gradient(&d, run, 0, b.in[weight].data, 3, b.out[1].data);
    doubles_end(&d);
    doubles_end(&b);
    kh_end(&k);
    kh_end(&g);
    kh_end(&route);
}

/* The transpose of dispatch reads a whole buffer of weights, so the NaN of empty slots is left out. */
static void check_dispatch(const struct shape *s)
{
    struct sy_attr_route attr;
    struct sy_attr_group group = {s->group_rows};
    struct kh route, k, g;
    struct doubles d, b;
    route_of(&route, s, &attr);
    build(&k, SY_OP_DISPATCH, s, &group, &route, 0);
    build(&g, SY_OP_DISPATCH_GRAD, s, &group, &route, 0);
    doubles_begin(&d, &k);
    doubles_begin(&b, &g);
    sycpu_ref64_dispatch_grad(NULL, &b.call);
    double *w = b.in[0].data;
    for (int64_t i = 0; i < sycpu_count(&b.in[0]); i++) w[i] = isnan(w[i]) ? 3 : w[i];
    check_gradient(&d, sycpu_ref64_dispatch, 0, w, 0, b.out[0].data);
    doubles_end(&d);
    doubles_end(&b);
    kh_end(&k);
    kh_end(&g);
    kh_end(&route);
}

static void check_loss(const struct shape *s)
{
    struct sy_attr_route attr;
    struct sy_attr_group group = {s->group_rows};
    struct kh route, k, g;
    struct doubles d, b;
    route_of(&route, s, &attr);
    build_loss(&k, SY_OP_ROUTER_LOSS, s, &group, &route, 0);
    build_loss(&g, SY_OP_ROUTER_LOSS_GRAD, s, &group, &route, 0);
    memcpy(g.in[0].data, k.in[1].data, kh_bytes(&k.in[1]));
    doubles_begin(&d, &k);
    doubles_begin(&b, &g);
    sycpu_ref64_router_loss_grad(NULL, &b.call);
    check_gradient(&d, sycpu_ref64_router_loss, 0, b.in[3].data, 0, b.out[0].data);
    check_gradient(&d, sycpu_ref64_router_loss, 1, b.in[4].data, 1, b.out[1].data);
    doubles_end(&d);
    doubles_end(&b);
    kh_end(&k);
    kh_end(&g);
    kh_end(&route);
}

Test(moe_kernels, gradients_are_those_of_finite_differences)
{
    for (int i = 0; i < 20; i++) {
        struct shape s = random_shape();
        s.dim = 1 + s.dim % 5;
        check_pair(&s, SY_OP_GATE, sycpu_ref64_gate, SY_OP_GATE_GRAD, sycpu_ref64_gate_grad, 0);
        check_pair(&s, SY_OP_COMBINE, sycpu_ref64_combine, SY_OP_COMBINE_GRAD, sycpu_ref64_combine_grad, 4);
        check_dispatch(&s);
        check_loss(&s);
    }
}
