/* SPDX-License-Identifier: Apache-2.0 */
/* `map_sums`, vectorised: a task is a band of rows, as many as the tallest block has, over all columns, or over part of them
 * where bands are few. Its rows are read one after the other, or four at a time where the map is compiled whole, at most 512
 * columns: their values stay in the nearest cache, where every output adds them to its sums, those of four rows side by side.
 * The sums and maxima are those of fast_reduce.c, the values that are stored those of fast_map.c. */
#include "config.h"

#include "backends/cpu/fast_map.h"
#include "backends/cpu/fast_top.h"
#include "base/common_multiple.h"

enum { TILE = SY_MAP_SUMS_COLUMNS, ROWS = 4, TASKS_A_THREAD = 4 };
_Static_assert(ROWS *SY_MAX_OUT <= SY_MAP_MAX_INSTR + SY_MAX_OUT,
               "the rows of all outputs fit in struct tile");

/* What prepare makes of a call. */
struct plan {
    int64_t rows, columns;       /* of input 0 */
    int64_t band, part;          /* rows and columns of a task, whole blocks of every output */
    int64_t width;               /* columns at a time, whole blocks as well */
    int64_t high[SY_MAX_OUT];    /* rows of a block */
    int64_t wide[SY_MAX_OUT];    /* columns of one */
    uint8_t kind[SY_MAX_IN];     /* enum map_kind */
    uint8_t same_as[SY_MAX_OUT]; /* the first output of the same register */
    fast_whole_fn whole;         /* instead of all instructions, or NULL */
};

/* The part of some rows at hand: columns [column, column + n) of rows [row, row + rows). */
struct tile {
    const struct sy_call *call;
    const struct plan *plan; /* of call */
    const struct sy_attr_map *attr;
    int64_t row, column, n;
    int rows; /* ROWS where the map is compiled whole and the band has as many, else 1 */
    vf constant[MAP_MAX_REGISTERS]; /* as fast_whole_fn has it */
    struct fast_operand reg[MAP_MAX_REGISTERS];
    float same[MAP_MAX_REGISTERS][SYCPU_LANES] __attribute__((aligned(64)));
    /* Of one row: the values of instructions, then those of outputs that are held apart. Of a map that is compiled whole:
     * ROWS rows of each output. */
    float value[SY_MAP_MAX_INSTR + SY_MAX_OUT][TILE] __attribute__((aligned(64)));
};

