/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of every op against central finite differences in double, and what is refused. How a case is
 * checked stands in gradient_case.h; the whole model is in test_model.c, the bits of kernels in the tests of
 * kernels. */
#include "config.h"

#include "gradient_case.h"
#include "program/op_rules.h"

/* ---- the table ---- */

Test(gradients, every_op_has_a_rule_or_says_that_nothing_flows)
{
    for (int op = 0; op < SY_OP_COUNT; op++)
        cr_expect_neq(syi_op_rules(op)->grad != NULL, syi_op_has_flag(op, 'Z'), "%s", syi_op_info(op)->name);
}

/* ---- maps ---- */

Test(gradients, maps_of_one_operand)
{
    static const struct {
        int op;
        double s;
    } maps[] = {{SY_MAP_COPY, 0}, {SY_MAP_ADDS, 0.5}, {SY_MAP_MULS, -1.7}, {SY_MAP_NEG, 0}};
    for (size_t i = 0; i < SYI_COUNT(maps); i++) {
        struct testcase c = begin();
        int x = real(&c, "btd", 2, 3, 4);
        check(&c, "map of one operand", syi_map1(c.p, maps[i].op, x, maps[i].s));
    }
}

Test(gradients, maps_of_two_operands)
{
    static const int maps[] = {SY_MAP_ADD, SY_MAP_SUB, SY_MAP_MUL};
    for (size_t i = 0; i < SYI_COUNT(maps); i++) {
        struct testcase c = begin();
        int x = real(&c, "btd", 2, 3, 4), y = real(&c, "btd", 2, 3, 4);
        check(&c, "map of two operands", syi_map2(c.p, maps[i], x, y));
    }
}

Test(gradients, a_scalar_divides_and_multiplies)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 2, 3, 4), s = fixed(&c, "n", 1);
    int y = syi_map2(c.p, SY_MAP_DIV, x, s);
    check(&c, "scalar", syi_map2(c.p, SY_MAP_MUL, y, s));
}

/* Contributions of several readers add up; an operand may be named twice. */
Test(gradients, a_tensor_is_read_several_times)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 2, 3, 4), y = syi_map2(c.p, SY_MAP_MUL, x, x);
    int z = syi_map2(c.p, SY_MAP_SUB, syi_map2(c.p, SY_MAP_MUL, y, x), syi_map2(c.p, SY_MAP_ADD, y, y));
    check_n(&c, "several readers", 3, (int[]){y, z, syi_map2(c.p, SY_MAP_ADD, z, x)});
}

Test(gradients, activations)
{
    for (int activation = SY_RELU; activation <= SY_SILU; activation++) {
        struct testcase c = begin();
        check(&c, "activation", syi_activation(c.p, real(&c, "btd", 2, 3, 6), activation));
    }
}

Test(gradients, dropout)
{
    struct testcase c = begin();
    int state = rng(&c), x = real(&c, "btd", 4, 3, 20);
    check(&c, "dropout", syi_dropout(c.p, x, state, 5, 0.4));
    c = begin();
    state = rng(&c), x = real(&c, "egcm", 2, 2, 3, 20);
    check(&c, "dropout in experts", syi_dropout(c.p, x, state, 5, 0.4));
}

/* ---- pack, unpack, sums ---- */

Test(gradients, pack)
{
    struct testcase c = begin();
    int parts[3] = {real(&c, "dh", 6, 4), real(&c, "dh", 6, 4), real(&c, "dh", 6, 4)};
    check(&c, "pack of three", syi_pack(c.p, 3, parts));
    c = begin();
    int gated[2] = {real(&c, "edm", 2, 4, 6), real(&c, "edm", 2, 4, 6)};
    check(&c, "pack of two", syi_pack(c.p, 2, gated));
    c = begin();
    int wide[2] = {real(&c, "bth", 2, 3, 4), real(&c, "bth", 2, 3, 8)};
    check(&c, "pack of unequal parts", syi_pack(c.p, 2, wide));
}

