/* SPDX-License-Identifier: Apache-2.0 */
/* early_stopping: ends the run after evaluations without a better value, by one of two rules. */
#include "config.h"

#include <inttypes.h>
#include <math.h>

#include "base/compat.h"
#include "train/trainer/action_kind.h"

/* T5X (trainer.py EarlyStoppingAction): the values of all evaluations are a history. Once it holds `patience` values,
 * training stops if each of them but the first is no better than the one before it: in mode min, if it is >= that
 * value less delta = atol + rtol * |that value|. Then, if it does not stop, the oldest is forgotten. So patience - 1
 * comparisons decide, a patience of 1 stops at the first evaluation, a value below the one before starts the count
 * anew even if it is above the best, and so does one that is not a number, of which no comparison is true. Both sides
 * are rounded to float32 first, and delta of an infinite value is not a number, with rtol = 0 too. */
static int is_no_better(const struct syi_action_part *part, double value, double previous)
{
    double delta = part->atol + part->rtol * fabs(previous);
    if (part->mode == SYI_MODE_MAX) return (float)value <= (float)(previous + delta);
    return (float)value >= (float)(previous - delta);
}

static void note_previous(struct syi_action_state *state, const struct syi_action_part *part, double value)
{
    int64_t unbroken = syi_state_count(state, "unbroken", 0);
    if (unbroken > 0 && is_no_better(part, value, syi_state_get(state, "previous", NAN)))
        syi_state_count_up(state, "unbroken");
    else
        syi_state_set(state, "unbroken", 1);
    syi_state_set(state, "previous", value);
}

/* Both are kept whatever the rule and without a patience too, so that what is asked for on resume can rely on
 * them. */
void syi_stopping_note(struct syi_action_state *state, const struct syi_action_part *part, double value,
                       int64_t step)
{
    syi_watch_begin(state, part);
    syi_watch_best(state, part, value, step);
    note_previous(state, part, value);
}

/* A history that made it stop is kept: whoever asks again is told the same, unless patience has changed. "history" is
 * how many values it holds. */
static void stop_by_previous(struct syi_action_call *call)
{
    struct syi_action_state *state = call->state;
    int64_t unbroken = syi_state_count(state, "unbroken", 0), patience = call->part->patience;
    int64_t stopped = syi_state_count(state, "stopped", 0);
    call->verdict->stop = unbroken >= patience || stopped == patience;
    syi_state_set(state, "stopped", call->verdict->stop ? (double)patience : 0);
    if (!call->verdict->stop && syi_state_count(state, "history", 0) >= patience)
        syi_state_set(state, "history", (double)(patience - 1));
    if (!call->verdict->stop) return;
    snprintf(call->verdict->text, sizeof(call->verdict->text),
             "%s is no better than in the %s before, %" PRId64
             " %s in a row; last %.6g, best %.6g at step %" PRId64,
             call->part->metric, syi_watch_unit(call->part, 0), unbroken, syi_watch_unit(call->part, 1),
             syi_state_get(state, "previous", NAN), syi_state_get(state, "best", NAN),
             syi_state_count(state, "best_step", -1));
}

static void stop_by_best(struct syi_action_call *call)
{
    struct syi_action_state *state = call->state;
    int64_t stale = syi_state_count(state, "stale", 0);
    call->verdict->stop = stale >= call->part->patience;
    if (!call->verdict->stop) return;
    snprintf(call->verdict->text, sizeof(call->verdict->text),
             "%s has not improved in %" PRId64 " %s; best %.6g at step %" PRId64, call->part->metric, stale,
             syi_watch_unit(call->part, 1), syi_state_get(state, "best", NAN),
             syi_state_count(state, "best_step", -1));
}

static int run(struct syi_action_call *call, struct sy_error *err)
{
    double value;
    (void)err;
    if (call->moment->kind != SYI_AFTER_RESUME) {
        if (!syi_watch_is_due(call) || !syi_watch_value(call, &value)) return SY_OK;
        syi_stopping_note(call->state, call->part, value, syi_watch_step(call->moment));
        syi_state_count_up(call->state, "history");
    }
    if (!call->part->patience || !syi_watch_is_same(call->state, call->part)) return SY_OK;
    call->verdict->end = SYI_END_STOPPED_EARLY;
    if (syi_compat(call->config, call->part->compare))
        stop_by_previous(call);
    else
        stop_by_best(call);
    return SY_OK;
}

const struct syi_action syi_action_early_stopping = {.name = "early_stopping",
                                                     .moments = SYI_AFTER_STEP | SYI_AFTER_EVALUATION |
                                                                SYI_AFTER_RESUME,
                                                     .run = run};
