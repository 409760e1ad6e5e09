/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of a run: the list of their kinds, opening them, asking them. Carrying out a verdict is the trainer's. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/trainer/action_kind.h"

#define ADDRESS(X, NAME, name, keys, help) [SYI_ACTION_##NAME] = &syi_action_##name,
static const struct syi_action *const kinds[] = {SYI_ACTIONS(ADDRESS, )};

static struct syi_action_call call_of(struct syi_actions *actions, int i)
{
    return (struct syi_action_call){.all = actions,
                                    .index = i,
                                    .config = actions->config,
                                    .part = &actions->config->action.part[i],
                                    .state = &actions->state[i],
                                    .data = actions->data[i]};
}

static const struct syi_action *kind_of(const struct syi_actions *actions, int i)
{
    return kinds[actions->config->action.part[i].kind];
}

/* ---- life ---- */

int syi_actions_open(struct syi_actions *actions, const struct syi_config *config, struct syi_comm *comm,
                     const char *run_dir, const struct syi_action_report *report, struct sy_error *err)
{
    int status = SY_OK;
    memset(actions, 0, sizeof(*actions));
    actions->config = config;
    actions->comm = comm;
    actions->run_dir = run_dir;
    actions->report = *report;
    for (int i = 0; i < config->action.n && !status; i++) {
        struct syi_action_call call = call_of(actions, i);
        if (kind_of(actions, i)->open) status = kind_of(actions, i)->open(&call, &actions->data[i], err);
    }
    if (status) syi_actions_close(actions);
    return status;
}

void syi_actions_close(struct syi_actions *actions)
{
    for (int i = 0; actions->config && i < actions->config->action.n; i++)
        if (actions->data[i]) kind_of(actions, i)->close(actions->data[i]);
    memset(actions, 0, sizeof(*actions));
}

/* ---- the best evaluation ---- */

static const struct syi_action_part *first_of(const struct syi_config *config, int kind)
{
    for (int i = 0; i < config->action.n; i++)
        if (config->action.part[i].kind == kind && !syi_action_is_of_training(&config->action.part[i]))
            return &config->action.part[i];
    return NULL;
}

/* By the first keep_best, else the first early_stopping, else the loss of the first evaluation. */
static void note_best(struct syi_actions *actions, const struct syi_moment *moment)
{
    static const struct syi_action_part loss = {.metric = "loss", .mode = SYI_MODE_MIN};
    const struct syi_action_part *part = first_of(actions->config, SYI_ACTION_KEEP_BEST);
    if (!part) part = first_of(actions->config, SYI_ACTION_EARLY_STOPPING);
    if (!part) part = &loss;
    const struct syi_eval_result *result = syi_watch_evaluation(part, moment);
    const double *value = result ? syi_eval_result_find(result, part->metric) : NULL;
    if (value) syi_stopping_note(&actions->best, part, *value, moment->step);
}

/* ---- asking ---- */

static int ask(struct syi_action_call *call, const struct syi_moment *moment, struct syi_verdict *verdict,
               struct sy_error *err)
{
    const struct syi_action *kind = kinds[call->part->kind];
    if (!(kind->moments & (int)moment->kind)) return SY_OK;
    call->moment = moment;
    call->verdict = verdict;
    int status = kind->run(call, err);
    if (status || !(verdict->stop || verdict->back)) return status;
    verdict->action = kind->name;
    verdict->part = call->part->name_of_part;
    return SY_OK;
}

/* Whether steps are looked at though no action does so. T5X runs the actions that are written and no others. */
static int are_watched(const struct syi_config *config)
{
    if (config->run.compat == SYI_COMPAT_T5X) return !config->action.n;
    for (int i = 0; i < config->action.n; i++) {
        const struct syi_action_part *part = &config->action.part[i];
        if (part->kind == SYI_ACTION_TERMINATE_ON_NAN && (!*part->task || syi_action_is_of_training(part)))
            return 0;
    }
    return 1;
}

static int ask_watch(struct syi_actions *actions, const struct syi_moment *moment,
                     struct syi_verdict *verdict, struct sy_error *err)
{
    static const struct syi_action_part watch = {
        .kind = SYI_ACTION_TERMINATE_ON_NAN, .metric = "loss", .policy = SYI_POLICY_STOP, .max_skips = 1};
    struct syi_action_state none = {0}; /* stopping remembers nothing */
    struct syi_action_call call = {
        .all = actions, .index = -1, .config = actions->config, .part = &watch, .state = &none};
    return ask(&call, moment, verdict, err);
}

int syi_actions_run(struct syi_actions *actions, const struct syi_moment *moment, struct syi_verdict *verdict,
                    struct sy_error *err)
{
    int n = actions->config->action.n, status = SY_OK;
    memset(verdict, 0, sizeof(*verdict));
    if (moment->kind == SYI_AFTER_EVALUATION) note_best(actions, moment);
    if (are_watched(actions->config)) status = ask_watch(actions, moment, verdict, err);
    for (int i = 0; i < n && !status && !verdict->stop && !verdict->back; i++) {
        struct syi_action_call call = call_of(actions, i);
        status = ask(&call, moment, verdict, err);
    }
    if (!status && moment->kind == SYI_AFTER_STEP && !verdict->action) syi_tell_bad_step(actions, moment);
    return status;
}

int syi_actions_follow(struct syi_actions *actions, const struct syi_moment *moment, struct sy_error *err)
{
    struct syi_verdict verdict = {0};
    int status = SY_OK;
    for (int i = 0; i < actions->config->action.n && !status; i++) {
        struct syi_action_call call = call_of(actions, i);
        if (kind_of(actions, i)->rate_factor) status = ask(&call, moment, &verdict, err);
    }
    return status;
}

/* ---- what the kinds add up to ---- */

double syi_actions_rate_factor(const struct syi_actions *actions)
{
    double factor = 1;
    for (int i = 0; i < actions->config->action.n; i++)
        if (kind_of(actions, i)->rate_factor) factor *= kind_of(actions, i)->rate_factor(&actions->state[i]);
    return factor;
}

int syi_actions_kept(const struct syi_actions *actions, int64_t step[SYI_ACTIONS_KEPT])
{
    int n = 0;
    _Static_assert(SYI_ACTIONS_KEPT >= 16 * SYI_CONFIG_PARTS, "16 of each part");
    for (int i = 0; i < actions->config->action.n; i++)
        if (kind_of(actions, i)->kept) n += kind_of(actions, i)->kept(&actions->state[i], step + n);
    return n;
}

int syi_actions_need_checkpoint(const struct syi_actions *actions)
{
    const struct syi_config *config = actions->config;
    for (int i = 0; i < config->action.n; i++)
        if (config->action.part[i].kind == SYI_ACTION_TERMINATE_ON_NAN &&
            config->action.part[i].policy == SYI_POLICY_ROLLBACK)
            return 1;
    return 0;
}
