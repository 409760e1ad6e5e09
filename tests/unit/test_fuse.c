/* SPDX-License-Identifier: Apache-2.0 */
/* Fuse: maps become one where nothing but temporaries changes, and no bit does. */
#include "config.h"

#include "pass_case.h"

static struct syi_program *fused_equals(struct syi_program *p, const char *what)
{
    return passed_equals(p, what, syi_program_fuse);
}

/* One parameter's update as an optimizer records it. */
static void record_adam(struct syi_program *p, const char *name, int64_t rows, int ok, int rate)
{
    char text[4][32];
    int tensor[4];
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%s/%c", name, "gwmv"[i]);
        tensor[i] = syi_tensor_add(p, text[i],
                                   i == 0   ? SYI_CARRY
                                   : i == 1 ? SYI_PARAM
                                            : SYI_STATE,
                                   SY_F32, 2, DIMS(rows, 5));
    }
    int g = tensor[0], w = tensor[1], m = tensor[2], v = tensor[3];
    int new_m = syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, g, 0.1), syi_map1(p, SY_MAP_MULS, m, 0.9));
    int square = syi_map2(p, SY_MAP_MUL, g, g);
    int new_v =
        syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, square, 0.01), syi_map1(p, SY_MAP_MULS, v, 0.99));
    int root = syi_map1(p, SY_MAP_ADDS, syi_map1(p, SY_MAP_SQRT, new_v, 0), 1e-8);
    syi_store(p, syi_map3(p, SY_MAP_SELECT, ok, new_m, m), m);
    syi_store(p, syi_map3(p, SY_MAP_SELECT, ok, new_v, v), v);
    int step = syi_map2(p, SY_MAP_MUL, syi_map2(p, SY_MAP_DIV, new_m, root), rate);
    syi_store(p, syi_map3(p, SY_MAP_SELECT, ok, syi_map2(p, SY_MAP_SUB, w, step), w), w);
}

/* Two parameters of one shape become one map each: merging them would only use up instructions. */
Test(program_fuse, an_update_is_one_map)
{
    struct syi_program *p = fresh();
    int ok = syi_tensor_add(p, "ok", SYI_INPUT, SY_F32, 1, DIMS(1));
    int rate = syi_tensor_add(p, "rate", SYI_INPUT, SY_F32, 1, DIMS(1));
    rate = syi_map1(p, SY_MAP_SQRT, syi_map2(p, SY_MAP_MUL, rate, rate), 0);
    record_adam(p, "a", 7, ok, rate);
    record_adam(p, "b", 7, ok, rate);
    record_adam(p, "c", 3, ok, rate);
    random_state = 1;
    struct syi_program *fused = fused_equals(p, "adam");
    cr_expect_eq(fused->n_ops, 4, "%zu ops", fused->n_ops);
    for (size_t i = 1; i < 4 && i < fused->n_ops; i++) {
        cr_expect_eq(fused->op[i].n_in, 6);
        cr_expect_eq(fused->op[i].n_out, 3);
    }
    syi_program_free(fused);
    syi_program_free(p);
}

/* A map moves over an op that has nothing to do with it, not over one that reads what it writes or writes
 * what it reads. */
Test(program_fuse, moves_only_where_nothing_changes)
{
    for (int mode = 0; mode < 3; mode++) {
        struct syi_program *p = fresh();
        int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 2, DIMS(3, 4));
        int s = syi_tensor_add(p, "s", SYI_STATE, SY_F32, 2, DIMS(3, 4));
        int out = syi_tensor_add(p, "out", SYI_OUTPUT, SY_F32, 1, DIMS(1));
        int a = syi_map1(p, SY_MAP_MULS, x, 3);
        int sum = syi_tree_sum(p, mode == 1 ? s : x);
        int b = mode == 2 ? syi_map2(p, SY_MAP_ADD, a, sum) : syi_map2(p, SY_MAP_ADD, a, x);
        syi_store(p, b, s);
        syi_store(p, sum, out);
        random_state = 5;
        struct syi_program *fused = fused_equals(p, "moves");
        size_t maps = 0;
        for (size_t i = 0; i < fused->n_ops; i++) maps += fused->op[i].op == SY_OP_MAP;
        cr_expect_eq(maps, (size_t)(mode ? 3 : 2), "mode %d: %zu maps", mode, maps);
        syi_program_free(fused);
        syi_program_free(p);
    }
}

/* Memory would round a bf16 value between two maps, a register would not. */
Test(program_fuse, narrow_tensors_stay_in_memory)
{
    struct syi_program *p = fresh();
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_BF16, 1, DIMS(8));
    int out = syi_tensor_add(p, "out", SYI_OUTPUT, SY_BF16, 1, DIMS(8));
    syi_store(p, syi_map1(p, SY_MAP_MULS, x, 3), out);
    cr_assert_eq(syi_program_fuse(p, NULL), SY_OK);
    cr_expect_eq(p->n_ops, 2);
    syi_program_free(p);
}

/* Longer than one op may be: 3 ops of 32 instructions and the rest. */
Test(program_fuse, long_chains_are_cut)
{
    struct syi_program *p = fresh();
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 1, DIMS(8));
    int out = syi_tensor_add(p, "out", SYI_OUTPUT, SY_F32, 1, DIMS(8));
    for (int i = 0; i < 100; i++) x = syi_map1(p, SY_MAP_ADDS, x, 0.25);
    syi_store(p, x, out);
    random_state = 2;
    struct syi_program *fused = fused_equals(p, "long");
    cr_expect_eq(fused->n_ops, 4, "%zu ops", fused->n_ops);
    syi_program_free(fused);
    syi_program_free(p);
}

Test(program_fuse, bits_do_not_change)
{
    size_t before = 0, after = 0;
    for (int i = 0; i < 300; i++) {
        char what[32];
        struct syi_program *p = random_case(i, what);
        struct syi_program *fused = fused_equals(p, what);
        before += p->n_ops;
        after += fused->n_ops;
        size_t n = fused->n_ops;
        cr_assert_eq(syi_program_fuse(fused, NULL), SY_OK);
        cr_assert_leq(fused->n_ops, n);
        syi_program_free(fused);
        syi_program_free(p);
    }
    cr_expect_lt(after * 3, before * 2, "%zu ops became %zu", before, after);
}
