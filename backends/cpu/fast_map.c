/* SPDX-License-Identifier: Apache-2.0 */
/* `map`, vectorised: instructions run one after the other over tiles of at most 512 columns, whose
 * intermediate values stay in the nearest cache. Operands are read where they lie; one that is constant over
 * a tile (one element, one value a row, an immediate) is a vector of 16 equal values that is read again and
 * again. A result is stored where it is wanted at once, or at the end of the tile where an input in the same
 * memory is still needed. */
#include "config.h"

#include "backends/cpu/fast_map.h"

enum { TILE = 512, TASK = 16384 /* elements */, MASK_FLOATS = SY_MAP_MAX_INSTR * TILE };

/* What prepare makes of a call: its shapes and the instructions, decoded. */
struct plan {
    int64_t rows, columns; /* of the tensor; a tensor without broadcast rows or columns is one long row */
    int64_t row_chunk, column_chunk; /* of a task; with dropout the rows of a chunk share one mask */
    int64_t column_tasks;            /* tasks next to each other in one chunk of rows */
    int64_t mask_columns;            /* columns whose masks are held at a time, a multiple of TILE */
    uint8_t kind[SY_MAX_IN];         /* enum map_kind */
    int8_t direct[SY_MAP_MAX_INSTR]; /* output the instruction may write at once, or -1 */
    uint8_t slot[SY_MAP_MAX_INSTR];  /* else the place of its value in a tile */
    int8_t mask[SY_MAP_MAX_INSTR];   /* index of a jitter, or of a dropout that drops something, or -1 */
    uint8_t drawn[SY_MAP_MAX_INSTR]; /* by that index: the instruction */
    int masks, jitters;              /* jitters are masks, too */
    fast_whole_fn whole;             /* instead of all instructions, or NULL */
};

/* A run of a call: its random numbers differ from those of the next one. */
struct run {
    const struct sy_call *call;
    const struct plan *plan;
    const struct sy_attr_map *attr;
    struct syi_dropout dropout[SY_MAP_MAX_INSTR]; /* [plan->masks], of those that are no jitter */
    struct syi_jitter jitter[SY_MAP_MAX_INSTR];   /* [plan->masks], of those that are */
};

struct tile {
    const struct run *run;
    const struct plan *plan; /* of run */
    int64_t row, column, n;
    int64_t mask_begin; /* column of mask[.][0] */
    struct fast_operand reg[MAP_MAX_REGISTERS];
    float same[MAP_MAX_REGISTERS][SYCPU_LANES] __attribute__((aligned(64)));
    float value[SY_MAP_MAX_INSTR][TILE] __attribute__((aligned(64)));
    float mask[MASK_FLOATS]; /* [plan->masks][plan->mask_columns]; of a jitter the factors of the row */
    float widened[SY_MAX_IN][TILE] __attribute__((aligned(64))); /* of inputs that are bf16 */
};

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void splat(float *to, float value)
{
    vf_store(to, vf_set(value));
}

/* ---- one instruction ---- */

static inline vf load(struct fast_operand o, int64_t i, int64_t n)
{
    return fast_load(o.p + i * o.step, n);
}

void fast_map_compute(const struct sy_map_instr *instr, struct fast_operand oa, struct fast_operand ob,
                      struct fast_operand oc, int64_t count, float *y)
{
    const vf s = vf_set(instr->s);
    const int kind = instr->c;
#define EACH(reads, expression)                                                                              \
    do {                                                                                                     \
        int64_t i = 0;                                                                                       \
        for (; i + SYCPU_LANES <= count; i += SYCPU_LANES) {                                                 \
            vf a = load(oa, i, SYCPU_LANES), b = (reads) > 1 ? load(ob, i, SYCPU_LANES) : a;                 \
            vf c = (reads) > 2 ? load(oc, i, SYCPU_LANES) : a;                                               \
            vf_store(y + i, expression);                                                                     \
        }                                                                                                    \
        if (i < count) {                                                                                     \
            vf a = load(oa, i, count - i), b = (reads) > 1 ? load(ob, i, count - i) : a;                     \
            vf c = (reads) > 2 ? load(oc, i, count - i) : a;                                                 \
            vf_store_first(y + i, expression, count - i);                                                    \
        }                                                                                                    \
    } while (0)
    /* A loop for each op: inside, the op is a constant. Dropout and jitter read their numbers as b. */
    switch (instr->op) {
#define SY_MAP(id, NAME, name, arguments, help)                                                              \
    case id:                                                                                                 \
        EACH((id) == SY_MAP_DROPOUT || (id) == SY_MAP_JITTER ? 2 : (arguments),                              \
             map_apply(id, kind, a, b, c, s));                                                               \
        break;
#include "switchyard/maps.def"
#undef SY_MAP
    default: break;
    }
#undef EACH
}

