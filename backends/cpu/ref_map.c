/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of `map` and `map_sums`: a small interpreter over runs of at most 64 columns of one row. */
#include "config.h"

#include <math.h>

#include "backends/cpu/map.h"
#include "backends/cpu/ref.h"
#include "base/common_multiple.h"

enum { RUN = 64 };

struct run {
    const struct sy_call *call;
    const struct sy_tensor *shape; /* of the values */
    int64_t row, column, n;        /* the elements */
    sy_real reg[MAP_MAX_REGISTERS][RUN];
};

static void load(struct run *r, int input)
{
    const struct sy_tensor *in = &r->call->in[input], *out = r->shape;
    const sy_real *x = in->data;
    int64_t columns = out->dim[out->rank - 1];
    int64_t at = 0, step = 0;
    switch (map_kind(in, out)) {
    case MAP_FULL: at = r->row * columns + r->column, step = 1; break;
    case MAP_ONE: break;
    case MAP_ROW: at = r->row; break;
    case MAP_COLUMN: at = r->column, step = 1; break;
    case MAP_SPREAD:
        step = in->dim[in->rank - 1] > 1;
        at = map_spread_begin(in, out, r->row) + step * r->column;
    }
    for (int64_t i = 0; i < r->n; i++) r->reg[input][i] = x[at + i * step];
}

static void drop(const struct run *r, const struct sy_map_instr *instr, const sy_real *a, sy_real *y)
{
    const struct sy_attr_map *attr = r->call->attr;
    const struct sy_tensor *out = &r->call->out[0];
    const int64_t *rng = attr->rng == 255 ? NULL : r->call->in[attr->rng].data;
    struct syi_dropout dropout = syi_dropout_init(rng, instr->site, (double)instr->s);
    float mask[RUN];
    uint32_t row, position;
    for (int64_t i = 0; i < r->n; i++) y[i] = a[i];
    if (!dropout.threshold) return;
    map_mask_address(out, rng, r->row / map_mask_rows(out), &row, &position);
    syi_dropout_mask(&dropout, row, position, out->first[out->rank - 1] + r->column, r->n, mask);
    for (int64_t i = 0; i < r->n; i++) y[i] = SYI_DROP(a[i], mask[i]);
}

static void jitter(const struct run *r, const struct sy_map_instr *instr, const sy_real *a, sy_real *y)
{
    const struct sy_tensor *out = &r->call->out[0];
    const int64_t *rng = r->call->in[((const struct sy_attr_map *)r->call->attr)->rng].data;
    struct syi_jitter jitter = syi_jitter_init(rng, instr->site, instr->s);
    float factor[RUN];
    uint32_t row, position;
    map_jitter_address(out, rng, r->row, &row, &position);
    syi_jitter_factors(&jitter, row, position, out->first[out->rank - 1] + r->column, r->n, factor);
    for (int64_t i = 0; i < r->n; i++) y[i] = a[i] * (sy_real)factor[i];
}

static sy_real compute(const struct sy_map_instr *instr, sy_real a, sy_real b, sy_real c)
{
    sy_real s = instr->s;
    switch (instr->op) {
    case SY_MAP_CONST: return s;
    case SY_MAP_ADD: return a + b;
    case SY_MAP_SUB: return a - b;
    case SY_MAP_MUL: return a * b;
    case SY_MAP_DIV: return a / b;
    case SY_MAP_FMA: return syi_fma(a, b, c);
    case SY_MAP_ADDS: return a + s;
    case SY_MAP_MULS: return a * s;
    case SY_MAP_NEG: return -a;
    case SY_MAP_MAX: return a > b ? a : b;
    case SY_MAP_MIN: return a < b ? a : b;
    case SY_MAP_SQRT: return syi_sqrt(a);
    case SY_MAP_RSQRT: return 1 / syi_sqrt(a);
    case SY_MAP_EXP: return syi_exp(a);
    case SY_MAP_LOG: return syi_log(a);
    case SY_MAP_TANH: return syi_tanh(a);
    case SY_MAP_SELECT: return a != 0 ? b : c;
    case SY_MAP_FINITE: return isfinite(a) ? 1 : 0;
    case SY_MAP_LESS: return a < b ? 1 : 0;
    case SY_MAP_ACTIVATION: return syi_activation(a, instr->c);
    case SY_MAP_ACTIVATION_GRAD: return b * syi_activation_grad(a, instr->c);
    default: return a;
    }
}

