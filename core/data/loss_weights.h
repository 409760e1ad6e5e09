/* SPDX-License-Identifier: Apache-2.0 */
/* How much each target counts, and what the sum of losses is divided by. Follows T5X losses.py
 * (get_loss_normalizing_factor_and_weights), with one choice more: whether padding is trained on. */
#ifndef SYI_LOSS_WEIGHTS_H
#define SYI_LOSS_WEIGHTS_H

#include "base/loss_factor.h"

struct syi_loss_targets {
    const int32_t *targets;  /* [rows, length], 0 is padding */
    const float *weights;    /* [rows, length], or NULL: none were given */
    const int32_t *segments; /* [rows, length] of packed rows, 0 is padding; or NULL: a row is a sequence */
    int64_t rows, length;
    int padding_targets; /* 1: without weights, factors none and number train on padding too, as T5X does */
};

struct syi_loss_weights {
    double normalizer;  /* 1 when there is none */
    double weight_sum;  /* of the weights in force */
    int has_weights;    /* 0: everything counts, padding too */
    int has_normalizer; /* 0: the sum is not divided */
};

/* Fills weights[rows x length]. */
struct syi_loss_weights syi_loss_weights(const struct syi_loss_factor *factor,
                                         const struct syi_loss_targets *targets, float *weights);

#endif
