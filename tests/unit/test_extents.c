/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of rows, sums, maps, embeddings and of moving tokens over extents of any size together: of one, of few, of an odd
 * number and of one more than what the kernels take at a time, in all orders. */
#include "config.h"

#include "backends/cpu/map.h"
#include "extent_case.h"
#include "routing_case.h"

enum { MOST = 30000 }; /* elements of a tensor */

static void check(struct kh *k, const char *what, int a, int b, int c, int d)
{
    char text[120];
    snprintf(text, sizeof text, "%s of %d, %d, %d, %d", what, a, b, c, d);
    kh_check_types(k, text);
    kh_forget(k);
}

/* check(a, b, c, d) for all of these extents; a list ends with 0. */
static void each(const int *a, const int *b, const int *c, const int *d,
                 void (*fn)(int a, int b, int c, int d))
{
    for (; *a; a++)
        for (const int *x = b; *x; x++)
            for (const int *y = c; *y; y++)
                for (const int *z = d; *z; z++) fn(*a, *x, *y, *z);
}

#define LIST(...) ((const int[]){__VA_ARGS__, 0})

/* ---- norms ---- */

static void add_mask(struct kh *k, int rows, int positions, int there)
{
    if (!there) {
        kh_in_absent(k);
        return;
    }
    float *mask = kh_in(k, SY_F32, 2, rows, positions);
    for (int i = 0; i < rows * positions; i++) mask[i] = (float)(kh_random() % 3);
}

static void norms(int B, int T, int D, int masked)
{
    const int grad =
        B * T * D * D < 2000000; /* the reference has the norm of a row for each of its columns */
    if (B * T * D > MOST) return;
    for (int op = 0; op < 3 + (B == 8); op++) {
        static const int ops[] = {SY_OP_RMS_NORM, SY_OP_ADD_RMS_NORM, SY_OP_RMS_NORM_GRAD,
                                  SY_OP_RMS_NORM_GRAD};
        struct sy_attr_rms_norm attr = {1e-6, op < 3 ? B : B / 8};
        struct kh k;
        if (op > 1 && !grad) break;
        kh_begin(&k, ops[op], &attr, sizeof attr);
        kh_in(&k, SY_F32, 3, B, T, D);
        if (op == 1) kh_in(&k, SY_F32, 3, B, T, D);
        kh_in(&k, SY_F32, 1, D);
        if (op > 1) kh_in(&k, SY_F32, 3, B, T, D);
        add_mask(&k, B, T, masked - 1);
        kh_out(&k, SY_F32, 3, B, T, D);
        if (op == 1) kh_out(&k, SY_F32, 3, B, T, D);
        if (op > 1) kh_out(&k, SY_F32, 1, D);
        k.in_place = op == 1 && masked > 1;
        check(&k, "norm", B, T, D, op);
    }
}

Test(extents, norms)
{
    each(LIST(1, 3, 8), LIST(1, 3, 17), LIST(1, 3, 17, 65, 4097), LIST(1, 2), norms);
}

/* ---- gated units ---- */

