/* SPDX-License-Identifier: Apache-2.0 */
/* Op map: every instruction, broadcasts, dropout, several outputs, in-place use; each variant against the
 * reference bit for bit, and the reference against plain C where that is not the same thing. */
#include "config.h"

#include "backends/cpu/map.h"
#include "base/bf16.h"
#include "base/philox.h"
#include "tests/unit/kernel_harness.h"

/* Room for the instructions after the attribute. */
union program {
    struct sy_attr_map map;
    char bytes[sizeof(struct sy_attr_map) + SY_MAP_MAX_INSTR * sizeof(struct sy_map_instr)];
};

static size_t program_bytes(const union program *p)
{
    return sizeof p->map + p->map.n_instr * sizeof(struct sy_map_instr);
}

static const int shapes[][3] = {{1, 1, 1},   {1, 1, 17},    {3, 5, 7},   {2, 3, 256},
                                {4, 3, 300}, {1, 40, 1031}, {7, 11, 16}, {67, 5, 3}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Random values for the input that was added last, which is bfloat16. */
static void fill_half(const struct kh *k)
{
    const struct sy_tensor *t = &k->in[k->n_in - 1];
    for (int64_t i = 0; i < sycpu_count(t); i++) {
        float x;
        kh_fill(&x, 1, k->wild);
        ((uint16_t *)t->data)[i] = syi_bf16_from_float(x);
    }
}

/* Each instruction on operands that have the output's shape, one element, one value a row, one a column. */
static void each_instruction(int op, const int *s, int wild)
{
    for (int form = 0; form < 4; form++) {
        union program p = {.map = {.n_instr = 1, .out_register = {3}, .rng = 255}};
        struct kh k;
        p.map.instr[0] = (struct sy_map_instr){.op = (uint8_t)op, .a = 0, .b = 1, .c = 2, .s = 0.3f};
        kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
        k.wild = wild;
        kh_in(&k, SY_F32, 3, s[0], s[1], s[2]);
        if (form == 0) kh_in(&k, SY_F32, 3, s[0], s[1], s[2]);
        if (form == 1) kh_in(&k, SY_F32, 1, 1);
        if (form == 2) kh_in(&k, SY_F32, 2, s[0], s[1]);
        if (form == 3) kh_in(&k, SY_F32, 1, s[2]);
        kh_in(&k, SY_F32, form == 3 ? 2 : 3, s[0], s[1], form == 2 ? 1 : s[2]);
        kh_out(&k, SY_F32, 3, s[0], s[1], s[2]);
        k.in_place = form % 2;
        kh_check(&k, "one instruction");
        kh_end(&k);
    }
}

Test(map, every_instruction)
{
    for (int op = 0; op < SY_MAP_COUNT; op++) {
        if (op == SY_MAP_DROPOUT || op == SY_MAP_JITTER) continue;
        for (int s = 0; s < SHAPES; s++)
            for (int wild = 0; wild <= 30; wild += 30) each_instruction(op, shapes[s], wild);
    }
}

/* AdamW with clipping and the select on `ok`: inputs p, g, m, v, and single elements lr, clip, ok, bias
 * corrections. */
static void adamw(union program *p)
{
    static const struct sy_map_instr chain[] = {
        {.op = SY_MAP_MUL, .a = 1, .b = 5},             /* 9: g * clip */
        {.op = SY_MAP_MULS, .a = 2, .s = 0.9f},         /* 10 */
        {.op = SY_MAP_MULS, .a = 9, .s = 0.1f},         /* 11 */
        {.op = SY_MAP_ADD, .a = 10, .b = 11},           /* 12: m */
        {.op = SY_MAP_MULS, .a = 3, .s = 0.99f},        /* 13 */
        {.op = SY_MAP_MUL, .a = 9, .b = 9},             /* 14 */
        {.op = SY_MAP_MULS, .a = 14, .s = 0.01f},       /* 15 */
        {.op = SY_MAP_ADD, .a = 13, .b = 15},           /* 16: v */
        {.op = SY_MAP_MUL, .a = 16, .b = 8},            /* 17 */
        {.op = SY_MAP_SQRT, .a = 17},                   /* 18 */
        {.op = SY_MAP_ADDS, .a = 18, .s = 1e-8f},       /* 19 */
        {.op = SY_MAP_MUL, .a = 12, .b = 7},            /* 20 */
        {.op = SY_MAP_DIV, .a = 20, .b = 19},           /* 21 */
        {.op = SY_MAP_MUL, .a = 21, .b = 4},            /* 22 */
        {.op = SY_MAP_SUB, .a = 0, .b = 22},            /* 23 */
        {.op = SY_MAP_SELECT, .a = 6, .b = 23, .c = 0}, /* 24: p */
        {.op = SY_MAP_SELECT, .a = 6, .b = 12, .c = 2}, /* 25: m */
        {.op = SY_MAP_SELECT, .a = 6, .b = 16, .c = 3}, /* 26: v */
    };
    *p = (union program){.map = {.n_instr = 18, .out_register = {24, 25, 26}, .rng = 255}};
    memcpy(p->map.instr, chain, sizeof chain);
}

Test(map, adamw_chain)
{
    for (int n = 1; n < 40000; n = n * 5 + 13) {
        for (int ok = 0; ok < 2; ok++) {
            union program p;
            struct kh k;
            adamw(&p);
            kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
            for (int i = 0; i < 9; i++) {
                float *x = kh_in(&k, SY_F32, 2, i < 4 ? n : 1, 1);
                if (i == 6) *x = (float)ok;
                if (i == 3) kh_fill(x, n, -20);
            }
            for (int i = 0; i < 3; i++) kh_out(&k, SY_F32, 2, n, 1);
            k.in_place = 1;
            kh_check(&k, "adamw");
            for (int i = 0; i < n && !ok; i++)
                cr_assert_eq(((float *)k.want[0])[i], ((float *)k.in[0].data)[i]);
            kh_end(&k);
        }
    }
}

/* Maps that are compiled whole, as they are listed; with sums, what they gather is of blocks of high rows and wide columns. */
struct whole {
    int n_in, n_out, n_instr, kinds, instrs, outs; /* counted by the list, then as it is read */
    uint8_t kind[SY_MAX_IN];
    uint8_t sums, narrow; /* bit o: output o is no value; its blocks are one column wide */
    union program p;
};
static void whole_do(struct whole *w, int op, int a, int b, int c)
{
    w->p.map.instr[w->instrs++] = (struct sy_map_instr){
        .op = (uint8_t)op, .a = (uint8_t)a, .b = (uint8_t)b, .c = (uint8_t)c, .s = kh_uniform(0.01f, 0.99f)};
}

enum { SUM, SQUARES, MAX, STORE }; /* as the list names them */
static void whole_out(struct whole *w, int o, int reg, int kind, int narrow)
{
    const uint8_t bit = (uint8_t)(1 << o);
    w->outs++;
    w->p.map.out_register[o] = (uint8_t)reg;
    if (kind != STORE) w->sums |= bit;
    if (kind == SQUARES) w->p.map.squares |= bit;
    if (kind == MAX) w->p.map.maxima |= bit;
    if (narrow) w->narrow |= bit;
}

/* What an input is in a tensor of rank 3 whose first dim counts experts; some have a value for each. */
static void whole_in(struct kh *k, int dtype, int kind, const int *s, int of_experts)
{
    int rows = kind == MAP_FULL || kind == MAP_ROW, columns = kind == MAP_FULL || kind == MAP_COLUMN;
    int experts = rows || of_experts;
    if (s[0] > 1)
        kh_in(k, dtype, 3, experts ? s[0] : 1, rows ? s[1] : 1, columns ? s[2] : 1);
    else
        kh_in(k, dtype, 2, rows ? s[1] : 1, columns ? s[2] : 1);
    if (dtype == SY_BF16) fill_half(k);
}

/* One more output, in bfloat16: what the last one that is stored holds. 0: there is none, or no room. */
static int add_copy(struct whole *w)
{
    int last = -1;
    for (int o = 0; o < w->n_out; o++)
        if (!(w->sums >> o & 1)) last = o;
    if (last < 0 || w->n_out == SY_MAX_OUT) return 0;
    whole_out(w, w->n_out++, w->p.map.out_register[last], STORE, 0);
    return 1;
}

/* Of s[0] x s[1] x s[2] elements. in_place: output 0 over input 0, and a copy. half: input 0, if it has all of them, in
 * bfloat16. */
static void check_whole_of(struct whole *w, const int *s, int high, int wide, int in_place, int half)
{
    struct kh k;
    int copied = in_place && add_copy(w);
    cr_assert(w->kinds == w->n_in && w->instrs == w->n_instr && w->outs == w->n_out);
    w->p.map.n_instr = (uint16_t)w->n_instr;
    w->p.map.rng = 255;
    if (w->sums) w->p.map.stored = (uint8_t)(((1 << w->n_out) - 1) & ~w->sums);
    kh_begin(&k, w->sums ? SY_OP_MAP_SUMS : SY_OP_MAP, &w->p, program_bytes(&w->p));
    for (int i = 0; i < w->n_in; i++) whole_in(&k, half && !i ? SY_BF16 : SY_F32, w->kind[i], s, i % 2);
    for (int o = 0; o < w->n_out; o++) {
        int rows = w->sums >> o & 1 ? s[1] / high : s[1];
        int columns = (w->sums & ~w->narrow) >> o & 1 ? s[2] / wide : s[2];
        enum sy_dtype dtype = copied && o == w->n_out - 1 ? SY_BF16 : SY_F32;
        if (s[0] > 1)
            kh_out(&k, dtype, 3, s[0], rows, columns);
        else
            kh_out(&k, dtype, 2, rows, columns);
    }
    /* A device interprets these like other maps; sums over large bfloat16 inputs are in tests of their own. */
    k.cpu_only = half && w->sums && (int64_t)s[0] * s[1] * s[2] > 2000;
    k.in_place = in_place && !half && w->kind[0] == MAP_FULL && !(w->sums & 1);
    const char *what = w->sums ? "sums compiled whole" : "compiled whole";
    if (copied || half)
        kh_check_as(&k, half ? SY_BF16 : SY_F32, copied ? SY_BF16 : SY_F32, what);
    else
        kh_check(&k, what);
    kh_end(&k);
}

static void check_whole(struct whole *w, const int *s, int high, int wide, int in_place)
{
    struct whole again = *w;
    check_whole_of(w, s, high, wide, in_place, 0);
    if (w->kind[0] == MAP_FULL) check_whole_of(&again, s, high, wide, in_place, 1);
}

static const struct {
    int size[3], high, wide;
} wholes[] = {
    {{1, 3, 7}, 3, 7},    {{1, 5, 16}, 1, 8},    {{1, 37, 54}, 37, 18},
    {{1, 9, 700}, 3, 35}, {{1, 200, 64}, 8, 32}, {{3, 12, 96}, 4, 96},
};

Test(map, compiled_whole)
{
    for (size_t i = 0; i < 2 * sizeof wholes / sizeof *wholes; i++) {
        struct whole w;
#define WHOLE_BEGIN(id, inputs, outputs, instructions)                                                       \
    w = (struct whole){.n_in = inputs, .n_out = outputs, .n_instr = instructions};
#define WHOLE_FULL(r)             w.kind[r] = MAP_FULL, w.kinds++;
#define WHOLE_COLUMN(r)           w.kind[r] = MAP_COLUMN, w.kinds++;
#define WHOLE_ONE(r)              w.kind[r] = MAP_ONE, w.kinds++;
#define WHOLE_ROW(r)              w.kind[r] = MAP_ROW, w.kinds++;
#define WHOLE_DO0(r, OP)          whole_do(&w, SY_MAP_##OP, 0, 0, 0);
#define WHOLE_DO1(r, OP, a)       whole_do(&w, SY_MAP_##OP, a, 0, 0);
#define WHOLE_DO2(r, OP, a, b)    whole_do(&w, SY_MAP_##OP, a, b, 0);
#define WHOLE_DO3(r, OP, a, b, c) whole_do(&w, SY_MAP_##OP, a, b, c);
#define WHOLE_OUT(o, r)           whole_out(&w, o, r, STORE, 0);
#define WHOLE_BLOCKS(o, r, kind)  whole_out(&w, o, r, kind, 0);
#define WHOLE_NARROW(o, r, kind)  whole_out(&w, o, r, kind, 1);
#define WHOLE_END(id)             check_whole(&w, wholes[i / 2].size, wholes[i / 2].high, wholes[i / 2].wide, i % 2);
#include "backends/cpu/compiled_maps.def"
    }
}

/* ---- map_sums ---- */

/* Sums and sums of squares of the columns, rows and squares of (a * b + row's value) * column's, of a itself and of a
 * constant, and largest magnitudes; blocks of `high` x `wide`. One output is stored, in `dtype`. */
static void check_sums(enum sy_dtype in, enum sy_dtype dtype, int rank, int experts, int rows, int columns,
                       int high, int wide)
{
    union program p = {.map = {.n_instr = 4,
                               .out_register = {6, 6, 7, 0, 4, 6, 6, 7},
                               .rng = 255,
                               .squares = 0xe,
                               .maxima = 0x60,
                               .stored = 0x80}};
    struct kh k;
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_CONST, .s = 0.37f};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_FMA, .a = 0, .b = 1, .c = 2};
    p.map.instr[2] = (struct sy_map_instr){.op = SY_MAP_MUL, .a = 5, .b = 3};
    p.map.instr[3] = (struct sy_map_instr){.op = SY_MAP_DIV, .a = 6, .b = 1};
    kh_begin(&k, SY_OP_MAP_SUMS, &p, program_bytes(&p));
