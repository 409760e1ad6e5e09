/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of bf16: every kernel that this processor can run agrees with the float32 reference on the
 * same values within the tolerance of the op table, whatever the sizes, leaves, counts and the output's type;
 * its bits depend neither on the number of threads nor on where in C an element lies. */
#include "config.h"

#include "product_case.h"

#include "base/bf16.h"

#define TOLERANCE 2e-5 /* of the op table, relative to the sum of the products' magnitudes */

/* One product three times: in bf16, widened, and of the magnitudes. */
struct product {
    struct kh half, full, size;
};

static void begin(struct product *p, int op, const struct shape *s, const struct sy_attr_leaf *attr, int out)
{
    kh_begin(&p->half, op, attr, sizeof *attr);
    kh_begin(&p->full, op, attr, sizeof *attr);
    kh_begin(&p->size, op, attr, sizeof *attr);
    add_operands(&p->half, s, SY_BF16, out);
    add_operands(&p->full, s, SY_F32, SY_F32);
    add_operands(&p->size, s, SY_F32, SY_F32);
    for (int in = 0; in < 2; in++) {
        uint16_t *x = p->half.in[in].data;
        for (int64_t i = 0; i < sycpu_count(&p->half.in[in]); i++)
            x[i] = syi_bf16_from_float(kh_random() % 8 ? kh_uniform(-2.0f, 2.0f) : 0.0f);
    }
    if (s->experts) add_counts(&p->half, s);
    for (int in = 2; in < p->half.n_in; in++)
        for (int i = 0; i < 2; i++) {
            void *counts = kh_in(i ? &p->full : &p->size, SY_I32, 2, s->experts, s->groups);
            memcpy(counts, p->half.in[in].data, kh_bytes(&p->half.in[in]));
        }
    for (int in = 0; in < 2; in++)
        for (int64_t i = 0; i < sycpu_count(&p->half.in[in]); i++) {
            float value = syi_bf16_to_float(((uint16_t *)p->half.in[in].data)[i]);
            ((float *)p->full.in[in].data)[i] = value;
            ((float *)p->size.in[in].data)[i] = fabsf(value);
        }
    kh_reference(&p->full, "widened");
    kh_reference(&p->size, "magnitudes");
}

static void end(struct product *p)
{
    kh_end(&p->half);
    kh_end(&p->full);
    kh_end(&p->size);
}

/* ---- kernels of the backend ---- */

