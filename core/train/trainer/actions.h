/* SPDX-License-Identifier: Apache-2.0 */
/* Actions: what looks at steps and evaluations by [action.NAME] of the run file, may end the run or send it back to a
 * checkpoint, and acts beside it. A kind is one file, action_KIND.c, with one row (action_kind.h). What decides sees
 * numbers that are equal on all ranks and remembers nothing but a struct syi_action_state, which checkpoints keep; so
 * all ranks decide alike and a resumed run goes on as if it had not stopped. */
#ifndef SYI_ACTIONS_H
#define SYI_ACTIONS_H

#include "train/trainer/trainer.h"

enum syi_moment_kind {
    SYI_AT_START = 1, /* before the first step, of a resumed run too */
    SYI_AFTER_STEP = 2,
    SYI_AFTER_EVALUATION = 4,
    SYI_AFTER_CHECKPOINT = 8,
    SYI_AFTER_RESUME = 16, /* states came out of a checkpoint */
    SYI_AT_END = 32
};

/* What has just happened. */
struct syi_moment {
    enum syi_moment_kind kind;
    int64_t step;                         /* steps done; of a step that is looked at, those before it */
    double rate;                          /* learning rate of the run at that step */
    int64_t checkpoint;                   /* step of the newest checkpoint, -1: none */
    const struct syi_step_result *result; /* after a step, with its batch, or both NULL */
    const struct syi_batch *batch;
    const struct syi_step_sums *sums;        /* after a step, this one included; or NULL */
    const struct syi_eval_result *evaluated; /* [n_evaluated] after an evaluation, one a task */
    int n_evaluated;
    const char *text; /* at the end: how the run ended; or NULL */
};

struct syi_verdict {
    int stop;           /* 1: end the run as `end` says */
    enum syi_end end;   /* with stop */
    int back;           /* 1: go back to the newest checkpoint and leave out the batches since */
    const char *action; /* kind of the action that spoke; NULL: none */
    const char *part;   /* name of its part, "" without one */
    char text[240];     /* why, one line */
};

/* What actions report that neither ends nor turns the run, and ask; each may be NULL. */
struct syi_action_report {
    void *arg;
    void (*event)(void *arg, const char *kind, const char *text);
    void (*warning)(void *arg, const char *text);
    int (*is_to_stop)(void *arg); /* by what this rank knows: no action may keep it from saving */
};

/* The actions of a run on one rank. */
struct syi_actions {
    const struct syi_config *config; /* borrowed, as what follows */
    struct syi_comm *comm;
    const char *run_dir;
    struct syi_action_report report;
    struct syi_action_state best; /* of all evaluations, by the part that says which is the best */
    struct syi_action_state state[SYI_CONFIG_PARTS]; /* of config->action.part */
    void *data[SYI_CONFIG_PARTS];                    /* of kinds that open something */
    int told[SYI_CONFIG_PARTS];                      /* 1: it was warned of what the part does not find */
};

/* Begins with empty states; loads plugins. comm orders the ranks where they must agree. On failure nothing is open. */
int syi_actions_open(struct syi_actions *actions, const struct syi_config *config, struct syi_comm *comm,
                     const char *run_dir, const struct syi_action_report *report,
                     struct sy_error *err) SYI_MUST_CHECK;
void syi_actions_close(struct syi_actions *actions); /* safe when zeroed; ends programs that still run */
/* Asks every action of the run that wants this moment, in the order of the file; the first that stops or goes back
 * ends the asking. Where none is a terminate_on_nan of steps, one that stops comes first. Called by all ranks, which get the
 * same verdict. An error: the ranks cannot agree. */
int syi_actions_run(struct syi_actions *actions, const struct syi_moment *moment, struct syi_verdict *verdict,
                    struct sy_error *err) SYI_MUST_CHECK;

/* Asks those alone that change the learning rates, about a moment that was before; it needs no syi_actions_open: actions
 * have their config, and states. What they report goes nowhere without a report. */
int syi_actions_follow(struct syi_actions *actions, const struct syi_moment *moment,
                       struct sy_error *err) SYI_MUST_CHECK;

/* Into a checkpoint, and back: by the names of the parts. A part that the checkpoint does not know, or that watches
 * something else now, begins anew, but an early_stopping without a state goes on from the best evaluation so far if
 * that is of what it watches. */
void syi_actions_put(const struct syi_actions *actions, struct syi_checkpoint_meta *meta);
void syi_actions_take(struct syi_actions *actions, const struct syi_checkpoint_meta *meta);
/* The same on a way back, on which what counts such ways is not forgotten. */
void syi_actions_take_back(struct syi_actions *actions, const struct syi_checkpoint_meta *meta);

/* What the learning rates are multiplied by; 1 without an action that reduces them. */
double syi_actions_rate_factor(const struct syi_actions *actions);
/* 1: some action may go back to a checkpoint, so there must be one before the first step. */
int syi_actions_need_checkpoint(const struct syi_actions *actions);
/* Step of the best evaluation so far, -1: none. */
int64_t syi_actions_best_step(const struct syi_actions *actions);
/* Steps whose checkpoints are kept besides the newest, that of the best not among them; returns how many. */
enum { SYI_ACTIONS_KEPT = 256 };
int syi_actions_kept(const struct syi_actions *actions, int64_t step[SYI_ACTIONS_KEPT]);
/* The same of a run whose actions are not open, as its checkpoint remembers. */
int syi_actions_kept_in(const struct syi_checkpoint_meta *meta, const struct syi_config *config,
                        int64_t step[SYI_ACTIONS_KEPT]);

/* Whether a step's gradients, or with train.nan_check = after its loss, are not finite; then what the step left is
 * spoiled. */
int syi_step_is_bad(const struct syi_config *config, const struct syi_step_result *result);

#endif
