/* SPDX-License-Identifier: Apache-2.0 */
/* `map_sums`, vectorised: a task is a band of rows, as many as the tallest block has, over all columns, or over part of them
 * where bands are few. Its rows are read one after the other, at most 512 columns at a time: their values stay in the
 * nearest cache, where every output adds them to its sums. The sums and maxima are those of fast_reduce.c, the values that are
 * stored those of fast_map.c. */
#include "config.h"

#include "backends/cpu/fast_map.h"
#include "backends/cpu/fast_top.h"
#include "base/common_multiple.h"

enum { TILE = SY_MAP_SUMS_COLUMNS, TASKS_A_THREAD = 4 };

/* What prepare makes of a call. */
struct plan {
    int64_t rows, columns;    /* of input 0 */
    int64_t band, part;       /* rows and columns of a task, whole blocks of every output */
    int64_t width;            /* columns at a time, whole blocks as well */
    int64_t high[SY_MAX_OUT]; /* rows of a block */
    int64_t wide[SY_MAX_OUT]; /* columns of one */
    uint8_t kind[SY_MAX_IN];  /* enum map_kind */
    fast_whole_fn whole;      /* instead of all instructions, or NULL */
};

/* The part of a row at hand: columns [column, column + n). */
struct tile {
    const struct sy_call *call;
    const struct plan *plan; /* of call */
    const struct sy_attr_map *attr;
    int64_t row, column, n;
    vf constant[MAP_MAX_REGISTERS]; /* as fast_whole_fn has it */
    struct fast_operand reg[MAP_MAX_REGISTERS];
    float same[MAP_MAX_REGISTERS][SYCPU_LANES] __attribute__((aligned(64)));
    float value[SY_MAP_MAX_INSTR][TILE]
        __attribute__((aligned(64))); /* of instructions, or, compiled whole, of outputs */
    float held[SY_MAX_OUT][TILE] __attribute__((aligned(64))); /* as pick_values has it */
};

/* ---- the values of a row ---- */

/* Value `i` of an input that has one element, or one a row. */
static void bind_value(struct tile *t, int input, int64_t i)
{
    t->constant[input] = vf_set(((const float *)t->call->in[input].data)[i]);
    vf_store(t->same[input], t->constant[input]);
    t->reg[input] = (struct fast_operand){t->same[input], 0};
}

/* What does not change over a task. */
static void bind_constants(struct tile *t)
{
    int n_in = t->call->n_in;
    for (int i = 0; i < n_in; i++)
        if (t->plan->kind[i] == MAP_ONE) bind_value(t, i, 0);
    for (int i = 0; i < t->attr->n_instr; i++) {
        t->constant[n_in + i] = vf_set(t->attr->instr[i].s);
        vf_store(t->same[n_in + i], t->constant[n_in + i]);
        t->reg[n_in + i] = (struct fast_operand){t->same[n_in + i], 0};
    }
}

static void bind_spread(struct tile *t, int i)
{
    const struct sy_tensor *in = &t->call->in[i];
    int64_t at = map_spread_begin(in, &t->call->in[0], t->row);
    if (in->dim[in->rank - 1] > 1)
        t->reg[i] = (struct fast_operand){(const float *)in->data + at + t->column, 1};
    else
        bind_value(t, i, at);
}

static void bind_inputs(struct tile *t)
{
    for (int i = 0; i < t->call->n_in; i++) {
        const float *x = t->call->in[i].data;
        switch (t->plan->kind[i]) {
        case MAP_FULL: t->reg[i] = (struct fast_operand){x + t->row * t->plan->columns + t->column, 1}; break;
        case MAP_COLUMN: t->reg[i] = (struct fast_operand){x + t->column, 1}; break;
        case MAP_ROW: bind_value(t, i, t->row); break;
        case MAP_SPREAD: bind_spread(t, i); break;
        default: break; /* one element: set when the task began */
        }
    }
}

