/* SPDX-License-Identifier: Apache-2.0 */
/* Both routers against an oracle: the words of doc/numerics.md as they stand, every place counted anew for
 * every choice. Then what must hold of any routing, and regrouping. */
#include "config.h"

#include "routing_case.h"

/* ---- the oracle ---- */

/* One group of a routing call. */
struct oracle {
    const struct shape *s;
    const struct kh *call;
    const float *p, *bias; /* probabilities; bias may be NULL */
    int first, end;        /* tokens of the group in [b, t] */
};

static struct oracle oracle_of(const struct kh *call, const struct shape *s, int group)
{
    int tokens = (int)s->group.group_rows * s->tokens;
    struct oracle o = {s, call, call->in[0].data, NULL, group * tokens, (group + 1) * tokens};
    if (call->op == SY_OP_ROUTE) o.bias = call->in[2].data;
    return o;
}

static int real_tokens(const struct oracle *o)
{
    int n = 0;
    for (int i = o->first; i < o->end; i++) n += is_real(o->call, i);
    return n;
}

static int capacity_of(const struct oracle *o)
{
    double exact = o->s->factor * real_tokens(o) / o->s->experts, whole = floor(exact);
    if (o->s->factor <= 0) return o->s->capacity;
    if (exact - whole > 0.5 || (exact - whole == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    if (whole < o->s->min_capacity) whole = o->s->min_capacity;
    return whole < o->s->capacity ? (int)whole : o->s->capacity;
}

static float score(const struct oracle *o, int token, int e)
{
    float p = o->p[token * o->s->experts + e];
    return o->bias ? p + o->bias[e] : p;
}

/* Which choice of a token an expert is: how many others it likes better. */
static int choice_of(const struct oracle *o, int token, int e)
{
    int better = 0;
    for (int other = 0; other < o->s->experts; other++)
        better += score(o, token, other) > score(o, token, e) ||
                  (score(o, token, other) == score(o, token, e) && other < e);
    return better;
}

static float first_probability(const struct oracle *o, int token)
{
    int e = 0;
    while (choice_of(o, token, e) != 0) e++;
    return o->p[token * o->s->experts + e];
}

/* Whether token a is served before token b. */
static int served_before(const struct oracle *o, int a, int b)
{
    float pa = o->s->prioritized ? first_probability(o, a) : 0,
          pb = o->s->prioritized ? first_probability(o, b) : 0;
    return pa > pb || (pa == pb && a < b);
}

/* How many choices of expert e are served before that of a token. */
static int place_in_line(const struct oracle *o, int token, int e)
{
    int ahead = 0, choice = choice_of(o, token, e);
    for (int other = o->first; other < o->end; other++) {
        if (!is_real(o->call, other) || other == token) continue;
        int theirs = choice_of(o, other, e);
        if (theirs >= o->s->selected) continue;
        ahead += theirs < choice || (theirs == choice && served_before(o, other, token));
    }
    return ahead;
}

/* How many real tokens an expert likes better. */
static int place_with_expert(const struct oracle *o, int token, int e)
{
    int ahead = 0, experts = o->s->experts;
    for (int other = o->first; other < o->end; other++)
        ahead += is_real(o->call, other) &&
                 (o->p[other * experts + e] > o->p[token * experts + e] ||
                  (o->p[other * experts + e] == o->p[token * experts + e] && other < token));
    return ahead;
}

/* ---- the routers against it ---- */

static void check_route_token(const struct oracle *o, int token, int capacity)
{
    const int32_t *expert = o->call->want[0], *slot = o->call->want[1];
    for (int e = 0; e < o->s->experts; e++) {
        int choice = choice_of(o, token, e), at = token * o->s->selected + choice;
        if (choice >= o->s->selected) continue;
        int place = place_in_line(o, token, e);
        cr_assert_eq(expert[at], e);
        cr_assert_eq(slot[at], place < capacity ? place : -1);
    }
}

static void check_experts_token(const struct oracle *o, int token, int capacity)
{
    const int32_t *expert = o->call->want[0], *slot = o->call->want[1];
    for (int e = 0; e < o->s->experts; e++) {
        int at = token * o->s->experts + e, place = place_with_expert(o, token, e);
        cr_assert_eq(expert[at], place < capacity ? e : -1);
        cr_assert_eq(slot[at], place < capacity ? place : -1);
    }
}

/* Padding has no expert and no slot. */
static void check_padding(const struct kh *call, int token)
{
    int64_t choices = call->out[0].dim[2];
    for (int64_t at = token * choices; at < (token + 1) * choices; at++) {
        cr_assert_eq(((int32_t *)call->want[0])[at], -1);
        cr_assert_eq(((int32_t *)call->want[1])[at], -1);
    }
}

static void check_oracle(const struct kh *call, const struct shape *s)
{
    for (int group = 0; group < groups_of(s); group++) {
        struct oracle o = oracle_of(call, s, group);
        for (int token = o.first; token < o.end; token++) {
            if (!is_real(call, token))
                check_padding(call, token);
            else if (call->op == SY_OP_ROUTE)
                check_route_token(&o, token, capacity_of(&o));
            else
                check_experts_token(&o, token, capacity_of(&o));
        }
    }
}

/* Counts are those of the choices; slots are 0 .. kept - 1, each given once; nothing is lost. */
static void check_counts(const struct kh *call, const struct shape *s)
{
    const int32_t *expert = call->want[0], *slot = call->want[1], *chosen = call->want[2],
                  *kept = call->want[3];
    int choices = (int)call->out[0].dim[2], groups = groups_of(s);
    for (int group = 0; group < groups; group++) {
        struct oracle o = oracle_of(call, s, group);
        int asked[8] = {0}, given[8] = {0}, taken[8][64] = {{0}}, all = 0, n = real_tokens(&o);
        for (int at = o.first * choices; at < o.end * choices; at++) {
            if (expert[at] < 0) continue;
            asked[expert[at]]++;
            if (slot[at] < 0) continue;
            cr_assert_lt(slot[at], s->capacity);
            cr_assert_eq(taken[expert[at]][slot[at]]++, 0, "two tokens in a slot");
            given[expert[at]]++;
        }
        for (int e = 0; e < s->experts; e++) {
            cr_assert_eq(chosen[e * groups + group], asked[e]);
            cr_assert_eq(kept[e * groups + group], given[e]);
            cr_assert_eq(given[e], asked[e] < capacity_of(&o) ? asked[e] : capacity_of(&o));
            for (int i = 0; i < given[e]; i++) cr_assert_eq(taken[e][i], 1);
            all += asked[e];
        }
        int each = capacity_of(&o) < n ? capacity_of(&o) : n; /* of an expert that chooses */
        cr_assert_eq(all, call->op == SY_OP_ROUTE ? n * s->selected : each * s->experts);
    }
}

static void check_router(int op, int i)
{
    struct shape s = random_shape();
    struct sy_attr_route attr = route_attr(&s);
    struct sy_attr_route_experts experts_attr = route_experts_attr(&s);
    struct kh k;
    if (op == SY_OP_ROUTE)
        add_route(&k, op, &s, &attr, sizeof attr);
    else
        add_route(&k, op, &s, &experts_attr, sizeof experts_attr);
    if (i % 10)
        kh_reference(&k, "routing");
    else
        kh_check(&k, "routing with threads");
    check_oracle(&k, &s);
    check_counts(&k, &s);
    kh_end(&k);
}

Test(routing, tokens_choose_as_the_oracle)
{
    for (int i = 0; i < 2000; i++) check_router(SY_OP_ROUTE, i);
}

Test(routing, experts_choose_as_the_oracle)
{
    for (int i = 0; i < 2000; i++) check_router(SY_OP_ROUTE_EXPERTS, i);
}

/* ---- groups larger than what a block of a device takes at once ---- */

static void check_large(int op, struct shape s)
{
    struct sy_attr_route attr = route_attr(&s);
    struct sy_attr_route_experts experts_attr = route_experts_attr(&s);
    struct kh k;
    if (op == SY_OP_ROUTE)
        add_route(&k, op, &s, &attr, sizeof attr);
    else
        add_route(&k, op, &s, &experts_attr, sizeof experts_attr);
    kh_check(&k, "a large group");
    kh_end(&k);
}

/* Many tokens, in their order and by priority, with many equals and with few; many experts. */
Test(routing, large_groups_tokens_choose)
{
    struct shape s = {.rows = 4, .tokens = 600, .experts = 70, .selected = 3, .capacity = 90, .group = {2}};
    for (int i = 0; i < 4; i++) {
        s.prioritized = i % 2;
        s.biased = s.masked = 1;
        s.levels = i / 2 ? 3 : 1 << 20;
        s.factor = i % 2 ? 1.25 : 0;
        check_large(SY_OP_ROUTE, s);
    }
    check_large(SY_OP_ROUTE, (struct shape){.rows = 2,
                                            .tokens = 40,
                                            .experts = 6000,
                                            .selected = 2,
                                            .capacity = 1,
                                            .levels = 1 << 20,
                                            .group = {1}});
}

Test(routing, large_groups_experts_choose)
{
    struct shape s = {.rows = 4, .tokens = 600, .experts = 5, .group = {2}};
    for (int i = 0; i < 4; i++) {
        s.capacity = i % 2 ? 90 : 1100;
        s.masked = i < 2;
        s.levels = i == 1 || i == 2 ? 3 : 1 << 20;
        check_large(SY_OP_ROUTE_EXPERTS, s);
    }
    check_large(
        SY_OP_ROUTE_EXPERTS,
        (struct shape){
            .rows = 1, .tokens = 9000, .experts = 2, .capacity = 50, .levels = 5, .masked = 1, .group = {1}});
}

/* ---- columns of padding change nothing ---- */

/* A router's or router_loss's operand with columns of junk after the tokens. */
static void widen(struct kh *k, const struct sy_tensor *t, const void *data, int columns)
{
    int64_t inner = sycpu_count(t) / (t->dim[0] * t->dim[1]), wide = (t->dim[1] + columns) * inner,
            row = t->dim[1] * inner;
    float *to = kh_in(k, SY_F32, t->rank, (int)t->dim[0], (int)t->dim[1] + columns, (int)t->dim[2]);
    for (int64_t b = 0; b < t->dim[0]; b++)
        memcpy(to + b * wide, (const float *)data + b * row, (size_t)row * sizeof *to);
}

static void mask_columns(struct kh *k, int operand, int tokens)
{
    float *mask = k->in[operand].data;
    for (int64_t i = 0; i < sycpu_count(&k->in[operand]); i++)
        if (i % k->in[operand].dim[1] >= tokens) mask[i] = 0;
}

static void check_wider_route(int op)
{
    struct shape s = random_shape();
    struct sy_attr_route attr = route_attr(&s);
    struct sy_attr_route_experts experts_attr = route_experts_attr(&s);
    const void *a = op == SY_OP_ROUTE ? (const void *)&attr : &experts_attr;
    size_t bytes = op == SY_OP_ROUTE ? sizeof attr : sizeof experts_attr;
    int columns = 1 + (int)(kh_random() % 20), choices = op == SY_OP_ROUTE ? s.selected : s.experts;
    struct kh k, wide;
    s.masked = 1;
    add_route(&k, op, &s, a, bytes);
    kh_reference(&k, "narrow");
    kh_begin(&wide, op, a, bytes);
    widen(&wide, &k.in[0], k.in[0].data, columns);
    widen(&wide, &k.in[1], k.in[1].data, columns);
    mask_columns(&wide, 1, s.tokens);
    if (op == SY_OP_ROUTE) copy_in(&wide, &k.in[2], k.in[2].data);
    for (int i = 0; i < 2; i++) kh_out(&wide, SY_I32, 3, s.rows, s.tokens + columns, choices);
    for (int i = 0; i < 2; i++) kh_out(&wide, SY_I32, 2, s.experts, groups_of(&s));
    kh_reference(&wide, "wide");
    for (int i = 0; i < 2; i++) {
        size_t row = (size_t)(s.tokens * choices) * 4, stride = (size_t)((s.tokens + columns) * choices) * 4;
        for (int b = 0; b < s.rows; b++)
            cr_assert_eq(memcmp((char *)k.want[i] + b * row, (char *)wide.want[i] + b * stride, row), 0);
        cr_assert_eq(memcmp(k.want[2 + i], wide.want[2 + i], kh_bytes(&k.out[2 + i])), 0);
    }
    kh_end(&k);
    kh_end(&wide);
}

static void check_wider_loss(void)
{
    struct shape s = random_shape();
    struct sy_attr_route attr;
    int columns = 1 + (int)(kh_random() % 20);
    struct kh route, k, wide;
    s.masked = 1;
    route_of(&route, &s, &attr);
    kh_begin(&k, SY_OP_ROUTER_LOSS, &s.group, sizeof s.group);
    copy_in(&k, &route.in[0], route.in[0].data);
    kh_in(&k, SY_F32, 2, s.rows, s.tokens);
    copy_in(&k, &route.out[2], route.want[2]);
    copy_in(&k, &route.in[1], route.in[1].data);
    kh_begin(&wide, SY_OP_ROUTER_LOSS, &s.group, sizeof s.group);
    widen(&wide, &k.in[0], k.in[0].data, columns);
    widen(&wide, &k.in[1], k.in[1].data, columns);
    copy_in(&wide, &k.in[2], k.in[2].data);
    widen(&wide, &k.in[3], k.in[3].data, columns);
    mask_columns(&wide, 3, s.tokens);
    for (int i = 0; i < 2; i++) {
        kh_out(&k, SY_F32, 1, groups_of(&s));
        kh_out(&wide, SY_F32, 1, groups_of(&s));
    }
    kh_reference(&k, "narrow");
    kh_reference(&wide, "wide");
    for (int i = 0; i < 2; i++) cr_assert_eq(memcmp(k.want[i], wide.want[i], kh_bytes(&k.out[i])), 0);
    kh_end(&route);
    kh_end(&k);
    kh_end(&wide);
}

Test(routing, columns_of_padding_change_no_bit)
{
    for (int i = 0; i < 300; i++) {
        check_wider_route(SY_OP_ROUTE);
        check_wider_route(SY_OP_ROUTE_EXPERTS);
        check_wider_loss();
    }
}

/* ---- an expert without tokens ---- */

Test(routing, an_expert_may_get_no_token)
{
    for (int i = 0; i < 200; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr = route_attr(&s);
        struct kh k, loss;
        int idle = (int)(kh_random() % (uint32_t)s.experts), groups = groups_of(&s);
        if (s.selected == s.experts) continue;
        s.biased = 0;
        add_route(&k, SY_OP_ROUTE, &s, &attr, sizeof attr);
        for (int token = 0; token < s.rows * s.tokens; token++)
            ((float *)k.in[0].data)[token * s.experts + idle] = 0;
        kh_reference(&k, "route");
        kh_begin(&loss, SY_OP_ROUTER_LOSS, &s.group, sizeof s.group);
        copy_in(&loss, &k.in[0], k.in[0].data);
        kh_in(&loss, SY_F32, 2, s.rows, s.tokens);
        copy_in(&loss, &k.out[2], k.want[2]);
        copy_in(&loss, &k.in[1], k.in[1].data);
        kh_out(&loss, SY_F32, 1, groups);
        kh_out(&loss, SY_F32, 1, groups);
        kh_check(&loss, "router_loss");
        for (int g = 0; g < groups; g++) {
            cr_assert_eq(((int32_t *)k.want[2])[idle * groups + g], 0);
            cr_assert_eq(((int32_t *)k.want[3])[idle * groups + g], 0);
            cr_assert(isfinite(((float *)loss.want[0])[g]));
        }
        kh_end(&loss);
        kh_end(&k);
    }
}

/* ---- kept tokens, gates ---- */

Test(routing, kept_tokens_are_counted)
{
    for (int i = 0; i < 100; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct kh route, k;
        route_of(&route, &s, &attr);
        kh_begin(&k, SY_OP_KEPT_TOKENS, NULL, 0);
        copy_in(&k, &route.out[1], route.want[1]);
        kh_out(&k, SY_I32, 2, 1, s.rows);
        kh_check(&k, "kept_tokens");
        for (int row = 0; row < s.rows; row++) {
            int kept = 0;
            for (int token = row * s.tokens; token < (row + 1) * s.tokens; token++) {
                int best = -1;
                for (int j = 0; j < s.selected; j++) {
                    int32_t slot = ((int32_t *)route.want[1])[token * s.selected + j];
                    if (slot > best) best = slot;
                }
                kept += best >= 0;
            }
            cr_assert_eq(((int32_t *)k.want[0])[row], kept);
        }
        kh_end(&route);
        kh_end(&k);
    }
}

/* The gates of a token sum to 1 where nothing was dropped, else to less; a lone choice is exactly 1. */
Test(routing, normalized_gates_sum_to_one)
{
    for (int i = 0; i < 200; i++) {
        struct shape s = random_shape();
        struct sy_attr_route attr;
        struct sy_attr_gate normalize = {1};
        struct kh route, k;
        route_of(&route, &s, &attr);
        kh_begin(&k, SY_OP_GATE, &normalize, sizeof normalize);
        copy_in(&k, &route.in[0], route.in[0].data);
        copy_in(&k, &route.out[0], route.want[0]);
        copy_in(&k, &route.out[1], route.want[1]);
        kh_out(&k, SY_F32, 3, s.rows, s.tokens, s.selected);
        kh_check(&k, "gate");
        for (int token = 0; token < s.rows * s.tokens; token++) {
            const int32_t *slot = (int32_t *)route.want[1] + token * s.selected;
            const float *gate = (float *)k.want[0] + token * s.selected;
            int kept = 0;
            double sum = 0;
            for (int j = 0; j < s.selected; j++) {
                kept += slot[j] >= 0;
                sum += gate[j];
                cr_assert(slot[j] >= 0 || gate[j] == 0);
            }
            if (kept == s.selected) cr_assert_float_eq(sum, 1, s.selected == 1 ? 0 : 1e-6);
            if (kept < s.selected) cr_assert_lt(sum, 1);
        }
        kh_end(&route);
        kh_end(&k);
    }
}

/* ---- regroup, ungroup ---- */

static void check_regroup(int rank)
{
    int b = 1 + (int)(kh_random() % 4), t = 1 + (int)(kh_random() % 5), d = 1 + (int)(kh_random() % 9);
    int rows = b + (int)(kh_random() % 3), length = t + (int)(kh_random() % 3), groups = rows * length;
    while (rows * length % groups || kh_random() % 3) groups = groups > 1 ? groups - 1 : rows * length;
    struct sy_attr_regroup attr = {rows, length};
    struct kh there, back;
    kh_begin(&there, SY_OP_REGROUP, &attr, sizeof attr);
    kh_in(&there, SY_F32, rank, b, t, d);
    kh_out(&there, SY_F32, rank, groups, rows * length / groups, d);
    kh_check(&there, "regroup");
    int64_t width = rank == 3 ? d : 1;
    for (int64_t i = 0; i < rows * length * width; i++) {
        int64_t row = i / width / length, at = i / width % length;
        float want = row < b && at < t ? ((float *)there.in[0].data)[(row * t + at) * width + i % width] : 0;
        cr_assert_eq(((float *)there.want[0])[i], want);
    }
    kh_begin(&back, SY_OP_UNGROUP, &attr, sizeof attr);
    copy_in(&back, &there.out[0], there.want[0]);
    kh_out(&back, SY_F32, rank, b, t, d);
    kh_check(&back, "ungroup");
    cr_assert_eq(memcmp(back.want[0], there.in[0].data, kh_bytes(&there.in[0])), 0);
    kh_end(&there);
    kh_end(&back);
}

Test(routing, ungroup_undoes_regroup)
{
    for (int i = 0; i < 300; i++) check_regroup(2 + i % 2);
}
