/* SPDX-License-Identifier: Apache-2.0 */
/* Span corruption and prefixes: which tokens are noise, and what inputs and targets become of them. Counts, lengths and
 * the six treatments of noise are those of t5.data.preprocessors (random_spans_helper, random_spans_noise_mask,
 * random_prefix_noise_mask, noise_span_to_unique_sentinel and others); where spans lie follows from a key here, not
 * from TensorFlow's random numbers. */
#ifndef SYI_SPANS_H
#define SYI_SPANS_H

#include "data/vocabulary.h"

/* ---- lengths ---- */

struct syi_span_shape {
    double noise_density;    /* share of tokens that are noise, 0..1 (T5: 0.15) */
    double mean_span_length; /* of the noise, over 0 (T5: 3) */
    int32_t extra_inputs;    /* tokens that stand for a span in the inputs (T5: 1) */
    int32_t extra_targets;   /* and in the targets (T5: 1) */
};

/* How many tokens of text fill inputs of `inputs_length`, end token included, and how long the targets become.
 * SY_EINVAL: no number of tokens fits, or no limit is reached by 2^30. */
int syi_span_lengths(const struct syi_span_shape *shape, int32_t inputs_length, int32_t *tokens,
                     int32_t *targets_length, struct sy_error *err) SYI_MUST_CHECK;

/* Lengths of both sides, end tokens included, that n tokens become, n at least 2. */
void syi_span_sides(const struct syi_span_shape *shape, int32_t n, int32_t *input, int32_t *target);

/* ---- masks: (n) 1 is noise ---- */

/* Spans of noise of random lengths between spans of text, beginning with text; a pure function of the arguments.
 * SY_EINVAL: there would be more spans than tokens of noise or of text. */
int syi_span_mask(int32_t n, double noise_density, double mean_span_length, uint64_t key, uint8_t *mask,
                  struct sy_error *err) SYI_MUST_CHECK;
/* How many tokens syi_prefix_mask marks. */
int32_t syi_prefix_length(int32_t n, uint64_t key);
/* The first 1 to n - 1 tokens, all numbers alike likely (prefix LM); 0 or 1 token: none. */
void syi_prefix_mask(int32_t n, uint64_t key, uint8_t *mask);

/* ---- what becomes of tokens under a mask ---- */

enum syi_noise {
    SYI_DROP_NOISE,
    SYI_DROP_TEXT,
    SYI_NOISE_TO_SENTINEL,             /* each token */
    SYI_NOISE_SPAN_TO_SENTINEL,        /* each span, always the same */
    SYI_NOISE_SPAN_TO_UNIQUE_SENTINEL, /* the first span `sentinel`, the next one less, ... */
    SYI_TEXT_SPAN_TO_UNIQUE_SENTINEL
};

/* Writes what is left to out (n), which may be ids itself; returns how many. */
int32_t syi_noise_apply(enum syi_noise what, const int32_t *ids, const uint8_t *mask, int32_t n,
                        int32_t sentinel, int32_t *out);

/* ---- both together ---- */

/* Whether n tokens, at least 2, can be corrupted, which no key decides. SY_EINVAL: as syi_span_mask, or more spans than
 * the vocabulary has sentinels. */
int syi_span_check(const struct syi_vocabulary *vocabulary, const struct syi_span_shape *shape, int32_t n,
                   struct sy_error *err) SYI_MUST_CHECK;
/* Appends to inputs the tokens with a sentinel in place of each span, to targets the spans, a sentinel before each;
 * no end tokens. SY_EINVAL: as syi_span_check. */
int syi_span_corrupt(const struct syi_vocabulary *vocabulary, const struct syi_span_shape *shape,
                     const struct syi_ids *tokens, uint64_t key, struct syi_ids *inputs,
                     struct syi_ids *targets, struct sy_error *err) SYI_MUST_CHECK;
/* Appends to inputs the first tokens, to targets the rest, as syi_prefix_mask cuts them. */
int syi_prefix_split(const struct syi_ids *tokens, uint64_t key, struct syi_ids *inputs,
                     struct syi_ids *targets, struct sy_error *err) SYI_MUST_CHECK;

#endif