#define DIMS(er, rr, cc) rank, rank == 3 ? (er) : (rr), rank == 3 ? (rr) : (cc), (cc)
    kh_in(&k, in, DIMS(experts, rows, columns));
    if (in == SY_BF16) fill_half(&k);
    kh_in(&k, SY_F32, DIMS(1, 1, 1));
    kh_in(&k, SY_F32, DIMS(experts, rows, 1));
    kh_in(&k, SY_F32, DIMS(1, 1, columns));
    kh_out(&k, SY_F32, DIMS(experts, rows / high, columns));
    kh_out(&k, SY_F32, DIMS(experts, rows, columns / wide));
    kh_out(&k, SY_F32, DIMS(experts, rows / high, columns / wide));
    kh_out(&k, SY_F32, DIMS(experts, rows / high, columns / wide));
    kh_out(&k, SY_F32, DIMS(experts, rows / high, columns));
    kh_out(&k, SY_F32, DIMS(experts, rows / high, columns));
    kh_out(&k, SY_F32, DIMS(experts, rows / high, columns / wide));
    kh_out(&k, dtype, DIMS(experts, rows, columns));
#undef DIMS
    if (dtype == SY_F32 && in == SY_F32)
        kh_check(&k, "map_sums");
    else
        kh_check_as(&k, in, dtype, "map_sums");
    kh_end(&k);
}

