/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a training step, those of model/step_metrics.def: a total and what it is divided by. The
 * trainer writes their values, verify compares the parts. */
#ifndef SYI_STEP_METRICS_H
#define SYI_STEP_METRICS_H

#include "train/engine/engine.h"

struct syi_step_metric {
    const char *name;
    double total, divisor; /* divisor: tokens, or microbatches */
    int steps;             /* 1: the divisor counts microbatches; T5X's writer takes the step for one */
};
enum { SYI_STEP_METRICS_MOST = 64 };
/* Those that a run of this configuration has, at most SYI_STEP_METRICS_MOST; returns how many. */
int syi_step_metrics(const struct syi_config *config, const struct syi_batch *batch,
                     const struct syi_step_result *result, struct syi_step_metric out[SYI_STEP_METRICS_MOST]);
const char *syi_step_value_name(enum syi_step_value value); /* its ID: "LOSS" */
/* Values of steps, those of their batches too, added up. */
struct syi_step_sums {
    double steps, value[SYI_STEP_VALUES];
    int packed; /* 1: of packed batches */
};
/* The metrics of those steps together, "mean/" before their names, as T5X merges what came since its row before: what
 * counts by steps is a mean over them, the rest a sum over a sum. Returns how many, 0 where there was no step. */
int syi_step_means(const struct syi_config *config, const struct syi_step_sums *sums,
                   struct syi_step_metric out[SYI_STEP_METRICS_MOST]);
/* How full a batch is: sets the values that count its tokens, places and examples. */
void syi_step_count_batch(const struct syi_batch *batch, double value[SYI_STEP_VALUES]);
/* Those that count padding and go by batches, of values that were added up over batches; MICROBATCHES counts these. packed:
 * whether rows have several examples. */
int syi_step_metrics_of_batches(const struct syi_config *config, int packed,
                                const double value[SYI_STEP_VALUES],
                                struct syi_step_metric out[SYI_STEP_METRICS_MOST]);
/* The number of a metric for one step, as T5X writes it; nothing divided by nothing is 0, as T5X NaN. */
double syi_step_metric_value(const struct syi_config *config, const struct syi_step_metric *metric);

#endif