static void run_instructions(struct tile *t)
{
    for (int i = 0; i < t->attr->n_instr; i++) {
        const struct sy_map_instr *instr = &t->attr->instr[i];
        int reads = map_arguments[instr->op];
        if (reads == 0) continue; /* an immediate */
        struct fast_operand a = t->reg[instr->a], b = t->reg[reads > 1 ? instr->b : instr->a];
        fast_map_compute(instr, a, b, t->reg[reads > 2 ? instr->c : instr->a], t->n, t->value[i]);
        t->reg[t->call->n_in + i] = (struct fast_operand){t->value[i], 1};
    }
}

static int is_stored(const struct tile *t, int out)
{
    return t->attr->stored >> out & 1;
}

/* Where an output that is stored has the columns at hand. */
static float *place_of(const struct tile *t, int out)
{
    return (float *)t->call->out[out].data + t->row * t->plan->columns + t->column;
}

static void run_whole(struct tile *t)
{
    /* Not cleared, which would take longer than a short row: the function reads what is set here. */
    struct fast_row at;
    for (int i = 0; i < t->call->n_in; i++)
        if (t->plan->kind[i] == MAP_FULL || t->plan->kind[i] == MAP_COLUMN) at.in[i] = t->reg[i].p;
    for (int o = 0; o < t->call->n_out; o++) at.out[o] = is_stored(t, o) ? place_of(t, o) : t->value[o];
    t->plan->whole(&at, t->constant, 0, t->n);
}

/* Where the values of each output lie after the row was computed. One that is the same for all, and one of an input that
 * is to be stored, perhaps over another's, is held apart. */
static void pick_values(struct tile *t, const float **from)
{
    const struct sy_map_instr copy = {.op = SY_MAP_COPY};
    for (int o = 0; o < t->call->n_out; o++) {
        struct fast_operand x = t->reg[t->attr->out_register[o]];
        int from_input = t->attr->out_register[o] < t->call->n_in;
        from[o] = t->plan->whole ? t->value[o] : x.p;
        if (t->plan->whole || (x.step && !(from_input && is_stored(t, o)))) continue;
        fast_map_compute(&copy, x, x, x, t->n, t->held[o]);
        from[o] = t->held[o];
    }
}

/* ---- sums ---- */

/* The sums or maxima of output `out` for the blocks at hand, which begin at 0. */
static float *sums_of(const struct tile *t, int out)
{
    const struct plan *plan = t->plan;
    int64_t high = plan->high[out], wide = plan->wide[out];
    float *sum = (float *)t->call->out[out].data + t->row / high * (plan->columns / wide) + t->column / wide;
    if (t->row % high == 0) memset(sum, 0, (size_t)(t->n / wide) * sizeof *sum);
    return sum;
}

/* Larger of two magnitudes; NaN if one is NaN. */
static inline vf larger(vf a, vf b)
{
    struct fast_top top = {a, vf_select(vf_differs(a, a), a, vf_set(0.0f))};
    fast_top_take(&top, b);
    return fast_top_result(&top);
}

/* Blocks one column wide: their chains run next to each other. */
static void add_columns(const struct tile *t, int out, const float *x)
{
    float *sum = sums_of(t, out);
#define PUT(c, n, v)  fast_store(sum + c, v, n)
#define AT(c, n)      fast_load(sum + c, n)
#define X(c, n)       fast_load(x + c, n)
#define SUM(c, n)     PUT(c, n, vf_add(AT(c, n), X(c, n)))
#define SQUARES(c, n) PUT(c, n, vf_add(AT(c, n), vf_mul(X(c, n), X(c, n))))
#define LARGEST(c, n) PUT(c, n, larger(AT(c, n), fast_magnitude(X(c, n))))
    if (t->attr->squares >> out & 1)
        FAST_COLUMNS(c, t->n, SQUARES);
    else if (t->attr->maxima >> out & 1)
        FAST_COLUMNS(c, t->n, LARGEST);
    else
        FAST_COLUMNS(c, t->n, SUM);
#undef LARGEST
#undef SQUARES
#undef SUM
#undef X
#undef AT
#undef PUT
}

static float raised_to_row(float most, const float *x, int64_t n)
{
    struct fast_top top = {vf_set(0.0f), vf_set(0.0f)};
#define TAKE(c, count) fast_top_take(&top, fast_magnitude(fast_load(x + c, count)))
    FAST_COLUMNS(c, n, TAKE);
#undef TAKE
    float row = fast_top_lane(&top);
    return most != most || row < most ? most : row; /* a NaN is less than nothing */
}