Test(map, sums_of_blocks)
{
    for (int i = 0; i < 4; i++) {
        enum sy_dtype dtype = i % 2 ? SY_BF16 : SY_F32, in = i / 2 ? SY_BF16 : SY_F32;
        check_sums(in, dtype, 2, 1, 64, 64, 64, 64);
        check_sums(in, dtype, 2, 1, 6, 48, 3, 12);
        check_sums(in, dtype, 2, 1, 1, 700, 1, 7);
        check_sums(in, dtype, 2, 1, 128, 1100, 32, 100);
        check_sums(in, dtype, 2, 1, 12, 512, 4, 512);
        check_sums(in, dtype, 3, 5, 8, 24, 4, 8);
        check_sums(in, dtype, 3, 2, 3, 2048, 3, 16);
        check_sums(in, dtype, 2, 1, 3, 7, 3, 1);
        check_sums(in, dtype, 3, 3, 10, 999, 5, 27);
    }
}

/* Inputs of both types that have all values, one a row, one a column or one, whose rows begin at any element. Outputs: the
 * values over the bfloat16 ones; others in `stored`; sums of columns, squares and maxima of blocks of `high` x `wide`, sums
 * of such rows, of input 0 itself, maxima of columns. */
static void check_mixed(enum sy_dtype stored, int rows, int columns, int high, int wide, int wild)
{
    union program p = {.map = {.n_instr = 3,
                               .out_register = {7, 5, 6, 7, 7, 6, 0, 5},
                               .rng = 255,
                               .squares = 0x8,
                               .maxima = 0x90,
                               .stored = 0x3}};
    struct kh k;
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_FMA, .a = 0, .b = 1, .c = 2};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_MUL, .a = 5, .b = 3};
    p.map.instr[2] = (struct sy_map_instr){.op = SY_MAP_SUB, .a = 6, .b = 4};
    kh_begin(&k, SY_OP_MAP_SUMS, &p, program_bytes(&p));
    k.wild = wild;
    kh_in(&k, SY_BF16, 2, rows, columns), fill_half(&k);
    kh_in(&k, SY_F32, 2, rows, columns);
    kh_in(&k, SY_BF16, 2, rows, 1), fill_half(&k);
    kh_in(&k, SY_BF16, 2, 1, columns), fill_half(&k);
    kh_in(&k, SY_BF16, 1, 1), fill_half(&k);
    kh_out(&k, SY_BF16, 2, rows, columns);
    kh_out(&k, stored, 2, rows, columns);
    kh_out(&k, SY_F32, 2, rows / high, columns);
    kh_out(&k, SY_F32, 2, rows / high, columns / wide);
    kh_out(&k, SY_F32, 2, rows / high, columns / wide);
    kh_out(&k, SY_F32, 2, rows, columns / wide);
    kh_out(&k, SY_F32, 2, rows / high, columns / wide);
    kh_out(&k, SY_F32, 2, rows / high, columns);
    k.in_place = 1;
    kh_check_as(&k, SY_BF16, SY_BF16, "inputs of both types");
    kh_end(&k);
}

