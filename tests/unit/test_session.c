/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions end to end: memory reuse changes no result; collectives over threads give the tree's bits and the
 * right pieces for any split; failures name op, layer and line and stop the other ranks; a plan is what
 * memory is used. Kernels are the CPU backend's, or a small backend made here. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "random_program.h"
#include "runtime/session.h"

static struct syi_backend *open_backend(const char *name)
{
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    cr_assert_eq(syi_backend_open(name, NULL, NULL, &backend, &err), SY_OK, "%s", err.text);
    return backend;
}

static float noise(uint64_t seed)
{
    seed = (seed + 1) * 0x9e3779b97f4a7c15u;
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
    seed ^= seed >> 27;
    return (float)((double)(seed >> 40) / (1 << 20) - 8);
}

/* A session of one program, bound. */
static struct syi_session *session_of(const struct syi_session_options *options, struct syi_program *program)
{
    struct syi_session *session = NULL;
    struct sy_error err = {0};
    int index;
    cr_assert_eq(syi_session_new(options, &session, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_session_add(session, program, &index, &err), SY_OK, "%s", err.text);
    cr_assert_eq(index, 0);
    cr_assert_eq(syi_session_bind(session, &err), SY_OK, "%s", err.text);
    return session;
}

static int64_t elements(const struct sy_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* ---- reuse of memory ---- */

struct job {
    const struct syi_mesh *mesh;
    uint64_t seed;
    int reproducible;
};

static void fill_inputs(const struct syi_session *session, int rank)
{
    static const char *const names[] = {"x0", "x1", "x2", "w0", "w1", "w2", "s0", "s1", "s2"};
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        const struct sy_tensor *t = syi_session_tensor(session, names[i]);
        for (int64_t k = 0; k < elements(t); k++)
            ((float *)t->data)[k] = noise((uint64_t)k + i * 100000 + (uint64_t)rank * 1000000);
    }
}

static void expect_same_memory(const struct syi_session *a, const struct syi_session *b)
{
    size_t i = 0;
    for (const struct syi_shared *x; (x = syi_session_shared(a, i)) != NULL; i++) {
        const struct syi_shared *y = syi_session_shared(b, i);
        cr_assert_str_eq(x->name, y->name);
        size_t bytes = (size_t)elements(&x->tensor) * sizeof(float);
        cr_assert_eq(memcmp(x->tensor.data, y->tensor.data, bytes), 0, "%s differs", x->name);
    }
    cr_assert_geq(i, 20); /* 9 inputs, 3 carries, 8 outputs */
}

/* The same program with reuse of memory, and without and with a hook; run twice since carries change. */
static int compare_reuse(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct job *job = arg;
    struct syi_backend *backend = open_backend("cpu");
    struct syi_session_options options = {
        .backend = backend, .comm = comm, .mesh = job->mesh, .reproducible = job->reproducible};
    struct syi_session *reused = session_of(&options, rp_program(job->seed, 60, job->mesh, 1));
    options.check_reuse = 1;
    struct syi_session *apart = session_of(&options, rp_program(job->seed, 60, job->mesh, 1));
    syi_session_hook(apart, rp_see_nothing, NULL);
    fill_inputs(reused, comm->rank);
    fill_inputs(apart, comm->rank);
    int status = SY_OK;
    for (int run = 0; run < 2 && !status; run++) {
        status = syi_session_run(reused, 0, err);
        if (!status) status = syi_session_run(apart, 0, err);
    }
    if (!status) expect_same_memory(reused, apart);
    cr_assert_lt(syi_session_plan(reused)->bytes[SYI_SCRATCH], syi_session_plan(apart)->bytes[SYI_SCRATCH]);
    syi_session_free(reused);
    syi_session_free(apart);
    syi_backend_close(backend);
    return status;
}

Test(session, reuse_changes_no_result)
{
    struct syi_mesh mesh = mesh_of(1, 1, 1);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct job job = {&mesh, seed, 1};
        struct syi_comm comm;
        struct sy_error err = {0};
        syi_comm_self(&comm);
        cr_assert_eq(compare_reuse(&job, &comm, &err), SY_OK, "%s", err.text);
        syi_comm_close(&comm);
    }
}

