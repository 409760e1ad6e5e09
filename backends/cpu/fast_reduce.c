/* SPDX-License-Identifier: Apache-2.0 */
/* block_sum, block_sumsq, block_max, tree_axis, tree_add, max_axis, column_sum, vectorised; orders as in
 * doc/numerics.md. */
#include "config.h"

#include "backends/cpu/fast_top.h"

/* ---- blocks: a task is a block, or a range of columns where a block is one column wide ---- */

enum { COLUMNS = 256, MOST_TOGETHER = 16, TASKS_A_THREAD = 4 };

struct blocks {
    const struct sy_call *call;
    const int64_t *leaf;
    int square;
    int64_t together; /* blocks of a task, next to each other in the last dim */
};

/* Walks the rows of a block. */
struct walk {
    int64_t x;                                    /* element that the row at hand begins with */
    int64_t rows;                                 /* of the block */
    int64_t at[SY_MAX_DIMS], stride[SY_MAX_DIMS]; /* place in the block, elements from one to the next */
};

/* Block `index` of those numbered over all dims before `last`, at the first column. */
static struct walk walk_begin(const struct blocks *b, int64_t index)
{
    const struct sy_tensor *in = &b->call->in[0];
    int last = in->rank - 1;
    struct walk w = {.rows = 1};
    w.stride[last] = 1;
    for (int d = last - 1; d >= 0; d--) {
        int64_t n = in->dim[d] / b->leaf[d];
        w.stride[d] = w.stride[d + 1] * in->dim[d + 1];
        w.x += index % n * b->leaf[d] * w.stride[d];
        index /= n;
        w.rows *= b->leaf[d];
    }
    return w;
}

static inline void walk_next(const struct blocks *b, struct walk *w)
{
    for (int d = b->call->in[0].rank - 2; d >= 0; d--) {
        w->x += w->stride[d];
        if (++w->at[d] < b->leaf[d]) break;
        w->x -= b->leaf[d] * w->stride[d];
        w->at[d] = 0;
    }
}

/* Row sum of fma(x, x, lane) of bfloat16, as vf_row_dot. */
static inline float half_row_squares(const uint16_t *x, int64_t n)
{
    vf acc = vf_set(0.0f);
#define TAKE(c, count)                                                                                       \
    do {                                                                                                     \
        vf v = fast_get(x, 1, c, count), more = vf_fma(v, v, acc);                                           \
        acc = (count) == SYCPU_LANES ? more : vf_select(vf_first(count), more, acc);                         \
    } while (0)
    FAST_COLUMNS(c, n, TAKE);
#undef TAKE
    return vf_sum(acc);
}

/* Sum, or sum of squares, of n elements of a row from `at` on. What is bfloat16 has squares alone. */
static inline float row_of(const struct blocks *b, int64_t at, int64_t n)
{
    const void *x = fast_at(&b->call->in[0], at);
    if (fast_is_bf16(&b->call->in[0])) return half_row_squares(x, n);
    return b->square ? vf_row_dot(x, x, n) : vf_row_sum(x, n);
}

/* Blocks next to each other in the last dim are summed together, row by row: whole rows are read one after the other,
 * which memory serves faster than a part of each. */
static void block_task(void *arg, int64_t task, int thread)
{
    const struct blocks *b = arg;
    const struct sy_tensor *in = &b->call->in[0];
    int64_t n = b->leaf[in->rank - 1], wide = in->dim[in->rank - 1] / n;
    int64_t parts = (wide + b->together - 1) / b->together, first = task % parts * b->together;
    int64_t count = wide - first < b->together ? wide - first : b->together;
    struct walk w = walk_begin(b, task / parts);
    float acc[MOST_TOGETHER] = {0};
    (void)thread;
    for (int64_t row = 0; row < w.rows; row++, walk_next(b, &w))
        for (int64_t i = 0; i < count; i++) acc[i] += row_of(b, w.x + (first + i) * n, n);
    memcpy((float *)b->call->out[0].data + task / parts * wide + first, acc, (size_t)count * sizeof *acc);
}

/* Blocks one column wide: the row sum of one element is itself (or its square; a zero of either sign adds
 * nothing), so the chains of the columns run next to each other. */
