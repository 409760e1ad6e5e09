/* SPDX-License-Identifier: Apache-2.0 */
/* The actions: early stopping and stopping at numbers that are not finite. Carrying out a verdict is the
 * trainer's. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/actions.h"

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

/* A value that is not a number never is the best. Another metric than last time starts over: values of two
 * metrics cannot be compared. */
static void keep_best(struct syi_action_state *state, int metric, const struct syi_moment *moment)
{
    double value = metric_value(metric, moment->evaluated);
    if (state->metric != metric) syi_action_state_init(state);
    state->metric = metric;
    if (value < state->best || (isnan(state->best) && !isnan(value))) {
        state->best = value;
        state->best_step = moment->step;
        state->stale = 0;
    } else {
        state->stale++;
    }
}

/* The best value is kept without a patience too, so that one given on resume can rely on it. */
static void early_stopping(const struct syi_config *config, struct syi_action_state *state,
                           const struct syi_moment *moment, struct syi_verdict *verdict)
{
    int64_t patience = config->train.early_stopping_patience;
    int metric = config->train.early_stopping_metric;
    if (moment->kind == SYI_AFTER_EVALUATION) keep_best(state, metric, moment);
    if (!patience || state->metric != metric || state->stale < patience) return;
    verdict->stop = 1;
    verdict->end = SYI_END_STOPPED_EARLY;
    snprintf(verdict->text, sizeof(verdict->text),
             "%s has not improved in %" PRId64 " evaluations; best %.6g at step %" PRId64,
             metric_name(metric), state->stale, state->best, state->best_step);
}

static void terminate_on_nan(const struct syi_config *config, struct syi_action_state *state,
                             const struct syi_moment *moment, struct syi_verdict *verdict)
{
    (void)state;
    if (moment->result->ok) return;
    verdict->stop = config->train.terminate_on_nan;
    verdict->end = SYI_END_NAN;
    snprintf(verdict->text, sizeof(verdict->text),
             "the gradients of step %" PRId64 " are not finite (loss %g); its update is left out%s",
             moment->step + 1, moment->result->loss,
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
    *state = (struct syi_action_state){.metric = SYI_METRIC_LOSS, .best = NAN, .best_step = -1};
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
