/* SPDX-License-Identifier: Apache-2.0 */
/* Joining small collectives: every op still reads the values that it read before, in the same order, and what
 * ranks receive in one collective is what they received in many. */
#include "config.h"

#include "random_program.h"
#include "runtime/session.h"

static size_t count_collectives(const struct syi_program *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) n += syi_op_is_collective(p->op[i].op) != 0;
    return n;
}

/* ---- values as words: what op made a tensor, from what ---- */

struct values {
    uint64_t tensor[2048];
    const struct syi_op *join[2048]; /* of a joined tensor: the op that made it; after the collective, too */
    const struct syi_op *collective[2048];
    uint64_t sequence; /* ops that are not collectives, in their order, with what they read */
};

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* What a collective makes of one operand: dim and group of ranks count. */
static uint64_t moved(const struct syi_program *p, const struct syi_op *op, const struct syi_mesh *mesh,
                      int64_t dim, uint64_t value)
{
    const struct sy_attr_collective *attr = syi_program_attr(p, op);
    int axes = syi_collective_group(p, op, mesh);
    if (op->op == SY_OP_ALL_TO_ALL) dim = dim * 8 + attr->b;
    return mix(mix(mix(value, op->op), op->op == SY_OP_ALL_REDUCE ? 0 : (uint64_t)dim), (uint64_t)axes);
}

/* The operand of a join that begins at element `at` of a piece. */
static int operand_at(const struct syi_program *p, const struct syi_op *join, int64_t at)
{
    int64_t pieces = p->tensor[join->out[0]].dim[0], begin = 0;
    for (int i = 0; i < join->n_in; i++) {
        if (begin == at) return i;
        begin += (syi_tensor_count(&p->tensor[join->in[i]]) / pieces + 15) / 16 * 16;
    }
    cr_assert_fail("nothing begins at %lld", (long long)at);
    return -1;
}

static void run_part(const struct syi_program *p, const struct syi_op *op, const struct syi_mesh *mesh,
                     struct values *v, uint64_t (*kept)[SY_MAX_IN])
{
    const struct sy_attr_part *part = syi_program_attr(p, op);
    const struct syi_op *join = v->join[op->in[0]], *collective = v->collective[op->in[0]];
    cr_assert(join && collective);
    int i = operand_at(p, join, part->at);
    const struct sy_attr_join *attr = syi_program_attr(p, join);
    int64_t dim = collective->op == SY_OP_ALL_GATHER ? part->dim : attr->dims >> 4 * i & 15;
    v->tensor[op->out[0]] = moved(p, collective, mesh, dim, kept[join->out[0]][i]);
}

static void run_values(const struct syi_program *p, const struct syi_mesh *mesh, struct values *v)
{
    static uint64_t kept[2048][SY_MAX_IN]; /* of a joined tensor: its operands' values when it was made */
    memset(v, 0, sizeof *v);
    cr_assert_lt(p->n_tensors, SYI_COUNT(v->tensor));
    for (size_t i = 0; i < p->n_tensors; i++) v->tensor[i] = p->tensor[i].name ? mix(1, i) : 0;
    for (size_t at = 0; at < p->n_ops; at++) {
        const struct syi_op *op = &p->op[at];
        uint64_t hash = op->op;
        if (op->op == SY_OP_JOIN) {
            for (int i = 0; i < op->n_in; i++) kept[op->out[0]][i] = v->tensor[op->in[i]];
            v->join[op->out[0]] = op;
        } else if (op->op == SY_OP_PART) {
            run_part(p, op, mesh, v, kept);
        } else if (syi_op_is_collective(op->op) && v->join[op->in[0]]) {
            v->join[op->out[0]] = v->join[op->in[0]];
            v->collective[op->out[0]] = op;
        } else if (syi_op_is_collective(op->op)) {
            const struct sy_attr_collective *attr = syi_program_attr(p, op);
            v->tensor[op->out[0]] = moved(p, op, mesh, attr->a, v->tensor[op->in[0]]);
        } else {
            for (int i = 0; i < op->n_in; i++) hash = mix(hash, op->in[i] < 0 ? 0 : v->tensor[op->in[i]]);
            v->sequence = mix(v->sequence, hash);
            for (int i = 0; i < op->n_out; i++)
                if (op->out[i] >= 0) v->tensor[op->out[i]] = mix(hash, (uint64_t)i);
        }
    }
}

