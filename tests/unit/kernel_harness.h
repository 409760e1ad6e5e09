/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a CPU kernel in every variant this processor has and compares with the reference, bit for bit:
 *
 *     struct kh k;
 *     kh_begin(&k, SY_OP_SOFTMAX, NULL, 0);
 *     kh_in(&k, SY_F32, 3, 2, 5, 7);      random numbers; integers are 0: fill them through the returned pointer
 *     kh_out(&k, SY_F32, 3, 2, 5, 7);
 *     kh_out(&k, SY_F32, 2, 2, 5);
 *     kh_check(&k, "what is tested");     fails the Criterion test on a difference
 *     kh_end(&k);                         the reference's outputs are in k.want[] until here
 *
 * Kernels are those of the list that the backend gives the host. Each is asked for its workspace before there
 * is memory and prepared before operands have values, as at bind. Every buffer lies between guard zones; outputs
 * and workspace hold rubbish before a run; inputs must stay as they were; 1 and 3 threads. The CUDA backend, emulated
 * (tests/cuda), takes part where it was built: kernel_device.h. */
#ifndef KERNEL_HARNESS_H
#define KERNEL_HARNESS_H

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#ifdef __SANITIZE_ADDRESS__
#    include <sanitizer/asan_interface.h>
#endif

#include "backends/cpu/cpu.h"
#include "base/amx.h"

extern const struct sy_backend_desc sy_backend_cpu;

struct kh {
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT]; /* data of in: the values a run starts from */
    void *want[SY_MAX_OUT];                          /* what the reference gave */
    const void *attr;
    uint32_t attr_bytes;
    int op, n_in, n_out;
    int in_place; /* set it: output 0 is the memory of input 0 */
    int cpu_only; /* set it: a large case that says nothing more of the CUDA backend */
    int wild;     /* set before kh_in: percent of denormals, zeros of both signs, huge values, inf and NaN */
};

/* ---- random numbers ---- */

static uint64_t kh_state = 88172645463325252u;
static inline uint32_t kh_random(void)
{
    kh_state = kh_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(kh_state >> 32);
}
static inline float kh_uniform(float low, float high)
{
    return low + (high - low) * ((float)(kh_random() >> 8) * 0x1p-24f);
}

static inline float kh_special(void)
{
    static const float special[] = {0.0f,       -0.0f,     1e-42f, -1e-42f, 0x1p-149f,
                                    -0x1p-149f, 1e30f,     -1e30f, 3.4e38f, -3.4e38f,
                                    INFINITY,   -INFINITY, NAN,    1e-20f,  -1e-20f};
    return special[kh_random() % (sizeof special / sizeof special[0])];
}

/* wild: percent of special values; negative: the same without those that can end as inf or NaN. */
static inline void kh_fill(float *x, int64_t n, int wild)
{
    static const float tiny[] = {0.0f, -0.0f, 1e-42f, -1e-42f, 0x1p-149f, 1e-20f, -1e-20f};
    int percent = wild < 0 ? -wild : wild;
    for (int64_t i = 0; i < n; i++) {
        x[i] = kh_uniform(-2.0f, 2.0f);
        if ((int)(kh_random() % 100) < percent) x[i] = wild > 0 ? kh_special() : tiny[kh_random() % 7];
    }
}

/* ---- operands ---- */

static inline size_t kh_size(int dtype)
{
    static const size_t size[SY_DTYPE_COUNT] = {4, 2, 8, 4, 8, 1};
    return size[dtype];
}
static inline size_t kh_bytes(const struct sy_tensor *t)
{
    return (size_t)sycpu_count(t) * kh_size(t->dtype);
}

static inline void kh_begin(struct kh *k, int op, const void *attr, size_t attr_bytes)
{
    memset(k, 0, sizeof *k);
    k->op = op;
    k->attr = attr;
    k->attr_bytes = (uint32_t)attr_bytes;
}