/* ---- tiles ---- */

static inline int64_t tile_offset(const struct tile *t)
{
    return t->row * t->plan->columns + t->column;
}

/* n elements of input i, as floats. */
static const float *elements(struct tile *t, int i, int64_t at, int64_t n)
{
    const struct sy_tensor *in = &t->run->call->in[i];
    if (!fast_is_bf16(in)) return (const float *)in->data + at;
    for (int64_t c = 0; c < n; c += SYCPU_LANES)
        vf_store(t->widened[i] + c, fast_get(in->data, 1, at + c, least(SYCPU_LANES, n - c)));
    return t->widened[i];
}

static void bind_spread(struct tile *t, int i)
{
    const struct sy_tensor *in = &t->run->call->in[i];
    int64_t at = map_spread_begin(in, &t->run->call->out[0], t->row);
    if (in->dim[in->rank - 1] > 1)
        t->reg[i] = (struct fast_operand){elements(t, i, at + t->column, t->n), 1};
    else
        splat(t->same[i], *elements(t, i, at, 1));
}

static void bind_inputs(struct tile *t)
{
    for (int i = 0; i < t->run->call->n_in; i++) {
        if (i == t->run->attr->rng) continue;
        switch (t->plan->kind[i]) {
        case MAP_FULL: t->reg[i] = (struct fast_operand){elements(t, i, tile_offset(t), t->n), 1}; break;
        case MAP_COLUMN: t->reg[i] = (struct fast_operand){elements(t, i, t->column, t->n), 1}; break;
        case MAP_ROW: splat(t->same[i], *elements(t, i, t->row, 1)); break;
        case MAP_SPREAD: bind_spread(t, i); break;
        default: break; /* one element: set when the task began */
        }
    }
}

static void narrow(struct fast_operand a, int64_t count, uint16_t *y)
{
#define BODY(i, n) fast_put(y, 1, i, load(a, i, n), n)
    FAST_COLUMNS(i, count, BODY);
#undef BODY
}

static void run_tile(struct tile *t)
{
    const struct plan *plan = t->plan;
    const struct sy_call *call = t->run->call;
    const struct sy_attr_map *attr = t->run->attr;
    const struct sy_tensor *out = call->out;
    int n_in = call->n_in;
    bind_inputs(t);
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        int reads = map_arguments[instr->op];
        if (reads == 0) continue; /* an immediate: set when the task began */
        float *y = plan->direct[i] < 0 ? t->value[plan->slot[i]]
                                       : (float *)out[plan->direct[i]].data + tile_offset(t);
        struct fast_operand a = t->reg[instr->a], b = t->reg[reads > 1 ? instr->b : instr->a];
        struct fast_operand c = t->reg[reads > 2 ? instr->c : instr->a];
        struct sy_map_instr copy = {.op = SY_MAP_COPY};
        if (instr->op == SY_MAP_DROPOUT || instr->op == SY_MAP_JITTER) {
            if (plan->mask[i] < 0) /* nothing is dropped */
                instr = &copy;
            else
                b = (struct fast_operand){
                    t->mask + plan->mask[i] * plan->mask_columns + t->column - t->mask_begin, 1};
        }
        fast_map_compute(instr, a, b, c, t->n, y);
        t->reg[n_in + i] = (struct fast_operand){y, 1};
    }
    /* Output 0 last: it may be the memory of an input that another output stores. */
    for (int i = call->n_out - 1; i >= 0; i--) {
        struct sy_map_instr copy = {.op = SY_MAP_COPY};
        struct fast_operand a = t->reg[attr->out_register[i]];
        float *y = (float *)out[i].data + tile_offset(t);
        if (fast_is_bf16(&out[i]))
            narrow(a, t->n, fast_at(&out[i], tile_offset(t)));
        else if (a.p != y)
            fast_map_compute(&copy, a, a, a, t->n, y);
    }
}

/* What does not change over a task: single elements and immediates. */
static void bind_constants(struct tile *t)
{
    const struct sy_attr_map *attr = t->run->attr;
    int n_in = t->run->call->n_in;
    for (int i = 0; i < n_in + attr->n_instr; i++) t->reg[i] = (struct fast_operand){t->same[i], 0};
    for (int i = 0; i < n_in; i++)
        if (i != attr->rng && t->plan->kind[i] == MAP_ONE) splat(t->same[i], *elements(t, i, 0, 1));
    for (int i = 0; i < attr->n_instr; i++)
        if (attr->instr[i].op == SY_MAP_CONST) splat(t->same[n_in + i], attr->instr[i].s);
}

static int is_jitter(const struct run *run, int mask)
{
    return run->attr->instr[run->plan->drawn[mask]].op == SY_MAP_JITTER;
}