Test(session, reuse_changes_no_result_of_ranks)
{
    struct syi_mesh meshes[] = {mesh_of(2, 1, 1), mesh_of(2, 1, 2), mesh_of(2, 2, 1)};
    for (uint64_t seed = 1; seed <= 18; seed++) {
        struct job job = {&meshes[seed % SYI_COUNT(meshes)], seed, seed % 4 != 0};
        struct sy_error err = {0};
        cr_assert_eq(syi_comm_thread_run(syi_mesh_ranks(job.mesh), compare_reuse, &job, &err), SY_OK, "%s",
                     err.text);
    }
}

/* ---- sums over ranks ---- */

struct sum {
    const struct syi_mesh *mesh;
    int64_t dim[3];
    int scatter; /* dim that is scattered, -1: all_reduce */
    int axes;
};

static struct syi_program *sum_program(const struct sum *sum)
{
    struct syi_program *p;
    struct sy_error err = {0};
    struct syi_tensor out = {.rank = 3, .dim = {sum->dim[0], sum->dim[1], sum->dim[2]}};
    struct sy_attr_collective attr = {sum->axes, 0, 0};
    cr_assert_eq(syi_program_new("sum", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 3, sum->dim, NULL);
    if (sum->scatter >= 0) {
        out.dim[sum->scatter] /= syi_mesh_size(sum->mesh, sum->axes);
        attr = (struct sy_attr_collective){sum->scatter, sum->axes, 0};
    }
    int y = syi_tensor_add(p, "y", SYI_OUTPUT, SY_F32, 3, out.dim, NULL);
    if (sum->scatter >= 0) p->tensor[y].split[sum->scatter] = (uint8_t)sum->axes;
    syi_op_add(p, sum->scatter >= 0 ? SY_OP_REDUCE_SCATTER : SY_OP_ALL_REDUCE, 1, &x, 1, &y, &attr,
               sizeof attr);
    return p;
}

/* Terms of the ranks of a group in a balanced tree, neighbours first, missing ones +0. */
static float tree(const float *term, int n)
{
    float level[16] = {0};
    int width = 1;
    while (width < n) width *= 2;
    memcpy(level, term, (size_t)n * sizeof *term);
    for (; width > 1; width /= 2)
        for (int i = 0; i < width / 2; i++) level[i] = level[2 * i] + level[2 * i + 1];
    return level[0];
}

static float term_of(int rank, int64_t element)
{
    return noise((uint64_t)(element * 64 + rank)) * (rank % 2 ? 1e-4f : 1.0f);
}

/* What element [i, j, k] of x is as a flat index. */
static int64_t flat(const int64_t dim[3], int64_t i, int64_t j, int64_t k)
{
    return (i * dim[1] + j) * dim[2] + k;
}

static int run_sum(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct sum *sum = arg;
    struct syi_backend *backend = open_backend("cpu");
    struct syi_session_options options = {
        .backend = backend, .comm = comm, .mesh = sum->mesh, .reproducible = 1};
    struct syi_session *session = session_of(&options, sum_program(sum));
    const struct sy_tensor *x = syi_session_tensor(session, "x"), *y = syi_session_tensor(session, "y");
    int ranks[16], n = syi_mesh_group(sum->mesh, sum->axes, comm->rank, ranks), differ = 0;
    for (int64_t i = 0; i < elements(x); i++) ((float *)x->data)[i] = term_of(comm->rank, i);
    int status = syi_session_run(session, 0, err);
    const float *got = y->data;
    for (int64_t i = 0; i < y->dim[0] && !status; i++)
        for (int64_t j = 0; j < y->dim[1]; j++)
            for (int64_t k = 0; k < y->dim[2]; k++, got++) {
                float term[16];
                int64_t at = flat(sum->dim, y->first[0] + i, y->first[1] + j, y->first[2] + k);
                for (int r = 0; r < n; r++) term[r] = term_of(ranks[r], at);
                float want = tree(term, n);
                differ += memcmp(&want, got, sizeof want) != 0;
            }
    cr_assert_eq(differ, 0, "rank %d: %d of %lld elements differ", comm->rank, differ,
                 (long long)elements(y));
    syi_session_free(session);
    syi_backend_close(backend);
    return status;
}

static void check_sum(const struct syi_mesh *mesh, int axes, int64_t a, int64_t b, int64_t c, int scatter)
{
    struct sum sum = {mesh, {a, b, c}, scatter, axes};
    struct sy_error err = {0};
    cr_assert_eq(syi_comm_thread_run(syi_mesh_ranks(mesh), run_sum, &sum, &err), SY_OK, "%s", err.text);
}

Test(session, all_reduce_has_the_bits_of_the_tree)
{
    struct syi_mesh meshes[] = {mesh_of(1, 1, 1), mesh_of(2, 1, 1), mesh_of(3, 1, 1), mesh_of(2, 1, 2),
                                mesh_of(2, 2, 2)};
    const int64_t sizes[] = {1, 7, 1001, 16384, 16385, 20011, 65543};
    for (size_t m = 0; m < SYI_COUNT(meshes); m++)
        for (size_t s = 0; s < SYI_COUNT(sizes); s++) {
            check_sum(&meshes[m], SYI_MESH_DATA | SYI_MESH_EXPERT | SYI_MESH_MODEL, 1, 1, sizes[s], -1);
            check_sum(&meshes[m], SYI_MESH_MODEL, 1, sizes[s], 1, -1);
        }
}

Test(session, reduce_scatter_has_the_bits_of_the_tree)
{
    struct syi_mesh meshes[] = {mesh_of(1, 1, 1), mesh_of(2, 1, 1), mesh_of(2, 1, 2), mesh_of(4, 1, 1)};
    for (size_t m = 0; m < SYI_COUNT(meshes); m++)
        for (int dim = 0; dim < 3; dim++) {
            check_sum(&meshes[m], SYI_MESH_DATA, 4, 12, 20, dim);
            check_sum(&meshes[m], SYI_MESH_DATA | SYI_MESH_MODEL, 8, 4, 4, dim);
        }
}

/* ---- moving pieces ---- */

struct move {
    const struct syi_mesh *mesh;
    int op;
    struct sy_attr_collective attr;
    uint8_t from[3], to[3]; /* splits */
};

static int64_t global_dim[3] = {8, 16, 24};

static int tensor_in(struct syi_program *p, const struct syi_mesh *mesh, const char *name, int kind,
                     const uint8_t split[3])
{
    int64_t dim[3];
    for (int i = 0; i < 3; i++) dim[i] = global_dim[i] / syi_mesh_size(mesh, split[i]);
    int tensor = syi_tensor_add(p, name, kind, SY_F32, 3, dim, NULL);
    memcpy(p->tensor[tensor].split, split, 3);
    return tensor;
}

/* Each rank holds its piece of a tensor whose elements are numbered: sets them, or counts those that are
 * wrong. */
static int number(const struct sy_tensor *t, int set)
{
    float *element = t->data;
    int wrong = 0;
    for (int64_t i = 0; i < t->dim[0]; i++)
        for (int64_t j = 0; j < t->dim[1]; j++)
            for (int64_t k = 0; k < t->dim[2]; k++, element++) {
                float value = (float)flat(global_dim, t->first[0] + i, t->first[1] + j, t->first[2] + k);
                if (set) *element = value;
                wrong += *element != value;
            }
    return wrong;
}

static int run_move(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct move *move = arg;
    struct syi_backend *backend = open_backend("cpu");
    struct syi_program *p;
    cr_assert_eq(syi_program_new("move", &p, err), SY_OK);
    int x = tensor_in(p, move->mesh, "x", SYI_INPUT, move->from),
        y = tensor_in(p, move->mesh, "y", SYI_OUTPUT, move->to);
    syi_op_add(p, move->op, 1, &x, 1, &y, &move->attr, sizeof move->attr);
    struct syi_session_options options = {
        .backend = backend, .comm = comm, .mesh = move->mesh, .reproducible = 1};
    struct syi_session *session = session_of(&options, p);
    number(syi_session_tensor(session, "x"), 1);
    int status = syi_session_run(session, 0, err);
    if (!status) cr_assert_eq(number(syi_session_tensor(session, "y"), 0), 0, "rank %d", comm->rank);
    for (int i = 0; i < 3; i++) cr_assert_eq(syi_session_shared(session, 0)->global[i], global_dim[i]);
    syi_session_free(session);
    syi_backend_close(backend);
    return status;
}

static void check_move(struct move move)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_comm_thread_run(syi_mesh_ranks(move.mesh), run_move, &move, &err), SY_OK, "%s",
                 err.text);
}

