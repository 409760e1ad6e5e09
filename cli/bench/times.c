/* SPDX-License-Identifier: Apache-2.0 */
/* Median, least and mean of measured times. */
#include "config.h"

#include <stdlib.h>

#include "cli/bench/bench.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_times bench_times(double *seconds, int64_t n)
{
    double sum = 0;
    qsort(seconds, (size_t)n, sizeof *seconds, ascending);
    for (int64_t i = 0; i < n; i++) sum += seconds[i];
    return (struct bench_times){(seconds[(n - 1) / 2] + seconds[n / 2]) / 2, seconds[0], sum / (double)n};
}
