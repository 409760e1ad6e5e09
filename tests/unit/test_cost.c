/* SPDX-License-Identifier: Apache-2.0 */
/* What ops cost: products by their extents, experts by what is filled, attention by what is visible, bytes by
 * dtype. */
#include "config.h"

#include <criterion/criterion.h>

#include "program/cost.h"
#include "program/record.h"

static struct sy_tensor tensor(int dtype, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct sy_tensor t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .dim = {a, b, c, d, 1}};
    return t;
}

static struct syi_cost cost_of(int op, struct sy_tensor *in, int n_in, struct sy_tensor *out, int n_out,
                               const void *attr)
{
    struct sy_call call = {.in = in,
                           .out = out,
                           .attr = attr,
                           .op = (uint16_t)op,
                           .n_in = (uint8_t)n_in,
                           .n_out = (uint8_t)n_out};
    return syi_call_cost(&call);
}

Test(cost, products_of_both_dtypes)
{
    static const int dtypes[] = {SY_F32, SY_BF16};
    for (int i = 0; i < 2; i++) {
        struct sy_tensor x = tensor(dtypes[i], 3, 2, 3, 5, 1), w = tensor(dtypes[i], 2, 5, 7, 1, 1);
        struct sy_tensor y = tensor(dtypes[i], 3, 2, 3, 7, 1);
        struct sy_tensor nn[] = {x, w}, nt[] = {y, w}, tn[] = {x, y};
        double bytes = (2 * 3 * 5 + 5 * 7 + 2 * 3 * 7) * (dtypes[i] == SY_F32 ? 4 : 2);
        struct syi_cost all[] = {cost_of(SY_OP_MATMUL, nn, 2, &y, 1, NULL),
                                 cost_of(SY_OP_MATMUL_NT, nt, 2, &x, 1, NULL),
                                 cost_of(SY_OP_MATMUL_TN, tn, 2, &w, 1, NULL)};
        for (int k = 0; k < 3; k++) {
            cr_expect_eq(all[k].flops, 2.0 * 2 * 3 * 5 * 7, "%d: %g", k, all[k].flops);
            cr_expect_eq(all[k].bytes, bytes, "%d: %g", k, all[k].bytes);
            cr_expect_eq(all[k].product, 1);
        }
    }
}

/* Of 2 experts x 2 groups x 4 slots, 3 slots of one expert are filled: the other's weights are not read. */
Test(cost, experts_count_what_is_filled)
{
    int32_t counts[] = {2, 1, 0, 0};
    struct sy_tensor in[] = {tensor(SY_F32, 4, 2, 2, 4, 8), tensor(SY_F32, 3, 2, 8, 16, 1),
                             tensor(SY_I32, 2, 2, 2, 1, 1)};
    struct sy_tensor out = tensor(SY_F32, 4, 2, 2, 4, 16);
    struct syi_cost full = cost_of(SY_OP_GROUPED_MATMUL, in, 3, &out, 1, NULL);
    cr_expect_eq(full.flops, 2.0 * 16 * 8 * 16, "%g", full.flops);
    cr_expect_eq(full.bytes, 4.0 * (16 * 8 + 2 * 8 * 16 + 4 + 16 * 16), "%g", full.bytes);
    in[2].data = counts;
    struct syi_cost real = cost_of(SY_OP_GROUPED_MATMUL, in, 3, &out, 1, NULL);
    cr_expect_eq(real.flops, 2.0 * 3 * 8 * 16, "%g", real.flops);
    cr_expect_eq(real.bytes, 4.0 * (3 * 8 + 8 * 16 + 4 + 3 * 16), "%g", real.bytes);
}

