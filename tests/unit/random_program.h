/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes, and random local programs for tests of joining, lowering, planning and running: maps (some with two
 * outputs), softmax, norms, products (often with maps after them), collectives, and tensors that
 * are read and written again. Sound by construction; the same seed gives the same program. */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include <string.h>

#include <criterion/criterion.h>

#include "parallel/mesh.h"
#include "program/record.h"

static inline struct syi_mesh mesh_of(int data, int expert, int model)
{
    struct syi_mesh mesh;
    struct sy_error err = {0};
    cr_assert_eq(syi_mesh_new(&mesh, data * expert * model, data, expert, model, 8, &err), SY_OK, "%s",
                 err.text);
    return mesh;
}

/* A hook of a session: with it every op runs by itself. */
static inline void rp_see_nothing(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    (void)arg, (void)program, (void)op, (void)call, (void)after;
}

/* How many ops of this kind there are. */
static inline size_t count_ops(const struct syi_program *p, int op)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) n += p->op[i].op == op;
    return n;
}

struct rp {
    struct syi_program *p;
    const struct syi_mesh *mesh;
    uint64_t state;     /* of the generator */
    int tensor[512], n; /* what ops may read */
    int carry[3];
    int weight[3], scale[3]; /* square, and one row, as wide as the inputs */
};

static inline uint64_t rp_next(struct rp *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return r->state >> 33;
}

static inline int rp_below(struct rp *r, int n)
{
    return (int)(rp_next(r) % (uint64_t)n);
}

static inline int rp_add(struct rp *r, int tensor)
{
    cr_assert_geq(tensor, 0, "%s", r->p->error.text);
    if (r->n < (int)SYI_COUNT(r->tensor)) r->tensor[r->n++] = tensor;
    return tensor;
}

/* Any readable tensor, recent ones more often. */
static inline int rp_any(struct rp *r)
{
    int back = rp_below(r, rp_below(r, r->n) + 1);
    return r->tensor[r->n - 1 - back];
}

static inline const struct syi_tensor *rp_at(const struct rp *r, int tensor)
{
    return &r->p->tensor[tensor];
}

/* A tensor with the extents of `like`, perhaps itself. */
static inline int rp_same(struct rp *r, int like)
{
    int other = rp_any(r);
    return memcmp(rp_at(r, other)->dim, rp_at(r, like)->dim, sizeof rp_at(r, like)->dim) == 0 ? other : like;
}

/* A product with the weight that is as wide, or a norm of it. */
static inline void rp_product(struct rp *r, int a)
{
    const struct syi_tensor *t = rp_at(r, a);
    for (int i = 0; i < 3 && t->rank == 3; i++) {
        int y = r->weight[i];
        if (rp_at(r, y)->dim[0] != t->dim[2]) continue;
        y = rp_add(r, rp_below(r, 2) ? syi_matmul(r->p, a, y) : syi_matmul_nt(r->p, a, y));
        int z = rp_add(r, syi_map2(r->p, SY_MAP_ADD, rp_below(r, 3) ? y : a, rp_same(r, y)));
        if (rp_below(r, 2)) rp_add(r, syi_rms_norm(r->p, z, r->scale[i], -1, 1e-6));
        return;
    }
}

/* The smaller and the larger in one map, or one of the operands in place of the larger. */
static inline void rp_map_of_two(struct rp *r, int a, int b)
{
    union {
        struct sy_attr_map attr;
        uint8_t bytes[sizeof(struct sy_attr_map) + 2 * sizeof(struct sy_map_instr)];
    } two;
    struct sy_map_instr instr[2] = {{.op = SY_MAP_MIN, .a = 0, .b = 1}, {.op = SY_MAP_MAX, .a = 0, .b = 1}};
    memset(&two, 0, sizeof two);
    two.attr.n_instr = 2;
    two.attr.rng = 255;
    two.attr.out_register[0] = 2;
    two.attr.out_register[1] = (uint8_t)(rp_below(r, 4) ? 3 : rp_below(r, 2));
    memcpy(two.bytes + sizeof two.attr, instr, sizeof instr);
    int out[2] = {syi_temp_like(r->p, a), syi_temp_like(r->p, a)};
    cr_assert_eq(syi_op_add(r->p, SY_OP_MAP, 2, (int[]){a, b}, 2, out, &two, sizeof two.bytes), SY_OK);
    rp_add(r, out[0]);
    rp_add(r, out[1]);
}

static inline int rp_collective(struct rp *r, int op, int in, int rank, const int64_t *dim, int64_t a,
                                int64_t b, int64_t c)
{
    int out = syi_temp(r->p, SY_F32, rank, dim, NULL);
    struct sy_attr_collective attr = {a, b, c};
    cr_assert_eq(syi_op_add(r->p, op, 1, &in, 1, &out, &attr, sizeof attr), SY_OK);
    return rp_add(r, out);
}

