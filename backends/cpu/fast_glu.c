/* SPDX-License-Identifier: Apache-2.0 */
/* glu and its gradient, vectorised. A task is a row of b (or an expert and group): one dropout mask serves
 * all its positions. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/fast_far.h"
#if defined(__AVX512F__) && SY_TRAINING /* a program that only answers does without, to be small */
#    include "backends/cpu/simd_wide.h"
#    define HAS_WIDE 1
#else
#    define HAS_WIDE 0
#endif

enum { MASK_COLUMNS = 2048 };

struct glu {
    const struct sy_call *call;
    const struct sy_tensor *y, *counts; /* the tensor [...f]; counts[e][b], data NULL: none */
    const int64_t *rng;
    const void *gate, *linear;     /* linear: from the same element on as gate */
    void *dgate, *dlinear;         /* likewise, of the gradient */
    int64_t inner, columns, width; /* positions or slots of a task; columns of y; of a block */
    int packed;                    /* 1: gate and linear are blocks of one tensor */
    struct syi_dropout dropout;
    enum sy_activation kind;
    int half; /* 1: all operands are bf16 */
    int far;  /* 1: results go past the caches */
};

/* Columns of one position, inside one block. */
struct piece {
    int64_t from, at, n;        /* the first element in gate and linear, in y; columns */
    int64_t next_from, next_at; /* the same of the position that follows, which is asked for meanwhile */
    const float *mask;          /* NULL: no dropout */
};

/* The part of gate of two tensors, or of one in which linear follows a block of it; NULL: there is none. */
static void *linear_of(const struct glu *g, const struct sy_tensor *gate, const struct sy_tensor *linear)
{
    return g->packed ? (char *)gate->data + g->width * (g->half ? 2 : 4) : linear->data;
}

static int goes_far(const struct sy_call *call, const struct glu *g)
{
    int far = g->width % SYCPU_LANES == 0;
    for (int i = 0; i < call->n_out; i++) far = far && (!call->out[i].rank || fast_is_far(&call->out[i]));
    return far;
}

/* y: the tensor [...f]; rng: the first of the inputs that glu and its gradient have alike. */
static struct glu glu_open(const struct sy_call *call, const struct sy_tensor *y, const struct sy_tensor *rng)
{
    const struct sy_attr_glu *attr = call->attr;
    struct glu g = {.call = call, .y = y, .counts = rng + 1, .rng = rng->data};
    g.inner = y->dim[y->rank - 2];
    g.columns = y->dim[y->rank - 1];
    g.packed = attr->width > 0;
    g.width = g.packed ? attr->width : g.columns;
    g.kind = (enum sy_activation)attr->activation;
    g.half = fast_is_bf16(y);
    g.far = SY_TRAINING && goes_far(call, &g);
    g.gate = call->in[0].data;
    g.linear = linear_of(&g, &call->in[0], rng + 2);
    g.dropout = syi_dropout_init(g.rng, attr->site, attr->rate);
    return g;
}

static void glu_mask(const struct glu *g, int64_t outer, int64_t column, int64_t n, float *mask)
{
    const struct sy_tensor *y = g->y;
    int64_t row, position = 0;
    if (y->rank == 4) {
        row = y->first[1] + outer % y->dim[1] + g->rng[SY_RNG_GROUP0];
        position = y->first[0] + outer / y->dim[1];
    } else {
        row = y->first[0] + outer + g->rng[SY_RNG_ROW0];
    }
    vf_dropout_mask(&g->dropout, (uint32_t)row, (uint32_t)position, y->first[y->rank - 1] + column, n, mask);
}

/* ---- one piece ---- */

/* Lines of floats. With bf16 the arithmetic is the bound, and asking takes its places. */
static inline void ask_for(const void *x, int half, int64_t first, int64_t n)
{
    for (int64_t i = 0; SY_TRAINING && !half && i < n; i += SYCPU_LANES)
        __builtin_prefetch((const float *)x + first + i);
}

/* Those of gate and linear. */
static inline void ask_for_both(const struct glu *g, int half, int64_t first, int64_t n)
{
    ask_for(g->gate, half, first, n);
    ask_for(g->linear, half, first, n);
}

