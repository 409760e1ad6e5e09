/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's working memory, shared by decode_sample.c (which makes it) and decode_beam.c. */
#ifndef SYI_DECODE_INTERNAL_H
#define SYI_DECODE_INTERNAL_H

#include "train/decode/decode.h"

/* "Minus infinity" of T5X: finite, so that it can be added to. */
#define SYI_DECODE_NONE (-1.0e7f)

/* The beams of all examples: each example's from worst to best. */
struct syi_beams {
    int32_t *sequence; /* [rows][length + 1], the start token first */
    float *value;      /* [rows] log-probability (live) or score (finished) */
    int32_t *filled;   /* [rows] finished only: 0 an empty place */
};

/* Candidates of one example in one step; n of them are 2 x decodes. */
struct syi_candidates {
    float *value;     /* [n] log-probability, falling */
    int32_t *id;      /* [n] token */
    int32_t *beam;    /* [n] of the example, that the token is appended to */
    int32_t *head;    /* [decodes] next unread place of each row's list */
    float *ranked;    /* [3 decodes] what is chosen from */
    int32_t *chosen;  /* [decodes] places in ranked, falling */
    int32_t *flagged; /* [3 decodes] whether a place of ranked is a finished sequence */
};

struct syi_decoder {
    struct syi_decode_options options;
    void *memory;                                              /* all arrays below but weight */
    int32_t *token;                                            /* [rows] */
    int32_t *from;                                             /* [rows] */
    int32_t *settled;                                          /* [batch] beam search: outputs are final */
    struct syi_beams live, finished, next_live, next_finished; /* sampling: live alone */
    struct syi_candidates candidates;
    int32_t *ended;  /* [rows] sampling */
    int32_t *prompt; /* [rows] tokens forced */
    float *scaled;   /* [vocab] sampling: logits / temperature */
    double *weight;  /* [vocab] sampling: exp(scaled - largest), 0 where left out */
};

/* Puts the start token and an example's prompt into a sequence of length + 1 ids, all else 0; end tokens are taken out, as T5X
 * does. Returns how many tokens are not 0. */
int32_t syi_decode_prompt(const struct syi_decode_options *options, const struct syi_decode_batch *batch,
                          int64_t example, int32_t *sequence);
int syi_decode_beams(struct syi_decoder *d, const struct syi_decode_step *step,
                     const struct syi_decode_batch *batch, int32_t *ids, float *scores,
                     struct sy_error *err) SYI_MUST_CHECK;
int syi_decode_samples(struct syi_decoder *d, const struct syi_decode_step *step,
                       const struct syi_decode_batch *batch, int32_t *ids, float *scores,
                       struct sy_error *err) SYI_MUST_CHECK;

#endif
