/* SPDX-License-Identifier: Apache-2.0 */
/* Reading windows of lines and going through them. */
#include "config.h"

#include <string.h>

#include "train/predict/line_stream.h"

/* ---- what reading takes ---- */

static int open_window(struct syi_stream *p, struct sy_error *err)
{
    int status = syi_predictor_new(p->job->launch.config, p->rank, p->job->run_dir, p->job->checkpoint,
                                   &p->predictor, err);
    if (status) return status;
    p->capacity = syi_predictor_window(p->predictor);
    size_t n = (size_t)p->capacity;
    p->length = syi_alloc(n * sizeof(*p->length), err);
    p->inputs = syi_alloc(n * sizeof(*p->inputs), err);
    p->index = syi_alloc(n * sizeof(*p->index), err);
    if (p->kind->targets) p->targets = syi_alloc(n * sizeof(*p->targets), err);
    if (p->kind->targets && !p->targets) return SY_ENOMEM;
    return p->length && p->inputs && p->index ? SY_OK : SY_ENOMEM;
}

static void close_stream(struct syi_stream *p)
{
    syi_predictor_free(p->predictor);
    syi_free(p->length);
    syi_free(p->inputs);
    syi_free(p->targets);
    syi_free(p->index);
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

/* Waits for a first line, as long as it takes, which the other ranks are told; then takes what is there. */
static int read_window(struct syi_stream *p, struct syi_busy *busy, struct sy_error *err)
{
    enum { SLICE = 1000 }; /* ms */
    const char *line;
    size_t bytes;

    while (p->n < p->capacity) {
        int wait = p->n ? 0 : p->rank->ranks > 1 ? SLICE : -1;
        int got = p->job->next(p->job->arg, wait, &line, &bytes, err);
        if (got == SYI_INPUT_LATER && !p->n) {
            int status = syi_busy_tell(busy, err);
            if (status) return status;
            continue;
        }
        p->ended = got == SYI_INPUT_END;
        if (got < 0) return got;
        if (got == SYI_INPUT_LONG) {
            p->length[p->n++] = SYI_LINE_TOO_LONG;
            continue;
        }
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
        p->index[p->n_fits] = p->first + i;
        split_line(p, (struct syi_span){p->length[i] ? at : "", (size_t)p->length[i]});
        p->n_fits++;
        at += p->length[i];
    }
}

/* ---- answers ---- */

static int write_window(struct syi_stream *p, struct sy_error *err)
{
    int status = SY_OK;

    for (int32_t i = 0, place = 0; !status && i < p->n; i++) {
        status = p->kind->write(p, i, place, err);
        place += p->length[i] >= 0;
    }
    return status;
}

static int next_window(struct syi_stream *p, struct sy_error *err)
{
    p->first += p->n;
    p->n = 0;
    p->text_bytes = 0;
    struct syi_busy busy = syi_busy_begin(p->rank->comm);
    int status = p->rank->rank == 0 ? read_window(p, &busy, err) : SY_OK;
    if (!status) status = syi_busy_end(&busy, err);
    if (!status) status = share_window(p, err);
    if (!status) find_inputs(p);
    return status;
}

/* From the first window on, which has been read. */
static int answer_all(struct syi_stream *p, struct sy_error *err)
{
    for (;;) {
        int status = p->kind->answer(p, err);
        if (!status && p->rank->rank == 0) status = write_window(p, err);
        if (status || p->ended) return status;
        status = next_window(p, err);
        if (status) return status;
    }
}

/* ---- the whole ---- */

int syi_stream_run(struct syi_stream *p, struct sy_error *err)
{
    int status = open_window(p, err);

    if (!status) status = next_window(p, err);
    if (!status) status = answer_all(p, err);
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