/* A program that only answers has no results so large. */
static inline int is_far(const struct glu *g)
{
    return SY_TRAINING && g->far;
}

static inline void put(const struct glu *g, void *y, int half, int64_t i, vf v, int64_t n)
{
    if (!half && is_far(g))
        vf_stream((float *)y + i, v);
    else
        fast_put(y, half, i, v, n);
}

#if HAS_WIDE
static inline void put_wide(const struct glu *g, void *y, int half, int64_t i, vw v)
{
    put(g, y, half, i, v.a, SYCPU_LANES);
    put(g, y, half, i + SYCPU_LANES, v.b, SYCPU_LANES);
    put(g, y, half, i + 2 * SYCPU_LANES, v.c, SYCPU_LANES);
    put(g, y, half, i + 3 * SYCPU_LANES, v.d, SYCPU_LANES);
}
#endif

/* Inlined with a constant kind and dtype. */
ALWAYS_INLINE void forward(const struct glu *g, const struct piece *p, int kind, int half)
{
    const void *gate = g->gate, *linear = g->linear;
    const float *mask = p->mask;
    void *y = g->call->out[0].data;
    int64_t done = 0;
#if HAS_WIDE
    for (; done + VW_LANES <= p->n; done += VW_LANES) {
        vw v = vw_mul(vw_activation(vw_get(gate, half, p->from + done), kind),
                      vw_get(linear, half, p->from + done));
        if (mask) v = vw_drop(v, vw_get(mask, 0, done));
        put_wide(g, y, half, p->at + done, v);
        ask_for_both(g, half, p->next_from + done, VW_LANES);
    }
#endif
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vf v = vf_mul(vf_activation(fast_get(gate, half, p->from + c, count), kind),                         \
                      fast_get(linear, half, p->from + c, count));                                           \
        if (mask) v = vf_drop(v, fast_load(mask + c, count));                                                \
        put(g, y, half, p->at + c, v, count);                                                                \
        ask_for_both(g, half, p->next_from + c, 1);                                                          \
    } while (0)
    FAST_COLUMNS_FROM(done, c, p->n, BODY);
#undef BODY
}

ALWAYS_INLINE void backward(const struct glu *g, const struct piece *p, int kind, int half)
{
    const void *gate = g->gate, *linear = g->linear, *dy = g->call->in[1].data;
    const float *mask = p->mask;
    void *dgate = g->dgate, *dlinear = g->dlinear;
    int64_t done = 0;
#if HAS_WIDE
    for (; done + VW_LANES <= p->n; done += VW_LANES) {
        vw value, slope = vw_activation_both(vw_get(gate, half, p->from + done), kind, &value);
        vw other = vw_get(linear, half, p->from + done), d = vw_get(dy, half, p->at + done);
        if (mask) d = vw_drop(d, vw_get(mask, 0, done));
        put_wide(g, dlinear, half, p->from + done, vw_mul(d, value));
        put_wide(g, dgate, half, p->from + done, vw_mul(vw_mul(d, other), slope));
        ask_for_both(g, half, p->next_from + done, VW_LANES);
        ask_for(dy, half, p->next_at + done, VW_LANES);
    }
#endif
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vf value, slope = vf_activation_both(fast_get(gate, half, p->from + c, count), kind, &value);        \
        vf other = fast_get(linear, half, p->from + c, count), d = fast_get(dy, half, p->at + c, count);     \
        if (mask) d = vf_drop(d, fast_load(mask + c, count));                                                \
        put(g, dlinear, half, p->from + c, vf_mul(d, value), count);                                         \
        put(g, dgate, half, p->from + c, vf_mul(vf_mul(d, other), slope), count);                            \
        ask_for_both(g, half, p->next_from + c, 1);                                                          \
        ask_for(dy, half, p->next_at + c, 1);                                                                \
    } while (0)
    FAST_COLUMNS_FROM(done, c, p->n, BODY);
#undef BODY
}

