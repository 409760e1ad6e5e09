/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction: lines in, outputs out, in order (line_stream.h). */
#include "config.h"

#include <math.h>

#include "train/predict/line_stream.h"

struct predicting {
    const struct syi_predict_job *job;
    struct syi_outcomes outcomes; /* of the lines of the window that fit */
};

static int check_line(const struct syi_stream *s, struct syi_span line, enum syi_line_fault *fault,
                      struct sy_error *err)
{
    size_t tokens = 0;
    int status = syi_stream_tokens(&syi_predictor_vocabularies(s->predictor)->input, line, &tokens, err);
    size_t most = (size_t)syi_predictor_longest(s->predictor).input_length;
    *fault = tokens > most ? SYI_LINE_TOO_LONG : SYI_LINE_FITS;
    return status;
}

static int answer_lines(struct syi_stream *s, struct sy_error *err)
{
    struct predicting *p = s->owner;
    const struct syi_config *config = s->job->launch.config;
    return syi_predictor_decode(s->predictor, &config->decode, config->train.seed, s->inputs, s->index,
                                (size_t)s->n_fits, &p->outcomes, err);
}

static int write_line(struct syi_stream *s, int32_t line, int32_t place, struct sy_error *err)
{
    const struct predicting *p = s->owner;
    const struct syi_outcome *item = p->outcomes.item + (size_t)place * p->outcomes.decodes;
    struct syi_prediction output = {
        .index = s->first + line, .text = "", .score = -INFINITY, .too_long = s->length[line] < 0};
    int status = SY_OK;

    for (; !status && output.decode < (int32_t)p->outcomes.decodes; output.decode++, item++) {
        if (!output.too_long) {
            output.text = p->outcomes.text.data + item->at;
            output.bytes = item->bytes;
            output.score = (double)item->score;
        }
        status = p->job->put(s->job->arg, &output, err);
    }
    return status;
}

static int predict_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    static const struct syi_stream_kind kind = {
        .check = check_line, .answer = answer_lines, .write = write_line};
    struct predicting p = {.job = arg};
    struct syi_stream stream = {.kind = &kind, .owner = &p, .job = &p.job->lines, .rank = rank};
    int status = syi_stream_run(&stream, err);
    syi_outcomes_free(&p.outcomes);
    return status;
}

int syi_predict_run(const struct syi_predict_job *job, struct sy_error *err)
{
    struct syi_predict_job copy = *job;
    return syi_launch_run(&job->lines.launch, predict_rank, &copy, err);
}