Test(session, pieces_arrive_where_the_split_says)
{
    enum { D = SYI_MESH_DATA, M = SYI_MESH_MODEL };
    struct syi_mesh meshes[] = {mesh_of(2, 1, 1), mesh_of(2, 1, 2), mesh_of(4, 1, 2)};
    for (size_t m = 0; m < SYI_COUNT(meshes); m++) {
        const struct syi_mesh *mesh = &meshes[m];
        check_move((struct move){mesh, SY_OP_ALL_GATHER, {0, D, 0}, {D, 0, M}, {0, 0, M}});
        check_move((struct move){mesh, SY_OP_ALL_GATHER, {2, D | M, 0}, {0, 0, D | M}, {0, 0, 0}});
        check_move((struct move){mesh, SY_OP_ALL_GATHER, {1, M, 0}, {0, D | M, 0}, {0, D, 0}});
        check_move((struct move){mesh, SY_OP_ALL_TO_ALL, {1, 0, D}, {D, 0, M}, {0, D, M}});
        check_move((struct move){mesh, SY_OP_ALL_TO_ALL, {0, 2, M}, {D, 0, M}, {D | M, 0, 0}});
        check_move((struct move){mesh, SY_OP_ALL_TO_ALL, {2, 1, D | M}, {0, D | M, 0}, {0, 0, D | M}});
        check_move((struct move){mesh, SY_OP_SLICE, {1, D, 0}, {0, 0, M}, {0, D, M}});
        check_move((struct move){mesh, SY_OP_SLICE, {2, M, 0}, {0, 0, D}, {0, 0, D | M}});
        check_move((struct move){mesh, SY_OP_SLICE, {0, D | M, 0}, {0, 0, 0}, {D | M, 0, 0}});
    }
}

