/* SPDX-License-Identifier: Apache-2.0 */
/* Fold: sums join the map that makes what they sum, products and norms take over the map beside them; no bit changes. */
#include "config.h"

#include "pass_case.h"

/* ---- sums ---- */

Test(program_fold, bits_do_not_change)
{
    size_t sums = 0, folded = 0;
    for (int i = 0; i < 300; i++) {
        char what[32];
        struct syi_program *p = random_case(i, what);
        cr_assert_eq(syi_program_fuse(p, NULL), SY_OK);
        struct syi_program *after = passed_equals(p, what, syi_fold);
        sums += count_ops(p, SY_OP_BLOCK_SUM) + count_ops(p, SY_OP_BLOCK_SUMSQ);
        folded += count_ops(after, SY_OP_MAP_SUMS);
        syi_program_free(after);
        syi_program_free(p);
    }
    cr_expect_gt(folded * 50, sums, "%zu of %zu sums", folded, sums);
}

/* Weight metrics after an update: its sums and maxima are outputs of the map, and what only they read is in no memory. */
Test(program_fold, sums_of_an_update_join_it)
{
    struct syi_program *p = fresh();
    int g = syi_tensor_add(p, "g", SYI_CARRY, SY_F32, 2, DIMS(6, 8));
    int w = syi_tensor_add(p, "w", SYI_PARAM, SY_F32, 2, DIMS(6, 8));
    int m = syi_tensor_add(p, "m", SYI_STATE, SY_F32, 2, DIMS(6, 8));
    int moved = syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, m, 0.9), g),
        value = syi_map2(p, SY_MAP_SUB, w, moved);
    int change = syi_map2(p, SY_MAP_SUB, value, w), relative = syi_map2(p, SY_MAP_DIV, change, w);
    syi_store(p, moved, m);
    syi_store(p, value, w);
    syi_sum_over(p, SY_OP_BLOCK_SUMSQ, change, 3);
    syi_sum_over(p, SY_OP_BLOCK_SUMSQ, relative, 3);
    syi_sum_over(p, SY_OP_BLOCK_SUMSQ, w, 3);
    syi_block_sum(p, SY_OP_BLOCK_MAX, w);
    cr_assert_eq(syi_program_fuse(p, NULL), SY_OK);
    random_state = 4;
    struct syi_program *after = passed_equals(p, "an update", syi_fold);
    cr_expect_eq(count_ops(after, SY_OP_MAP_SUMS), 1);
    cr_expect_eq(count_ops(after, SY_OP_MAP) + count_ops(after, SY_OP_BLOCK_SUMSQ) +
                     count_ops(after, SY_OP_BLOCK_MAX),
                 0);
    syi_program_free(after);
    syi_program_free(p);
}

/* Rows of one element would be taken one by one. */
Test(program_fold, short_rows_are_summed_apart)
{
    struct syi_program *p = fresh();
    int row = syi_tensor_add(p, "row", SYI_CARRY, SY_F32, 2, DIMS(6, 1));
    int v = syi_tensor_add(p, "v", SYI_STATE, SY_F32, 2, DIMS(6, 1));
    int moved = syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, v, 0.9), row);
    syi_store(p, moved, v);
    syi_sum_over(p, SY_OP_BLOCK_SUM, moved, 1);
    cr_assert_eq(syi_program_fuse(p, NULL), SY_OK);
    random_state = 5;
    struct syi_program *after = passed_equals(p, "short rows", syi_fold);
    cr_expect_eq(count_ops(after, SY_OP_MAP_SUMS), 0);
    cr_expect_eq(count_ops(after, SY_OP_BLOCK_SUM), 1);
    syi_program_free(after);
    syi_program_free(p);
}

/* Maps over the shape of a tensor. */
static size_t count_maps_like(const struct syi_program *p, int tensor)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++)
        n += p->op[i].op == SY_OP_MAP &&
             syi_tensor_count(&p->tensor[p->op[i].out[0]]) == syi_tensor_count(&p->tensor[tensor]);
    return n;
}

/* What Adafactor does with a gradient: two sums of its scaled squares, then one of the update, which is never in memory,
 * nor is the part of it that the last map reads; the weights are summed in the pass over the update, the nearer one. */
