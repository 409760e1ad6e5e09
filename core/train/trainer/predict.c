/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction: lines in, outputs out, in order. Rank 0 reads a window of lines and writes the answers; all
 * ranks decode the window together, batch by batch. A window ends where it is full or the input has no more
 * lines at the moment. Memory is bounded by the window. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "data/eval_batches.h"
#include "comm/comm.h"
#include "train/trainer/trainer.h"

enum { TOO_LONG = -1 }; /* in place of the length of a line */

/* An output among others. */
struct place {
    size_t at, bytes;
};

/* A window: up to `capacity` lines in the order they came, and their outputs. */
struct predictor {
    const struct syi_predict_job *job;
    const struct syi_rank *rank;
    struct syi_config config; /* the job's, with batches of few rows for a short input */
    struct syi_engine *engine;
    int64_t step; /* of the checkpoint, once it is loaded */
    int64_t rows; /* of a batch for a long input */
    int groups;   /* of the communication, before an engine makes its own */
    struct syi_vocabularies vocabularies;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    struct syi_batch batch;
    int64_t first;           /* index of the window's first line in the input */
    int32_t n, capacity;     /* lines */
    int ended;               /* the input has no lines after them */
    int32_t n_fits;          /* of them */
    size_t text_bytes;       /* of all lines that fit */
    int64_t *length;         /* (capacity) bytes of each line, or TOO_LONG */
    struct syi_span *inputs; /* (capacity) lines that fit, into text */
    int32_t *line;           /* (capacity) which line of the window those are */
    int64_t *text;           /* (text_capacity) the lines' bytes, in whole words */
    size_t text_capacity;    /* words */
    int32_t decode_length;   /* most tokens of an output */
    int64_t *example;        /* (rows) index of a batch's lines in the input */
    struct syi_outputs out;  /* of one batch */
    struct syi_text outputs; /* of the window, one after the other */
    struct place *place;     /* (capacity, decodes) where in them */
    float *scores;           /* (capacity, decodes) */
};

/* rows: of a batch; n: of a window. */
static int open_outputs(struct predictor *p, size_t rows, size_t n, struct sy_error *err)
{
    size_t decodes = (size_t)p->config.decode.num_decodes, width = (size_t)p->decode_length;

    p->out.decodes = (int32_t)decodes;
    p->out.ids = syi_alloc(rows * decodes * width * sizeof(*p->out.ids), err);
    p->out.lengths = syi_alloc(rows * decodes * sizeof(*p->out.lengths), err);
    p->out.scores = syi_alloc(rows * decodes * sizeof(*p->out.scores), err);
    p->place = syi_alloc(n * decodes * sizeof(*p->place), err);
    p->scores = syi_alloc(n * decodes * sizeof(*p->scores), err);
    if (!p->out.ids || !p->out.lengths || !p->out.scores) return SY_ENOMEM;
    return p->place && p->scores ? SY_OK : SY_ENOMEM;
}

/* What reading takes; the engine comes after the first window. */
static int open_window(struct predictor *p, struct sy_error *err)
{
    int status = syi_vocabularies_open(&p->vocabularies, &p->config, err);
    if (status) return status;
    p->n_buckets = syi_engine_buckets(&p->config, p->buckets);
    p->rows = syi_config_decode_rows(&p->config);
    p->groups = p->rank->comm->n_groups;
    /* As many batches as there are lengths, so that lines of one length fill a batch. */
    p->capacity = (int32_t)p->rows * (p->n_buckets < 8 ? p->n_buckets : 8);
    size_t n = (size_t)p->capacity;
    p->length = syi_alloc(n * sizeof(*p->length), err);
    p->inputs = syi_alloc(n * sizeof(*p->inputs), err);
    p->line = syi_alloc(n * sizeof(*p->line), err);
    return p->length && p->inputs && p->line ? SY_OK : SY_ENOMEM;
}

/* Batches as small as a short window allows: a row that holds nothing costs as much as one that does. Outputs
 * do not depend on it. */
static int64_t fitting_rows(const struct predictor *p)
{
    int64_t rows = p->rows;
    while (rows % 2 == 0 && rows / 2 >= p->n && rows / 2 % p->rank->ranks == 0) rows /= 2;
    return rows;
}

static int load(struct predictor *p, struct sy_error *err)
{
    struct syi_checkpoint_meta meta = {0};
    int64_t wanted = p->step >= 0 ? p->step : p->job->checkpoint;
    int status = syi_checkpoint_load(p->job->run_dir, wanted, syi_engine_session(p->engine), p->rank->comm, 0,
                                     &meta, err);
    if (status) return status;
    syi_engine_params_changed(p->engine);
    p->step = meta.step;
    return SY_OK;
}

