/* SPDX-License-Identifier: Apache-2.0 */
/* What sy_predict hands out. */
#ifndef SYI_ANSWERS_H
#define SYI_ANSWERS_H

#include "train/predict/predictor.h"

struct sy_answers {
    struct syi_outcomes outcomes;
};

#endif
