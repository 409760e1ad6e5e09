/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, cross entropy and their gradients, and argmax, vectorised; orders as in doc/numerics.md. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/xent.h"

/* Row sum of exp(x - m); the terms are stored to e unless it is NULL. */
static inline float exp_sum(const float *x, int64_t n, float m, float *e)
{
    const vf top = vf_set(m);
    vf acc = vf_set(0.0f);
    int64_t i = 0;
    for (; i + SYCPU_LANES <= n; i += SYCPU_LANES) {
        vf p = vf_exp(vf_sub(vf_load(x + i), top));
        if (e) vf_store(e + i, p);
        acc = vf_add(acc, p);
    }
    if (i < n) {
        vf p = vf_exp(vf_sub(vf_load_first(x + i, n - i), top));
        if (e) vf_store_first(e + i, p, n - i);
        acc = vf_add(acc, vf_keep(vf_first(n - i), p));
    }
    return vf_sum(acc);
}

static void softmax_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    int64_t D = call->in[0].dim[2];
    const float *x = (const float *)call->in[0].data + first * D;
    float *p = (float *)call->out[0].data + first * D, *lse = call->out[1].data;
    for (int64_t row = first; row < end; row++, x += D, p += D) {
        float m = vf_row_max(x, D), s = exp_sum(x, D, m, p);
        const vf scale = vf_set(1.0f / s);
#define BODY(c, n) fast_store(p + c, vf_mul(fast_load(p + c, n), scale), n)
        FAST_COLUMNS(c, D, BODY);
#undef BODY
        lse[row] = m + syi_f32_log(s);
    }
}

int fast_softmax(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), call->in[0].dim[2], softmax_rows);
    return SY_OK;
}

static void softmax_grad_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    int64_t D = call->in[0].dim[2];
    const float *p = (const float *)call->in[0].data + first * D;
    const float *dp = (const float *)call->in[1].data + first * D, *dlse = call->in[2].data;
    float *out = (float *)call->out[0].data + first * D;
    for (int64_t row = first; row < end; row++, p += D, dp += D, out += D) {
        const vf sum = vf_set(vf_row_dot(p, dp, D)), more = vf_set(dlse ? dlse[row] : 0.0f);
#define BODY(c, n)                                                                                           \
    do {                                                                                                     \
        vf pv = fast_load(p + c, n), y = vf_mul(pv, vf_sub(fast_load(dp + c, n), sum));                      \
        fast_store(out + c, dlse ? vf_fma(more, pv, y) : y, n);                                              \
    } while (0)
        FAST_COLUMNS(c, D, BODY);
#undef BODY
    }
}

int fast_softmax_grad(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), call->in[0].dim[2], softmax_grad_rows);
    return SY_OK;
}

/* ---- argmax ---- */

/* Index of the largest element, the lowest of equals. NaN are passed over, but for element 0, which then stays. */
static int64_t largest(const float *x, int64_t n)
{
    static const int32_t lanes[SYCPU_LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vi step = vf_iset(SYCPU_LANES);
    vi index = vf_iload(lanes);
    vf top = vf_set(x[0]), at = vf_real(vf_iset(0)); /* of each lane; bits of the index */
#define TAKE(v)                                                                                              \
    {                                                                                                        \
        const vf value = (v);                                                                                \
        const vm more = vf_less(top, value);                                                                 \
        top = vf_select(more, value, top);                                                                   \
        at = vf_select(more, vf_real(index), at);                                                            \
        index = vf_iadd(index, step);                                                                        \
    }
    int64_t i = 0;
    for (; i + SYCPU_LANES <= n; i += SYCPU_LANES) TAKE(vf_load(x + i));
    if (i < n) TAKE(vf_select(vf_first(n - i), vf_load_first(x + i, n - i), top));
#undef TAKE
    float value[SYCPU_LANES];
    int32_t place[SYCPU_LANES], best = 0;
    vf_store(value, top);
    vf_istore(place, vf_bits(at));
    for (int32_t lane = 1; lane < SYCPU_LANES; lane++)
        if (value[lane] > value[best] || (value[lane] == value[best] && place[lane] < place[best]))
            best = lane;
    return place[best];
}

static void argmax_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const int64_t V = call->in[0].dim[2];
    const float *x = call->in[0].data;
    int32_t *out = call->out[0].data;
    for (int64_t row = first; row < end; row++) out[row] = (int32_t)largest(x + row * V, V);
}

int fast_argmax(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), call->in[0].dim[2], argmax_rows);
    return SY_OK;
}

/* ---- cross entropy ---- */

/* Whether column t holds the largest element, the first of equals. The top is known; a row with NaN needs the
 * scan. */
static int is_largest(const float *x, int64_t n, int64_t t, float top, float lse)
{
    if (t < 0 || t >= n) return 0;
    if (lse == lse && x[t] < top) return 0;
    return largest(x, n) == t;
}

static void xent_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const struct sy_attr_xent *attr = call->attr;
    int64_t V = call->in[0].dim[2];
    const int32_t *target = call->in[1].data;
    const float *w = call->in[2].data;
    float *loss = call->out[0].data, *z_part = call->out[1].data, *lse = call->out[2].data;
    float *correct = call->out[3].data;
    struct xent_constants k = xent_constants(attr, V);
    for (int64_t row = first; row < end; row++) {
        loss[row] = z_part[row] = lse[row] = correct[row] = 0;
        if (w[row] == 0) continue;
        const float *x = (const float *)call->in[0].data + row * V;
        int64_t t = target[row];
        float top = vf_row_max(x, V);
        lse[row] = top + syi_f32_log(exp_sum(x, V, top, NULL));
        float l = xent_loss(&k, lse[row], t >= 0 && t < V ? x[t] : 0, k.smooth ? vf_row_sum(x, V) : 0);
        float z = ((float)attr->z_loss * lse[row]) * lse[row];
        loss[row] = w[row] * (l + z);
        z_part[row] = w[row] * z;
        correct[row] = (float)is_largest(x, V, t, top, lse[row]);
    }
}

int fast_xent(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), call->in[0].dim[2], xent_rows);
    return SY_OK;
}

static void xent_grad_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const struct sy_attr_xent *attr = call->attr;
    int64_t V = call->in[0].dim[2];
    const int32_t *target = call->in[1].data;
    const float *w = call->in[2].data, *lse = call->in[3].data, *dloss = call->in[4].data;
    struct xent_constants k = xent_constants(attr, V);
    const vf off = vf_set(k.off);
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)call->in[0].data + row * V;
        float *out = (float *)call->out[0].data + row * V;
        if (w[row] == 0) {
            memset(out, 0, (size_t)V * sizeof *out);
            continue;
        }
        int64_t t = target[row];
        float g = dloss[row] * w[row], a = fmaf(2 * (float)attr->z_loss, lse[row], 1);
        float x_t = t >= 0 && t < V ? x[t] : 0; /* read before out, which may be the same memory */
        const vf gv = vf_set(g), av = vf_set(a), m = vf_set(lse[row]);
#define BODY(c, n)                                                                                           \
    do {                                                                                                     \
        vf p = vf_exp(vf_sub(fast_load(x + c, n), m));                                                       \
        fast_store(out + c, vf_mul(gv, vf_sub(vf_mul(av, p), off)), n);                                      \
    } while (0)
        FAST_COLUMNS(c, V, BODY);
#undef BODY
        if (t >= 0 && t < V) out[t] = g * (a * syi_f32_exp(x_t - lse[row]) - k.on);
    }
}

int fast_xent_grad(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->in[0], 2), call->in[0].dim[2], xent_grad_rows);
    return SY_OK;
}