static void add_row(const struct tile *t, int out, const float *x)
{
    int64_t wide = t->plan->wide[out];
    if (wide == 1) {
        add_columns(t, out, x);
        return;
    }
    float *sum = sums_of(t, out);
    if (t->attr->maxima >> out & 1)
        for (int64_t c = 0; c < t->n; c += wide, sum++) *sum = raised_to_row(*sum, x + c, wide);
    else if (t->attr->squares >> out & 1)
        for (int64_t c = 0; c < t->n; c += wide) *sum++ += vf_row_dot(x + c, x + c, wide);
    else
        for (int64_t c = 0; c < t->n; c += wide) *sum++ += vf_row_sum(x + c, wide);
}

/* Sums are added before the first value is stored: it may lie over an input that they read. */
static void add_tile(struct tile *t)
{
    const float *from[SY_MAX_OUT];
    bind_inputs(t);
    if (t->plan->whole)
        run_whole(t);
    else
        run_instructions(t);
    pick_values(t, from);
    for (int o = 0; o < t->call->n_out; o++)
        if (!is_stored(t, o)) add_row(t, o, from[o]);
    if (t->plan->whole) return;
    for (int o = 0; o < t->call->n_out; o++)
        if (is_stored(t, o)) memcpy(place_of(t, o), from[o], (size_t)t->n * sizeof(float));
}

static void task(void *arg, int64_t index, int thread)
{
    const struct sy_call *call = arg;
    const struct plan *plan = call->plan;
    int64_t parts = (plan->columns + plan->part - 1) / plan->part, first = index / parts * plan->band;
    int64_t begin = index % parts * plan->part,
            end = plan->columns - begin < plan->part ? plan->columns : begin + plan->part;
    struct tile t;
    (void)thread;
    t.call = call;
    t.plan = plan;
    t.attr = call->attr;
    bind_constants(&t);
    for (t.row = first; t.row < first + plan->band; t.row++)
        for (t.column = begin; t.column < end; t.column += plan->width) {
            t.n = end - t.column < plan->width ? end - t.column : plan->width;
            add_tile(&t);
        }
}

/* ---- the plan and the kernel ---- */

/* As many columns for a task as leave every thread some tasks. */
static int64_t columns_of_task(const struct plan *plan, int threads)
{
    int64_t bands = plan->rows / plan->band, tiles = (plan->columns + plan->width - 1) / plan->width;
    int64_t together = bands * tiles / (TASKS_A_THREAD * threads);
    if (together > tiles) together = tiles;
    return (together < 1 ? 1 : together) * plan->width;
}

int fast_map_sums_prepare(void *context, const struct sy_call *call, void **plan)
{
    const struct sy_tensor *shape = &call->in[0];
    const int last = shape->rank - 1;
    struct plan made = {
        .rows = sycpu_extent(shape, last), .columns = shape->dim[last], .band = 1, .width = 1};
    (void)context;
    for (int o = 0; o < call->n_out; o++) {
        made.high[o] = last > 0 ? shape->dim[last - 1] / call->out[o].dim[last - 1] : 1;
        made.wide[o] = shape->dim[last] / call->out[o].dim[last];
        made.band = syi_common_multiple(made.band, made.high[o]);
        made.width = syi_common_multiple(made.width, made.wide[o]);
    }
    made.width = TILE / made.width * made.width;
    made.part = columns_of_task(&made, call->host->threads);
    for (int i = 0; i < call->n_in; i++) made.kind[i] = (uint8_t)map_kind(&call->in[i], shape);
    made.whole = fast_map_whole(call, made.kind);
    return sycpu_keep(call, &made, sizeof made, plan);
}

int fast_map_sums(void *context, const struct sy_call *call)
{
    const struct plan *plan = call->plan;
    (void)context;
    sycpu_parallel(call, plan->rows / plan->band * ((plan->columns + plan->part - 1) / plan->part), task,
                   (void *)(uintptr_t)call);
    return SY_OK;
}