/* Where the values of an output lie for the tile at hand. */
struct values {
    const float *p;
    int64_t step; /* from one row to the next */
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

/* Asks memory for the columns at hand ROWS rows on. The processor's own guess of what is read next does not go that far, and
 * memory would stand still while sums are added. */
static void fetch_ahead(const struct tile *t, const float *p)
{
    if (t->row + ROWS < t->plan->rows)
        for (int64_t c = 0; c < t->n; c += SYCPU_LANES) __builtin_prefetch(p + ROWS * t->plan->columns + c);
}

/* An output that repeats the register of one before it is not written again (see fast_map_whole). */
static void run_whole(struct tile *t, struct values *from)
{
    /* Not cleared, which would take longer than a short row: the function reads what is set here. */
    struct fast_row at;
    int64_t first = t->row;
    for (int o = 0; o < t->call->n_out; o++) {
        int as = t->plan->same_as[o];
        from[o] = as < o            ? from[as]
                  : is_stored(t, o) ? (struct values){place_of(t, o), t->plan->columns}
                                    : (struct values){t->value[o * ROWS], TILE};
    }
    for (int row = 0; row < t->rows; row++, t->row++) {
        bind_inputs(t);
        for (int i = 0; i < t->call->n_in; i++) {
            if (t->plan->kind[i] == MAP_FULL) fetch_ahead(t, t->reg[i].p);
            if (t->plan->kind[i] == MAP_FULL || t->plan->kind[i] == MAP_COLUMN) at.in[i] = t->reg[i].p;
        }
        for (int o = 0; o < t->call->n_out; o++)
            at.out[o] = (float *)(uintptr_t)from[o].p + row * from[o].step;
        t->plan->whole(&at, t->constant, 0, t->n);
    }
    t->row = first;
}

/* Where the values of each output lie after the row was computed. One that is the same for all, and one of an input that
 * is to be stored, perhaps over another's, is held apart. */
static void pick_values(struct tile *t, struct values *from)
{
    const struct sy_map_instr copy = {.op = SY_MAP_COPY};
    for (int o = 0; o < t->call->n_out; o++) {
        struct fast_operand x = t->reg[t->attr->out_register[o]];
        int from_input = t->attr->out_register[o] < t->call->n_in;
        from[o] = (struct values){x.p, 0};
        if (x.step && !(from_input && is_stored(t, o))) continue;
        fast_map_compute(&copy, x, x, x, t->n, t->value[SY_MAP_MAX_INSTR + o]);
        from[o].p = t->value[SY_MAP_MAX_INSTR + o];
    }
}

/* ---- sums ---- */

enum how { SUM, SQUARES, LARGEST };

static enum how how_of(const struct tile *t, int out)
{
    return t->attr->maxima >> out & 1 ? LARGEST : t->attr->squares >> out & 1 ? SQUARES : SUM;
}

/* The sums or maxima of output `out` for the blocks of a row, which begin at 0. */
static float *sums_of(const struct tile *t, int out, int64_t row)
{
    const struct plan *plan = t->plan;
    int64_t high = plan->high[out], wide = plan->wide[out];
    float *sum = (float *)t->call->out[out].data + row / high * (plan->columns / wide) + t->column / wide;
    if (row % high == 0) memset(sum, 0, (size_t)(t->n / wide) * sizeof *sum);
    return sum;
}

/* Larger of two magnitudes; NaN if one is NaN. */
static inline vf larger(vf a, vf b)
{
    struct fast_top top = {a, vf_select(vf_differs(a, a), a, vf_set(0.0f))};
    fast_top_take(&top, b);
    return fast_top_result(&top);
}

static inline __attribute__((always_inline)) vf with(vf sum, vf x, enum how how)
{
    return how == SUM       ? vf_add(sum, x)
           : how == SQUARES ? vf_add(sum, vf_mul(x, x))
                            : larger(sum, fast_magnitude(x));
}

/* Blocks one column wide: their chains run next to each other. */
static inline __attribute__((always_inline)) void add_lines(float *sum, struct values x, int64_t n, int rows,
                                                            enum how how)
{
#define LINES(c, count)                                                                                      \
    do {                                                                                                     \
        vf total = fast_load(sum + c, count);                                                                \
        for (int row = 0; row < rows; row++)                                                                 \
            total = with(total, fast_load(x.p + row * x.step + c, count), how);                              \
        fast_store(sum + c, total, count);                                                                   \
    } while (0)
    FAST_COLUMNS(c, n, LINES);
#undef LINES
}

static void add_columns(const struct tile *t, int out, struct values x)
{
    enum how how = how_of(t, out);
    if (t->rows == ROWS && t->plan->high[out] % ROWS == 0 && how != LARGEST) {
        float *sum = sums_of(t, out, t->row);
        if (how == SQUARES)
            add_lines(sum, x, t->n, ROWS, SQUARES);
        else
            add_lines(sum, x, t->n, ROWS, SUM);
        return;
    }
    for (int row = 0; row < t->rows; row++, x.p += x.step) {
        float *sum = sums_of(t, out, t->row + row);
        if (how == LARGEST)
            add_lines(sum, x, t->n, 1, LARGEST);
        else if (how == SQUARES)
            add_lines(sum, x, t->n, 1, SQUARES);
        else
            add_lines(sum, x, t->n, 1, SUM);
    }
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

static void add_row(float *sum, const float *x, int64_t n, int64_t wide, enum how how)
{
    if (how == LARGEST)
        for (int64_t c = 0; c < n; c += wide, sum++) *sum = raised_to_row(*sum, x + c, wide);
    else if (how == SQUARES)
        for (int64_t c = 0; c < n; c += wide) *sum++ += vf_row_dot(x + c, x + c, wide);
    else
        for (int64_t c = 0; c < n; c += wide) *sum++ += vf_row_sum(x + c, wide);
}

/* The row sums of a block of ROWS rows, which are whole vectors wide: four chains side by side. */
static inline __attribute__((always_inline)) void add_four(float *const *sum, int64_t block, struct values x,
                                                           int64_t wide, enum how how)
{
    const float *p0 = x.p, *p1 = p0 + x.step, *p2 = p1 + x.step, *p3 = p2 + x.step;
    vf a = vf_set(0.0f), b = a, c = a, d = a;
    for (int64_t i = 0; i < wide; i += SYCPU_LANES) {
        vf w0 = vf_load(p0 + i), w1 = vf_load(p1 + i), w2 = vf_load(p2 + i), w3 = vf_load(p3 + i);
        a = how == SUM ? vf_add(a, w0) : vf_fma(w0, w0, a);
        b = how == SUM ? vf_add(b, w1) : vf_fma(w1, w1, b);
        c = how == SUM ? vf_add(c, w2) : vf_fma(w2, w2, c);
        d = how == SUM ? vf_add(d, w3) : vf_fma(w3, w3, d);
    }
    sum[0][block] += vf_sum(a);
    sum[1][block] += vf_sum(b);
    sum[2][block] += vf_sum(c);
    sum[3][block] += vf_sum(d);
}

static void add_rows(const struct tile *t, int out, struct values x)
{
    enum how how = how_of(t, out);
    int64_t wide = t->plan->wide[out];
    float *sum[ROWS];
    for (int row = 0; row < t->rows; row++) sum[row] = sums_of(t, out, t->row + row);
    if (t->rows < ROWS || wide % SYCPU_LANES != 0 || how == LARGEST)
        for (int row = 0; row < t->rows; row++) add_row(sum[row], x.p + row * x.step, t->n, wide, how);
    else if (how == SQUARES)
        for (int64_t i = 0; i < t->n / wide; i++, x.p += wide) add_four(sum, i, x, wide, SQUARES);
    else
        for (int64_t i = 0; i < t->n / wide; i++, x.p += wide) add_four(sum, i, x, wide, SUM);
}

/* Sums are added before the first value is stored: it may lie over an input that they read. */
static void add_tile(struct tile *t)
{
    struct values from[SY_MAX_OUT];
    if (t->plan->whole) {
        run_whole(t, from);
    } else {
        bind_inputs(t);
        run_instructions(t);
        pick_values(t, from);
    }
    for (int o = 0; o < t->call->n_out; o++)
        if (!is_stored(t, o)) (t->plan->wide[o] == 1 ? add_columns : add_rows)(t, o, from[o]);
    if (t->plan->whole) return;
    for (int o = 0; o < t->call->n_out; o++)
        if (is_stored(t, o)) memcpy(place_of(t, o), from[o].p, (size_t)t->n * sizeof(float));
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
    for (t.row = first; t.row < first + plan->band; t.row += t.rows) {
        t.rows = plan->whole && first + plan->band - t.row >= ROWS ? ROWS : 1;
        for (t.column = begin; t.column < end; t.column += plan->width) {
            t.n = end - t.column < plan->width ? end - t.column : plan->width;
            add_tile(&t);
        }
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
    for (int o = 0; o < call->n_out; o++) made.same_as[o] = (uint8_t)map_same_as(call->attr, o);
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
