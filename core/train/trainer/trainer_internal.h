/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's own structure, one a rank, shared by trainer.c (making it), train_loop.c (running it), trainer_save.c
 * (its checkpoints) and trainer_sink.c (what it gives to the sink). */
#ifndef SYI_TRAINER_INTERNAL_H
#define SYI_TRAINER_INTERNAL_H

#include "optim/schedule.h"
#include "train/engine/rates.h"
#include "train/engine/train_data.h"
#include "train/init/init.h"
#include "train/trainer/actions.h"
#include "train/trainer/deadline.h"
#include "train/trainer/evaluations.h"
#include "train/trainer/rank_log.h"
#include "train/trainer/state_leaves.h"
#include "train/trainer/step_sums.h"
#include "train/trainer/timing.h"

struct syi_trainer {
    const struct syi_train_job *job;
    const struct syi_config *config;
    const struct syi_rank *rank;
    struct syi_engine *engine;
    struct syi_schedule schedule;       /* the learning rate of a step */
    double part_rate[SYI_CONFIG_PARTS]; /* of the last step: that of each optimizer, by its number */
    struct syi_train_data data;
    struct syi_row_position rows;       /* of packed rows: where to look for those of the next step */
    int told_to_wait;                   /* 1: that steps wait for batches was reported */
    const struct syi_batch *batch;      /* of the last step, borrowed of data */
    const struct syi_batch *next;       /* likewise of the one to come, once it is read; or NULL */
    double read_seconds;                /* that took */
    struct sy_error unread;             /* why it, or one of an evaluation, cannot be read */
    struct syi_evaluations evaluations; /* n 0: none wanted */
    struct syi_rank_log log;
    struct syi_timing timing;
    struct syi_rates rates;    /* of the steps since the last row of metrics */
    struct syi_step_sums sums; /* of those since the last multiple of metrics.every */
    struct syi_actions actions;
    double compile_seconds, restore_seconds; /* that programs took to be made, weights to be there */
    struct syi_state_leaves state;           /* of checkpoints under run.compat = t5x */
    int drawn;                               /* 1: weights were drawn, or taken from another run */
    struct syi_init_report init;             /* of those */
    struct syi_deadline deadline;            /* rank 0 only */
    struct syi_holes holes;                  /* of the training stream */
    double begin;                            /* of the run, seconds; rank 0's clock counts */
    double loop_begin;                       /* of the first step, seconds */
    int64_t loop_step;                       /* steps done at loop_begin */
    int64_t step;                            /* steps done */
    int64_t evaluated;                       /* step of the last evaluation, -1: none */
    struct syi_saver *saver;
    double pause;   /* seconds that training stood still for the last checkpoint */
    int64_t saved;  /* step of the last checkpoint begun, -1: none, or one that failed or does not know all */
    int64_t newest; /* step of the newest checkpoint on disk, -1: none */
    int back;       /* 1: an action wants to go back to it */
    double
        saved_at; /* seconds, of the last checkpoint begun or, without one, of the first step; rank 0's counts */
    int config_again;    /* 1: the save under way wrote run.conf, which was gone */
    int overdue;         /* 1: all ranks agree that train.checkpoint_seconds have passed since */
    int64_t *routing;    /* (2, experts) counts of a layer on their way to the sink */
    int sink_failed;     /* 1: the sink failed, and that is reported; rank 0 only */
    int64_t retry_steps; /* from a save that failed until it is tried again; 0: the last one did not fail */
    int64_t retry;    /* with retry_steps: the step after which that is due, not while a save is under way */
    int made;         /* 1: a step is made that t->step does not count yet */
    int bad;          /* 1: the last step was bad */
    int spoiled;      /* 1: a step left weights that are not finite (train.nan_check = after) */
    char weights[65]; /* SHA-256 of that checkpoint, on rank 0 */
    double looked;    /* seconds, for a request to move; rank 0 only, as the next two */
    int64_t request;  /* time of what is in its place */
    int64_t refused;  /* of what could not be taken, which is reported: the next one may be */
    int asked;        /* 1: all ranks agree that there is one */
    int ended;        /* 1: `end` and `what` say how and why; what is left is to save */
    enum syi_end end;
    char what[SYI_END_BYTES];
};

