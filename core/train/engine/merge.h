/* SPDX-License-Identifier: Apache-2.0 */
/* How the numbers of several steps become one: the kinds of T5X's metrics (t5x/metrics.py; clu, metrics.py). */
#ifndef SYI_MERGE_H
#define SYI_MERGE_H

#include <stdint.h>

enum syi_merge {
    SYI_MERGE_SUM,       /* totals added (Sum) */
    SYI_MERGE_PER_STEP,  /* that, over steps (AveragePerStep) */
    SYI_MERGE_AVERAGE,   /* that, over counts added (Average, Accuracy) */
    SYI_MERGE_LAST,      /* the newest total (LastValue) */
    SYI_MERGE_RATE,      /* totals added, a second (TimeRate) */
    SYI_MERGE_STEP_RATE, /* steps a second (StepsPerTime) */
    SYI_MERGE_TIME       /* the seconds (Time) */
};
struct syi_merged {
    enum syi_merge kind;
    double total, count; /* count: steps, of an average what it is over */
};
/* What is merged over; steps 0: as many as were counted; seconds below 0: not known. */
struct syi_merge_span {
    double seconds, steps;
};

/* One more. count: of PER_STEP and STEP_RATE its steps. */
void syi_merged_add(struct syi_merged *merged, double total, double count);
/* 0: a number a second, or seconds, that are not known. Nothing over nothing is NaN. */
int syi_merged_value(const struct syi_merged *merged, const struct syi_merge_span *span, double *value);

#endif