/* filled: 1: rows of a batch, 2: slots of experts, of which as many are filled. */
static void gated(int inner, int width, int blocks, int filled)
{
    const int experts = filled > 1, columns = width * blocks;
    if (3 * inner * columns > MOST) return;
    for (int form = 0; form < 8; form++) { /* dropout, two tensors, gradient */
        const int apart = form >> 1 & 1, grad = form >> 2, x = apart ? columns : 2 * columns;
        struct sy_attr_glu attr = {apart ? 0 : width, 1 + form % 3, 5, form & 1 ? 0.3 : 0};
        struct kh k;
#define SLOTS(n) 3 + experts, experts ? 1 : 3, experts ? 3 : inner, experts ? inner : (n), (n)
        kh_begin(&k, grad ? SY_OP_GLU_GRAD : SY_OP_GLU, &attr, sizeof attr);
        kh_in(&k, SY_F32, SLOTS(x));
        if (grad) kh_in(&k, SY_F32, SLOTS(columns));
        ((int64_t *)kh_in(&k, SY_I64, 1, 4))[SY_RNG_STEP] = inner;
        int32_t *count = experts ? kh_in(&k, SY_I32, 2, 1, 3) : NULL;
        for (int i = 0; i < 3 && experts; i++) count[i] = i == 1 ? 0 : inner - i / 2;
        if (!experts) kh_in_absent(&k);
        if (apart)
            kh_in(&k, SY_F32, SLOTS(x));
        else
            kh_in_absent(&k);
        kh_out(&k, SY_F32, SLOTS(grad ? x : columns));
        if (grad && apart) kh_out(&k, SY_F32, SLOTS(x));
        if (grad && !apart) kh_out_absent(&k);
#undef SLOTS
        check(&k, "glu", inner, width, blocks, 10 * filled + form);
    }
}

Test(extents, gated_units)
{
    each(LIST(1, 3, 17), LIST(1, 3, 17, 2049), LIST(1, 3), LIST(1, 2), gated);
}

/* ---- vocabularies ---- */

static void softmaxes(int B, int T, int V, int gradient)
{
    struct kh k;
    if (B * T * V > MOST) return;
    kh_begin(&k, gradient > 1 ? SY_OP_SOFTMAX_GRAD : SY_OP_SOFTMAX, NULL, 0);
    kh_in(&k, SY_F32, 3, B, T, V);
    if (gradient > 1) kh_in(&k, SY_F32, 3, B, T, V);
    if (gradient > 2) kh_in(&k, SY_F32, 2, B, T);
    if (gradient == 2) kh_in_absent(&k);
    kh_out(&k, SY_F32, 3, B, T, V);
    if (gradient == 1) kh_out(&k, SY_F32, 2, B, T);
    check(&k, "softmax", B, T, V, gradient);
}

static void losses(int B, int T, int V, int smooth)
{
    struct sy_attr_xent attr = {smooth > 1 ? 0.1 : 0, 1e-4};
    if (B * T * V > MOST) return;
    for (int form = 0; form < 3; form++) { /* the gradient in a place of its own and over the logits */
        struct kh k;
        kh_begin(&k, form ? SY_OP_XENT_GRAD : SY_OP_XENT, &attr, sizeof attr);
        kh_in(&k, SY_F32, 3, B, T, V);
        int32_t *target = kh_in(&k, SY_I32, 2, B, T);
        float *weight = kh_in(&k, SY_F32, 2, B, T);
        for (int i = 0; i < B * T; i++) target[i] = (int32_t)(kh_random() % (unsigned)(V + 2)) - 1;
        for (int i = 2; i < B * T; i += 5) weight[i] = 0;
        for (int i = 0; form && i < 2; i++) kh_in(&k, SY_F32, 2, B, T);
        for (int i = 0; i < 4 && !form; i++) kh_out(&k, SY_F32, 2, B, T);
        if (form) kh_out(&k, SY_F32, 3, B, T, V);
        if (form < 2) {
            check(&k, "cross entropy", B, T, V, smooth);
        } else {
            k.in_place = 1;
            kh_check_fast(&k, SY_F32, SY_F32, "cross entropy in place");
            kh_forget(&k);
        }
    }
}

/* The best of a row; K - 1 is that many of them. */
static void best(int B, int T, int V, int K)
{
    struct kh k;
    if (B * T * V > MOST) return;
    kh_begin(&k, K > 1 ? SY_OP_TOP_K : SY_OP_ARGMAX, NULL, 0);
    float *x = kh_in(&k, SY_F32, 3, B, T, V);
    for (int i = 0; i < B * T * V && V % 2; i++) x[i] = (float)(kh_random() % 50); /* equals */
    if (K > 1) kh_out(&k, SY_F32, 3, B, T, K - 1);
    if (K > 1)
        kh_out(&k, SY_I32, 3, B, T, K - 1);
    else
        kh_out(&k, SY_I32, 2, B, T);
    check(&k, "best", B, T, V, K);
}

