/* SPDX-License-Identifier: Apache-2.0 */
/* What actions remember, on its way into checkpoints and out of them. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/trainer/action_kind.h"

int64_t syi_actions_best_step(const struct syi_actions *actions)
{
    return syi_state_count(&actions->best, "best_step", -1);
}

void syi_actions_put(const struct syi_actions *actions, struct syi_checkpoint_meta *meta)
{
    meta->best_metric = syi_state_get(&actions->best, "best", NAN);
    meta->best_step = syi_actions_best_step(actions);
    meta->action[0] = actions->best;
    meta->n_actions = 1;
    for (int i = 0; i < actions->config->action.n; i++) {
        struct syi_action_state *to = &meta->action[meta->n_actions++];
        *to = actions->state[i];
        memcpy(to->name, actions->config->action.part[i].name_of_part, sizeof(to->name));
    }
}

static const struct syi_action_state *find_state(const struct syi_checkpoint_meta *meta, const char *name)
{
    for (int i = 0; i < meta->n_actions; i++)
        if (!strcmp(meta->action[i].name, name)) return &meta->action[i];
    return NULL;
}

/* The first early_stopping, whose state may come from the best evaluation so far; -1: none. */
static int first_stopping(const struct syi_config *config)
{
    for (int i = 0; i < config->action.n; i++)
        if (config->action.part[i].kind == SYI_ACTION_EARLY_STOPPING) return i;
    return -1;
}

static void take(struct syi_actions *actions, const struct syi_checkpoint_meta *meta, int i)
{
    const struct syi_action_part *part = &actions->config->action.part[i];
    const struct syi_action_state *from = find_state(meta, part->name_of_part);
    if (!from && i == first_stopping(actions->config) && syi_watch_is_same(&actions->best, part))
        from = &actions->best;
    memset(&actions->state[i], 0, sizeof actions->state[i]);
    if (from) actions->state[i] = *from;
}

static void take_best(struct syi_actions *actions, const struct syi_checkpoint_meta *meta)
{
    const struct syi_action_state *best = find_state(meta, "");
    memset(&actions->best, 0, sizeof actions->best);
    if (best) actions->best = *best;
}

void syi_actions_take(struct syi_actions *actions, const struct syi_checkpoint_meta *meta)
{
    take_best(actions, meta);
    for (int i = 0; i < actions->config->action.n; i++) take(actions, meta, i);
}

void syi_actions_take_back(struct syi_actions *actions, const struct syi_checkpoint_meta *meta)
{
    take_best(actions, meta);
    for (int i = 0; i < actions->config->action.n; i++)
        if (actions->config->action.part[i].kind != SYI_ACTION_TERMINATE_ON_NAN) take(actions, meta, i);
}

int syi_actions_kept_in(const struct syi_checkpoint_meta *meta, const struct syi_config *config,
                        int64_t step[SYI_ACTIONS_KEPT])
{
    struct syi_actions actions = {.config = config};
    syi_actions_take(&actions, meta);
    return syi_actions_kept(&actions, step);
}
