/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of `map` and `map_sums`: a small interpreter over runs of at most 64 columns of one row. */
#include "config.h"

#include <math.h>

#include "backends/cpu/map.h"
#include "backends/cpu/ref.h"

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

/* The values of a row that output `out` sums, `n` columns from `column` on. */
static void row_values(struct run *r, int out, int64_t column, int64_t n, sy_real *value)
{
    const struct sy_attr_map *attr = r->call->attr;
    for (int64_t i = 0; i < n; i += RUN) {
        r->column = column + i;
        r->n = n - i < RUN ? n - i : RUN;
        execute(r);
        memcpy(value + i, r->reg[attr->out_register[out]], (size_t)r->n * sizeof(sy_real));
    }
}

/* Block by block, each row by row: the sums are those of block_sum and block_sumsq. */
SYCPU_REF_KERNEL(map_sums)
{
    (void)context;
    struct run r = {.call = call, .shape = &call->in[0]};
    const int last = r.shape->rank - 1;
    for (int o = 0; o < call->n_out; o++) {
        const struct sy_tensor *out = &call->out[o];
        int64_t n = r.shape->dim[last] / out->dim[last];
        int64_t rows = sycpu_extent(r.shape, last) / sycpu_extent(out, last);
        for (int64_t i = 0; i < sycpu_count(out); i++) {
            sy_real value[SY_MAP_SUMS_COLUMNS], sum = 0;
            for (int64_t row = 0; row < rows; row++) {
                r.row = i / out->dim[last] * rows + row;
                row_values(&r, o, i % out->dim[last] * n, n, value);
                sum += ((const struct sy_attr_map *)call->attr)->squares >> o & 1
                           ? ref_row_dot(value, value, n)
                           : ref_row_sum(value, n);
            }
            ((sy_real *)out->data)[i] = sum;
        }
    }
    return SY_OK;
}
