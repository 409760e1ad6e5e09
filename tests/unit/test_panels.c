/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in panels: every element lies where ops.h says, and a product that reads panels has the bits that the same kernel
 * gives with the weights as they are, in every variant, emulated tiles included, whatever the rows, leaves and threads. */
#include "config.h"

#include "product_case.h"

#include "base/bf16.h"

static const struct {
    int op, plain;
} ops[] = {{SY_OP_MATMUL_PANELS, SY_OP_MATMUL},
           {SY_OP_GROUPED_MATMUL_PANELS, SY_OP_GROUPED_MATMUL},
           {SY_OP_RAGGED_MATMUL_PANELS, SY_OP_RAGGED_MATMUL}};
enum { OPS = sizeof ops / sizeof ops[0] };

/* Of [k, n] weights of an expert. */
static int64_t place_of(int64_t expert, int64_t k, int64_t n, int64_t depth, int64_t columns)
{
    int64_t panel = expert * (columns / 32) + n / 32;
    return ((panel * (depth / 2) + k / 2) * 32 + n % 32) * 2 + k % 2;
}

/* ---- laying out ---- */

/* Output `which` of the reference has every element of the tensors where the formula says. */
static void expect_laid(const struct kh *k, int which, int transposed, int experts, int rows, int parts,
                        const int *columns, int blocks)
{
    int all = 0, n;
    for (int i = 0; i < parts; i++) all += columns[i];
    for (int e = 0; e < (experts ? experts : 1); e++)
        for (int r = 0; r < rows; r++) {
            n = 0;
            for (int block = 0; block < blocks; block++)
                for (int i = 0; i < parts; i++)
                    for (int c = 0; c < columns[i] / blocks; c++, n++) {
                        const float *from =
                            (const float *)k->in[i].data + ((int64_t)e * rows + r) * columns[i];
                        uint16_t want = syi_bf16_from_float(from[block * (columns[i] / blocks) + c]);
                        int64_t place =
                            transposed ? place_of(e, n, r, all, rows) : place_of(e, r, n, rows, all);
                        cr_assert_eq(((uint16_t *)k->want[which])[place], want,
                                     "expert %d, row %d, column %d", e, r, n);
                    }
        }
}

static void panels_out(struct kh *k, int experts, int depth, int across)
{
    if (experts)
        kh_out(k, SY_BF16, 4, experts, across / 32, depth, 32);
    else
        kh_out(k, SY_BF16, 3, across / 32, depth, 32);
}

/* `parts` tensors of `rows` rows and so many columns each, of which `blocks` blocks take turns; op: SY_OP_LAY_OUT,
 * SY_OP_LAY_OUT_NT, whose panels are of the transposed tensor, or SY_OP_LAY_OUT_BOTH. All kernels against the reference, and
 * that against the formula. */
static void check_lay_out(int op, int experts, int rows, int parts, const int *columns, int blocks)
{
    struct sy_attr_pack attr = {{0, 0, 0}};
    struct kh k;
    int all = 0;
    kh_begin(&k, op, &attr, sizeof attr);
    k.cpu_only = 1;
    k.wild = 20;
    for (int i = 0; i < 3; i++) {
        if (i >= parts) {
            kh_in_absent(&k);
            continue;
        }
        if (experts)
            kh_in(&k, SY_F32, 3, experts, rows, columns[i]);
        else
            kh_in(&k, SY_F32, 2, rows, columns[i]);
        attr.width[i] = columns[i] / blocks;
        all += columns[i];
    }
    if (op != SY_OP_LAY_OUT_NT) panels_out(&k, experts, rows, all);
    if (op != SY_OP_LAY_OUT) panels_out(&k, experts, all, rows);
    kh_check_as(&k, SY_F32, SY_BF16, "a fast kernel");
    kh_check(&k, op == SY_OP_LAY_OUT ? "lay_out" : op == SY_OP_LAY_OUT_NT ? "lay_out_nt" : "lay_out_both");
    for (int i = 0; i < k.n_out; i++)
        expect_laid(&k, i, i == 1 || op == SY_OP_LAY_OUT_NT, experts, rows, parts, columns, blocks);
    kh_end(&k);
}

