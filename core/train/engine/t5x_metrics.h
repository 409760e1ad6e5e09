/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a training step, under T5X's names (models.py compute_base_metrics, contrib/moe/models.py):
 * a total and what it is divided by. The trainer writes their values, verify compares the parts. */
#ifndef SYI_T5X_METRICS_H
#define SYI_T5X_METRICS_H

#include "train/engine/engine.h"

struct syi_t5x_metric {
    const char *name;
    double total, divisor; /* divisor: tokens, or microbatches */
    int steps;             /* 1: the divisor counts microbatches; T5X's writer takes the step for one */
};
enum { SYI_T5X_METRICS = 32 };
/* Returns how many; which depends on metrics.divide_by, for T5X's list it is all. microbatches: parts the
 * step was computed in. */
int syi_t5x_metrics(const struct syi_config *config, const struct syi_batch *batch,
                    const struct syi_step_result *result, int64_t microbatches,
                    struct syi_t5x_metric out[SYI_T5X_METRICS]);
/* The number of a metric for one step, as T5X writes it; nothing divided by nothing is 0, as T5X NaN. */
double syi_t5x_metric_value(const struct syi_config *config, const struct syi_t5x_metric *metric);

#endif
