/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of sums and maxima over whole tensors, axes and columns: every variant against the reference bit for bit, and
 * the reference against sums written out. */
#include "config.h"

#include "tests/unit/kernel_harness.h"

static int near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

/* ---- blocks ---- */

static void blocks(int rank, const int *dim, const int *leaf, int wild)
{
    struct sy_attr_block attr;
    int n[5];
    for (int i = 0; i < 5; i++) {
        attr.leaf[i] = i < rank ? leaf[i] : 1;
        n[i] = i < rank ? dim[i] / leaf[i] : 1;
    }
    for (int square = 0; square < 2; square++) {
        struct kh k;
        double total = 0, got = 0;
        kh_begin(&k, square ? SY_OP_BLOCK_SUMSQ : SY_OP_BLOCK_SUM, &attr, sizeof attr);
        k.wild = wild;
        const float *x = kh_in(&k, SY_F32, rank, dim[0], dim[1], dim[2], dim[3], dim[4]);
        kh_out(&k, SY_F32, rank, n[0], n[1], n[2], n[3], n[4]);
        kh_check(&k, "block_sum");
        for (int64_t i = 0; i < sycpu_count(&k.in[0]); i++) total += (double)(square ? x[i] * x[i] : x[i]);
        for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) got += (double)((float *)k.want[0])[i];
        if (wild <= 0) cr_assert(near(got, total, 1e-4));
        kh_end(&k);
    }
}

Test(sums, block_sums)
{
    for (int wild = -20; wild <= 20; wild += 20) {
        blocks(1, (int[]){1, 1, 1, 1, 1}, (int[]){1}, wild);
        blocks(1, (int[]){1000, 1, 1, 1, 1}, (int[]){125}, wild);
        blocks(2, (int[]){12, 34, 1, 1, 1}, (int[]){3, 17}, wild);
        blocks(3, (int[]){4, 6, 40, 1, 1}, (int[]){1, 3, 20}, wild);
        blocks(5, (int[]){2, 4, 2, 6, 21}, (int[]){2, 2, 1, 3, 7}, wild);
    }
}

/* Blocks one column wide, which have a path of their own. */
Test(sums, block_sums_of_columns)
{
    for (int wild = -20; wild <= 20; wild += 20) {
        blocks(1, (int[]){70, 1, 1, 1, 1}, (int[]){1}, wild);
        blocks(2, (int[]){12, 34, 1, 1, 1}, (int[]){12, 1}, wild);
        blocks(2, (int[]){12, 600, 1, 1, 1}, (int[]){3, 1}, wild);
        blocks(3, (int[]){4, 6, 17, 1, 1}, (int[]){2, 3, 1}, wild);
        blocks(3, (int[]){4, 6, 257, 1, 1}, (int[]){1, 6, 1}, wild);
        blocks(5, (int[]){2, 4, 2, 6, 21}, (int[]){2, 2, 1, 3, 1}, wild);
        blocks(3, (int[]){3, 5, 1, 1, 1}, (int[]){1, 5, 1}, wild);
    }
}

/* Blocks of more rows than are summed at once, in every kind of kernel. */
Test(sums, block_sums_of_many_rows)
{
    for (int wild = 0; wild <= 20; wild += 20) {
        blocks(2, (int[]){600, 24, 1, 1, 1}, (int[]){300, 12}, wild);
        blocks(3, (int[]){10, 5, 33, 1, 1}, (int[]){5, 5, 33}, wild);
        blocks(2, (int[]){150, 40, 1, 1, 1}, (int[]){75, 1}, wild);
    }
}

/* Blocks of 3 x 7 in 6 x 21, to the bit; wild values bring NaN, infinities and zeros of both signs. */
Test(sums, block_max)
{
    for (int wild = -60; wild <= 60; wild += 20) {
        struct sy_attr_block attr = {{3, 7, 1, 1, 1}};
        struct kh k;
        kh_begin(&k, SY_OP_BLOCK_MAX, &attr, sizeof attr);
        k.wild = wild;
        const float *x = kh_in(&k, SY_F32, 2, 6, 21);
        kh_out(&k, SY_F32, 2, 2, 3);
        kh_check(&k, "block_max");
        for (int block = 0; block < 6; block++) {
            float top = 0;
            for (int i = 0; i < 21; i++) {
                float v = fabsf(x[(block / 3 * 3 + i / 7) * 21 + block % 3 * 7 + i % 7]);
                if (isnan(v) || isnan(top))
                    top = NAN;
                else if (v > top)
                    top = v;
            }
            cr_assert_eq(memcmp(&((float *)k.want[0])[block], &top, sizeof top), 0, "block %d", block);
        }
        kh_end(&k);
    }
}