#define VOCABULARIES LIST(1, 3, 17, 4097, 32129)

Test(extents, softmax)
{
    each(LIST(1, 3), LIST(1, 3, 17), VOCABULARIES, LIST(1, 2, 3), softmaxes);
}

Test(extents, cross_entropy)
{
    each(LIST(1, 3), LIST(1, 3, 17), VOCABULARIES, LIST(1, 2), losses);
}

Test(extents, the_best_of_a_vocabulary)
{
    each(LIST(1, 3), LIST(1, 3, 17), VOCABULARIES, LIST(1, 2, 4, 18, 4098), best);
}

static void embeddings(int B, int T, int V, int D)
{
    if (V * D > 5 * MOST) return;
    for (int grad = 0; grad < 2 + (B == 8); grad++) {
        struct sy_attr_leaf attr = {grad > 1 ? B / 8 : B};
        struct kh k;
        kh_begin(&k, grad ? SY_OP_EMBED_GRAD : SY_OP_EMBED, &attr, sizeof attr);
        int32_t *id = kh_in(&k, SY_I32, 2, B, T);
        for (int i = 0; i < B * T; i++) id[i] = (int32_t)(kh_random() % (unsigned)(V + 2)) - 1;
        for (int i = 1; i < B * T; i += 3) id[i] = V - 1; /* one that comes often, too */
        if (grad)
            kh_in(&k, SY_F32, 3, B, T, D);
        else
            kh_in(&k, SY_F32, 2, V, D);
        if (grad)
            kh_out(&k, SY_F32, 2, V, D);
        else
            kh_out(&k, SY_F32, 3, B, T, D);
        check(&k, grad ? "embed_grad" : "embed", B, T, V, D);
    }
}

Test(extents, embeddings)
{
    each(LIST(1, 3, 8), LIST(1, 3, 17), LIST(1, 3, 17, 4097), LIST(1, 3, 17, 65), embeddings);
}

/* ---- maps ---- */

union program {
    struct sy_attr_map map;
    char bytes[sizeof(struct sy_attr_map) + 4 * sizeof(struct sy_map_instr)];
};

static void begin_map(struct kh *k, int op, union program *p, int n, const struct sy_map_instr *instr)
{
    memcpy(p->map.instr, instr, (size_t)n * sizeof *instr);
    p->map.n_instr = (uint16_t)n;
    kh_begin(k, op, p, sizeof p->map + (size_t)n * sizeof *instr);
}

/* Of a tensor of these extents. form: bit i keeps dim i; 8 drops the last dim, 9 all but the last. */
static void spread_in(struct kh *k, int form, int a, int b, int c)
{
    if (form == 8)
        kh_in(k, SY_F32, 2, a, b);
    else if (form == 9)
        kh_in(k, SY_F32, 1, c);
    else
        kh_in(k, SY_F32, 3, form & 1 ? a : 1, form & 2 ? b : 1, form & 4 ? c : 1);
}

static void broadcasts(int a, int b, int c, int form)
{
    static const struct sy_map_instr instr[] = {{.op = SY_MAP_FMA, .a = 0, .b = 1, .c = 2},
                                                {.op = SY_MAP_MUL, .a = 3, .b = 1}};
    if (a * b * c > MOST) return;
    union program p = {.map = {.out_register = {4, 3}, .rng = 255}};
    struct kh k;
    begin_map(&k, SY_OP_MAP, &p, 2, instr);
    kh_in(&k, SY_F32, 3, a, b, c);
    spread_in(&k, form - 1, a, b, c);
    spread_in(&k, (form + a + b) % 10, a, b, c);
    for (int i = 0; i < 2; i++) kh_out(&k, SY_F32, 3, a, b, c);
    check(&k, "map", a, b, c, form);
}

