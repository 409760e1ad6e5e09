/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of every op against central finite differences, in double. A case records y = f(inputs); the check
 * multiplies y by a random cotangent, sums to a scalar, differentiates, and moves elements of every input. The whole
 * model is in test_model.c, the bits of kernels in the tests of kernels. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "model_support.h"
#include "program/grad.h"

enum { MOST = 8, SAMPLE = 64 }; /* inputs of a case; elements of an input that are moved, all if there are fewer */

struct testcase {
    struct syi_program *p;
    int input[MOST], n;            /* real inputs that are differentiated, "x0", "x1", ... */
    const int32_t *integers[MOST]; /* values of "i0", "i1", ... */
    int n_integers, n_fixed;       /* real inputs that are not differentiated: "f0", ... */
    struct ms m;
    struct ms_random random;
};

static struct testcase begin(void)
{
    static const uint8_t split[] = {SYI_AXIS_BATCH,  SYI_AXIS_GROUP,      SYI_AXIS_EXPERT_GROUP, SYI_AXIS_HEADS,
                                    SYI_AXIS_MLP,    SYI_AXIS_EXPERT_MLP, SYI_AXIS_VOCAB,        SYI_AXIS_EMBED,
                                    SYI_AXIS_EXPERT};
    struct testcase c = {.random = {1}};
    struct sy_error err = {0};
    cr_assert_eq(syi_program_new("case", &c.p, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < SYI_COUNT(split); i++) c.p->leaf_count[split[i]] = 2;
    return c;
}

/* ---- inputs: "btd", 2, 3, 4 is a tensor [2, 3, 4] over batch, length, embed ---- */

static int axis_of(char letter)
{
    static const struct {
        char letter;
        int axis;
    } axes[] = {{'b', SYI_AXIS_BATCH},        {'t', SYI_AXIS_LENGTH},  {'d', SYI_AXIS_EMBED},
                {'h', SYI_AXIS_HEADS},        {'f', SYI_AXIS_MLP},     {'v', SYI_AXIS_VOCAB},
                {'e', SYI_AXIS_EXPERT},       {'u', SYI_AXIS_ROUTER},  {'m', SYI_AXIS_EXPERT_MLP},
                {'g', SYI_AXIS_EXPERT_GROUP}, {'c', SYI_AXIS_CAPACITY}, {'r', SYI_AXIS_BUCKETS},
                {'k', SYI_AXIS_CHOICE},       {'n', SYI_AXIS_NONE}};
    for (size_t i = 0; i < SYI_COUNT(axes); i++)
        if (axes[i].letter == letter) return axes[i].axis;
    cr_assert_fail("no axis %c", letter);
    return 0;
}

static int tensor(struct testcase *c, char kind, int number, int dtype, const char *axes, va_list dims)
{
    char name[16];
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
    int rank = (int)strlen(axes);
    for (int i = 0; i < rank; i++) {
        dim[i] = va_arg(dims, int);
        axis[i] = (uint8_t)axis_of(axes[i]);
    }
    snprintf(name, sizeof name, "%c%d", kind, number);
    return syi_tensor_add(c->p, name, SYI_INPUT, dtype, rank, dim, axis);
}

/* Differentiated, in -1 .. 1. */
static int real(struct testcase *c, const char *axes, ...)
{
    va_list dims;
    va_start(dims, axes);
    c->input[c->n] = tensor(c, 'x', c->n, SY_F32, axes, dims);
    va_end(dims);
    return c->input[c->n++];
}

/* Not differentiated, in 0 .. 1. */
static int fixed(struct testcase *c, const char *axes, ...)
{
    va_list dims;
    va_start(dims, axes);
    int t = tensor(c, 'f', c->n_fixed++, SY_F32, axes, dims);
    va_end(dims);
    return t;
}

static int integers(struct testcase *c, const int32_t *value, const char *axes, ...)
{
    va_list dims;
    va_start(dims, axes);
    c->integers[c->n_integers] = value;
    int t = tensor(c, 'i', c->n_integers++, SY_I32, axes, dims);
    va_end(dims);
    return t;
}

static int rng(struct testcase *c)
{
    return syi_tensor_add(c->p, "rng", SYI_INPUT, SY_I64, 1, (int64_t[]){4}, NULL);
}

/* ---- the check ---- */

/* Sum of y * cotangent over n tensors. */
static int scalar_of(struct testcase *c, int n, const int *y)
{
    int loss = -1;
    for (int i = 0; i < n; i++) {
        char name[16];
        cr_assert_geq(y[i], 0, "%s", c->p->error.text);
        struct syi_tensor like = c->p->tensor[y[i]];
        snprintf(name, sizeof name, "c%d", i);
        int cotangent = syi_tensor_add(c->p, name, SYI_INPUT, SY_F32, like.rank, like.dim, like.axis);
        int term = syi_total(c->p, syi_map2(c->p, SY_MAP_MUL, y[i], cotangent));
        loss = loss < 0 ? term : syi_map2(c->p, SY_MAP_ADD, loss, term);
    }
    return loss;
}

/* Appends the backward pass; outputs "loss" and "d0", "d1", ... */
static void differentiate(struct testcase *c, const char *what, int loss)
{
    struct sy_error err = {0};
    int gradient[MOST];
    cr_assert_eq(syi_grad(c->p, loss, c->n, c->input, gradient, &err), SY_OK, "%s: %s", what, err.text);
    for (int i = 0; i < c->n; i++) {
        char name[16];
        cr_assert_geq(gradient[i], 0, "%s: input %d gets no gradient", what, i);
        snprintf(name, sizeof name, "d%d", i);
        syi_output(c->p, syi_map1(c->p, SY_MAP_COPY, gradient[i], 0), name);
    }
    syi_output(c->p, syi_map1(c->p, SY_MAP_COPY, loss, 0), "loss");
    cr_assert_eq(syi_program_status(c->p, &err), SY_OK, "%s: %s", what, err.text);
    cr_assert_eq(syi_program_check(c->p, "record", &err), SY_OK, "%s: %s", what, err.text);
}

static const struct sy_tensor *numbered(struct testcase *c, char kind, int number)
{
    char name[16];
    snprintf(name, sizeof name, "%c%d", kind, number);
    return syi_session_tensor(c->m.session, name);
}

static void fill(struct testcase *c)
{
    static const int64_t state[4] = {7, 3, 0, 0};
    const struct sy_tensor *t;
    for (const char *kind = "xcf"; *kind; kind++)
        for (int i = 0; (t = numbered(c, *kind, i)) != NULL; i++)
            for (int64_t k = 0; k < ms_count(t); k++) {
                double value = ms_uniform(&c->random);
                ms_set(t, k, *kind == 'f' ? fabs(value) : value);
            }
    for (int i = 0; (t = numbered(c, 'i', i)) != NULL; i++) memcpy(t->data, c->integers[i], ms_bytes(t));
    if ((t = syi_session_tensor(c->m.session, "rng")) != NULL) memcpy(t->data, state, sizeof state);
}

static double run_loss(void *arg)
{
    struct testcase *c = arg;
    ms_run(&c->m, 0);
    return ms_get(ms_tensor(&c->m, "loss"), 0);
}

static void check_input(struct testcase *c, const char *what, int i)
{
    char text[96];
    const struct sy_tensor *x = numbered(c, 'x', i);
    run_loss(c);
    double *gradient = ms_values(numbered(c, 'd', i)), largest = ms_largest(gradient, ms_count(x));
    int64_t n = ms_count(x);
    snprintf(text, sizeof text, "%s, input %d", what, i);
    cr_assert_gt(largest, 0, "%s: all gradients are zero", text);
    for (int64_t k = 0; k < (n < SAMPLE ? n : SAMPLE); k++) {
        int64_t at = n <= SAMPLE ? k : ms_below(&c->random, (int)n);
        ms_compare_slope(ms_slope(x, at, 1e-5, run_loss, c), gradient[at], largest, text, at);
    }
    free(gradient);
}

static void check_n(struct testcase *c, const char *what, int n, const int *y)
{
    differentiate(c, what, scalar_of(c, n, y));
    ms_open(&c->m, 1);
    ms_add(&c->m, c->p);
    ms_bind(&c->m);
    fill(c);
    for (int i = 0; i < c->n; i++) check_input(c, what, i);
    ms_close(&c->m);
}

static void check(struct testcase *c, const char *what, int y)
{
    check_n(c, what, 1, &y);
}

/* ---- the table ---- */

Test(gradients, every_op_has_a_rule_or_says_that_nothing_flows)
{
    for (int op = 0; op < SY_OP_COUNT; op++)
        cr_expect_neq(syi_grad_rule(op) != NULL, syi_op_has_flag(op, 'Z'), "%s", syi_op_info(op)->name);
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
        int packed = real(&c, "bth", 2, 3, 12), like[2] = {fixed(&c, "bth", 2, 3, 4), fixed(&c, "bth", 2, 3, 8)};
        int parts[2], y[2], n = 0;
        cr_assert_geq(syi_unpack(c.p, packed, 2, like, parts), 0);
        if (used & 1) y[n++] = parts[0];
        if (used & 2) y[n++] = parts[1];
        check_n(&c, "unpack", n, y);
    }
}

