/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: between the start of a collective and its wait nobody touches the result, writes the operand or
 * starts another collective in the queue of the group; reductions become what ops.def says; the halves of an
 * all_reduce both overlap with compute. */
#include "config.h"

#include "random_program.h"
#include "runtime/session.h"

static void lower(struct syi_program *p, const struct syi_mesh *mesh, int reproducible)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_lower(p, mesh, reproducible, &err), SY_OK, "%s", err.text);
}

static int names(const int32_t *list, int n, int tensor)
{
    for (int i = 0; i < n; i++)
        if (list[i] == tensor) return 1;
    return 0;
}

/* Every collective is waited for once, and left alone until then. */
static void check_waits(const struct syi_program *p, const struct syi_mesh *mesh)
{
    for (size_t at = 0; at < p->n_ops; at++) {
        const struct syi_op *start = &p->op[at];
        if (!start->queue) continue;
        cr_assert_leq(start->queue, SYI_LANES);
        int group = syi_collective_group(p, start, mesh);
        size_t i = at + 1;
        for (; i < p->n_ops && !(p->op[i].op == SY_OP_WAIT && p->op[i].in[0] == start->out[0]); i++) {
            const struct syi_op *op = &p->op[i];
            cr_assert_not(names(op->in, op->n_in, start->out[0]), "op %zu reads what op %zu receives", i, at);
            cr_assert_not(names(op->out, op->n_out, start->out[0]), "op %zu writes what op %zu receives", i,
                          at);
            cr_assert_not(names(op->out, op->n_out, start->in[0]), "op %zu writes what op %zu sends", i, at);
            cr_assert(op->queue != start->queue || syi_collective_group(p, op, mesh) != group,
                      "ops %zu and %zu share a queue", at, i);
        }
        cr_assert_lt(i, p->n_ops, "nobody waits for op %zu", at);
    }
}

Test(lower, random_programs_keep_collectives_apart)
{
    struct syi_mesh meshes[] = {mesh_of(1, 1, 1), mesh_of(2, 1, 2), mesh_of(2, 2, 2), mesh_of(4, 1, 1)};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const struct syi_mesh *mesh = &meshes[seed % SYI_COUNT(meshes)];
        struct syi_program *p = rp_program(seed, 60, mesh, 1);
        int reproducible = seed % 5 != 0;
        size_t reductions = count_ops(p, SY_OP_ALL_REDUCE) + count_ops(p, SY_OP_REDUCE_SCATTER);
        lower(p, mesh, reproducible);
        check_waits(p, mesh);
        cr_assert_eq(count_ops(p, SY_OP_REDUCE_SCATTER), 0);
        if (reproducible) cr_assert_eq(count_ops(p, SY_OP_TREE_ADD), reductions);
        if (reproducible) cr_assert_eq(count_ops(p, SY_OP_ALL_REDUCE), 0);
        syi_program_free(p);
    }
}

