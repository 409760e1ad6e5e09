/* SPDX-License-Identifier: Apache-2.0 */
/* A trained model that answers lists of texts: outputs, scores, what the encoder makes of them. The one place where
 * commands and the public library meet the engine for this. Keeps an engine for each way of asking, which all read the
 * same weights; the first call of a kind makes it. */
#ifndef SYI_PREDICTOR_H
#define SYI_PREDICTOR_H

#include "base/text.h"
#include "data/eval_batches.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/engine.h"

struct syi_predictor; /* of one rank: all ranks make the same calls */

/* config and rank are borrowed. checkpoint: of run_dir, as syi_checkpoint_load has it; it is read by the first call that
 * needs an engine, and by no other. */
int syi_predictor_new(const struct syi_config *config, const struct syi_rank *rank, const char *run_dir,
                      int64_t checkpoint, struct syi_predictor **predictor,
                      struct sy_error *err) SYI_MUST_CHECK;
/* Another predictor of the same model, on one rank of its own, that reads the weights and vocabularies of `lender`, which is
 * open and outlives it. Both may be called at the same time, and answer alike. */
int syi_predictor_beside(const struct syi_predictor *lender, const struct syi_rank *rank,
                         struct syi_predictor **predictor, struct sy_error *err) SYI_MUST_CHECK;
void syi_predictor_free(struct syi_predictor *predictor); /* NULL is fine */
/* Makes the engine for calls of n inputs that are decoded as config says, and reads the checkpoint, so that the first such
 * call does not. */
int syi_predictor_open(struct syi_predictor *predictor, size_t n, struct sy_error *err) SYI_MUST_CHECK;

const struct syi_vocabularies *syi_predictor_vocabularies(const struct syi_predictor *predictor);
/* Longest input and target, in tokens. */
struct syi_bucket syi_predictor_longest(const struct syi_predictor *predictor);
int64_t syi_predictor_rows(const struct syi_predictor *predictor); /* most inputs computed together */
/* Inputs of similar length are computed together: of so many a full batch of each length can be made. */
int32_t syi_predictor_window(const struct syi_predictor *predictor);
/* Of the checkpoint that was read; NULL before. */
const struct syi_checkpoint_meta *syi_predictor_checkpoint(const struct syi_predictor *predictor);
int64_t
syi_predictor_parameters(const struct syi_predictor *predictor); /* numbers in the weights; 0 before that */

/* Outputs of a list of inputs: output k of input i is number i * decodes + k. Start from {0}; memory is used again. */
struct syi_outcome {
    size_t at, bytes; /* in text, a NUL after its end */
    float score;      /* -infinity: there is no such output; NaN: the way of decoding has no scores */
    int too_long;     /* 1: the input has no output */
};
struct syi_outcomes {
    size_t n; /* inputs */
    size_t decodes;
    struct syi_text text;
    struct syi_outcome *item; /* [n * decodes] */
    size_t capacity;          /* items */
};
void syi_outcomes_free(struct syi_outcomes *outcomes);

/* decode and seed are in the place of the configuration's, and checked with it. example: [n] index of each input, which names
 * its random numbers. */
int syi_predictor_decode(struct syi_predictor *predictor, const struct syi_decode_part *decode, int64_t seed,
                         const struct syi_span *inputs, const int64_t *example, size_t n,
                         struct syi_outcomes *outcomes, struct sy_error *err) SYI_MUST_CHECK;
/* As syi_engine_score: score: [n], NaN of what is too long; tokens: [n] of each target without <pad> in its text, 0
 * there. */
int syi_predictor_score(struct syi_predictor *predictor, const struct syi_span *inputs,
                        const struct syi_span *targets, size_t n, double *score, int32_t *tokens,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Tokens of each input, the end token included; 0: too long. tokens: [n]. */
int syi_predictor_count(const struct syi_predictor *predictor, const struct syi_span *inputs, size_t n,
                        int64_t *tokens, struct sy_error *err) SYI_MUST_CHECK;
/* values: (sum of tokens, d_model), where tokens: [n] is what syi_predictor_count gave. On one rank. */
int syi_predictor_encode(struct syi_predictor *predictor, const struct syi_span *inputs,
                         const int64_t *tokens, size_t n, float *values, struct sy_error *err) SYI_MUST_CHECK;

#endif