static inline struct sy_tensor kh_tensor(int dtype, int rank, va_list dims)
{
    struct sy_tensor t = {0};
    t.dtype = (uint8_t)dtype;
    t.rank = (uint8_t)rank;
    for (int i = 0; i < SY_MAX_DIMS; i++) t.dim[i] = i < rank ? va_arg(dims, int) : 1;
    return t;
}

/* Dimensions are ints. Returns the values. */
static inline void *kh_in(struct kh *k, int dtype, int rank, ...)
{
    va_list dims;
    va_start(dims, rank);
    struct sy_tensor *t = &k->in[k->n_in++];
    *t = kh_tensor(dtype, rank, dims);
    va_end(dims);
    t->data = calloc(1, kh_bytes(t) + 1);
    cr_assert_not_null(t->data);
    if (dtype == SY_F32) kh_fill(t->data, sycpu_count(t), k->wild);
    return t->data;
}

static inline void kh_in_absent(struct kh *k)
{
    struct sy_tensor *t = &k->in[k->n_in++];
    memset(t, 0, sizeof *t);
    for (int i = 0; i < SY_MAX_DIMS; i++) t->dim[i] = 1;
}

static inline void kh_out(struct kh *k, int dtype, int rank, ...)
{
    va_list dims;
    va_start(dims, rank);
    k->out[k->n_out++] = kh_tensor(dtype, rank, dims);
    va_end(dims);
}

/* Its rank is 0, and nothing of it is compared. */
static inline void kh_out_absent(struct kh *k)
{
    k->out[k->n_out++] = (struct sy_tensor){.dim = {1, 1, 1, 1, 1}};
}

static inline void kh_end(struct kh *k)
{
    for (int i = 0; i < k->n_in; i++) free(k->in[i].data);
    for (int i = 0; i < k->n_out; i++) free(k->want[i]);
    memset(k, 0, sizeof *k);
}

/* ---- guarded buffers ---- */

#define KH_GUARD 64

/* With AddressSanitizer reading the zones is an error too, as long as they are closed. */
#ifdef __SANITIZE_ADDRESS__
#    define KH_CLOSE(data, bytes) __asan_poison_memory_region(data, bytes)
#    define KH_OPEN(data, bytes)  __asan_unpoison_memory_region(data, bytes)
#else
#    define KH_CLOSE(data, bytes) ((void)(data), (void)(bytes))
#    define KH_OPEN(data, bytes)  ((void)(data), (void)(bytes))
#endif

static inline unsigned char *kh_guarded(size_t bytes, int filler)
{
    unsigned char *base = NULL;
    size_t whole = (bytes + 63) / 64 * 64 + 2 * KH_GUARD;
    cr_assert_eq(posix_memalign((void **)&base, 64, whole), 0);
    memset(base, 0xc3, whole);
    memset(base + KH_GUARD, filler, bytes);
    KH_CLOSE(base, KH_GUARD);
    KH_CLOSE(base + KH_GUARD + bytes, whole - KH_GUARD - bytes);
    return base + KH_GUARD;
}

/* Opens them. */
static inline int kh_guards_intact(const unsigned char *data, size_t bytes)
{
    const unsigned char *end = data + (bytes + 63) / 64 * 64 + KH_GUARD;
    KH_OPEN(data - KH_GUARD, KH_GUARD);
    KH_OPEN(data + bytes, (size_t)(end - data) - bytes);
    for (const unsigned char *p = data - KH_GUARD; p < data; p++)
        if (*p != 0xc3) return 0;
    for (const unsigned char *p = data + bytes; p < end; p++)
        if (*p != 0xc3) return 0;
    return 1;
}

static inline void kh_free_guarded(void *data)
{
    if (data) free((unsigned char *)data - KH_GUARD);
}

/* ---- threads ---- */

struct kh_part {
    void (*fn)(void *, int64_t, int);
    void *arg;
    int64_t from, to;
    int thread;
};

