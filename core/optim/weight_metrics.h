/* SPDX-License-Identifier: Apache-2.0 */
/* What an update did to each weight tensor: T5X's metrics (trainer.py, WeightMetricsComputer), float32 [1] each, as ops of
 * the program update_metrics. All weights but expert biases, which have no gradient. */
#ifndef SYI_WEIGHT_METRICS_H
#define SYI_WEIGHT_METRICS_H

#include "program/program.h"

/* X(NAME, name): names are T5X's. rms: root of the mean of squares. */
#define SYI_WEIGHT_METRIC_MAP(X)                                                                             \
    X(RMS, weight_rms) /* of the new weights */                                                              \
    X(GRADIENT_RMS,                                                                                          \
      weight_gradient_rms)           /* of the gradient, scaled (moe.scale_expert_gradients), not clipped */ \
    X(UPDATE_RMS, weight_update_rms) /* of new - old */                                                      \
    X(MAX, weight_max)               /* largest absolute value of the new weights */                         \
    X(RELATIVE_RMS, weight_update_divided_by_weight_rms) /* of (new - old) / old */

enum syi_weight_metric {
#define SYI_WEIGHT_METRIC_ENUM(NAME, name) SYI_WEIGHT_##NAME,
    SYI_WEIGHT_METRIC_MAP(SYI_WEIGHT_METRIC_ENUM)
#undef SYI_WEIGHT_METRIC_ENUM
        SYI_WEIGHT_METRICS
};
const char *syi_weight_metric_name(enum syi_weight_metric metric); /* "weight_rms" */
/* Of its role WEIGHT_METRIC; param: id of the parameter. */
uint32_t syi_weight_metric_number(uint32_t param, enum syi_weight_metric metric);

/* A parameter while an update is recorded: tensors of the program. */
struct syi_weighed {
    int parameter;
    int change, relative;           /* new - old, and that over old; like the parameter */
    int blocks[SYI_WEIGHT_METRICS]; /* sums of squares of blocks, maxima of blocks */
};

/* Before `value` is stored in the parameter: what it changes by. */
void syi_weigh_change(struct syi_program *p, struct syi_weighed *weighed, int parameter, int value);
/* After that: sums over blocks, so that the tensors above need not live long. */
void syi_weigh_blocks(struct syi_program *p, struct syi_weighed *weighed);
/* At the end of the program, so that what ranks exchange for several parameters travels together: the outputs, under
 * METRIC/NAME. square [1]: sum of squares of the gradient. */
void syi_weigh_outputs(struct syi_program *p, const struct syi_weighed *weighed, uint32_t id,
                       const char *name, int square);

#endif