Test(map, sums_of_both_types)
{
    static const struct {
        int rows, columns, high, wide;
    } cases[] = {{1, 1, 1, 1},     {1, 7, 1, 7},       {5, 13, 5, 1},    {6, 65, 2, 13},
                 {9, 510, 3, 255}, {200, 126, 50, 63}, {33, 511, 11, 73}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int wild = 0; wild < 3; wild++)
            check_mixed(wild % 2 ? SY_F32 : SY_BF16, cases[i].rows, cases[i].columns, cases[i].high,
                        cases[i].wide, wild);
}

/* More values at a time than a kernel on a device has fast memory for with all its threads. */
Test(map, sums_of_many_values)
{
    enum { N = SY_MAX_IN };
    union program p = {.map = {.n_instr = 2 * N, .rng = 255, .squares = 0x55}};
    struct kh k;
    for (int i = 0; i < N; i++)
        p.map.instr[i] =
            (struct sy_map_instr){.op = SY_MAP_MULS, .a = (uint8_t)i, .s = 0.1f * (float)(i + 1)};
    for (int i = 0; i < N; i++)
        p.map.instr[N + i] = (struct sy_map_instr){
            .op = SY_MAP_FMA, .a = (uint8_t)(N + i), .b = 0, .c = (uint8_t)(i ? 2 * N + i - 1 : 0)};
    for (int o = 0; o < SY_MAX_OUT; o++) p.map.out_register[o] = (uint8_t)(3 * N - 1 - o);
    kh_begin(&k, SY_OP_MAP_SUMS, &p, program_bytes(&p));
    for (int i = 0; i < N; i++) kh_in(&k, SY_F32, 2, 6, 120);
    for (int o = 0; o < SY_MAX_OUT; o++) kh_out(&k, SY_F32, 2, o % 2 ? 6 : 2, o % 3 ? 4 : 8);
    kh_check(&k, "many values");
    kh_end(&k);
}