static inline void *kh_work(void *arg)
{
    struct kh_part *part = arg;
    for (int64_t i = part->from; i < part->to; i++) part->fn(part->arg, i, part->thread);
    return NULL;
}

static inline void kh_parallel(void *threads, int64_t n, void (*fn)(void *, int64_t, int), void *arg)
{
    enum { MOST = 8 };
    int count = *(int *)threads;
    pthread_t id[MOST];
    struct kh_part part[MOST];
    for (int t = 0; t < count; t++) {
        part[t] = (struct kh_part){fn, arg, n * t / count, n * (t + 1) / count, t};
        if (t) cr_assert_eq(pthread_create(&id[t], NULL, kh_work, &part[t]), 0);
    }
    kh_work(&part[0]);
    for (int t = 1; t < count; t++) pthread_join(id[t], NULL);
}

/* ---- memory of plans ---- */

static int kh_taken; /* pieces that were not given back */

static inline void *kh_take(void *arg, uint64_t bytes)
{
    void *memory = NULL;
    (void)arg;
    cr_assert_eq(posix_memalign(&memory, 64, bytes), 0);
    kh_taken++;
    return memory;
}

static inline void kh_give_back(void *arg, void *memory)
{
    (void)arg;
    free(memory);
    kh_taken--;
}

/* ---- kernels of the list ---- */

/* Of what this processor has: enum sycpu_feature without a BLAS. */
static inline uint32_t kh_features(void)
{
    static const struct sy_backend_option none[] = {{NULL, NULL}};
    struct sy_host host = {.bytes = sizeof host};
    void *context;
    uint32_t have = 0;
    char text[80];
    cr_assert_eq(sy_backend_cpu.open(&host, none, &context, &have, text, sizeof text), SY_OK);
    return have;
}

/* Without kernels that multiply pairs or tiles of bf16, which have bits of their own. */
static inline uint32_t kh_widening_features(void)
{
    return kh_features() & ~(uint32_t)(SYCPU_AVX512_BF16 | SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED);
}

/* All of them, with emulated tiles and those of the processor. */
static inline uint32_t kh_all_features(void)
{
    uint32_t have = kh_features();
    if (!SYCPU_HAS_AMX_BF16 || !(have & SYCPU_AVX512_BF16)) return have;
    return have | SYCPU_AMX_EMULATED | (syi_amx_request() ? SYCPU_AMX_BF16 : 0);
}

/* For tests of kernels on tiles: skipped where there are none. */
static inline uint32_t kh_tile_features(void)
{
    if (!SYCPU_HAS_AMX_BF16) cr_skip_test("this build has no kernels of amx_bf16");
    if (!(kh_features() & SYCPU_AVX512_BF16))
        cr_skip_test("this CPU has no AVX512-BF16, which amx_bf16 needs besides");
    return kh_all_features();
}

/* The next kernel of the op for these dtypes that needs nothing but `features`; start with *at = 0. NULL: no
 * more. */
static inline const struct sy_kernel *kh_next(int op, int in_dtype, int out_dtype, uint32_t features,
                                              uint64_t *at)
{
    while (*at < sy_backend_cpu.n_kernels) {
        const struct sy_kernel *kernel = &sy_backend_cpu.kernels[(*at)++];
        if (kernel->op == op && kernel->in_dtype == in_dtype && kernel->out_dtype == out_dtype &&
            !(kernel->needs & ~features))
            return kernel;
    }
    return NULL;
}

/* The kernel that needs no feature: for float32 the reference, else the reference between conversions. */
static inline const struct sy_kernel *kh_portable(int op, int in_dtype, int out_dtype)
{
    uint64_t at = 0;
    const struct sy_kernel *kernel = kh_next(op, in_dtype, out_dtype, 0, &at);
    cr_assert_not_null(kernel, "op %d has no portable kernel", op);
    return kernel;
}

