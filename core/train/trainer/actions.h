/* SPDX-License-Identifier: Apache-2.0 */
/* Actions: what looks at a step or an evaluation and may end the run, by [action.NAME] of the run file. A
 * kind is one table row and one function. They see numbers that are equal on all ranks and hold no state but
 * struct syi_action_state, which checkpoints keep; so all ranks decide alike and a resumed run goes on as if
 * it had not stopped. */
#ifndef SYI_ACTIONS_H
#define SYI_ACTIONS_H

#include "train/trainer/trainer.h"

/* What a part remembers. */
struct syi_action_state {
    int metric;        /* SYI_METRIC_*, of best */
    double best;       /* smallest value of an evaluation so far, NaN: none */
    int64_t best_step; /* of the best, -1: none */
    int64_t stale;     /* evaluations since the best */
    double previous;   /* value of the last evaluation, NaN: none */
    int64_t unbroken;  /* newest evaluations in a row of which each but the first is no better than the one
                          before; 0: none yet */
};

struct syi_action_states {
    struct syi_action_state
        best; /* of all evaluations, by the metric of the first early_stopping, else the loss */
    struct syi_action_state part[SYI_CONFIG_PARTS]; /* of config->action.part */
};

enum syi_moment_kind { SYI_AFTER_STEP = 1, SYI_AFTER_EVALUATION = 2, SYI_AFTER_RESUME = 4 };

/* What has just happened. */
struct syi_moment {
    enum syi_moment_kind kind;
    int64_t step; /* steps done; of a step whose update was left out, those before it */
    const struct syi_step_result *result; /* after a step */
    /* after an evaluation: of each task, in the order of the run file; which modes (enum syi_mode) a result and its
     * values are of stands in them. The first is the one whose best value is kept. */
    const struct syi_eval_result *evaluated;
    int n_evaluated;
};

struct syi_verdict {
    int stop;         /* 1: end the run as `end` says */
    enum syi_end end; /* with stop */
    const char
        *action; /* kind of the action that spoke, "not_finite": a bad step that ends nothing; NULL: none */
    const char *part; /* name of its part, "" without one */
    char text[200];   /* why, one line; without stop too when there is something to report */
};

/* A kind, in the order of SYI_ACTION_MAP. */
struct syi_action {
    const char *name;
    int moments; /* bits of enum syi_moment_kind it wants */
    /* Sets stop, end and text of a verdict that stops. part, state: its options, what it remembers. */
    void (*run)(const struct syi_config *config, const struct syi_action_part *part,
                struct syi_action_state *state, const struct syi_moment *moment, struct syi_verdict *verdict);
};
const struct syi_action *syi_actions(size_t *n);

/* Whether a step's numbers are such that terminate_on_nan speaks; with train.nan_check = after, what the step
 * left is spoiled. */
int syi_step_is_bad(const struct syi_config *config, const struct syi_step_result *result);
void syi_action_states_init(struct syi_action_states *states);
/* Into a checkpoint, and back: by the names of the parts. A part that the checkpoint does not know begins
 * anew, but the first early_stopping goes on from the best evaluation so far. */
void syi_action_states_put(const struct syi_config *config, const struct syi_action_states *states,
                           struct syi_checkpoint_meta *meta);
void syi_action_states_take(const struct syi_config *config, const struct syi_checkpoint_meta *meta,
                            struct syi_action_states *states);
/* Asks every action of the run that wants this moment, in the order of the file; the first that stops ends
 * the asking. Without any, terminate_on_nan. */
void syi_actions_run(const struct syi_config *config, struct syi_action_states *states,
                     const struct syi_moment *moment, struct syi_verdict *verdict);

#endif
