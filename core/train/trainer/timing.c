/* SPDX-License-Identifier: Apache-2.0 */
/* Step times in a histogram with bins of equal ratio: the median to 0.3 % without keeping or sorting them. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/trainer/timing.h"

static const double SHORTEST = 1e-6; /* seconds, lower end of bin 0 */
static const double FADING = 0.98;   /* weight of a step falls to a half in 34 steps */

void syi_timing_init(struct syi_timing *timing)
{
    memset(timing, 0, sizeof(*timing));
    timing->low = SYI_TIMING_BINS;
    timing->high = -1;
}

static int32_t bin_of(double seconds)
{
    double bin = log2(seconds / SHORTEST) * SYI_TIMING_PER_OCTAVE;
    if (!(bin > 0)) return 0;
    return bin < SYI_TIMING_BINS - 1 ? (int32_t)bin : SYI_TIMING_BINS - 1;
}

void syi_timing_add(struct syi_timing *timing, double seconds, int64_t tokens)
{
    int32_t bin = bin_of(seconds);
    timing->steps++;
    timing->count[bin]++;
    if (bin < timing->low) timing->low = bin;
    if (bin > timing->high) timing->high = bin;
    timing->recent_tokens = FADING * timing->recent_tokens + (double)tokens;
    timing->recent_seconds = FADING * timing->recent_seconds + seconds;
    timing->row_steps++;
    timing->row_tokens += tokens;
    timing->row_seconds += seconds;
}

double syi_timing_median(const struct syi_timing *timing)
{
    int64_t seen = 0, half = (timing->steps + 1) / 2;
    for (int32_t bin = timing->low; bin <= timing->high; bin++) {
        seen += timing->count[bin];
        if (seen >= half) return SHORTEST * exp2((bin + 0.5) / SYI_TIMING_PER_OCTAVE);
    }
    return 0;
}

double syi_timing_tokens_per_second(const struct syi_timing *timing)
{
    return timing->recent_seconds > 0 ? timing->recent_tokens / timing->recent_seconds : 0;
}

void syi_timing_row(struct syi_timing *timing, double *step_seconds, double *tokens_per_second)
{
    *step_seconds = timing->row_steps ? timing->row_seconds / (double)timing->row_steps : 0;
    *tokens_per_second = timing->row_seconds > 0 ? (double)timing->row_tokens / timing->row_seconds : 0;
    timing->row_steps = timing->row_tokens = 0;
    timing->row_seconds = 0;
}