/* Masks of the n columns from mask_begin on, for a group of rows that share them. */
static void make_masks(struct tile *t, int64_t group, int64_t n)
{
    const struct plan *plan = t->plan;
    const struct run *run = t->run;
    const struct sy_tensor *out = &run->call->out[0];
    uint32_t row, position;
    if (!plan->masks) return;
    map_mask_address(out, run->call->in[run->attr->rng].data, group, &row, &position);
    for (int i = 0; i < plan->masks; i++)
        if (!is_jitter(run, i))
            vf_dropout_mask(&run->dropout[i], row, position, out->first[out->rank - 1] + t->mask_begin, n,
                            t->mask + i * plan->mask_columns);
}

/* Factors of the n columns from mask_begin on, for the row at hand. */
static void make_factors(struct tile *t, int64_t n)
{
    const struct plan *plan = t->plan;
    const struct run *run = t->run;
    const struct sy_tensor *out = &run->call->out[0];
    uint32_t row, position;
    if (!plan->jitters) return;
    map_jitter_address(out, run->call->in[run->attr->rng].data, t->row, &row, &position);
    for (int i = 0; i < plan->masks; i++)
        if (is_jitter(run, i))
            vf_jitter_factors(&run->jitter[i], row, position, out->first[out->rank - 1] + t->mask_begin, n,
                              t->mask + i * plan->mask_columns);
}

/* Rows [first, last) of a chunk, columns [begin, end). */
static void compute_part(struct tile *t, int64_t chunk, int64_t first, int64_t last, int64_t begin,
                         int64_t end)
{
    const struct plan *plan = t->plan;
    for (; begin < end; begin += plan->mask_columns) {
        int64_t stop = least(begin + plan->mask_columns, end);
        t->mask_begin = begin;
        make_masks(t, chunk, stop - begin);
        for (t->row = first; t->row < last; t->row++) {
            make_factors(t, stop - begin);
            for (t->column = begin; t->column < stop; t->column += TILE) {
                t->n = least(TILE, stop - t->column);
                run_tile(t);
            }
        }
    }
}

/* The same where the map is compiled whole. */
static void compute_whole(const struct run *run, int64_t first, int64_t last, int64_t begin, int64_t end)
{
    const struct plan *plan = run->plan;
    const struct sy_call *call = run->call;
    struct fast_row at = {.wide = plan->columns};
    vf constant[MAP_MAX_REGISTERS];
    fast_whole_begin(call, plan->kind, &at, constant);
    for (int64_t row = first; row < last; row++) {
        fast_whole_row(call, plan->kind, &call->out[0], row, plan->columns, &at, constant);
        for (int o = 0, number = 0; o < call->n_out; o++)
            if (!fast_is_bf16(&call->out[o]))
                at.out[number++] = (float *)call->out[o].data + row * plan->columns;
        plan->whole(&at, constant, begin, end);
    }
}

/* Rows [first, last) of a chunk, columns [begin, end), in a place of its own. */
static void compute_chunk(const struct run *run, int64_t chunk, int64_t first, int64_t last, int64_t begin,
                          int64_t end)
{
    struct tile tile;
    if (run->plan->whole) {
        compute_whole(run, first, last, begin, end);
        return;
    }
    tile.run = run;
    tile.plan = run->plan;
    bind_constants(&tile);
    compute_part(&tile, chunk, first, last, begin, end);
}

static void task(void *arg, int64_t index, int thread)
{
    const struct run *run = arg;
    const struct plan *plan = run->plan;
    int64_t chunk = index / plan->column_tasks, first = chunk * plan->row_chunk;
    int64_t begin = index % plan->column_tasks * plan->column_chunk;
    (void)thread;
    compute_chunk(run, chunk, first, least(first + plan->row_chunk, plan->rows), begin,
                  least(begin + plan->column_chunk, plan->columns));
}

/* ---- the plan ---- */

/* Whether the value of instruction i may be stored there as soon as it is made: no input in the same memory is
 * read afterwards, as an operand or as a result. */
static int may_write(const struct sy_call *call, int i, const void *memory)
{
    const struct sy_attr_map *attr = call->attr;
    for (int in = 0; in < call->n_in; in++) {
        if (call->in[in].data != memory || in == attr->rng) continue;
        for (int j = i + 1; j < attr->n_instr; j++) {
            const struct sy_map_instr *instr = &attr->instr[j];
            int reads = map_arguments[instr->op];
            if ((reads > 0 && instr->a == in) || (reads > 1 && instr->b == in) ||
                (reads > 2 && instr->c == in))
                return 0;
        }
        for (int o = 0; o < call->n_out; o++)
            if (attr->out_register[o] == in) return 0;
    }
    return 1;
}

