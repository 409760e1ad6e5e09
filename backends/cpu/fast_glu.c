/* SPDX-License-Identifier: Apache-2.0 */
/* glu and its gradient, vectorised. A task is a row of b (or an expert and group): one dropout mask serves
 * all its positions. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/fast_zero.h"
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
};

/* The part of gate of two tensors, or of one in which linear follows a block of it; NULL: there is none. */
static void *linear_of(const struct glu *g, const struct sy_tensor *gate, const struct sy_tensor *linear)
{
    return g->packed ? (char *)gate->data + g->width * (g->half ? 2 : 4) : linear->data;
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

/* n columns of one position: gate and linear from element `from` on, y from `at` on; mask NULL: no dropout. Inlined with a
 * constant kind and dtype. */
ALWAYS_INLINE void forward(const struct glu *g, int64_t from, int64_t at, const float *mask, int64_t n,
                           int kind, int half)
{
    const void *gate = g->gate, *linear = g->linear;
    void *y = g->call->out[0].data;
    int64_t done = 0;
#if HAS_WIDE
    for (; done + VW_LANES <= n; done += VW_LANES) {
        vw v =
            vw_mul(vw_activation(vw_get(gate, half, from + done), kind), vw_get(linear, half, from + done));
        if (mask) v = vw_drop(v, vw_get(mask, 0, done));
        vw_put(y, half, at + done, v);
    }
#endif
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vf v = vf_mul(vf_activation(fast_get(gate, half, from + c, count), kind),                            \
                      fast_get(linear, half, from + c, count));                                              \
        if (mask) v = vf_drop(v, fast_load(mask + c, count));                                                \
        fast_put(y, half, at + c, v, count);                                                                 \
    } while (0)
    FAST_COLUMNS_FROM(done, c, n, BODY);
#undef BODY
}

ALWAYS_INLINE void backward(const struct glu *g, int64_t from, int64_t at, const float *mask, int64_t n,
                            int kind, int half)
{
    const void *gate = g->gate, *linear = g->linear, *dy = g->call->in[1].data;
    void *dgate = g->dgate, *dlinear = g->dlinear;
    int64_t done = 0;
#if HAS_WIDE
    for (; done + VW_LANES <= n; done += VW_LANES) {
        vw value, slope = vw_activation_both(vw_get(gate, half, from + done), kind, &value);
        vw other = vw_get(linear, half, from + done), d = vw_get(dy, half, at + done);
        if (mask) d = vw_drop(d, vw_get(mask, 0, done));
        vw_put(dlinear, half, from + done, vw_mul(d, value));
        vw_put(dgate, half, from + done, vw_mul(vw_mul(d, other), slope));
    }
#endif
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vf value, slope = vf_activation_both(fast_get(gate, half, from + c, count), kind, &value);           \
        vf other = fast_get(linear, half, from + c, count), d = fast_get(dy, half, at + c, count);           \
        if (mask) d = vf_drop(d, fast_load(mask + c, count));                                                \
        fast_put(dlinear, half, from + c, vf_mul(d, value), count);                                          \
        fast_put(dgate, half, from + c, vf_mul(vf_mul(d, other), slope), count);                             \
    } while (0)
    FAST_COLUMNS_FROM(done, c, n, BODY);
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

static void run_forward(const struct glu *g, int64_t from, int64_t at, const float *mask, int64_t n)
{
#define CASE(kind, half) forward(g, from, at, mask, n, kind, half)
    EACH_KIND(g->kind, g->half, CASE)
#undef CASE
}

static void run_backward(const struct glu *g, int64_t from, int64_t at, const float *mask, int64_t n)
{
#define CASE(kind, half) backward(g, from, at, mask, n, kind, half)
    EACH_KIND(g->kind, g->half, CASE)
#undef CASE
}

typedef void (*run_fn)(const struct glu *, int64_t, int64_t, const float *, int64_t);

/* +0 for the slots of a task past the count. */
static void zero_empty(const struct glu *g, const struct sy_tensor *out, int64_t outer, int64_t filled)
{
    int64_t columns = out->rank ? out->dim[out->rank - 1] : 0;
    if (columns) fast_zero(out, (outer * g->inner + filled) * columns, (g->inner - filled) * columns);
}

/* The positions of a task, in runs of columns inside one block. */
static inline void each_run(const struct glu *g, int64_t outer, run_fn run)
{
    int64_t filled = fast_length(g->counts, outer, g->inner), width = g->width, n, end;
    const int drops = SY_TRAINING && g->dropout.threshold;
    int64_t span = drops ? MASK_COLUMNS : g->columns;
    float mask[MASK_COLUMNS];
    for (int64_t begin = 0; begin < g->columns && filled; begin = end) {
        end = begin + span < g->columns ? begin + span : g->columns;
        if (drops) glu_mask(g, outer, begin, end - begin, mask);
        for (int64_t i = 0; i < filled; i++) {
            int64_t row = (outer * g->inner + i) * g->columns;
            for (int64_t c = begin; c < end; c += n) {
                n = width - c % width < end - c ? width - c % width : end - c;
                run(g, g->packed ? 2 * row + c / width * 2 * width + c % width : row + c, row + c,
                    drops ? mask + c - begin : NULL, n);
            }
        }
    }
    for (int i = 0; i < g->call->n_out; i++) zero_empty(g, &g->call->out[i], outer, filled);
}

static void forward_task(void *arg, int64_t outer, int thread)
{
    const struct glu *g = arg;
    (void)thread;
    each_run(g, outer, run_forward);
}

static void backward_task(void *arg, int64_t outer, int thread)
{
    const struct glu *g = arg;
    (void)thread;
    each_run(g, outer, run_backward);
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