/* One element decides, wherever it is. */
Test(sums, block_max_of_many_rows)
{
    for (int at = 0; at < 130 * 17; at += 303) {
        struct sy_attr_block attr = {{130, 17, 1, 1, 1}};
        struct kh k;
        kh_begin(&k, SY_OP_BLOCK_MAX, &attr, sizeof attr);
        float *x = kh_in(&k, SY_F32, 2, 130, 17);
        x[at] = at % 2 ? -9 : NAN;
        kh_out(&k, SY_F32, 2, 1, 1);
        kh_check(&k, "block_max");
        cr_expect(at % 2 ? *(float *)k.want[0] == 9 : isnan(*(float *)k.want[0]));
        kh_end(&k);
    }
}

/* Blocks of many columns and of one. */
Test(sums, block_max_of_long_rows)
{
    static const int width[] = {1, 5, 16, 40, 300};
    for (size_t w = 0; w < sizeof width / sizeof *width; w++) {
        struct sy_attr_block attr = {{2, width[w], 1, 1, 1}};
        struct kh k;
        float top = 0;
        kh_begin(&k, SY_OP_BLOCK_MAX, &attr, sizeof attr);
        float *x = kh_in(&k, SY_F32, 2, 4, 2 * width[w]);
        x[2 * width[w] - 1] = -9;
        kh_out(&k, SY_F32, 2, 2, 2);
        kh_check(&k, "block_max");
        for (int row = 0; row < 2; row++)
            for (int i = 0; i < width[w]; i++)
                top = fabsf(x[row * 2 * width[w] + i]) > top ? fabsf(x[row * 2 * width[w] + i]) : top;
        cr_expect_eq(((float *)k.want[0])[0], top);
        cr_expect_eq(((float *)k.want[0])[1], 9);
        kh_end(&k);
    }
}

Test(sums, block_sum_lanes_are_those_of_the_contract)
{
    struct sy_attr_block attr = {{2, 18, 1, 1, 1}};
    struct kh k;
    kh_begin(&k, SY_OP_BLOCK_SUM, &attr, sizeof attr);
    const float *x = kh_in(&k, SY_F32, 2, 2, 18);
    kh_out(&k, SY_F32, 2, 1, 1);
    kh_check(&k, "block_sum");
    float row[2];
    for (int i = 0; i < 2; i++, x += 18) {
        float a[8], b[4];
        for (int l = 0; l < 8; l++) a[l] = (x[l] + (l < 2 ? x[16 + l] : 0.0f)) + x[l + 8];
        for (int l = 0; l < 4; l++) b[l] = a[l] + a[l + 4];
        row[i] = (b[0] + b[2]) + (b[1] + b[3]);
    }
    cr_expect_eq(*(float *)k.want[0], row[0] + row[1]);
    kh_end(&k);
}

/* ---- trees ---- */

Test(sums, tree_sum)
{
    struct kh k;
    kh_begin(&k, SY_OP_TREE_SUM, NULL, 0);
    const float *x = kh_in(&k, SY_F32, 2, 2, 3);
    kh_out(&k, SY_F32, 1, 1);
    kh_check(&k, "tree_sum");
    cr_expect_eq(*(float *)k.want[0], ((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5]));
    kh_end(&k);
    for (int n = 1; n < 40; n++) {
        double sum = 0;
        kh_begin(&k, SY_OP_TREE_SUM, NULL, 0);
        x = kh_in(&k, SY_F32, 3, n, 1, 41 - n);
        kh_out(&k, SY_F32, 1, 1);
        kh_check(&k, "tree_sum");
        for (int i = 0; i < n * (41 - n); i++) sum += (double)x[i];
        cr_expect(near((double)*(float *)k.want[0], sum, 1e-5));
        kh_end(&k);
    }
}

