/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels that work row by row: rms_norm, glu, softmax, cross entropy, argmax and their
 * gradients. */
#include "config.h"

#include "backends/cpu/ref.h"

/* ---- rms_norm ---- */

/* mask: [b, t] or absent. */
static int is_real(const struct sy_tensor *mask, int64_t row)
{
    return !mask->data || ((const sy_real *)mask->data)[row] != 0;
}

static sy_real inverse_rms(const sy_real *x, int64_t n, double epsilon)
{
    return 1 / syi_sqrt(ref_row_dot(x, x, n) / (sy_real)n + (sy_real)epsilon);
}

/* in: scale, mask. */
static void norm(const struct sy_call *call, const sy_real *x, const struct sy_tensor *in, sy_real *y)
{
    const struct sy_attr_rms_norm *attr = call->attr;
    const sy_real *scale = in[0].data;
    int64_t rows = sycpu_extent(&call->in[0], 2), D = call->in[0].dim[2];
    for (int64_t row = 0; row < rows; row++, x += D, y += D) {
        int real = is_real(&in[1], row);
        sy_real r = real ? inverse_rms(x, D, attr->epsilon) : 0;
        for (int64_t d = 0; d < D; d++) y[d] = real ? (x[d] * r) * scale[d] : 0;
    }
}

SYCPU_REF_KERNEL(rms_norm)
{
    (void)context;
    norm(call, call->in[0].data, &call->in[1], call->out[0].data);
    return SY_OK;
}

SYCPU_REF_KERNEL(add_rms_norm)
{
    (void)context;
    const sy_real *x = call->in[0].data, *y = call->in[1].data;
    sy_real *sum = call->out[0].data;
    for (int64_t i = 0; i < sycpu_count(&call->in[0]); i++) sum[i] = x[i] + y[i];
    norm(call, sum, &call->in[2], call->out[1].data);
    return SY_OK;
}

struct scale_grad {
    const struct sy_call *call;
    int64_t d; /* column */
};

/* One column of dscale over one leaf of b. */
static sy_real scale_grad_leaf(const void *arg, int64_t leaf)
{
    const struct scale_grad *g = arg;
    const struct sy_attr_rms_norm *attr = g->call->attr;
    const struct sy_tensor *in = g->call->in;
    int64_t T = in[0].dim[1], D = in[0].dim[2];
    sy_real acc = 0;
    for (int64_t row = leaf * attr->leaf * T; row < (leaf + 1) * attr->leaf * T; row++) {
        const sy_real *x = (const sy_real *)in[0].data + row * D;
        const sy_real *dy = (const sy_real *)in[2].data + row * D;
        if (is_real(&in[3], row)) acc = syi_fma(dy[g->d], x[g->d] * inverse_rms(x, D, attr->epsilon), acc);
    }
    return acc + 0;
}

static void rms_norm_row_grad(const sy_real *x, const sy_real *scale, const sy_real *dy, int64_t D,
                              double epsilon, sy_real *dx)
{
    sy_real lane[16] = {0}, r = inverse_rms(x, D, epsilon);
    for (int64_t d = 0; d < D; d++) lane[d % 16] = syi_fma(dy[d] * scale[d], x[d], lane[d % 16]);
    sy_real t = ((ref_lane_sum(lane) * r) * r) / (sy_real)D;
    for (int64_t d = 0; d < D; d++) dx[d] = r * syi_fma(-x[d], t, dy[d] * scale[d]);
}

SYCPU_REF_KERNEL(rms_norm_grad)
{
    (void)context;
    const struct sy_attr_rms_norm *attr = call->attr;
    const sy_real *x = call->in[0].data, *scale = call->in[1].data, *dy = call->in[2].data;
    sy_real *dx = call->out[0].data, *dscale = call->out[1].data;
    int64_t B = call->in[0].dim[0], T = call->in[0].dim[1], D = call->in[0].dim[2];
    struct scale_grad g = {call, 0};
    for (; g.d < D; g.d++) dscale[g.d] = ref_tree(scale_grad_leaf, &g, 0, B / attr->leaf);
    for (int64_t row = 0; row < B * T; row++, x += D, dy += D, dx += D) {
        if (is_real(&call->in[3], row))
            rms_norm_row_grad(x, scale, dy, D, attr->epsilon, dx);
        else
            memset(dx, 0, (size_t)D * sizeof *dx);
    }
    return SY_OK;
}

/* ---- glu ---- */

struct glu {
    const struct sy_call *call;
    int64_t outer;          /* rows that share one mask: rows of b, or (expert, group) */
    int64_t inner;          /* positions or slots in each */
    int64_t columns, width; /* of the output; of a block */
    int packed;             /* 1: gate and linear are blocks of one tensor */
    enum sy_activation kind;
    struct syi_dropout dropout;
    const struct sy_tensor *y, *counts; /* the tensor [...f]; counts[e][b], data NULL: none */
    const int64_t *rng;
};

static struct glu glu_open(const struct sy_call *call, const struct sy_tensor *y, const struct sy_tensor *rng,
                           const struct sy_tensor *counts)
{
    const struct sy_attr_glu *attr = call->attr;
    struct glu g = {.call = call, .y = y, .counts = counts, .rng = rng->data};
    g.outer = sycpu_extent(y, y->rank - 2);
    g.inner = y->dim[y->rank - 2];
    g.columns = y->dim[y->rank - 1];
    g.packed = attr->width > 0;
    g.width = g.packed ? attr->width : g.columns;
    g.kind = (enum sy_activation)attr->activation;
    g.dropout = syi_dropout_init(g.rng, attr->site, attr->rate);
    return g;
}

