/* SPDX-License-Identifier: Apache-2.0 */
/* rms_norm, also of a sum, and its gradient, vectorised; orders as in doc/numerics.md. */
#include "config.h"

#include "backends/cpu/fast.h"

/* mask: [b, t] or absent. */
static inline int is_real(const struct sy_tensor *mask, int64_t row)
{
    return !mask->data || ((const float *)mask->data)[row] != 0;
}

static inline float inverse_rms(const float *x, int64_t n, float epsilon)
{
    return 1.0f / sqrtf(vf_row_dot(x, x, n) / (float)n + epsilon);
}

/* in: scale, mask. */
static inline void norm_row(const struct sy_call *call, int64_t row, const float *x,
                            const struct sy_tensor *in, const struct sy_tensor *out)
{
    const int64_t D = call->in[0].dim[2];
    const float *scale = in[0].data, epsilon = (float)((const struct sy_attr_rms_norm *)call->attr)->epsilon;
    const int half = fast_is_bf16(out);
    void *y = fast_at(out, row * D);
    if (!is_real(&in[1], row)) {
        memset(y, 0, (size_t)D * (half ? 2 : 4));
        return;
    }
    const vf r = vf_set(inverse_rms(x, D, epsilon));
#define BODY(c, n) fast_put(y, half, c, vf_mul(vf_mul(fast_load(x + c, n), r), fast_load(scale + c, n)), n)
    FAST_COLUMNS(c, D, BODY);
#undef BODY
}

static void norm_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const int64_t D = call->in[0].dim[2];
    for (int64_t row = first; row < end; row++)
        norm_row(call, row, (const float *)call->in[0].data + row * D, &call->in[1], &call->out[0]);
}

static void add_norm_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const int64_t D = call->in[0].dim[2];
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)call->in[0].data + row * D,
                    *y = (const float *)call->in[1].data + row * D;
        float *sum = (float *)call->out[0].data + row * D;
#define BODY(c, n) fast_store(sum + c, vf_add(fast_load(x + c, n), fast_load(y + c, n)), n)
        FAST_COLUMNS(c, D, BODY);
#undef BODY
        norm_row(call, row, sum, &call->in[2], &call->out[1]);
    }
}

int fast_rms_norm(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), call->in[0].dim[2], norm_rows);
    return SY_OK;
}

int fast_add_rms_norm(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), 2 * call->in[0].dim[2], add_norm_rows);
    return SY_OK;
}

/* ---- gradient ----
 * Workspace: r of every row [b t], then partial dscale of every leaf [leaves, D]. */

enum {
    BLOCK_ROWS = 16
}; /* rows whose dx is made before their part of dscale is added: they stay in the cache */

struct norm_grad {
    const struct sy_call *call;
    int64_t D, leaves, leaf_rows; /* leaf_rows: rows (b, t) of a leaf */
    int64_t parts, part;          /* ranges of columns dscale is cut into, and columns of one */
    float *r, *partial;           /* in the workspace */
};

static void grad_row(const float *x, const float *scale, const float *dy, int64_t D, float r, float *dx)
{
    vf acc = vf_set(0.0f);
    int64_t i = 0;
    for (; i + SYCPU_LANES <= D; i += SYCPU_LANES)
        acc = vf_fma(vf_mul(vf_load(dy + i), vf_load(scale + i)), vf_load(x + i), acc);
    if (i < D) {
        vf g = vf_mul(vf_load_first(dy + i, D - i), vf_load_first(scale + i, D - i));
        acc = vf_select(vf_first(D - i), vf_fma(g, vf_load_first(x + i, D - i), acc), acc);
    }
    const vf t = vf_set(((vf_sum(acc) * r) * r) / (float)D), rv = vf_set(r), zero = vf_set(-0.0f);
#define BODY(c, n)                                                                                           \
    do {                                                                                                     \
        vf g = vf_mul(fast_load(dy + c, n), fast_load(scale + c, n));                                        \
        fast_store(dx + c, vf_mul(rv, vf_fma(vf_sub(zero, fast_load(x + c, n)), t, g)), n);                  \
    } while (0)
    FAST_COLUMNS(c, D, BODY);
#undef BODY
}

static void grad_rows(const struct norm_grad *g, int64_t first, int64_t end)
{
    const struct sy_call *call = g->call;
    float epsilon = (float)((const struct sy_attr_rms_norm *)call->attr)->epsilon;
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)call->in[0].data + row * g->D;
        const float *dy = (const float *)call->in[2].data + row * g->D;
        float *dx = (float *)call->out[0].data + row * g->D;
        if (is_real(&call->in[3], row)) {
            g->r[row] = inverse_rms(x, g->D, epsilon);
            grad_row(x, call->in[1].data, dy, g->D, g->r[row], dx);
        } else {
            memset(dx, 0, (size_t)g->D * sizeof *dx);
        }
    }
}

