/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction: lines in, outputs out, in order (line_stream.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/trainer/line_stream.h"

/* An output among others. */
struct place {
    size_t at, bytes;
};

struct predictor {
    const struct syi_predict_job *job;
    struct syi_stream stream;
    int32_t decode_length;   /* most tokens of an output */
    int64_t *example;        /* (rows) index of a batch's lines in the input */
    struct syi_outputs out;  /* of one batch */
    struct syi_text outputs; /* of the window, one after the other */
    struct place *place;     /* (capacity, decodes) where in them */
    float *scores;           /* (capacity, decodes) */
};

static int check_line(const struct syi_stream *s, struct syi_span line, enum syi_line_fault *fault,
                      struct sy_error *err)
{
    struct syi_bucket longest = syi_buckets_longest(s->buckets, s->n_buckets);
    size_t tokens = 0;
    int status = syi_stream_tokens(&s->vocabularies.input, line, &tokens, err);
    *fault = tokens > (size_t)longest.input_length ? SYI_LINE_TOO_LONG : SYI_LINE_FITS;
    return status;
}

/* rows: of a batch; n: of a window. */
static int open_outputs(struct predictor *p, size_t rows, size_t n, struct sy_error *err)
{
    size_t decodes = (size_t)p->stream.config.decode.num_decodes, width = (size_t)p->decode_length;

    p->out.decodes = (int32_t)decodes;
    p->out.ids = syi_alloc(rows * decodes * width * sizeof(*p->out.ids), err);
    p->out.lengths = syi_alloc(rows * decodes * sizeof(*p->out.lengths), err);
    p->out.scores = syi_alloc(rows * decodes * sizeof(*p->out.scores), err);
    p->place = syi_alloc(n * decodes * sizeof(*p->place), err);
    p->scores = syi_alloc(n * decodes * sizeof(*p->scores), err);
    if (!p->out.ids || !p->out.lengths || !p->out.scores) return SY_ENOMEM;
    return p->place && p->scores ? SY_OK : SY_ENOMEM;
}

static int open_buffers(struct syi_stream *s, struct sy_error *err)
{
    struct predictor *p = s->owner;
    size_t rows = (size_t)s->batch.rows;

    p->decode_length = syi_engine_decode_length(s->engine);
    p->example = syi_alloc(rows * sizeof(*p->example), err);
    return p->example ? open_outputs(p, rows, (size_t)s->capacity, err) : SY_ENOMEM;
}

static void close_buffers(struct syi_stream *s)
{
    struct predictor *p = s->owner;

    syi_free(p->example);
    syi_free(p->out.ids);
    syi_free(p->out.lengths);
    syi_free(p->out.scores);
    syi_text_free(&p->outputs);
    syi_free(p->place);
    syi_free(p->scores);
    p->example = NULL;
    p->out = (struct syi_outputs){0};
    p->place = NULL;
    p->scores = NULL;
}

/* The outputs of row `row` of a batch to their place in the window. */
static void take_outputs(struct predictor *p, int32_t row)
{
    size_t width = (size_t)p->decode_length, decodes = (size_t)p->out.decodes;
    size_t from = (size_t)row * decodes, to = (size_t)p->stream.line[p->stream.batch.items[row]] * decodes;

    for (size_t i = 0; i < decodes; i++, from++, to++) {
        p->place[to].at = p->outputs.length;
        syi_vocabulary_decode(&p->stream.vocabularies.target, p->out.ids + from * width,
                              (size_t)p->out.lengths[from], &p->outputs);
        p->place[to].bytes = p->outputs.length - p->place[to].at;
        p->scores[to] = p->out.scores[from];
    }
}

static int decode_batch(struct syi_stream *s, struct syi_eval_batches *batches, int32_t index,
                        struct sy_error *err)
{
    struct predictor *p = s->owner;
    int status = syi_eval_batches_fetch(batches, index, &s->batch, err);

    for (int32_t row = 0; !status && row < s->batch.n_real; row++)
        p->example[row] = s->first + s->line[s->batch.items[row]];
    if (!status) status = syi_engine_decode(s->engine, &s->batch, p->example, &p->out, err);
    if (index == 0) p->outputs.length = 0; /* the window before is written */
    for (int32_t row = 0; !status && row < s->batch.n_real; row++) take_outputs(p, row);
    return status ? status : syi_text_status(&p->outputs, err);
}

static int write_line(struct syi_stream *s, int32_t line, struct sy_error *err)
{
    const struct predictor *p = s->owner;
    const struct syi_predict_job *job = p->job;
    size_t at = (size_t)line * (size_t)p->out.decodes;
    struct syi_prediction output = {
        .index = s->first + line, .text = "", .score = -INFINITY, .too_long = s->length[line] < 0};
    int status = SY_OK;

    for (; !status && output.decode < p->out.decodes; output.decode++, at++) {
        if (!output.too_long) {
            if (p->place[at].bytes) output.text = p->outputs.data + p->place[at].at;
            output.bytes = p->place[at].bytes;
            output.score = p->scores[at];
        }
        status = job->put(job->lines.arg, &output, err);
    }
    return status;
}

static int predict_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    static const struct syi_stream_kind kind = {.use = SYI_USE_DECODE,
                                                .check = check_line,
                                                .open = open_buffers,
                                                .close = close_buffers,
                                                .batch = decode_batch,
                                                .write = write_line};
    struct predictor p = {.job = arg};

    p.stream = (struct syi_stream){.kind = &kind,
                                   .owner = &p,
                                   .job = &p.job->lines,
                                   .rank = rank,
                                   .config = *p.job->lines.launch.config};
    return syi_stream_run(&p.stream, err);
}

int syi_predict_run(const struct syi_predict_job *job, struct sy_error *err)
{
    struct syi_predict_job copy = *job;
    return syi_launch_run(&job->lines.launch, predict_rank, &copy, err);
}
