/* SPDX-License-Identifier: Apache-2.0 */
/* The placement rules, each on two ranks, by the structure of the local program: which ops, which
 * collectives, which extents. Values are compared where programs run. */
#include "config.h"

#include <string.h>

#include <criterion/criterion.h>

#include "base/text.h"
#include "passes/passes.h"
#include "program/record.h"

/* "all_gather:0:d[8,16] matmul[2d,3,16] matmul_tn[8,16]+d": local extents of output 0, mesh letters after
 * split dims, '+' before those over which it is a term of a sum; collectives with the fields of their
 * attribute. */
static void put_op(struct syi_text *text, const struct syi_program *p, const struct syi_op *op)
{
    const struct syi_tensor *t = &p->tensor[op->out[0]];
    const struct sy_attr_collective *attr = syi_program_attr(p, op);
    syi_text_puts(text, syi_op_info(op->op)->name);
    if (op->op == SY_OP_ALL_REDUCE) syi_text_printf(text, ":%s", syi_mesh_letters((int)attr->a));
    if (op->op == SY_OP_ALL_GATHER || op->op == SY_OP_REDUCE_SCATTER || op->op == SY_OP_SLICE)
        syi_text_printf(text, ":%d:%s", (int)attr->a, syi_mesh_letters((int)attr->b));
    if (op->op == SY_OP_ALL_TO_ALL)
        syi_text_printf(text, ":%d:%d:%s", (int)attr->a, (int)attr->b, syi_mesh_letters((int)attr->c));
    for (int i = 0; i < t->rank; i++)
        syi_text_printf(text, "%c%d%s", i ? ',' : '[', (int)t->dim[i], syi_mesh_letters(t->split[i]));
    syi_text_puts(text, t->partial ? "]+" : "]");
    syi_text_puts(text, syi_mesh_letters(t->partial));
}

struct setup {
    struct syi_program *p;
    struct syi_mesh mesh;
};

/* A recording and a mesh. Every axis has 2 leaves. */
static struct setup begin(int data, int expert, int model)
{
    struct setup s;
    cr_assert_eq(syi_program_new("test", &s.p, NULL), SY_OK);
    cr_assert_eq(syi_mesh_new(&s.mesh, data * expert * model, data, expert, model, 4, NULL), SY_OK);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) s.p->leaf_count[i] = 2;
    s.p->leaf_count[SYI_AXIS_NONE] = s.p->leaf_count[SYI_AXIS_LENGTH] = 1;
    return s;
}

