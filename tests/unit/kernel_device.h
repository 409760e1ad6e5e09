/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel test's case on the CUDA backend, emulated on the CPU (tests/cuda), or where SY_TEST_CUDA names the plugin of nvcc,
 * on a GPU: operands are copied to its memory, the kernel runs, outputs are compared bit for bit with the CPU's reference,
 * products by the library of a GPU within a bound. kernel_harness.h includes this file. */
#ifndef KERNEL_DEVICE_H
#define KERNEL_DEVICE_H

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "base/bf16.h"

/* The opened backend, one a test process. */
struct kh_device {
    const struct sy_backend_desc *desc; /* NULL: it was not built (no C++ compiler, no shared libraries) */
    struct sy_host host;
    void *context;
    int real;    /* a GPU */
    int library; /* it may do products */
};

static inline void kh_device_error(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "cuda: %s\n", line);
}

/* The plugin under test. Returns whether there may be one. */
static inline int kh_device_path(char path[PATH_MAX])
{
    const char *folder = getenv("SY_TEST_PLUGINS"), *plugin = getenv("SY_TEST_CUDA");
    if (!plugin && !folder) return 0;
    snprintf(path, PATH_MAX, "%s%s", plugin ? plugin : folder, plugin ? "" : "/switchyard-cuda.so");
    return 1;
}

/* Opens it with options; desc stays NULL where it was not built. */
static inline void kh_open_device(struct kh_device *d, const struct sy_backend_option *options)
{
    char path[PATH_MAX], text[256];
    uint32_t features;
    if (!kh_device_path(path)) return;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        cr_assert_neq(access(path, F_OK), 0, "%s", dlerror());
        return;
    }
    d->desc = dlsym(library, "sy_backend_cuda");
    d->host = (struct sy_host){.bytes = sizeof d->host, .threads = 1, .error = kh_device_error};
    cr_assert_not_null(d->desc);
    d->real = !dlsym(library, "emulated_cublaslt_products");
    d->library = 1;
    for (int i = 0; options[i].key; i++)
        if (!strcmp(options[i].key, "products")) d->library = strcmp(options[i].value, "own") != 0;
    cr_assert_eq(d->desc->open(&d->host, options, &d->context, &features, text, sizeof text), SY_OK);
}

static inline struct kh_device *kh_device(void)
{
    static struct kh_device device;
    static const struct sy_backend_option none[] = {{NULL, NULL}};
    if (!device.desc) kh_open_device(&device, none);
    return &device;
}

/* The same with products = own, whose kernels all have the reference's bits. */
static inline struct kh_device *kh_device_own(void)
{
    static struct kh_device device;
    static const struct sy_backend_option own[] = {{"products", "own"}, {NULL, NULL}};
    if (!device.desc) kh_open_device(&device, own);
    return &device;
}

/* ---- memory ---- */

enum { KH_LINE = 64 };

static inline size_t kh_lines(size_t bytes)
{
    return (bytes + KH_LINE - 1) / KH_LINE * KH_LINE;
}

/* Device memory of whole lines that begins with `from`, or with rubbish where that is NULL. */
static inline void *kh_to_device(struct kh_device *d, const void *from, size_t bytes)
{
    size_t lines = kh_lines(bytes + 1);
    unsigned char *host = malloc(lines);
    void *memory = NULL;
    cr_assert_not_null(host);
    memset(host, 0xc3, lines);
    memset(host, 0xa5, bytes);
    if (from) memcpy(host, from, bytes);
    cr_assert_eq(d->desc->device->alloc(d->context, lines, &memory), SY_OK);
    cr_assert_eq(d->desc->device->copy(d->context, memory, host, lines), SY_OK);
    free(host);
    return memory;
}

/* Back, into memory for kh_free_guarded; what lies after it in its last line must be as it was. */
static inline void *kh_from_device(struct kh_device *d, void *memory, size_t bytes, const char *what)
{
    size_t lines = kh_lines(bytes + 1);
    unsigned char *all = malloc(lines), *host = kh_guarded(bytes, 0);
    cr_assert_not_null(all);
    cr_assert_eq(d->desc->device->copy(d->context, all, memory, lines), SY_OK);
    for (size_t i = bytes; i < lines; i++)
        cr_assert_eq(all[i], 0xc3, "%s: cuda wrote beyond an operand", what);
    memcpy(host, all, bytes);
    free(all);
    return host;
}

/* ---- running ---- */

