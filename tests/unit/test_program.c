/* SPDX-License-Identifier: Apache-2.0 */
/* What is recorded, what the check refuses, what explain prints. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "program/record.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__}), NULL

static struct syi_program *fresh(void)
{
    struct syi_program *p = NULL;
    cr_assert_eq(syi_program_new("test", &p, NULL), SY_OK);
    return p;
}

static void accepts(struct syi_program *p)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_program_check(p, "test", &err), SY_OK, "%s", err.text);
    syi_program_free(p);
}

/* ---- record ---- */

static int ids_of(struct syi_program *p)
{
    return syi_tensor_add(p, "ids", SYI_INPUT, SY_I32, 2, (const int64_t[]){2, 3},
                          (const uint8_t[]){SYI_AXIS_BATCH, SYI_AXIS_LENGTH});
}

static int table_of(struct syi_program *p)
{
    return syi_tensor_add(p, "table", SYI_PARAM, SY_BF16, 2, (const int64_t[]){7, 4},
                          (const uint8_t[]){SYI_AXIS_VOCAB, SYI_AXIS_EMBED});
}

/* Dims, axes and dtype of an output are those of the inputs that have its letters and its mark. */
Test(program_record, by_the_row)
{
    struct syi_program *p = fresh();
    int rows = SYI_RECORD(p, SY_OP_EMBED, NULL, ids_of(p), table_of(p)), out[2];
    const struct syi_tensor *t = &p->tensor[rows];
    cr_expect(t->dtype == SY_BF16 && t->rank == 3 && t->dim[0] == 2 && t->dim[1] == 3 && t->dim[2] == 4);
    cr_expect(t->axis[0] == SYI_AXIS_BATCH && t->axis[1] == SYI_AXIS_LENGTH && t->axis[2] == SYI_AXIS_EMBED);
    int dy = syi_tensor_add(p, "dy", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 8));
    int grad = SYI_RECORD(p, SY_OP_MATMUL_NT, &(struct sy_attr_leaf){8}, dy,
                          syi_tensor_add(p, "w", SYI_INPUT, SY_F32, 2, DIMS(4, 8)));
    cr_expect(grad >= 0 && p->tensor[grad].dim[2] == 4);
    cr_expect_eq(syi_record(p, SY_OP_SOFTMAX, NULL, 1, &dy, 2, out), out[0]);
    cr_expect(p->tensor[out[0]].rank == 3 && p->tensor[out[1]].rank == 2);
    int slot = syi_tensor_add(p, "slot", SYI_INPUT, SY_I32, 3, DIMS(2, 3, 1));
    int kept = SYI_RECORD(p, SY_OP_KEPT_TOKENS, NULL, slot);
    t = &p->tensor[kept];
    cr_expect(t->dtype == SY_I32 && t->rank == 2 && t->dim[0] == 1 && t->dim[1] == 2);
    accepts(p);
}

static void fails_to_record(struct syi_program *p, int tensor, const char *words)
{
    cr_expect(tensor < 0 && p->status && strstr(p->error.text, words), "expected '%s' in '%s'", words,
              p->error.text);
    syi_program_free(p);
}

Test(program_record, refuses_what_the_row_does_not_say)
{
    struct syi_program *p = fresh();
    fails_to_record(p, SYI_RECORD(p, SY_OP_EMBED, NULL, ids_of(p)), "not recorded as its row says");
    p = fresh();
    fails_to_record(p, SYI_RECORD(p, SY_OP_EMBED, NULL, ids_of(p), -1), "is missing");
    p = fresh(); /* it has two outputs */
    fails_to_record(p, SYI_RECORD(p, SY_OP_SOFTMAX, NULL, table_of(p)), "not recorded as its row says");
    p = fresh();
    fails_to_record(p, SYI_RECORD(p, SY_OP_TREE_SUM, NULL, table_of(p)), "not recorded as its row says");
    p = fresh();
    fails_to_record(p, SYI_RECORD(p, SY_OP_GATE, NULL, table_of(p), -1, -1), "not recorded as its row says");
    p = fresh();
    fails_to_record(p, SYI_RECORD(p, SY_OP_EMBED_GRAD, &(struct sy_attr_leaf){1}, ids_of(p), table_of(p)),
                    "no input says what v is");
}

Test(program_record, no_operands_no_second_output)
{
    const struct syi_attention none = SYI_NO_ATTENTION;
    struct syi_program *p = fresh();
    int lse = 0, dscale = 0, dgate = 0, z = 0;
    cr_expect(syi_attention(p, &none, &lse) == -1 && lse == -1);
    cr_expect(syi_rms_norm_grad(p, -1, -1, -1, -1, 0, &dscale) == -1 && dscale == -1);
    cr_expect(syi_combine_grad(p, -1, -1, -1, -1, -1, 1, &dgate) == -1 && dgate == -1);
    cr_expect(syi_router_loss(p, -1, -1, -1, -1, 1, &z) == -1 && z == -1);
    syi_program_free(p);
}