Test(gradients, unpack)
{
    for (int used = 1; used <= 3; used++) { /* parts that take part: the first, the second, both */
        struct testcase c = begin();
        int packed = real(&c, "bth", 2, 3, 12),
            like[2] = {fixed(&c, "bth", 2, 3, 4), fixed(&c, "bth", 2, 3, 8)};
        int parts[2], y[2], n = 0;
        cr_assert_geq(syi_unpack(c.p, packed, 2, like, parts), 0);
        if (used & 1) y[n++] = parts[0];
        if (used & 2) y[n++] = parts[1];
        check_n(&c, "unpack", n, y);
    }
}

/* Whether an element of [.., 12] belongs to the first part of 4: two leaves, of 2 and 4 elements each. */
static int is_used(int64_t i)
{
    return i % 6 < 2;
}

/* A part that nothing flows to has the gradient 0, whatever its values are. */
Test(gradients, a_part_that_is_not_used_may_hold_nan)
{
    struct testcase c = begin();
    int packed = real(&c, "bth", 2, 3, 12), like[2] = {fixed(&c, "bth", 2, 3, 4), fixed(&c, "bth", 2, 3, 8)};
    int parts[2];
    cr_assert_geq(syi_unpack(c.p, packed, 2, like, parts), 0);
    differentiate(&c, "unpack", scalar_of(&c, 1, parts));
    ms_open(&c.m, 1);
    ms_add(&c.m, c.p);
    ms_bind(&c.m);
    fill(&c);
    const struct sy_tensor *x = numbered(&c, 'x', 0), *dx = numbered(&c, 'd', 0);
    for (int64_t i = 0; i < ms_count(x); i++)
        if (!is_used(i)) ms_set(x, i, i % 2 ? (double)NAN : (double)INFINITY);
    run_loss(&c);
    for (int64_t i = 0; i < ms_count(x); i++)
        cr_expect(is_used(i) ? ms_get(dx, i) != 0 : ms_get(dx, i) == 0, "%d: %g", (int)i, ms_get(dx, i));
    ms_close(&c.m);
}

Test(gradients, totals)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 4, 3, 6), y = real(&c, "b", 6);
    int sums[2] = {syi_total(c.p, syi_map2(c.p, SY_MAP_MUL, x, x)),
                   syi_total(c.p, syi_map2(c.p, SY_MAP_MUL, y, y))};
    check_n(&c, "total", 2, sums);
}

/* ---- embedding, products, norm ---- */

static const int32_t some_ids[12] = {3, 0, 3,  9, 5, -1,
                                     3, 8, 10, 7, 3, 0}; /* of 10 rows: two ids are outside */

Test(gradients, embed)
{
    struct testcase c = begin();
    int ids = integers(&c, some_ids, "bt", 4, 3), table = real(&c, "vd", 10, 6);
    check(&c, "embed", SYI_RECORD(c.p, SY_OP_EMBED, NULL, ids, table));
}

Test(gradients, matmul)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 4, 3, 6), w = real(&c, "df", 6, 8);
    check(&c, "matmul", syi_matmul(c.p, x, w));
    c = begin();
    x = real(&c, "btf", 2, 3, 8), w = real(&c, "fd", 8, 6);
    check(&c, "matmul over leaves", syi_matmul(c.p, x, w));
    c = begin();
    x = real(&c, "btd", 4, 3, 6), w = real(&c, "vd", 8, 6);
    check(&c, "matmul_nt", syi_matmul_nt(c.p, x, w));
    c = begin();
    x = real(&c, "btf", 4, 3, 8), w = real(&c, "df", 6, 8);
    check(&c, "matmul_nt over leaves", syi_matmul_nt(c.p, x, w));
}

static const int32_t some_counts[8] = {3, 0, 1, 2, 3, 1, 0, 2}; /* slots of 3 in use, (expert, group) */

Test(gradients, grouped_matmul)
{
    struct testcase c = begin();
    int counts = integers(&c, some_counts, "eg", 2, 4), x = real(&c, "egcd", 2, 4, 3, 6);
    check(&c, "grouped_matmul", syi_grouped_matmul(c.p, x, real(&c, "edm", 2, 6, 8), counts));
    c = begin();
    counts = integers(&c, some_counts, "eg", 4, 2), x = real(&c, "egcm", 4, 2, 3, 8);
    check(&c, "grouped_matmul over leaves", syi_grouped_matmul(c.p, x, real(&c, "emd", 4, 8, 6), counts));
}

