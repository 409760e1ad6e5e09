/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on bf16 operands: every fast kernel gives what the float32 reference gives on the widened
 * operands, rounded once; the kernels that multiply pairs or tiles of bf16 come near it. */
#include "config.h"

#include "attention_half.h"

/* got: of the bf16 call h; k->want: what the reference has of the float32 call. */
static void compare(const struct kh *k, const struct kh *h, void *const *got, const char *what)
{
    for (int i = 0; i < k->n_out; i++) {
        const struct sy_tensor *t = &k->out[i];
        int64_t n = sycpu_count(t), at = -1;
        if (t->rank && h->out[i].dtype == SY_BF16) {
            float *have = malloc((size_t)n * sizeof *have + 1), *want = malloc((size_t)n * sizeof *want + 1);
            uint16_t *half = narrowed(k->want[i], n);
            cr_assert(have && want);
            widen(have, got[i], n);
            widen(want, half, n);
            at = kh_differs(t, have, want);
            free(have);
            free(want);
            free(half);
        } else if (t->rank) {
            at = kh_differs(t, got[i], k->want[i]);
        }
        cr_assert_lt(at, 0, "%s: output %d differs at %lld of %lld", what, i, (long long)at, (long long)n);
    }
}

/* All variants on bf16 operands against the reference on the widened ones, which it leaves in k->want. */
static void check_half(struct kh *k, const char *what)
{
    round_inputs(k);
    kh_reference(k, what);
    struct kh h = half_of(k);
    const uint32_t features = kh_widening_features(); /* the others: see below */
    const struct sy_kernel *kernel;
    for (uint64_t at = 0; (kernel = kh_next(k->op, SY_BF16, SY_BF16, features, &at));)
        for (int threads = 1; threads <= 3; threads += 2) {
            void *got[SY_MAX_OUT];
            char name[300];
            snprintf(name, sizeof name, "%s: %s, %d threads", what, kernel->name, threads);
            kh_run(&h, kernel, threads, got, name);
            compare(k, &h, got, name);
            for (int i = 0; i < k->n_out; i++) kh_free_guarded(got[i]);
        }
    kh_end(&h);
}

static void check_both(const struct shape *s, int wild)
{
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    char what[200];
    snprintf(what, sizeof what, "b %d tq %d tk %d h %d K %d causal %d buckets %d drop %d wild %d", s->rows,
             s->queries, s->keys, s->heads, s->head_dim, s->causal, s->buckets, s->dropout, wild);
    add_forward(&forward, s, &attr, wild);
    check_half(&forward, what);
    if (!s->position) {
        add_backward(&backward, &forward, s->self);
        check_half(&backward, what);
        kh_end(&backward);
    }
    kh_end(&forward);
}

#define SIZES(a, b, c, d, e, f)                                                                              \
    .self = a, .rows = b, .queries = c, .keys = d, .heads = e, .head_dim = f, .blocks = 1

static const struct shape shapes[] = {
    {SIZES(1, 4, 24, 24, 4, 64), .buckets = 32, .dropout = 1},
    {SIZES(1, 5, 24, 24, 2, 64), .causal = 1, .buckets = 32, .dropout = 1},
    {SIZES(0, 5, 24, 24, 2, 64), .dropout = 1},
    {SIZES(1, 3, 1, 1, 1, 1), .causal = 1},
    {SIZES(1, 5, 150, 150, 2, 20), .buckets = 16, .dropout = 1},
    {SIZES(0, 4, 70, 129, 2, 33), .buckets = 8},
    {SIZES(0, 5, 2, 80, 2, 12), .causal = 1, .buckets = 32, .position = 15},
    {SIZES(0, 5, 1, 150, 2, 84), .causal = 1, .buckets = 32, .position = 140},
    {SIZES(0, 6, 1, 24, 4, 64)},
    {SIZES(1, 5, 90, 90, 2, 8), .causal = 1, .uniform = 1, .buckets = 16},
    {SIZES(1, 5, 90, 90, 2, 8), .no_lengths = 1, .segments = 1, .buckets = 16, .dropout = 1},
    {SIZES(0, 6, 20, 140, 2, 8), .mask = 1},
    {SIZES(0, 5, 20, 80, 2, 8), .segments = 2, .dense = 1},
};

Test(attention_bf16, variants_equal_the_rounded_reference)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_both(&shapes[i], 0);
        check_both(&shapes[i], -10);
        check_both(&shapes[i], 9);
    }
}

/* ---- products of pairs ---- */

static void check_near(const struct kh *k, const struct kh *h, const struct sy_kernel *kernel,
                       const char *what)
{
    void *one[SY_MAX_OUT], *more[SY_MAX_OUT];
    kh_run(h, kernel, 1, one, what);
    kh_run(h, kernel, 3, more, what);
    for (int i = 0; i < k->n_out; i++) {
        int64_t at = h->out[i].rank ? kh_differs(&h->out[i], one[i], more[i]) : -1;
        cr_assert_lt(at, 0, "%s: %s: output %d depends on the number of threads", what, kernel->name, i);
        compare_near(k, h, i, one[i], what);
        kh_free_guarded(one[i]);
        kh_free_guarded(more[i]);
    }
}

/* The kernel that a run takes, and all those of pairs and of matrix tiles. */
static void check_chosen(struct kh *k, const char *what)
{
    const uint32_t pairs = SYCPU_AVX512_BF16 | SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED;
    const uint32_t features = kh_all_features();
    const struct sy_kernel *kernel;
    uint64_t at = 0;
    char name[300];
    round_inputs(k);
    kh_reference(k, what);
    struct kh h = half_of(k);
    for (int n = 0; (kernel = kh_next(k->op, SY_BF16, SY_BF16, features, &at)); n++) {
        if (n > 0 && !(kernel->needs & pairs)) break;
        snprintf(name, sizeof name, "%s: %s", what, kernel->name);
        check_near(k, &h, kernel, name);
    }
    kh_end(&h);
}

