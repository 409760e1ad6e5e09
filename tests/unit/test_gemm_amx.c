/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of bf16 on matrix tiles: every kernel of amx_bf16, the emulated one and where the processor has AMX
 * that of instructions, has the bits of a plain model that computes one element after the other by the arithmetic of
 * amx_tile.h, whatever the sizes, leaves, counts, values, threads and the output's type. */
#include "config.h"

#include "product_case.h"

#include "backends/cpu/gemm.h"
#include "base/amx_tile.h"

/* ---- the model ---- */

enum { MOST_DEPTH = 8192 };

/* The elements of a contraction for one element of C, leaf by leaf; a leaf has a first and a length. */
struct terms {
    uint16_t a[MOST_DEPTH], b[MOST_DEPTH];
    int64_t first[MOST_DEPTH], length[MOST_DEPTH], n;
};

static float leaf_sum(const struct terms *t, int64_t leaf)
{
    float sum = 0.0f;
    for (int64_t k = 0; k < t->length[leaf]; k += TILE_ELEMENTS) {
        uint16_t a[TILE_ELEMENTS] = {0}, b[TILE_ELEMENTS] = {0};
        int64_t n = t->length[leaf] - k < TILE_ELEMENTS ? t->length[leaf] - k : TILE_ELEMENTS;
        memcpy(a, t->a + t->first[leaf] + k, (size_t)n * sizeof *a);
        memcpy(b, t->b + t->first[leaf] + k, (size_t)n * sizeof *b);
        sum = tile_dot_element(sum, a, b, 2);
    }
    return sum;
}

static float tree(const struct terms *t, int64_t leaf, int64_t leaves)
{
    if (leaves == 1) return leaf_sum(t, leaf);
    return tree(t, leaf, leaves / 2) + tree(t, leaf + leaves / 2, leaves / 2);
}

static void add_term(struct terms *t, const uint16_t *a, const uint16_t *b)
{
    int64_t *length = &t->length[t->n - 1], at = t->first[t->n - 1] + *length;
    t->a[at] = *a, t->b[at] = *b;
    ++*length;
}

static void begin_leaf(struct terms *t)
{
    t->first[t->n] = t->n ? t->first[t->n - 1] + t->length[t->n - 1] : 0;
    t->length[t->n++] = 0;
}

/* Row (a buffer row, TN: a row of C) and column of an expert. */
static float model_element(const struct sycpu_gemm *g, int64_t expert, int64_t row, int64_t column,
                           struct terms *t)
{
    const uint16_t *a = (const uint16_t *)g->a + expert * sycpu_gemm_a_size(g),
                   *b = (const uint16_t *)g->b + expert * sycpu_gemm_b_size(g);
    t->n = 0;
    for (int64_t leaf = 0; leaf < g->leaves; leaf++) {
        begin_leaf(t);
        if (g->form == SYCPU_GEMM_TN) {
            for (int64_t group = leaf * g->leaf; group < (leaf + 1) * g->leaf; group++)
                for (int64_t slot = 0; slot < sycpu_gemm_filled(g, expert, group); slot++)
                    add_term(t, a + (group * g->slots + slot) * g->a_width + row,
                             b + (group * g->slots + slot) * g->columns + column);
            continue;
        }
        for (int64_t k = leaf * g->leaf; k < (leaf + 1) * g->leaf; k++)
            add_term(t, a + row * g->a_width + k,
                     g->form == SYCPU_GEMM_NT ? b + column * g->depth + k : b + k * g->columns + column);
    }
    return tree(t, 0, g->leaves) + 0.0f;
}

static void put(const struct kh *k, int64_t i, float value)
{
    if (k->out[0].dtype == SY_BF16)
        ((uint16_t *)k->want[0])[i] = syi_bf16_from_float(value);
    else
        ((float *)k->want[0])[i] = value;
}