/* One axis after the other, the last one first, gives tree_sum. */
Test(sums, tree_axis)
{
    for (int n = 1; n < 36; n += 1 + n / 9) {
        const int last = 37 - n, wild = 10 * (n % 2);
        struct kh axis[3], all;
        kh_begin(&all, SY_OP_TREE_SUM, NULL, 0);
        all.wild = wild;
        const float *x = kh_in(&all, SY_F32, 3, n, 3, last);
        kh_out(&all, SY_F32, 1, 1);
        kh_check(&all, "tree_sum");
        for (int dim = 2; dim >= 0; dim--) {
            struct sy_attr_axis attr = {dim};
            struct kh *k = &axis[dim];
            kh_begin(k, SY_OP_TREE_AXIS, &attr, sizeof attr);
            float *in = kh_in(k, SY_F32, 3, n, dim < 1 ? 1 : 3, dim < 2 ? 1 : last);
            memcpy(in, dim == 2 ? x : (float *)axis[dim + 1].want[0], kh_bytes(&k->in[0]));
            kh_out(k, SY_F32, 3, dim < 1 ? 1 : n, dim < 2 ? 1 : 3, 1);
            kh_check(k, "tree_axis");
        }
        cr_assert_lt(kh_differs(&all.out[0], all.want[0], axis[0].want[0]), 0);
        kh_end(&all);
        for (int dim = 0; dim < 3; dim++) kh_end(&axis[dim]);
    }
}

/* Each axis of a tensor: as a tree over columns that are copied out. */
Test(sums, tree_axis_keeps_the_others)
{
    static const int extent[3] = {5, 6, 40};
    for (int dim = 0; dim < 3; dim++) {
        struct sy_attr_axis attr = {dim};
        struct kh k;
        int inner = dim == 0 ? 240 : dim == 1 ? 40 : 1, n = extent[dim];
        kh_begin(&k, SY_OP_TREE_AXIS, &attr, sizeof attr);
        const float *x = kh_in(&k, SY_F32, 3, extent[0], extent[1], extent[2]);
        kh_out(&k, SY_F32, 3, dim == 0 ? 1 : 5, dim == 1 ? 1 : 6, dim == 2 ? 1 : 40);
        kh_check(&k, "tree_axis");
        for (int i = 0; i < 5 * 6 * 40 / n; i++) {
            float sum[64] = {0};
            for (int j = 0; j < n; j++) sum[j] = x[(i / inner * n + j) * inner + i % inner];
            for (int width = 32; width >= 1; width /= 2)
                for (int j = 0; j < width; j++) sum[j] = sum[2 * j] + sum[2 * j + 1];
            cr_assert_eq(((float *)k.want[0])[i], sum[0], "dim %d element %d", dim, i);
        }
        kh_end(&k);
    }
}

/* ---- maxima ---- */

/* NaN where there is one; never -0. */
static float largest(const float *x, int n, int stride)
{
    float top = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (isnan(x[i * stride])) return NAN;
        if (x[i * stride] > top) top = x[i * stride];
    }
    return top == 0.0f ? 0.0f : top;
}

/* Every axis of x [a, b, c], to the bit. */
static void maxima(int a, int b, int c, int wild)
{
    const int extent[3] = {a, b, c};
    for (int dim = 0; dim < 3; dim++) {
        struct sy_attr_axis attr = {dim};
        struct kh k;
        int inner = dim == 0 ? b * c : dim == 1 ? c : 1, n = extent[dim];
        kh_begin(&k, SY_OP_MAX_AXIS, &attr, sizeof attr);
        k.wild = wild;
        float *x = kh_in(&k, SY_F32, 3, a, b, c);
        for (int i = 0; i < a * b * c; i++) x[i] -= 2.5f; /* so that a 0 put in for nothing would win */
        if (wild) kh_fill(x, a * b * c, wild);
        kh_out(&k, SY_F32, 3, dim == 0 ? 1 : a, dim == 1 ? 1 : b, dim == 2 ? 1 : c);
        k.cpu_only = a * b * c > 10000 && wild < 60;
        kh_check(&k, "max_axis");
        for (int i = 0; i < a * b * c / n; i++) {
            float want = largest(x + i / inner * n * inner + i % inner, n, inner);
            cr_assert_eq(memcmp(&((float *)k.want[0])[i], &want, sizeof want), 0,
                         "dim %d element %d: %a, expected %a", dim, i, ((float *)k.want[0])[i], want);
        }
        kh_end(&k);
    }
}

Test(sums, max_axis)
{
    for (int wild = -60; wild <= 60; wild += 20) {
        maxima(1, 1, 1, wild);
        maxima(5, 6, 40, wild);
        maxima(3, 17, 16, wild);
        maxima(40, 1, 7, wild);
        maxima(70, 33, 31, wild);
    }
}

/* The harness takes any NaN for any other: here all variants are compared as bits. */
static void expect_bits(const struct kh *k, uint32_t want, int at)
{
    const struct sy_kernel *kernel;
    uint64_t next = 0;
    while ((kernel = kh_next(k->op, SY_F32, SY_F32, kh_features(), &next))) {
        void *got[SY_MAX_OUT];
        kh_run(k, kernel, 1, got, "max_axis");
        const uint32_t *bits = got[0];
        cr_assert(bits[0] == 0 && bits[1] == want, "%s: NaN at %d: %08x %08x", kernel->name, at, bits[0],
                  bits[1]);
        kh_free_guarded(got[0]);
    }
}

