/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that ask a command for its end: the first one is a wish that it hears, a second one ends the program. */
#include "config.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "cli/cli.h"

enum { SAME_REQUEST = 100 /* milliseconds */ };

static void (*ask_for_end)(void);
static atomic_int first_number; /* 0: none came yet */

/* A second SIGINT or SIGTERM ends the process at once, but not one that comes so soon that it is the same request: `timeout`,
 * launchers and shells that forward a signal send it to the process and to its group. The others are sent repeatedly: by
 * batch systems, by a limit of processor time every second, by both the shell and the terminal that are closed. */
static void on_signal(int number)
{
    static atomic_llong asked; /* when the first came, in milliseconds; 0: not yet */
    struct timespec time;
    long long now, first = 0;
    int none = 0;
    atomic_compare_exchange_strong(&first_number, &none, number);
    ask_for_end();
    if (number != SIGINT && number != SIGTERM) return;
    clock_gettime(CLOCK_MONOTONIC, &time);
    now = time.tv_sec * 1000LL + time.tv_nsec / 1000000 + 1;
    if (atomic_compare_exchange_strong(&asked, &first, now) || now - first < SAME_REQUEST) return;
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_one(int number)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    /* SIGHUP stays ignored where it was, as nohup starts a program */
    if (number != SIGHUP || (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN))
        sigaction(number, &action, NULL);
}

void cli_catch_stop(void (*ask)(void), const int *further, size_t n)
{
    static const int always[] = {SIGINT, SIGTERM, SIGHUP};
    ask_for_end = ask;
    for (size_t i = 0; i < SYI_COUNT(always); i++) catch_one(always[i]);
    for (size_t i = 0; i < n; i++) catch_one(further[i]);
}

void cli_catch_interrupts(void)
{
    cli_catch_stop(syi_interrupt, NULL, 0);
}

int cli_fail_or_stop(const struct sy_error *err)
{
    int number = atomic_load(&first_number), result = cli_fail(err);
    if (err->code != SY_ESTOPPED || !number) return result;
    fflush(stdout);
    signal(number, SIG_DFL);
    raise(number);
    return result;
}