Test(program_fold, a_gradient_is_read_where_it_is)
{
    struct syi_program *p = fresh();
    int g = syi_tensor_add(p, "g", SYI_CARRY, SY_F32, 2, DIMS(6, 8));
    int w = syi_tensor_add(p, "w", SYI_PARAM, SY_F32, 2, DIMS(6, 8));
    int s = syi_tensor_add(p, "s", SYI_INPUT, SY_F32, 1, DIMS(1));
    int scaled = syi_map2(p, SY_MAP_MUL, g, s), square = syi_map2(p, SY_MAP_MUL, scaled, scaled);
    int rows = syi_sum_over(p, SY_OP_BLOCK_SUM, square, 2),
        columns = syi_sum_over(p, SY_OP_BLOCK_SUM, square, 1);
    int whole = syi_map2(p, SY_MAP_MUL, scaled, columns);
    int size = syi_sum_over(p, SY_OP_BLOCK_SUMSQ, syi_map2(p, SY_MAP_MUL, whole, rows), 3);
    int rate = syi_map2(p, SY_MAP_DIV, syi_sum_over(p, SY_OP_BLOCK_SUMSQ, w, 3), size);
    int change = syi_map2(p, SY_MAP_MUL, whole, syi_map2(p, SY_MAP_MUL, rows, rate));
    syi_store(p, syi_map2(p, SY_MAP_SUB, w, change), w);
    cr_assert_eq(syi_program_fuse(p, NULL), SY_OK);
    random_state = 3;
    struct syi_program *after = passed_equals(p, "adafactor", syi_fold);
    cr_expect_eq(count_ops(after, SY_OP_MAP_SUMS), 2);
    cr_expect_eq(count_maps_like(after, w), 1);
    cr_expect_eq(count_ops(after, SY_OP_BLOCK_SUM) + count_ops(after, SY_OP_BLOCK_SUMSQ), 0);
    for (size_t i = 0; i < after->n_ops; i++)
        if (after->op[i].op == SY_OP_MAP_SUMS)
            cr_expect_eq(syi_op_reads(&after->op[i], w), after->op[i].n_in > 2, "op %zu", i);
    syi_program_free(after);
    syi_program_free(p);
}

/* ---- maps that their neighbours take over ---- */

static void fold_maps(struct syi_program *p, int sums)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_fold_maps(p, sums, &err), SY_OK, "%s", err.text);
}

/* Residuals as a model records them, masked or not; the sums stay, for what comes after reads them too. */
Test(program_fold, a_norm_takes_the_sum_before_it)
{
    for (int sums = 0; sums < 2; sums++) { /* 0: a backend without that op */
        struct syi_program *p = fresh();
        int x = syi_tensor_add(p, "x", SYI_CARRY, SY_F32, 3, DIMS(2, 3, 8));
        int y = syi_tensor_add(p, "y", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 8));
        int z = syi_tensor_add(p, "z", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 8));
        int mask = syi_tensor_add(p, "mask", SYI_INPUT, SY_F32, 2, DIMS(2, 3));
        int scale = syi_tensor_add(p, "scale", SYI_PARAM, SY_F32, 1, DIMS(8));
        int sum = syi_map2(p, SY_MAP_ADD, x, y),
            norm = syi_as(p, syi_rms_norm(p, sum, scale, -1, 1e-6), SY_BF16);
        int next = syi_map2(p, SY_MAP_ADD, sum, z),
            last = syi_as(p, syi_rms_norm(p, next, scale, mask, 1e-6), SY_BF16);
        fold_maps(p, sums);
        cr_assert_eq(p->n_ops, sums ? 2 : 4);
        cr_expect_eq(count_ops(p, SY_OP_ADD_RMS_NORM), sums ? 2 : 0);
        for (int i = 0; sums && i < 2; i++) {
            const struct syi_op *op = &p->op[i];
            cr_expect(op->in[0] == (i ? sum : x) && op->in[1] == (i ? z : y) && op->in[2] == scale &&
                      op->in[3] == (i ? mask : -1));
            cr_expect(op->out[0] == (i ? next : sum) && op->out[1] == (i ? last : norm));
        }
        syi_program_free(p);
    }
}

/* A vector for every row, a difference, a map of two outputs, another tensor, a norm in float32. */
Test(program_fold, a_norm_takes_nothing_but_a_sum)
{
    enum { VECTOR, DIFFERENCE, TWO_OUTPUTS, ANOTHER, FLOAT32, CASES };
    for (int which = 0; which < CASES; which++) {
        struct syi_program *p = fresh();
        int x = syi_tensor_add(p, "x", SYI_CARRY, SY_F32, 3, DIMS(1, 1, 8));
        int y = syi_tensor_add(p, "y", SYI_INPUT, SY_F32, 3, DIMS(1, 1, 8));
        int v = syi_tensor_add(p, "v", SYI_PARAM, SY_F32, 1, DIMS(8));
        int sum = syi_map2(p, which == DIFFERENCE ? SY_MAP_SUB : SY_MAP_ADD, x, which == VECTOR ? v : y);
        if (which == TWO_OUTPUTS) syi_output(p, syi_map1(p, SY_MAP_MULS, sum, 2), "twice");
        int norm = syi_rms_norm(p, which == ANOTHER ? x : sum, v, -1, 1e-6);
        if (which != FLOAT32) syi_as(p, norm, SY_BF16);
        syi_output(p, sum, "sum");
        cr_assert_eq(syi_program_fuse(p, NULL), SY_OK);
        fold_maps(p, 1);
        cr_expect_eq(count_ops(p, SY_OP_ADD_RMS_NORM), 0, "case %d", which);
        cr_expect_eq(p->n_ops, 2, "case %d", which);
        syi_program_free(p);
    }
}