/* All of C into k->want. */
static void model(struct kh *k)
{
    static struct terms terms;
    struct sy_call call = {.in = k->in, .out = k->out, .attr = k->attr, .op = (uint16_t)k->op};
    const struct sycpu_gemm g = sycpu_gemm_of(&call);
    k->want[0] = calloc(1, kh_bytes(&k->out[0]) + 1);
    cr_assert(k->want[0] && g.depth <= MOST_DEPTH);
    for (int64_t expert = 0; expert < g.experts; expert++) {
        int64_t base = expert * sycpu_gemm_c_size(&g), tn = g.form == SYCPU_GEMM_TN;
        for (int64_t group = 0; group < (tn ? 1 : g.groups); group++) {
            int64_t first = tn ? 0 : sycpu_gemm_first_row(&g, expert, group),
                    n = tn ? g.rows : sycpu_gemm_filled(&g, expert, group);
            for (int64_t row = first; row < first + n; row++)
                for (int64_t column = 0; column < g.columns; column++)
                    put(k, base + row * g.columns + column, model_element(&g, expert, row, column, &terms));
        }
    }
}

/* ---- kernels ---- */

static int is_nan_half(uint16_t x)
{
    return (x & 0x7fff) > 0x7f80;
}

/* As kh_differs, of bf16 too. */
static int64_t differs(const struct sy_tensor *t, const void *a, const void *b)
{
    const uint16_t *x = a, *y = b;
    if (t->dtype != SY_BF16) return kh_differs(t, a, b);
    for (int64_t i = 0; i < sycpu_count(t); i++)
        if (x[i] != y[i] && !(is_nan_half(x[i]) && is_nan_half(y[i]))) return i;
    return -1;
}

/* Values of an operand that make differences. */
enum { ORDINARY, DENORMAL, LARGE, TINY, WILD };

static uint16_t value_of(int kind)
{
    float value = kh_uniform(-2.0f, 2.0f);
    if (kind == DENORMAL) return (uint16_t)(kh_random() & 0x807f);
    if (kind == TINY) value *= 0x1p-63f;  /* products about the least that is not denormal */
    if (kind == LARGE) value *= 0x1p110f; /* times a denormal: not small, if that is not zero */
    if (kind == WILD && kh_random() % 10) value = kh_random() % 16 ? value * 0x1p-63f : kh_special();
    return syi_bf16_from_float(value);
}

/* An expert has at most so many tokens in a group. */
static void check_counts(int op, const struct shape *s, int leaf, int x, int w, int most)
{
    struct sy_attr_leaf attr = {leaf};
    uint32_t have = kh_tile_features();
    for (int out = SY_F32, i = 0; i < 2; out = SY_BF16, i++) {
        const struct sy_kernel *kernel;
        struct kh k;
        uint64_t at = 0;
        int kernels = 0;
        char what[120];
        snprintf(what, sizeof what, "op %d: experts %d, groups %d, slots %d, k %d, n %d, leaf %d, out %d", op,
                 s->experts, s->groups, s->slots, s->k, s->n, leaf, out);
        kh_begin(&k, op, &attr, sizeof attr);
        add_operands(&k, s, SY_BF16, out);
        for (int in = 0; in < 2; in++)
            for (int64_t j = 0; j < sycpu_count(&k.in[in]); j++)
                ((uint16_t *)k.in[in].data)[j] = value_of(in ? w : x);
        if (s->experts) add_counts_up_to(&k, s, most);
        model(&k);
        while ((kernel = kh_next(op, SY_BF16, out, have, &at))) {
            if (!(kernel->needs & (SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED))) continue;
            kernels++;
            for (int threads = 1; threads <= 3; threads += 2) {
                void *got[SY_MAX_OUT];
                kh_run(&k, kernel, threads, got, what);
                int64_t bad = differs(&k.out[0], got[0], k.want[0]);
                cr_assert_lt(bad, 0, "%s: %s, %d threads: element %lld differs from the model", what,
                             kernel->name, threads, (long long)bad);
                kh_free_guarded(got[0]);
            }
        }
        cr_assert_gt(kernels, 0, "%s: no kernel", what);
        kh_end(&k);
    }
}