/* ---- check ---- */

static void refuses(struct syi_program *p, const char *words)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_program_check(p, "test", &err), SY_EINTERNAL, "accepted: %s", words);
    cr_expect(strstr(err.text, words), "expected '%s' in '%s'", words, err.text);
    syi_program_free(p);
}

struct small {
    struct syi_program *p;
    int x, w, y, out; /* y = x w, y * 2 -> out */
};

static struct small small(void)
{
    struct small s = {.p = fresh()};
    s.x = syi_tensor_add(s.p, "x", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 8));
    s.w = syi_tensor_add(s.p, "layer/kernel", SYI_PARAM, SY_F32, 2, DIMS(8, 4));
    syi_scope_push(s.p, "layer");
    SYI_AT(s.p);
    s.y = syi_matmul(s.p, s.x, s.w);
    s.out = syi_tensor_add(s.p, "out", SYI_OUTPUT, SY_F32, 3, DIMS(2, 3, 4));
    syi_store(s.p, syi_map1(s.p, SY_MAP_MULS, s.y, 2), s.out);
    return s;
}

Test(program_check, accepts_what_is_recorded)
{
    accepts(small().p);
    struct small s = small(); /* reading an output that was written, writing it again */
    syi_store(s.p, syi_map1(s.p, SY_MAP_NEG, s.out, 0), s.out);
    accepts(s.p);
    accepts(fresh());
}

Test(program_check, refuses_wrong_order)
{
    struct small s = small();
    struct syi_op first = s.p->op[0];
    s.p->op[0] = s.p->op[1], s.p->op[1] = first;
    refuses(s.p, "read before it is written");
    s = small();
    s.p->op[1].out[0] = s.y;
    refuses(s.p, "written twice");
    s = small();
    s.p->op[2].out[0] = s.x;
    refuses(s.p, "is an input of the program");
    s = small();
    s.p->op[2].in[0] = 99;
    refuses(s.p, "input 0 is tensor 99");
    s = small();
    s.p->tensor[s.y].partial = 1;
    refuses(s.p, "terms of a sum");
}

Test(program_check, names_stage_op_and_place)
{
    struct small s = small();
    s.p->tensor[s.w].dim[0] = 9;
    refuses(s.p, "after test: program test: op 0 matmul (layer, ");
    s = small();
    s.p->tensor[s.w].dim[0] = 9;
    refuses(s.p, "test_program.c:");
    s = small();
    s.p->tensor[s.w].dim[0] = 9;
    refuses(s.p, "input 1: dim k is 9, elsewhere 8");
}

Test(program_check, refuses_what_does_not_fit_the_row)
{
    struct small s = small();
    s.p->op[0].n_in = 1;
    refuses(s.p, "1 inputs and 1 outputs, not 2 and 1");
    s = small();
    s.p->op[0].in[1] = -1;
    refuses(s.p, "input 1 is missing");
    s = small();
    s.p->op[0].op = 200;
    refuses(s.p, "no op 200");
    s = small();
    s.p->tensor[s.w].dtype = SY_I32;
    refuses(s.p, "not floating point");
    s = small();
    s.p->tensor[s.w].dtype = SY_BF16;
    refuses(s.p, "f32 and bf16");
    s = small();
    s.p->tensor[s.w].rank = 1;
    s.p->tensor[s.w].dim[1] = 1;
    refuses(s.p, "rank 1");
}

static struct syi_program *with_leaf(int64_t leaf)
{
    struct small s = small();
    memcpy(s.p->attrs + s.p->op[0].attr, &leaf, sizeof leaf);
    return s.p;
}

Test(program_check, refuses_wrong_leaves)
{
    refuses(with_leaf(0), "leaf 0");
    refuses(with_leaf(3), "leaf 3 does not divide 8");
    accepts(with_leaf(2));
    struct small s = small();
    int x = syi_tensor_add(s.p, "x6", SYI_INPUT, SY_F32, 3, DIMS(1, 1, 6));
    int w = syi_tensor_add(s.p, "w6", SYI_PARAM, SY_F32, 2, DIMS(6, 2));
    syi_matmul(s.p, x, w);
    int64_t leaf = 2;
    memcpy(s.p->attrs + s.p->op[3].attr, &leaf, sizeof leaf);
    refuses(s.p, "3 leaves");
}

