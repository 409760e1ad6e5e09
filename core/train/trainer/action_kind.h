/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of action is made of: its row, and what the kinds share (action_watch.c: finding the value that a part
 * watches, comparing; action_state.c: numbers with names; action_report.c: events and warnings). base/action_kinds.h lists the kinds. */
#ifndef SYI_ACTION_KIND_H
#define SYI_ACTION_KIND_H

#include "train/trainer/actions.h"

/* One action asked about one moment. */
struct syi_action_call {
    struct syi_actions *all;
    int index; /* of the part; -1: of none, what runs without any */
    const struct syi_config *config;
    const struct syi_action_part *part;
    struct syi_action_state *state;
    void *data; /* what open made */
    const struct syi_moment *moment;
    struct syi_verdict *verdict;
};

/* A kind. */
struct syi_action {
    const char *name;
    int moments; /* bits of enum syi_moment_kind it wants */
    /* Both or none. open: SY_OK with *data, which may stay NULL. call->moment and ->verdict are NULL. */
    int (*open)(const struct syi_action_call *call, void **data, struct sy_error *err);
    void (*close)(void *data);
    /* Looks, changes its state, reports, and sets stop, end, back and text of the verdict. */
    int (*run)(struct syi_action_call *call, struct sy_error *err);
    double (*rate_factor)(const struct syi_action_state *state); /* NULL: 1 */
    /* NULL: none; at most 16, as action.NAME.n allows. */
    int (*kept)(const struct syi_action_state *state, int64_t step[16]);
};
#define SYI_ACTION_DECLARE(X, NAME, name, keys, help) extern const struct syi_action syi_action_##name;
SYI_ACTIONS(SYI_ACTION_DECLARE, )
#undef SYI_ACTION_DECLARE

/* ---- action_report.c ---- */

/* An event of the call's action, and a warning "KIND of [action.NAME]: ...". */
void syi_action_event(const struct syi_action_call *call, const char *format, ...) SYI_PRINTF(2, 3);
void syi_action_warn(const struct syi_action_call *call, const char *format, ...) SYI_PRINTF(2, 3);

/* ---- of one kind, needed elsewhere ---- */

/* action_early_stopping.c: remembers a value as both rules need it. */
void syi_stopping_note(struct syi_action_state *state, const struct syi_action_part *part, double value,
                       int64_t step);
/* action_terminate_on_nan.c: an event "not_finite" of a bad step that no action has dealt with. */
void syi_tell_bad_step(struct syi_actions *actions, const struct syi_moment *moment);

/* ---- action_state.c ---- */

/* The number of that name, or `otherwise`. */
double syi_state_get(const struct syi_action_state *state, const char *name, double otherwise);
/* The same of a count or a step, cut to -1..2^53. */
int64_t syi_state_count(const struct syi_action_state *state, const char *name, int64_t otherwise);
/* SY_EINVAL: the name is too long or there is no room for another. */
int syi_state_set(struct syi_action_state *state, const char *name, double value);
/* A count that cannot grow any more still is a count. */
void syi_state_count_up(struct syi_action_state *state, const char *name);

/* ---- action_watch.c ---- */

/* "min loss" or "max bleu of words/valid": what the numbers of a part are of. */
void syi_watch_text(const struct syi_action_part *part, char text[SYI_ACTION_WATCHES]);
/* Whether the numbers are of what the part watches. */
int syi_watch_is_same(const struct syi_action_state *state, const struct syi_action_part *part);
/* Forgets numbers of something else. */
void syi_watch_begin(struct syi_action_state *state, const struct syi_action_part *part);
/* Whether the moment brings what the part watches: of task "train" a step with a row of metrics (metrics.every), else an
 * evaluation. */
int syi_watch_is_due(const struct syi_action_call *call);
/* What there is one of each time, and several: "evaluations", "rows of metrics". */
const char *syi_watch_unit(const struct syi_action_part *part, int several);
/* Steps done when the value is there. */
int64_t syi_watch_step(const struct syi_moment *moment);
/* The evaluation that the part looks at, NULL: none of them. */
const struct syi_eval_result *syi_watch_evaluation(const struct syi_action_part *part,
                                                   const struct syi_moment *moment);
/* The value that the part watches, of the evaluation or, of a part without a task, of the step; 0: it is not there,
 * which is warned of once a part, unless it may be one that this evaluation left out. */
int syi_watch_value(const struct syi_action_call *call, double *value);
/* A value of a step by the name of its metric; 0: there is none. */
int syi_step_value(const struct syi_config *config, const struct syi_moment *moment, const char *name,
                   double *value);
/* Whether value is better than `than` by more than `delta`; a value that is not a number never is, and any other is
 * better than one. */
int syi_is_better(int mode, double value, double than, double delta);
/* By how much a value must be better than `than`. */
double syi_watch_delta(const struct syi_action_part *part, double than);
/* Remembers the value as "best", of "best_step", and counts "stale" values since. */
void syi_watch_best(struct syi_action_state *state, const struct syi_action_part *part, double value,
                    int64_t step);

#endif
