/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of the cross entropy with label smoothing and z-loss, and argmax. */
#include "config.h"

#include <math.h>

#include "backends/cpu/ref.h"
#include "backends/cpu/xent.h"

static int64_t largest(const sy_real *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static sy_real log_sum_exp(const sy_real *x, int64_t n)
{
    sy_real m = ref_row_max(x, n), lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] += syi_exp(x[i] - m);
    return m + syi_log(ref_lane_sum(lane));
}

SYCPU_REF_KERNEL(xent)
{
    (void)context;
    const struct sy_attr_xent *attr = call->attr;
    const sy_real *x = call->in[0].data, *w = call->in[2].data;
    const int32_t *target = call->in[1].data;
    sy_real *loss = call->out[0].data, *z_part = call->out[1].data, *lse = call->out[2].data;
    sy_real *correct = call->out[3].data;
    int64_t V = call->in[0].dim[2], rows = sycpu_extent(&call->in[0], 2);
    struct xent_constants k = xent_constants(attr, V);
    for (int64_t row = 0; row < rows; row++, x += V) {
        loss[row] = z_part[row] = lse[row] = correct[row] = 0;
        if (w[row] == 0) continue;
        int64_t t = target[row];
        lse[row] = log_sum_exp(x, V);
        sy_real sum = k.smooth ? ref_row_sum(x, V) : 0;
        sy_real l = xent_loss(&k, lse[row], t >= 0 && t < V ? x[t] : 0, sum);
        sy_real z = ((sy_real)attr->z_loss * lse[row]) * lse[row];
        loss[row] = w[row] * (l + z);
        z_part[row] = w[row] * z;
        correct[row] = largest(x, V) == t;
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(xent_grad)
{
    (void)context;
    const struct sy_attr_xent *attr = call->attr;
    const sy_real *x = call->in[0].data, *w = call->in[2].data, *lse = call->in[3].data,
                  *dloss = call->in[4].data;
    const int32_t *target = call->in[1].data;
    sy_real *out = call->out[0].data;
    int64_t V = call->in[0].dim[2], rows = sycpu_extent(&call->in[0], 2);
    struct xent_constants k = xent_constants(attr, V);
    for (int64_t row = 0; row < rows; row++, x += V, out += V) {
        sy_real g = dloss[row] * w[row], a = syi_fma(2 * (sy_real)attr->z_loss, lse[row], 1);
        for (int64_t i = 0; i < V; i++) {
            sy_real q = i == target[row] ? k.on : k.off;
            out[i] = w[row] == 0 ? 0 : g * (a * syi_exp(x[i] - lse[row]) - q);
        }
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(argmax)
{
    (void)context;
    const sy_real *x = call->in[0].data;
    int32_t *out = call->out[0].data;
    int64_t V = call->in[0].dim[2], rows = sycpu_extent(&call->in[0], 2);
    for (int64_t row = 0; row < rows; row++) out[row] = (int32_t)largest(x + row * V, V);
    return SY_OK;
}
