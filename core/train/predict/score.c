/* SPDX-License-Identifier: Apache-2.0 */
/* Scores: pairs of input and target in, the log-likelihood of each target out, in order (line_stream.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/predict/line_stream.h"

struct scoring {
    const struct syi_score_job *job;
    double *score;   /* (capacity) of the lines of the window that fit */
    int32_t *tokens; /* (capacity) likewise */
};

static int check_line(const struct syi_stream *s, struct syi_span line, enum syi_line_fault *fault,
                      struct sy_error *err)
{
    const struct syi_vocabularies *vocabularies = syi_predictor_vocabularies(s->predictor);
    struct syi_bucket longest = syi_predictor_longest(s->predictor);
    const char *tab = line.bytes ? memchr(line.text, '\t', line.bytes) : NULL;
    size_t input = tab ? (size_t)(tab - line.text) : 0, target = tab ? line.bytes - input - 1 : 0;

    size_t inputs = 0, targets = 0; /* tokens */

    *fault = tab ? SYI_LINE_MORE_TABS : SYI_LINE_NO_TAB;
    if (!tab || (target && memchr(tab + 1, '\t', target))) return SY_OK;
    int status = syi_stream_tokens(&vocabularies->input, (struct syi_span){line.text, input}, &inputs, err);
    if (!status)
        status = syi_stream_tokens(&vocabularies->target, (struct syi_span){tab + 1, target}, &targets, err);
    int fits = inputs <= (size_t)longest.input_length && targets <= (size_t)longest.target_length;
    *fault = fits ? SYI_LINE_FITS : SYI_LINE_TOO_LONG;
    return status;
}

/* The buffers of the first window are those of all. */
static int answer_lines(struct syi_stream *s, struct sy_error *err)
{
    struct scoring *c = s->owner;
    size_t n = (size_t)s->capacity;

    if (!c->score) c->score = syi_alloc(n * sizeof(*c->score), err);
    if (!c->tokens) c->tokens = syi_alloc(n * sizeof(*c->tokens), err);
    if (!c->score || !c->tokens) return SY_ENOMEM;
    return syi_predictor_score(s->predictor, s->inputs, s->targets, (size_t)s->n_fits, c->score, c->tokens,
                               err);
}

static int write_line(struct syi_stream *s, int32_t line, int32_t place, struct sy_error *err)
{
    const struct scoring *c = s->owner;
    struct syi_score score = {.index = s->first + line, .value = NAN};

    if (s->length[line] < 0) {
        score.fault = (enum syi_line_fault)s->length[line];
    } else {
        score.value = c->score[place];
        score.tokens = c->tokens[place];
    }
    return c->job->put(s->job->arg, &score, err);
}

static int score_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    static const struct syi_stream_kind kind = {
        .targets = 1, .check = check_line, .answer = answer_lines, .write = write_line};
    struct scoring c = {.job = arg};
    struct syi_stream stream = {.kind = &kind, .owner = &c, .job = &c.job->lines, .rank = rank};
    int status = syi_stream_run(&stream, err);
    syi_free(c.score);
    syi_free(c.tokens);
    return status;
}

int syi_score_run(const struct syi_score_job *job, struct sy_error *err)
{
    struct syi_score_job copy = *job;
    return syi_launch_run(&job->lines.launch, score_rank, &copy, err);
}