/* CASE for every activation and dtype. */
#define EACH_KIND(kind, half, CASE)                                                                          \
    switch (2 * (kind) + (half)) {                                                                           \
    case 2 * SY_RELU: CASE(SY_RELU, 0); break;                                                               \
    case 2 * SY_GELU: CASE(SY_GELU, 0); break;                                                               \
    case 2 * SY_SILU: CASE(SY_SILU, 0); break;                                                               \
    case 2 * SY_LINEAR: CASE(SY_LINEAR, 0); break;                                                           \
    case 2 * SY_RELU + 1: CASE(SY_RELU, 1); break;                                                           \
    case 2 * SY_GELU + 1: CASE(SY_GELU, 1); break;                                                           \
    case 2 * SY_SILU + 1: CASE(SY_SILU, 1); break;                                                           \
    default: CASE(SY_LINEAR, 1);                                                                             \
    }

static void run_forward(const struct glu *g, const struct piece *p)
{
#define CASE(kind, half) forward(g, p, kind, half)
    EACH_KIND(g->kind, g->half, CASE)
#undef CASE
}

static void run_backward(const struct glu *g, const struct piece *p)
{
#define CASE(kind, half) backward(g, p, kind, half)
    EACH_KIND(g->kind, g->half, CASE)
#undef CASE
}

/* ---- a task ---- */

typedef void (*run_fn)(const struct glu *, const struct piece *);

/* +0 for the slots of a task past the count. */
static void zero_empty(const struct glu *g, const struct sy_tensor *out, int64_t outer, int64_t filled)
{
    int64_t columns = out->rank ? out->dim[out->rank - 1] : 0;
    if (columns) fast_zero(out, (outer * g->inner + filled) * columns, (g->inner - filled) * columns);
}

/* Columns [begin, end) of the position whose first element in y is `row`; next: elements to the position that follows. */
static inline void each_piece(const struct glu *g, int64_t row, int64_t next, int64_t begin, int64_t end,
                              const float *mask, run_fn run)
{
    const int64_t width = g->width;
    for (int64_t c = begin, n; c < end; c += n) {
        struct piece p = {.from = row + c, .at = row + c, .next_at = row + next + c};
        n = p.n = width - c % width < end - c ? width - c % width : end - c;
        if (g->packed) p.from = 2 * row + c / width * 2 * width + c % width;
        p.next_from = p.from + (1 + g->packed) * next;
        p.mask = mask ? mask + c - begin : NULL;
        run(g, &p);
    }
}

static inline void each_position(const struct glu *g, int64_t outer, run_fn run)
{
    int64_t filled = fast_length(g->counts, outer, g->inner), columns = g->columns, end;
    const int drops = SY_TRAINING && g->dropout.threshold;
    int64_t span = drops ? MASK_COLUMNS : columns;
    float mask[MASK_COLUMNS];
    for (int64_t begin = 0; begin < columns && filled; begin = end) {
        end = begin + span < columns ? begin + span : columns;
        if (drops) glu_mask(g, outer, begin, end - begin, mask);
        for (int64_t i = 0; i < filled; i++)
            each_piece(g, (outer * g->inner + i) * columns, (i + 1 < filled ? 1 : g->inner - i) * columns,
                       begin, end, drops ? mask : NULL, run);
    }
    if (is_far(g)) vf_stream_end();
    for (int i = 0; i < g->call->n_out; i++) zero_empty(g, &g->call->out[i], outer, filled);
}

static void forward_task(void *arg, int64_t outer, int thread)
{
    const struct glu *g = arg;
    (void)thread;
    each_position(g, outer, run_forward);
}

static void backward_task(void *arg, int64_t outer, int thread)
{
    const struct glu *g = arg;
    (void)thread;
    each_position(g, outer, run_backward);
}

int fast_glu(void *context, const struct sy_call *call)
{
    (void)context;
    struct glu g = glu_open(call, &call->out[0], &call->in[1]);
    sycpu_parallel(call, sycpu_extent(g.y, g.y->rank - 2), forward_task, &g);
    return SY_OK;
}

int fast_glu_grad(void *context, const struct sy_call *call)
{
    (void)context;
    struct glu g = glu_open(call, &call->in[1], &call->in[2]);
    g.dgate = call->out[0].data;
    g.dlinear = linear_of(&g, &call->out[0], &call->out[1]);
    sycpu_parallel(call, sycpu_extent(g.y, g.y->rank - 2), backward_task, &g);
    return SY_OK;
}