/* NaN is found in every place, and a line of zeros is +0. */
Test(sums, max_axis_of_nan_and_zeros)
{
    for (int n = 1; n <= 50; n++)
        for (int at = -1; at < n; at++) {
            struct sy_attr_axis attr = {1};
            struct kh k;
            kh_begin(&k, SY_OP_MAX_AXIS, &attr, sizeof attr);
            float *x = kh_in(&k, SY_F32, 2, 2, n);
            for (int i = 0; i < 2 * n; i++) x[i] = i % 3 ? -0.0f : i < n ? -0.0f : 0.0f;
            if (at >= 0) x[n + at] = -NAN;
            kh_out(&k, SY_F32, 2, 2, 1);
            expect_bits(&k, at < 0 ? 0 : 0x7fc00000, at);
            kh_end(&k);
        }
}

/* ---- columns and pieces ---- */

static void column_sum(int B, int T, int D, int leaves, int wild)
{
    struct sy_attr_leaf attr = {B / leaves};
    struct kh k;
    kh_begin(&k, SY_OP_COLUMN_SUM, &attr, sizeof attr);
    k.wild = wild;
    const float *x = kh_in(&k, SY_F32, 3, B, T, D);
    kh_out(&k, SY_F32, 1, D);
    kh_check(&k, "column_sum");
    for (int d = 0; d < D && wild <= 0; d++) {
        float sum[8] = {0};
        for (int row = 0; row < B * T; row++) sum[row / (B / leaves * T)] += x[row * D + d];
        for (int width = 4; width >= 1; width /= 2)
            for (int j = 0; j < width; j++) sum[j] = sum[2 * j] + sum[2 * j + 1];
        cr_assert_eq(((float *)k.want[0])[d], sum[0]);
    }
    kh_end(&k);
}

Test(sums, column_sum)
{
    static const int sizes[] = {1, 15, 16, 33, 400};
    for (int i = 0; i < 5; i++)
        for (int wild = -20; wild <= 20; wild += 20)
            for (int leaves = 1; leaves <= 8; leaves *= 2) column_sum(8, 5, sizes[i], leaves, wild);
}

Test(sums, tree_add)
{
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        for (int n = 1; n < 9000; n = n * 7 + 2) {
            struct kh k;
            kh_begin(&k, SY_OP_TREE_ADD, NULL, 0);
            k.wild = 10 * (n % 2);
            const float *x = kh_in(&k, SY_F32, 2, ranks, n);
            kh_out(&k, SY_F32, 1, n);
            kh_check(&k, "tree_add");
            if (ranks == 4 && !k.wild)
                cr_expect_eq(((float *)k.want[0])[0], (x[0] + x[n]) + (x[2 * n] + x[3 * n]));
            kh_end(&k);
        }
    }
}

Test(sums, count_sum)
{
    struct kh k;
    kh_begin(&k, SY_OP_COUNT_SUM, NULL, 0);
    int32_t *count = kh_in(&k, SY_I32, 2, 3, 5);
    for (int i = 0; i < 15; i++) count[i] = INT32_MAX - i;
    kh_out(&k, SY_I64, 1, 3);
    kh_check(&k, "count_sum");
    for (int e = 0; e < 3; e++)
        cr_expect_eq(((int64_t *)k.want[0])[e], 5 * (int64_t)INT32_MAX - (25 * e + 10));
    kh_end(&k);
}

/* ---- expand_dims, squeeze ---- */

Test(sums, a_dim_of_one_comes_and_goes)
{
    struct kh there, back;
    kh_begin(&there, SY_OP_EXPAND_DIMS, NULL, 0);
    kh_in(&there, SY_F32, 2, 13, 37);
    kh_out(&there, SY_F32, 3, 1, 13, 37);
    kh_check(&there, "expand_dims");
    cr_expect_eq(memcmp(there.want[0], there.in[0].data, kh_bytes(&there.in[0])), 0);
    kh_begin(&back, SY_OP_SQUEEZE, NULL, 0);
    kh_in(&back, SY_F32, 3, 1, 5, 4);
    kh_out(&back, SY_F32, 2, 5, 4);
    kh_check(&back, "squeeze");
    cr_expect_eq(memcmp(back.want[0], back.in[0].data, kh_bytes(&back.in[0])), 0);
    kh_end(&there);
    kh_end(&back);
}
