/* SPDX-License-Identifier: Apache-2.0 */
/* An action of a user's own, the example of doc/action-plugins.md: ends the run once a value of an evaluation or a step
 * is below a limit, `times` times in all. Arguments: metric=NAME, below=NUMBER, times=COUNT, and rank=N, of which rank
 * alone speaks (-1: all of them). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switchyard/action.h"
#include "switchyard/switchyard.h"

struct threshold {
    const struct sy_action_host *host;
    char metric[64];
    double below, times;
    int rank;
};

static int understand(struct threshold *t, const char *argument)
{
    char unread;
    if (sscanf(argument, "metric=%63s", t->metric) == 1) return 1;
    if (sscanf(argument, "below=%lf%c", &t->below, &unread) == 1) return 1;
    if (sscanf(argument, "times=%lf%c", &t->times, &unread) == 1) return 1;
    return sscanf(argument, "rank=%d%c", &t->rank, &unread) == 1;
}

static int open_threshold(const struct sy_action_host *host, const char *const *arguments,
                          uint64_t n_arguments, void **context)
{
    struct threshold *t = calloc(1, sizeof *t);
    if (!t) return SY_ENOMEM;
    *t = (struct threshold){.host = host, .metric = "loss", .times = 1, .rank = -1};
    for (uint64_t i = 0; i < n_arguments; i++) {
        char line[200];
        if (understand(t, arguments[i])) continue;
        snprintf(line, sizeof line,
                 "argument \"%.80s\" is none of metric=, below=, times=, rank=", arguments[i]);
        host->error(host->arg, line);
        free(t);
        return SY_EINVAL;
    }
    *context = t;
    return SY_OK;
}

static void close_threshold(void *context)
{
    free(context);
}

/* How often the value was below is a number that checkpoints keep. */
static int run(void *context, const struct sy_action_event *event, struct sy_action_verdict *verdict)
{
    const struct threshold *t = context;
    const struct sy_action_host *host = t->host;
    double times;
    for (uint64_t i = 0; i < event->n_values; i++) {
        if (strcmp(event->value[i].name, t->metric) || !(event->value[i].value < t->below)) continue;
        times = host->get(host->arg, "times", 0) + 1;
        if (host->set(host->arg, "times", times)) return SY_EINTERNAL;
        if (t->rank >= 0 && t->rank != host->rank) return SY_OK;
        verdict->stop = times >= t->times;
        snprintf(verdict->text, sizeof verdict->text, "%s was below %g for the %gth time, says rank %d",
                 t->metric, t->below, times, host->rank);
    }
    return SY_OK;
}

SY_API extern const struct sy_action_desc sy_action_threshold;
const struct sy_action_desc sy_action_threshold = {.magic = SY_ACTION_MAGIC,
                                                   .abi_major = SY_ACTION_MAJOR,
                                                   .abi_minor = SY_ACTION_MINOR,
                                                   .min_host_minor = 1,
                                                   .desc_bytes = sizeof(struct sy_action_desc),
                                                   .layout = SY_ACTION_LAYOUT,
                                                   .moments =
                                                       SY_ACTION_AFTER_EVALUATION | SY_ACTION_AFTER_STEP,
                                                   .name = "threshold",
                                                   .version = "1",
                                                   .open = open_threshold,
                                                   .close = close_threshold,
                                                   .run = run};