static const struct shape wide[] = {
    {SIZES(1, 4, 24, 24, 4, 64), .buckets = 32, .dropout = 1},
    {SIZES(1, 5, 24, 24, 2, 64), .causal = 1, .buckets = 32, .dropout = 1},
    {SIZES(0, 5, 23, 25, 2, 64), .dropout = 1},
    {SIZES(1, 3, 1, 1, 1, 32), .causal = 1},
    {SIZES(1, 5, 150, 150, 2, 32), .buckets = 16, .dropout = 1},
    {SIZES(1, 5, 131, 131, 2, 96), .causal = 1, .buckets = 16, .dropout = 1},
    {SIZES(0, 4, 70, 129, 2, 64), .buckets = 8},
    {SIZES(0, 5, 2, 80, 2, 32), .causal = 1, .buckets = 32, .position = 15},
    {SIZES(0, 5, 1, 150, 2, 96), .causal = 1, .buckets = 32, .position = 140},
    {SIZES(0, 6, 1, 25, 4, 64)},
    {SIZES(1, 5, 90, 90, 2, 32), .causal = 1, .uniform = 1, .buckets = 16},
    {SIZES(0, 6, 20, 140, 2, 32), .mask = 1},
    {SIZES(0, 5, 20, 80, 2, 32), .segments = 2, .dense = 1},
    {SIZES(0, 5, 20, 80, 2, 20), .buckets = 8, .dropout = 1},
};

Test(attention_bf16, chosen_kernels_are_near_the_reference)
{
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        const struct shape *s = &wide[i];
        struct sy_attr_attention attr = attr_of(s);
        struct kh forward, backward;
        char what[100];
        snprintf(what, sizeof what, "tq %d tk %d K %d causal %d drop %d", s->queries, s->keys, s->head_dim,
                 s->causal, s->dropout);
        add_forward(&forward, s, &attr, 0);
        check_chosen(&forward, what);
        add_backward(&backward, &forward, s->self);
        if (!s->position) check_chosen(&backward, what);
        kh_end(&backward);
        kh_end(&forward);
    }
}

/* ---- tensor cores of a CUDA device, emulated ---- */

/* Elements of output 0 that are not those of the own kernel, which has the reference's bits. */
static int64_t differing(const struct kh *h, void *got[SY_MAX_OUT], const char *what)
{
    struct kh_device *own = kh_device_own();
    void *other[SY_MAX_OUT];
    int64_t n = 0;
    kh_run_device(h, own, kh_device_kernel(own, h->op, SY_BF16, SY_BF16), other, what);
    for (int64_t i = 0; i < sycpu_count(&h->out[0]); i++)
        n += ((uint16_t *)got[0])[i] != ((uint16_t *)other[0])[i];
    for (int i = 0; i < h->n_out; i++) kh_free_guarded(other[i]);
    return n;
}

/* Of a call with float32 operands, which are rounded. Returns how many elements another kernel than the own one has
 * rounded otherwise. */
static int64_t check_on_tensor_cores(struct kh *k, const char *what)
{
    struct kh_device *d = kh_device();
    void *got[SY_MAX_OUT];
    round_inputs(k);
    kh_reference(k, what);
    struct kh h = half_of(k);
    kh_run_device(&h, d, kh_device_kernel(d, k->op, SY_BF16, SY_BF16), got, what);
    for (int i = 0; i < k->n_out; i++) compare_near(k, &h, i, got[i], what);
    int64_t n = differing(&h, got, what);
    for (int i = 0; i < k->n_out; i++) kh_free_guarded(got[i]);
    kh_end(&h);
    return n;
}

/* The forward call, and the gradient where there is one: elements of both, of whichever are fewer. */
static int64_t check_tensor_cores(const struct shape *whole)
{
    struct shape few = *whole;
    const struct shape *s = &few;
    if (few.rows > 3) few.rows = 3; /* of no tokens, one, all */
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    char what[100];
    snprintf(what, sizeof what, "tensor cores: tq %d tk %d K %d", s->queries, s->keys, s->head_dim);
    add_forward(&forward, s, &attr, 0);
    int64_t n = check_on_tensor_cores(&forward, what);
    if (!s->position) {
        add_backward(&backward, &forward, s->self);
        const int64_t of_gradient = check_on_tensor_cores(&backward, what);
        n = of_gradient < n ? of_gradient : n;
        kh_end(&backward);
    }
    kh_end(&forward);
    return n;
}

/* Heads of one to eight steps of 16 columns, tiles of 16, 32 and 64 queries. */
Test(attention_bf16, tensor_cores_are_near_the_reference)
{
    static const struct shape more[] = {
        {SIZES(0, 2, 70, 70, 2, 128), .buckets = 8, .dropout = 1},
        {SIZES(1, 3, 17, 17, 3, 16), .causal = 1, .buckets = 8},
        {SIZES(0, 2, 1, 300, 2, 80), .causal = 1, .position = 200, .buckets = 8},
        {SIZES(0, 2, 65, 64, 2, 112), .uniform = 1, .mask = 1},
    };
    int64_t n = 0;
    if (!kh_device()->desc)
        cr_skip_test("the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries");
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) n += check_tensor_cores(&wide[i]);
    cr_expect_gt(n, 1000, "heads of 16 to 96 columns do not run on tensor cores");
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        cr_expect_gt(check_tensor_cores(&more[i]), 0, "shape %d does not run on tensor cores", (int)i);
}