/* What bind does: the workspace before there is memory, memory, prepare, then values. */
static inline void kh_run_device(const struct kh *k, struct kh_device *d, const struct sy_kernel *kernel,
                                 void *got[SY_MAX_OUT], const char *what)
{
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
    struct sy_call call = {
        .host = &d->host, .in = k->in, .out = k->out, .attr = k->attr, .attr_bytes = k->attr_bytes};
    call.op = (uint16_t)k->op;
    call.n_in = (uint8_t)k->n_in;
    call.n_out = (uint8_t)k->n_out;
    for (int i = 0; i < k->n_out; i++) out[i] = k->out[i], out[i].data = (void *)(uintptr_t)64;
    call.out = out;
    call.workspace_bytes = kh_workspace(&call, kernel, 1);
    for (int i = 0; i < k->n_in; i++) {
        in[i] = k->in[i];
        if (in[i].data) in[i].data = kh_to_device(d, in[i].data, kh_bytes(&in[i]));
    }
    for (int i = 0; i < k->n_out; i++)
        out[i].data = k->in_place && i == 0 ? in[0].data : kh_to_device(d, NULL, kh_bytes(&out[i]));
    call.in = in;
    call.workspace = call.workspace_bytes ? kh_to_device(d, NULL, call.workspace_bytes) : NULL;
    if (kernel->prepare)
        cr_assert_eq(kernel->prepare(d->context, &call, &call.plan), SY_OK, "%s: not prepared", what);
    cr_assert_eq(kernel->run(d->context, &call), SY_OK, "%s: cuda returned an error", what);
    cr_assert_eq(d->desc->device->sync(d->context), SY_OK);
    if (call.plan) kernel->release(d->context, call.plan);
    for (int i = 0; i < k->n_out; i++) got[i] = kh_from_device(d, out[i].data, kh_bytes(&out[i]), what);
    if (call.workspace) kh_free_guarded(kh_from_device(d, call.workspace, call.workspace_bytes, what));
    for (int i = 0; i < k->n_in; i++) {
        if (!in[i].data || (k->in_place && i == 0)) continue;
        void *after = kh_from_device(d, in[i].data, kh_bytes(&in[i]), what);
        cr_assert_eq(memcmp(after, k->in[i].data, kh_bytes(&in[i])), 0, "%s: cuda changed input %d", what, i);
        kh_free_guarded(after);
        d->desc->device->free(d->context, in[i].data);
    }
    for (int i = 0; i < k->n_out; i++) d->desc->device->free(d->context, out[i].data);
    d->desc->device->free(d->context, call.workspace);
}

/* ---- comparing ---- */

static inline const struct sy_kernel *kh_device_kernel(const struct kh_device *d, int op, int in_dtype,
                                                       int out_dtype)
{
    for (uint64_t i = 0; d->desc && i < d->desc->n_kernels; i++) {
        const struct sy_kernel *kernel = &d->desc->kernels[i];
        if (kernel->op == op && kernel->in_dtype == in_dtype && kernel->out_dtype == out_dtype) return kernel;
    }
    return NULL;
}

/* A product that a library with sums of its own may do. */
static inline int kh_by_library(const struct kh_device *d, int op)
{
    return d->real && d->library &&
           (op == SY_OP_MATMUL || op == SY_OP_MATMUL_NT || op == SY_OP_MATMUL_TN ||
            op == SY_OP_GROUPED_MATMUL || op == SY_OP_GROUPED_MATMUL_NT || op == SY_OP_GROUPED_MATMUL_TN);
}

static inline double kh_value(const struct sy_tensor *t, const void *x, int64_t at)
{
    return t->dtype == SY_BF16 ? syi_bf16_to_float(((const uint16_t *)x)[at]) : ((const float *)x)[at];
}

/* Output 0 of a product of finite numbers: within a bound of its largest element. */
static inline void kh_compare_near(const struct kh *k, const void *got, const char *what)
{
    const struct sy_tensor *t = &k->out[0];
    double most = 0, bound;
    for (int64_t at = 0; at < sycpu_count(t); at++) most = fmax(most, fabs(kh_value(t, k->want[0], at)));
    bound = most * (t->dtype == SY_BF16 ? 0x1p-7 : 0x1p-16);
    for (int64_t at = 0; at < sycpu_count(t); at++) {
        const double have = kh_value(t, got, at), want = kh_value(t, k->want[0], at);
        cr_assert(fabs(have - want) <= bound, "%s: cuda: element %lld is %g, the reference has %g", what,
                  (long long)at, have, want);
    }
}