static void column_task(void *arg, int64_t task, int thread)
{
    const struct blocks *b = arg;
    const struct sy_tensor *in = &b->call->in[0];
    int64_t D = in->dim[in->rank - 1], parts = (D + COLUMNS - 1) / COLUMNS, first = task % parts * COLUMNS;
    int64_t count = D - first < COLUMNS ? D - first : COLUMNS;
    struct walk w = walk_begin(b, task / parts);
    float acc[COLUMNS] = {0};
    const int half = fast_is_bf16(in);
    (void)thread;
    for (int64_t row = 0; row < w.rows; row++, walk_next(b, &w)) {
        const void *x = fast_at(in, w.x + first);
#define SUM(c, n) vf_store(acc + c, vf_add(vf_load(acc + c), fast_get(x, half, c, n)))
#define SQUARES(c, n)                                                                                        \
    vf_store(acc + c, vf_add(vf_load(acc + c), vf_mul(fast_get(x, half, c, n), fast_get(x, half, c, n))))
        if (b->square)
            FAST_COLUMNS(c, count, SQUARES);
        else
            FAST_COLUMNS(c, count, SUM);
#undef SUM
#undef SQUARES
    }
    memcpy((float *)b->call->out[0].data + task / parts * D + first, acc, (size_t)count * sizeof *acc);
}

/* As many blocks together as leave every thread some tasks. */
static int64_t blocks_together(const struct sy_call *call, int64_t bands, int64_t wide)
{
    int64_t most = bands * wide / (TASKS_A_THREAD * call->host->threads);
    if (most > wide) most = wide;
    return most > MOST_TOGETHER ? MOST_TOGETHER : most < 1 ? 1 : most;
}

static int block_sums(const struct sy_call *call, int square)
{
    const struct sy_tensor *out = &call->out[0];
    struct blocks blocks = {call, ((const struct sy_attr_block *)call->attr)->leaf, square, 1};
    int last = out->rank - 1;
    int64_t bands = sycpu_extent(out, last), wide = out->dim[last];
    if (blocks.leaf[last] == 1) {
        sycpu_parallel(call, bands * ((wide + COLUMNS - 1) / COLUMNS), column_task, &blocks);
        return SY_OK;
    }
    blocks.together = blocks_together(call, bands, wide);
    sycpu_parallel(call, bands * ((wide + blocks.together - 1) / blocks.together), block_task, &blocks);
    return SY_OK;
}

int fast_block_sum(void *context, const struct sy_call *call)
{
    (void)context;
    return block_sums(call, 0);
}

int fast_block_sumsq(void *context, const struct sy_call *call)
{
    (void)context;
    return block_sums(call, 1);
}

/* ---- largest numbers ---- */

static void block_max_task(void *arg, int64_t index, int thread)
{
    const struct blocks *b = arg;
    const struct sy_tensor *in = &b->call->in[0];
    int64_t n = b->leaf[in->rank - 1], wide = in->dim[in->rank - 1] / n;
    struct walk w = walk_begin(b, index / wide);
    struct fast_top top = {vf_set(0.0f), vf_set(0.0f)};
    (void)thread;
    w.x += index % wide * n;
    for (int64_t row = 0; row < w.rows; row++, walk_next(b, &w)) {
        const float *x = (const float *)in->data + w.x;
#define TAKE(c, count)                                                                                       \
    fast_top_take(&top, fast_magnitude(fast_load(x + c, count))) /* 0 where there is nothing */
        FAST_COLUMNS(c, n, TAKE);
#undef TAKE
    }
    ((float *)b->call->out[0].data)[index] = fast_top_lane(&top);
}

int fast_block_max(void *context, const struct sy_call *call)
{
    struct blocks blocks = {call, ((const struct sy_attr_block *)call->attr)->leaf, 0, 1};
    (void)context;
    sycpu_parallel(call, sycpu_count(&call->out[0]), block_max_task, &blocks);
    return SY_OK;
}

/* ---- trees ---- */

/* Sixteen columns: partial sums wait on a stack, as many as the number of terms done has binary ones. */
struct stack {
    vf sum[64];
    int depth;
};

/* Adds term `index`, counted from 0. */
static inline void push(struct stack *stack, int64_t index, vf term)
{
    for (int64_t j = index; j & 1; j >>= 1) term = vf_add(stack->sum[--stack->depth], term);
    stack->sum[stack->depth++] = term;
}

/* x[outer, terms, inner] -> out[outer, inner]; a row is a run of sixteen columns of inner. */
struct lines {
    int64_t outer, terms, inner;
};

static struct lines lines_of(const struct sy_call *call)
{
    const struct sy_tensor *in = &call->in[0];
    int dim = call->op == SY_OP_TREE_ADD ? 0 : (int)((const struct sy_attr_axis *)call->attr)->dim;
    struct lines lines = {sycpu_extent(in, dim), in->dim[dim], 1};
    for (int i = dim + 1; i < in->rank; i++) lines.inner *= in->dim[i];
    return lines;
}