/* A map of one long row, a tile of 512 columns and a task of 16384 elements and one more. */
Test(extents, maps)
{
    each(LIST(1, 3, 17), LIST(1, 3, 17), LIST(1, 3, 17, 513), LIST(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
         broadcasts);
    each(LIST(1, 3), LIST(513), LIST(1, 3, 17), LIST(1, 5, 7, 9), broadcasts);
    each(LIST(1), LIST(1, 2), LIST(16385), LIST(1, 5, 8, 9, 10), broadcasts);
}

static void random_maps(int a, int b, int c, int masks)
{
    static const struct sy_map_instr instr[] = {{.op = SY_MAP_DROPOUT, .a = 0, .site = 3, .s = 0.3f},
                                                {.op = SY_MAP_JITTER, .a = 2, .site = 4, .s = 0.1f},
                                                {.op = SY_MAP_DROPOUT, .a = 3, .site = 5, .s = 0.2f}};
    if (a * b * c > 2 * MOST) return; /* a task and more */
    union program p = {.map = {.out_register = {(uint8_t)(1 + masks)}, .rng = 1}};
    struct kh k;
    begin_map(&k, SY_OP_MAP, &p, masks, instr);
    kh_in(&k, SY_F32, 3, a, b, c);
    ((int64_t *)kh_in(&k, SY_I64, 1, 4))[SY_RNG_ROW0] = 9;
    kh_out(&k, SY_F32, 3, a, b, c);
    k.out[0].first[0] = 2, k.out[0].first[1] = 5, k.out[0].first[2] = 11;
    check(&k, "random map", a, b, c, masks);
}

Test(extents, random_maps)
{
    each(LIST(1, 3, 17), LIST(1, 3, 17), LIST(1, 3, 129, 513, 16385), LIST(1, 2, 3), random_maps);
}

static void map_sums(int high, int up, int wide, int beside)
{
    static const struct sy_map_instr instr[] = {{.op = SY_MAP_FMA, .a = 0, .b = 1, .c = 2},
                                                {.op = SY_MAP_MUL, .a = 3, .b = 0}};
    const int rows = high * up, columns = wide * beside;
    for (int experts = 1; experts <= 3 && experts * rows * columns <= MOST; experts += 2) {
        union program p = {.map = {.out_register = {4, 3, 4, 4, 3, 0},
                                   .rng = 255,
                                   .squares = 0x6,
                                   .maxima = 0x18,
                                   .stored = 0x20}};
        struct kh k;
        begin_map(&k, SY_OP_MAP_SUMS, &p, 2, instr);
        kh_in(&k, SY_F32, 3, experts, rows, columns);
        spread_in(&k, high % 10, experts, rows, columns);
        spread_in(&k, (wide + beside) % 10, experts, rows, columns);
        kh_out(&k, SY_F32, 3, experts, up, beside);
        kh_out(&k, SY_F32, 3, experts, up, columns);
        kh_out(&k, SY_F32, 3, experts, rows, beside);
        kh_out(&k, SY_F32, 3, experts, up, beside);
        kh_out(&k, SY_F32, 3, experts, up, columns);
        kh_out(&k, SY_F32, 3, experts, rows, columns);
        check(&k, "map_sums", high, up, wide, beside);
    }
}

Test(extents, sums_of_maps)
{
    each(LIST(1, 3, 17), LIST(1, 3), LIST(1, 3, 17, 512), LIST(1, 3, 17, 257), map_sums);
}

/* ---- sums ---- */

static void blocks(int high, int up, int wide, int beside)
{
    struct sy_attr_block attr = {{2, high, wide, 1, 1}};
    if (4 * high * up * wide * beside > MOST) return;
    for (int op = 0; op < 3; op++) {
        struct kh k;
        kh_begin(&k, (int[]){SY_OP_BLOCK_SUM, SY_OP_BLOCK_SUMSQ, SY_OP_BLOCK_MAX}[op], &attr, sizeof attr);
        kh_in(&k, SY_F32, 3, 4, high * up, wide * beside);
        kh_out(&k, SY_F32, 3, 2, up, beside);
        check(&k, "blocks", high, up, wide, beside);
    }
}

/* 16 blocks go together, of one column 256. */
Test(extents, blocks)
{
    each(LIST(1, 3, 17), LIST(1, 3, 17), LIST(1, 3, 17, 129), LIST(1, 3, 17, 257), blocks);
}

static void lines(int a, int b, int c, int dim)
{
    struct sy_attr_axis attr = {dim - 1};
    if (a * b * c > MOST) return;
    for (int op = SY_OP_TREE_AXIS; op <= SY_OP_MAX_AXIS; op += SY_OP_MAX_AXIS - SY_OP_TREE_AXIS) {
        struct kh k;
        kh_begin(&k, op, &attr, sizeof attr);
        kh_in(&k, SY_F32, 3, a, b, c);
        kh_out(&k, SY_F32, 3, dim == 1 ? 1 : a, dim == 2 ? 1 : b, dim == 3 ? 1 : c);
        check(&k, "lines", a, b, c, dim);
    }
}

Test(extents, lines)
{
    each(LIST(1, 3, 17, 257), LIST(1, 3, 17, 257), LIST(1, 3, 17, 257), LIST(1, 2, 3), lines);
    each(LIST(1, 3), LIST(1), LIST(4097), LIST(1, 3), lines);
}

static void columns(int B, int T, int D, int pieces)
{
    struct sy_attr_leaf attr = {pieces > 1 ? B : 1};
    struct kh k;
    if (B % 2 && pieces == 1 && B > 1) return; /* leaves are a power of two */
    kh_begin(&k, pieces > 2 ? SY_OP_TREE_ADD : SY_OP_COLUMN_SUM, &attr, sizeof attr);
    kh_in(&k, SY_F32, 3, B, T, D);
    if (pieces > 2)
        kh_out(&k, SY_F32, 2, T, D);
    else
        kh_out(&k, SY_F32, 1, D);
    check(&k, "columns", B, T, D, pieces);
}

Test(extents, columns)
{
    each(LIST(1, 3, 8, 32), LIST(1, 3, 17), LIST(1, 3, 17, 257), LIST(1, 2, 3), columns);
}

/* ---- copies ---- */

static void packs(int rows, int blocks, int wide, int narrow)
{
    struct sy_attr_pack attr = {{wide, narrow, wide}};
    for (int back = 0; back < 2; back++) {
        struct kh k;
        kh_begin(&k, back ? SY_OP_UNPACK : SY_OP_PACK, &attr, sizeof attr);
        if (back) kh_in(&k, SY_F32, 2, rows, blocks * (2 * wide + narrow));
        for (int i = 0; i < 3; i++)
            if (back)
                kh_out(&k, SY_F32, 2, rows, blocks * (int)attr.width[i]);
            else
                kh_in(&k, SY_F32, 2, rows, blocks * (int)attr.width[i]);
        if (!back) kh_out(&k, SY_F32, 2, rows, blocks * (2 * wide + narrow));
        check(&k, "pack", rows, blocks, wide, narrow);
    }
}

static void caches(int rows, int length, int columns, int position)
{
    for (int in_place = 0; in_place < 2 && position <= length; in_place++) {
        struct kh k;
        kh_begin(&k, SY_OP_CACHE_APPEND, NULL, 0);
        kh_in(&k, SY_F32, 3, rows, length, columns);
        kh_in(&k, SY_F32, 3, rows, 1, columns);
        *(int32_t *)kh_in(&k, SY_I32, 1, 1) = position - 1;
        kh_out(&k, SY_F32, 3, rows, length, columns);
        k.in_place = in_place;
        if (in_place) {
            kh_check_fast(&k, SY_F32, SY_F32, "cache_append in place");
            kh_forget(&k);
        } else {
            check(&k, "cache_append", rows, length, columns, position);
        }
    }
}

Test(extents, copies)
{
    each(LIST(1, 3, 17), LIST(1, 3), LIST(1, 3, 17, 1025), LIST(1, 3, 17), packs);
    each(LIST(1, 3, 17), LIST(1, 3, 17), LIST(1, 3, 17, 65), LIST(1, 3, 17), caches);
}

/* ---- moving tokens ---- */

static void move(const struct shape *s, const struct kh *route, int op)
{
    const int choices = op == SY_OP_COMBINE || op == SY_OP_COMBINE_GRAD;
    struct kh k;
    kh_begin(&k, op, &s->group, sizeof s->group);
    if (op == SY_OP_DISPATCH)
        kh_in(&k, SY_F32, 3, s->rows, s->tokens, s->dim);
    else
        kh_in(&k, SY_F32, 4, s->experts, groups_of(s), s->capacity, s->dim);
    for (int i = 0; i < 2; i++) copy_in(&k, &route->out[i], route->want[i]);
    if (choices) kh_in(&k, SY_F32, 3, s->rows, s->tokens, s->selected);
    if (op == SY_OP_COMBINE_GRAD) kh_in(&k, SY_F32, 3, s->rows, s->tokens, s->dim);
    if (op == SY_OP_DISPATCH || op == SY_OP_COMBINE_GRAD)
        kh_out(&k, SY_F32, 4, s->experts, groups_of(s), s->capacity, s->dim);
    else
        kh_out(&k, SY_F32, 3, s->rows, s->tokens, s->dim);
    if (op == SY_OP_COMBINE_GRAD) kh_out(&k, SY_F32, 3, s->rows, s->tokens, s->selected);
    check(&k, "moving tokens", s->tokens, s->experts, s->dim, s->capacity);
}

/* Of two groups of rows. Every expert has room for a token, for few and for all. */
static void routes(int tokens, int experts, int selected, int dim)
{
    for (int group_rows = 1; group_rows <= 3 && selected <= experts; group_rows += 2)
        for (int room = 0; room < 3; room++) {
            struct shape s = {.rows = 2 * group_rows,
                              .tokens = tokens,
                              .experts = experts,
                              .selected = selected,
                              .dim = dim,
                              .capacity = (int[]){1, 3, tokens * group_rows}[room],
                              .prioritized = room % 2,
                              .levels = 100,
                              .masked = room,
                              .biased = room % 2,
                              .group = {group_rows}};
            struct sy_attr_route attr;
            struct kh route;
            if (2 * experts * s.capacity * dim > MOST) continue;
            route_of(&route, &s, &attr);
            for (int op = SY_OP_DISPATCH; op <= SY_OP_COMBINE_GRAD; op++) move(&s, &route, op);
            kh_end(&route);
        }
}

Test(extents, moving_tokens)
{
    each(LIST(1, 3, 17), LIST(1, 3, 17), LIST(1, 2, 3), LIST(1, 3, 17, 65), routes);
}

/* ---- random numbers ---- */

static void normals(int a, int b, int c, int first)
{
    struct sy_attr_normal attr = {.site = 6, .extent = {b + 3, c + first, 1}};
    struct kh k;
    kh_begin(&k, SY_OP_NORMAL, &attr, sizeof attr);
    kh_in(&k, SY_F32, 3, a, b, c);
    ((int64_t *)kh_in(&k, SY_I64, 1, 4))[SY_RNG_SEED] = 77;
    kh_out(&k, SY_F32, 3, a, b, c);
    k.out[0].first[0] = 1, k.out[0].first[1] = 2, k.out[0].first[2] = first;
    check(&k, "normal", a, b, c, first);
}

Test(extents, normal_numbers)
{
    each(LIST(1, 3), LIST(1, 3), LIST(1, 3, 65, 4097), LIST(1, 2, 3, 4), normals);
}
