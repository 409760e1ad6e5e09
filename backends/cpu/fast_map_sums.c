/* SPDX-License-Identifier: Apache-2.0 */
/* `map_sums`, vectorised: a task is a band of rows, as many as the tallest block has, over all columns, or over part of them
 * where bands are few. Its rows are read one after the other, at most 512 columns at a time: their values stay in the
 * nearest cache, where every output adds them to its sums. The sums and maxima are those of fast_reduce.c, the values that are
 * stored those of fast_map.c. */
#include "config.h"

#include "backends/cpu/fast_map.h"
#include "base/bf16.h"
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
    uint8_t out[SY_MAX_OUT];  /* enum fast_out */
    fast_whole_fn whole;      /* instead of all that follows but the tasks, or NULL */
    int64_t block;            /* then: columns of blocks wider than one */
};

/* The part of a row at hand: columns [column, column + n). */
struct tile {
    const struct sy_call *call;
    const struct plan *plan; /* of call */
    const struct sy_attr_map *attr;
    int64_t row, column, n;
    struct fast_operand reg[MAP_MAX_REGISTERS];
    float same[MAP_MAX_REGISTERS][SYCPU_LANES] __attribute__((aligned(64)));
    float value[SY_MAP_MAX_INSTR][TILE] __attribute__((aligned(64))); /* of instructions */
    float held[SY_MAX_OUT][TILE] __attribute__((aligned(64)));        /* as pick_values has it */
    float widened[SY_MAX_IN][TILE] __attribute__((aligned(64)));      /* of inputs in bfloat16 */
};

/* ---- the values of a row ---- */

/* The columns at hand of an input from element `at` on, as floats. */
static const float *elements(struct tile *t, int input, int64_t at)
{
    const struct sy_tensor *in = &t->call->in[input];
    if (!fast_is_bf16(in)) return (const float *)in->data + at;
#define BODY(c, n) fast_store(t->widened[input] + c, fast_get(in->data, 1, at + c, n), n)
    FAST_COLUMNS(c, t->n, BODY);
#undef BODY
    return t->widened[input];
}

/* Value `i` of an input that has one element, or one a row. */
static void bind_value(struct tile *t, int input, int64_t i)
{
    const struct sy_tensor *in = &t->call->in[input];
    float value =
        fast_is_bf16(in) ? syi_bf16_to_float(((const uint16_t *)in->data)[i]) : ((const float *)in->data)[i];
    vf_store(t->same[input], vf_set(value));
    t->reg[input] = (struct fast_operand){t->same[input], 0};
}

/* What does not change over a task. */
static void bind_constants(struct tile *t)
{
    int n_in = t->call->n_in;
    for (int i = 0; i < n_in; i++)
        if (t->plan->kind[i] == MAP_ONE) bind_value(t, i, 0);
    for (int i = 0; i < t->attr->n_instr; i++) {
        vf_store(t->same[n_in + i], vf_set(t->attr->instr[i].s));
        t->reg[n_in + i] = (struct fast_operand){t->same[n_in + i], 0};
    }
}

static void bind_spread(struct tile *t, int i)
{
    const struct sy_tensor *in = &t->call->in[i];
    int64_t at = map_spread_begin(in, &t->call->in[0], t->row);
    if (in->dim[in->rank - 1] > 1)
        t->reg[i] = (struct fast_operand){elements(t, i, at + t->column), 1};
    else
        bind_value(t, i, at);
}