/* One collective that fits the tensor. */
static inline void rp_random_collective(struct rp *r, int in)
{
    struct syi_tensor t = *rp_at(r, in);
    int axes = 1 + rp_below(r, 7), dim = rp_below(r, t.rank), other = (dim + 1) % t.rank;
    int64_t ranks = syi_mesh_size(r->mesh, axes);
    int divides = t.dim[dim] % ranks == 0;
    switch (rp_below(r, 4)) {
    case 0: rp_collective(r, SY_OP_ALL_REDUCE, in, t.rank, t.dim, axes, 0, 0); break;
    case 1:
        t.dim[dim] = divides ? t.dim[dim] / ranks : t.dim[dim] * ranks;
        rp_collective(r, divides ? SY_OP_REDUCE_SCATTER : SY_OP_ALL_GATHER, in, t.rank, t.dim, dim, axes, 0);
        break;
    case 2:
        if (!divides || t.rank < 2) break;
        t.dim[dim] /= ranks;
        t.dim[other] *= ranks;
        rp_collective(r, SY_OP_ALL_TO_ALL, in, t.rank, t.dim, dim, other, axes);
        break;
    default:
        if (!divides) break;
        t.dim[dim] /= ranks;
        rp_collective(r, SY_OP_SLICE, in, t.rank, t.dim, dim, axes, 0);
    }
}

static inline void rp_random_op(struct rp *r, int collectives)
{
    static const uint8_t binary[] = {SY_MAP_ADD, SY_MAP_SUB, SY_MAP_MAX, SY_MAP_MIN};
    int a = rp_any(r), lse, i;
    switch (rp_below(r, 9)) {
    case 0:
    case 1: rp_add(r, syi_map2(r->p, binary[rp_below(r, 4)], a, rp_same(r, a))); break;
    case 2: rp_add(r, syi_map1(r->p, SY_MAP_MULS, a, 0.5)); break;
    case 3: rp_map_of_two(r, a, rp_same(r, a)); break;
    case 4:
        if (rp_at(r, a)->rank != 3) break;
        a = rp_add(r, syi_softmax(r->p, a, &lse));
        rp_add(r, syi_map2(r->p, SY_MAP_MUL, a, lse));
        break;
    case 5:
        i = rp_below(r, 3);
        if (memcmp(rp_at(r, a)->dim, rp_at(r, r->carry[i])->dim, sizeof rp_at(r, a)->dim) == 0)
            syi_store(r->p, a, r->carry[i]);
        break;
    case 6: rp_product(r, a); break;
    default:
        if (collectives)
            rp_random_collective(r, a);
        else
            rp_add(r, syi_map1(r->p, SY_MAP_TANH, a, 0));
    }
}

/* A program of `ops` random steps whose last results are outputs y0 .. y7. */
static inline struct syi_program *rp_program(uint64_t seed, int ops, const struct syi_mesh *mesh,
                                             int collectives)
{
    static const int64_t dims[3][3] = {{4, 8, 24}, {8, 3, 40}, {16, 9, 115}};
    struct rp *r = syi_alloc(sizeof *r, NULL);
    struct sy_error err = {0};
    char name[16];
    *r = (struct rp){.mesh = mesh, .state = seed * 77 + 1};
    cr_assert_eq(syi_program_new("random", &r->p, &err), SY_OK);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "x%d", i);
        rp_add(r, syi_tensor_add(r->p, name, SYI_INPUT, SY_F32, 3, dims[i], NULL));
        snprintf(name, sizeof name, "c%d", i);
        r->carry[i] = rp_add(r, syi_tensor_add(r->p, name, SYI_CARRY, SY_F32, 3, dims[i], NULL));
    }
    for (int i = 0; i < 3; i++) {
        int64_t width[] = {dims[i][2], dims[i][2]};
        snprintf(name, sizeof name, "w%d", i);
        r->weight[i] = syi_tensor_add(r->p, name, SYI_INPUT, SY_F32, 2, width, NULL);
        snprintf(name, sizeof name, "s%d", i);
        r->scale[i] = syi_tensor_add(r->p, name, SYI_INPUT, SY_F32, 1, width, NULL);
    }
    for (int i = 0; i < ops; i++) rp_random_op(r, collectives);
    for (int i = 0; i < 8; i++) {
        struct syi_tensor t = *rp_at(r, r->tensor[r->n - 1 - i]);
        snprintf(name, sizeof name, "y%d", i);
        syi_store(r->p, r->tensor[r->n - 1 - i],
                  syi_tensor_add(r->p, name, SYI_OUTPUT, SY_F32, t.rank, t.dim, NULL));
    }
    struct syi_program *p = r->p;
    cr_assert_eq(syi_program_status(p, &err), SY_OK, "%s", err.text);
    syi_free(r);
    return p;
}

#endif
