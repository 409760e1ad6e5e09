/* SPDX-License-Identifier: Apache-2.0 */
/* What the kinds of actions share that watch a value: finding it, warning once where it is not there, and which of
 * two values is better. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/engine/step_metrics.h"
#include "train/trainer/action_kind.h"

void syi_watch_text(const struct syi_action_part *part, char text[SYI_ACTION_WATCHES])
{
    snprintf(text, SYI_ACTION_WATCHES, "%s %s%s%s", part->mode == SYI_MODE_MAX ? "max" : "min", part->metric,
             *part->task ? " of " : "", part->task);
}

int syi_watch_is_same(const struct syi_action_state *state, const struct syi_action_part *part)
{
    char watches[SYI_ACTION_WATCHES];
    syi_watch_text(part, watches);
    return !strcmp(state->watches, watches);
}

void syi_watch_begin(struct syi_action_state *state, const struct syi_action_part *part)
{
    if (syi_watch_is_same(state, part)) return;
    memset(state, 0, sizeof *state);
    syi_watch_text(part, state->watches);
}

/* ---- when ---- */

/* -1: it is none of weights. */
static int weight_metric(const char *name)
{
    for (int m = 0; m < SYI_WEIGHT_METRICS; m++)
        if (!strcmp(name, syi_weight_metric_name((enum syi_weight_metric)m))) return m;
    return -1;
}

int syi_watch_is_due(const struct syi_action_call *call)
{
    const struct syi_moment *moment = call->moment;
    int64_t step = syi_watch_step(moment);
    int training = syi_action_is_of_training(call->part);
    if (moment->kind == SYI_AFTER_EVALUATION) return !training;
    if (!training || moment->kind != SYI_AFTER_STEP) return 0;
    if (weight_metric(call->part->metric) >= 0 && call->config->metrics.weights_every)
        return moment->result->weighed;
    return step % call->config->metrics.every == 0 || step >= call->config->train.steps;
}

const char *syi_watch_unit(const struct syi_action_part *part, int several)
{
    if (syi_action_is_of_training(part)) return several ? "rows of metrics" : "row of metrics";
    return several ? "evaluations" : "evaluation";
}

int64_t syi_watch_step(const struct syi_moment *moment)
{
    return moment->step + (moment->kind == SYI_AFTER_STEP);
}

/* ---- finding ---- */

/* By its name among n metrics of steps; 0: it is none of them. */
static int find_metric(const struct syi_config *config, const struct syi_step_metric *metric, int n,
                       const char *name, double *value)
{
    int i = 0;
    while (i < n && strcmp(metric[i].name, name)) i++;
    if (i < n) *value = syi_step_metric_value(config, &metric[i]);
    return i < n;
}

const struct syi_eval_result *syi_watch_evaluation(const struct syi_action_part *part,
                                                   const struct syi_moment *moment)
{
    for (int i = 0; i < moment->n_evaluated; i++)
        if (!*part->task || syi_pattern_match(part->task, moment->evaluated[i].task))
            return &moment->evaluated[i];
    return NULL;
}

int syi_step_value(const struct syi_config *config, const struct syi_moment *moment, const char *name,
                   double *value)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int weights = weight_metric(name);
    if (weights >= 0) {
        *value = moment->result->weights[weights];
        return moment->result->weighed;
    }
    if (!strcmp(name, "loss")) {
        *value = moment->result->loss;
        return 1;
    }
    if (!strcmp(name, "learning_rate") || !strcmp(name, "learning_rate/current")) {
        *value = moment->rate;
        return 1;
    }
    if (!moment->batch) return 0;
    return find_metric(config, metric, syi_step_metrics(config, moment->batch, moment->result, metric), name,
                       value) ||
           (moment->sums &&
            find_metric(config, metric, syi_step_means(config, moment->sums, metric), name, value));
}

