/* SPDX-License-Identifier: Apache-2.0 */
/* The list of actions: one row each. The values of action.NAME.kind, their help, the keys that each takes and the table in
 * train/trainer/actions.c, which wants a `syi_action_NAME` for each, come from it. */
#ifndef SYI_ACTION_KINDS_H
#define SYI_ACTION_KINDS_H

/* ROW(X, CONSTANT, name, keys of [action.NAME] that it takes besides kind, help); X is handed on. */
#define SYI_ACTIONS(ROW, X)                                                                                  \
    ROW(X, EARLY_STOPPING, early_stopping, "task metric mode patience atol rtol compare",                    \
        "early_stopping: ends the run after evaluations without a better value. ")                           \
    ROW(X, TERMINATE_ON_NAN, terminate_on_nan, "task metric policy max_skips",                               \
        "terminate_on_nan: looks for gradients and values that are not finite; steps are looked at, and "    \
        "the run ends, where no section of this kind is for them, too (with run.compat = t5x: where no "     \
        "section of any kind is written). ")                                                                 \
    ROW(X, KEEP_BEST, keep_best, "task metric mode n",                                                       \
        "keep_best: keeps the checkpoints of the best evaluations. ")                                        \
    ROW(X, REDUCE_LR, reduce_lr_on_plateau, "task metric mode patience atol rtol factor min_lr cooldown",    \
        "reduce_lr_on_plateau: multiplies the learning rate after evaluations without a better value. ")     \
    ROW(X, COMMAND, command, "task command on time_limit", "command: runs a program. ")                      \
    ROW(X, PLUGIN, plugin, "plugin arguments", "plugin: asks a library of one's own. ")

#define SYI_ACTION_CHOICE(X, NAME, name, keys, help)   X(SYI_ACTION_##NAME, #name)
#define SYI_ACTION_KEYS(X, NAME, name, keys, help)     [SYI_ACTION_##NAME] = keys,
#define SYI_ACTION_SENTENCE(X, NAME, name, keys, help) help
#define SYI_ACTION_MAP(X)                              SYI_ACTIONS(SYI_ACTION_CHOICE, X)
#define SYI_ACTION_HELP                                SYI_ACTIONS(SYI_ACTION_SENTENCE, )

#endif
