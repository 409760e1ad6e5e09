/* SPDX-License-Identifier: Apache-2.0 */
/* Scores: pairs of input and target in, the log-likelihood of each target out, in order (line_stream.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/trainer/line_stream.h"

struct scorer {
    const struct syi_score_job *job;
    struct syi_stream stream;
    double *batch_score; /* (rows) */
    double *score;       /* (capacity) */
    int32_t *tokens;     /* (capacity) */
};

static int check_line(const struct syi_stream *s, struct syi_span line, enum syi_line_fault *fault,
                      struct sy_error *err)
{
    const char *tab = line.bytes ? memchr(line.text, '\t', line.bytes) : NULL;
    size_t input = tab ? (size_t)(tab - line.text) : 0, target = tab ? line.bytes - input - 1 : 0;

    size_t inputs = 0, targets = 0; /* tokens */

    *fault = tab ? SYI_LINE_MORE_TABS : SYI_LINE_NO_TAB;
    if (!tab || (target && memchr(tab + 1, '\t', target))) return SY_OK;
    int status = syi_stream_tokens(&s->vocabularies.input, (struct syi_span){line.text, input}, &inputs, err);
    if (!status)
        status =
            syi_stream_tokens(&s->vocabularies.target, (struct syi_span){tab + 1, target}, &targets, err);
    int fits = syi_buckets_fit(s->buckets, s->n_buckets, inputs, targets);
    *fault = fits < 0 ? SYI_LINE_TOO_LONG : SYI_LINE_FITS;
    return status;
}

static int open_buffers(struct syi_stream *s, struct sy_error *err)
{
    struct scorer *c = s->owner;
    size_t n = (size_t)s->capacity;

    c->batch_score = syi_alloc((size_t)s->batch.rows * sizeof(*c->batch_score), err);
    c->score = syi_alloc(n * sizeof(*c->score), err);
    c->tokens = syi_alloc(n * sizeof(*c->tokens), err);
    return c->batch_score && c->score && c->tokens ? SY_OK : SY_ENOMEM;
}

static void close_buffers(struct syi_stream *s)
{
    struct scorer *c = s->owner;

    syi_free(c->batch_score);
    syi_free(c->score);
    syi_free(c->tokens);
    c->batch_score = c->score = NULL;
    c->tokens = NULL;
}

static int score_batch(struct syi_stream *s, struct syi_eval_batches *batches, int32_t index,
                       struct sy_error *err)
{
    struct scorer *c = s->owner;
    int status = syi_eval_batches_fetch(batches, index, &s->batch, err);

    if (!status) status = syi_engine_score(s->engine, &s->batch, c->batch_score, err);
    for (int32_t row = 0; !status && row < s->batch.n_real; row++) {
        int32_t line = s->line[s->batch.items[row]];
        c->score[line] = c->batch_score[row];
        c->tokens[line] = s->batch.target_lengths[row];
    }
    return status;
}

static int write_line(struct syi_stream *s, int32_t line, struct sy_error *err)
{
    const struct scorer *c = s->owner;
    struct syi_score score = {.index = s->first + line, .value = NAN};

    if (s->length[line] < 0) {
        score.fault = (enum syi_line_fault)s->length[line];
    } else {
        score.value = c->score[line];
        score.tokens = c->tokens[line];
    }
    return c->job->put(c->job->lines.arg, &score, err);
}

static int score_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    static const struct syi_stream_kind kind = {.use = SYI_USE_SCORE,
                                                .targets = 1,
                                                .check = check_line,
                                                .open = open_buffers,
                                                .close = close_buffers,
                                                .batch = score_batch,
                                                .write = write_line};
    struct scorer c = {.job = arg};

    c.stream = (struct syi_stream){.kind = &kind,
                                   .owner = &c,
                                   .job = &c.job->lines,
                                   .rank = rank,
                                   .config = *c.job->lines.launch.config};
    return syi_stream_run(&c.stream, err);
}

int syi_score_run(const struct syi_score_job *job, struct sy_error *err)
{
    struct syi_score_job copy = *job;
    return syi_launch_run(&job->lines.launch, score_rank, &copy, err);
}