/* An output that stores an input, a register stored twice, a constant stored, an input read after output 0 is
 * known. */
Test(map, outputs)
{
    union program p = {.map = {.n_instr = 4, .out_register = {2, 0, 2, 3, 5, 4}, .rng = 255}};
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_ADD, .a = 0, .b = 1};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_CONST, .s = 7.5f};
    p.map.instr[2] = (struct sy_map_instr){.op = SY_MAP_MUL, .a = 0, .b = 2};
    p.map.instr[3] = (struct sy_map_instr){.op = SY_MAP_FMA, .a = 4, .b = 3, .c = 0};
    for (int in_place = 0; in_place < 2; in_place++) {
        struct kh k;
        kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
        const float *x = kh_in(&k, SY_F32, 2, 9, 777), *y = kh_in(&k, SY_F32, 1, 777);
        for (int i = 0; i < 6; i++) kh_out(&k, SY_F32, 2, 9, 777);
        k.in_place = in_place;
        kh_check(&k, "outputs");
        cr_assert_eq(((float *)k.want[0])[778], x[778] + y[1]);
        cr_assert_eq(((float *)k.want[1])[778], x[778]);
        cr_assert_eq(((float *)k.want[2])[778], x[778] + y[1]);
        cr_assert_eq(((float *)k.want[3])[778], 7.5f);
        cr_assert_eq(((float *)k.want[4])[778], fmaf(x[778] * (x[778] + y[1]), 7.5f, x[778]));
        kh_end(&k);
    }
}