static double element(const struct sy_tensor *t, const void *data, int64_t i)
{
    return t->dtype == SY_BF16 ? syi_bf16_to_float(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

static void check_kernel(const struct product *p, const struct sy_kernel *kernel, const char *what)
{
    static const int threads[] = {1, 2, 3};
    const struct sy_tensor *out = &p->half.out[0];
    void *one[SY_MAX_OUT], *more[SY_MAX_OUT];
    kh_run(&p->half, kernel, 1, one, what);
    for (int i = 1; i < 3; i++) {
        kh_run(&p->half, kernel, threads[i], more, what);
        cr_assert_lt(kh_differs(out, one[0], more[0]), 0, "%s: %s: %d threads give other bits", what,
                     kernel->name, threads[i]);
        kh_free_guarded(more[0]);
    }
    for (int64_t i = 0; i < sycpu_count(out); i++) {
        double got = element(out, one[0], i), want = ((float *)p->full.want[0])[i];
        double bound = TOLERANCE * ((float *)p->size.want[0])[i];
        if (out->dtype == SY_BF16) bound += fabs(want) * 0x1p-8;
        cr_assert(fabs(got - want) <= bound, "%s: %s: element %lld: %a, the reference has %a", what,
                  kernel->name, (long long)i, got, want);
    }
    kh_free_guarded(one[0]);
}

static void check(int op, const struct shape *s, int leaf)
{
    struct sy_attr_leaf attr = {leaf};
    uint32_t have = kh_features();
    for (int i = 0; i < 2; i++) {
        int out = i ? SY_BF16 : SY_F32, kernels = 0;
        uint64_t at = 0;
        struct product p;
        const struct sy_kernel *kernel;
        char what[120];
        snprintf(what, sizeof what, "op %d: experts %d, groups %d, slots %d, k %d, n %d, leaf %d, out %d", op,
                 s->experts, s->groups, s->slots, s->k, s->n, leaf, out);
        begin(&p, op, s, &attr, out);
        for (; (kernel = kh_next(op, SY_BF16, out, have, &at)); kernels++) check_kernel(&p, kernel, what);
        cr_assert_gt(kernels, 0, "%s: no kernel", what);
        end(&p);
    }
}

static void check_leaves(int op, const struct shape *s)
{
    int axis = leaf_axis(op, s);
    for (int leaf = 1; leaf <= axis; leaf++)
        if (axis % leaf == 0 && (axis / leaf <= 16 || leaf == 1)) check(op, s, leaf);
}

Test(gemm_bf16, plain_products_of_all_shapes)
{
    static const struct shape shapes[] = {{0, 1, 1, 1, 1},    {0, 1, 2, 3, 5},      {0, 2, 1, 8, 16},
                                          {0, 4, 7, 16, 33},  {0, 1, 13, 17, 31},   {0, 8, 3, 32, 48},
                                          {0, 2, 43, 29, 96}, {0, 4, 25, 66, 65},   {0, 1, 1, 64, 70},
                                          {0, 3, 57, 45, 45}, {0, 1, 97, 101, 103}, {0, 6, 31, 190, 130}};
    for (int op = 0; op < 3; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_leaves(plain_ops[op], &shapes[i]);
}

Test(gemm_bf16, tails_of_rows_and_columns)
{
    for (int op = 0; op < 3; op++)
        for (int rows = 1; rows <= 30; rows++)
            for (int columns = 1; columns <= 70; columns += 2 + rows % 5) {
                struct shape s = {0, 2, rows, 9, columns};
                check(plain_ops[op], &s, is_nt(plain_ops[op]) ? columns : is_tn(plain_ops[op]) ? 1 : 3);
            }
}

/* In chunks: leaves of an odd length, whose last element has no partner. */
Test(gemm_bf16, contractions_over_a_vocabulary)
{
    check(SY_OP_MATMUL, &(struct shape){0, 1, 3, 24624, 3}, 513);
    check(SY_OP_MATMUL_NT, &(struct shape){0, 1, 65, 1, 24624}, 171);
}

/* x^T y with the L1 cache of a core that packs the next chunk beside its tiles, and of one that packs each before them: as the
 * reference says, and the same bits. */
static void check_chunks(const struct shape *s, int leaf)
{
    struct sy_attr_leaf attr = {leaf};
    uint64_t at = 0;
    struct product p;
    const struct sy_kernel *kernel;
    void *before[SY_MAX_OUT], *beside[SY_MAX_OUT];
    begin(&p, SY_OP_MATMUL_TN, s, &attr, SY_F32);
    while ((kernel = kh_next(SY_OP_MATMUL_TN, SY_BF16, SY_F32, kh_features(), &at))) {
        setenv("SY_TEST_L1_BYTES", "32768", 1);
        kh_run(&p.half, kernel, 1, before, "packed before");
        setenv("SY_TEST_L1_BYTES", "49152", 1);
        kh_run(&p.half, kernel, 1, beside, "packed beside");
        cr_assert_lt(kh_differs(&p.half.out[0], before[0], beside[0]), 0, "%s: %d x %d tokens: other bits",
                     kernel->name, s->groups, s->slots);
        kh_free_guarded(before[0]);
        kh_free_guarded(beside[0]);
        check_kernel(&p, kernel, "packed beside");
    }
    end(&p);
}

/* Chunks of parts of a leaf, of one and of several, with steps left over; blocks of columns and of rows; leaves of an odd length, which
 * are packed before. */
Test(gemm_bf16, sums_over_many_tokens_whose_next_are_packed)
{
    check_chunks(&(struct shape){0, 2, 1042, 16, 64}, 1);
    check_chunks(&(struct shape){0, 16, 134, 17, 32}, 1);
    check_chunks(&(struct shape){0, 16, 130, 30, 32}, 2);
    check_chunks(&(struct shape){0, 64, 36, 18, 544}, 1);
    check_chunks(&(struct shape){0, 8, 256, 1035, 32}, 1);
    check_chunks(&(struct shape){0, 16, 131, 30, 64}, 1);
}

Test(gemm_bf16, extents_of_any_size_together)
{
    for (int op = 0; op < 3; op++) each_order(plain_ops[op], 0, (const int[]){2, 600, 4104}, check);
}

Test(gemm_bf16, expert_buffers_with_ragged_counts)
{
    static const struct shape shapes[] = {{1, 1, 1, 1, 1},    {4, 4, 5, 16, 33},  {3, 8, 17, 20, 32},
                                          {8, 2, 30, 33, 64}, {2, 16, 3, 27, 45}, {5, 4, 40, 33, 70},
                                          {4, 8, 60, 48, 96}};
    for (int op = 0; op < N_GROUPED; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            check_leaves(grouped_ops[op], &shapes[i]);
}

/* Experts of 0 to 120 rows beside each other, weights read where they lie or packed. */
Test(gemm_bf16, experts_of_few_and_many_rows)
{
    static const struct shape shapes[] = {{40, 4, 10, 128, 64}, {40, 2, 60, 64, 96}};
    for (int op = 0; op < N_GROUPED; op++)
        for (int i = 0; i < 2; i++)
            for (int leaves = 1; leaves <= 2; leaves++) {
                int kind = grouped_ops[op];
                check(kind, &shapes[i], leaf_axis(kind, &shapes[i]) / leaves);
            }
}

/* Experts of up to 29 rows where the L1 cache is large and the L2 cache is not: in one part, or too many for it; leaves of one strip and
 * more, the last of fewer rows; columns in two blocks. */
Test(gemm_bf16, experts_whose_weights_are_read_row_by_row)
{
    static const struct shape shapes[] = {{4, 1, 0, 72, 64}, {3, 2, 0, 48, 96}, {2, 1, 0, 36, 1056}};
    static const int slots[] = {1, 2, 14, 17, 28, 29};
    static const int ops[] = {SY_OP_GROUPED_MATMUL, SY_OP_RAGGED_MATMUL};
    setenv("SY_TEST_L1_BYTES", "49152", 1);
    setenv("SY_TEST_L2_BYTES", "1048576", 1);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 6; j++)
            for (int leaves = 1; leaves <= 3; leaves += 2) {
                struct shape s = shapes[i];
                s.slots = slots[j];
                check(ops[i == 1], &s, s.k / leaves);
            }
}

/* Rows, and columns, that come first or stand alone have the bits they have among others. */
Test(gemm_bf16, bits_do_not_depend_on_the_place_in_c)
{
    enum { ROWS = 45, DEPTH = 70, COLUMNS = 75, SKIP = 38 };
    struct sy_attr_leaf attr = {35};
    struct shape all = {0, 1, ROWS, DEPTH, COLUMNS}, last = {0, 1, ROWS - SKIP, DEPTH, COLUMNS - SKIP};
    uint64_t at = 0;
    struct product a, b;
    const struct sy_kernel *kernel;
    begin(&a, SY_OP_MATMUL, &all, &attr, SY_F32);
    begin(&b, SY_OP_MATMUL, &last, &attr, SY_F32);
    uint16_t *x = b.half.in[0].data, *w = b.half.in[1].data;
    memcpy(x, (uint16_t *)a.half.in[0].data + SKIP * DEPTH, (ROWS - SKIP) * DEPTH * sizeof *x);
    for (int k = 0; k < DEPTH; k++)
        memcpy(w + k * (COLUMNS - SKIP), (uint16_t *)a.half.in[1].data + k * COLUMNS + SKIP,
               (COLUMNS - SKIP) * sizeof *w);
    while ((kernel = kh_next(SY_OP_MATMUL, SY_BF16, SY_F32, kh_features(), &at))) {
        void *whole[SY_MAX_OUT], *part[SY_MAX_OUT];
        kh_run(&a.half, kernel, 2, whole, "whole");
        kh_run(&b.half, kernel, 1, part, "part");
        for (int i = 0; i < ROWS - SKIP; i++)
            cr_assert_arr_eq((float *)whole[0] + (i + SKIP) * COLUMNS + SKIP,
                             (float *)part[0] + i * (COLUMNS - SKIP), (COLUMNS - SKIP) * sizeof(float),
                             "%s: row %d", kernel->name, i);
        kh_free_guarded(whole[0]);
        kh_free_guarded(part[0]);
    }
    end(&a);
    end(&b);
}

/* What nobody thought of. */
Test(gemm_bf16, shapes_drawn_at_random)
{
    for (int n = draw_begin(20); n > 0; n--) {
        struct shape s;
        int op = draw_product(&s, 2e5);
        setenv("SY_TEST_L1_BYTES", kh_random() % 2 ? "49152" : "32768", 1);
        check(op, &s, draw_leaf(leaf_axis(op, &s)));
    }
}