/* Once. Of the names there are, which were offered, the nearest is told, if there is a near one. */
static int warn_once(const struct syi_action_call *call, const char *what, const struct syi_nearest *nearest)
{
    int of_steps = call->part->kind == SYI_ACTION_TERMINATE_ON_NAN && call->moment->kind == SYI_AFTER_STEP;
    int *told = call->index < 0 ? NULL : &call->all->told[call->index];
    if (told && *told) return 0;
    if (told) *told = 1;
    syi_action_warn(call, "there is no %s \"%s\"%s%s%s: it %s", what, nearest->name,
                    *nearest->known ? " (did you mean " : "", nearest->known, *nearest->known ? "?)" : "",
                    of_steps ? "looks at gradients alone" : "does nothing");
    return 0;
}

static void offer(struct syi_nearest *nearest, const char *name)
{
    syi_nearest_offer(nearest, name, strlen(name));
}

static int warn_of_step(const struct syi_action_call *call)
{
    struct syi_nearest nearest = {.name = call->part->metric};
    const struct syi_moment *moment = call->moment;
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = moment->batch ? syi_step_metrics(call->config, moment->batch, moment->result, metric) : 0;
    offer(&nearest, "loss");
    offer(&nearest, "learning_rate");
    for (int i = 0; i < n; i++) offer(&nearest, metric[i].name);
    for (int m = 0; call->config->metrics.weights_every && m < SYI_WEIGHT_METRICS; m++)
        offer(&nearest, syi_weight_metric_name((enum syi_weight_metric)m));
    return warn_once(call, "value of a step called", &nearest);
}

static int warn_of_evaluation(const struct syi_action_call *call, const struct syi_eval_result *result)
{
    struct syi_nearest nearest = {.name = call->part->metric};
    for (int i = 0; i < result->n; i++) offer(&nearest, result->value[i].name);
    return warn_once(call, "value of an evaluation called", &nearest);
}

static int warn_of_task(const struct syi_action_call *call)
{
    struct syi_nearest nearest = {.name = call->part->task};
    const struct syi_eval_result *evaluated = call->moment->evaluated;
    for (int i = 0; evaluated && i < call->moment->n_evaluated; i++) offer(&nearest, evaluated[i].task);
    return warn_once(call, "evaluation called", &nearest);
}

int syi_watch_value(const struct syi_action_call *call, double *value)
{
    const struct syi_action_part *part = call->part;
    if (call->moment->kind == SYI_AFTER_STEP) {
        if (syi_step_value(call->config, call->moment, part->metric, value)) return 1;
        if (weight_metric(part->metric) >= 0 && call->config->metrics.weights_every) return 0; /* in others */
        return warn_of_step(call);
    }
    const struct syi_eval_result *result = syi_watch_evaluation(part, call->moment);
    if (!result) return warn_of_task(call);
    const double *found = syi_eval_result_find(result, part->metric);
    if (!found && result->left_out) return 0; /* it may be there when outputs are */
    if (!found) return warn_of_evaluation(call, result);
    *value = *found;
    return 1;
}

/* ---- comparing ---- */

int syi_is_better(int mode, double value, double than, double delta)
{
    if (isnan(value) || isnan(than)) return !isnan(value);
    return mode == SYI_MODE_MAX ? value > than + delta : value < than - delta;
}

/* Without rtol, atol alone, also of an infinite value. */
double syi_watch_delta(const struct syi_action_part *part, double than)
{
    return part->rtol > 0 ? part->atol + part->rtol * fabs(than) : part->atol;
}

void syi_watch_best(struct syi_action_state *state, const struct syi_action_part *part, double value,
                    int64_t step)
{
    double best = syi_state_get(state, "best", NAN);
    if (!syi_is_better(part->mode, value, best, syi_watch_delta(part, best))) {
        syi_state_count_up(state, "stale");
        return;
    }
    syi_state_set(state, "best", value);
    syi_state_set(state, "best_step", (double)step);
    syi_state_set(state, "stale", 0);
}