/* Continues the chains of dscale, columns c .. end - 1, over the rows first .. last - 1. */
static void scale_rows(const struct norm_grad *g, int64_t first, int64_t last, int64_t c, int64_t end,
                       float *acc)
{
    const float *x = g->call->in[0].data, *dy = g->call->in[2].data;
    for (; c < end; c += SYCPU_LANES) {
        int64_t n = end - c < SYCPU_LANES ? end - c : SYCPU_LANES;
        vf sum = fast_load(acc + c, n);
        for (int64_t row = first; row < last; row++) {
            if (!is_real(&g->call->in[3], row)) continue;
            vf normal = vf_mul(fast_load(x + row * g->D + c, n), vf_set(g->r[row]));
            sum = vf_fma(fast_load(dy + row * g->D + c, n), normal, sum);
        }
        fast_store(acc + c, sum, n);
    }
}

/* A whole leaf: dx and partial dscale. */
static void leaf_task(void *arg, int64_t leaf, int thread)
{
    const struct norm_grad *g = arg;
    int64_t first = leaf * g->leaf_rows, end = first + g->leaf_rows;
    float *acc = g->partial + leaf * g->D;
    (void)thread;
    memset(acc, 0, (size_t)g->D * sizeof *acc);
    for (; first < end; first += BLOCK_ROWS) {
        int64_t last = first + BLOCK_ROWS < end ? first + BLOCK_ROWS : end;
        grad_rows(g, first, last);
        scale_rows(g, first, last, 0, g->D, acc);
    }
}

static void rows_task(void *arg, int64_t block, int thread)
{
    const struct norm_grad *g = arg;
    int64_t first = block * BLOCK_ROWS, end = first + BLOCK_ROWS, rows = g->leaves * g->leaf_rows;
    (void)thread;
    grad_rows(g, first, end < rows ? end : rows);
}

static void columns_task(void *arg, int64_t task, int thread)
{
    const struct norm_grad *g = arg;
    int64_t leaf = task / g->parts, c = task % g->parts * g->part, end = c + g->part;
    float *acc = g->partial + leaf * g->D;
    (void)thread;
    if (end > g->D) end = g->D;
    memset(acc + c, 0, (size_t)(end - c) * sizeof *acc);
    scale_rows(g, leaf * g->leaf_rows, (leaf + 1) * g->leaf_rows, c, end, acc);
}

/* Closes the leaves and adds them up as a balanced tree: neighbours first, in place. */
static void combine(const struct norm_grad *g, float *dscale)
{
    const vf zero = vf_set(0.0f);
    for (int64_t c = 0; c < g->D; c += SYCPU_LANES) {
        int64_t n = g->D - c < SYCPU_LANES ? g->D - c : SYCPU_LANES;
        for (int64_t i = 0; i < g->leaves; i++) {
            float *p = g->partial + i * g->D + c;
            fast_store(p, vf_add(fast_load(p, n), zero), n);
        }
        for (int64_t step = 1; step < g->leaves; step *= 2) {
            for (int64_t i = 0; i + step < g->leaves; i += 2 * step) {
                float *p = g->partial + i * g->D + c;
                fast_store(p, vf_add(fast_load(p, n), fast_load(p + step * g->D, n)), n);
            }
        }
        fast_store(dscale + c, fast_load(g->partial + c, n), n);
    }
}

uint64_t fast_rms_norm_grad_workspace(const struct sy_call *call, int threads)
{
    const struct sy_attr_rms_norm *attr = call->attr;
    const int64_t *dim = call->in[0].dim;
    (void)threads;
    return (uint64_t)(dim[0] * dim[1] + dim[0] / attr->leaf * dim[2]) * sizeof(float);
}

int fast_rms_norm_grad(void *context, const struct sy_call *call)
{
    (void)context;
    const struct sy_attr_rms_norm *attr = call->attr;
    const int64_t *dim = call->in[0].dim;
    struct norm_grad g = {call, dim[2], dim[0] / attr->leaf, attr->leaf * dim[1], 0, 64, NULL, NULL};
    g.r = call->workspace;
    g.partial = g.r + dim[0] * dim[1];
    g.parts = (g.D + g.part - 1) / g.part;
    if (g.leaves >= call->host->threads) {
        sycpu_parallel(call, g.leaves, leaf_task, &g);
    } else {
        sycpu_parallel(call, (dim[0] * dim[1] + BLOCK_ROWS - 1) / BLOCK_ROWS, rows_task, &g);
        sycpu_parallel(call, g.leaves * g.parts, columns_task, &g);
    }
    combine(&g, call->out[1].data);
    return SY_OK;
}
