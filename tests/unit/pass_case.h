/* SPDX-License-Identifier: Apache-2.0 */
/* What a pass that keeps the meaning of a program is tested with: an interpreter of programs of maps and sums, programs of random
 * maps, and the comparison of a program with what the pass makes of it. */
#ifndef PASS_CASE_H
#define PASS_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "backends/cpu/cpu.h"
#include "passes/passes.h"
#include "program/record.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__}), NULL

static inline struct syi_program *fresh(void)
{
    struct syi_program *p = NULL;
    cr_assert_eq(syi_program_new("test", &p, NULL), SY_OK);
    return p;
}

static inline size_t count_ops(const struct syi_program *p, int op)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) n += p->op[i].op == op;
    return n;
}

/* Memory of every tensor of a program, and an interpreter of programs of maps and block sums. */
struct memory {
    void *data[256];
    size_t n;
};

static inline void all_tasks(void *arg, int64_t n, void (*fn)(void *, int64_t, int), void *fn_arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) fn(fn_arg, i, 0);
}

static uint32_t random_state;
static inline uint32_t roll(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static inline void fill(struct memory *m, const struct syi_program *p)
{
    m->n = p->n_tensors;
    cr_assert_leq(m->n, SYI_COUNT(m->data));
    for (size_t i = 0; i < m->n; i++) {
        const struct syi_tensor *t = &p->tensor[i];
        size_t count = (size_t)syi_tensor_count(t);
        m->data[i] = calloc(count, syi_dtype_bytes(t->dtype));
        if (t->dtype == SY_I64) memcpy(m->data[i], (int64_t[4]){7 + (int64_t)i, 3, 1, 0}, 32);
        for (size_t j = 0; t->dtype == SY_F32 && j < count; j++)
            ((float *)m->data[i])[j] = (float)roll(2000) / 500.0f - 2.0f;
    }
}

static inline struct sy_tensor bound(const struct syi_program *p, const struct memory *m, int tensor)
{
    const struct syi_tensor *t = &p->tensor[tensor];
    struct sy_tensor operand = {.data = m->data[tensor], .dtype = t->dtype, .rank = t->rank};
    memcpy(operand.dim, t->dim, sizeof operand.dim);
    return operand;
}

static inline void execute(const struct syi_program *p, const struct memory *m)
{
    struct sy_host host = {.bytes = sizeof host, .threads = 1, .parallel_for = all_tasks};
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct syi_op *op = &p->op[i];
        struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
        for (int j = 0; j < op->n_in; j++) in[j] = bound(p, m, op->in[j]);
        for (int j = 0; j < op->n_out; j++) out[j] = bound(p, m, op->out[j]);
        struct sy_call call = {.host = &host,
                               .in = in,
                               .out = out,
                               .attr = syi_program_attr(p, op),
                               .attr_bytes = op->attr_bytes,
                               .op = op->op,
                               .n_in = op->n_in,
                               .n_out = op->n_out};
        if (op->op == SY_OP_MAP)
            cr_assert_eq(sycpu_ref_map(NULL, &call), SY_OK);
        else if (op->op == SY_OP_MAP_SUMS)
            cr_assert_eq(sycpu_ref_map_sums(NULL, &call), SY_OK);
        else if (op->op == SY_OP_BLOCK_SUM)
            cr_assert_eq(sycpu_ref_block_sum(NULL, &call), SY_OK);
        else if (op->op == SY_OP_BLOCK_MAX)
            cr_assert_eq(sycpu_ref_block_max(NULL, &call), SY_OK);
        else if (op->op == SY_OP_BLOCK_SUMSQ)
            cr_assert_eq(sycpu_ref_block_sumsq(NULL, &call), SY_OK);
        else if (op->op == SY_OP_TREE_AXIS)
            cr_assert_eq(sycpu_ref_tree_axis(NULL, &call), SY_OK);
        else if (op->op == SY_OP_TREE_SUM) { /* any op that is no map: the sum of the elements, in order */
            float sum = 0;
            for (int64_t j = 0; j < syi_tensor_count(&p->tensor[op->in[0]]); j++)
                sum += ((float *)in[0].data)[j];
            *(float *)out[0].data = sum;
        } else
            cr_assert_fail("op %d", op->op);
    }
}

static inline int same_bits(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) && !(isnan(a[i]) && isnan(b[i]))) return 0;
    return 1;
}

