/* SPDX-License-Identifier: Apache-2.0 */
/* What the check refuses, what explain prints, and that fuse changes neither bits nor meaning. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "backends/cpu/cpu.h"
#include "passes/passes.h"
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

/* ---- fuse ---- */

/* Memory of every tensor of a program, and an interpreter of programs of maps and block sums. */
struct memory {
    void *data[256];
    size_t n;
};

static void all_tasks(void *arg, int64_t n, void (*fn)(void *, int64_t, int), void *fn_arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) fn(fn_arg, i, 0);
}

static uint32_t random_state;
static uint32_t roll(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static void fill(struct memory *m, const struct syi_program *p)
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

static struct sy_tensor bound(const struct syi_program *p, const struct memory *m, int tensor)
{
    const struct syi_tensor *t = &p->tensor[tensor];
    struct sy_tensor operand = {.data = m->data[tensor], .dtype = t->dtype, .rank = t->rank};
    memcpy(operand.dim, t->dim, sizeof operand.dim);
    return operand;
}

static void execute(const struct syi_program *p, const struct memory *m)
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

static int same_bits(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) && !(isnan(a[i]) && isnan(b[i]))) return 0;
    return 1;
}

/* Runs a pass over a copy, runs both from the same memory, compares everything but temporaries. Returns the copy. */
static struct syi_program *passed_equals(struct syi_program *p, const char *what,
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

static int pick(const int *tensor, int n)
{
    return tensor[roll((uint32_t)n)];
}

/* Random maps over two shapes and their broadcasts, with stores into state and sums in between. */
static struct syi_program *random_program(int rng_rounds)
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

Test(program_fuse, bits_do_not_change)
{
    size_t before = 0, after = 0;
    for (int i = 0; i < 300; i++) {
        char what[32];
        random_state = (uint32_t)i;
        snprintf(what, sizeof what, "random program %d", i);
        struct syi_program *p = random_program(i % 3);
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

/* ---- fold ---- */

static size_t count_ops(const struct syi_program *p, int op)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) n += p->op[i].op == op;
    return n;
}

Test(program_fold, bits_do_not_change)
{
    size_t sums = 0, folded = 0;
    for (int i = 0; i < 300; i++) {
        char what[32];
        random_state = (uint32_t)i;
        snprintf(what, sizeof what, "random program %d", i);
        struct syi_program *p = random_program(i % 3);
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