static int open_engine(struct predictor *p, struct sy_error *err)
{
    p->config.decode.batch_size = fitting_rows(p);
    int status = syi_engine_new(&p->config, p->rank, SYI_USE_DECODE, 0, &p->engine, err);
    if (!status) status = load(p, err);
    if (status) return status;
    size_t rows = (size_t)p->config.decode.batch_size;
    p->decode_length = syi_engine_decode_length(p->engine);
    p->example = syi_alloc(rows * sizeof(*p->example), err);
    if (!p->example) return SY_ENOMEM;
    status = open_outputs(p, rows, (size_t)p->capacity, err);
    return status ? status : syi_batch_create(&p->batch, (int32_t)rows, p->buckets, p->n_buckets, err);
}

/* And what has its sizes. */
static void close_engine(struct predictor *p)
{
    syi_engine_free(p->engine);
    p->engine = NULL;
    syi_batch_free(&p->batch);
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

/* An input that began with few lines, as one that is typed does, and has more now: the engine is made anew.
 * That happens a few times at most, because each is for more lines than the one before. */
static int fit_engine(struct predictor *p, struct sy_error *err)
{
    if (fitting_rows(p) <= p->config.decode.batch_size) return SY_OK;
    close_engine(p);
    syi_comm_keep(p->rank->comm, p->groups);
    return open_engine(p, err);
}

static void close_predictor(struct predictor *p)
{
    close_engine(p);
    syi_vocabularies_close(&p->vocabularies);
    syi_free(p->length);
    syi_free(p->inputs);
    syi_free(p->line);
    syi_free(p->text);
}

static size_t words_of(size_t bytes)
{
    return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
}

/* ---- a window of lines, on rank 0, then on all ---- */

static int add_line(struct predictor *p, const char *line, size_t bytes, struct sy_error *err)
{
    struct syi_bucket longest = syi_buckets_longest(p->buckets, p->n_buckets);
    struct syi_span span = {line, bytes};
    size_t tokens;
    int status = syi_vocabulary_encode(&p->vocabularies.input, span, NULL, 0, &tokens, err);

    if (status) return status;
    if (tokens + 1 > (size_t)longest.input_length) {
        p->length[p->n++] = TOO_LONG;
        return SY_OK;
    }
    status = SYI_GROW(p->text, p->text_capacity, words_of(p->text_bytes + bytes), err);
    if (status) return status;
    if (bytes) memcpy((char *)p->text + p->text_bytes, line, bytes);
    p->text_bytes += bytes;
    p->length[p->n++] = (int64_t)bytes;
    return SY_OK;
}

/* Waits for a first line; then takes what is there. */
static int read_window(struct predictor *p, struct sy_error *err)
{
    const char *line;
    size_t bytes;

    while (p->n < p->capacity) {
        int got = p->job->next(p->job->arg, p->n == 0, &line, &bytes, err);
        p->ended = got == SYI_INPUT_END;
        if (got < 0) return got;
        if (got != SYI_INPUT_LINE) return SY_OK;
        int status = add_line(p, line, bytes, err);
        if (status) return status;
    }
    return SY_OK;
}

/* The same lines on all ranks: sizes first, then lengths, then the text. */
static int share_window(struct predictor *p, struct sy_error *err)
{
    int64_t sizes[3] = {p->n, (int64_t)p->text_bytes, p->ended};
    int status = syi_comm_broadcast(p->rank->comm, sizes, 3, err);

    if (status) return status;
    p->n = (int32_t)sizes[0];
    p->text_bytes = (size_t)sizes[1];
    p->ended = (int)sizes[2];
    status = SYI_GROW(p->text, p->text_capacity, words_of(p->text_bytes), err);
    if (!status) status = syi_comm_broadcast(p->rank->comm, p->length, (size_t)p->n, err);
    if (!status) status = syi_comm_broadcast(p->rank->comm, p->text, words_of(p->text_bytes), err);
    return status;
}

static void find_inputs(struct predictor *p)
{
    const char *at = (const char *)p->text;

    p->n_fits = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (p->length[i] == TOO_LONG) continue;
        p->line[p->n_fits] = i;
        p->inputs[p->n_fits++] = (struct syi_span){p->length[i] ? at : "", (size_t)p->length[i]};
        at += p->length[i];
    }
}

