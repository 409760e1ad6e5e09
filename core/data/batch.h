/* SPDX-License-Identifier: Apache-2.0 */
/* One batch of token ids in preallocated memory, and the length buckets batches come in. Which example goes
 * into which batch is decided by batcher.h (training) and eval_batches.h (evaluation and prediction). */
#ifndef SYI_BATCH_H
#define SYI_BATCH_H

#include "base/run_config.h" /* SYI_MAX_BUCKETS */
#include "data/vocabulary.h"

/* Lengths in tokens, the end token included. */
struct syi_bucket {
    int32_t input_length, target_length;
};

enum { SYI_MAX_LENGTH = (1 << 20) - 1 };

/* Lengths positive, and one bucket that holds all others: else rows that fit alone might not fit together. */
int syi_buckets_check(const struct syi_bucket *buckets, int n_buckets, struct sy_error *err) SYI_MUST_CHECK;
/* The smallest bucket (sum of both lengths, then first in the list) that holds both lengths, or -1. */
int syi_buckets_fit(const struct syi_bucket *buckets, int n_buckets, size_t input_length,
                    size_t target_length);
/* The longest lengths of a list that syi_buckets_check took. */
struct syi_bucket syi_buckets_longest(const struct syi_bucket *buckets, int n_buckets);

/* Where an example is put: alone in its row, or as one of several. */
struct syi_slot {
    int32_t row;
    int32_t segment;             /* 1, 2, ... of a packed row; 0: the row has no other */
    int32_t input_at, target_at; /* of its first tokens in the row */
};

/* A window of the stream of packed rows (packing.h): its number, and how many rows those before it have. */
struct syi_row_position {
    int64_t window, row;
};

/* L and T are input_length and target_length of the batch at hand; rows are packed at these lengths. */
struct syi_batch {
    int32_t rows;             /* R, the same for every batch */
    int32_t capacity_input;   /* longest L */
    int32_t capacity_target;  /* longest T */
    int bucket;               /* which of the buckets this batch has */
    int32_t input_length;     /* L */
    int32_t target_length;    /* T */
    int32_t n_real;           /* rows that hold an example; the rest is padding with lengths 0 */
    int64_t n_input_tokens;   /* real encoder tokens, end tokens included */
    int64_t n_target_tokens;  /* real decoder tokens, end tokens included: <pad> in a text, too */
    int32_t *encoder_ids;     /* (R, L) tokens, end token, zeros */
    int32_t *decoder_targets; /* (R, T) tokens, end token, zeros */
    int32_t *decoder_inputs;  /* (R, T) decoder_targets shifted right by one, 0 first (end token at the first
                                 pad) */
    float *loss_weights;      /* (R, T) 1 where decoder_targets is not padding; NULL: none are given */
    int32_t *input_lengths;   /* (R) with the end token, 0 for a padding row */
    int32_t *target_lengths;  /* (R) likewise */
    const int32_t *encoder_segments,
        *decoder_segments; /* (R, L), (R, T) of packed rows, 0: padding; else NULL */
    int32_t *segments;     /* of batches made for packed rows, both sides in one; else NULL */
    int64_t *items; /* (R) the example or item of the row, of packed ones the first; -1 for a padding row */
    struct syi_row_position position; /* of packed rows: a window that is not after the first row */
};

/* Memory for batches of `rows` rows of any of the buckets; the only allocation. */
int syi_batch_create(struct syi_batch *batch, int32_t rows, const struct syi_bucket *buckets, int n_buckets,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The same for rows that are packed. */
int syi_batch_create_packed(struct syi_batch *batch, int32_t rows, const struct syi_bucket *bucket,
                            struct sy_error *err) SYI_MUST_CHECK;
void syi_batch_free(struct syi_batch *batch);
/* Empties the batch: all rows padding, lengths those of the bucket. */
void syi_batch_begin(struct syi_batch *batch, const struct syi_bucket *buckets, int bucket);
/* Fills the next row. The texts must fit the bucket, end token included; target NULL leaves the target side
 * empty. Fails as syi_vocabulary_encode does. */
int syi_batch_add(struct syi_batch *batch, const struct syi_vocabularies *vocabularies, int64_t item,
                  struct syi_span input, const struct syi_span *target, struct sy_error *err) SYI_MUST_CHECK;
/* Of an example whose ids stand in encoder_ids and decoder_targets already: all else that follows from them. */
void syi_batch_settle(struct syi_batch *batch, const struct syi_slot *slot, int64_t item, int32_t n_inputs,
                      int32_t n_targets);
/* Puts an example's ids, end tokens included, where there is room for them; of a row the first one comes first. */
void syi_batch_put(struct syi_batch *batch, const struct syi_slot *slot, int64_t item,
                   const struct syi_ids *inputs, const struct syi_ids *targets);

#endif