static void expect(struct setup *s, const char *want)
{
    struct syi_program *local = NULL;
    struct sy_error err = {0};
    struct syi_text text = {0};
    cr_assert_eq(syi_program_check(s->p, "record", &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_partition(s->p, &s->mesh, &local, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < local->n_ops; i++) {
        syi_text_puts(&text, i ? " " : "");
        put_op(&text, local, &local->op[i]);
    }
    cr_expect_str_eq(text.data, want);
    syi_text_free(&text);
    syi_program_free(local);
    syi_program_free(s->p);
}

static void expect_refusal(struct setup *s, const char *words)
{
    struct syi_program *local = NULL;
    struct sy_error err = {0};
    cr_expect_eq(syi_partition(s->p, &s->mesh, &local, &err), SY_EINVAL);
    cr_expect(strstr(err.text, words), "expected '%s' in '%s'", words, err.text);
    syi_program_free(s->p);
}

static int tensor(struct setup *s, const char *name, int kind, int rank, const int64_t *dim,
                  const uint8_t *axis)
{
    return syi_tensor_add(s->p, name, kind, SY_F32, rank, dim, axis);
}
#define TENSOR2(s, name, kind, d0, a0, d1, a1)                                                               \
    tensor(s, name, kind, 2, (int64_t[]){d0, d1}, (uint8_t[]){SYI_AXIS_##a0, SYI_AXIS_##a1})
#define ROWS(s, name, columns, axis2)                                                                        \
    tensor(s, name, SYI_INPUT, 3, (int64_t[]){4, 3, columns},                                                \
           (uint8_t[]){SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_##axis2})

/* Weights in panels are split as they were before: the columns, then the contraction. */
Test(partition, panels_are_split_as_their_weights)
{
    struct setup s = begin(1, 1, 2);
    int parts[2] = {TENSOR2(&s, "wi_0", SYI_PARAM, 64, EMBED, 128, MLP),
                    TENSOR2(&s, "wi_1", SYI_PARAM, 64, EMBED, 128, MLP)};
    int wo = TENSOR2(&s, "wo", SYI_PARAM, 128, MLP, 64, EMBED);
    int table = TENSOR2(&s, "table", SYI_PARAM, 128, VOCAB, 64, EMBED);
    int x = ROWS(&s, "x", 64, EMBED), h = ROWS(&s, "h", 128, MLP);
    int dy = syi_matmul_panels(s.p, x, syi_lay_out(s.p, 2, parts));
    syi_matmul_panels(s.p, h, syi_lay_out(s.p, 1, &wo));
    syi_matmul_panels(s.p, x, syi_lay_out_nt(s.p, 1, &table));
    syi_matmul_panels(s.p, dy, syi_lay_out_nt(s.p, 2, parts));
    expect(&s, "lay_out[4m,64,32] matmul_panels[4,3,128m] lay_out[2,64m,32] matmul_panels[4,3,64]+m "
               "all_reduce:m[4,3,64] lay_out_nt[2m,64,32] matmul_panels[4,3,64m] "
               "lay_out_nt[2,128m,32] matmul_panels[4,3,64]+m all_reduce:m[4,3,64]");
}

/* ---- contractions ---- */

/* (1) The mesh axis is the rows' already: the weight is gathered, its gradient reduce-scattered (ZeRO). */
Test(partition, gathers_a_weight_split_over_the_rows_axis)
{
    struct setup s = begin(2, 1, 1);
    s.mesh.rule[SYI_AXIS_EMBED] = SYI_MESH_DATA;
    int x = ROWS(&s, "x", 8, EMBED), w = TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 16, MLP);
    syi_matmul_tn(s.p, x, syi_matmul(s.p, x, w));
    expect(&s, "all_gather:0:d[8,16] matmul[2d,3,16] matmul_tn[8,16]+d reduce_scatter:0:d[4d,16]");
}

/* The gradient of a mirrored weight is summed over the ranks that hold the rows. */
Test(partition, sums_gradients_over_data)
{
    struct setup s = begin(2, 1, 1);
    int x = ROWS(&s, "x", 8, EMBED), dy = ROWS(&s, "dy", 16, MLP);
    syi_matmul_tn(s.p, x, dy);
    expect(&s, "matmul_tn[8,16]+d all_reduce:d[8,16]");
}

/* (2) Both operands split along the contraction. */
Test(partition, sums_partials_of_a_split_contraction)
{
    struct setup s = begin(1, 1, 2);
    int x = ROWS(&s, "x", 16, MLP), w = TENSOR2(&s, "w", SYI_PARAM, 16, MLP, 8, EMBED);
    syi_matmul(s.p, x, w);
    expect(&s, "matmul[4,3,8]+m all_reduce:m[4,3,8]");
}

/* A free axis stays split: no collective forward, a sum backward. */
Test(partition, keeps_free_axes)
{
    struct setup s = begin(1, 1, 2);
    int x = ROWS(&s, "x", 8, EMBED), w = TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 16, MLP);
    int y = syi_matmul(s.p, x, w);
    syi_matmul_nt(s.p, y, w);
    syi_matmul_tn(s.p, x, y);
    expect(&s, "matmul[4,3,8m] matmul_nt[4,3,8]+m all_reduce:m[4,3,8] matmul_tn[8,8m]");
}

/* (3) One split, the other mirrored. */
Test(partition, slices_the_mirrored_operand)
{
    struct setup s = begin(1, 1, 2);
    int x = ROWS(&s, "x", 16, MLP), w = TENSOR2(&s, "w", SYI_PARAM, 16, NONE, 8, EMBED);
    syi_matmul(s.p, x, w);
    expect(&s, "slice:0:m[8m,8] matmul[4,3,8]+m all_reduce:m[4,3,8]");
}

/* (4) What is summed as one leaf is gathered: embed, and what the first operand does not split. */
Test(partition, gathers_what_has_one_leaf)
{
    struct setup s = begin(1, 1, 2);
    s.mesh.rule[SYI_AXIS_EMBED] = SYI_MESH_MODEL;
    int x = ROWS(&s, "x", 8, EMBED), w = TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 4, NONE);
    syi_matmul(s.p, x, w);
    expect(&s, "all_gather:2:m[4,3,8] all_gather:0:m[8,4] matmul[4,3,4]");
    s = begin(1, 1, 2);
    x = ROWS(&s, "x", 16, NONE), w = TENSOR2(&s, "w", SYI_PARAM, 16, MLP, 8, EMBED);
    syi_matmul(s.p, x, w);
    expect(&s, "all_gather:0:m[16,8] matmul[4,3,8]");
}

/* Rows split by data, columns by model, at once. */
Test(partition, splits_by_two_mesh_axes)
{
    struct setup s = begin(2, 1, 2);
    int x = ROWS(&s, "x", 8, EMBED), w = TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 16, MLP);
    int y = syi_matmul(s.p, x, w);
    syi_matmul_tn(s.p, x, y);
    expect(&s, "matmul[2d,3,8m] matmul_tn[8,8m]+d all_reduce:d[8,8m]");
}

Test(partition, sums_what_a_norm_gives_for_its_scale)
{
    struct setup s = begin(2, 1, 1);
    int x = ROWS(&s, "x", 8, EMBED), dscale;
    int scale = tensor(&s, "scale", SYI_PARAM, 1, (int64_t[]){8}, (uint8_t[]){SYI_AXIS_EMBED});
    syi_rms_norm_grad(s.p, x, scale, syi_rms_norm(s.p, x, scale, -1, 1e-6), -1, 1e-6, &dscale);
    expect(&s, "rms_norm[2d,3,8] rms_norm_grad[2d,3,8] all_reduce:d[8]");
}

Test(partition, embedding_tables)
{
    struct setup s = begin(2, 1, 2); /* the vocabulary is gathered, its gradient summed and cut */
    int ids = syi_tensor_add(s.p, "ids", SYI_INPUT, SY_I32, 2, (int64_t[]){4, 3},
                             (uint8_t[]){SYI_AXIS_BATCH, SYI_AXIS_LENGTH});
    int table = TENSOR2(&s, "table", SYI_PARAM, 6, VOCAB, 8, EMBED);
    syi_embed_grad(s.p, ids, SYI_RECORD(s.p, SY_OP_EMBED, NULL, ids, table), table);
    expect(&s, "all_gather:0:m[6,8] embed[2d,3,8] embed_grad[6,8]+d all_reduce:d[6,8] slice:0:m[3m,8]");
}

/* ---- elementwise ---- */

Test(partition, elementwise_takes_the_layout_of_its_output)
{
    struct setup s = begin(2, 1, 1);
    int x = ROWS(&s, "x", 8, EMBED);
    int mirrored = tensor(&s, "mirrored", SYI_INPUT, 3, (int64_t[]){4, 3, 8}, NULL);
    int one = tensor(&s, "one", SYI_INPUT, 1, (int64_t[]){1}, NULL);
    int out = tensor(&s, "out", SYI_OUTPUT, 3, (int64_t[]){4, 3, 8}, NULL);
    int y = syi_map2(s.p, SY_MAP_ADD, syi_map2(s.p, SY_MAP_MUL, x, one), mirrored);
    syi_store(s.p, y, out);
    expect(&s, "map[2d,3,8] slice:0:d[2d,3,8] map[2d,3,8] all_gather:0:d[4,3,8] map[4,3,8]");
}

Test(partition, broadcast_operands_follow)
{
    struct setup s = begin(2, 1, 2);
    int w = TENSOR2(&s, "w", SYI_PARAM, 8, BATCH, 16, MLP);
    int column = tensor(&s, "column", SYI_PARAM, 1, (int64_t[]){16}, (uint8_t[]){SYI_AXIS_MLP});
    int row = TENSOR2(&s, "row", SYI_PARAM, 8, BATCH, 1, NONE);
    int rng = syi_tensor_add(s.p, "rng", SYI_INPUT, SY_I64, 1, (int64_t[]){4}, NULL);
    int y = syi_map2(s.p, SY_MAP_MUL, syi_map2(s.p, SY_MAP_ADD, w, column), row);
    syi_store(s.p, syi_dropout(s.p, y, rng, 1, 0.5), w);
    expect(&s, "map[4d,8m] map[4d,8m] map[4d,8m] map[4d,8m]");
}

/* Only the minor-most mesh axes of a split leave contiguous pieces when they go. */
Test(partition, gathers_all_where_a_major_axis_goes)
{
    struct setup s = begin(2, 2, 2);
    s.mesh.rule[SYI_AXIS_MLP] = SYI_MESH_ALL;
    s.mesh.rule[SYI_AXIS_HEADS] = SYI_MESH_EXPERT;
    s.mesh.rule[SYI_AXIS_VOCAB] = SYI_MESH_DATA | SYI_MESH_EXPERT;
    for (int i = 0; i < SYI_AXIS_COUNT; i++) s.p->leaf_count[i] = 8;
    int x = tensor(&s, "x", SYI_INPUT, 1, (int64_t[]){16}, (uint8_t[]){SYI_AXIS_MLP});
    int heads = tensor(&s, "heads", SYI_OUTPUT, 1, (int64_t[]){16}, (uint8_t[]){SYI_AXIS_HEADS});
    int vocab = tensor(&s, "vocab", SYI_OUTPUT, 1, (int64_t[]){16}, (uint8_t[]){SYI_AXIS_VOCAB});
    syi_store(s.p, x, heads);
    syi_store(s.p, x, vocab);
    expect(&s, "all_gather:0:dem[16] slice:0:e[8e] map[8e] all_gather:0:m[4de] map[4de]");
}

/* ---- sums of whole tensors ---- */

Test(partition, totals_gather_their_blocks)
{
    struct setup s = begin(2, 1, 1);
    syi_total(s.p, ROWS(&s, "x", 8, MLP));
    expect(&s, "block_sum[1d,1,2] all_gather:0:d[2,1,2] tree_sum[1]");
}

/* The dim that is left out of is whole, the others stay split; nothing of 1 is left out. */
Test(partition, maxima_gather_their_dim)
{
    struct setup s = begin(2, 1, 2);
    syi_max_over(s.p, ROWS(&s, "x", 8, MLP), 5);
    expect(&s, "all_gather:2:m[2d,3,8] max_axis[2d,3,1] all_gather:0:d[4,3,1] max_axis[1,3,1]");
    s = begin(2, 1, 2);
    int x = ROWS(&s, "x", 8, MLP), y = syi_max_over(s.p, x, 2);
    cr_expect_eq(syi_max_over(s.p, y, 2), y);
    expect(&s, "max_axis[2d,1,4m]");
}

Test(partition, normal_numbers_lie_as_what_they_are_like)
{
    struct setup s = begin(2, 1, 2);
    int rng = syi_tensor_add(s.p, "rng", SYI_INPUT, SY_I64, 1, (int64_t[]){4}, NULL);
    syi_normal(s.p, ROWS(&s, "x", 8, MLP), rng, 3);
    syi_normal(s.p, TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 16, MLP), rng, 4);
    expect(&s, "normal[2d,3,4m] normal[8,8m]");
}

Test(partition, packs_keep_the_split)
{
    struct setup s = begin(1, 1, 2);
    int parts[2] = {TENSOR2(&s, "a", SYI_PARAM, 8, EMBED, 16, MLP),
                    TENSOR2(&s, "b", SYI_PARAM, 8, EMBED, 16, MLP)};
    int packed = syi_pack(s.p, 2, parts);
    syi_unpack(s.p, packed, 2, parts, (int[2]){0});
    expect(&s, "pack[8,16m] unpack[8,8m]");
}

/* ---- experts ---- */

/* Groups are split over data and expert, experts over expert: an all-to-all there and one back, one for the
 * counts. */
static void record_experts(struct setup *s)
{
    struct sy_attr_route attr = {.selected = 1, .group_rows = 1, .capacity = 3};
    int x = ROWS(s, "x", 8, EMBED), probabilities = ROWS(s, "p", 4, ROUTER);
    int64_t mask_dim[2] = {4, 3};
    uint8_t mask_axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH};
    int mask = syi_tensor_add(s->p, "mask", SYI_INPUT, SY_F32, 2, mask_dim, mask_axis);
    uint8_t in_axis[] = {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP};
    uint8_t out_axis[] = {SYI_AXIS_EXPERT, SYI_AXIS_EXPERT_MLP, SYI_AXIS_EMBED};
    int wi = tensor(s, "wi", SYI_PARAM, 3, (int64_t[]){4, 8, 6}, in_axis);
    int wo = tensor(s, "wo", SYI_PARAM, 3, (int64_t[]){4, 6, 8}, out_axis);
    struct syi_routing r = syi_route(s->p, probabilities, mask, -1, &attr);
    int gate = SYI_RECORD(s->p, SY_OP_GATE, &(struct sy_attr_gate){0}, probabilities, r.expert, r.slot);
    int buffer = syi_dispatch(s->p, x, r.expert, r.slot, 4, 3, 1);
    int h = syi_grouped_matmul(s->p, buffer, wi, r.kept);
    int y = syi_grouped_matmul(s->p, h, wo, r.kept);
    syi_combine(s->p, y, r.expert, r.slot, gate, 1);
    syi_grouped_matmul_tn(s->p, buffer, h, r.kept);
    SYI_RECORD(s->p, SY_OP_COUNT_SUM, NULL, r.chosen);
}

