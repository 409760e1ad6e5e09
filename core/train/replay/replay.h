/* SPDX-License-Identifier: Apache-2.0 */
/* Doing one step of a run again: from the checkpoint before it, or from the seed where there is none, to that step, with
 * the same bits; then every tensor that the step's ops write can be looked at. Ops run one by one there (not fused), each
 * temporary in a place of its own, so what is seen is what the op left. Prints nothing. */
#ifndef SYI_REPLAY_H
#define SYI_REPLAY_H

#include "program/program.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/engine.h"

/* What an op of the step left. */
struct syi_replay_tensor {
    const char *program; /* "grad_first" */
    int64_t microbatch;  /* from 0; of the update 0 */
    size_t op;           /* its number in the program */
    const char
        *label; /* the tensor's name, or "LAYER:OP" of a temporary, ".1" and so on for further outputs */
    const char *text; /* the op as explain prints it */
    const struct sy_tensor *tensor;
};

struct syi_replay_job {
    struct syi_launch launch; /* of one rank; with the settings that the run had at that step */
    const char *run_dir;
    int64_t step; /* the step to do again: the one that counts up to this number, 1 the first */
    const struct syi_holes
        *holes;                 /* that the training which did the step made, as its database says; or NULL */
    const char *const *pattern; /* [n_patterns] of labels that `seen` gets: * any text, ? one byte */
    int n_patterns;
    void *arg;
    /* NULL where there are no patterns. Its failure ends the replay. */
    int (*seen)(void *arg, const struct syi_replay_tensor *tensor, struct sy_error *err);
    void *stored_arg;
    /* 1: the run stored that value ("loss") of its evaluation of a task ("NAME/valid") after a step, NaN where it is no
     * number; 0: it did not. NULL: nothing is known. Every evaluation has "items". */
    int (*evaluated)(void *stored_arg, int64_t step, const char *task, const char *name, double *value);
};

struct syi_replay_result {
    int64_t from; /* step of the checkpoint it went on from, -1: from the seed */
    double learning_rate;
    struct syi_step_result step;
    int64_t n_tensors, n_seen; /* written by the step; given to `seen` */
    int64_t n_not_finite;      /* tensors with NaN or Inf */
    /* The first of them, where there is one: */
    char program[48], label[256], text[2048];
    int64_t microbatch, element; /* its row-major number */
    int64_t expert;              /* whose the element is, -1: of none */
    double value;
};

int syi_replay_run(const struct syi_replay_job *job, struct syi_replay_result *result,
                   struct sy_error *err) SYI_MUST_CHECK;

#endif