static void check(int op, const struct shape *s, int leaf, int x, int w)
{
    check_counts(op, s, leaf, x, w, s->slots);
}

static void check_leaves(int op, const struct shape *s, int x, int w)
{
    int axis = leaf_axis(op, s);
    for (int leaves = 1; leaves <= 8; leaves *= 2)
        if (axis % leaves == 0) check(op, s, axis / leaves, x, w);
}

/* ---- shapes ---- */

/* Rows below and above those of vectors and of one tile; contractions that fill tiles, and that do not; rows of A that
 * are read in place, or packed for their alignment, their length or their number. */
Test(gemm_amx, plain_products)
{
    static const struct shape shapes[] = {
        {0, 1, 1, 1, 1},   {0, 1, 2, 3, 5},    {0, 2, 7, 16, 33},  {0, 1, 15, 40, 31},  {0, 2, 8, 32, 64},
        {0, 4, 9, 66, 65}, {0, 1, 31, 24, 16}, {0, 2, 32, 64, 96}, {0, 8, 13, 128, 40}, {0, 1, 97, 31, 34}};
    for (int op = 0; op < 3; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            check_leaves(plain_ops[op], &shapes[i], ORDINARY, ORDINARY);
}

/* Rows of 2 KiB, which are packed; several groups of columns, x kept from one to the next; pieces of a list of rows. */
Test(gemm_amx, long_contractions)
{
    static const struct shape nn = {0, 1, 33, 1024, 3}, nt = {0, 1, 33, 3, 1024}, tn = {0, 4, 150, 3, 5},
                              wide = {0, 1, 17, 1024, 600}, kept = {0, 4, 2048, 33, 256};
    check(SY_OP_MATMUL, &nn, 256, ORDINARY, ORDINARY);
    check(SY_OP_MATMUL_NT, &nt, 512, ORDINARY, ORDINARY);
    check(SY_OP_MATMUL_TN, &tn, 2, ORDINARY, ORDINARY);
    check(SY_OP_MATMUL, &wide, 1024, ORDINARY, ORDINARY);
    check(SY_OP_MATMUL_TN, &kept, 2, ORDINARY, ORDINARY);
}

/* Rows times weights, and transposed ones, over a vocabulary, both packed in chunks: parts of a leaf, and leaves that end with zeros,
 * one and several at a time. */
Test(gemm_amx, contractions_over_a_vocabulary)
{
    static const int depth[] = {8184, 8032, 8064}, leaf[] = {2046, 502, 63};
    for (int i = 0; i < 3; i++) {
        check(SY_OP_MATMUL, &(struct shape){0, 1, 33, depth[i], 2}, leaf[i], ORDINARY, ORDINARY);
        check(SY_OP_MATMUL_NT, &(struct shape){0, 1, 35, 2, depth[i]}, leaf[i], ORDINARY, ORDINARY);
    }
}

/* Chunks of the contraction: of one leaf and of two, by several blocks of columns and of rows, whose last tiles are not whole. */
Test(gemm_amx, sums_over_many_tokens)
{
    static const struct shape wide = {0, 8, 256, 40, 540}, tall = {0, 8, 210, 530, 45};
    check(SY_OP_MATMUL_TN, &wide, 1, ORDINARY, ORDINARY);
    check(SY_OP_MATMUL_TN, &tall, 1, ORDINARY, ORDINARY);
    check(SY_OP_MATMUL_TN, &tall, 2, ORDINARY, ORDINARY);
}

/* Chunks of rows times weights: parts of leaves, whose sums leave the tiles between them, with another tile after them or the same
 * one; several leaves each; rows that are read in place and rows that are packed; an expert of few rows, which has none. */
Test(gemm_amx, parts_of_leaves_and_several_leaves_at_a_time)
{
    static const int leaves[] = {832, 416, 64};
    for (int op = 0; op < 2; op++)
        for (int i = 0; i < 3; i++) {
            const int depth = i < 2 ? 832 : 1024, nn = plain_ops[op] == SY_OP_MATMUL;
            const struct shape wide = {0, 1, 75, nn ? depth : 70, nn ? 70 : depth},
                               narrow = {0, 1, 33, nn ? depth : 5, nn ? 5 : depth};
            check(plain_ops[op], &wide, leaves[i], ORDINARY, ORDINARY);
            check(plain_ops[op], &narrow, leaves[i], WILD, WILD);
        }
    static const struct shape expert = {1, 2, 24, 832, 40};
    for (int round = 0; round < 8; round++) check(SY_OP_GROUPED_MATMUL, &expert, 416, ORDINARY, ORDINARY);
}

Test(gemm_amx, denormals_infinities_and_nan)
{
    static const struct shape few = {0, 1, 5, 96, 35}, many = {0, 4, 10, 96, 35};
    static const int kinds[][2] = {{WILD, WILD}, {TINY, TINY}, {DENORMAL, LARGE}, {LARGE, DENORMAL}};
    for (int op = 0; op < 3; op++)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            check_leaves(plain_ops[op], &few, kinds[i][0], kinds[i][1]);
            check_leaves(plain_ops[op], &many, kinds[i][0], kinds[i][1]);
        }
}