Test(partition, experts_on_an_expert_axis)
{
    struct setup s = begin(1, 2, 1);
    record_experts(&s);
    expect(&s,
           "route[2e,3,1] all_to_all:0:1:e[2e,4] gate[2e,3,1] dispatch[4,2e,3,8] all_to_all:0:1:e[2e,4,3,8] "
           "grouped_matmul[2e,4,3,6] grouped_matmul[2e,4,3,8] all_to_all:1:0:e[4,2e,3,8] combine[2e,3,8] "
           "grouped_matmul_tn[2e,8,6] count_sum[4]+e all_reduce:e[4]");
}

Test(partition, experts_on_a_data_axis)
{
    struct setup s = begin(2, 1, 1);
    record_experts(&s);
    expect(&s,
           "route[2d,3,1] gate[2d,3,1] dispatch[4,2d,3,8] grouped_matmul[4,2d,3,6] grouped_matmul[4,2d,3,8] "
           "combine[2d,3,8] grouped_matmul_tn[4,8,6]+d all_reduce:d[4,8,6] count_sum[4]+d all_reduce:d[4]");
}

Test(partition, experts_on_a_model_axis)
{
    struct setup s = begin(1, 1, 2);
    record_experts(&s);
    expect(&s,
           "route[4,3,1] gate[4,3,1] dispatch[4,4,3,8] grouped_matmul[4,4,3,3m] grouped_matmul[4,4,3,8]+m "
           "all_reduce:m[4,4,3,8] combine[4,3,8] grouped_matmul_tn[4,8,3m] count_sum[4]");
}