/* ---- running and comparing ---- */

/* Bytes of scratch, asked as bind does, before there is memory: operands that are there point nowhere. */
static inline uint64_t kh_workspace(const struct sy_call *call, const struct sy_kernel *kernel, int threads)
{
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
    struct sy_call early = *call;
    early.in = in;
    early.out = out;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        struct sy_tensor *t = i < call->n_in ? &in[i] : &out[i - call->n_in];
        *t = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (t->data) t->data = (void *)(uintptr_t)64;
    }
    return kernel->workspace ? kernel->workspace(&early, threads) : 0;
}

/* Operands of a run, filled with rubbish; kh_run copies the values after the kernel was prepared. */
static inline void kh_make_operands(const struct kh *k, int threads, struct sy_tensor *in,
                                    struct sy_tensor *out)
{
    for (int i = 0; i < k->n_in; i++) {
        in[i] = k->in[i];
        if (in[i].data) in[i].data = kh_guarded(kh_bytes(&in[i]), 0xfd);
    }
    for (int i = 0; i < k->n_out; i++) {
        out[i] = k->out[i];
        if (!out[i].rank) continue;
        out[i].data = k->in_place && i == 0 ? in[0].data : kh_guarded(kh_bytes(&out[i]), 0xa5 + threads);
    }
}

/* Runs one kernel on copies; the outputs are left in got[] (kh_free_guarded). */
static inline void kh_run(const struct kh *k, const struct sy_kernel *kernel, int threads,
                          void *got[SY_MAX_OUT], const char *what)
{
    struct sy_host host = {.bytes = sizeof host,
                           .arg = &threads,
                           .threads = threads,
                           .parallel_for = kh_parallel,
                           .take = kh_take,
                           .give_back = kh_give_back};
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
    struct sy_call call = {.host = &host, .in = in, .out = out, .attr = k->attr, .attr_bytes = k->attr_bytes};
    call.op = (uint16_t)k->op;
    call.n_in = (uint8_t)k->n_in;
    call.n_out = (uint8_t)k->n_out;
    kh_make_operands(k, threads, in, out);
    call.workspace_bytes = kh_workspace(&call, kernel, threads);
    unsigned char *workspace = kh_guarded(call.workspace_bytes, 0xff); /* NaN */
    call.workspace = workspace;
    if (kernel->prepare)
        cr_assert_eq(kernel->prepare(NULL, &call, &call.plan), SY_OK, "%s: %s was not prepared", what,
                     kernel->name);
    cr_assert_eq(kh_taken, call.plan != NULL, "%s: %s keeps a plan that is not the host's memory", what,
                 kernel->name);
    for (int i = 0; i < k->n_in; i++)
        if (in[i].data) memcpy(in[i].data, k->in[i].data, kh_bytes(&in[i]));

    cr_assert_eq(kernel->run(NULL, &call), SY_OK, "%s: %s returned an error", what, kernel->name);
    if (call.plan) kernel->release(NULL, call.plan);
    cr_assert_eq(kh_taken, 0, "%s: %s does not give its plan back", what, kernel->name);
    cr_assert(kh_guards_intact(workspace, call.workspace_bytes), "%s: %s, %d threads: beyond the workspace",
              what, kernel->name, threads);
    for (int i = 0; i < k->n_in; i++) {
        if (!in[i].data) continue;
        cr_assert(kh_guards_intact(in[i].data, kh_bytes(&in[i])), "%s: %s: beyond input %d", what,
                  kernel->name, i);
        if (k->in_place && i == 0) continue;
        cr_assert_eq(memcmp(in[i].data, k->in[i].data, kh_bytes(&in[i])), 0, "%s: %s changed input %d", what,
                     kernel->name, i);
        kh_free_guarded(in[i].data);
    }
    for (int i = 0; i < k->n_out; i++) {
        got[i] = out[i].data;
        if (!got[i]) continue;
        cr_assert(kh_guards_intact(out[i].data, kh_bytes(&out[i])), "%s: %s, %d threads: beyond output %d",
                  what, kernel->name, threads, i);
    }
    kh_free_guarded(workspace);
}

