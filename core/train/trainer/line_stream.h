/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in, answers out, in order: what predict and score share. Rank 0 reads a window of lines and writes the answers;
 * all ranks work on the window together, batch by batch. A window ends where it is full or the input has no more lines at
 * the moment. Memory is bounded by the window. */
#ifndef SYI_LINE_STREAM_H
#define SYI_LINE_STREAM_H

#include "comm/comm.h"
#include "data/eval_batches.h"
#include "train/trainer/trainer.h"

struct syi_stream;

/* What is done with lines. */
struct syi_stream_kind {
    int use;     /* enum syi_engine_use */
    int targets; /* 1: a line is input TAB target */
    /* *fault: SYI_LINE_FITS, or why a line gets no answer. Fails as syi_vocabulary_encode does. */
    int (*check)(const struct syi_stream *stream, struct syi_span line, enum syi_line_fault *fault,
                 struct sy_error *err);
    /* Buffers with the sizes of the engine; called again when it is made anew, after `close`. */
    int (*open)(struct syi_stream *stream, struct sy_error *err);
    void (*close)(struct syi_stream *stream);
    /* Takes the answers of a batch of the window, all ranks. */
    int (*batch)(struct syi_stream *stream, struct syi_eval_batches *batches, int32_t index,
                 struct sy_error *err);
    /* Writes the answer of a line of the window, rank 0. */
    int (*write)(struct syi_stream *stream, int32_t line, struct sy_error *err);
};

/* A window: up to `capacity` lines in the order they came. */
struct syi_stream {
    const struct syi_stream_kind *kind;
    void *owner; /* of the kind */
    const struct syi_lines_job *job;
    const struct syi_rank *rank;
    struct syi_config config; /* the job's, with batches of few rows for a short input */
    struct syi_engine *engine;
    int64_t step; /* of the checkpoint, once it is loaded; -1 before */
    int64_t rows; /* of a batch for a long input */
    int groups;   /* of the communication, before an engine makes its own */
    struct syi_vocabularies vocabularies;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    struct syi_batch batch;
    int64_t first;            /* index of the window's first line in the input */
    int32_t n, capacity;      /* lines */
    int ended;                /* the input has no lines after them */
    int32_t n_fits;           /* of them */
    size_t text_bytes;        /* of all lines that fit */
    int64_t *length;          /* (capacity) bytes of each line, or enum syi_line_fault */
    struct syi_span *inputs;  /* (capacity) of lines that fit, into text */
    struct syi_span *targets; /* (capacity) likewise; NULL: the kind has none */
    int32_t *line;            /* (capacity) which line of the window those are */
    int64_t *text;            /* (text_capacity) the lines' bytes, in whole words */
    size_t text_capacity;     /* words */
};

/* The whole, on one rank. kind, owner, job, rank and config are set, all else is zero. */
int syi_stream_run(struct syi_stream *stream, struct sy_error *err) SYI_MUST_CHECK;
/* *tokens of a text, the end token included. Fails as syi_vocabulary_encode does. */
int syi_stream_tokens(const struct syi_vocabulary *vocabulary, struct syi_span text, size_t *tokens,
                      struct sy_error *err) SYI_MUST_CHECK;

#endif
