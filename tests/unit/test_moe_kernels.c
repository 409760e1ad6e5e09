/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels after a routing: every fast variant gives the bits of the reference; gradients agree with finite
 * differences. Routing itself is tested in test_routing.c. */
#include "config.h"

#include "kernel_doubles.h"
#include "routing_case.h"

/* ---- moving tokens ---- */

/* Input buffers hold NaN in empty slots, which would show if they were read. */
static void add_buffer(struct kh *k, const struct shape *s, const struct kh *route)
{
    int groups = groups_of(s);
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

static void begin_op(struct kh *k, int op, const struct shape *s, int wild)
{
    if (op == SY_OP_GATE || op == SY_OP_GATE_GRAD)
        kh_begin(k, op, &s->gate, sizeof s->gate);
    else
        kh_begin(k, op, &s->group, sizeof s->group);
    k->wild = wild;
}

static void build(struct kh *k, int op, const struct shape *s, const struct kh *route, int wild)
{
    int groups = groups_of(s);
    begin_op(k, op, s, wild);
    switch (op) {
    case SY_OP_GATE: copy_in(k, &route->in[0], route->in[0].data); break;
    case SY_OP_GATE_GRAD: kh_in(k, SY_F32, 3, s->rows, s->tokens, s->selected); break;
    case SY_OP_DISPATCH: kh_in(k, SY_F32, 3, s->rows, s->tokens, s->dim); break;
    default: add_buffer(k, s, route);
    }
    add_choices(k, route);
    if (op == SY_OP_GATE_GRAD) copy_in(k, &route->in[0], route->in[0].data);
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

static void build_loss(struct kh *k, int op, const struct shape *s, const struct kh *route, int wild)
{
    int groups = groups_of(s);
    begin_op(k, op, s, wild);
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

static void build_places(struct kh *k, const struct shape *s, const struct kh *route)
{
    begin_op(k, SY_OP_RAGGED_PLACES, s, 0);
    add_choices(k, route);
    copy_in(k, &route->out[3], route->want[3]);
    for (int out = 0; out < 2; out++) kh_out(k, SY_I32, 3, s->rows, s->tokens, s->selected);
    kh_out(k, SY_I32, 2, s->experts, groups_of(s));
}

static void check_all_ops(const struct shape *s, int wild)
{
    static const int ops[] = {SY_OP_GATE,          SY_OP_GATE_GRAD, SY_OP_DISPATCH,
                              SY_OP_DISPATCH_GRAD, SY_OP_COMBINE,   SY_OP_COMBINE_GRAD};
    struct sy_attr_route attr;
    struct kh route, k;
    route_of(&route, s, &attr);
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
        build(&k, ops[o], s, &route, wild);
        kh_check(&k, "moving tokens");
        kh_end(&k);
    }
    for (int op = SY_OP_ROUTER_LOSS; op <= SY_OP_ROUTER_LOSS_GRAD; op++) {
        build_loss(&k, op, s, &route, wild);
        kh_check(&k, "router loss");
        kh_end(&k);
    }
    build_places(&k, s, &route);
    kh_check(&k, "ragged places");
    kh_end(&k);
    kh_end(&route);
}

Test(moe_kernels, variants_equal_the_reference)
{
    for (int i = 0; i < 60; i++) {
        struct shape s = random_shape();
        check_all_ops(&s, i % 3 == 0 ? 0 : i % 3 == 1 ? -20 : 5);
    }
}

/* More experts, tokens and columns than the threads that take them at once; buffers over 8 MiB whose rows are whole cache
 * lines, so that their zeros go past the caches, and others. */
Test(moe_kernels, large_groups_equal_the_reference)
{
    static const int dims[] = {1100, 301, 1088};
    for (int i = 0; i < 3; i++) {
        struct shape s = {.rows = 4,
                          .tokens = 35,
                          .experts = 70,
                          .selected = 3,
                          .dim = dims[i],
                          .capacity = 9,
                          .levels = 1 << 20,
                          .masked = 1,
                          .group = {i < 2 ? 2 : 1},
                          .gate = {i % 2}};
        check_all_ops(&s, -20);
    }
}

/* Each kept token comes back as it was, times the sum of its gates; empty slots are zero. */
Test(moe_kernels, combine_undoes_dispatch)
{
    for (int i = 0; i < 100; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct kh route, there, back;
        route_of(&route, &s, &attr);
        build(&there, SY_OP_DISPATCH, &s, &route, 0);
        kh_reference(&there, "dispatch");
        build(&back, SY_OP_COMBINE, &s, &route, 0);
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

/* The kept choices of a group take its first places, each one, those of an expert one after the other in the
 * order of their slots; the others have none. */
Test(moe_kernels, ragged_places_have_no_gaps)
{
    for (int i = 0; i < 100; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct kh route, k;
        route_of(&route, &s, &attr);
        build_places(&k, &s, &route);
        kh_check(&k, "ragged places");
        const int32_t *expert = route.want[0], *slot = route.want[1], *kept = route.want[3];
        const int32_t *none = k.want[0], *place = k.want[1], *first = k.want[2];
        int choices = (int)s.group.group_rows * s.tokens * s.selected, groups = groups_of(&s);
        for (int group = 0, at = 0; group < groups; group++) {
            int taken[3 * 12 * 3] = {0}, all = 0, n_taken = 0;
            for (int e = 0; e < s.experts; e++) all += kept[e * groups + group];
            for (int e = 0, sum = 0; e < s.experts; sum += kept[e++ * groups + group])
                cr_assert_eq(first[e * groups + group], sum);
            for (int n = 0; n < choices; n++, at++) {
                cr_assert_eq(none[at], 0);
                cr_assert_eq(place[at], slot[at] < 0 ? -1 : first[expert[at] * groups + group] + slot[at]);
                if (place[at] < 0) continue;
                cr_assert(place[at] < all && !taken[place[at]]++, "place %d of %d", place[at], all);
                n_taken++;
            }
            cr_assert_eq(n_taken, all);
        }
        kh_end(&k);
        kh_end(&route);
    }
}

/* A uniform router that chooses every expert equally often has balance 1 a token; z is the sum of lse^2. */
Test(moe_kernels, router_loss_of_known_cases)
{
    struct shape s = {.rows = 2, .tokens = 4, .experts = 4, .selected = 1, .group = {2}};
    struct kh k;
    begin_op(&k, SY_OP_ROUTER_LOSS, &s, 0);
    float *p = kh_in(&k, SY_F32, 3, s.rows, s.tokens, s.experts),
          *lse = kh_in(&k, SY_F32, 2, s.rows, s.tokens);
    int32_t *chosen = kh_in(&k, SY_I32, 2, s.experts, 1);
    float *mask = kh_in(&k, SY_F32, 2, s.rows, s.tokens);
    kh_out(&k, SY_F32, 1, 1);
    kh_out(&k, SY_F32, 1, 1);
    for (int i = 0; i < 8; i++) {
        mask[i] = i == 0 || i == 2 || i == 3 || i == 6;
        lse[i] = mask[i] != 0 ? 2.0f : NAN; /* padding is not read */
        for (int e = 0; e < 4; e++) p[i * 4 + e] = mask[i] != 0 ? 0.25f : NAN;
    }
    for (int e = 0; e < 4; e++) chosen[e] = 1;
    kh_check(&k, "balance");
    cr_assert_float_eq(((float *)k.want[0])[0], 4, 1e-6);
    cr_assert_float_eq(((float *)k.want[1])[0], 16, 1e-6);
    for (int i = 0; i < 8; i++) mask[i] = 0;
    kh_check(&k, "no tokens");
    cr_assert_eq(((float *)k.want[0])[0], 0);
    cr_assert_eq(((float *)k.want[1])[0], 0);
    kh_end(&k);
}

/* A row shorter than 16 has one token a lane, so its sum is the tree of the lanes. */
Test(moe_kernels, router_loss_adds_in_the_documented_order)
{
    for (int i = 0; i < 100; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct kh route, k;
        route_of(&route, &s, &attr);
        build_loss(&k, SY_OP_ROUTER_LOSS, &s, &route, 0);
        kh_reference(&k, "router_loss");
        for (int group = 0; group < groups_of(&s); group++) {
            float z = 0;
            for (int row = group * (int)s.group.group_rows; row < (group + 1) * s.group.group_rows; row++) {
                float lane[16] = {0};
                for (int t = 0; t < s.tokens; t++) {
                    float lse = ((float *)k.in[1].data)[row * s.tokens + t];
                    lane[t] = is_real(&route, row * s.tokens + t) ? lse * lse : 0;
                }
                for (int step = 8; step >= 1; step /= 2)
                    for (int l = 0; l < step; l++) lane[l] += lane[l + step];
                z += lane[0];
            }
            cr_assert_eq(((float *)k.want[1])[group], z);
        }
        kh_end(&route);
        kh_end(&k);
    }
}

/* ---- gradients: operands widened to double ---- */

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
    struct kh route, k, g;
    struct doubles d, b;
    route_of(&route, s, &attr);
    build(&k, op, s, &route, 0);
    build(&g, grad_op, s, &route, 0);
    if (op == SY_OP_GATE) /* far from a sum of 0, where a normalised gate bends sharply */
        for (int64_t i = 0; i < sycpu_count(&k.in[0]); i++)
            ((float *)k.in[0].data)[i] += 0.5f, ((float *)g.in[3].data)[i] += 0.5f;
    if (op == SY_OP_COMBINE)
        for (int i = 0; i < 4; i++) memcpy(g.in[i].data, k.in[i].data, kh_bytes(&k.in[i]));
    doubles_begin(&d, &k, NULL);
    doubles_begin(&b, &g, NULL);
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
    struct kh route, k, g;
    struct doubles d, b;
    route_of(&route, s, &attr);
    build(&k, SY_OP_DISPATCH, s, &route, 0);
    build(&g, SY_OP_DISPATCH_GRAD, s, &route, 0);
    doubles_begin(&d, &k, NULL);
    doubles_begin(&b, &g, NULL);
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
    struct kh route, k, g;
    struct doubles d, b;
    route_of(&route, s, &attr);
    build_loss(&k, SY_OP_ROUTER_LOSS, s, &route, 0);
    build_loss(&g, SY_OP_ROUTER_LOSS_GRAD, s, &route, 0);
    memcpy(g.in[0].data, k.in[1].data, kh_bytes(&k.in[1]));
    doubles_begin(&d, &k, sycpu_ref64_router_loss_workspace);
    doubles_begin(&b, &g, NULL);
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