static const int laying[] = {SY_OP_LAY_OUT, SY_OP_LAY_OUT_NT, SY_OP_LAY_OUT_BOTH};
enum { LAYING = sizeof laying / sizeof laying[0] };

Test(panels, elements_lie_where_they_belong)
{
    for (int i = 0; i < LAYING; i++) {
        check_lay_out(laying[i], 0, 32, 1, (int[]){32}, 1);
        check_lay_out(laying[i], 0, 64, 1, (int[]){96}, 2);
        check_lay_out(laying[i], 0, 32, 3, (int[]){64, 64, 64}, 2);
        check_lay_out(laying[i], 0, 32, 3, (int[]){64, 64, 64}, 4);
        check_lay_out(laying[i], 0, 96, 2, (int[]){40, 24}, 8);
        check_lay_out(laying[i], 3, 64, 1, (int[]){64}, 1);
        check_lay_out(laying[i], 5, 32, 2, (int[]){96, 96}, 8);
        check_lay_out(laying[i], 3, 192, 2, (int[]){992, 32}, 1); /* over 1 MiB, past the caches */
    }
}

/* Widths that no block of 32 columns ends with, too. */
Test(panels, random_shapes)
{
    for (int i = 0; i < 60; i++) {
        int parts = 1 + (int)(kh_random() % 3), blocks = 1 << kh_random() % 4, columns[3] = {0}, all = 0;
        for (int k = 0; k < parts; k++)
            all += columns[k] = blocks * (1 + (int)(kh_random() % 40)) * (i % 2 ? 1 : 32);
        columns[parts - 1] += (32 - all % 32) % 32; /* whole panels */
        if (columns[parts - 1] % blocks) continue;
        check_lay_out(laying[i / 2 % LAYING], (int)(kh_random() % 4), 32 * (1 + i % 5), parts, columns,
                      blocks);
    }
}

/* ---- products ---- */

/* Attributes of the op in panels and of the plain one. */
struct attrs {
    struct sy_attr_panels panels;
    struct sy_attr_leaf plain;
};

/* The case of the plain op in `plain`, with the weights in panels in `k`. One special value in a sum, on average: more would make
 * each NaN. */
static void begin(struct kh *k, struct kh *plain, int at, const struct shape *s, const struct attrs *attr,
                  int out)
{
    int experts = s->experts ? s->experts : 1;
    kh_begin(plain, ops[at].plain, &attr->plain, sizeof attr->plain);
    add_operands(plain, s, SY_BF16, out);
    for (int in = 0; in < 2; in++) {
        uint16_t *x = plain->in[in].data;
        for (int64_t i = 0; i < sycpu_count(&plain->in[in]); i++)
            x[i] = syi_bf16_from_float(kh_random() % (2 * (uint64_t)s->k) ? kh_uniform(-2.0f, 2.0f)
                                                                          : kh_special());
    }
    if (s->experts) add_counts(plain, s);
    *k = *plain;
    k->op = ops[at].op;
    k->attr = &attr->panels;
    k->attr_bytes = sizeof attr->panels;
    for (int i = 0; i < k->n_in; i++) {
        size_t bytes = kh_bytes(&k->in[i]);
        k->in[i].data = malloc(bytes + 1);
        cr_assert_not_null(k->in[i].data);
        memcpy(k->in[i].data, plain->in[i].data, bytes);
    }
    struct sy_tensor *w = &k->in[1];
    w->rank++;
    w->dim[w->rank - 3] = s->n / 32;
    w->dim[w->rank - 2] = s->k;
    w->dim[w->rank - 1] = 32;
    for (int e = 0; e < experts; e++)
        for (int d = 0; d < s->k; d++)
            for (int n = 0; n < s->n; n++)
                ((uint16_t *)w->data)[place_of(e, d, n, s->k, s->n)] =
                    ((uint16_t *)plain->in[1].data)[((int64_t)e * s->k + d) * s->n + n];
}