static inline int kh_is_nan(const struct sy_tensor *t, const void *x, int64_t i)
{
    if (t->dtype == SY_BF16) return (((const uint16_t *)x)[i] & 0x7fff) > 0x7f80;
    return t->dtype == SY_F32 && isnan(((const float *)x)[i]);
}

/* Index of the first element that differs, else -1; NaN equals NaN. */
static inline int64_t kh_differs(const struct sy_tensor *t, const void *a, const void *b)
{
    size_t size = kh_size(t->dtype);
    for (int64_t i = 0; t->rank && i < sycpu_count(t); i++) {
        if (memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size) == 0)
            continue;
        if (kh_is_nan(t, a, i) && kh_is_nan(t, b, i)) continue;
        return i;
    }
    return -1;
}

static inline void kh_compare(const struct kh *k, const struct sy_kernel *kernel, int threads,
                              const char *what)
{
    void *got[SY_MAX_OUT];
    kh_run(k, kernel, threads, got, what);
    for (int i = 0; i < k->n_out; i++) {
        int64_t at = kh_differs(&k->out[i], got[i], k->want[i]);
        double a = 0, b = 0;
        if (at >= 0 && k->out[i].dtype == SY_F32) a = ((float *)got[i])[at], b = ((float *)k->want[i])[at];
        cr_assert_lt(at, 0, "%s: %s, %d threads: output %d element %lld: %a, the reference has %a", what,
                     kernel->name, threads, i, (long long)at, a, b);
        kh_free_guarded(got[i]);
    }
}

/* The reference alone, into k->want. */
static inline void kh_reference(struct kh *k, const char *what)
{
    void *got[SY_MAX_OUT];
    kh_run(k, kh_portable(k->op, SY_F32, SY_F32), 1, got, what);
    for (int i = 0; i < k->n_out; i++) {
        size_t bytes = kh_bytes(&k->out[i]);
        if (!got[i]) continue;
        free(k->want[i]);
        k->want[i] = malloc(bytes + 1);
        cr_assert_not_null(k->want[i]);
        memcpy(k->want[i], got[i], bytes);
        kh_free_guarded(got[i]);
    }
}

#include "tests/unit/kernel_device.h"

static inline void kh_check(struct kh *k, const char *what)
{
    const struct sy_kernel *kernel;
    uint64_t at = 0;
    kh_reference(k, what);
    while ((kernel = kh_next(k->op, SY_F32, SY_F32, kh_features(), &at)))
        for (int threads = 1; threads <= 3; threads += 2) kh_compare(k, kernel, threads, what);
    kh_check_device(k, what);
}

/* The same of operands that are bfloat16 in part: the reference between conversions, and every kernel that is listed for these
 * dtypes, those of pairs and of tiles left out, which have other bits. */
static inline void kh_check_as(struct kh *k, int in_dtype, int out_dtype, const char *what)
{
    const uint32_t features = kh_widening_features();
    const struct sy_kernel *kernel;
    uint64_t at = 0;
    void *want[SY_MAX_OUT];
    kh_run(k, kh_portable(k->op, in_dtype, out_dtype), 1, want, what);
    for (int i = 0; i < k->n_out; i++) k->want[i] = want[i];
    while ((kernel = kh_next(k->op, in_dtype, out_dtype, features, &at)))
        for (int threads = 1; threads <= 3; threads += 2) kh_compare(k, kernel, threads, what);
    if (!k->cpu_only) kh_compare_device(k, kh_device(), in_dtype, out_dtype, what);
    for (int i = 0; i < k->n_out; i++) kh_free_guarded(want[i]), k->want[i] = NULL;
}

#endif