/* Over data and expert only the expert part of the groups' split moves. */
Test(partition, experts_on_both_axes)
{
    struct setup s = begin(2, 2, 1);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) s.p->leaf_count[i] *= 2;
    s.p->leaf_count[SYI_AXIS_NONE] = s.p->leaf_count[SYI_AXIS_LENGTH] = 1;
    s.p->leaf_count[SYI_AXIS_EXPERT_MLP] = s.p->leaf_count[SYI_AXIS_EMBED] = 2;
    record_experts(&s);
    expect(&s,
           "route[1de,3,1] all_to_all:0:1:e[2e,2d] gate[1de,3,1] dispatch[4,1de,3,8] "
           "all_to_all:0:1:e[2e,2d,3,8] "
           "grouped_matmul[2e,2d,3,6] grouped_matmul[2e,2d,3,8] all_to_all:1:0:e[4,1de,3,8] combine[1de,3,8] "
           "grouped_matmul_tn[2e,8,6]+d all_reduce:d[2e,8,6] count_sum[4]+de all_reduce:de[4]");
}

/* Where one rank has all experts their tokens are in one buffer: groups are split, and columns of weights. */
static void record_ragged(struct setup *s)
{
    struct sy_attr_route attr = {.selected = 1, .group_rows = 1, .capacity = 3};
    int x = ROWS(s, "x", 8, EMBED), probabilities = ROWS(s, "p", 4, ROUTER);
    uint8_t in_axis[] = {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP};
    uint8_t out_axis[] = {SYI_AXIS_EXPERT, SYI_AXIS_EXPERT_MLP, SYI_AXIS_EMBED};
    int wi = tensor(s, "wi", SYI_PARAM, 3, (int64_t[]){4, 8, 6}, in_axis);
    int wo = tensor(s, "wo", SYI_PARAM, 3, (int64_t[]){4, 6, 8}, out_axis);
    struct syi_routing r = syi_route(s->p, probabilities, -1, -1, &attr);
    struct syi_ragged at = syi_ragged_places(s->p, &r, 1);
    int gate = SYI_RECORD(s->p, SY_OP_GATE, &(struct sy_attr_gate){0}, probabilities, r.expert, r.slot);
    int buffer = syi_dispatch(s->p, x, at.expert, at.slot, 1, 3, 1);
    int h = syi_ragged_matmul(s->p, buffer, wi, r.kept, at.first);
    int y = syi_ragged_matmul(s->p, h, wo, r.kept, at.first);
    syi_combine(s->p, y, at.expert, at.slot, gate, 1);
}