static int is_nan(const struct sy_tensor *t, const void *data, int64_t i)
{
    if (t->dtype == SY_F32) return isnan(((const float *)data)[i]) != 0;
    return isnan(syi_bf16_to_float(((const uint16_t *)data)[i])) != 0;
}

static void expect_same(const struct sy_tensor *t, const void *a, const void *b, const char *what,
                        const char *kernel, int threads)
{
    size_t size = kh_size(t->dtype);
    for (int64_t i = 0; i < sycpu_count(t); i++)
        cr_assert(!memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size) ||
                      (is_nan(t, a, i) && is_nan(t, b, i)),
                  "%s: %s, %d threads: element %lld has other bits", what, kernel, threads, (long long)i);
}

/* What is above 0; NaN stays. */
static void relu(const struct sy_tensor *t, void *data)
{
    for (int64_t i = 0; i < sycpu_count(t); i++) {
        if (t->dtype == SY_BF16 && syi_bf16_to_float(((uint16_t *)data)[i]) <= 0) ((uint16_t *)data)[i] = 0;
        if (t->dtype == SY_F32 && ((float *)data)[i] < 0) ((float *)data)[i] = 0;
    }
}

/* Every kernel that reads panels, or those that need one of some features, against the one with the same needs that does not, which
 * has other threads: they share the work in another way. */
static void compare(struct kh *k, struct kh *plain, uint32_t some, const char *what)
{
    const int out = k->out[0].dtype;
    const struct sy_attr_panels *attr = k->attr;
    const struct sy_kernel *kernel;
    int kernels = 0;
    uint64_t next = 0;
    while ((kernel = kh_next(k->op, SY_BF16, out, kh_all_features(), &next))) {
        const struct sy_kernel *other;
        uint64_t from = 0;
        if (some && !(kernel->needs & some)) continue;
        kernels++;
        do other = kh_next(plain->op, SY_BF16, out, kh_all_features(), &from);
        while (other && other->needs != kernel->needs);
        cr_assert_not_null(other, "%s: %s", what, kernel->name);
        for (int threads = 1; threads <= 3; threads += 2) {
            void *got[SY_MAX_OUT], *want[SY_MAX_OUT];
            kh_run(k, kernel, threads, got, what);
            kh_run(plain, other, 4 - threads, want, what);
            if (attr->activation == SY_RELU) relu(&k->out[0], want[0]);
            expect_same(&k->out[0], got[0], want[0], what, kernel->name, threads);
            kh_free_guarded(got[0]);
            kh_free_guarded(want[0]);
        }
    }
    cr_assert_gt(kernels, 0, "%s: no kernel", what);
}

/* To float32 and to bf16, all of it and what is above 0. */
static void check_those(int at, const struct shape *s, int leaf, uint32_t some)
{
    for (int i = 0; i < 4; i++) {
        const int activation = i / 2 ? SY_RELU : SY_LINEAR, out = i % 2 ? SY_BF16 : SY_F32;
        const struct attrs attr = {{leaf, activation}, {leaf}};
        struct kh k, plain;
        char what[120];
        snprintf(what, sizeof what,
                 "op %d: experts %d, groups %d, slots %d, k %d, n %d, leaf %d, out %d, relu %d", ops[at].op,
                 s->experts, s->groups, s->slots, s->k, s->n, leaf, out, activation == SY_RELU);
        begin(&k, &plain, at, s, &attr, out);
        compare(&k, &plain, some, what);
        kh_end(&k);
        kh_end(&plain);
    }
}

static void check(int at, const struct shape *s, int leaf)
{
    check_those(at, s, leaf, 0);
}