/* From t->step to the end of the run, and its checkpoint. */
int syi_trainer_loop(struct syi_trainer *t, struct sy_error *err) SYI_MUST_CHECK;

/* ---- trainer_ask.c ---- */

/* Asks the actions about a moment of that step, whose step and rate it fills in, and ends or turns the run as they say. */
int syi_trainer_ask(struct syi_trainer *t, int64_t step, struct syi_moment *moment,
                    struct sy_error *err) SYI_MUST_CHECK;
/* From now on the run ends, and the text says why; what is left is to save. */
void syi_trainer_end(struct syi_trainer *t, enum syi_end end, const char *format, ...) SYI_PRINTF(3, 4);
/* Step of the newest checkpoint on disk or on its way there, -1: none. */
int64_t syi_trainer_newest(const struct syi_trainer *t);

/* ---- trainer_save.c: all ranks call these alike ---- */

int syi_trainer_is_save_due(const struct syi_trainer *t);
int syi_trainer_is_to_be_kept(const struct syi_trainer *t); /* this step's evaluation is one of the best */
/* Begins the checkpoint of this step, after the one under way has ended; at the end of the run, or without
 * checkpoint.background, it is on disk on return. */
int syi_trainer_save(struct syi_trainer *t, struct sy_error *err) SYI_MUST_CHECK;
/* With the sums of what syi_saver_words gave on all ranks. */
int syi_trainer_advance_save(struct syi_trainer *t, const int64_t sum[SYI_SAVER_WORDS],
                             struct sy_error *err) SYI_MUST_CHECK;
/* Reports a checkpoint that came to its end, if one did. */
int syi_trainer_note_save(struct syi_trainer *t, struct sy_error *err) SYI_MUST_CHECK;
/* Brings the checkpoint under way to its end first; nothing where there is none. */
int syi_trainer_wait_save(struct syi_trainer *t, struct sy_error *err) SYI_MUST_CHECK;

/* ---- trainer_move.c ---- */

/* Whether somebody asks the run to move to another backend: a look at its directory now and then. */
int syi_trainer_is_asked(struct syi_trainer *t);
/* Takes the request and does as it says, or refuses it and says why; all ranks call it. An error: the run cannot go on. */
int syi_trainer_move(struct syi_trainer *t, struct sy_error *err) SYI_MUST_CHECK;

/* ---- trainer_sink.c: rows for the sink, from rank 0; a failure there is reported, never returned ---- */

/* A line for the user, from rank 0 only; also for the log of each rank. */
void syi_trainer_say(struct syi_trainer *t, const char *format, ...) SYI_PRINTF(2, 3);
/* A warning about a step of the run: on stderr, in its log and an event of this kind from rank 0, in the rank's own log. */
void syi_trainer_warn(struct syi_trainer *t, int64_t step, const char *kind, const char *text);
/* The step that the run is at, with one that is made. */
int64_t syi_trainer_at(const struct syi_trainer *t);
/* An event of that step. */
void syi_trainer_event(struct syi_trainer *t, const char *kind, const char *text);
/* Of another one. */
void syi_trainer_event_at(struct syi_trainer *t, int64_t step, const char *kind, const char *text);
/* After each step; what of it is due goes to the sink. */
void syi_trainer_write_step(struct syi_trainer *t, const struct syi_step_result *result);
/* The weight metrics of a step that has them. */
void syi_trainer_write_weights(struct syi_trainer *t, const struct syi_step_result *result);
/* How long something of a step took: "timing/checkpoint_seconds". */
void syi_trainer_write_seconds(struct syi_trainer *t, int64_t step, const char *name, double seconds);
void syi_trainer_write_eval(struct syi_trainer *t, const struct syi_eval_result *result);
/* The run goes back to t->step: rows of later steps do not count any more. */
void syi_trainer_write_back(struct syi_trainer *t);
/* Asks for the rows given so far to be brought to disk, and waits for that for so long at most. */
void syi_trainer_flush(struct syi_trainer *t, double seconds);

#endif
