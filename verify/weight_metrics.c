/* SPDX-License-Identifier: Apache-2.0 */
/* Weight metrics in double, one pass over a tensor. */
#include "config.h"

#include <math.h>

#include "verify/weight_metrics.h"

struct syi_weight_metrics syi_weight_metrics(const float *before, const float *after, const float *gradient,
                                             double scale, int64_t n)
{
    struct syi_weight_metrics m = {0};
    for (int64_t i = 0; i < n; i++) {
        double w = (double)after[i], g = (double)gradient[i] * scale, d = (double)(after[i] - before[i]);
        double relative = (double)((after[i] - before[i]) / before[i]);
        m.rms += w * w;
        m.gradient_square += g * g;
        m.update_rms += d * d;
        m.relative_rms += relative * relative;
        if (fabs(w) > m.max) m.max = fabs(w);
    }
    m.rms = sqrt(m.rms / (double)n);
    m.gradient_rms = sqrt(m.gradient_square / (double)n);
    m.update_rms = sqrt(m.update_rms / (double)n);
    m.relative_rms = sqrt(m.relative_rms / (double)n);
    return m;
}