Test(partition, a_buffer_without_gaps)
{
    struct setup s = begin(2, 1, 1);
    record_ragged(&s);
    expect(&s, "route[2d,3,1] ragged_places[2d,3,1] gate[2d,3,1] dispatch[1,2d,3,8] ragged_matmul[1,2d,3,6] "
               "ragged_matmul[1,2d,3,8] combine[2d,3,8]");
    s = begin(1, 1, 2);
    record_ragged(&s);
    expect(&s, "route[4,3,1] ragged_places[4,3,1] gate[4,3,1] dispatch[1,4,3,8] ragged_matmul[1,4,3,3m] "
               "ragged_matmul[1,4,3,8]+m all_reduce:m[1,4,3,8] combine[4,3,8]");
}

/* ---- ZeRO ---- */

/* A gradient from packed columns, the state, the parameter: what a step does. */
static void record_step(struct setup *s)
{
    int x = ROWS(s, "x", 8, EMBED), a = TENSOR2(s, "a", SYI_PARAM, 8, EMBED, 16, MLP), part[2];
    int b = TENSOR2(s, "b", SYI_PARAM, 8, EMBED, 16, MLP);
    int packed = syi_pack(s->p, 2, (int[2]){a, b});
    int dw = syi_matmul_tn(s->p, x, syi_matmul(s->p, x, packed));
    cr_assert(syi_unpack(s->p, dw, 2, (int[2]){a, b}, part) >= 0);
    int sum = syi_role_set(s->p, TENSOR2(s, "sum of a", SYI_CARRY, 8, EMBED, 16, MLP), SYI_ROLE_GRADIENT, 0);
    int state = TENSOR2(s, "mu", SYI_STATE, 8, EMBED, 16, MLP);
    int of_b = syi_role_set(s->p, TENSOR2(s, "sum of b", SYI_CARRY, 8, EMBED, 16, MLP), SYI_ROLE_GRADIENT, 1);
    syi_store(s->p, part[1], of_b);
    syi_store(s->p, syi_map2(s->p, SY_MAP_ADD, sum, part[0]), sum);
    syi_total(s->p, sum);
    int moved = syi_map2(s->p, SY_MAP_ADD, state, sum);
    syi_store(s->p, moved, state);
    syi_store(s->p, syi_map2(s->p, SY_MAP_ADD, a, moved), a);
}