Test(panels, few_and_many_rows)
{
    static const int rows[] = {1, 2, 3, 13, 15, 16, 17, 31, 43, 64, 70, 129};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct shape s = {0, 1, rows[i], 128, 32 + (int)(i % 3) * 32};
        check(0, &s, 128);
        check(0, &s, 32);
    }
    check(0, &(struct shape){0, 7, 43, 96, 224}, 96);
}

/* On tiles, blocks of rows that stay in a cache while panels pass: parts of leaves, and several leaves at a time. */
Test(panels, blocks_of_rows_of_long_contractions)
{
    const struct shape s = {0, 1, 170, 2048, 64};
    const uint32_t tiles = kh_tile_features() & (SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED);
    check_those(0, &s, 2048, tiles);
    check_those(0, &s, 256, tiles);
}

/* Contractions that are taken in blocks of C. */
Test(panels, blocks_of_results_of_longer_contractions)
{
    const struct shape s = {0, 1, 9, 8192, 64};
    const uint32_t tiles = kh_tile_features() & (SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED);
    check_those(0, &s, 8192, tiles);
    check_those(0, &s, 256, tiles);
}

Test(panels, experts)
{
    static const struct shape shapes[] = {{1, 1, 1, 32, 32},   {4, 4, 5, 64, 96},    {3, 8, 17, 32, 32},
                                          {8, 2, 30, 128, 64}, {2, 16, 3, 192, 128}, {5, 4, 40, 64, 160}};
    for (int at = 1; at < OPS; at++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            check(at, &shapes[i], shapes[i].k);
            if (shapes[i].k % 64 == 0) check(at, &shapes[i], shapes[i].k / 2);
        }
}

/* So many rows of numbers in each group of each expert, in both cases. */
static void set_counts(struct kh *k, struct kh *plain, const struct shape *s, const int32_t *counts)
{
    for (int64_t i = 0; i < sycpu_count(&k->in[0]); i++)
        ((uint16_t *)k->in[0].data)[i] = ((uint16_t *)plain->in[0].data)[i] =
            syi_bf16_from_float(kh_uniform(-2.0f, 2.0f));
    for (int i = 0; i < s->experts * s->groups; i++) {
        ((int32_t *)k->in[2].data)[i] = ((int32_t *)plain->in[2].data)[i] = counts[i];
        spoil_empty(k, s, i, counts[i]);
        spoil_empty(plain, s, i, counts[i]);
    }
}

/* Results of experts of more than 4 MiB, which tiles write past the caches where each thread has an expert. Some rows are
 * neighbours, a whole tile of them too. */
Test(panels, large_results_of_experts)
{
    static const int32_t counts[] = {37, 3, 0, 64};
    const struct shape s = {2, 2, 1040, 64, 512};
    for (int leaves = 1; leaves <= 2; leaves++) {
        const struct attrs attr = {{64 / leaves, SY_LINEAR}, {64 / leaves}};
        struct kh k, plain;
        begin(&k, &plain, 1, &s, &attr, SY_BF16);
        set_counts(&k, &plain, &s, counts);
        compare(&k, &plain, 0, "large results");
        kh_end(&k);
        kh_end(&plain);
    }
}

/* The reference, whose weights are bf16 beside float32. */
Test(panels, rows_in_float32)
{
    struct shape s = {0, 2, 9, 64, 96};
    const struct attrs attr = {{32, SY_LINEAR}, {32}};
    struct kh k, plain;
    begin(&k, &plain, 0, &s, &attr, SY_F32);
    free(k.in[0].data);
    k.in[0].dtype = SY_F32;
    k.in[0].data = calloc(1, kh_bytes(&k.in[0]));
    kh_fill(k.in[0].data, sycpu_count(&k.in[0]), 0);
    k.cpu_only = 1;
    kh_check(&k, "float32 rows");
    kh_end(&k);
    kh_end(&plain);
}
