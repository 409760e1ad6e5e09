/* SPDX-License-Identifier: Apache-2.0 */
/* How long steps take: the median over the run, the rate of tokens lately and since the last row of metrics.
 * Fixed memory. */
#ifndef SYI_TIMING_H
#define SYI_TIMING_H

#include "base/base.h"

/* Step times fall into bins a 256th of an octave (0.27 %) wide, from a microsecond to 12 days. */
enum { SYI_TIMING_PER_OCTAVE = 256, SYI_TIMING_BINS = 40 * SYI_TIMING_PER_OCTAVE };

struct syi_timing {
    int64_t steps;                        /* counted */
    int32_t low, high;                    /* first and last bin that counts something */
    uint32_t count[SYI_TIMING_BINS];      /* steps per bin */
    double recent_tokens, recent_seconds; /* sums in which older steps fade */
    int64_t row_steps, row_tokens;        /* since the last row */
    double row_seconds;
};

void syi_timing_init(struct syi_timing *timing);
void syi_timing_add(struct syi_timing *timing, double seconds, int64_t tokens);
double syi_timing_median(const struct syi_timing *timing);            /* seconds, 0 before the first step */
double syi_timing_tokens_per_second(const struct syi_timing *timing); /* lately */
/* Mean step time and rate since the last call. */
void syi_timing_row(struct syi_timing *timing, double *step_seconds, double *tokens_per_second);

#endif