Test(gradients, totals)
{
    struct testcase c = begin();
    int x = real(&c, "btd", 4, 3, 6), y = real(&c, "b", 6);
    int sums[2] = {syi_total(c.p, syi_map2(c.p, SY_MAP_MUL, x, x)), syi_total(c.p, syi_map2(c.p, SY_MAP_MUL, y, y))};
    check_n(&c, "total", 2, sums);
}

/* ---- embedding, products, norm ---- */

static const int32_t some_ids[12] = {3, 0, 3, 9, 5, -1, 3, 8, 10, 7, 3, 0}; /* of 10 rows: two ids are outside */

Test(gradients, embed)
{
    struct testcase c = begin();
    int ids = integers(&c, some_ids, "bt", 4, 3), table = real(&c, "vd", 10, 6);
    check(&c, "embed", syi_embed(c.p, ids, table));
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

Test(gradients, rms_norm)
{
    struct testcase c = begin();
    int lengths = integers(&c, some_lengths, "b", 4), x = real(&c, "btd", 4, 5, 18);
    check(&c, "rms_norm", syi_rms_norm(c.p, x, real(&c, "d", 18), lengths, 1e-6));
    c = begin();
    x = real(&c, "btd", 2, 3, 5);
    c.p->leaf_count[SYI_AXIS_EMBED] = 1;
    check(&c, "rms_norm without lengths", syi_rms_norm(c.p, x, real(&c, "d", 5), -1, 0.3));
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
        check(&c, "glu with dropout", syi_glu(c.p, x, state, -1, activation, 3, 0.3));
        c = begin();
        int counts = integers(&c, some_counts, "eg", 4, 2);
        x = real(&c, "egcm", 4, 2, 3, 24);
        check(&c, "glu with counts", syi_glu(c.p, x, -1, counts, activation, 3, 0));
    }
    struct testcase c = begin();
    int state = rng(&c), counts = integers(&c, some_counts, "eg", 4, 2), x = real(&c, "egcm", 4, 2, 3, 24);
    check(&c, "glu with counts and dropout", syi_glu(c.p, x, state, counts, SY_GELU, 3, 0.3));
}