/* Mask of `n` output columns from `column` on. */
static void glu_mask(const struct glu *g, int64_t outer, int64_t column, int64_t n, float *mask)
{
    int64_t row = outer, position = 0;
    for (int64_t i = 0; i < n; i++) mask[i] = 1;
    if (!g->dropout.threshold) return;
    if (g->y->rank == 4) {
        row = g->y->first[1] + outer % g->y->dim[1] + g->rng[SY_RNG_GROUP0];
        position = g->y->first[0] + outer / g->y->dim[1];
    } else {
        row = g->y->first[0] + outer + g->rng[SY_RNG_ROW0];
    }
    syi_dropout_mask(&g->dropout, (uint32_t)row, (uint32_t)position, g->y->first[g->y->rank - 1] + column, n,
                     mask);
}

/* Calls fn for every run of at most 64 columns inside one block: gate lies at `at`, linear there too in its own tensor or
 * `width` after it, y at `column`; filled: the slot is below the count. */
static void glu_each(const struct glu *g, void (*fn)(const struct glu *g, int64_t at, int64_t column,
                                                     int64_t n, const float *mask, int filled))
{
    for (int64_t outer = 0; outer < g->outer; outer++) {
        int64_t filled = ref_length(g->counts, outer, g->inner), n;
        for (int64_t c = 0; c < g->columns; c += n) {
            float mask[64];
            n = g->width - c % g->width;
            if (n > 64) n = 64;
            glu_mask(g, outer, c, n, mask);
            for (int64_t i = 0; i < g->inner; i++) {
                int64_t row = (outer * g->inner + i) * g->columns;
                int64_t at = g->packed ? 2 * row + c / g->width * 2 * g->width + c % g->width : row + c;
                fn(g, at, row + c, n, mask, i < filled);
            }
        }
    }
}

static void glu_run(const struct glu *g, int64_t at, int64_t column, int64_t n, const float *mask, int filled)
{
    const struct sy_call *call = g->call;
    const sy_real *gate = (const sy_real *)call->in[0].data + at;
    const sy_real *linear = g->packed ? gate + g->width : (const sy_real *)call->in[3].data + at;
    sy_real *y = (sy_real *)call->out[0].data + column;
    for (int64_t i = 0; i < n; i++) {
        sy_real v = filled ? syi_activation(gate[i], g->kind) * linear[i] : 0;
        y[i] = filled ? SYI_DROP(v, mask[i]) : 0;
    }
}

SYCPU_REF_KERNEL(glu)
{
    (void)context;
    struct glu g = glu_open(call, &call->out[0], &call->in[1], &call->in[2]);
    glu_each(&g, glu_run);
    return SY_OK;
}

static void glu_grad_run(const struct glu *g, int64_t at, int64_t column, int64_t n, const float *mask,
                         int filled)
{
    const struct sy_call *call = g->call;
    const sy_real *gate = (const sy_real *)call->in[0].data + at;
    const sy_real *linear = g->packed ? gate + g->width : (const sy_real *)call->in[4].data + at;
    const sy_real *dy = (const sy_real *)call->in[1].data + column;
    sy_real *dgate = (sy_real *)call->out[0].data + at;
    sy_real *dlinear = g->packed ? dgate + g->width : (sy_real *)call->out[1].data + at;
    for (int64_t i = 0; i < n; i++) {
        sy_real d = SYI_DROP(dy[i], mask[i]);
        dlinear[i] = filled ? d * syi_activation(gate[i], g->kind) : 0;
        dgate[i] = filled ? (d * linear[i]) * syi_activation_grad(gate[i], g->kind) : 0;
    }
}

SYCPU_REF_KERNEL(glu_grad)
{
    (void)context;
    struct glu g = glu_open(call, &call->in[1], &call->in[2], &call->in[3]);
    glu_each(&g, glu_grad_run);
    return SY_OK;
}

/* ---- softmax ---- */

SYCPU_REF_KERNEL(softmax)
{
    (void)context;
    const sy_real *x = call->in[0].data;
    sy_real *p = call->out[0].data, *lse = call->out[1].data;
    int64_t n = call->in[0].dim[2], rows = sycpu_extent(&call->in[0], 2);
    for (int64_t row = 0; row < rows; row++, x += n, p += n) {
        sy_real m = ref_row_max(x, n);
        for (int64_t i = 0; i < n; i++) p[i] = syi_exp(x[i] - m);
        sy_real s = ref_row_sum(p, n);
        for (int64_t i = 0; i < n; i++) p[i] *= 1 / s;
        lse[row] = m + syi_log(s);
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(softmax_grad)
{
    (void)context;
    const sy_real *p = call->in[0].data, *dp = call->in[1].data, *dlse = call->in[2].data;
    sy_real *out = call->out[0].data;
    int64_t n = call->in[0].dim[2], rows = sycpu_extent(&call->in[0], 2);
    for (int64_t row = 0; row < rows; row++, p += n, dp += n, out += n) {
        sy_real c = ref_row_dot(p, dp, n);
        for (int64_t i = 0; i < n; i++) {
            out[i] = p[i] * (dp[i] - c);
            if (dlse) out[i] = syi_fma(dlse[row], p[i], out[i]);
        }
    }
    return SY_OK;
}