static void bind_inputs(struct tile *t)
{
    for (int i = 0; i < t->call->n_in; i++) {
        int64_t at = t->row * t->plan->columns + t->column;
        switch (t->plan->kind[i]) {
        case MAP_FULL: t->reg[i] = (struct fast_operand){elements(t, i, at), 1}; break;
        case MAP_COLUMN: t->reg[i] = (struct fast_operand){elements(t, i, t->column), 1}; break;
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
    return t->plan->out[out] == FAST_OUT_STORE;
}

/* Stores the columns at hand of an output, which may be bfloat16. */
static void put_values(const struct tile *t, int out, const float *x)
{
    const struct sy_tensor *y = &t->call->out[out];
    int64_t at = t->row * t->plan->columns + t->column;
#define BODY(c, n) fast_put(y->data, 1, at + c, fast_load(x + c, n), n)
    if (fast_is_bf16(y))
        FAST_COLUMNS(c, t->n, BODY);
    else
        memcpy((float *)y->data + at, x, (size_t)t->n * sizeof *x);
#undef BODY
}

/* Where the values of each output lie after the row was computed. One that is the same for all, and one of an input that
 * is to be stored, perhaps over another's, is held apart. */
static void pick_values(struct tile *t, const float **from)
{
    const struct sy_map_instr copy = {.op = SY_MAP_COPY};
    for (int o = 0; o < t->call->n_out; o++) {
        struct fast_operand x = t->reg[t->attr->out_register[o]];
        int from_input = t->attr->out_register[o] < t->call->n_in;
        from[o] = x.p;
        if (x.step && !(from_input && is_stored(t, o))) continue;
        fast_map_compute(&copy, x, x, x, t->n, t->held[o]);
        from[o] = t->held[o];
    }
}

/* ---- sums ---- */

/* The sums or maxima of output `out` for a row's blocks, from the one of column `begin` on; cleared before the first row. */
static float *sums_of(const struct sy_call *call, int out, int64_t row, int64_t begin, int64_t n)
{
    const struct plan *plan = call->plan;
    int64_t high = plan->high[out], wide = plan->wide[out];
    float *sum = (float *)call->out[out].data + row / high * (plan->columns / wide) + begin / wide;
    if (row % high == 0) memset(sum, 0, (size_t)(n / wide) * sizeof *sum);
    return sum;
}

/* kind: enum fast_out, a constant. */
ALWAYS_INLINE void add_blocks(float *sum, int kind, const float *x, int64_t n, int64_t wide)
{
#define NARROW(c, count) fast_narrow_add(sum + c, kind, fast_load(x + c, count), count)
#define TAKE(c, count)   fast_lanes_take(&lanes, kind, fast_load(x + c, count), count)
    if (wide == 1) {
        FAST_COLUMNS(c, n, NARROW);
        return;
    }
    for (const float *end = x + n; x < end; x += wide, sum++) {
        struct fast_lanes lanes = {0};
        FAST_COLUMNS(c, wide, TAKE);
        fast_lanes_add(&lanes, kind, sum);
    }
#undef TAKE
#undef NARROW
}

static void add_row(const struct tile *t, int out, const float *x)
{
    int64_t wide = t->plan->wide[out];
    float *sum = sums_of(t->call, out, t->row, t->column, t->n);
    switch (t->plan->out[out]) {
    case FAST_OUT_SUM: add_blocks(sum, FAST_OUT_SUM, x, t->n, wide); break;
    case FAST_OUT_SQUARES: add_blocks(sum, FAST_OUT_SQUARES, x, t->n, wide); break;
    default: add_blocks(sum, FAST_OUT_MAX, x, t->n, wide); break;
    }
}

/* Sums are added before the first value is stored: it may lie over an input that they read. */
static void add_tile(struct tile *t)
{
    const float *from[SY_MAX_OUT];
    bind_inputs(t);
    run_instructions(t);
    pick_values(t, from);
    for (int o = 0; o < t->call->n_out; o++)
        if (!is_stored(t, o)) add_row(t, o, from[o]);
    for (int o = 0; o < t->call->n_out; o++)
        if (is_stored(t, o)) put_values(t, o, from[o]);
}

/* ---- the tasks ---- */

static void run_instructions_of(const struct sy_call *call, int64_t first, int64_t begin, int64_t end)
{
    const struct plan *plan = call->plan;
    struct tile t;
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

/* As fast_row has it. The place of sums is looked up where a block begins: a row is short against divisions. */
static void bind_outputs(const struct sy_call *call, int64_t row, int64_t begin, int64_t end,
                         int64_t left[SY_MAX_OUT], struct fast_row *at)
{
    const struct plan *plan = call->plan;
    for (int o = 0, number = 0; o < call->n_out; o++) {
        if (fast_is_bf16(&call->out[o])) continue;
        if (plan->out[o] == FAST_OUT_STORE) {
            at->out[number] = (float *)call->out[o].data + row * plan->columns;
        } else if (left[o]-- == 0) {
            at->out[number] = sums_of(call, o, row, begin, end - begin) - (plan->wide[o] == 1 ? begin : 0);
            left[o] = plan->high[o] - 1;
        }
        number++;
    }
}

static void run_whole(const struct sy_call *call, int64_t first, int64_t begin, int64_t end)
{
    const struct plan *plan = call->plan;
    struct fast_row at = {.wide = plan->block};
    int64_t left[SY_MAX_OUT] = {0}; /* rows of a block, by output */
    vf constant[MAP_MAX_REGISTERS];
    fast_whole_begin(call, plan->kind, &at, constant);
    for (int64_t row = first; row < first + plan->band; row++) {
        fast_whole_row(call, plan->kind, &call->in[0], row, plan->columns, &at, constant);
        bind_outputs(call, row, begin, end, left, &at);
        plan->whole(&at, constant, begin, end);
    }
}

static void task(void *arg, int64_t index, int thread)
{
    const struct sy_call *call = arg;
    const struct plan *plan = call->plan;
    int64_t parts = (plan->columns + plan->part - 1) / plan->part, first = index / parts * plan->band;
    int64_t begin = index % parts * plan->part,
            end = plan->columns - begin < plan->part ? plan->columns : begin + plan->part;
    (void)thread;
    if (plan->whole)
        run_whole(call, first, begin, end);
    else
        run_instructions_of(call, first, begin, end);
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

static uint8_t kind_of(const struct sy_attr_map *attr, int out)
{
    return attr->stored >> out & 1    ? FAST_OUT_STORE
           : attr->squares >> out & 1 ? FAST_OUT_SQUARES
           : attr->maxima >> out & 1  ? FAST_OUT_MAX
                                      : FAST_OUT_SUM;
}

/* What is compiled whole has blocks of one width, or one column wide. */
static void plan_whole(struct plan *plan, const struct sy_call *call)
{
    uint8_t out[SY_MAX_OUT] = {0};
    for (int o = 0; o < call->n_out; o++) {
        int narrow = plan->wide[o] == 1 && plan->out[o] != FAST_OUT_STORE;
        out[o] = (uint8_t)(plan->out[o] + (narrow ? FAST_NARROW : 0));
        if (plan->wide[o] == 1) continue;
        if (plan->block && plan->block != plan->wide[o]) return;
        plan->block = plan->wide[o];
    }
    if (!plan->block) plan->block = plan->columns;
    plan->whole = fast_map_whole(call, plan->kind, out);
}

int fast_map_sums_prepare(void *context, const struct sy_call *call, void **plan)
{
    const struct sy_tensor *shape = &call->in[0];
    const int last = shape->rank - 1;
    struct plan made = {
        .rows = sycpu_extent(shape, last), .columns = shape->dim[last], .band = 1, .width = 1};
    (void)context;
    for (int o = 0; o < call->n_out; o++) {
        made.out[o] = kind_of(call->attr, o);
        made.high[o] = last > 0 ? shape->dim[last - 1] / call->out[o].dim[last - 1] : 1;
        made.wide[o] = shape->dim[last] / call->out[o].dim[last];
        made.band = syi_common_multiple(made.band, made.high[o]);
        made.width = syi_common_multiple(made.width, made.wide[o]);
    }
    made.width = TILE / made.width * made.width;
    made.part = columns_of_task(&made, call->host->threads);
    for (int i = 0; i < call->n_in; i++) made.kind[i] = (uint8_t)map_kind(&call->in[i], shape);
    plan_whole(&made, call);
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
