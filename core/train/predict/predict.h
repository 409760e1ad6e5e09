/* SPDX-License-Identifier: Apache-2.0 */
/* What commands answer line by line: outputs of inputs, scores of pairs. */
#ifndef SYI_PREDICT_H
#define SYI_PREDICT_H

#include "train/launch/launch.h"

/* Answers lines, in order: many together where many are there, and those that are there before it waits for more. */
enum syi_input { SYI_INPUT_END, SYI_INPUT_LINE, SYI_INPUT_LATER, SYI_INPUT_LONG };
enum syi_line_fault {
    SYI_LINE_FITS = 0,
    SYI_LINE_TOO_LONG = -1,
    SYI_LINE_NO_TAB = -2,   /* of a pair */
    SYI_LINE_MORE_TABS = -3 /* likewise */
};
struct syi_lines_job {
    struct syi_launch launch;
    const char *run_dir;
    int64_t checkpoint;
    void *arg; /* first argument of `next` and of what takes the answers */
    /* A line of the input, without its end and valid until the next call, or enum syi_input why there is none;
     * wait: ms after which that is SYI_INPUT_LATER, -1: never. SYI_INPUT_LONG: a line that is longer than any that fits, and was
     * not kept: what the window holds is bounded. Negative: failed, which says why. */
    int (*next)(void *arg, int wait, const char **line, size_t *bytes, struct sy_error *err);
};

/* Predicts outputs for texts. */
struct syi_prediction {
    int64_t index;  /* of the input, from 0 */
    int32_t decode; /* which output of it, from 0, the best */
    const char *text;
    size_t bytes;
    double score; /* with decode.scores; -infinity: there is no such output and text is empty */
    int too_long; /* 1: the input was over the limit; text is empty */
};
struct syi_predict_job {
    struct syi_lines_job lines;
    /* One output; an input has decode.num_decodes of them, in sequence. */
    int (*put)(void *arg, const struct syi_prediction *prediction, struct sy_error *err);
};
int syi_predict_run(const struct syi_predict_job *job, struct sy_error *err) SYI_MUST_CHECK;

/* Scores lines of input TAB target: log-likelihood of the target (syi_engine_score). */
struct syi_score {
    int64_t index;             /* of the line, from 0 */
    double value;              /* NaN where there is a fault */
    int32_t tokens;            /* of the target, the end token included */
    enum syi_line_fault fault; /* why there is no score */
};
struct syi_score_job {
    struct syi_lines_job lines;
    int (*put)(void *arg, const struct syi_score *score, struct sy_error *err);
};
int syi_score_run(const struct syi_score_job *job, struct sy_error *err) SYI_MUST_CHECK;

#endif
