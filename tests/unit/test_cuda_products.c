/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of the CUDA backend, emulated on the CPU: who does them (cuBLASLt, which is emulated too and adds in the
 * reference's order, or the own kernels), in all dtypes, in pieces, with TF32; what options are refused. What each product
 * is: test_gemm.c. */
#include "config.h"

#include "product_case.h"

/* Products that the emulated cuBLASLt has done; a GPU's does not say. */
static uint64_t by_library(const struct kh_device *d)
{
    Dl_info info;
    if (d->real) return 0;
    cr_assert(dladdr(d->desc, &info));
    void *plugin = dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(plugin);
    const uint64_t *count = dlsym(plugin, "emulated_cublaslt_products");
    cr_assert_not_null(count);
    return *count;
}

static struct kh_device open_with(const char *key, const char *value)
{
    const struct sy_backend_option options[] = {{key, value}, {NULL, NULL}};
    static struct kh_device d; /* the context keeps the address of its host */
    d = (struct kh_device){0};
    kh_open_device(&d, options);
    if (!d.desc)
        cr_skip_test("the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries");
    return d;
}

static void close_device(struct kh_device *d)
{
    d->desc->close(d->context);
}

/* Sums with infinities of both signs depend on their order: a library of a GPU gets finite numbers. */
static struct kh begin(const struct kh_device *d, int op, const struct shape *s,
                       const struct sy_attr_leaf *attr)
{
    struct kh k;
    kh_begin(&k, op, attr, sizeof *attr);
    k.wild = kh_by_library(d, op) ? -1 : 1;
    add_operands(&k, s, SY_F32, SY_F32);
    if (s->experts) add_counts(&k, s);
    kh_reference(&k, "product");
    return k;
}

static void check_dtypes(struct kh_device *d, int op, const struct shape *s, int leaf)
{
    struct sy_attr_leaf attr = {leaf};
    struct kh k = begin(d, op, s, &attr);
    for (int dtypes = 0; dtypes < 4; dtypes++) {
        char what[160];
        snprintf(what, sizeof what, "op %d: experts %d, groups %d, slots %d, k %d, n %d, leaf %d, dtypes %d",
                 op, s->experts, s->groups, s->slots, s->k, s->n, leaf, dtypes);
        kh_check_device_as(&k, d, dtypes & 1 ? SY_BF16 : SY_F32, dtypes & 2 ? SY_BF16 : SY_F32, what);
    }
    kh_end(&k);
}

/* One leaf, and leaves that make a tree of several levels. */
static void check_all(struct kh_device *d)
{
    static const struct shape plain[] = {{0, 6, 1, 2, 3}, {0, 6, 13, 36, 67}, {0, 12, 11, 66, 130}};
    static const struct shape grouped[] = {{3, 6, 5, 6, 33}, {2, 6, 40, 36, 66}, {5, 6, 3, 30, 130}};
    for (int i = 0; i < 3; i++) {
        for (int op = 0; op < 3; op++) {
            const int axis = leaf_axis(plain_ops[op], &plain[i]);
            check_dtypes(d, plain_ops[op], &plain[i], axis);
            if (axis % 6 == 0) check_dtypes(d, plain_ops[op], &plain[i], axis / 6);
        }
        for (int op = 0; op < N_GROUPED; op++) {
            const int axis = leaf_axis(grouped_ops[op], &grouped[i]);
            check_dtypes(d, grouped_ops[op], &grouped[i], axis);
            if (axis % 6 == 0) check_dtypes(d, grouped_ops[op], &grouped[i], axis / 6);
        }
    }
}

Test(cuda_products, own_kernels_equal_the_reference)
{
    struct kh_device d = open_with("products", "own");
    const uint64_t before = by_library(&d);
    check_all(&d);
    cr_expect_eq(by_library(&d), before, "the library did products");
    close_device(&d);
}

Test(cuda_products, products_by_cublaslt_equal_the_reference)
{
    struct kh_device d = open_with("products", "cublaslt");
    const uint64_t before = by_library(&d);
    check_all(&d);
    cr_expect(d.real || by_library(&d) > before + 50, "the library did few products");
    close_device(&d);
}

/* Results of leaves, those that become bfloat16, and copies of experts' buffers, that the workspace does not hold all at once;
 * the last pieces begin earlier. */
Test(cuda_products, pieces_give_the_whole)
{
    static const struct shape rows = {0, 1, 300, 16, 2048}, columns = {0, 16, 2, 300, 2048};
    static const struct shape experts = {3, 1, 350000, 4, 4}, rounded = {0, 1, 4500, 4, 2048};
    static const struct shape wide = {0, 1, 300, 16, 8192}; /* 64 rows would fit, 128 are taken */
    const struct {
        int op, leaf;
        const struct shape *shape;
        enum sy_dtype out;
        uint64_t calls;
    } cases[] = {{SY_OP_MATMUL, 1, &rows, SY_F32, 2},
                 {SY_OP_MATMUL_TN, 1, &columns, SY_F32, 2},
                 {SY_OP_GROUPED_MATMUL_TN, 1, &experts, SY_F32, 2},
                 {SY_OP_MATMUL, 4, &rounded, SY_BF16, 2},
                 {SY_OP_MATMUL, 1, &wide, SY_F32, 3}};
    struct kh_device d = open_with("products", "cublaslt");
    for (int i = 0; i < 5; i++) {
        struct sy_attr_leaf attr = {cases[i].leaf};
        struct kh k = begin(&d, cases[i].op, cases[i].shape, &attr);
        const uint64_t before = by_library(&d);
        kh_check_device_as(&k, &d, SY_F32, cases[i].out, "in pieces");
        cr_expect(d.real || by_library(&d) - before == cases[i].calls, "case %d: %d calls", i,
                  (int)(by_library(&d) - before));
        kh_end(&k);
    }
    close_device(&d);
}

/* ---- options ---- */

Test(cuda_products, tf32_rounds_float32_operands_alone)
{
    static const struct shape s = {0, 4, 16, 64, 48};
    struct sy_attr_leaf attr = {64};
    struct kh_device d = open_with("tf32", "true");
    struct kh k;
    void *got[SY_MAX_OUT];
    int rounded = 0;
    kh_begin(&k, SY_OP_MATMUL, &attr, sizeof attr);
    add_operands(&k, &s, SY_F32, SY_F32);
    kh_reference(&k, "tf32");
    kh_run_device(&k, &d, kh_device_kernel(&d, k.op, SY_F32, SY_F32), got, "tf32");
    for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) {
        const float have = ((float *)got[0])[i], want = ((float *)k.want[0])[i];
        cr_assert_float_eq(have, want, 64 * 4 * 0x1p-10f); /* operands up to 2 */
        rounded += have != want;
    }
    cr_expect_gt(rounded, 1000, "float32 products were not rounded");
    kh_free_guarded(got[0]);
    kh_check_device_as(&k, &d, SY_BF16, SY_F32, "bfloat16 products have no TF32");
    kh_end(&k);
    close_device(&d);
}

static void keep_text(void *arg, const char *line)
{
    snprintf(arg, 256, "%s", line);
}

Test(cuda_products, bad_options_are_refused)
{
    static const struct {
        struct sy_backend_option options[3];
        const char *text;
    } cases[] = {
        {{{"products", "magma"}, {NULL, NULL}}, "products magma: there are cublaslt and own"},
        {{{"tf32", "1"}, {NULL, NULL}}, "tf32 1: it is true or false"},
        {{{"tf32", "true"}, {"products", "own"}, {NULL, NULL}}, "tf32 = true needs products = cublaslt"},
        {{{"tf23", "true"}, {NULL, NULL}}, "unknown option \"tf23\""},
    };
    const struct kh_device *d = kh_device();
    if (!d->desc)
        cr_skip_test("the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char error[256] = "", text[256];
        struct sy_host host = {.bytes = sizeof host, .arg = error, .threads = 1, .error = keep_text};
        void *context = NULL;
        uint32_t features;
        cr_expect_eq(d->desc->open(&host, cases[i].options, &context, &features, text, sizeof text),
                     SY_EINVAL);
        cr_expect_null(context);
        cr_expect(strstr(error, cases[i].text) == error, "%s", error);
    }
}