Test(partition, zero_off_copies_state)
{
    struct setup s = begin(2, 1, 1);
    record_step(&s);
    expect(&s,
           "pack[8,32] matmul[2d,3,32] matmul_tn[8,32]+d all_reduce:d[8,32] unpack[8,16] map[8,16] map[8,16] "
           "map[8,16] block_sum[2,2] tree_sum[1] map[8,16] map[8,16] map[8,16] map[8,16]");
}

/* Gradients are cut as they are summed; a parameter is gathered once it is new. */
Test(partition, zero_1_splits_gradients_and_state)
{
    struct setup s = begin(2, 1, 1);
    s.mesh.zero = 1;
    record_step(&s);
    expect(&s,
           "pack[8,32] matmul[2d,3,32] matmul_tn[8,32]+d reduce_scatter:0:d[4d,32] unpack[4d,16] map[4d,16] "
           "map[4d,16] map[4d,16] block_sum[1d,2] all_gather:0:d[2,2] tree_sum[1] map[4d,16] map[4d,16] "
           "slice:0:d[4d,16] map[4d,16] map[4d,16] all_gather:0:d[8,16]");
}

Test(partition, zero_3_gathers_parameters_where_they_are_read)
{
    struct setup s = begin(2, 1, 1);
    s.mesh.zero = 3;
    record_step(&s);
    expect(&s,
           "pack[4d,32] all_gather:0:d[8,32] matmul[2d,3,32] matmul_tn[8,32]+d reduce_scatter:0:d[4d,32] "
           "unpack[4d,16] map[4d,16] map[4d,16] map[4d,16] block_sum[1d,2] all_gather:0:d[2,2] tree_sum[1] "
           "map[4d,16] map[4d,16] map[4d,16] map[4d,16]");
}