/* Only relu, of what nothing else reads, if it does not round. */
Test(program_fold, a_product_in_panels_takes_its_relu)
{
    enum { FITS, FLOAT32, GELU, READ_TWICE, KEPT, ROUNDED, CASES };
    for (int which = 0; which < CASES; which++) {
        struct syi_program *p = fresh();
        int x = syi_tensor_add(p, "x", SYI_INPUT, SY_BF16, 3, DIMS(2, 3, 64));
        int w = syi_tensor_add(p, "w", SYI_PARAM, SY_F32, 2, DIMS(64, 32));
        int y = syi_matmul_panels(p, x, syi_lay_out(p, 1, &w));
        if (which != FLOAT32 && which != ROUNDED) syi_as(p, y, SY_BF16);
        int h = syi_activation(p, y, which == GELU ? SY_GELU : SY_RELU), folds = which <= FLOAT32;
        if (which == ROUNDED) syi_as(p, h, SY_BF16);
        if (which == READ_TWICE) syi_output(p, syi_map2(p, SY_MAP_MUL, h, y), "product");
        if (which == KEPT) syi_output(p, y, "before");
        syi_output(p, h, "after");
        const size_t n = p->n_ops;
        fold_maps(p, 1);
        cr_expect_eq(p->n_ops, n - (size_t)folds, "case %d", which);
        for (size_t i = 0; i < p->n_ops; i++) {
            if (p->op[i].op != SY_OP_MATMUL_PANELS) continue;
            cr_expect_eq(syi_op_field(p, &p->op[i], "activation", -1), folds ? SY_RELU : SY_LINEAR);
            cr_expect_eq(syi_op_field(p, &p->op[i], "leaf", -1), 64);
            cr_expect_eq(p->op[i].out[0], folds ? h : y);
        }
        syi_program_free(p);
    }
}

/* ---- copies ---- */

/* What lies between two copies of the same weights, of which one is transposed. */
enum between { NOTHING, ANOTHER_MAP, WRITTEN, READ, FEWER_PARTS, OTHER_PARTS, BOTH_PLAIN, BETWEEN };

static struct syi_program *two_copies(enum between what, int transposed_first)
{
    struct syi_program *p = fresh();
    int w[2], x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 2, DIMS(64, 64));
    int h = syi_tensor_add(p, "h", SYI_INPUT, SY_BF16, 3, DIMS(1, 2, transposed_first ? 128 : 64));
    w[0] = syi_tensor_add(p, "gate", SYI_PARAM, SY_F32, 2, DIMS(64, 64));
    w[1] = syi_tensor_add(p, "linear", SYI_PARAM, SY_F32, 2, DIMS(64, 64));
    int first = transposed_first ? syi_lay_out_nt(p, 2, w) : syi_lay_out(p, 2, w);
    if (what == ANOTHER_MAP) syi_output(p, syi_map1(p, SY_MAP_MULS, x, 2), "twice");
    if (what == WRITTEN && syi_map1(p, SY_MAP_MULS, x, 2) >= 0) p->op[p->n_ops - 1].out[0] = w[1];
    if (what == READ) syi_output(p, syi_matmul_panels(p, h, first), "product");
    if (what == OTHER_PARTS) w[1] = x;
    int n = what == FEWER_PARTS ? 1 : 2, plain = transposed_first != (what == BOTH_PLAIN);
    int second = plain ? syi_lay_out(p, n, w) : syi_lay_out_nt(p, n, w);
    syi_output(p, first, "first");
    syi_output(p, second, "second");
    return p;
}

/* Weights are read once for both copies, unless something between them changes them or reads the first. */
Test(program_fold, copies_of_the_same_weights_are_laid_out_together)
{
    for (int which = 0; which < 2 * BETWEEN; which++) {
        const enum between what = which / 2;
        struct syi_program *p = two_copies(what, which % 2);
        struct sy_error err = {0};
        const int first = p->op[0].out[0], second = p->op[p->n_ops - 1].out[0], folds = what <= ANOTHER_MAP;
        const size_t n = p->n_ops;
        cr_assert_eq(syi_fold_copies(p, &err), SY_OK, "%s", err.text);
        cr_expect_eq(p->n_ops, n - (size_t)folds, "case %d", which);
        cr_expect_eq(count_ops(p, SY_OP_LAY_OUT_BOTH), (size_t)folds, "case %d", which);
        const struct syi_op *last = &p->op[p->n_ops - 1];
        cr_expect(!folds || (last->out[0] == (which % 2 ? second : first) &&
                             last->out[1] == (which % 2 ? first : second)));
        syi_program_free(p);
    }
}