/* ---- attention ---- */

static const int32_t many_lengths[2] = {70, 66}; /* two blocks of keys */
static const int32_t other_lengths[4] = {7, 4, 0, 1};

Test(gradients, self_attention)
{
    for (int causal = 0; causal <= 1; causal++) {
        struct testcase c = begin();
        int state = rng(&c), x = real(&c, "bth", 4, 5, 3 * 12), lse;
        struct syi_attention a = {.q = x, .kv = x, .rng = state, .position = -1, .heads = 4, .head_dim = 3,
                                  .bidirectional = !causal, .causal = causal, .max_distance = 16, .site = 2, .rate = 0.2};
        a.q_lengths = a.k_lengths = integers(&c, some_lengths, "b", 4);
        a.bias = real(&c, "hr", 4, 8);
        check(&c, causal ? "causal attention" : "self-attention", syi_attention(c.p, &a, &lse));
    }
}

Test(gradients, self_attention_over_blocks_of_keys)
{
    struct testcase c = begin();
    int x = real(&c, "bth", 2, 70, 3 * 8), lse;
    struct syi_attention a = {.q = x, .kv = x, .rng = -1, .position = -1, .heads = 2, .head_dim = 4,
                              .causal = 1, .max_distance = 64};
    a.q_lengths = a.k_lengths = integers(&c, many_lengths, "b", 2);
    a.bias = real(&c, "hr", 2, 16);
    check(&c, "attention over blocks of keys", syi_attention(c.p, &a, &lse));
}

