/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: a time of day that jumps. SY_CLOCK_JUMPS is a list of seconds, as "0 18000 -10800": each is
 * added for SY_CLOCK_EVERY milliseconds (300), one after the other, over and over. Time that is only measured
 * (CLOCK_MONOTONIC) goes on as it is, as it does when a clock is set. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default) /* these stand before the C library's */

enum { MOST = 16 };

static long jumps[MOST], n_jumps, every = 300;

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("SY_CLOCK_JUMPS"), *pace = getenv("SY_CLOCK_EVERY");
    if (pace) every = atol(pace);
    for (char *end; text && n_jumps < MOST; text = end) {
        long seconds = strtol(text, &end, 10);
        if (end == text) break;
        jumps[n_jumps++] = seconds;
    }
}

static int read_clock(clockid_t clock, struct timespec *now)
{
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static long jump(void)
{
    struct timespec now;
    if (!n_jumps || every <= 0 || read_clock(CLOCK_MONOTONIC, &now)) return 0;
    int64_t milliseconds = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    return jumps[milliseconds / every % n_jumps];
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = read_clock(clock, now);
    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &time)) return -1;
    *now = (struct timeval){.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
