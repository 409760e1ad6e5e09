/* SPDX-License-Identifier: Apache-2.0 */
/* The op normal: against values computed elsewhere; moments; an element's number depends on its address alone
 * (parts of a tensor, ranks); what is recorded and what the check refuses. The formula: test_fmath.c. */
#include "config.h"

#include "kernel_harness.h"
#include "passes/passes.h"
#include "random_program.h"
#include "runtime/session.h"

/* ---- one call ---- */

/* A call for the part of a tensor that begins at `first`, with the reference's numbers in k->want[0]. */
static void part(struct kh *k, const struct sy_attr_normal *attr, const int64_t *state, int rank,
                 const int *dim, const int64_t *first)
{
    kh_begin(k, SY_OP_NORMAL, attr, sizeof *attr);
    kh_in(k, SY_F32, rank, dim[0], dim[1], dim[2], dim[3], dim[4]);
    memcpy(kh_in(k, SY_I64, 1, 4), state, 4 * sizeof *state);
    kh_out(k, SY_F32, rank, dim[0], dim[1], dim[2], dim[3], dim[4]);
    memcpy(k->in[0].first, first, sizeof k->in[0].first);
    memcpy(k->out[0].first, first, sizeof k->out[0].first);
}

static const int64_t zero[SY_MAX_DIMS], rng[4] = {((int64_t)1 << 32) + 42, 7, 1000, 2000};

/* ---- values ---- */

/* Rows 2^33 + 1 and 2^33 + 2, channels 10 to 15; computed by another program to 30 digits. */
Test(normal, known_values)
{
    static const double want[12] = {0.8700266107,  0.3254270181,   0.6392831373,  0.7262745619,
                                    -0.0391984914, -1.3675915744,  0.07829102514, -0.2529461186,
                                    0.6513100499,  -0.02180715851, 2.399782162,   0.3994045796};
    const int64_t first[SY_MAX_DIMS] = {INT64_C(1) << 31, 1, 10};
    struct sy_attr_normal attr = {3, {4, 6, 6}};
    struct kh k;
    part(&k, &attr, rng, 3, (int[]){1, 2, 6, 1, 1}, first);
    kh_check(&k, "normal");
    for (int i = 0; i < 12; i++)
        cr_expect_float_eq(((float *)k.want[0])[i], want[i], 1e-6, "number %d: %.9g, expected %.9g", i,
                           (double)((float *)k.want[0])[i], want[i]);
    kh_end(&k);
}

/* Bounds of four standard deviations of each estimate. */
Test(normal, moments)
{
    enum { N = 1000000, COLUMNS = 1000 };
    struct sy_attr_normal attr = {1, {1, 1, 1}};
    struct kh k;
    double sum[5] = {0}, beside = 0, below = 0;
    int beyond = 0;
    part(&k, &attr, rng, 2, (int[]){N / COLUMNS, COLUMNS, 1, 1, 1}, zero);
    kh_reference(&k, "normal");
    const float *y = k.want[0];
    for (int i = 0; i < N; i++) {
        double x = (double)y[i];
        sum[1] += x, sum[2] += x * x, sum[3] += x * x * x, sum[4] += x * x * x * x;
        beyond += fabs(x) > 3;
        if (i >= 1) beside += x * (double)y[i - 1];
        if (i >= COLUMNS) below += x * (double)y[i - COLUMNS];
    }
    double mean = sum[1] / N, variance = sum[2] / N - mean * mean;
    cr_expect_float_eq(mean, 0, 0.004, "mean %g", mean);
    cr_expect_float_eq(variance, 1, 0.0057, "variance %g", variance);
    cr_expect_float_eq(sum[3] / N, 0, 0.0155, "third moment %g", sum[3] / N);
    cr_expect_float_eq(sum[4] / N, 3, 0.04, "fourth moment %g", sum[4] / N);
    cr_expect_float_eq(beyond / (double)N, 0.0027, 0.0003, "%d beyond 3", beyond);
    cr_expect_float_eq(beside / N, 0, 0.004, "numbers next to each other: %g", beside / N);
    cr_expect_float_eq(below / N, 0, 0.004, "numbers below each other: %g", below / N);
    kh_end(&k);
}

/* ---- addresses ---- */

