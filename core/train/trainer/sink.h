/* SPDX-License-Identifier: Apache-2.0 */
/* Where the trainer's numbers go. The core only knows this table of functions; a store that keeps them
 * (metrics/) and the program that joins the two are above it. All functions are called by one thread, return
 * SY_OK or a status with its text in err, and copy what they are given. They wait while what came before is
 * still being written and no more fits into memory; where nothing can be written, for some seconds only. SY_EBUSY: what
 * was given is lost, what comes later may be kept. A failure of an earlier call may be reported by a later one. */
#ifndef SYI_SINK_H
#define SYI_SINK_H

#include "base/base.h"

struct syi_sink_example {
    const char *task;                        /* "NAME/valid" */
    int64_t item;                            /* its place in the file, from 0 */
    const char *input, *target, *prediction; /* target: the first reference */
    double score;
};

struct syi_metric_sink {
    void *arg; /* first argument of every function */
    /* One number of a step ("loss", "learning_rate"). The same name and step again replaces it. NaN is legal.
     */
    int (*metric)(void *arg, int64_t step, const char *name, double value, struct sy_error *err);
    /* A statistic of one parameter after a step ("weight_rms"). Same rules as metric. */
    int (*parameter)(void *arg, int64_t step, const char *parameter, const char *name, double value,
                     struct sy_error *err);
    /* What the model wrote for an item of an evaluation; texts are UTF-8 or whatever the data is. score NaN: none. */
    int (*example)(void *arg, int64_t step, const struct syi_sink_example *example, struct sy_error *err);
    /* What the experts of a layer got in a step: (n_experts) tokens each took, and tokens it had to drop. Once for a
     * layer and a step: what comes again is not kept. */
    int (*routing)(void *arg, int64_t step, const char *layer, int n_experts, const int64_t *tokens,
                   const int64_t *dropped, struct sy_error *err);
    /* Something that happened ("start", "checkpoint", "stop"), with one line of text. */
    int (*event)(void *arg, int64_t step, const char *kind, const char *text, struct sy_error *err);
    /* One result of an evaluation at a step: of which task, and which ("wer", "per", "items", "loss"). settings: how the
     * texts were decoded that it is of, "" where it is of none. */
    int (*eval)(void *arg, int64_t step, const char *task, const char *name, double value,
                const char *settings, struct sy_error *err);
    /* Where the tokens of an evaluation at a step went in a layer: (n_experts) as of routing. What comes again replaces
     * it. */
    int (*eval_routing)(void *arg, int64_t step, const char *task, const char *layer, int n_experts,
                        const int64_t *tokens, const int64_t *dropped, struct sy_error *err);
    /* The run goes back to this step: what was given of later ones stays, but is no part of the run any more. SY_EBUSY:
     * it is made up for before anything later is kept. */
    int (*back)(void *arg, int64_t step, struct sy_error *err);
    /* Returns when all that was given is on disk, or after so many seconds: SY_EBUSY, and nothing is lost. 0:
     * asks for it and does not wait. */
    int (*flush)(void *arg, double seconds, struct sy_error *err);
    /* Flushes and ends; the sink must not be used again. An error says what is not kept, all in all. */
    int (*close)(void *arg, struct sy_error *err);
};

#endif
