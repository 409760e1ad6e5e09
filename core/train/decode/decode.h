/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing output tokens: beam search and temperature sampling as T5X has them (t5x/decoding.py), beam search as
 * transformers has it too (generation/utils.py), over a function that runs the model one position further. Knows no engine, program or backend. */
#ifndef SYI_DECODE_H
#define SYI_DECODE_H

#include "base/base.h"

struct syi_decode_options {
    int beam_search; /* 1: beam search; 0: temperature sampling */
    int32_t decodes; /* sequences of an example: the beams, or the samples */
    int32_t batch;   /* examples decoded together */
    int32_t length;  /* most tokens of an output, the end token included */
    int32_t vocab;   /* token ids are below it */
    int32_t start;   /* id that every sequence begins with */
    int32_t eos;     /* id of the end token */
    int length_penalty; /* beam search: SYI_LENGTH_PENALTY_*: score = log-probability / ((5 + tokens) / 6)^alpha, */
    double alpha;       /* or / tokens^alpha */
    int finished_beams;    /* beam search: SYI_FINISHED_BEAMS_*, which candidates are outputs */
    int early_stopping;    /* beam search: SYI_EARLY_STOPPING_*, when the outputs of an example are final */
    double temperature;    /* sampling: divides the logits; 1e-4 and less takes the largest logit */
    int32_t top_k;         /* sampling: only the k largest logits (and their equals); 0: all */
    double top_p;          /* sampling: only the fewest tokens with this much probability; 0: all */
    int rescale_log_probs; /* sampling: scores are of the distribution drawn from, not of the model's */
    uint64_t seed;         /* sampling */
};

/* One position of all rows. Row = example * decodes + decode. */
struct syi_decode_io {
    int32_t position;     /* of the tokens, from 0 */
    const int32_t *token; /* [rows] input at this position */
    const int32_t *from;  /* [rows] whose earlier positions a row continues, or NULL: its own */
    const float *add;     /* [rows] beam search: log-probability of each row so far; NULL for sampling */
    /* What the function must point to its result by; valid until it is called again. */
    const float *top_value; /* beam search: [rows][syi_decode_width] largest of add + log softmax(logits), */
    const int32_t *top_id;  /* in float32, falling, of equals the lower id first; and their ids */
    const float *logits;    /* sampling: [rows][vocab] */
};

struct syi_decode_step {
    int (*run)(void *arg, struct syi_decode_io *io, struct sy_error *err);
    void *arg;
};

struct syi_decode_batch {
    const int32_t *prompt;  /* [batch][length] decoder inputs, the start token's slot first: as many tokens as
                               are not 0 are forced (end tokens are taken for 0); or NULL */
    const int64_t *example; /* [batch] index of each example in the data set: its random numbers are named by
                               it; or NULL: its place in the batch */
    const uint8_t
        *active; /* [batch] 0: not an example: gives zeros and is not waited for; or NULL: all are */
    int whole;   /* 1: the model runs at all positions, also when nothing can change any more */
};

struct syi_decoder;

/* Checks the options (SY_EINVAL) and takes all memory. */
int syi_decoder_new(const struct syi_decode_options *options, struct syi_decoder **decoder,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_decoder_free(struct syi_decoder *decoder);
/* Other options of the same algorithm and sizes: batch, decodes, length, vocab. Checks them; nothing is changed on failure. */
int syi_decoder_change(struct syi_decoder *decoder, const struct syi_decode_options *options,
                       struct sy_error *err) SYI_MUST_CHECK;
/* Values a row of struct syi_decode_io's top_value has: 2 x decodes, or vocab where that is less. */
int32_t syi_decode_width(const struct syi_decode_options *options);
/* Decodes one batch: ids [batch][decodes][length] without the start token and 0 after the end token, scores
 * [batch][decodes]; decodes are ordered from worst to best. Takes no memory. */
int syi_decoder_run(struct syi_decoder *decoder, const struct syi_decode_step *step,
                    const struct syi_decode_batch *batch, int32_t *ids, float *scores,
                    struct sy_error *err) SYI_MUST_CHECK;

#endif
