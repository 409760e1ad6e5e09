/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: which ops are marked, and that what runs on the rows of a product has the bits of ops that run one
 * after the other: every variant, thread count and dtype, results large enough to be reported block by block
 * and smaller. */
#include "config.h"

#include <stdio.h>

#include "backends/cpu/bf16.h"
#include "random_program.h"
#include "runtime/session.h"

/* ---- a program with every kind of chain ---- */

struct shape {
    int64_t rows, length, depth, width; /* b, t, k; n of the products, twice that of a gated one */
    int dtype;
};

static int input(struct syi_program *p, const char *name, int dtype, int rank, const int64_t *dim)
{
    return syi_tensor_add(p, name, SYI_INPUT, dtype, rank, dim, NULL);
}

static void output(struct syi_program *p, const char *name, int tensor)
{
    struct syi_tensor t = p->tensor[tensor];
    syi_store(p, tensor, syi_tensor_add(p, name, SYI_OUTPUT, t.dtype, t.rank, t.dim, NULL));
}

static struct syi_program *chains(const struct shape *s)
{
    struct syi_program *p;
    struct sy_error err = {0};
    const int64_t x[] = {s->rows, s->length, s->depth}, w[] = {s->depth, s->width};
    const int64_t packed[] = {s->depth, 2 * s->width}, back[] = {s->width, s->depth};
    const int64_t y[] = {s->rows, s->length, s->width}, yy[] = {s->rows, s->length, 2 * s->width};
    const int64_t four = 4;
    cr_assert_eq(syi_program_new("chains", &p, &err), SY_OK);
    int in = input(p, "x", s->dtype, 3, x), rng = input(p, "rng", SY_I64, 1, &four);
    int weight = input(p, "w", s->dtype, 2, w), gated = input(p, "gated", s->dtype, 2, packed);
    int turned = input(p, "turned", s->dtype, 2, back), scale = input(p, "scale", SY_F32, 1, &s->width);
    int residual = input(p, "residual", SY_F32, 3, y), saved = input(p, "saved", s->dtype, 3, yy);
    /* dropout, residual, norm */
    int a = syi_as(p, syi_matmul(p, in, weight), s->dtype);
    a = syi_map2(p, SY_MAP_ADD, residual, syi_dropout(p, a, rng, 3, 0.25));
    output(p, "normed", syi_rms_norm(p, a, scale, -1, 1e-6));
    output(p, "sum", a);
    /* scale and a value a column, of transposed weights */
    int b = syi_map1(p, SY_MAP_MULS, syi_as(p, syi_matmul_nt(p, in, turned), s->dtype), 0.125);
    output(p, "scaled", syi_map2(p, SY_MAP_ADD, b, scale));
    /* gated unit and its gradient */
    int c = syi_as(p, syi_matmul(p, in, gated), s->dtype);
    output(p, "unit", syi_glu(p, c, rng, -1, SY_GELU, 5, 0.5));
    struct sy_attr_glu attr = {.width = s->width, .activation = SY_SILU, .site = 6, .rate = 0.5};
    int d = syi_as(p, syi_matmul_nt(p, in, turned), s->dtype);
    output(p, "slope", SYI_RECORD(p, SY_OP_GLU_GRAD, &attr, saved, d, rng, -1));
    cr_assert_eq(syi_program_status(p, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_program_fuse(p, &err), SY_OK, "%s", err.text);
    return p;
}

/* ---- running it ---- */

static void fill(const struct syi_session *session)
{
    uint64_t state = 7;
    const struct syi_shared *s;
    for (size_t i = 0; (s = syi_session_shared(session, i)) != NULL; i++) {
        int64_t n = sycpu_count(&s->tensor);
        for (int64_t k = 0; k < n && s->info.kind == SYI_INPUT; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            float value = (float)((double)(state >> 40) / (1 << 23) - 1);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            if (s->tensor.dtype == SY_F32) ((float *)s->tensor.data)[k] = value;
            if (s->tensor.dtype == SY_BF16) ((uint16_t *)s->tensor.data)[k] = (uint16_t)(bits >> 16);
            if (s->tensor.dtype == SY_I64) ((int64_t *)s->tensor.data)[k] = (int64_t)(state >> 40);
        }
    }
}

/* hooked: every op by itself. */
static struct syi_session *run(struct syi_backend *backend, struct syi_comm *comm,
                               const struct syi_mesh *mesh, const struct shape *shape, int hooked)
{
    struct syi_session_options options = {.backend = backend, .comm = comm, .mesh = mesh, .reproducible = 1};
    struct syi_session *session;
    struct sy_error err = {0};
    int index;
    cr_assert_eq(syi_session_new(&options, &session, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_session_add(session, chains(shape), &index, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_session_bind(session, &err), SY_OK, "%s", err.text);
    const struct syi_program *p = syi_session_program(session, index);
    int chained = 0;
    for (size_t i = 0; i < p->n_ops; i++) chained += p->op[i].chained;
    cr_assert_geq(chained, 8); /* all but the products */
    if (hooked) syi_session_hook(session, rp_see_nothing, NULL);
    fill(session);
    cr_assert_eq(syi_session_run(session, index, &err), SY_OK, "%s", err.text);
    return session;
}

static void expect_same_outputs(const struct syi_session *a, const struct syi_session *b, const char *what)
{
    const struct syi_shared *x;
    int outputs = 0;
    for (size_t i = 0; (x = syi_session_shared(a, i)) != NULL; i++) {
        const struct syi_shared *y = syi_session_shared(b, i);
        if (x->info.kind != SYI_OUTPUT) continue;
        size_t bytes = (size_t)sycpu_count(&x->tensor) * syi_dtype_bytes(x->tensor.dtype);
        cr_expect_eq(memcmp(x->tensor.data, y->tensor.data, bytes), 0, "%s: %s differs", what, x->name);
        outputs++;
    }
    cr_assert_eq(outputs, 5);
}

static void compare(const char *variant, int threads, const struct shape *shape)
{
    const struct sy_backend_option options[] = {{"variant", variant}, {NULL, NULL}};
    struct syi_threads *pool = NULL;
    struct syi_backend *backend = NULL;
    struct syi_mesh mesh = mesh_of(1, 1, 1);
    struct syi_comm comm;
    struct sy_error err = {0};
    char what[96];
    cr_assert_eq(syi_threads_new(threads, 1, &pool, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_backend_open("cpu", options, pool, &backend, &err), SY_OK, "%s", err.text);
    syi_comm_self(&comm);
    struct syi_session *chained = run(backend, &comm, &mesh, shape, 0);
    struct syi_session *apart = run(backend, &comm, &mesh, shape, 1);
    snprintf(what, sizeof what, "%s, %d threads, %s, %lld x %lld", variant, threads,
             syi_dtype_name(shape->dtype), (long long)(shape->rows * shape->length), (long long)shape->width);
    expect_same_outputs(chained, apart, what);
    syi_session_free(chained);
    syi_session_free(apart);
    syi_comm_close(&comm);
    syi_backend_close(backend);
    syi_threads_free(pool);
}

/* The widest variant and those after it. */
static void compare_variants(const struct shape *shape, int portable)
{
    static const struct {
        const char *name;
        uint32_t needs;
    } variants[] = {{"avx512_bf16", SYCPU_AVX512_BF16},
                    {"avx512", SYCPU_AVX512},
                    {"avx2", SYCPU_AVX2},
                    {"neon", SYCPU_NEON},
                    {"portable", 0}};
    for (size_t i = 0; i < SYI_COUNT(variants); i++)
        for (int threads = 1; threads <= 3; threads++)
            if ((sycpu_detect() & variants[i].needs) == variants[i].needs && (variants[i].needs || portable))
                compare(variants[i].name, threads, shape);
}

Test(chain, small_results_have_the_bits_of_single_ops)
{
    static const struct shape shapes[] = {{1, 1, 1, 1, SY_F32},    {3, 5, 7, 33, SY_F32},
                                          {2, 13, 24, 64, SY_F32}, {7, 31, 16, 96, SY_BF16},
                                          {3, 5, 7, 33, SY_BF16},  {1, 200, 2, 515, SY_F32}};
    for (size_t i = 0; i < SYI_COUNT(shapes); i++) compare_variants(&shapes[i], 1);
}

/* 16 MiB and more in a product; the rows of a thread end within a row of the batch. */
Test(chain, large_results_have_the_bits_of_single_ops, .timeout = 240)
{
    static const struct shape shapes[] = {{3, 997, 3, 1408, SY_F32}, {2, 1201, 4, 3586, SY_BF16}};
    for (size_t i = 0; i < SYI_COUNT(shapes); i++) compare_variants(&shapes[i], 0);
}

/* ---- what is marked ---- */

static struct syi_program *begin(int *x, int *w)
{
    struct syi_program *p;
    struct sy_error err = {0};
    cr_assert_eq(syi_program_new("marks", &p, &err), SY_OK);
    *x = input(p, "x", SY_F32, 3, (int64_t[]){2, 3, 8});
    *w = input(p, "w", SY_F32, 2, (int64_t[]){8, 8});
    return p;
}

/* Ops marked, one bit each. */
static uint32_t marks(struct syi_program *p)
{
    uint32_t found = 0;
    struct sy_error err = {0};
    cr_assert_eq(syi_program_status(p, &err), SY_OK, "%s", err.text);
    syi_chain(p);
    for (size_t i = 0; i < p->n_ops; i++) found |= (uint32_t)p->op[i].chained << i;
    syi_program_free(p);
    return found;
}

Test(chain, what_takes_rows_of_a_product_is_marked)
{
    int x, w, y;
    struct syi_program *p = begin(&x, &w);
    y = syi_map1(p, SY_MAP_TANH, syi_matmul(p, x, w), 0); /* 0, 1 */
    y = syi_map2(p, SY_MAP_ADD, y, x);                    /* 2 */
    syi_matmul_nt(p, y, w);                               /* 3 */
    syi_map1(p, SY_MAP_TANH, y, 0);                       /* 4: takes nothing of the product before it */
    cr_expect_eq(marks(p), 0x6);
}

Test(chain, what_needs_other_rows_is_not_marked)
{
    int x, w, lse;
    struct syi_program *p = begin(&x, &w);
    syi_softmax(p, syi_matmul(p, x, w), &lse); /* 1: row by row, but no kernel does it so */
    cr_expect_eq(marks(p), 0);

    p = begin(&x, &w);
    int other = input(p, "other", SY_F32, 3, (int64_t[]){2, 3, 8});
    int y = syi_matmul(p, x, w);
    syi_store(p, syi_map2(p, SY_MAP_ADD, y, other),
              x); /* 2 writes over what every row of the product needs */
    cr_expect_eq(marks(p), 0x2);

    p = begin(&x, &w);
    y = syi_matmul_tn(p, x, x); /* a gradient of weights has no rows to report */
    syi_map1(p, SY_MAP_TANH, y, 0);
    cr_expect_eq(marks(p), 0);
}
