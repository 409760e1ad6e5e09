/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's metrics of one weight tensor over an update (trainer.py WeightMetricsComputer), on host memory. */
#ifndef SYI_WEIGHT_METRICS_H
#define SYI_WEIGHT_METRICS_H

#include <stdint.h>

struct syi_weight_metrics {
    double rms, max;        /* of the new weights; max: of absolute values */
    double gradient_rms;    /* of the gradient as the optimizer got it */
    double gradient_square; /* sum of squares */
    double update_rms;      /* of new - old */
    double relative_rms;    /* of (new - old) / old */
};
/* scale: what the optimizer multiplied the gradient by. */
struct syi_weight_metrics syi_weight_metrics(const float *before, const float *after, const float *gradient,
                                             double scale, int64_t n);

#endif