static const int32_t some_lengths[4] = {3, 0, 2, 5}; /* of 5 */

/* [rows, length] of 0 and 1. */
static int some_mask(struct testcase *c, int rows, int length)
{
    int w = fixed(c, "bt", rows, length);
    return syi_map2(c->p, SY_MAP_LESS, w,
                    syi_map1(c->p, SY_MAP_ADDS, syi_map1(c->p, SY_MAP_MULS, w, 0), 0.5));
}

Test(gradients, rms_norm)
{
    struct testcase c = begin();
    int mask = some_mask(&c, 4, 5), x = real(&c, "btd", 4, 5, 18);
    check(&c, "rms_norm", syi_rms_norm(c.p, x, real(&c, "d", 18), mask, 1e-6));
    c = begin();
    x = real(&c, "btd", 2, 3, 5);
    c.p->leaf_count[SYI_AXIS_EMBED] = 1;
    check(&c, "rms_norm without mask", syi_rms_norm(c.p, x, real(&c, "d", 5), -1, 0.3));
}

Test(gradients, rms_norm_of_one_operand)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 2, 3, 6);
    check(&c, "rms_norm, scale fixed", syi_rms_norm(c.p, x, fixed(&c, "d", 6), -1, 1e-6));
    c = begin();
    x = fixed(&c, "btd", 2, 3, 6);
    check(&c, "rms_norm, x fixed", syi_rms_norm(c.p, x, real(&c, "d", 6), -1, 1e-6));
}

Test(gradients, glu)
{
    for (int activation = SY_LINEAR; activation <= SY_SILU; activation++) {
        struct testcase c = begin();
        int state = rng(&c), x = real(&c, "btf", 4, 3, 24);
        check(&c, "glu with dropout", syi_glu(c.p, x, -1, state, -1, activation, 3, 0.3));
        c = begin();
        int counts = integers(&c, some_counts, "eg", 4, 2);
        x = real(&c, "egcm", 4, 2, 3, 24);
        check(&c, "glu with counts", syi_glu(c.p, x, -1, -1, counts, activation, 3, 0));
    }
    struct testcase c = begin();
    int state = rng(&c), counts = integers(&c, some_counts, "eg", 4, 2), x = real(&c, "egcm", 4, 2, 3, 24);
    check(&c, "glu with counts and dropout", syi_glu(c.p, x, -1, state, counts, SY_GELU, 3, 0.3));
    c = begin();
    state = rng(&c), counts = integers(&c, some_counts, "eg", 4, 2), x = real(&c, "egcm", 4, 2, 3, 12);
    int linear = real(&c, "egcm", 4, 2, 3, 12);
    check(&c, "glu of two tensors", syi_glu(c.p, x, linear, state, counts, SY_SILU, 3, 0.3));
    c = begin();
    x = fixed(&c, "btf", 4, 3, 12), linear = real(&c, "btf", 4, 3, 12);
    check(&c, "glu, gate fixed", syi_glu(c.p, x, linear, -1, -1, SY_GELU, 3, 0));
}

/* ---- attention ---- */

static const int32_t many_lengths[2] = {70, 66}; /* two blocks of keys */
static const int32_t other_lengths[4] = {7, 4, 0, 1};

Test(gradients, self_attention)
{
    for (int causal = 0; causal <= 1; causal++) {
        struct testcase c = begin();
        int state = rng(&c), x = real(&c, "bth", 4, 5, 3 * 12), lse;
        struct syi_attention a = SYI_NO_ATTENTION;
        a.q = a.kv = x;
        a.rng = state;
        a.heads = 4;
        a.head_dim = 3;
        a.bidirectional = !causal;
        a.causal = causal;
        a.max_distance = 16;
        a.site = 2;
        a.rate = 0.2;
        a.q_lengths = a.k_lengths = integers(&c, some_lengths, "b", 4);
        a.bias = real(&c, "hr", 4, 8);
        check(&c, causal ? "causal attention" : "self-attention", syi_attention(c.p, &a, &lse));
    }
}