/* Thirty values that are all still needed. */
Test(map, many_registers_at_once)
{
    enum { N = 15 };
    union program p = {.map = {.n_instr = 2 * N, .out_register = {3 * N - 1}, .rng = 255}};
    struct kh k;
    for (int i = 0; i < N; i++) {
        int sum = N + i, chain = 2 * N + i;
        p.map.instr[i] =
            (struct sy_map_instr){.op = SY_MAP_ADD, .a = (uint8_t)i, .b = (uint8_t)((i + 1) % N)};
        p.map.instr[N + i] = (struct sy_map_instr){
            .op = SY_MAP_FMA, .a = (uint8_t)i, .b = (uint8_t)sum, .c = (uint8_t)(i ? chain - 1 : 0)};
    }
    kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
    for (int i = 0; i < N; i++) kh_in(&k, SY_F32, 2, 3, 111);
    kh_out(&k, SY_F32, 2, 3, 111);
    kh_check(&k, "many registers");
    for (int e = 0; e < 333; e++) {
        float want = ((float *)k.in[0].data)[e];
        for (int i = 0; i < N; i++) {
            const float *a = k.in[i].data, *b = k.in[(i + 1) % N].data;
            want = fmaf(a[e], a[e] + b[e], want);
        }
        cr_assert_eq(((float *)k.want[0])[e], want);
    }
    kh_end(&k);
}

/* In a square matrix an operand [n] is a row vector of columns, [n, 1] one value a row. */
Test(map, broadcast_in_a_square)
{
    union program p = {.map = {.n_instr = 2, .out_register = {4}, .rng = 255}};
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_ADD, .a = 0, .b = 1};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_MUL, .a = 3, .b = 2};
    struct kh k;
    kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
    const float *x = kh_in(&k, SY_F32, 2, 33, 33), *column = kh_in(&k, SY_F32, 1, 33);
    const float *row = kh_in(&k, SY_F32, 2, 33, 1);
    kh_out(&k, SY_F32, 2, 33, 33);
    kh_check(&k, "square");
    for (int i = 0; i < 33 * 33; i++)
        cr_assert_eq(((float *)k.want[0])[i], (x[i] + column[i % 33]) * row[i / 33]);
    kh_end(&k);
}

/* Operands of the output's rank whose extents are the output's or 1, every choice of them: bit i of the form
 * keeps dim i. */
static void spread(int rank, const int *s, int form_a, int form_b)
{
    union program p = {.map = {.n_instr = 2, .out_register = {4}, .rng = 255}};
    const int form[3] = {15, form_a, form_b};
    const float *x[3];
    struct kh k;
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_MUL, .a = 0, .b = 1};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_SUB, .a = 3, .b = 2};
    kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
    for (int i = 0; i < 3; i++)
        x[i] = kh_in(&k, SY_F32, rank, form[i] & 1 ? s[0] : 1, form[i] & 2 ? s[1] : 1, form[i] & 4 ? s[2] : 1,
                     form[i] & 8 ? s[3] : 1);
    kh_out(&k, SY_F32, rank, s[0], s[1], s[2], s[3]);
    k.in_place = form_b % 2;
    kh_check(&k, "operands of the same rank");
    for (int64_t e = 0; e < sycpu_count(&k.out[0]); e++) {
        float v[3];
        for (int i = 0; i < 3; i++) {
            int64_t rest = e, at = 0, stride = 1;
            for (int d = rank - 1; d >= 0; d--) {
                if (form[i] >> d & 1) at += rest % s[d] * stride, stride *= s[d];
                rest /= s[d];
            }
            v[i] = x[i][at];
        }
        cr_assert_eq(((float *)k.want[0])[e], v[0] * v[1] - v[2], "rank %d forms %d %d element %lld", rank,
                     form_a, form_b, (long long)e);
    }
    kh_end(&k);
}