/* ---- answers ---- */

/* The outputs of row `row` of a batch to their place in the window. */
static void take_outputs(struct predictor *p, int32_t row)
{
    size_t width = (size_t)p->decode_length, decodes = (size_t)p->out.decodes;
    size_t from = (size_t)row * decodes, to = (size_t)p->line[p->batch.items[row]] * decodes;

    for (size_t i = 0; i < decodes; i++, from++, to++) {
        p->place[to].at = p->outputs.length;
        syi_vocabulary_decode(&p->vocabularies.target, p->out.ids + from * width,
                              (size_t)p->out.lengths[from], &p->outputs);
        p->place[to].bytes = p->outputs.length - p->place[to].at;
        p->scores[to] = p->out.scores[from];
    }
}

static int decode_batch(struct predictor *p, const struct syi_eval_batches *batches, int32_t index,
                        struct sy_error *err)
{
    int status = syi_eval_batches_fetch(batches, index, &p->batch, err);

    for (int32_t row = 0; !status && row < p->batch.n_real; row++)
        p->example[row] = p->first + p->line[p->batch.items[row]];
    if (!status) status = syi_engine_decode(p->engine, &p->batch, p->example, &p->out, err);
    for (int32_t row = 0; !status && row < p->batch.n_real; row++) take_outputs(p, row);
    return status ? status : syi_text_status(&p->outputs, err);
}

static int decode_window(struct predictor *p, struct sy_error *err)
{
    struct syi_eval_batches batches;
    int status = syi_eval_batches_create(&batches, &p->vocabularies, p->buckets, p->n_buckets, p->batch.rows,
                                         p->inputs, NULL, p->n_fits, err);

    if (status) return status;
    p->outputs.length = 0;
    for (int32_t i = 0; !status && i < batches.n_batches; i++) status = decode_batch(p, &batches, i, err);
    syi_eval_batches_free(&batches);
    return status;
}

static int write_line(struct predictor *p, int32_t line, struct sy_error *err)
{
    const struct syi_predict_job *job = p->job;
    size_t at = (size_t)line * (size_t)p->out.decodes;
    struct syi_prediction output = {
        .index = p->first + line, .text = "", .score = -INFINITY, .too_long = p->length[line] == TOO_LONG};
    int status = SY_OK;

    for (; !status && output.decode < p->out.decodes; output.decode++, at++) {
        if (!output.too_long) {
            if (p->place[at].bytes) output.text = p->outputs.data + p->place[at].at;
            output.bytes = p->place[at].bytes;
            output.score = p->scores[at];
        }
        status = job->put(job->arg, &output, err);
    }
    return status;
}

static int write_window(struct predictor *p, struct sy_error *err)
{
    int status = SY_OK;

    for (int32_t i = 0; !status && i < p->n; i++) status = write_line(p, i, err);
    return status;
}

static int next_window(struct predictor *p, struct sy_error *err)
{
    p->first += p->n;
    p->n = 0;
    p->text_bytes = 0;
    int status = p->rank->rank == 0 ? read_window(p, err) : SY_OK;
    if (!status) status = share_window(p, err);
    if (!status) find_inputs(p);
    return status;
}

/* From the first window on, which has been read. */
static int predict_all(struct predictor *p, struct sy_error *err)
{
    for (;;) {
        int status = decode_window(p, err);
        if (!status && p->rank->rank == 0) status = write_window(p, err);
        if (status || p->ended) return status;
        status = next_window(p, err);
        if (!status) status = fit_engine(p, err);
        if (status) return status;
    }
}

/* ---- the whole ---- */

static void introduce(const struct predictor *p)
{
    char text[512], line[640];

    if (p->rank->rank != 0 || !p->job->report.line) return;
    syi_rank_describe(p->rank, text, sizeof(text));
    snprintf(line, sizeof(line), "%s; checkpoint of step %lld", text, (long long)p->step);
    p->job->report.line(p->job->report.arg, line);
}

static int predict_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct predictor p = {.job = arg, .rank = rank, .step = -1};
    p.config = *p.job->launch.config;
    int status = open_window(&p, err);

    if (!status) status = next_window(&p, err);
    if (!status) status = open_engine(&p, err);
    if (!status) {
        introduce(&p);
        status = predict_all(&p, err);
    }
    close_predictor(&p);
    return status;
}

int syi_predict_run(const struct syi_predict_job *job, struct sy_error *err)
{
    struct syi_predict_job copy = *job;
    return syi_launch_run(&job->launch, predict_rank, &copy, err);
}
