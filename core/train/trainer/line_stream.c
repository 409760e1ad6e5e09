/* SPDX-License-Identifier: Apache-2.0 */
/* Reading windows of lines, making an engine that fits them, and going through them. */
#include "config.h"

#include <string.h>

#include "train/trainer/line_stream.h"

/* ---- reading, and an engine ---- */

/* What reading takes; the engine comes after the first window. */
static int open_window(struct syi_stream *p, struct sy_error *err)
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
    if (p->kind->targets) p->targets = syi_alloc(n * sizeof(*p->targets), err);
    if (p->kind->targets && !p->targets) return SY_ENOMEM;
    return p->length && p->inputs && p->line ? SY_OK : SY_ENOMEM;
}

/* Batches as small as a short window allows: a row that holds nothing costs as much as one that does. Outputs
 * do not depend on it. */
static int64_t fitting_rows(const struct syi_stream *p)
{
    int64_t rows = p->rows;
    while (rows % 2 == 0 && rows / 2 >= p->n && rows / 2 % p->rank->ranks == 0) rows /= 2;
    return rows;
}

static int load(struct syi_stream *p, struct sy_error *err)
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

static void close_engine(struct syi_stream *p)
{
    p->kind->close(p);
    syi_engine_free(p->engine);
    p->engine = NULL;
    syi_batch_free(&p->batch);
}

static int open_engine(struct syi_stream *p, struct sy_error *err)
{
    p->config.decode.batch_size = fitting_rows(p);
    int status = syi_engine_new(&p->config, p->rank, p->kind->use, 0, &p->engine, err);
    if (!status) status = load(p, err);
    if (!status)
        status =
            syi_batch_create(&p->batch, (int32_t)p->config.decode.batch_size, p->buckets, p->n_buckets, err);
    return status ? status : p->kind->open(p, err);
}

/* An input that began with few lines, as one that is typed does, and has more now: the engine is made anew.
 * That happens a few times at most, because each is for more lines than the one before. */
static int fit_engine(struct syi_stream *p, struct sy_error *err)
{
    if (fitting_rows(p) <= p->config.decode.batch_size) return SY_OK;
    close_engine(p);
    syi_comm_keep(p->rank->comm, p->groups);
    return open_engine(p, err);
}

static void close_stream(struct syi_stream *p)
{
    close_engine(p);
    syi_vocabularies_close(&p->vocabularies);
    syi_free(p->length);
    syi_free(p->inputs);
    syi_free(p->targets);
    syi_free(p->line);
    syi_free(p->text);
}

static size_t words_of(size_t bytes)
{
    return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
}

/* ---- a window of lines, on rank 0, then on all ---- */

static int add_line(struct syi_stream *p, const char *line, size_t bytes, struct sy_error *err)
{
    enum syi_line_fault fault;
    int status = p->kind->check(p, (struct syi_span){line, bytes}, &fault, err);

    if (status) return status;
    if (fault) {
        p->length[p->n++] = fault;
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
static int read_window(struct syi_stream *p, struct sy_error *err)
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
static int share_window(struct syi_stream *p, struct sy_error *err)
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

/* A line's input and target. */
static void split_line(struct syi_stream *p, struct syi_span line)
{
    const char *tab = p->targets && line.bytes ? memchr(line.text, '\t', line.bytes) : NULL;
    size_t input = tab ? (size_t)(tab - line.text) : line.bytes;

    p->inputs[p->n_fits] = (struct syi_span){line.text, input};
    if (tab) p->targets[p->n_fits] = (struct syi_span){tab + 1, line.bytes - input - 1};
}

static void find_inputs(struct syi_stream *p)
{
    const char *at = (const char *)p->text;

    p->n_fits = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (p->length[i] < 0) continue;
        p->line[p->n_fits] = i;
        split_line(p, (struct syi_span){p->length[i] ? at : "", (size_t)p->length[i]});
        p->n_fits++;
        at += p->length[i];
    }
}

/* ---- answers ---- */

static int answer_window(struct syi_stream *p, struct sy_error *err)
{
    struct syi_eval_batches batches;
    int status = syi_eval_batches_create(&batches, &p->vocabularies, p->buckets, p->n_buckets, p->batch.rows,
                                         p->inputs, p->targets, p->n_fits, err);

    if (status) return status;
    for (int32_t i = 0; !status && i < batches.n_batches; i++) status = p->kind->batch(p, &batches, i, err);
    syi_eval_batches_free(&batches);
    return status;
}

static int write_window(struct syi_stream *p, struct sy_error *err)
{
    int status = SY_OK;

    for (int32_t i = 0; !status && i < p->n; i++) status = p->kind->write(p, i, err);
    return status;
}

static int next_window(struct syi_stream *p, struct sy_error *err)
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
static int answer_all(struct syi_stream *p, struct sy_error *err)
{
    for (;;) {
        int status = answer_window(p, err);
        if (!status && p->rank->rank == 0) status = write_window(p, err);
        if (status || p->ended) return status;
        status = next_window(p, err);
        if (!status) status = fit_engine(p, err);
        if (status) return status;
    }
}

/* ---- the whole ---- */

static void introduce(const struct syi_stream *p)
{
    char text[512], line[640];

    if (p->rank->rank != 0 || !p->job->report.line) return;
    syi_rank_describe(p->rank, text, sizeof(text));
    snprintf(line, sizeof(line), "%s; checkpoint of step %lld", text, (long long)p->step);
    p->job->report.line(p->job->report.arg, line);
}

int syi_stream_run(struct syi_stream *p, struct sy_error *err)
{
    p->step = -1;
    int status = open_window(p, err);

    if (!status) status = next_window(p, err);
    if (!status) status = open_engine(p, err);
    if (!status) {
        introduce(p);
        status = answer_all(p, err);
    }
    close_stream(p);
    return status;
}

int syi_stream_tokens(const struct syi_vocabulary *vocabulary, struct syi_span text, size_t *tokens,
                      struct sy_error *err)
{
    size_t n;
    int status = syi_vocabulary_encode(vocabulary, text, NULL, 0, &n, err);

    if (!status) *tokens = n + 1;
    return status;
}