/* ---- a backend that does what it is told ---- */

static struct {
    int fail_run, fail_prepare; /* what goes wrong */
    int prepared, released;
    const struct sy_call *seen;
} told;

static int told_probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host;
    *score = 1;
    snprintf(text, text_bytes, "told");
    return SY_OK;
}

static int told_open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                     uint32_t *features, char *description, size_t description_bytes)
{
    (void)options;
    *context = (void *)host;
    *features = 0;
    snprintf(description, description_bytes, "told");
    return SY_OK;
}

static void told_close(void *context)
{
    (void)context;
}

static int told_run(void *context, const struct sy_call *call)
{
    const struct sy_host *host = context;
    told.seen = call;
    memset(call->workspace, 1, call->workspace_bytes);
    if (!told.fail_run) return SY_OK;
    host->error(host->arg, "the disk is on fire");
    return SY_EIO;
}

static uint64_t told_workspace(const struct sy_call *call, int threads)
{
    return call->in[0].data ? 100u * (unsigned)threads : 0; /* present operands show before there is memory */
}

static int told_prepare(void *context, const struct sy_call *call, void **plan)
{
    (void)context, (void)call;
    if (told.fail_prepare) return SY_EUNSUPPORTED;
    told.prepared++;
    *plan = &told;
    return SY_OK;
}