/* Cuts of every dim of [3, 4, 5, 2, 19], and of long rows, in all variants. */
static void parts(int rank, const int *dim, int cut_dim, int at)
{
    struct sy_attr_normal attr = {9, {dim[1], dim[2], dim[3]}};
    struct kh whole, k;
    int64_t inner = 1;
    for (int d = cut_dim + 1; d < rank; d++) inner *= dim[d];
    part(&whole, &attr, rng, rank, dim, zero);
    kh_check(&whole, "normal");
    for (int second = 0; second < 2; second++) {
        int64_t first[SY_MAX_DIMS] = {0}, n = second ? dim[cut_dim] - at : at;
        int some[SY_MAX_DIMS];
        memcpy(some, dim, sizeof some);
        some[cut_dim] = (int)n;
        first[cut_dim] = second ? at : 0;
        part(&k, &attr, rng, rank, some, first);
        kh_check(&k, "part of normal");
        for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) {
            int64_t outer = i / (n * inner), from = (outer * dim[cut_dim] + first[cut_dim]) * inner;
            cr_assert_eq(((float *)k.want[0])[i], ((float *)whole.want[0])[from + i % (n * inner)],
                         "dim %d cut at %d: element %lld of part %d", cut_dim, at, (long long)i, second);
        }
        kh_end(&k);
    }
    kh_end(&whole);
}

Test(normal, part_of_a_tensor_has_its_numbers)
{
    for (int dim = 0; dim < 5; dim++) parts(5, (int[]){3, 4, 5, 2, 19}, dim, dim == 4 ? 5 : 1);
    for (int at = 1; at < 9; at++) parts(2, (int[]){2, 130, 1, 1, 1}, 1, at);
    parts(1, (int[]){9001, 1, 1, 1, 1}, 0, 4102);
    parts(3, (int[]){2, 3, 8200, 1, 1}, 2, 4097);
}

static void numbers(const int64_t *state, int64_t site, float y[1000])
{
    struct sy_attr_normal attr = {site, {1, 1, 1}};
    struct kh k;
    part(&k, &attr, state, 2, (int[]){10, 100, 1, 1, 1}, zero);
    kh_check(&k, "normal");
    memcpy(y, k.want[0], 1000 * sizeof *y);
    kh_end(&k);
}

static int equal_numbers(const float *a, const float *b)
{
    int n = 0;
    for (int i = 0; i < 1000; i++) n += a[i] == b[i];
    return n;
}

Test(normal, seed_step_and_site_count_and_nothing_else)
{
    float y[1000], other[1000];
    const int64_t states[][4] = {{43, 7, 0, 0}, {42, 8, 0, 0}, {42, 7, 0, 0}};
    numbers(rng, 3, y);
    numbers(rng, 4, other);
    cr_expect_leq(equal_numbers(y, other), 2, "another site");
    numbers(states[0], 3, other);
    cr_expect_leq(equal_numbers(y, other), 2, "another seed");
    numbers(states[1], 3, other);
    cr_expect_leq(equal_numbers(y, other), 2, "another step");
    numbers(states[2], 3, other);
    cr_expect_eq(equal_numbers(y, other), 1000, "rows of a microbatch, or the seed's high word, count");
    int distinct = 0;
    for (int i = 1; i < 1000; i++) distinct += y[i] != y[i - 1] && (i < 100 || y[i] != y[i - 100]);
    cr_expect_geq(distinct, 997);
}

/* ---- ranks ---- */

enum { ROWS = 4, POSITIONS = 6, COLUMNS = 40 };

struct job {
    const struct syi_mesh *mesh;
    float got[ROWS * POSITIONS * COLUMNS]; /* of rank 0 */
    int split;                             /* out: mesh axes that split the op's output */
};

/* The numbers of a tensor that rules split, gathered. */
static struct syi_program *numbers_program(void)
{
    static const int64_t dim[3] = {ROWS, POSITIONS, COLUMNS};
    static const uint8_t axis[3] = {SYI_AXIS_BATCH, SYI_AXIS_HEADS, SYI_AXIS_MLP};
    struct syi_program *p;
    cr_assert_eq(syi_program_new("numbers", &p, NULL), SY_OK);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) p->leaf_count[i] = 2;
    p->leaf_count[SYI_AXIS_NONE] = 1;
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 3, dim, axis);
    int state = syi_tensor_add(p, "rng", SYI_INPUT, SY_I64, 1, (int64_t[]){4}, NULL);
    syi_output(p, syi_map1(p, SY_MAP_COPY, syi_normal(p, x, state, 5), 0), "y");
    return p;
}

