/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of an engine's weights on one file: the loss and what else needs no outputs, and, where the task has metrics
 * of texts, decoding and scores against all references of an item. evaluations.h runs those of all tasks. */
#ifndef SYI_EVALUATE_H
#define SYI_EVALUATE_H

#include "comm/comm.h"
#include "data/eval_batches.h"
#include "text_metrics/text_metrics.h"
#include "train/trainer/trainer.h"

/* A file as evaluation sees it; one a process, then only read from. Of several processes the first reads it, and the others
 * have it from there. */
struct syi_eval_data {
    char name[SYI_CONFIG_STRING];        /* of the task: "NAME/valid", "NAME/test", or the file */
    const struct syi_task_part *options; /* borrowed */
    const struct syi_config *config;     /* borrowed */
    struct syi_task task;                /* of running text only its path and id */
    struct syi_items items;              /* the first options->eval_examples */
    struct syi_span *inputs, *targets;   /* (n_items) input and first reference */
};
/* world: NULL where this process is alone. */
int syi_eval_data_load(struct syi_eval_data *data, const struct syi_config *config,
                       const struct syi_task_part *options, const char *name, const char *file,
                       struct syi_world *world, struct sy_error *err) SYI_MUST_CHECK;
void syi_eval_data_free(struct syi_eval_data *data);
/* Whether its metrics need decoded outputs. */
int syi_eval_decodes(const struct syi_eval_data *data);

/* What was written for an item: in the text of all of them. */
struct syi_eval_output {
    size_t at, bytes;
    double score;
};

/* One rank's part. */
struct syi_evaluation {
    const struct syi_eval_data *data; /* borrowed */
    struct syi_engine *engine;        /* borrowed */
    const struct syi_rank *rank;      /* borrowed */
    struct syi_comm *comm;            /* its */
    const struct syi_config *config;  /* borrowed */
    const struct syi_report *report;  /* borrowed: learns on rank 0 how far it is; NULL: none does */
    /* Borrowed: gets why this rank cannot read a batch, before the poll, which then ends the evaluation on all ranks. NULL, as it
     * is opened: that fails. */
    struct sy_error *unread;
    struct syi_vocabularies vocabularies;
    struct syi_dataset dataset;           /* of running text; else zeroed */
    struct syi_eval_batches decode, loss; /* decode: without batches where nothing is decoded */
    struct syi_batch batch;
    struct syi_eval_sums sums;
    struct syi_eval_routing *routing; /* (layers with experts) of the sums */
    /* of decoding, NULL where nothing is decoded; texts on rank 0 only, which compares them */
    int32_t decode_length; /* most tokens of an output */
    int32_t *ids;          /* (rows, decode_length) */
    int32_t *lengths;      /* (rows) */
    float *row_scores;     /* (rows), NULL: the way of decoding has none */
    struct syi_text outputs;
    struct syi_eval_output *output; /* (n_items) */
    struct syi_span *references;    /* (references_capacity) of one item */
    size_t references_capacity;
    struct syi_text_scores scores;
    struct syi_text example_text;     /* of all examples, each with its NUL */
    struct syi_sink_example *example; /* (metrics.examples, at most n_items) of the last evaluation */
};
/* The engine has the program of SYI_USE_EVAL, those of SYI_USE_DECODE where syi_eval_decodes. report: NULL, or what
 * syi_evaluation keeps. */
int syi_evaluation_open(struct syi_evaluation *evaluation, const struct syi_eval_data *data,
                        const struct syi_config *config, struct syi_engine *engine,
                        const struct syi_rank *rank, const struct syi_report *report,
                        struct sy_error *err) SYI_MUST_CHECK;
/* From now on of another engine of the same model. */
void syi_evaluation_use(struct syi_evaluation *evaluation, struct syi_engine *engine);
void syi_evaluation_close(struct syi_evaluation *evaluation);
/* Called by all ranks; all get the same numbers, rank 0 the examples, too. Numbers of texts are added up in the order of
 * the items, so no batch shows in them. decode 0: no outputs are made, and what needs them is left out. poll: asked between
 * positions of what is decoded (struct syi_outputs) and, when it is read, before each batch whose loss is taken; or NULL. */
int syi_evaluation_run(struct syi_evaluation *evaluation, int decode, syi_poll_fn poll, void *poll_arg,
                       struct syi_eval_result *result, struct sy_error *err) SYI_MUST_CHECK;
/* Items that are too long: counted as wrong where outputs are decoded, else left out. */
int32_t syi_evaluation_cut(const struct syi_evaluation *evaluation);

/* ---- eval_values.c ---- */

/* The numbers that need no outputs: loss first, then T5X's metrics of training (doc/evaluation.md). engine: with
 * sums->layer, whose layers they are of. */
void syi_eval_loss(const struct syi_eval_sums *sums, struct syi_eval_result *result);
void syi_eval_training_metrics(const struct syi_config *config, const struct syi_eval_sums *sums, int layers,
                               struct syi_eval_result *result);

#endif
