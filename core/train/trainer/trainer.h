/* SPDX-License-Identifier: Apache-2.0 */
/* Training and evaluation of a run: the loops over engine, data, actions, checkpoints and the
 * metric sink. They never see ops or files of the metrics store. What a user sees goes through the report
 * functions. */
#ifndef SYI_TRAINER_H
#define SYI_TRAINER_H

#include <stdatomic.h>

#include "train/checkpoint/checkpoint.h"
#include "train/engine/engine.h"
#include "train/launch/run_dir.h"
#include "train/trainer/sink.h"

/* How a run ended; the exit status of the command follows from it. */
enum syi_end {
    SYI_END_DONE,
    SYI_END_STOPPED_EARLY,
    SYI_END_NAN,
    SYI_END_SIGNAL,
    SYI_END_TIME_LIMIT,
    SYI_END_SINK, /* the sink failed and metrics.on_failure is stop */
    SYI_END_DATA  /* data cannot be read any more; the weights are saved */
};

enum { SYI_END_BYTES = 512 };

struct syi_progress {
    int64_t step, steps; /* done, in all */
    double loss, learning_rate;
    double tokens_per_second; /* real tokens, both sides, over the last lines */
    double seconds_left;
    double step_seconds; /* median so far */
};

/* What a number is of, as T5X tells its action modes apart (trainer.py, ActionMode): bits. */
enum syi_mode {
    SYI_MODE_TRAIN = 1, /* a training step */
    SYI_MODE_TRAIN_EVAL =
        2, /* an evaluation that reads the targets: loss, accuracy and T5X's other metrics of training */
    SYI_MODE_INFER_EVAL = 4 /* an evaluation that decodes: metrics of texts */
};

/* A number of an evaluation: "loss" per target token of what fits, "wer" and "per" as shares, and others
 * (doc/evaluation.md). */
struct syi_eval_value {
    const char *name; /* borrowed, lives as long as the run */
    double value;     /* NaN is legal */
    enum syi_mode mode;
};
enum { SYI_EVAL_VALUES = 64 };
/* Where its tokens went in a layer with experts. */
struct syi_eval_routing {
    const char *layer;               /* "encoder/layers_1/mlp" */
    const int64_t *tokens, *dropped; /* [n_experts] of the result */
};
struct syi_eval_result {
    const char *task; /* "NAME/valid", "NAME/test" of [task.NAME], or a file */
    int64_t items,
        cut;       /* cut: too long for the limits, counted as wrong; left out where nothing is decoded */
    int64_t unfit; /* what the losses leave out, for input or target is too long */
    int modes;     /* of its values, enum syi_mode */
    char settings[SYI_DECODE_TEXT]; /* how its texts were decoded; "" where none were */
    int left_out; /* 1: the task has metrics that need outputs, and this time nothing was decoded */
    int n;
    struct syi_eval_value value[SYI_EVAL_VALUES]; /* in the order in which people want to see them */
    const struct syi_sink_example *example;       /* [n_examples] borrowed until the next evaluation */
    int n_examples;
    const struct syi_eval_routing *routing; /* [n_routing], likewise: a layer each */
    int n_routing, n_experts;
};
/* Adds a value, or sets the one of that name; one too many is left out. Without a mode it is SYI_MODE_TRAIN_EVAL. */
void syi_eval_result_set(struct syi_eval_result *result, const char *name, double value);
void syi_eval_result_set_mode(struct syi_eval_result *result, const char *name, double value,
                              enum syi_mode mode);
/* NULL: there is none of that name. */
const double *syi_eval_result_find(const struct syi_eval_result *result, const char *name);
/* Its rows for a sink: all values, "items" and "cut", then the examples and what the experts took. What fails does not keep
 * the others back; the first failure is returned. */
int syi_eval_result_write(const struct syi_eval_result *result, const struct syi_metric_sink *sink,
                          int64_t step, struct sy_error *err);

/* Where a command shows things; called on rank 0 only. Any may be NULL. */
struct syi_report {
    void *arg;
    void (*line)(void *arg, const char *text);                        /* start-up, checkpoints, events */
    void (*progress)(void *arg, const struct syi_progress *progress); /* every step; the receiver thins out */
    void (*eval)(void *arg, int64_t step, const struct syi_eval_result *result);
    /* How far an evaluation is, before each batch: items of those that take part. what: "NAME/valid decoded" or
     * "NAME/valid loss". */
    void (*work)(void *arg, const char *what, int64_t done, int64_t all);
};

struct syi_train_job {
    struct syi_launch launch;           /* config inside */
    struct syi_run_dir *dir;            /* its path is set; open does the rest */
    int resume;                         /* continue from the latest checkpoint if there is one */
    const struct syi_metric_sink *sink; /* of rank 0; used after open only */
    /* Opens dir and sink. Called once, by rank 0, when data are read, memory is taken and all ranks stand, so that
     * what fails before leaves no run directory. rank: rank 0, which knows the kernels that were taken. */
    int (*open)(void *open_arg, const struct syi_rank *rank, struct sy_error *err);
    /* Called by rank 0 once the run has its weights and its place, so that what a resumed run is refused for leaves its
     * run directory as it was; and before a checkpoint where there is no run.conf any more. NULL: nothing is left to write. */
    int (*begun)(void *open_arg, struct sy_error *err);
    void *open_arg;
    /* Once open: keys that a resumed run has other values of than before, a line each; NULL: not known. */
    const struct syi_text *changes;
    struct syi_report report;
    const atomic_int *stop; /* not 0: save and stop (set by a signal handler) */
};

struct syi_train_result {
    enum syi_end end;
    int64_t steps;
    double median_step_seconds;
    char weights_sha256[65];
    char what[SYI_END_BYTES]; /* why it ended, one line */
};

int syi_train(const struct syi_train_job *job, struct syi_train_result *result,
              struct sy_error *err) SYI_MUST_CHECK;

/* Evaluates a checkpoint of a run on the test files of its tasks, in their order. */
struct syi_eval_job {
    struct syi_launch launch;
    const char *run_dir;
    int64_t checkpoint; /* a step, SYI_CHECKPOINT_LATEST or SYI_CHECKPOINT_BEST */
    const char *task;   /* name of a part: that task alone; NULL: all that have a test file */
    const char *file; /* this one instead, by the metrics of that task or of the one trained on; NULL: none */
    struct syi_report report;
    void *arg;
    /* Called on rank 0 with each result when it is there; step: the checkpoint's. */
    void (*result)(void *arg, int64_t step, const struct syi_eval_result *result);
};
int syi_eval_run(const struct syi_eval_job *job, struct sy_error *err) SYI_MUST_CHECK;

#endif