Test(gradients, self_attention_over_blocks_of_keys)
{
    struct testcase c = begin();
    int x = real(&c, "bth", 2, 70, 3 * 8), lse;
    struct syi_attention a = SYI_NO_ATTENTION;
    a.q = a.kv = x;
    a.heads = 2;
    a.head_dim = 4;
    a.causal = 1;
    a.max_distance = 64;
    a.q_lengths = a.k_lengths = integers(&c, many_lengths, "b", 2);
    a.bias = real(&c, "hr", 2, 16);
    check(&c, "attention over blocks of keys", syi_attention(c.p, &a, &lse));
}

Test(gradients, cross_attention)
{
    for (int bias = 0; bias <= 1; bias++) {
        struct testcase c = begin();
        int state = rng(&c), lse;
        struct syi_attention a = SYI_NO_ATTENTION;
        a.q = real(&c, "bth", 4, 5, 8);
        a.kv = real(&c, "bth", 4, 7, 2 * 8);
        a.rng = state;
        a.heads = 2;
        a.head_dim = 4;
        a.bidirectional = 1;
        a.max_distance = 16;
        a.site = 2;
        a.rate = 0.2;
        a.q_lengths = integers(&c, some_lengths, "b", 4);
        a.k_lengths = integers(&c, other_lengths, "b", 4);
        if (bias) a.bias = real(&c, "hr", 2, 8);
        check(&c, bias ? "cross-attention with bias" : "cross-attention", syi_attention(c.p, &a, &lse));
    }
}

/* ---- softmax and loss ---- */

Test(gradients, softmax)
{
    for (int used = 1; used <= 3; used++) { /* outputs that take part: probabilities, lse, both */
        struct testcase c = begin();
        int lse, y[2], n = 0, p = syi_softmax(c.p, real(&c, "btu", 2, 3, 19), &lse);
        if (used & 1) y[n++] = p;
        if (used & 2) y[n++] = lse;
        check_n(&c, "softmax", n, y);
    }
}

static const int32_t some_targets[12] = {3, 0, 17, 9, 5, -1, 3, 8, 18, 7, 3, 0}; /* of 18: two are outside */

Test(gradients, xent)
{
    static const double smoothing[] = {0, 0.1}, z_loss[] = {0, 0.05};
    for (int i = 0; i < 4; i++) {
        struct testcase c = begin();
        int targets = integers(&c, some_targets, "bt", 4, 3), logits = real(&c, "btv", 4, 3, 18);
        int weights = fixed(&c, "bt", 4, 3);
        check(&c, "xent", syi_xent(c.p, logits, targets, weights, smoothing[i % 2], z_loss[i / 2]).loss);
    }
}

/* Positions without weight are not read. */
Test(gradients, xent_without_weights)
{
    struct testcase c = begin();
    int targets = integers(&c, some_targets, "bt", 4, 3), logits = real(&c, "btv", 4, 3, 18);
    int half = some_mask(&c, 4, 3);
    check(&c, "xent, weights 0 and 1", syi_xent(c.p, logits, targets, half, 0.1, 0.05).loss);
}

/* ---- experts ---- */

static struct syi_routing route(struct testcase *c, int probabilities, int mask, int prioritized)
{
    struct sy_attr_route attr = {.selected = 2,
                                 .group_rows = 1,
                                 .capacity = 4,
                                 .capacity_factor = 1.0,
                                 .min_capacity = 1,
                                 .prioritized = prioritized};
    return syi_route(c->p, probabilities, mask, -1, &attr);
}

Test(gradients, gate)
{
    for (int i = 0; i < 4; i++) {
        int prioritized = i & 1, normalize = i >> 1;
        struct testcase c = begin();
        int mask = some_mask(&c, 4, 5), p = real(&c, "btu", 4, 5, 4);
        struct syi_routing r = route(&c, p, mask, prioritized);
        check(&c, "gate",
              SYI_RECORD(c.p, SY_OP_GATE, &(struct sy_attr_gate){normalize}, p, r.expert, r.slot));
    }
}