Test(map, operands_of_the_same_rank)
{
    static const int s[][4] = {{3, 4, 5, 7}, {3, 1, 4, 33}, {2, 5, 1, 1}, {6, 6, 6, 6}, {2, 3, 2, 600}};
    for (int i = 0; i < 5; i++)
        for (int rank = 2; rank <= 4; rank++)
            for (int a = 0; a < 1 << rank; a++)
                for (int b = 0; b < 1 << rank; b += 1 + (rank == 4)) spread(rank, s[i], a, b);
}

/* A value a row stays one where a single row of b happens to have as many positions as columns. */
Test(map, value_a_row_beside_one_square)
{
    union program p = {.map = {.n_instr = 1, .out_register = {2}, .rng = 255}};
    struct kh k;
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_MUL, .a = 0, .b = 1};
    kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
    const float *x = kh_in(&k, SY_F32, 3, 1, 20, 20), *row = kh_in(&k, SY_F32, 2, 1, 20);
    kh_out(&k, SY_F32, 3, 1, 20, 20);
    kh_check(&k, "one square");
    for (int i = 0; i < 400; i++) cr_assert_eq(((float *)k.want[0])[i], x[i] * row[i / 20]);
    kh_end(&k);
}

static void jitter(int rank, const int *s, float amount, float rate)
{
    union program p = {.map = {.n_instr = 3, .out_register = {4, 2}, .rng = 1}};
    struct kh k;
    int last = s[rank - 1], positions = rank == 3 ? s[1] : 1;
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_JITTER, .a = 0, .site = 3, .s = amount};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_DROPOUT, .a = 0, .site = 4, .s = rate};
    p.map.instr[2] = (struct sy_map_instr){.op = SY_MAP_ADD, .a = 2, .b = 3};
    kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
    k.wild = 5;
    const float *x = kh_in(&k, SY_F32, rank, s[0], s[1], s[2]);
    int64_t *rng = kh_in(&k, SY_I64, 1, 4);
    rng[SY_RNG_SEED] = 99, rng[SY_RNG_STEP] = 1234, rng[SY_RNG_ROW0] = 50, rng[SY_RNG_GROUP0] = 60;
    kh_out(&k, SY_F32, rank, s[0], s[1], s[2]);
    kh_out(&k, SY_F32, rank, s[0], s[1], s[2]);
    k.out[0].first[0] = 3, k.out[0].first[1] = 5, k.out[0].first[rank - 1] = 13;
    k.in_place = 1;
    kh_check(&k, "jitter");

    struct syi_jitter j = syi_jitter_init(rng, 3, amount);
    for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) {
        int64_t row = i / last / positions, position = rank == 3 ? 5 + i / last % positions : 0;
        float u, got = ((float *)k.want[1])[i];
        syi_jitter_factors(&j, (uint32_t)((rank < 2 ? 0 : 3 + row) + 50), (uint32_t)position, 13 + i % last,
                           1, &u);
        cr_assert(u > 1 - amount - 1e-6f && u < 1 + amount + 1e-6f);
        cr_assert(got == x[i] * u || (isnan(got) && isnan(x[i])), "rank %d element %lld", rank, (long long)i);
    }
    kh_end(&k);
}

Test(map, jitter)
{
    jitter(3, (int[]){4, 7, 300, 1}, 0.01f, 0.0f);
    jitter(3, (int[]){2, 3, 5, 1}, 0.5f, 0.1f);
    jitter(3, (int[]){1, 3, 9000, 1}, 0.01f, 0.3f);
    jitter(2, (int[]){6, 133, 1, 1}, 0.3f, 0.3f);
    jitter(1, (int[]){77, 1, 1, 1}, 0.3f, 0.0f);
}