/* Runs a pass over a copy, runs both from the same memory, compares everything but temporaries. Returns the copy. */
static inline struct syi_program *passed_equals(struct syi_program *p, const char *what,
                                                int (*pass)(struct syi_program *, struct sy_error *))
{
    struct syi_program *fused = NULL;
    struct sy_error err = {0};
    struct memory plain, other;
    cr_assert_eq(syi_program_check(p, "record", &err), SY_OK, "%s: %s", what, err.text);
    cr_assert_eq(syi_program_copy(p, &fused, NULL), SY_OK);
    cr_assert_eq(pass(fused, &err), SY_OK, "%s: %s", what, err.text);
    uint32_t seed = random_state;
    fill(&plain, p);
    random_state = seed;
    fill(&other, fused);
    execute(p, &plain);
    execute(fused, &other);
    for (size_t i = 0; i < p->n_tensors; i++) {
        if (p->tensor[i].kind != SYI_TEMP && p->tensor[i].dtype == SY_F32)
            cr_assert(same_bits(plain.data[i], other.data[i], syi_tensor_count(&p->tensor[i])),
                      "%s: tensor %s differs", what, syi_program_name(p, p->tensor[i].name));
        free(plain.data[i]);
        free(other.data[i]);
    }
    return fused;
}

static inline int pick(const int *tensor, int n)
{
    return tensor[roll((uint32_t)n)];
}

/* Random maps over two shapes and their broadcasts, with stores into state and sums in between. */
static inline struct syi_program *random_program(int rng_rounds)
{
    static const int binary[] = {SY_MAP_ADD, SY_MAP_SUB, SY_MAP_MUL, SY_MAP_MAX, SY_MAP_MIN, SY_MAP_LESS};
    static const int unary[] = {SY_MAP_NEG,  SY_MAP_TANH, SY_MAP_ADDS,
                                SY_MAP_MULS, SY_MAP_COPY, SY_MAP_FINITE};
    struct syi_program *p = fresh();
    int pool[2][96], n[2] = {0, 0}, scalars[64], n_scalars = 0, state[2][3];
    int rng[2] = {syi_tensor_add(p, "rng", SYI_INPUT, SY_I64, 1, DIMS(4)),
                  syi_tensor_add(p, "rng2", SYI_INPUT, SY_I64, 1, DIMS(4))};
    for (int shape = 0; shape < 2; shape++)
        for (int i = 0; i < 3; i++) {
            char name[32];
            snprintf(name, sizeof name, "s%d%d", shape, i);
            state[shape][i] = syi_tensor_add(p, name, SYI_STATE, SY_F32, 3, DIMS(2, 3 + shape, 70));
            pool[shape][n[shape]++] = state[shape][i];
        }
    scalars[n_scalars++] = syi_tensor_add(p, "one", SYI_INPUT, SY_F32, 1, DIMS(1));
    scalars[n_scalars++] = syi_tensor_add(p, "column", SYI_INPUT, SY_F32, 1, DIMS(70));
    int row = syi_tensor_add(p, "row", SYI_INPUT, SY_F32, 2, DIMS(2, 3));
    for (int i = 0; i < 45; i++) {
        int shape = roll(2), result = -1, x = pick(pool[shape], n[shape]);
        switch (roll(10)) {
        case 0: result = syi_map1(p, unary[roll(6)], x, (double)roll(10) / 4); break;
        case 1:
            result = syi_map3(p, SY_MAP_SELECT, pick(scalars, n_scalars), x, pick(pool[shape], n[shape]));
            break;
        case 2: result = syi_map2(p, SY_MAP_ADD, x, pick(scalars, n_scalars)); break;
        case 3: syi_store(p, x, state[shape][roll(3)]); break;
        case 4: scalars[n_scalars++] = syi_tree_sum(p, x); break;
        case 9: /* sums of rows, or of their squares, as what a column of them is multiplied by */
            result = syi_sum_over(p, roll(2) ? SY_OP_BLOCK_SUM : SY_OP_BLOCK_SUMSQ, x, 1u << 2);
            result = syi_map2(p, SY_MAP_MUL, pick(pool[shape], n[shape]), result);
            break;
        case 5: scalars[n_scalars++] = syi_map1(p, SY_MAP_MULS, scalars[0], 0.5); break;
        case 6:
            if (!shape) result = syi_map2(p, SY_MAP_MUL, x, row);
            break;
        case 7:
            if (rng_rounds) result = syi_dropout(p, x, rng[roll((uint32_t)rng_rounds)], i, 0.25);
            break;
        default: result = syi_map2(p, binary[roll(6)], x, pick(pool[shape], n[shape]));
        }
        if (result >= 0) pool[shape][n[shape]++] = result;
    }
    for (int shape = 0; shape < 2; shape++) syi_store(p, pool[shape][n[shape] - 1], state[shape][0]);
    return p;
}

/* Random program number i, and what messages call it. */
static inline struct syi_program *random_case(int i, char what[32])
{
    random_state = (uint32_t)i;
    snprintf(what, 32, "random program %d", i);
    return random_program(i % 3);
}

#endif
