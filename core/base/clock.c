/* SPDX-License-Identifier: Apache-2.0 */
/* Time for measuring: monotonic, never set back. Not the time of day. */
#include "config.h"

#include <time.h>

#include "base/base.h"

double syi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