/* Over all ranks that take rows; experts, which are split over some of these, over the others; what has too
 * few leaves not at all. */
Test(partition, zero_uses_the_axes_of_the_batch)
{
    struct setup s = begin(2, 2, 2);
    s.mesh.zero = 1;
    for (int i = 0; i < SYI_AXIS_COUNT; i++) s.p->leaf_count[i] = 4;
    s.p->leaf_count[SYI_AXIS_NONE] = 1;
    int dense = TENSOR2(&s, "dense", SYI_STATE, 8, EMBED, 16, MLP);
    int experts = tensor(&s, "experts", SYI_STATE, 3, (int64_t[]){4, 8, 16},
                         (uint8_t[]){SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP});
    int odd = TENSOR2(&s, "odd", SYI_STATE, 8, NONE, 16, MLP);
    syi_store(s.p, dense, dense);
    syi_store(s.p, experts, experts);
    syi_store(s.p, odd, odd);
    expect(&s, "map[2de,8m] map[2e,4d,8m] map[8,8m]");
}

/* ---- conversions are made once ---- */

Test(partition, two_readers_share_a_gather)
{
    struct setup s = begin(2, 1, 1);
    s.mesh.rule[SYI_AXIS_EMBED] = SYI_MESH_DATA;
    int x = ROWS(&s, "x", 8, EMBED), w = TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 16, MLP);
    syi_matmul_nt(s.p, syi_matmul(s.p, x, w), w);
    expect(&s, "all_gather:0:d[8,16] matmul[2d,3,16] matmul_nt[2d,3,8]");
}

Test(partition, a_write_ends_the_sharing)
{
    struct setup s = begin(2, 1, 1);
    s.mesh.rule[SYI_AXIS_EMBED] = SYI_MESH_DATA;
    int x = ROWS(&s, "x", 8, EMBED), w = TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 16, MLP);
    int y = syi_matmul(s.p, x, w);
    syi_store(s.p, syi_map1(s.p, SY_MAP_NEG, w, 0), w);
    syi_matmul_nt(s.p, y, w);
    expect(
        &s,
        "all_gather:0:d[8,16] matmul[2d,3,16] map[4d,16] map[4d,16] all_gather:0:d[8,16] matmul_nt[2d,3,8]");
}

/* One rank: the program as it was. */
Test(partition, one_rank_changes_nothing)
{
    struct setup s = begin(1, 1, 1);
    record_experts(&s);
    expect(&s, "route[4,3,1] gate[4,3,1] dispatch[4,4,3,8] grouped_matmul[4,4,3,6] grouped_matmul[4,4,3,8] "
               "combine[4,3,8] grouped_matmul_tn[4,8,6] count_sum[4]");
}

/* ---- refusals ---- */

Test(partition, refuses_what_ranks_do_not_divide)
{
    struct setup s = begin(2, 1, 1);
    s.p->leaf_count[SYI_AXIS_BATCH] = 1;
    int x = ROWS(&s, "x", 8, EMBED);
    syi_map1(s.p, SY_MAP_NEG, x, 0);
    expect_refusal(
        &s,
        "axis batch has 1 leaves, which 2 ranks do not divide: raise reproducible.blocks to 2 where it is "
        "less, lower reproducible.min_leaf");
    s = begin(3, 1, 1);
    s.p->leaf_count[SYI_AXIS_BATCH] = 2;
    x = TENSOR2(&s, "x", SYI_INPUT, 6, BATCH, 8, EMBED);
    syi_map1(s.p, SY_MAP_NEG, x, 0);
    expect_refusal(&s, "3 ranks do not divide: use a number of ranks there that is a power of two");
    s = begin(1, 1, 2);
    TENSOR2(&s, "w", SYI_PARAM, 8, EMBED, 15, MLP);
    expect_refusal(&s, "axis mlp has 15 elements, which 2 ranks do not divide");
}
