/* SPDX-License-Identifier: Apache-2.0 */
/* How well a sparse layer serves its tokens: flaxformer's metrics (moe_layers.py), from counts. */
#ifndef SYI_EXPERT_METRICS_H
#define SYI_EXPERT_METRICS_H

#include "base/run_config.h"

/* Of one layer and one run of a program. */
struct syi_expert_counts {
    int64_t slots;     /* places of all experts and groups */
    int64_t kept;      /* of them in use */
    int64_t tokens;    /* routed or not, padding included */
    int64_t real;      /* of them no padding */
    int64_t served;    /* tokens that have a place */
    int64_t choices;   /* experts a token chooses */
    double confidence; /* sum of the weights of all places in use */
};

struct syi_expert_metrics {
    float left_behind; /* share of tokens without a place */
    float usage;       /* share of places in use */
    float confidence;  /* mean weight of a place in use; none in use: 0, as T5X NaN */
};
/* type: of SYI_ROUTER_MAP. */
struct syi_expert_metrics syi_expert_metrics(const struct syi_config *config, int type,
                                             const struct syi_expert_counts *counts);

#endif