Test(gemm_amx, expert_buffers_with_ragged_counts)
{
    static const struct shape shapes[] = {{1, 1, 1, 1, 1},    {4, 4, 5, 16, 33},  {3, 8, 9, 20, 32},
                                          {5, 2, 40, 32, 35}, {4, 1, 64, 64, 33}, {2, 4, 33, 27, 45}};
    for (int op = 0; op < N_GROUPED; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            check_leaves(grouped_ops[op], &shapes[i], ORDINARY, ORDINARY);
}

/* Few rows, which vectors multiply, after an expert whose rows fill tiles and who has the scratch until then. */
Test(gemm_amx, few_rows_after_whole_tiles)
{
    static const struct shape shape = {3, 1, 32, 64, 32};
    for (int round = 0; round < 8; round++) check_leaves(SY_OP_GROUPED_MATMUL, &shape, ORDINARY, ORDINARY);
}

/* Gradients of experts with a few tokens a leaf, which vectors compute, unless a result is too small for that or a leaf too long: by
 * columns of an expert and by rows, parts of six rows; with and without leaves that are empty. */
Test(gemm_amx, sums_over_few_tokens)
{
    static const struct shape shapes[] = {{5, 8, 6, 37, 64},  {4, 8, 2, 30, 96}, {2, 8, 5, 40, 64},
                                          {4, 8, 5, 13, 800}, {3, 8, 12, 6, 32}, {3, 2, 40, 20, 32}};
    static const int kinds[][2] = {
        {ORDINARY, ORDINARY}, {WILD, WILD}, {TINY, TINY}, {DENORMAL, LARGE}, {LARGE, DENORMAL}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
            check_leaves(SY_OP_GROUPED_MATMUL_TN, &shapes[i], kinds[kind][0], kinds[kind][1]);
}

/* Few tokens in many slots, whose sums are too small for vectors: what tiles take instead goes where vectors had the tokens, which is
 * also where rows are kept from one group of columns to the next. */
Test(gemm_amx, small_sums_of_few_tokens_over_a_vocabulary)
{
    static const struct shape shape = {2, 8, 64, 13, 4224};
    for (int round = 0; round < 4; round++) check_counts(SY_OP_GROUPED_MATMUL_TN, &shape, 1, TINY, TINY, 2);
}

/* What nobody thought of. */
Test(gemm_amx, shapes_drawn_at_random)
{
    for (int n = draw_begin(20); n > 0; n--) {
        struct shape s;
        int op = draw_product(&s, 2e5), axis = leaf_axis(op, &s), leaves = 1 << kh_random() % 4;
        check(op, &s, axis % leaves ? axis : axis / leaves, ORDINARY, ORDINARY);
    }
}