Test(join, random_programs_read_what_they_read_before)
{
    static struct values before, after;
    struct syi_mesh meshes[] = {mesh_of(2, 1, 1), mesh_of(2, 1, 2), mesh_of(2, 2, 2), mesh_of(4, 1, 1)};
    size_t joined = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const struct syi_mesh *mesh = &meshes[seed % SYI_COUNT(meshes)];
        struct syi_program *p = rp_program(seed, 90, mesh, 1);
        struct sy_error err = {0};
        size_t tensors = p->n_tensors;
        run_values(p, mesh, &before);
        cr_assert_eq(syi_join(p, mesh, &err), SY_OK, "%s", err.text);
        run_values(p, mesh, &after);
        cr_assert_eq(before.sequence, after.sequence, "seed %llu", (unsigned long long)seed);
        for (size_t i = 0; i < tensors; i++)
            cr_assert_eq(before.tensor[i], after.tensor[i], "seed %llu: tensor %zu", (unsigned long long)seed,
                         i);
        joined += count_ops(p, SY_OP_JOIN);
        syi_program_free(p);
    }
    cr_assert_gt(joined, 100);
}

/* ---- numbers ---- */

enum { MEMBERS = 40 };
static const int kinds[] = {SY_OP_ALL_REDUCE, SY_OP_REDUCE_SCATTER, SY_OP_ALL_GATHER};

struct job {
    const struct syi_mesh *mesh;
    int reproducible;
};

/* Collective number i of x0, x1, ... into PREFIX0, PREFIX1, ...: its kind, dim and extents follow from i. */
static void add_collective(struct syi_program *p, const struct syi_mesh *mesh, int i, char prefix)
{
    char name[16];
    int kind = kinds[i % 3], dim = i / 3 % 3, ranks = syi_mesh_size(mesh, SYI_MESH_DATA);
    int64_t from[3] = {1 + i % 4, 1 + i % 5, 1 + i % 7}, to[3];
    struct sy_attr_collective attr = {dim, SYI_MESH_DATA, 0};
    if (kind == SY_OP_ALL_REDUCE) attr = (struct sy_attr_collective){SYI_MESH_DATA, 0, 0};
    if (kind == SY_OP_REDUCE_SCATTER) from[dim] *= ranks;
    memcpy(to, from, sizeof to);
    if (kind == SY_OP_REDUCE_SCATTER) to[dim] /= ranks;
    if (kind == SY_OP_ALL_GATHER) to[dim] *= ranks;
    snprintf(name, sizeof name, "x%d", i);
    int x = syi_tensor_add(p, name, SYI_INPUT, SY_F32, 3, from, NULL);
    snprintf(name, sizeof name, "%c%d", prefix, i);
    int y = syi_tensor_add(p, name, SYI_OUTPUT, SY_F32, 3, to, NULL);
    cr_assert_eq(syi_op_add(p, kind, 1, &x, 1, &y, &attr, sizeof attr), SY_OK);
}

static int64_t fill_or_compare(struct syi_session *session, int rank, int fill)
{
    int64_t differ = 0;
    for (int i = 0; i < MEMBERS; i++) {
        char name[2][16];
        int64_t n = 1;
        snprintf(name[0], sizeof name[0], fill ? "x%d" : "y%d", i);
        snprintf(name[1], sizeof name[1], "z%d", i);
        const struct sy_tensor *a = syi_session_tensor(session, name[0]),
                               *b = syi_session_tensor(session, name[1]);
        for (int d = 0; d < 3; d++) n *= a->dim[d];
        for (int64_t k = 0; k < n && fill; k++)
            ((float *)a->data)[k] = (float)(i * 1000 + k + 1) / (float)(rank * 2 + 3);
        if (!fill) differ += memcmp(a->data, b->data, (size_t)n * sizeof(float)) != 0;
    }
    return differ;
}