/* x -> all_reduce -> y, then `between` maps of something else, then a reader of y. */
static struct syi_program *one_reduction(int64_t n, int dtype, int between)
{
    struct syi_program *p;
    struct sy_error err = {0};
    cr_assert_eq(syi_program_new("one", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, dtype, 1, &n, NULL), y = syi_temp(p, dtype, 1, &n, NULL);
    int other = syi_tensor_add(p, "other", SYI_INPUT, SY_F32, 1, (int64_t[]){8}, NULL);
    struct sy_attr_collective attr = {SYI_MESH_DATA, 0, 0};
    syi_op_add(p, SY_OP_ALL_REDUCE, 1, &x, 1, &y, &attr, sizeof attr);
    for (int i = 0; i < between; i++) other = syi_map1(p, SY_MAP_NEG, other, 0);
    if (dtype == SY_F32) syi_store(p, y, syi_tensor_add(p, "y", SYI_OUTPUT, dtype, 1, &n, NULL));
    cr_assert_eq(syi_program_status(p, &err), SY_OK, "%s", err.text);
    return p;
}

static void expect_ops(const struct syi_program *p, size_t n, const uint16_t *op)
{
    cr_assert_eq(p->n_ops, n, "%zu ops", p->n_ops);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(p->op[i].op, op[i], "op %zu is %s, not %s", i, syi_op_info(p->op[i].op)->name,
                     syi_op_info(op[i])->name);
}
#define EXPECT_OPS(p, ...) expect_ops(p, SYI_COUNT(((uint16_t[]){__VA_ARGS__})), (uint16_t[]){__VA_ARGS__})

Test(lower, both_halves_of_an_all_reduce_overlap)
{
    struct syi_mesh mesh = mesh_of(4, 1, 1);
    struct syi_program *p = one_reduction(100001, SY_F32, 4);
    lower(p, &mesh, 1);
    EXPECT_OPS(p, SY_OP_SEND_PIECES, SY_OP_MAP, SY_OP_MAP, SY_OP_WAIT, SY_OP_TREE_ADD, SY_OP_GATHER_PIECES,
               SY_OP_MAP, SY_OP_MAP, SY_OP_WAIT, SY_OP_MAP);
    const struct syi_tensor *pieces = &p->tensor[p->op[0].out[0]], *x = &p->tensor[p->op[0].in[0]];
    const struct sy_attr_collective *attr = syi_program_attr(p, &p->op[0]);
    cr_assert_eq(attr->a, SYI_MESH_DATA);
    cr_assert_eq(attr->b, -1);
    cr_assert_eq(pieces->dim[0], 4);
    cr_assert_eq(pieces->dim[1], 25008); /* 100001 / 4 rounded up to 16 */
    cr_assert_eq(x->bytes, 4 * 25008 * 4, "operands are padded to whole pieces");
    cr_assert_eq(p->tensor[p->op[5].out[0]].bytes, 4 * 25008 * 4);
    syi_program_free(p);
}

Test(lower, a_small_sum_is_one_trip)
{
    struct syi_mesh mesh = mesh_of(4, 1, 1);
    struct syi_program *p = one_reduction(7, SY_F32, 2);
    lower(p, &mesh, 1);
    EXPECT_OPS(p, SY_OP_GATHER_PIECES, SY_OP_MAP, SY_OP_MAP, SY_OP_WAIT, SY_OP_TREE_ADD, SY_OP_MAP);
    syi_program_free(p);
}

Test(lower, integers_and_free_order_use_the_library)
{
    struct syi_mesh mesh = mesh_of(2, 1, 1);
    struct syi_program *p = one_reduction(100001, SY_F32, 1), *q = one_reduction(100001, SY_I64, 1);
    lower(p, &mesh, 0);
    EXPECT_OPS(p, SY_OP_ALL_REDUCE, SY_OP_MAP, SY_OP_WAIT, SY_OP_MAP);
    lower(q, &mesh, 1);
    EXPECT_OPS(q, SY_OP_ALL_REDUCE, SY_OP_MAP, SY_OP_WAIT);
    syi_program_free(p);
    syi_program_free(q);
}

/* Sums of many tensors, each after the op that yields its terms, needed only at the end: as many as there
 * are queues are under way, and a wait stands only where a queue is needed again or at the end. */
static struct syi_program *many_reductions(int n, int64_t elements)
{
    struct syi_program *p;
    struct sy_error err = {0};
    int sum[32];
    cr_assert_eq(syi_program_new("many", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 1, &elements, NULL);
    struct sy_attr_collective attr = {SYI_MESH_DATA, 0, 0};
    for (int i = 0; i < n; i++) {
        x = syi_map1(p, SY_MAP_NEG, x, 0);
        sum[i] = syi_temp(p, SY_F32, 1, &elements, NULL);
        syi_op_add(p, SY_OP_ALL_REDUCE, 1, &x, 1, &sum[i], &attr, sizeof attr);
    }
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        syi_store(p, sum[i], syi_tensor_add(p, name, SYI_CARRY, SY_F32, 1, &elements, NULL));
    }
    cr_assert_eq(syi_program_status(p, &err), SY_OK, "%s", err.text);
    return p;
}

/* How many collectives are under way in front of op `at`. */
static int under_way(const struct syi_program *p, size_t at)
{
    int n = 0;
    for (size_t i = 0; i < at; i++) n += (p->op[i].queue != 0) - (p->op[i].op == SY_OP_WAIT);
    return n;
}

Test(lower, reductions_overlap_with_what_follows_and_with_each_other)
{
    struct syi_mesh mesh = mesh_of(2, 1, 1);
    for (int large = 0; large < 2; large++) {
        struct syi_program *p = many_reductions(20, large ? 100000 : 100);
        lower(p, &mesh, 1);
        check_waits(p, &mesh);
        int most = 0, maps = 0;
        for (size_t i = 0; i < p->n_ops; i++) {
            int n = under_way(p, i);
            if (n > most) most = n;
            maps += p->op[i].op == SY_OP_MAP;
            if (p->op[i].op != SY_OP_MAP || maps <= SYI_LANES || maps > 20) continue;
            cr_assert_geq(n, SYI_LANES - 1, "map %d runs beside %d collectives", maps, n);
        }
        cr_assert_eq(most, SYI_LANES);
        syi_program_free(p);
    }
}

/* An integer reduce_scatter is a sum and a piece of it; masks that differ in axes of one rank are one group.
 */
Test(lower, groups_ignore_axes_of_one_rank)
{
    struct syi_mesh mesh = mesh_of(2, 1, 1);
    struct syi_program *p;
    struct sy_error err = {0};
    int64_t n = 8, half = 4;
    cr_assert_eq(syi_program_new("two", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_I64, 1, &n, NULL);
    for (int i = 0; i < 2; i++) {
        int y = syi_temp(p, SY_I64, 1, &half, NULL);
        struct sy_attr_collective attr = {0, i ? SYI_MESH_DATA : SYI_MESH_DATA | SYI_MESH_EXPERT, 0};
        syi_op_add(p, SY_OP_REDUCE_SCATTER, 1, &x, 1, &y, &attr, sizeof attr);
    }
    lower(p, &mesh, 1);
    EXPECT_OPS(p, SY_OP_ALL_REDUCE, SY_OP_WAIT, SY_OP_SLICE, SY_OP_ALL_REDUCE, SY_OP_WAIT, SY_OP_SLICE);
    cr_assert_eq(syi_collective_group(p, &p->op[0], &mesh), SYI_MESH_DATA);
    syi_program_free(p);
}
