/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "train/replay/replay_actions.h"

int syi_replay_actions_open(struct syi_replay_actions *a, const struct syi_replay_job *job,
                            const struct syi_schedule *schedule, const struct syi_checkpoint_meta *meta,
                            struct sy_error *err)
{
    a->job = job;
    a->schedule = schedule;
    a->actions.config = job->launch.config;
    a->evaluated = meta ? meta->evaluated : -1;
    if (meta) syi_actions_take(&a->actions, meta);
    if (meta) syi_step_sums_take(&a->sums, a->actions.config, meta);
    a->result = syi_alloc(SYI_CONFIG_PARTS * sizeof *a->result, err);
    return a->result ? SY_OK : SY_ENOMEM;
}

void syi_replay_actions_close(struct syi_replay_actions *a)
{
    syi_free(a->result);
    a->result = NULL;
}

double syi_replay_actions_factor(const struct syi_replay_actions *a)
{
    return syi_actions_rate_factor(&a->actions);
}

static int ask(struct syi_replay_actions *a, struct syi_moment *moment, struct sy_error *err)
{
    moment->checkpoint = -1;
    moment->rate = syi_schedule_value(a->schedule, moment->step) * syi_replay_actions_factor(a);
    return syi_actions_follow(&a->actions, moment, err);
}

int syi_replay_actions_step(struct syi_replay_actions *a, int64_t index, const struct syi_batch *batch,
                            const struct syi_step_result *result, struct sy_error *err)
{
    struct syi_moment moment = {
        .kind = SYI_AFTER_STEP, .step = index, .result = result, .batch = batch, .sums = &a->sums};
    syi_step_sums_add(&a->sums, a->actions.config, index, batch, result);
    return ask(a, &moment, err);
}

/* Of evaluations: 1 if an action reduces the learning rate after them. */
static int are_watched(const struct syi_config *config)
{
    for (int i = 0; i < config->action.n; i++)
        if (config->action.part[i].kind == SYI_ACTION_REDUCE_LR &&
            !syi_action_is_of_training(&config->action.part[i]))
            return 1;
    return 0;
}

/* The run evaluated then, unless it ended there. */
static int is_due(const struct syi_config *config, int64_t step)
{
    const int64_t every[] = {config->train.evaluate_every, config->train.decode_every};
    for (size_t i = 0; i < SYI_COUNT(every); i++)
        if (every[i] && step && step % every[i] == 0) return 1;
    return 0;
}

/* What the actions look at of one task. 1: it was evaluated. */
static int take(struct syi_replay_actions *a, int64_t step, const char *task, struct syi_eval_result *result)
{
    const struct syi_config *config = a->job->launch.config;
    double value;
    memset(result, 0, sizeof *result);
    result->task = task;
    result->left_out = 1; /* what is not stored was */
    if (!a->job->evaluated(a->job->stored_arg, step, task, "items", &value)) return 0;
    for (int i = 0; i < config->action.n; i++) {
        const struct syi_action_part *part = &config->action.part[i];
        if (part->kind == SYI_ACTION_REDUCE_LR &&
            a->job->evaluated(a->job->stored_arg, step, task, part->metric, &value))
            syi_eval_result_set(result, part->metric, value);
    }
    return 1;
}

/* Those of the tasks in their order, as the trainer makes them. Returns how many. */
static int gather(struct syi_replay_actions *a, int64_t step)
{
    const struct syi_config *config = a->job->launch.config;
    int n = 0;
    for (int i = 0; i < config->task.n && a->job->evaluated; i++) {
        snprintf(a->task[n], sizeof a->task[n], "%s/valid", config->task.part[i].name_of_part);
        if (*config->task.part[i].valid) n += take(a, step, a->task[n], &a->result[n]);
    }
    return n;
}

int syi_replay_actions_evaluation(struct syi_replay_actions *a, int64_t step, struct sy_error *err)
{
    const struct syi_config *config = a->job->launch.config;
    struct syi_moment moment = {.kind = SYI_AFTER_EVALUATION, .step = step};
    if (a->evaluated >= step || !are_watched(config)) return SY_OK;
    moment.evaluated = a->result;
    moment.n_evaluated = gather(a, step);
    if (moment.n_evaluated) a->evaluated = step;
    if (moment.n_evaluated) return ask(a, &moment, err);
    if (!is_due(config, step) || !syi_config_evaluates(config)) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "the evaluation after step %" PRId64 " is not in the run's database, and "
        "reduce_lr_on_plateau may have reduced the learning rate by it: give a step after a later "
        "checkpoint",
        step);
}