/* All in one program into y, and each in a program of its own into z. */
static int run_both(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct job *job = arg;
    struct syi_backend *backend = NULL;
    struct syi_session *session = NULL;
    int index, status = syi_backend_open("cpu", NULL, NULL, &backend, err);
    struct syi_session_options options = {
        .backend = backend, .comm = comm, .mesh = job->mesh, .reproducible = job->reproducible};
    if (!status) status = syi_session_new(&options, &session, err);
    for (int i = -1; i < MEMBERS && !status; i++) {
        struct syi_program *p;
        status = syi_program_new(i < 0 ? "all" : "one", &p, err);
        for (int k = 0; k < MEMBERS && !status && i < 0; k++) add_collective(p, job->mesh, k, 'y');
        if (i >= 0) add_collective(p, job->mesh, i, 'z');
        if (!status) status = syi_session_add(session, p, &index, err);
    }
    if (!status) status = syi_session_bind(session, err);
    cr_assert_eq(status, SY_OK, "%s", err->text);
    cr_assert_lt(count_collectives(syi_session_program(session, 0)), MEMBERS / 4);
    fill_or_compare(session, comm->rank, 1);
    for (int i = 0; i <= MEMBERS && !status; i++) status = syi_session_run(session, i, err);
    if (!status) cr_assert_eq(fill_or_compare(session, comm->rank, 0), 0, "rank %d", comm->rank);
    syi_session_free(session);
    syi_backend_close(backend);
    return status;
}

Test(join, one_collective_brings_what_many_bring)
{
    struct syi_mesh meshes[] = {mesh_of(2, 1, 1), mesh_of(3, 1, 1), mesh_of(2, 1, 2)};
    for (size_t m = 0; m < SYI_COUNT(meshes); m++)
        for (int reproducible = 0; reproducible < 2; reproducible++) {
            struct job job = {&meshes[m], reproducible};
            struct sy_error err = {0};
            cr_assert_eq(syi_comm_thread_run(syi_mesh_ranks(job.mesh), run_both, &job, &err), SY_OK, "%s",
                         err.text);
        }
}

/* ---- what is joined ---- */

/* n sums of 16 elements, and after each `between` other ops. */
static struct syi_program *sums(int n, int between, int64_t elements)
{
    struct syi_program *p;
    struct sy_error err = {0};
    struct sy_attr_collective attr = {SYI_MESH_DATA, 0, 0};
    cr_assert_eq(syi_program_new("sums", &p, &err), SY_OK);
    int other = syi_tensor_add(p, "other", SYI_INPUT, SY_F32, 1, &elements, NULL);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        int x = syi_map1(p, SY_MAP_MULS, other, i),
            y = syi_tensor_add(p, name, SYI_OUTPUT, SY_F32, 1, &elements, NULL);
        syi_op_add(p, SY_OP_ALL_REDUCE, 1, &x, 1, &y, &attr, sizeof attr);
        for (int k = 0; k < between; k++) other = syi_map1(p, SY_MAP_NEG, other, 0);
    }
    return p;
}

static void expect_joined(int n, int between, int64_t elements, size_t collectives)
{
    struct syi_mesh mesh = mesh_of(2, 1, 1);
    struct sy_error err = {0};
    struct syi_program *p = sums(n, between, elements);
    cr_assert_eq(syi_join(p, &mesh, &err), SY_OK, "%s", err.text);
    cr_expect_eq(count_collectives(p), collectives, "%d sums of %lld: %zu", n, (long long)elements,
                 count_collectives(p));
    syi_program_free(p);
}

Test(join, by_distance_number_and_size)
{
    expect_joined(10, 3, 16, 1);
    expect_joined(10, 100, 16, 10);   /* none comes soon: an overlap with compute is worth more */
    expect_joined(40, 1, 16, 3);      /* operands of one op: 16 */
    expect_joined(40, 1, 32768, 5);   /* 8 fill a bucket */
    expect_joined(10, 1, 100000, 10); /* large ones alone */
}