Test(gradients, dispatch)
{
    struct testcase c = begin();
    int mask = some_mask(&c, 4, 5), x = real(&c, "btd", 4, 5, 6);
    struct syi_routing r = route(&c, fixed(&c, "btu", 4, 5, 4), mask, 0);
    check(&c, "dispatch", syi_dispatch(c.p, x, r.expert, r.slot, 4, 4, 1));
}

Test(gradients, combine)
{
    struct testcase c = begin();
    int mask = some_mask(&c, 4, 5), buffer = real(&c, "egcd", 4, 4, 4, 6);
    struct syi_routing r = route(&c, fixed(&c, "btu", 4, 5, 4), mask, 0);
    check(&c, "combine", syi_combine(c.p, buffer, r.expert, r.slot, real(&c, "btk", 4, 5, 2), 1));
}

Test(gradients, combine_of_one_operand)
{
    struct testcase c = begin();
    int mask = some_mask(&c, 4, 5), buffer = real(&c, "egcd", 4, 4, 4, 6);
    struct syi_routing r = route(&c, fixed(&c, "btu", 4, 5, 4), mask, 0);
    check(&c, "combine, gate fixed",
          syi_combine(c.p, buffer, r.expert, r.slot, fixed(&c, "btk", 4, 5, 2), 1));
    c = begin();
    mask = some_mask(&c, 4, 5), buffer = fixed(&c, "egcd", 4, 4, 4, 6);
    r = route(&c, fixed(&c, "btu", 4, 5, 4), mask, 0);
    check(&c, "combine, buffer fixed",
          syi_combine(c.p, buffer, r.expert, r.slot, real(&c, "btk", 4, 5, 2), 1));
}

Test(gradients, router_loss)
{
    for (int used = 1; used <= 3; used++) { /* losses that take part: balance, z, both */
        struct testcase c = begin();
        int mask = some_mask(&c, 4, 5), lse, z, y[2], n = 0;
        int p = syi_softmax(c.p, real(&c, "btu", 4, 5, 4), &lse);
        struct syi_routing r = route(&c, p, mask, 0);
        int balance = syi_router_loss(c.p, p, lse, r.chosen, mask, 1, &z);
        if (used & 1) y[n++] = balance;
        if (used & 2) y[n++] = z;
        check_n(&c, "router_loss", n, y);
    }
}

/* ---- what has no gradient says so ---- */

static void check_refused(struct testcase *c, int y, const char *words)
{
    struct sy_error err = {0};
    int gradient[MOST], loss = scalar_of(c, 1, &y);
    cr_assert_eq(syi_grad(c->p, loss, c->n, c->input, gradient, &err), SY_EUNSUPPORTED, "%s", words);
    cr_assert(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
    syi_program_free(c->p);
}

Test(gradients, refused_maps)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 2, 3, 4);
    check_refused(&c, syi_map2(c.p, SY_MAP_MUL, x, real(&c, "d", 4)), "broadcast");
    c = begin();
    x = real(&c, "btd", 2, 3, 4);
    check_refused(&c, syi_map2(c.p, SY_MAP_DIV, x, real(&c, "btd", 2, 3, 4)), "divisor");
    c = begin();
    check_refused(&c, syi_map1(c.p, SY_MAP_EXP, real(&c, "btd", 2, 3, 4), 0), "no gradient");
}

Test(gradients, refused_outputs)
{
    struct testcase c = begin();
    check_refused(&c, syi_block_sum(c.p, SY_OP_BLOCK_SUM, real(&c, "btd", 4, 3, 6)), "block_sum");
    c = begin();
    int targets = integers(&c, some_targets, "bt", 4, 3), logits = real(&c, "btv", 4, 3, 18);
    check_refused(&c, syi_xent(c.p, logits, targets, fixed(&c, "bt", 4, 3), 0, 0.1).z, "xent");
    c = begin();
    int x = real(&c, "bth", 4, 5, 3 * 8), lse, lengths = integers(&c, some_lengths, "b", 4);
    struct syi_attention a = SYI_NO_ATTENTION;
    a.q = a.kv = x;
    a.q_lengths = a.k_lengths = lengths;
    a.heads = 2;
    a.head_dim = 4;
    syi_attention(c.p, &a, &lse);
    check_refused(&c, lse, "attention");
}
