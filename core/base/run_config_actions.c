/* SPDX-License-Identifier: Apache-2.0 */
/* That each [action.NAME] has only keys which its kind takes (action_kinds.h), and the rules between them. */
#include "config.h"

#include <string.h>

#include "base/compat.h"
#include "base/run_config.h"

const char *syi_action_keys(int kind)
{
    static const char *const keys[] = {SYI_ACTIONS(SYI_ACTION_KEYS, )};
    return keys[kind];
}

int syi_action_is_of_training(const struct syi_action_part *part)
{
    return !strcmp(part->task, "train");
}

static int has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return 1;
    return 0;
}

static const char *action_name(int kind)
{
#define ACTION_TEXT(constant, text) text,
    static const char *const name[] = {SYI_ACTION_MAP(ACTION_TEXT)};
#undef ACTION_TEXT
    return name[kind];
}

/* A key that the kind does not take has its default. */
static int check_action_keys(const struct syi_action_part *part, struct sy_error *err)
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    while (strcmp(kind->name, "action")) kind++;
    for (size_t i = 0; i < kind->n_options; i++) {
        const struct syi_option *option = &kind->options[i];
        int differs, status = syi_option_differs(option, part, &differs, err);
        if (status) return status;
        if (!differs || !strcmp(option->name, "kind") || has_word(syi_action_keys(part->kind), option->name))
            continue;
        return syi_error(
            err, SY_EINVAL,
            "action.%s.%s means nothing to %s, which takes %s: leave it out, or give it its default, %s",
            part->name_of_part, option->name, action_name(part->kind), syi_action_keys(part->kind),
            option->default_text);
    }
    return SY_OK;
}

/* What is wrong with the part; NULL: nothing. */
static const char *action_fault(const struct syi_config *config, const struct syi_action_part *part)
{
    int training = syi_action_is_of_training(part), skips = part->policy == SYI_POLICY_SKIP;
    int evaluates = training || syi_config_evaluates(config);
    switch (part->kind) {
    case SYI_ACTION_EARLY_STOPPING:
        return part->patience && !evaluates ? "patience needs a file in task.NAME.valid" : NULL;
    case SYI_ACTION_TERMINATE_ON_NAN:
        if (*part->task && !evaluates) return "task needs a file in task.NAME.valid";
        if (skips && ((*part->task && !training) || strcmp(part->metric, "loss")))
            return "policy = \"skip\" leaves out updates whose gradients are not finite: leave task and metric out, or "
                   "take \"rollback\"";
        if (skips && syi_compat(config, config->train.nan_check))
            return "policy = \"skip\" needs train.nan_check = \"before\": after the update there is nothing to leave out";
        return NULL;
    case SYI_ACTION_KEEP_BEST:
        if (training) return "task = \"train\" is no evaluation, by which checkpoints are kept";
        return evaluates ? NULL : "kind needs a file in task.NAME.valid";
    case SYI_ACTION_REDUCE_LR:
        if (!part->patience) return "patience is 0: say after how many evaluations, 1 or more";
        return evaluates ? NULL : "kind needs a file in task.NAME.valid";
    case SYI_ACTION_COMMAND:
        if (!*part->command) return "command is empty: say what to run, as in \"sh notify.sh\"";
        if (training) return "task = \"train\" is no evaluation, after which it runs";
        return *part->task && part->on != SYI_ON_EVALUATION
                   ? "task means something with on = \"evaluation\" alone"
                   : NULL;
    case SYI_ACTION_PLUGIN:
        return *part->plugin ? NULL : "plugin is empty: give the NAME of switchyard_action-NAME.so";
    default: return NULL; /* no rule between its keys */
    }
}

int syi_config_check_actions(const struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->action.n && !status; i++) {
        const struct syi_action_part *part = &config->action.part[i];
        const char *fault = action_fault(config, part);
        status = check_action_keys(part, err);
        if (!status && fault) status = syi_error(err, SY_EINVAL, "action.%s.%s", part->name_of_part, fault);
    }
    return status;
}