static int run_numbers(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct job *job = arg;
    struct syi_program *global = numbers_program(), *local = NULL;
    struct syi_backend *backend = NULL;
    struct syi_session *session = NULL;
    int index, status = syi_partition(global, job->mesh, &local, err);
    if (!status) status = syi_backend_open("cpu", NULL, NULL, &backend, err);
    cr_assert_eq(status, SY_OK, "%s", err->text);
    int split = 0;
    for (size_t i = 0; i < local->n_ops; i++)
        for (int d = 0; local->op[i].op == SY_OP_NORMAL && d < 3; d++)
            split |= local->tensor[local->op[i].out[0]].split[d];
    struct syi_session_options options = {
        .backend = backend, .comm = comm, .mesh = job->mesh, .reproducible = 1};
    status = syi_session_new(&options, &session, err);
    if (!status) status = syi_session_add(session, local, &index, err);
    if (!status) status = syi_session_bind(session, err);
    cr_assert_eq(status, SY_OK, "%s", err->text);
    memcpy(syi_session_tensor(session, "rng")->data, rng, sizeof rng);
    status = syi_session_run(session, 0, err);
    if (comm->rank == 0) {
        memcpy(job->got, syi_session_tensor(session, "y")->data, sizeof job->got);
        job->split = split;
    }
    syi_session_free(session);
    syi_backend_close(backend);
    syi_program_free(global);
    return status;
}

static void on_ranks(struct job *job)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_comm_thread_run(syi_mesh_ranks(job->mesh), run_numbers, job, &err), SY_OK, "%s",
                 err.text);
}

Test(normal, ranks_have_the_numbers_of_one)
{
    const struct syi_mesh meshes[] = {mesh_of(1, 1, 1), mesh_of(2, 1, 1), mesh_of(1, 1, 2), mesh_of(2, 1, 2)};
    static const int split[] = {0, SYI_MESH_DATA, SYI_MESH_MODEL, SYI_MESH_DATA | SYI_MESH_MODEL};
    static struct job one, many;
    one.mesh = &meshes[0];
    on_ranks(&one);
    cr_assert_neq(one.got[0], 0.0f);
    for (size_t m = 1; m < SYI_COUNT(meshes); m++) {
        many.mesh = &meshes[m];
        on_ranks(&many);
        cr_expect_eq(many.split, split[m], "mesh %zu splits other dims: this proves little", m);
        cr_expect_eq(memcmp(one.got, many.got, sizeof one.got), 0, "mesh %zu", m);
    }
}

/* ---- recording ---- */

static struct syi_program *recorded(int rank, int *out)
{
    static const int64_t dim[SY_MAX_DIMS] = {2, 3, 4, 5, 6};
    struct syi_program *p;
    cr_assert_eq(syi_program_new("test", &p, NULL), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_BF16, rank, dim, NULL);
    int state = syi_tensor_add(p, "rng", SYI_INPUT, SY_I64, 1, (int64_t[]){4}, NULL);
    *out = syi_normal(p, x, state, 5);
    return p;
}

Test(normal, is_recorded_with_whole_extents)
{
    for (int rank = 1; rank <= SY_MAX_DIMS; rank++) {
        struct sy_error err = {0};
        int y;
        struct syi_program *p = recorded(rank, &y);
        cr_assert_eq(syi_program_check(p, "test", &err), SY_OK, "%s", err.text);
        const struct sy_attr_normal *attr = syi_program_attr(p, &p->op[0]);
        cr_expect_eq(p->tensor[y].dtype, SY_F32);
        cr_expect(attr->site == 5 && (rank < 3 || attr->extent[0] == 3));
        cr_expect(rank < 4 || attr->extent[1] == 4);
        cr_expect(rank < 5 || attr->extent[2] == 5);
        syi_program_free(p);
    }
}

Test(normal, check_refuses_what_does_not_fit)
{
    for (int fault = 0; fault < 4; fault++) {
        static const char *const words[] = {"3 inputs", "another shape", "dim 1 is 3 of 4", "site"};
        struct sy_error err = {0};
        int y;
        struct syi_program *p = recorded(3, &y);
        struct sy_attr_normal *attr = (void *)(uintptr_t)syi_program_attr(p, &p->op[0]);
        if (fault == 0) p->op[0].n_in = 3, p->op[0].in[2] = 0;
        if (fault == 1) p->tensor[y].dim[2] = 5;
        if (fault == 2) attr->extent[0] = 4;
        if (fault == 3) attr->site = -1;
        cr_expect_eq(syi_program_check(p, "test", &err), SY_EINTERNAL);
        cr_expect(strstr(err.text, words[fault]), "expected '%s' in '%s'", words[fault], err.text);
        syi_program_free(p);
    }
}