Test(program_check, refuses_what_letters_do_not_tie)
{
    int lse, index;
    struct syi_attention a = SYI_NO_ATTENTION;
    struct syi_program *p = fresh();
    a.q = a.kv = syi_tensor_add(p, "qkv", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 3 * 8));
    a.q_segments = a.k_segments = syi_tensor_add(p, "segments", SYI_INPUT, SY_I32, 2, DIMS(2, 3));
    a.heads = 2, a.head_dim = 4;
    syi_attention(p, &a, &lse);
    p->op[0].in[7] = -1; /* segments of keys alone say which are padding */
    accepts(p);
    p = fresh();
    a.q = a.kv = syi_tensor_add(p, "qkv", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 3 * 8));
    a.q_segments = syi_tensor_add(p, "segments", SYI_INPUT, SY_I32, 2, DIMS(2, 3));
    a.k_segments = -1;
    syi_attention(p, &a, &lse);
    refuses(p, "segments of queries, none of keys");
    p = fresh();
    int best = syi_top_k(p, syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 4)), 4, &index);
    p->tensor[best].dim[2] = p->tensor[index].dim[2] = 5;
    refuses(p, "the best 5 of 4 elements");
}

static struct sy_attr_map *map_of(struct syi_program *p, size_t op)
{
    return (struct sy_attr_map *)(void *)(p->attrs + p->op[op].attr);
}

Test(program_check, refuses_wrong_maps)
{
    struct small s = small();
    map_of(s.p, 1)->instr[0].a = 1;
    refuses(s.p, "instruction 0 reads register 1");
    s = small();
    map_of(s.p, 1)->out_register[0] = 2;
    refuses(s.p, "stores register 2");
    s = small();
    map_of(s.p, 1)->n_instr = 2;
    refuses(s.p, "2 instructions");
    s = small();
    map_of(s.p, 1)->instr[0].op = 99;
    refuses(s.p, "unknown");
    s = small();
    map_of(s.p, 1)->rng = 0;
    refuses(s.p, "no rng state");
    s = small();
    s.p->tensor[s.out].dim[2] = 5;
    refuses(s.p, "neither has");
}

/* A row's value of a matrix has a last dim of 1; [n] is a value a column. */
Test(program_check, broadcast_forms)
{
    static const struct {
        int rank;
        int64_t dim[3];
        int legal;
    } cases[] = {{3, {2, 3, 4}, 1}, {1, {1}, 1},       {1, {4}, 1},       {2, {2, 3}, 1},
                 {3, {2, 3, 1}, 1}, {3, {1, 3, 4}, 1}, {3, {2, 1, 4}, 1}, {3, {2, 1, 1}, 1},
                 {1, {3}, 0},       {1, {2}, 0},       {2, {3, 4}, 0},    {3, {2, 2, 4}, 0}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_program *p = fresh();
        int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 3, DIMS(2, 3, 4));
        int y = syi_tensor_add(p, "y", SYI_INPUT, SY_F32, cases[i].rank, cases[i].dim, NULL);
        syi_map2(p, SY_MAP_ADD, x, y);
        if (cases[i].legal)
            accepts(p);
        else
            refuses(p, "neither has");
    }
    struct syi_program *p = fresh();
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 2, DIMS(6, 4));
    syi_map2(p, SY_MAP_ADD, x, syi_tensor_add(p, "y", SYI_INPUT, SY_F32, 1, DIMS(6)));
    refuses(p, "neither has");
}

/* ---- explain ---- */

struct lines {
    char text[8][400];
    int n;
};

static void keep_line(void *arg, const char *line)
{
    struct lines *lines = arg;
    cr_assert_lt(lines->n, 8);
    snprintf(lines->text[lines->n++], sizeof lines->text[0], "%s", line);
}

static void starts(const char *line, const char *want)
{
    cr_expect(!strncmp(line, want, strlen(want)), "'%s' does not begin with '%s'", line, want);
}

Test(program_explain, one_op_a_line)
{
    struct small s = small();
    struct lines lines = {.n = 0};
    s.p->tensor[s.y].split[0] = 3;
    s.p->tensor[s.y].partial = 4;
    s.p->tensor[s.y].bytes = 64;
    s.p->tensor[s.y].offset = 0x1a0;
    struct sy_error err = {0};
    cr_assert_eq(syi_program_explain(s.p, keep_line, &lines, &err), SY_OK, "%s", err.text);
    cr_assert_eq(lines.n, 4);
    cr_expect_str_eq(lines.text[0], "program test: 3 ops, 5 tensors");
    starts(lines.text[1],
           "    0 q0 layer matmul             t2 f32[2de,3,4] sum over m <- t0(x) t1(layer/kernel)  leaf=8"
           "  scratch+0x1a0  ");
    cr_expect(strstr(lines.text[1], "test_program.c:"), "%s", lines.text[1]);
    starts(lines.text[2], "    1 q0 layer map                t4 f32[2,3,4] <- t2  {r1=muls(r0,2)} r1  ");
    starts(lines.text[3], "    2 q0 layer map                t3(out) f32[2,3,4] <- t4  {r1=copy(r0)} r1  ");
    char text[64];
    syi_tensor_text(s.p, s.w, text, sizeof text);
    cr_expect_str_eq(text, "t1(layer/kernel) f32[8,4]");
    syi_tensor_text(s.p, -1, text, sizeof text);
    cr_expect_str_eq(text, "-");
    syi_program_free(s.p);
}