/* 3 of a group's places for all experts are filled; before the run all of them count, each for one expert. */
Test(cost, a_buffer_without_gaps_has_one_expert_a_place)
{
    int32_t counts[] = {2, 1, 0, 0};
    struct sy_tensor in[] = {tensor(SY_F32, 4, 1, 2, 4, 8), tensor(SY_F32, 3, 2, 8, 16, 1),
                             tensor(SY_I32, 2, 2, 2, 1, 1), tensor(SY_I32, 2, 2, 2, 1, 1)};
    struct sy_tensor out = tensor(SY_F32, 4, 1, 2, 4, 16);
    struct syi_cost full = cost_of(SY_OP_RAGGED_MATMUL, in, 4, &out, 1, NULL);
    cr_expect_eq(full.flops, 2.0 * 8 * 8 * 16, "%g", full.flops);
    cr_expect_eq(full.bytes, 4.0 * (8 * 8 + 2 * 8 * 16 + 4 + 4 + 8 * 16), "%g", full.bytes);
    in[2].data = counts;
    struct syi_cost real = cost_of(SY_OP_RAGGED_MATMUL, in, 4, &out, 1, NULL);
    cr_expect_eq(real.flops, 2.0 * 3 * 8 * 16, "%g", real.flops);
    cr_expect_eq(real.bytes, 4.0 * (3 * 8 + 8 * 16 + 4 + 4 + 3 * 16), "%g", real.bytes);
}

Test(cost, attention_counts_visible_pairs_and_a_shared_pack_once)
{
    int32_t lengths[] = {3, 1};
    struct sy_attr_attention attr = {.head_dim = 4, .width = 8, .causal = 1};
    struct sy_tensor in[11] = {tensor(SY_F32, 3, 2, 4, 24, 1), tensor(SY_F32, 3, 2, 4, 24, 1)};
    struct sy_tensor out[] = {tensor(SY_F32, 3, 2, 4, 8, 1), tensor(SY_F32, 3, 2, 2, 4, 1)};
    struct syi_cost all = cost_of(SY_OP_ATTENTION, in, 11, out, 2, &attr);
    cr_expect_eq(all.flops, 4.0 * 2 * 10 * 8, "%g", all.flops);
    cr_expect_eq(all.bytes, 4.0 * (2 * 4 * 24 + 2 * 4 * 8 + 2 * 2 * 4), "%g", all.bytes);
    for (int i = 2; i < 4; i++) {
        in[i] = tensor(SY_I32, 1, 2, 1, 1, 1);
        in[i].data = lengths;
    }
    cr_expect_eq(cost_of(SY_OP_ATTENTION, in, 11, out, 2, &attr).flops, 4.0 * (6 + 1) * 8);
    attr.causal = 0;
    cr_expect_eq(cost_of(SY_OP_ATTENTION, in, 11, out, 2, &attr).flops, 4.0 * (9 + 1) * 8);
}

/* Four queries, two keys: a causal query sees min(i + 1, 2) of them. */
Test(cost, causal_attention_over_fewer_keys)
{
    struct sy_attr_attention attr = {.head_dim = 8, .width = 8, .causal = 1};
    struct sy_tensor in[11] = {tensor(SY_F32, 3, 1, 4, 8, 1), tensor(SY_F32, 3, 1, 2, 16, 1)};
    struct sy_tensor out[] = {tensor(SY_F32, 3, 1, 4, 8, 1), tensor(SY_F32, 3, 1, 1, 4, 1)};
    cr_expect_eq(cost_of(SY_OP_ATTENTION, in, 11, out, 2, &attr).flops, 4.0 * (1 + 2 + 2 + 2) * 8);
}

/* An op of a program costs what the call that it becomes costs. */
Test(cost, of_a_program)
{
    struct syi_program *p = NULL;
    cr_assert_eq(syi_program_new("test", &p, NULL), SY_OK);
    const int64_t x_dim[] = {2, 3, 5}, w_dim[] = {5, 7};
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 3, x_dim, NULL);
    int w = syi_tensor_add(p, "w", SYI_PARAM, SY_F32, 2, w_dim, NULL);
    int y = syi_map2(p, SY_MAP_MUL, syi_matmul(p, x, w), syi_matmul(p, x, w));
    cr_assert(y >= 0);
    struct syi_cost product = syi_op_cost(p, &p->op[0]), map = syi_op_cost(p, &p->op[2]);
    cr_expect_eq(product.flops, 2.0 * 2 * 3 * 5 * 7);
    cr_expect_eq(map.flops, 2.0 * 3 * 7, "%g", map.flops);
    cr_expect_eq(map.bytes, 3 * 4.0 * 2 * 3 * 7, "%g", map.bytes);
    cr_expect_eq(map.product, 0);
    syi_program_free(p);
}