Test(gradients, cross_attention)
{
    for (int bias = 0; bias <= 1; bias++) {
        struct testcase c = begin();
        int state = rng(&c), lse;
        struct syi_attention a = {.q = real(&c, "bth", 4, 5, 8), .kv = real(&c, "bth", 4, 7, 2 * 8), .bias = -1,
                                  .rng = state, .position = -1, .heads = 2, .head_dim = 4, .bidirectional = 1,
                                  .max_distance = 16, .site = 2, .rate = 0.2};
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
    int targets = integers(&c, some_targets, "bt", 4, 3), logits = real(&c, "btv", 4, 3, 18), w = fixed(&c, "bt", 4, 3);
    int half = syi_map2(c.p, SY_MAP_LESS, w, syi_map1(c.p, SY_MAP_ADDS, syi_map1(c.p, SY_MAP_MULS, w, 0), 0.5));
    check(&c, "xent, weights 0 and 1", syi_xent(c.p, logits, targets, half, 0.1, 0.05).loss);
}

/* ---- experts ---- */

static const int32_t row_lengths[4] = {5, 2, 0, 4}; /* of 5 */

static struct syi_routing route(struct testcase *c, int probabilities, int lengths, int prioritized)
{
    struct sy_attr_route attr = {.selected = 2, .group_rows = 1, .capacity = 4, .capacity_factor = 1.0,
                                 .min_capacity = 1, .prioritized = prioritized};
    return syi_route(c->p, probabilities, lengths, &attr);
}

Test(gradients, gate)
{
    for (int prioritized = 0; prioritized <= 1; prioritized++) {
        struct testcase c = begin();
        int lengths = integers(&c, row_lengths, "b", 4), p = real(&c, "btu", 4, 5, 4);
        struct syi_routing r = route(&c, p, lengths, prioritized);
        check(&c, "gate", syi_gate(c.p, p, r.expert, r.slot));
    }
}

Test(gradients, dispatch)
{
    struct testcase c = begin();
    int lengths = integers(&c, row_lengths, "b", 4), x = real(&c, "btd", 4, 5, 6);
    struct syi_routing r = route(&c, fixed(&c, "btu", 4, 5, 4), lengths, 0);
    check(&c, "dispatch", syi_dispatch(c.p, x, r.expert, r.slot, 4, 4, 1));
}

Test(gradients, combine)
{
    struct testcase c = begin();
    int lengths = integers(&c, row_lengths, "b", 4), buffer = real(&c, "egcd", 4, 4, 4, 6);
    struct syi_routing r = route(&c, fixed(&c, "btu", 4, 5, 4), lengths, 0);
    check(&c, "combine", syi_combine(c.p, buffer, r.expert, r.slot, real(&c, "btk", 4, 5, 2), 1));
}

Test(gradients, combine_of_one_operand)
{
    struct testcase c = begin();
    int lengths = integers(&c, row_lengths, "b", 4), buffer = real(&c, "egcd", 4, 4, 4, 6);
    struct syi_routing r = route(&c, fixed(&c, "btu", 4, 5, 4), lengths, 0);
    check(&c, "combine, gate fixed", syi_combine(c.p, buffer, r.expert, r.slot, fixed(&c, "btk", 4, 5, 2), 1));
    c = begin();
    lengths = integers(&c, row_lengths, "b", 4), buffer = fixed(&c, "egcd", 4, 4, 4, 6);
    r = route(&c, fixed(&c, "btu", 4, 5, 4), lengths, 0);
    check(&c, "combine, buffer fixed", syi_combine(c.p, buffer, r.expert, r.slot, real(&c, "btk", 4, 5, 2), 1));
}

Test(gradients, router_loss)
{
    for (int used = 1; used <= 3; used++) { /* losses that take part: balance, z, both */
        struct testcase c = begin();
        int lengths = integers(&c, row_lengths, "b", 4), lse, z, y[2], n = 0;
        int p = syi_softmax(c.p, real(&c, "btu", 4, 5, 4), &lse);
        struct syi_routing r = route(&c, p, lengths, 0);
        int balance = syi_router_loss(c.p, p, lse, r.chosen, lengths, 1, &z);
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
    struct syi_attention a = {.q = x, .kv = x, .q_lengths = lengths, .k_lengths = lengths, .bias = -1, .rng = -1,
                              .position = -1, .heads = 2, .head_dim = 4};
    syi_attention(c.p, &a, &lse);
    check_refused(&c, lse, "attention");
}