/* The registers of the run at hand. */
static void execute(struct run *r)
{
    const struct sy_attr_map *attr = r->call->attr;
    int n_in = r->call->n_in;
    for (int i = 0; i < n_in; i++)
        if (i != attr->rng && r->call->in[i].data) load(r, i);
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        int reads = map_arguments[instr->op];
        const sy_real *a = r->reg[reads > 0 ? instr->a : 0], *b = r->reg[reads > 1 ? instr->b : 0];
        const sy_real *c = r->reg[reads > 2 ? instr->c : 0];
        sy_real *y = r->reg[n_in + i];
        if (instr->op == SY_MAP_DROPOUT)
            drop(r, instr, a, y);
        else if (instr->op == SY_MAP_JITTER)
            jitter(r, instr, a, y);
        else
            for (int64_t j = 0; j < r->n; j++) y[j] = compute(instr, a[j], b[j], c[j]);
    }
}

/* ---- map ---- */

static void store(const struct run *r)
{
    const struct sy_attr_map *attr = r->call->attr;
    int64_t at = r->row * r->shape->dim[r->shape->rank - 1] + r->column;
    for (int i = 0; i < r->call->n_out; i++)
        memcpy((sy_real *)r->call->out[i].data + at, r->reg[attr->out_register[i]],
               (size_t)r->n * sizeof(sy_real));
}

SYCPU_REF_KERNEL(map)
{
    (void)context;
    const struct sy_tensor *out = &call->out[0];
    int64_t columns = out->dim[out->rank - 1], rows = sycpu_extent(out, out->rank - 1);
    struct run r = {.call = call, .shape = out};
    for (r.row = 0; r.row < rows; r.row++) {
        for (r.column = 0; r.column < columns; r.column += RUN) {
            r.n = columns - r.column < RUN ? columns - r.column : RUN;
            execute(&r);
            store(&r);
        }
    }
    return SY_OK;
}

/* ---- map_sums ---- */

/* Values of the row at hand from a column on, as many as are whole blocks of every output. */
struct values {
    int64_t column, n;
    sy_real value[SY_MAX_OUT][SY_MAP_SUMS_COLUMNS];
};

static void compute_values(struct run *r, struct values *v)
{
    const struct sy_attr_map *attr = r->call->attr;
    for (int64_t i = 0; i < v->n; i += RUN) {
        r->column = v->column + i;
        r->n = v->n - i < RUN ? v->n - i : RUN;
        execute(r);
        for (int o = 0; o < r->call->n_out; o++)
            memcpy(v->value[o] + i, r->reg[attr->out_register[o]], (size_t)r->n * sizeof(sy_real));
    }
}

/* The values go to output `out`, or into its blocks, which begin at 0: the results are those of block_sum, block_sumsq and
 * block_max. */
static void put_values(const struct run *r, const struct values *v, int out)
{
    const struct sy_attr_map *attr = r->call->attr;
    const struct sy_tensor *y = &r->call->out[out];
    const int last = y->rank - 1;
    int64_t n = r->shape->dim[last] / y->dim[last],
            high = sycpu_extent(r->shape, last) / sycpu_extent(y, last);
    sy_real *to = (sy_real *)y->data + r->row / high * y->dim[last] + v->column / n;
    ref_reduce_fn reduce = attr->squares >> out & 1  ? ref_add_squares
                           : attr->maxima >> out & 1 ? ref_raise_to_row
                                                     : ref_add_row;
    if (attr->stored >> out & 1) {
        memcpy(to, v->value[out], (size_t)v->n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < v->n; i += n, to++) *to = reduce(r->row % high ? *to : 0, v->value[out] + i, n);
}

/* Columns that are whole blocks of every output. */
static int64_t common_columns(const struct sy_call *call)
{
    const int last = call->in[0].rank - 1;
    int64_t columns = 1;
    for (int o = 0; o < call->n_out; o++)
        columns = syi_common_multiple(columns, call->in[0].dim[last] / call->out[o].dim[last]);
    return columns;
}

/* All values of a row's part are known before any is stored, which may be over an input. */
SYCPU_REF_KERNEL(map_sums)
{
    (void)context;
    struct run r = {.call = call, .shape = &call->in[0]};
    const int last = r.shape->rank - 1;
    int64_t columns = r.shape->dim[last], together = common_columns(call);
    struct values v;
    for (r.row = 0; r.row < sycpu_extent(r.shape, last); r.row++)
        for (v.column = 0; v.column < columns; v.column += together) {
            v.n = columns - v.column < together ? columns - v.column : together;
            compute_values(&r, &v);
            for (int o = 0; o < call->n_out; o++) put_values(&r, &v, o);
        }
    return SY_OK;
}
