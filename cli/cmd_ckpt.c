/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard ckpt ACTION: checkpoints as things to look at, compare, make and remove. */
#include "config.h"

#include <string.h>

#include "cli/ckpt/ckpt.h"

static const struct ckpt_action actions[] = {
    {"list", "RUN", 1, "tsv json", ckpt_list},       {"show", "RUN|FOLDER", 1, "step tsv json", ckpt_show},
    {"check", "RUN|FOLDER", 1, "", ckpt_check},      {"diff", "A B", 2, "step tsv json", ckpt_diff},
    {"average", "RUN", 1, "steps to", ckpt_average}, {"cast", "RUN", 1, "step dtype to", ckpt_cast},
    {"prune", "RUN", 1, "keep steps", ckpt_prune},
};

static const struct ckpt_action *find_action(const char *name)
{
    const char *names[SYI_COUNT(actions)];
    for (size_t i = 0; i < SYI_COUNT(actions); i++) {
        if (!strcmp(name, actions[i].name)) return &actions[i];
        names[i] = actions[i].name;
    }
    cli_error("ckpt: unknown action %s, did you mean %s? (list, show, check, diff, average, cast or prune)",
              name, cli_nearest(name, names, SYI_COUNT(names)));
    return NULL;
}

/* An option that the action does not take would have no effect. */
static int check_options(const struct ckpt_action *action, const struct cli_options *o)
{
    const struct {
        const char *name;
        int given;
    } options[] = {{"step", o->checkpoint != SYI_CHECKPOINT_LATEST},
                   {"steps", o->which != NULL},
                   {"to", o->folder != NULL},
                   {"dtype", o->dtype != NULL},
                   {"keep", o->keep != 0},
                   {"tsv", o->tsv},
                   {"json", o->json}};
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        const char *at = action->options;
        size_t length = strlen(options[i].name);
        while (*at && (strncmp(at, options[i].name, length) || (at[length] && at[length] != ' ')))
            at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ');
        if (!options[i].given || *at) continue;
        cli_error("ckpt %s takes no --%s", action->name, options[i].name);
        return CLI_USAGE;
    }
    if (!o->tsv || !o->json) return CLI_DONE;
    cli_error("ckpt: --tsv and --json: give one of them");
    return CLI_USAGE;
}

int cli_ckpt(const struct cli_options *o)
{
    const struct ckpt_action *action = find_action(o->operand[0]);
    if (!action) return CLI_USAGE;
    if (o->n_operands != 1 + action->n_operands) {
        cli_error("ckpt: usage: switchyard ckpt %s [OPTIONS] %s", action->name, action->operands);
        return CLI_USAGE;
    }
    cli_log_to_stderr(0);
    int status = check_options(action, o);
    return status ? status : action->run(o, o->operand + 1);
}
