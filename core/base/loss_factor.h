/* SPDX-License-Identifier: Apache-2.0 */
/* What loss.loss_normalizing_factor may be: how the sum of losses is divided. */
#ifndef SYI_LOSS_FACTOR_H
#define SYI_LOSS_FACTOR_H

#include "base/base.h"

enum syi_loss_factor_kind {
    SYI_LOSS_FACTOR_NONE,         /* the sum is not divided */
    SYI_LOSS_FACTOR_NUMBER,       /* by a constant */
    SYI_LOSS_FACTOR_REAL_TOKENS,  /* by the sum of the weights */
    SYI_LOSS_FACTOR_TOTAL_TOKENS, /* by rows x length */
    SYI_LOSS_FACTOR_PER_SEQUENCE  /* weights of a sequence add up to 1; by the sum of the weights */
};

struct syi_loss_factor {
    enum syi_loss_factor_kind kind;
    double number; /* of SYI_LOSS_FACTOR_NUMBER */
};

/* Reads the value of loss.loss_normalizing_factor: none, a number other than 0, NUM_REAL_TARGET_TOKENS,
 * NUM_TOTAL_TARGET_TOKENS or AVERAGE_PER_SEQUENCE. */
int syi_loss_factor_parse(struct syi_loss_factor *factor, const char *text,
                          struct sy_error *err) SYI_MUST_CHECK;

#endif
