/* SPDX-License-Identifier: Apache-2.0 */
/* The actions: early stopping and stopping at numbers that are not finite. Carrying out a verdict is the
 * trainer's. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/compat.h"
#include "train/trainer/actions.h"

static const char *metric_name(int metric)
{
#define METRIC_TEXT(constant, text) text,
    static const char *const name[] = {SYI_METRIC_MAP(METRIC_TEXT)};
#undef METRIC_TEXT
    return name[metric];
}

static double metric_value(int metric, const struct syi_eval_result *result)
{
    switch (metric) {
    case SYI_METRIC_WER: return result->wer;
    case SYI_METRIC_PER: return result->per;
    default: return result->loss;
    }
}

/* A count that cannot grow any more still is a count. */
static int64_t count_up(int64_t n)
{
    return n < INT64_MAX ? n + 1 : n;
}

/* A value that is not a number never is the best. Another metric than last time starts over: values of two
 * metrics cannot be compared. */
static void keep_best(struct syi_action_state *state, double value, int64_t step)
{
    if (value < state->best || (isnan(state->best) && !isnan(value))) {
        state->best = value;
        state->best_step = step;
        state->stale = 0;
    } else {
        state->stale = count_up(state->stale);
    }
}

static void keep_previous(struct syi_action_state *state, double value)
{
    int no_better = state->unbroken && value >= state->previous; /* never where one is not a number */
    state->unbroken = no_better ? count_up(state->unbroken) : 1;
    state->previous = value;
}

/* Both are kept whatever the rule and without a patience too, so that what is asked for on resume can rely on
 * them. */
static void keep(struct syi_action_state *state, int metric, const struct syi_moment *moment)
{
    double value = metric_value(metric, moment->evaluated);
    if (state->metric != metric) syi_action_state_init(state);
    state->metric = metric;
    keep_best(state, value, moment->step);
    keep_previous(state, value);
}

/* T5X (trainer.py EarlyStoppingAction, mode min): the values of all evaluations are a history. Once it holds
 * `patience` values, training stops if each of the newest `patience` but the first is >= the one before it
 * (less atol + rtol * |the one before|, both 0 here); then, if not, the oldest is forgotten. So patience - 1
 * comparisons decide, a patience of 1 stops at the first evaluation, a value below the one before starts the
 * count anew even if it is above the best, and so does one that is not a number, of which no comparison is
 * true. */
static void stop_by_previous(const struct syi_action_state *state, int64_t patience,
                             struct syi_verdict *verdict)
{
    verdict->stop = state->unbroken >= patience;
    if (!verdict->stop) return;
    snprintf(verdict->text, sizeof(verdict->text),
             "%s is no better than in the evaluation before, %" PRId64
             " evaluations in a row; last %.6g, best "
             "%.6g at step %" PRId64,
             metric_name(state->metric), state->unbroken, state->previous, state->best, state->best_step);
}

static void stop_by_best(const struct syi_action_state *state, int64_t patience, struct syi_verdict *verdict)
{
    verdict->stop = state->stale >= patience;
    if (!verdict->stop) return;
    snprintf(verdict->text, sizeof(verdict->text),
             "%s has not improved in %" PRId64 " evaluations; best %.6g at step %" PRId64,
             metric_name(state->metric), state->stale, state->best, state->best_step);
}

static void early_stopping(const struct syi_config *config, struct syi_action_state *state,
                           const struct syi_moment *moment, struct syi_verdict *verdict)
{
    int64_t patience = config->train.early_stopping_patience;
    int metric = config->train.early_stopping_metric;
    if (moment->kind == SYI_AFTER_EVALUATION) keep(state, metric, moment);
    if (!patience || state->metric != metric) return;
    verdict->end = SYI_END_STOPPED_EARLY;
    if (syi_compat(config, config->train.early_stopping_compare))
        stop_by_previous(state, patience, verdict);
    else
        stop_by_best(state, patience, verdict);
}

int syi_step_is_bad(const struct syi_config *config, const struct syi_step_result *result)
{
    int after = syi_compat(config, config->train.nan_check);
    return !result->ok || (after && !isfinite(result->loss));
}

static void terminate_on_nan(const struct syi_config *config, struct syi_action_state *state,
                             const struct syi_moment *moment, struct syi_verdict *verdict)
{
    const char *update = syi_compat(config, config->train.nan_check) ? "what its update made is not saved"
                                                                     : "its update is left out";
    (void)state;
    if (!syi_step_is_bad(config, moment->result)) return;
    verdict->stop = config->train.terminate_on_nan;
    verdict->end = SYI_END_NAN;
    snprintf(verdict->text, sizeof(verdict->text),
             "the gradients of step %" PRId64 " are not finite (loss %g); %s%s", moment->step + 1,
             moment->result->loss, update,
             verdict->stop ? ", try a lower train.learning_rate" : " and training goes on");
}

static const struct syi_action actions[] = {
    {"early_stopping", SYI_AFTER_EVALUATION | SYI_AFTER_RESUME, early_stopping},
    {"terminate_on_nan", SYI_AFTER_STEP, terminate_on_nan},
};

const struct syi_action *syi_actions(size_t *n)
{
    *n = SYI_COUNT(actions);
    return actions;
}

void syi_action_state_init(struct syi_action_state *state)
{
    *state =
        (struct syi_action_state){.metric = SYI_METRIC_LOSS, .best = NAN, .best_step = -1, .previous = NAN};
}

void syi_actions_run(const struct syi_config *config, struct syi_action_state *state,
                     const struct syi_moment *moment, struct syi_verdict *verdict)
{
    memset(verdict, 0, sizeof(*verdict));
    for (size_t i = 0; i < SYI_COUNT(actions) && !verdict->stop; i++) {
        if (!(actions[i].moments & (int)moment->kind)) continue;
        actions[i].run(config, state, moment, verdict);
        if (verdict->text[0] && !verdict->action) verdict->action = actions[i].name;
    }
}
