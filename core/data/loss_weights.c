/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of targets and the normaliser of the loss, on the host; sums in double. A normaliser of 0 (a batch
 * without any target) is handed out as it is: what to do then is the caller's choice. */
#include "config.h"

#include <string.h>

#include "data/loss_weights.h"

/* Weights before they are averaged; returns whether they say anything. */
static int begin(const struct syi_loss_factor *factor, const struct syi_loss_targets *t, float *weights)
{
    int constant = factor->kind == SYI_LOSS_FACTOR_NONE || factor->kind == SYI_LOSS_FACTOR_NUMBER;
    int all = !t->weights && constant && t->padding_targets;
    for (int64_t i = 0; i < t->rows * t->length; i++)
        weights[i] = t->weights ? t->weights[i] : all || t->targets[i] > 0 ? 1 : 0;
    return !all;
}

/* Divides the weights of each sequence of a row by their sum; padding and sequences without weight get 0. The
 * positions of a sequence stand side by side. */
static void average_row(const int32_t *segments, int64_t length, float *weights)
{
    for (int64_t first = 0, end; first < length; first = end) {
        double sum = 0;
        for (end = first; end < length && (!segments || segments[end] == segments[first]); end++)
            sum += (double)weights[end];
        int counts = sum != 0 && (!segments || segments[first] != 0);
        for (int64_t i = first; i < end; i++) weights[i] = counts ? (float)((double)weights[i] / sum) : 0;
    }
}

struct syi_loss_weights syi_loss_weights(const struct syi_loss_factor *factor,
                                         const struct syi_loss_targets *t, float *weights)
{
    struct syi_loss_weights result = {.normalizer = 1, .has_weights = begin(factor, t, weights)};
    if (factor->kind == SYI_LOSS_FACTOR_PER_SEQUENCE)
        for (int64_t i = 0; i < t->rows; i++)
            average_row(t->segments ? t->segments + i * t->length : NULL, t->length, weights + i * t->length);
    for (int64_t i = 0; i < t->rows * t->length; i++) result.weight_sum += (double)weights[i];
    result.has_normalizer = factor->kind != SYI_LOSS_FACTOR_NONE;
    switch (factor->kind) {
    case SYI_LOSS_FACTOR_NONE: break;
    case SYI_LOSS_FACTOR_NUMBER: result.normalizer = factor->number; break;
    case SYI_LOSS_FACTOR_TOTAL_TOKENS: result.normalizer = (double)t->rows * (double)t->length; break;
    case SYI_LOSS_FACTOR_REAL_TOKENS:
    case SYI_LOSS_FACTOR_PER_SEQUENCE: result.normalizer = result.weight_sum; break;
    }
    return result;
}