/* Against k->want, as the case stands; outputs of rank 0 are absent. An op without a kernel is left out here: test_cuda.c has the list of those. */
static inline void kh_compare_device(const struct kh *k, struct kh_device *d, int in_dtype, int out_dtype,
                                     const char *what)
{
    const struct sy_kernel *kernel = kh_device_kernel(d, k->op, in_dtype, out_dtype);
    void *got[SY_MAX_OUT];
    if (!kernel) return;
    kh_run_device(k, d, kernel, got, what);
    if (kh_by_library(d, k->op)) {
        if (k->wild <= 0) kh_compare_near(k, got[0], what);
        kh_free_guarded(got[0]);
        return;
    }
    for (int i = 0; i < k->n_out; i++) {
        size_t size = kh_size(k->out[i].dtype);
        for (int64_t at = 0; k->out[i].rank && at < sycpu_count(&k->out[i]); at++)
            cr_assert(memcmp((char *)got[i] + (size_t)at * size, (char *)k->want[i] + (size_t)at * size,
                             size) == 0 ||
                          (kh_is_nan(&k->out[i], got[i], at) && kh_is_nan(&k->out[i], k->want[i], at)),
                      "%s: cuda: output %d element %lld has other bits than the reference", what, i,
                      (long long)at);
        kh_free_guarded(got[i]);
    }
}

/* An operand that may be bfloat16: ops.def marks it f, or marks none; but map_sums gives sums and maxima in float32 alone. */
static inline int kh_is_floating(const struct kh *k, int operand, int dtype)
{
    static const char *const types[SY_OP_COUNT] = {
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help) [id] = (types),
#include "switchyard/ops.def"
#undef SY_OP
    };
    const struct sy_attr_map *map = k->attr;
    if (k->op == SY_OP_MAP_SUMS && operand >= k->n_in && !(map->stored >> (operand - k->n_in) & 1)) return 0;
    return dtype == SY_F32 && (!*types[k->op] || types[k->op][operand] == 'f');
}

/* The float32 case with its floating-point operands rounded to these dtypes, against the reference between
 * conversions. */
static inline void kh_check_device_as(const struct kh *k, struct kh_device *d, int in_dtype, int out_dtype,
                                      const char *what)
{
    struct kh half = *k;
    void *want[SY_MAX_OUT];
    for (int i = 0; i < k->n_in; i++) {
        if (in_dtype == SY_F32 || !k->in[i].data || !kh_is_floating(k, i, k->in[i].dtype)) continue;
        uint16_t *x = malloc((size_t)sycpu_count(&k->in[i]) * sizeof *x + 1);
        cr_assert_not_null(x);
        for (int64_t e = 0; e < sycpu_count(&k->in[i]); e++)
            x[e] = syi_bf16_from_float(((float *)k->in[i].data)[e]);
        half.in[i].data = x;
        half.in[i].dtype = SY_BF16;
    }
    for (int i = 0; i < k->n_out; i++)
        if (kh_is_floating(k, k->n_in + i, k->out[i].dtype)) half.out[i].dtype = (uint8_t)out_dtype;
    kh_run(&half, kh_portable(k->op, in_dtype, out_dtype), 1, want, what);
    for (int i = 0; i < k->n_out; i++) half.want[i] = want[i];
    kh_compare_device(&half, d, in_dtype, out_dtype, what);
    for (int i = 0; i < k->n_out; i++) kh_free_guarded(want[i]);
    for (int i = 0; i < k->n_in; i++)
        if (half.in[i].data != k->in[i].data) free(half.in[i].data);
}

/* After kh_reference. */
static inline void kh_check_device(const struct kh *k, const char *what)
{
    struct kh_device *d = kh_device();
    if (k->cpu_only) return;
    kh_compare_device(k, d, SY_F32, SY_F32, what);
    if (kh_by_library(d, k->op)) kh_compare_device(k, d = kh_device_own(), SY_F32, SY_F32, what);
    if (k->op == SY_OP_ATTENTION || k->op == SY_OP_ATTENTION_GRAD)
        d = kh_device_own(); /* tensor cores: test_attention_bf16.c */
    if (kh_device_kernel(d, k->op, SY_BF16, SY_BF16)) kh_check_device_as(k, d, SY_BF16, SY_BF16, what);
}

#endif
