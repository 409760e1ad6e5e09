/* SPDX-License-Identifier: Apache-2.0 */
/* Products with int8 weights and rows of an int8 table: every variant gives the bits of the reference, and these are the
 * bits of the same op with the float32 weights that number times scale makes. */
#include "config.h"

#include "product_case.h"

static const struct {
    int op, plain;
} ops[] = {{SY_OP_MATMUL_INT8, SY_OP_MATMUL},
           {SY_OP_MATMUL_NT_INT8, SY_OP_MATMUL_NT},
           {SY_OP_GROUPED_MATMUL_INT8, SY_OP_GROUPED_MATMUL},
           {SY_OP_RAGGED_MATMUL_INT8, SY_OP_RAGGED_MATMUL}};
enum { OPS = sizeof ops / sizeof ops[0], PLAIN = 2 };

/* Numbers for the weights of a case, and for its scales, one in seven of them 0 or tiny. */
static void fill(int8_t *q, int64_t n, float *scale, int64_t channels)
{
    for (int64_t i = 0; i < n; i++) q[i] = (int8_t)((int)(kh_random() % 255) - 127);
    for (int64_t i = 0; i < channels; i++)
        scale[i] = kh_random() % 7 ? kh_uniform(1e-4f, 1e-1f) : (float)(i % 2) * 1e-42f;
}

/* The case of the plain op, then weights of int8 and scales in `k`, what they are worth in `f`. */
static void begin(struct kh *k, struct kh *f, int at, const struct shape *s, const struct sy_attr_leaf *attr)
{
    kh_begin(f, ops[at].plain, attr, sizeof *attr);
    f->wild = -20;
    add_operands(f, s, SY_F32, SY_F32);
    if (s->experts) add_counts(f, s);
    *k = *f;
    k->op = ops[at].op;
    struct sy_tensor *w = &k->in[1];
    int64_t n = sycpu_count(w), columns = is_nt(ops[at].plain) ? s->k : s->n,
            experts = s->experts ? s->experts : 1;
    for (int i = 0; i < k->n_in; i++) {
        size_t bytes = kh_bytes(&k->in[i]);
        k->in[i].data = malloc(bytes + 1);
        cr_assert_not_null(k->in[i].data);
        memcpy(k->in[i].data, f->in[i].data, bytes);
    }
    w->dtype = SY_I8;
    float *scale =
        s->experts ? kh_in(k, SY_F32, 2, s->experts, (int)columns) : kh_in(k, SY_F32, 1, (int)columns);
    int8_t *q = w->data;
    float *want = f->in[1].data;
    fill(q, n, scale, experts * columns);
    for (int64_t i = 0; i < n; i++) {
        int64_t channel = is_nt(ops[at].plain) ? i / s->n : i / (s->k * columns) * columns + i % columns;
        want[i] = (float)q[i] * scale[channel];
    }
}

static void check(int at, const struct shape *s, int leaf)
{
    struct sy_attr_leaf attr = {leaf};
    struct kh k, f;
    char what[120];
    snprintf(what, sizeof what, "op %d: experts %d, groups %d, slots %d, k %d, n %d, leaf %d", ops[at].op,
             s->experts, s->groups, s->slots, s->k, s->n, leaf);
    begin(&k, &f, at, s, &attr);
    kh_check(&k, what);
    kh_reference(&f, what);
    cr_assert_lt(kh_differs(&k.out[0], k.want[0], f.want[0]), 0, "%s: other bits than with floats", what);
    kh_end(&k);
    kh_end(&f);
}

/* One leaf, and the shortest that are not too many. */
static void check_leaves(int at, const struct shape *s)
{
    int axis = leaf_axis(ops[at].plain, s), leaf = axis;
    check(at, s, axis);
    while (leaf % 2 == 0 && axis / leaf < 8) leaf /= 2;
    if (leaf < axis) check(at, s, leaf);
}

Test(gemm_int8, products_of_all_shapes)
{
    static const struct shape shapes[] = {{0, 1, 1, 1, 1},      {0, 1, 2, 3, 5},     {0, 2, 1, 8, 16},
                                          {0, 4, 7, 16, 33},    {0, 1, 13, 17, 31},  {0, 8, 3, 32, 48},
                                          {0, 2, 43, 29, 96},   {0, 1, 1, 64, 70},   {0, 16, 12, 24, 128},
                                          {0, 1, 97, 101, 103}, {0, 3, 250, 70, 64}, {0, 1, 5, 200, 300}};
    for (int at = 0; at < PLAIN; at++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_leaves(at, &shapes[i]);
}

/* Tiles of every height that read the weights themselves, transposed tiles of one to four vectors, tails of columns. */
Test(gemm_int8, few_rows)
{
    for (int at = 0; at < PLAIN; at++)
        for (int rows = 1; rows <= 70; rows++) {
            struct shape s = {0, 1, rows, 66 + rows % 5, 60 + rows % 41};
            check(at, &s, leaf_axis(ops[at].plain, &s));
        }
}

Test(gemm_int8, experts)
{
    static const struct shape shapes[] = {{1, 1, 1, 1, 1},    {4, 4, 5, 16, 33},  {3, 8, 17, 20, 32},
                                          {8, 2, 30, 32, 64}, {2, 16, 3, 24, 48}, {5, 4, 40, 33, 70}};
    for (int at = PLAIN; at < OPS; at++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_leaves(at, &shapes[i]);
}

Test(gemm_int8, rows_of_a_table)
{
    struct kh k;
    kh_begin(&k, SY_OP_EMBED_INT8, NULL, 0);
    int32_t *id = kh_in(&k, SY_I32, 2, 3, 4);
    int8_t *q = kh_in(&k, SY_I8, 2, 9, 5);
    float *scale = kh_in(&k, SY_F32, 1, 9);
    kh_out(&k, SY_F32, 3, 3, 4, 5);
    for (int i = 0; i < 12; i++) id[i] = i - 1; /* -1, 9 and 10 are outside */
    fill(q, 45, scale, 9);
    kh_check(&k, "embed_int8");
    for (int i = 0; i < 60; i++) {
        int row = id[i / 5];
        float want = row < 0 || row > 8 ? 0.0f : (float)q[row * 5 + i % 5] * scale[row];
        cr_assert(((float *)k.want[0])[i] == want, "element %d", i);
    }
    kh_end(&k);
}
