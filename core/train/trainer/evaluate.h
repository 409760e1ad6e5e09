/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of an engine's weights on a file: greedy decoding scored against all references of an item, and
 * the loss. The trainer and `switchyard eval` share it. */
#ifndef SYI_EVALUATE_H
#define SYI_EVALUATE_H

#include "data/error_rate.h"
#include "data/eval_batches.h"
#include "comm/comm.h"
#include "train/trainer/trainer.h"

/* A file as evaluation sees it; read once a process, then only read from. */
struct syi_eval_data {
    const char *name; /* of the task, borrowed */
    struct syi_task task;
    struct syi_items items;
    struct syi_span *inputs, *targets; /* (n_items) input and first reference */
};
int syi_eval_data_load(struct syi_eval_data *data, const char *name, const char *file,
                       struct sy_error *err) SYI_MUST_CHECK;
void syi_eval_data_free(struct syi_eval_data *data);

/* One rank's part. */
struct syi_evaluation {
    const struct syi_eval_data *data; /* borrowed */
    struct syi_engine *engine;        /* borrowed */
    struct syi_comm *comm;            /* borrowed */
    int scores;                       /* 1: this rank compares texts (rank 0) */
    struct syi_vocabularies vocabularies;
    struct syi_eval_batches decode, loss;
    struct syi_batch batch;
    int32_t decode_length; /* most tokens of an output */
    int32_t *ids;          /* (rows, decode_length) */
    int32_t *lengths;      /* (rows) */
    struct syi_text text;  /* of one output */
    struct syi_error_rate rate;
};
/* The engine has the programs SYI_USE_EVAL and SYI_USE_DECODE. */
int syi_evaluation_open(struct syi_evaluation *evaluation, const struct syi_eval_data *data,
                        const struct syi_config *config, struct syi_engine *engine, struct syi_comm *comm,
                        struct sy_error *err) SYI_MUST_CHECK;
void syi_evaluation_close(struct syi_evaluation *evaluation);
/* Called by all ranks; all get the same result. poll: asked between positions of what is decoded (struct
 * syi_outputs) and before each batch whose loss is taken; or NULL. */
int syi_evaluation_run(struct syi_evaluation *evaluation, syi_poll_fn poll, void *poll_arg,
                       struct syi_eval_result *result, struct sy_error *err) SYI_MUST_CHECK;

#endif