Test(map, jitter_is_uniform_and_repeats)
{
    enum { N = 4096 };
    static const int64_t rng[4] = {1, 2, 3, 4};
    struct syi_jitter j = syi_jitter_init(rng, 5, 0.25f);
    float u[N], again[N], other[N];
    double mean = 0, square = 0;
    syi_jitter_factors(&j, 6, 7, 0, N, u);
    syi_jitter_factors(&j, 6, 7, 0, N, again);
    syi_jitter_factors(&j, 6, 8, 0, N, other);
    for (int i = 0; i < N; i++) mean += (double)u[i] / N, square += pow((double)u[i] - 1, 2) / N;
    cr_expect(fabs(mean - 1) < 0.01, "mean %g", mean);
    cr_expect(fabs(square - 0.0625 / 3) < 0.002, "mean square %g", square);
    cr_expect_eq(memcmp(u, again, sizeof u), 0);
    cr_expect_neq(memcmp(u, other, sizeof u), 0);
    cr_expect_eq(syi_jitter_factor(0.25f, 0), 1.0f - 0.25f * (65535.0f / 65536.0f));
    cr_expect_eq(syi_jitter_factor(0.25f, 65535), 1.0f + 0.25f * (65535.0f / 65536.0f));
}

static void dropout(int rank, const int *s, float rate)
{
    union program p = {.map = {.n_instr = 3, .out_register = {4}, .rng = 1}};
    struct kh k;
    int last = s[rank - 1];
    p.map.instr[0] = (struct sy_map_instr){.op = SY_MAP_DROPOUT, .a = 0, .site = 3, .s = rate};
    p.map.instr[1] = (struct sy_map_instr){.op = SY_MAP_DROPOUT, .a = 0, .site = 4, .s = 0.5f};
    p.map.instr[2] = (struct sy_map_instr){.op = SY_MAP_ADD, .a = 2, .b = 3};
    kh_begin(&k, SY_OP_MAP, &p, program_bytes(&p));
    k.wild = 5;
    const float *x = kh_in(&k, SY_F32, rank, s[0], s[1], s[2], s[3]);
    int64_t *rng = kh_in(&k, SY_I64, 1, 4), n;
    rng[SY_RNG_SEED] = 99, rng[SY_RNG_STEP] = 1234, rng[SY_RNG_ROW0] = 50, rng[SY_RNG_GROUP0] = 60;
    kh_out(&k, SY_F32, rank, s[0], s[1], s[2], s[3]);
    k.out[0].first[0] = 3, k.out[0].first[1] = 5, k.out[0].first[rank - 1] = 13;
    k.in_place = 1;
    kh_check(&k, "dropout");

    struct syi_dropout a = syi_dropout_init(rng, 3, (double)rate), b = syi_dropout_init(rng, 4, 0.5);
    n = sycpu_count(&k.out[0]);
    for (int64_t i = 0; i < n; i++) {
        float ma = 1, mb = 1, want;
        int64_t group = i / last / (rank > 2 ? s[rank - 2] : 1);
        uint32_t row = (uint32_t)(rank == 4 ? 5 + 60 + group % s[1] : 3 + 50 + group);
        uint32_t position = (uint32_t)(rank == 4 ? 3 + group / s[1] : 0);
        if (a.threshold) syi_dropout_mask(&a, row, position, 13 + i % last, 1, &ma);
        syi_dropout_mask(&b, row, position, 13 + i % last, 1, &mb);
        want = SYI_DROP(x[i], ma) + SYI_DROP(x[i], mb);
        float got = ((float *)k.want[0])[i];
        cr_assert(got == want || (isnan(got) && isnan(want)), "rank %d element %lld", rank, (long long)i);
    }
    kh_end(&k);
}

Test(map, dropout)
{
    dropout(3, (int[]){4, 7, 300, 1}, 0.1f);
    dropout(3, (int[]){2, 1, 5, 1}, 0.1f);
    dropout(3, (int[]){5, 3, 256, 1}, 0.0f);
    dropout(4, (int[]){3, 4, 6, 70}, 0.3f);
    dropout(2, (int[]){6, 133, 1, 1}, 0.3f);
}
