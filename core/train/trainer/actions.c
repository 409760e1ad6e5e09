/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of actions: early stopping and stopping at numbers that are not finite; asking those of a run, and
 * what they remember. Carrying out a verdict is the trainer's. */
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
    const double *value = syi_eval_result_find(result, metric_name(metric));
    return value ? *value : NAN;
}

/* A count that cannot grow any more still is a count. */
static int64_t count_up(int64_t n)
{
    return n < INT64_MAX ? n + 1 : n;
}

static void state_init(struct syi_action_state *state)
{
    *state =
        (struct syi_action_state){.metric = SYI_METRIC_LOSS, .best = NAN, .best_step = -1, .previous = NAN};
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
    if (state->metric != metric) state_init(state);
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

static void early_stopping(const struct syi_config *config, const struct syi_action_part *part,
                           struct syi_action_state *state, const struct syi_moment *moment,
                           struct syi_verdict *verdict)
{
    if (moment->kind == SYI_AFTER_EVALUATION) keep(state, part->metric, moment);
    if (!part->patience || state->metric != part->metric) return;
    verdict->end = SYI_END_STOPPED_EARLY;
    if (syi_compat(config, part->compare))
        stop_by_previous(state, part->patience, verdict);
    else
        stop_by_best(state, part->patience, verdict);
}

int syi_step_is_bad(const struct syi_config *config, const struct syi_step_result *result)
{
    int after = syi_compat(config, config->train.nan_check);
    return !result->ok || (after && !isfinite(result->loss));
}

static void describe_bad_step(const struct syi_config *config, const struct syi_moment *moment,
                              const char *then, struct syi_verdict *verdict)
{
    const char *update = syi_compat(config, config->train.nan_check) ? "what its update made is not saved"
                                                                     : "its update is left out";
    snprintf(verdict->text, sizeof(verdict->text),
             "the gradients of step %" PRId64 " are not finite (loss %g); %s%s", moment->step + 1,
             moment->result->loss, update, then);
}

static void terminate_on_nan(const struct syi_config *config, const struct syi_action_part *part,
                             struct syi_action_state *state, const struct syi_moment *moment,
                             struct syi_verdict *verdict)
{
    (void)part, (void)state;
    if (!syi_step_is_bad(config, moment->result)) return;
    verdict->stop = 1;
    verdict->end = SYI_END_NAN;
    describe_bad_step(config, moment, ", try a lower train.learning_rate", verdict);
}

static const struct syi_action actions[] = {
    [SYI_ACTION_EARLY_STOPPING] = {"early_stopping", SYI_AFTER_EVALUATION | SYI_AFTER_RESUME, early_stopping},
    [SYI_ACTION_TERMINATE_ON_NAN] = {"terminate_on_nan", SYI_AFTER_STEP, terminate_on_nan},
};

const struct syi_action *syi_actions(size_t *n)
{
    *n = SYI_COUNT(actions);
    return actions;
}

/* ---- states ---- */

/* The part whose metric says which evaluation is the best; NULL: the loss does. */
static const struct syi_action_part *first_stopping(const struct syi_config *config)
{
    for (int i = 0; i < config->action.n; i++)
        if (config->action.part[i].kind == SYI_ACTION_EARLY_STOPPING) return &config->action.part[i];
    return NULL;
}

void syi_action_states_init(struct syi_action_states *states)
{
    state_init(&states->best);
    for (int i = 0; i < SYI_CONFIG_PARTS; i++) state_init(&states->part[i]);
}

void syi_action_states_put(const struct syi_config *config, const struct syi_action_states *states,
                           struct syi_checkpoint_meta *meta)
{
    meta->best_metric = states->best.best;
    meta->best_step = states->best.best_step;
    meta->stale = states->best.stale;
    meta->previous_metric = states->best.previous;
    meta->unbroken = states->best.unbroken;
    meta->best_of = states->best.metric;
    meta->n_actions = config->action.n;
    for (int i = 0; i < config->action.n; i++) {
        const struct syi_action_state *state = &states->part[i];
        struct syi_checkpoint_action *to = &meta->action[i];
        *to = (struct syi_checkpoint_action){.metric = state->metric,
                                             .best_step = state->best_step,
                                             .stale = state->stale,
                                             .unbroken = state->unbroken,
                                             .best = state->best,
                                             .previous = state->previous};
        memcpy(to->name, config->action.part[i].name_of_part, sizeof(to->name));
    }
}

static const struct syi_checkpoint_action *find_action(const struct syi_checkpoint_meta *meta,
                                                       const char *name)
{
    for (int i = 0; i < meta->n_actions; i++)
        if (!strcmp(meta->action[i].name, name)) return &meta->action[i];
    return NULL;
}

void syi_action_states_take(const struct syi_config *config, const struct syi_checkpoint_meta *meta,
                            struct syi_action_states *states)
{
    syi_action_states_init(states);
    states->best = (struct syi_action_state){.metric = (int)meta->best_of,
                                             .best = meta->best_metric,
                                             .best_step = meta->best_step,
                                             .stale = meta->stale,
                                             .previous = meta->previous_metric,
                                             .unbroken = meta->unbroken};
    for (int i = 0; i < config->action.n; i++) {
        const struct syi_action_part *part = &config->action.part[i];
        const struct syi_checkpoint_action *from = find_action(meta, part->name_of_part);
        if (from)
            states->part[i] = (struct syi_action_state){.metric = (int)from->metric,
                                                        .best = from->best,
                                                        .best_step = from->best_step,
                                                        .stale = from->stale,
                                                        .previous = from->previous,
                                                        .unbroken = from->unbroken};
        else if (part == first_stopping(config))
            states->part[i] = states->best;
    }
}

/* ---- asking ---- */

static void ask(const struct syi_config *config, const struct syi_action_part *part,
                struct syi_action_state *state, const struct syi_moment *moment, struct syi_verdict *verdict)
{
    const struct syi_action *action = &actions[part->kind];
    if (!(action->moments & (int)moment->kind)) return;
    action->run(config, part, state, moment, verdict);
    if (!verdict->stop) return;
    verdict->action = action->name;
    verdict->part = part->name_of_part;
}

void syi_actions_run(const struct syi_config *config, struct syi_action_states *states,
                     const struct syi_moment *moment, struct syi_verdict *verdict)
{
    static const struct syi_action_part watch = {.kind = SYI_ACTION_TERMINATE_ON_NAN};
    const struct syi_action_part *first = first_stopping(config);
    memset(verdict, 0, sizeof(*verdict));
    if (moment->kind == SYI_AFTER_EVALUATION)
        keep(&states->best, first ? first->metric : SYI_METRIC_LOSS, moment);
    if (!config->action.n) ask(config, &watch, &states->part[0], moment, verdict);
    for (int i = 0; i < config->action.n && !verdict->stop; i++)
        ask(config, &config->action.part[i], &states->part[i], moment, verdict);
    if (verdict->stop || moment->kind != SYI_AFTER_STEP || !syi_step_is_bad(config, moment->result)) return;
    verdict->action = "not_finite";
    verdict->part = "";
    describe_bad_step(config, moment, " and training goes on", verdict);
}