/* Whether the instruction multiplies by random numbers. */
static int draws(const struct sy_map_instr *instr)
{
    static const int64_t any[SY_RNG_GROUP0 + 1];
    return instr->op == SY_MAP_JITTER ||
           (instr->op == SY_MAP_DROPOUT && syi_dropout_init(any, instr->site, (double)instr->s).threshold);
}

static void plan_instructions(struct plan *plan, const struct sy_call *call)
{
    const struct sy_attr_map *attr = call->attr;
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        plan->direct[i] = plan->mask[i] = -1;
        for (int o = 0; o < call->n_out && instr->op != SY_MAP_CONST; o++)
            if (attr->out_register[o] == call->n_in + i && !fast_is_bf16(&call->out[o]) &&
                may_write(call, i, call->out[o].data))
                plan->direct[i] = (int8_t)o;
        if (!draws(instr)) continue;
        plan->drawn[plan->masks] = (uint8_t)i;
        plan->mask[i] = (int8_t)plan->masks++;
        plan->jitters += instr->op == SY_MAP_JITTER;
    }
}

/* Places for the values that are not stored at once: each is free again after the last instruction that
 * reads it, and may then hold that instruction's own result. */
static void plan_slots(struct plan *plan, const struct sy_call *call)
{
    const struct sy_attr_map *attr = call->attr;
    int n_in = call->n_in, last[MAP_MAX_REGISTERS] = {0}, busy[SY_MAP_MAX_INSTR] = {0};
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        int reads = map_arguments[instr->op];
        if (reads > 0) last[instr->a] = i;
        if (reads > 1) last[instr->b] = i;
        if (reads > 2) last[instr->c] = i;
    }
    for (int o = 0; o < call->n_out; o++) last[attr->out_register[o]] = attr->n_instr;
    for (int i = 0; i < attr->n_instr; i++) {
        if (plan->direct[i] >= 0) continue;
        while (busy[plan->slot[i]] > i) plan->slot[i]++;
        busy[plan->slot[i]] = last[n_in + i];
    }
}

static void plan_shape(struct plan *plan, const struct sy_call *call)
{
    const struct sy_attr_map *attr = call->attr;
    const struct sy_tensor *out = &call->out[0];
    int flat = plan->masks == 0;
    for (int i = 0; i < call->n_in; i++) {
        if (i == attr->rng) continue;
        plan->kind[i] = (uint8_t)map_kind(&call->in[i], out);
        if (plan->kind[i] != MAP_FULL && plan->kind[i] != MAP_ONE) flat = 0;
    }
    plan->columns = flat ? sycpu_count(out) : out->dim[out->rank - 1];
    plan->rows = flat ? 1 : sycpu_extent(out, out->rank - 1);
    plan->column_chunk = plan->columns < TASK ? plan->columns : TASK;
    plan->column_tasks = (plan->columns + plan->column_chunk - 1) / plan->column_chunk;
    plan->mask_columns = plan->masks ? MASK_FLOATS / plan->masks / TILE * TILE : plan->column_chunk;
    plan->row_chunk = plan->masks ? map_mask_rows(out) : (TASK + plan->columns - 1) / plan->columns;
}

/* An empty call has no plan. */
int fast_map_prepare(void *context, const struct sy_call *call, void **plan)
{
    static const uint8_t stores[SY_MAX_OUT];
    struct plan made = {0};
    (void)context;
    if (sycpu_count(&call->out[0]) == 0) return SY_OK;
    plan_instructions(&made, call);
    plan_slots(&made, call);
    plan_shape(&made, call);
    if (SY_TRAINING) made.whole = fast_map_whole(call, made.kind, stores); /* nothing else updates weights */
    return sycpu_keep(call, &made, sizeof made, plan);
}

/* ---- the kernel ---- */

static void begin_run(struct run *run, const struct sy_call *call)
{
    const struct sy_attr_map *attr = call->attr;
    const int64_t *rng = attr->rng == 255 ? NULL : call->in[attr->rng].data;
    run->call = call;
    run->plan = call->plan;
    run->attr = attr;
    for (int i = 0; i < run->plan->masks; i++) {
        const struct sy_map_instr *instr = &attr->instr[run->plan->drawn[i]];
        if (is_jitter(run, i))
            run->jitter[i] = syi_jitter_init(rng, instr->site, instr->s);
        else
            run->dropout[i] = syi_dropout_init(rng, instr->site, (double)instr->s);
    }
}

int fast_map(void *context, const struct sy_call *call)
{
    const struct plan *plan = call->plan;
    struct run run;
    (void)context;
    if (!plan) return SY_OK;
    begin_run(&run, call);
    sycpu_parallel(call, (plan->rows + plan->row_chunk - 1) / plan->row_chunk * plan->column_tasks, task,
                   &run);
    return SY_OK;
}
