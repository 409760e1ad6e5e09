/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's training metrics of a step, under its names (models.py compute_base_metrics, contrib/moe/models.py):
 * a total and what it is divided by. */
#ifndef SYI_T5X_METRICS_H
#define SYI_T5X_METRICS_H

#include "train/engine.h"

struct syi_t5x_metric {
    const char *name;
    double total, divisor; /* divisor: tokens, or microbatches */
    int steps;             /* 1: the divisor counts microbatches */
};
enum { SYI_T5X_METRICS = 32 };
/* Returns how many. microbatches: parts the step was computed in. */
int syi_t5x_metrics(const struct syi_config *config, const struct syi_batch *batch,
                    const struct syi_step_result *result, int64_t microbatches,
                    struct syi_t5x_metric out[SYI_T5X_METRICS]);

#endif