static void told_release(void *context, void *plan)
{
    (void)context;
    told.released += plan == &told;
}

static const struct sy_kernel told_kernels[] = {{.op = SY_OP_MAP,
                                                 .name = "told",
                                                 .workspace = told_workspace,
                                                 .prepare = told_prepare,
                                                 .release = told_release,
                                                 .run = told_run}};

static const struct sy_backend_desc told_desc = {.magic = SY_ABI_MAGIC,
                                                 .abi_major = SY_ABI_MAJOR,
                                                 .abi_minor = SY_ABI_MINOR,
                                                 .desc_bytes = sizeof(struct sy_backend_desc),
                                                 .layout = SY_ABI_LAYOUT,
                                                 .caps = SY_CAP_KERNELS,
                                                 .name = "told",
                                                 .version = "1",
                                                 .build = "test",
                                                 .probe = told_probe,
                                                 .open = told_open,
                                                 .close = told_close,
                                                 .kernels = told_kernels,
                                                 .n_kernels = 1};

static struct syi_backend *open_told(void)
{
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    cr_assert_eq(syi_backend_open_linked(&told_desc, NULL, NULL, &backend, &err), SY_OK, "%s", err.text);
    return backend;
}

/* y = -x in layer encoder/mlp, in F32 or with a matmul that no kernel is for. */
static struct syi_program *small_program(int unknown)
{
    struct syi_program *p;
    struct sy_error err = {0};
    int64_t dim[3] = {2, 3, 4};
    cr_assert_eq(syi_program_new("small", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 3, dim, NULL);
    SYI_AT(p);
    syi_scope_push(p, "encoder");
    syi_scope_push(p, "mlp");
    int lse, y = unknown ? syi_softmax(p, x, &lse) : syi_map1(p, SY_MAP_NEG, x, 0);
    syi_store(p, y, syi_tensor_add(p, "y", SYI_OUTPUT, SY_F32, 3, dim, NULL));
    return p;
}

/* Makes a session of one program; the status of bind. */
static int try_session(struct syi_backend *backend, struct syi_comm *comm, struct syi_program *p,
                       struct syi_session **session, struct sy_error *err)
{
    struct syi_mesh mesh = mesh_of(comm->ranks, 1, 1);
    struct syi_session_options options = {.backend = backend, .comm = comm, .mesh = &mesh, .reproducible = 1};
    int index;
    cr_assert_eq(syi_session_new(&options, session, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_session_add(*session, p, &index, err), SY_OK, "%s", err->text);
    return syi_session_bind(*session, err);
}

static void expect_words(const struct sy_error *err, const char *const *words)
{
    for (; *words; words++) cr_assert(strstr(err->text, *words), "no \"%s\" in: %s", *words, err->text);
}
#define EXPECT_WORDS(err, ...) expect_words(err, (const char *const[]){__VA_ARGS__, NULL})

static void count_calls(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    int *calls = arg;
    cr_assert_eq(program, 0);
    cr_assert_eq(call->op, SY_OP_MAP);
    calls[after] += 1 + (int)op;
}

Test(session, kernels_are_prepared_called_and_released)
{
    struct syi_comm comm;
    struct sy_error err = {0};
    struct syi_session *session;
    struct syi_backend *backend = open_told();
    int calls[2] = {0, 0};
    syi_comm_self(&comm);
    cr_assert_eq(try_session(backend, &comm, small_program(0), &session, &err), SY_OK, "%s", err.text);
    cr_assert_eq(told.prepared, 2);
    syi_session_hook(session, count_calls, calls);
    cr_assert_eq(syi_session_run(session, 0, &err), SY_OK, "%s", err.text);
    cr_assert(calls[0] == 3 && calls[1] == 3);
    cr_assert_eq(told.seen->plan, &told);
    cr_assert_eq(told.seen->workspace_bytes, 100);
    cr_assert_eq((uintptr_t)told.seen->workspace % 64, 0);
    cr_assert_eq(told.seen->out[0].data, syi_session_tensor(session, "y")->data);
    cr_assert_null(syi_session_tensor(session, "z"));
    cr_assert_neq(syi_session_run(session, 1, &err), SY_OK);
    syi_session_free(session);
    cr_assert_eq(told.released, 2);
    syi_backend_close(backend);
}

Test(session, failures_name_op_layer_and_line)
{
    struct syi_comm comm;
    struct sy_error run = {0}, prepare = {0}, unknown = {0};
    struct syi_session *session;
    struct syi_backend *backend = open_told();
    syi_comm_self(&comm);
    told.fail_run = 1;
    cr_assert_eq(try_session(backend, &comm, small_program(0), &session, &run), SY_OK, "%s", run.text);
    cr_assert_eq(syi_session_run(session, 0, &run), SY_EIO);
    EXPECT_WORDS(&run, "small", "op 0 map of encoder/mlp", "test_session.c:", "the disk is on fire",
                 "backend told");
    syi_session_free(session);

    told.fail_prepare = 1;
    cr_assert_eq(try_session(backend, &comm, small_program(0), &session, &prepare), SY_EUNSUPPORTED);
    EXPECT_WORDS(&prepare, "op 0 map of encoder/mlp", "test_session.c:");
    cr_assert_neq(syi_session_run(session, 0, &prepare), SY_OK, "what failed to bind does not run");
    cr_assert_neq(syi_session_bind(session, &prepare), SY_OK);
    syi_session_free(session);

    cr_assert_eq(try_session(backend, &comm, small_program(1), &session, &unknown), SY_EUNSUPPORTED);
    EXPECT_WORDS(&unknown, "op 0 softmax of encoder/mlp",
                 "test_session.c:", "backend told has no kernel for f32 -> f32");
    syi_session_free(session);
    syi_backend_close(backend);
}

/* Rank 1 fails in the first op; rank 0 would wait for it in a collective for ever. */
static int fail_on_one(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct syi_backend *backend = comm->rank ? open_told() : open_backend("cpu");
    struct syi_session *session;
    struct syi_program *p = small_program(0);
    int x = syi_program_find(p, "x"), all = syi_temp(p, SY_F32, 3, (int64_t[]){4, 3, 4}, NULL);
    struct sy_attr_collective attr = {0, SYI_MESH_DATA, 0};
    (void)arg;
    syi_op_add(p, SY_OP_ALL_GATHER, 1, &x, 1, &all, &attr, sizeof attr);
    int status = try_session(backend, comm, p, &session, err);
    if (!status) status = syi_session_run(session, 0, err);
    syi_session_free(session);
    syi_backend_close(backend);
    return status;
}

Test(session, a_rank_that_fails_stops_the_others, .timeout = 20)
{
    struct sy_error err = {0};
    told.fail_run = 1;
    cr_assert_eq(syi_comm_thread_run(2, fail_on_one, NULL, &err), SY_EIO);
    EXPECT_WORDS(&err, "op 0 map of encoder/mlp", "the disk is on fire");
}

/* ---- planning only, sizes ---- */

#if defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#endif
#ifndef SANITIZED
#    define SANITIZED 0 /* 1: another allocator, and shadow memory */
#endif

Test(session, a_plan_of_a_large_mesh_takes_no_memory, .timeout = 20)
{
    struct syi_mesh mesh = mesh_of(125, 8, 1);
    struct syi_session_options options = {
        .backend = open_backend("null"), .mesh = &mesh, .reproducible = 1, .plan_only = 1};
    struct syi_program *p;
    struct sy_error err = {0};
    int64_t dim[2] = {1 << 20, 1 << 20}; /* 4 TiB */
    cr_assert_eq(syi_program_new("huge", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_PARAM, SY_F32, 2, dim, NULL), y = syi_temp(p, SY_F32, 2, dim, NULL);
    struct sy_attr_collective attr = {SYI_MESH_DATA | SYI_MESH_EXPERT, 0, 0};
    syi_op_add(p, SY_OP_ALL_REDUCE, 1, &x, 1, &y, &attr, sizeof attr);
    struct syi_session *session = session_of(&options, p);
    cr_assert_geq(syi_session_plan(session)->bytes[SYI_PERSIST], 1ull << 42);
    cr_assert_geq(syi_session_plan(session)->bytes[SYI_SCRATCH], 1ull << 42);
    cr_assert_null(syi_session_tensor(session, "x")->data);
    cr_assert_eq(syi_session_run(session, 0, &err), SY_EINVAL);
    syi_session_free(session);
    syi_backend_close(options.backend);
}

Test(session, too_much_memory_is_an_error_not_a_crash)
{
    if (SANITIZED) cr_skip_test("sanitizers end the program when memory is short");
    struct syi_comm comm;
    struct sy_error err = {0};
    struct syi_session *session;
    struct syi_backend *backend = open_told();
    struct syi_program *p = small_program(0);
    syi_comm_self(&comm);
    syi_tensor_add(p, "huge", SYI_PARAM, SY_F32, 3, (int64_t[]){1 << 16, 1 << 16, 1 << 14},
                   NULL); /* 256 TiB */
    cr_assert_eq(try_session(backend, &comm, p, &session, &err), SY_ENOMEM);
    EXPECT_WORDS(&err, "281474976710656 parameters");
    syi_session_free(session);
    syi_backend_close(backend);
}

/* Peak of resident memory in KiB, or -1 where the system does not say. */
static long peak_memory(void)
{
    char line[256];
    long peak = -1;
    FILE *file = SANITIZED ? NULL : fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmHWM:", 6)) peak = strtol(line + 6, NULL, 10);
    if (file) fclose(file);
    return peak;
}

static int is_zero(const struct sy_tensor *t)
{
    for (int64_t i = 0; i < elements(t); i++)
        if (((const float *)t->data)[i] != 0) return 0;
    return 1;
}

Test(session, memory_is_what_was_planned_and_zero)
{
    struct syi_comm comm;
    struct sy_error err = {0};
    struct syi_session *session;
    struct syi_backend *backend = open_backend("cpu");
    struct syi_program *p;
    int64_t n = 8 << 20;
    syi_comm_self(&comm);
    cr_assert_eq(syi_program_new("large", &p, &err), SY_OK);
    int w = syi_tensor_add(p, "w", SYI_PARAM, SY_F32, 1, &n, NULL);
    int a = syi_map1(p, SY_MAP_ADDS, w, 1), b = syi_map1(p, SY_MAP_MULS, a, 2),
        c = syi_map2(p, SY_MAP_ADD, b, w);
    syi_store(p, c, syi_tensor_add(p, "c", SYI_CARRY, SY_F32, 1, &n, NULL));
    long before = peak_memory();
    cr_assert_eq(try_session(backend, &comm, p, &session, &err), SY_OK, "%s", err.text);
    cr_assert(is_zero(syi_session_tensor(session, "w")) && is_zero(syi_session_tensor(session, "c")));
    cr_assert_eq(syi_session_run(session, 0, &err), SY_OK, "%s", err.text);
    cr_assert_eq(((float *)syi_session_tensor(session, "c")->data)[n - 1], 2);
    const struct syi_plan *plan = syi_session_plan(session);
    cr_assert_eq(plan->bytes[SYI_SCRATCH], (uint64_t)n * 4, "every map writes over its input");
    uint64_t planned = plan->bytes[SYI_PERSIST] + plan->bytes[SYI_CARRY_SEGMENT] + plan->bytes[SYI_SCRATCH];
    long grown = peak_memory() - before;
    if (before >= 0)
        cr_assert(labs(grown - (long)(planned >> 10)) < 2048, "planned %llu KiB, used %ld KiB",
                  (unsigned long long)planned >> 10, grown);
    syi_session_free(session);
    syi_backend_close(backend);
}
