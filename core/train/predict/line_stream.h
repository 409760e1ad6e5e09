/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in, answers out, in order: what predict and score share. Rank 0 reads a window of lines and writes the answers;
 * all ranks work on the window together, batch by batch. A window ends where it is full or the input has no more lines at
 * the moment. Memory is bounded by the window, as no line is longer than `next` of struct syi_lines_job keeps. */
#ifndef SYI_LINE_STREAM_H
#define SYI_LINE_STREAM_H

#include "comm/comm.h"
#include "train/predict/predict.h"
#include "train/predict/predictor.h"

struct syi_stream;

/* What is done with lines. */
struct syi_stream_kind {
    int targets; /* 1: a line is input TAB target */
    /* *fault: SYI_LINE_FITS, or why a line gets no answer. Fails as syi_vocabulary_encode does. */
    int (*check)(const struct syi_stream *stream, struct syi_span line, enum syi_line_fault *fault,
                 struct sy_error *err);
    /* Answers the lines of the window that fit, all ranks. */
    int (*answer)(struct syi_stream *stream, struct sy_error *err);
    /* Writes the answer of a line of the window, rank 0. place: which of those that fit it is. */
    int (*write)(struct syi_stream *stream, int32_t line, int32_t place, struct sy_error *err);
};

/* A window: up to `capacity` lines in the order they came. */
struct syi_stream {
    const struct syi_stream_kind *kind;
    void *owner; /* of the kind */
    const struct syi_lines_job *job;
    const struct syi_rank *rank;
    struct syi_predictor *predictor;
    int64_t first;            /* index of the window's first line in the input */
    int32_t n, capacity;      /* lines */
    int ended;                /* the input has no lines after them */
    int32_t n_fits;           /* of them */
    size_t text_bytes;        /* of all lines that fit */
    int64_t *length;          /* (capacity) bytes of each line, or enum syi_line_fault */
    struct syi_span *inputs;  /* (capacity) of lines that fit, into text */
    struct syi_span *targets; /* (capacity) likewise; NULL: the kind has none */
    int64_t *index;           /* (capacity) which lines of the input those are */
    int64_t *text;            /* (text_capacity) the lines' bytes, in whole words */
    size_t text_capacity;     /* words */
};

/* The whole, on one rank. kind, owner, job and rank are set, all else is zero. */
int syi_stream_run(struct syi_stream *stream, struct sy_error *err) SYI_MUST_CHECK;
/* *tokens of a text, the end token included. Fails as syi_vocabulary_encode does. */
int syi_stream_tokens(const struct syi_vocabulary *vocabulary, struct syi_span text, size_t *tokens,
                      struct sy_error *err) SYI_MUST_CHECK;

#endif