static void tree_lines(const struct sy_call *call, int64_t first, int64_t end)
{
    const struct lines lines = lines_of(call);
    int64_t vectors = (lines.inner + SYCPU_LANES - 1) / SYCPU_LANES, padded = 1;
    while (padded < lines.terms) padded *= 2;
    for (; first < end; first++) {
        int64_t outer = first / vectors, c = first % vectors * SYCPU_LANES;
        int64_t n = lines.inner - c < SYCPU_LANES ? lines.inner - c : SYCPU_LANES;
        const float *x = (const float *)call->in[0].data + outer * lines.terms * lines.inner + c;
        struct stack stack;
        stack.depth = 0;
        for (int64_t i = 0; i < padded; i++)
            push(&stack, i, i < lines.terms ? fast_load(x + i * lines.inner, n) : vf_set(0.0f));
        fast_store((float *)call->out[0].data + outer * lines.inner + c, stack.sum[0], n);
    }
}

static int tree(const struct sy_call *call)
{
    const struct lines lines = lines_of(call);
    int64_t vectors = lines.outer * ((lines.inner + SYCPU_LANES - 1) / SYCPU_LANES);
    fast_rows(call, vectors, SYCPU_LANES * lines.terms, tree_lines);
    return SY_OK;
}

int fast_tree_axis(void *context, const struct sy_call *call)
{
    (void)context;
    return tree(call);
}

int fast_tree_add(void *context, const struct sy_call *call)
{
    (void)context;
    return tree(call);
}

/* ---- max_axis ---- */

static void max_columns(const struct sy_call *call, int64_t first, int64_t end)
{
    const struct lines lines = lines_of(call);
    int64_t vectors = (lines.inner + SYCPU_LANES - 1) / SYCPU_LANES;
    for (; first < end; first++) {
        int64_t outer = first / vectors, c = first % vectors * SYCPU_LANES;
        int64_t n = lines.inner - c < SYCPU_LANES ? lines.inner - c : SYCPU_LANES;
        const float *x = (const float *)call->in[0].data + outer * lines.terms * lines.inner + c;
        struct fast_top top = {vf_set(-__builtin_inff()), vf_set(0.0f)};
        for (int64_t i = 0; i < lines.terms; i++) fast_top_take(&top, fast_load(x + i * lines.inner, n));
        fast_store((float *)call->out[0].data + outer * lines.inner + c, fast_top_result(&top), n);
    }
}

/* Lines that lie in one piece, each in sixteen parts. */
static void max_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const int64_t n = lines_of(call).terms;
    const vf least = vf_set(-__builtin_inff());
    for (; first < end; first++) {
        const float *x = (const float *)call->in[0].data + first * n;
        struct fast_top top = {least, vf_set(0.0f)};
#define TAKE(c, count) fast_top_take(&top, vf_select(vf_first(count), fast_load(x + c, count), least))
        FAST_COLUMNS(c, n, TAKE);
#undef TAKE
        ((float *)call->out[0].data)[first] = fast_top_lane(&top);
    }
}

int fast_max_axis(void *context, const struct sy_call *call)
{
    const struct lines lines = lines_of(call);
    int64_t vectors = (lines.inner + SYCPU_LANES - 1) / SYCPU_LANES;
    (void)context;
    if (lines.inner == 1)
        fast_rows(call, lines.outer, lines.terms, max_rows);
    else
        fast_rows(call, lines.outer * vectors, SYCPU_LANES * lines.terms, max_columns);
    return SY_OK;
}

/* ---- column_sum: a row of tasks is sixteen columns ---- */

static void sum_columns(const struct sy_call *call, int64_t first, int64_t end)
{
    const int64_t *dim = call->in[0].dim, leaf = ((const struct sy_attr_leaf *)call->attr)->leaf;
    for (int64_t c = first * SYCPU_LANES; c < end * SYCPU_LANES && c < dim[2]; c += SYCPU_LANES) {
        int64_t n = dim[2] - c < SYCPU_LANES ? dim[2] - c : SYCPU_LANES;
        const float *x = (const float *)call->in[0].data + c;
        struct stack stack;
        stack.depth = 0;
        for (int64_t i = 0; i < dim[0] / leaf; i++) {
            vf acc = vf_set(0.0f);
            for (int64_t row = 0; row < leaf * dim[1]; row++, x += dim[2]) acc = vf_add(acc, fast_load(x, n));
            push(&stack, i, acc); /* never -0, so nothing is left to close the leaf */
        }
        fast_store((float *)call->out[0].data + c, stack.sum[0], n);
    }
}

int fast_column_sum(void *context, const struct sy_call *call)
{
    (void)context;
    const int64_t *dim = call->in[0].dim;
    fast_rows(call, (dim[2] + SYCPU_LANES - 1) / SYCPU_LANES, SYCPU_LANES * dim[0] * dim[1], sum_columns);
    return SY_OK;
}
