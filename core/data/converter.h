/* SPDX-License-Identifier: Apache-2.0 */
/* Feature converters: examples as ids become rows of fixed lengths, what a model reads. Behaviour: seqio's
 * feature_converters.py, EncDecFeatureConverter and LMFeatureConverter, with and without packing. Trimming comes
 * before (preprocess.h): an example that is longer than a row is refused. */
#ifndef SYI_CONVERTER_H
#define SYI_CONVERTER_H

#include "data/batch.h"

enum syi_converter {
    SYI_CONVERT_ENCDEC, /* inputs to the encoder, targets to the decoder */
    SYI_CONVERT_LM      /* targets to a decoder alone; inputs are not looked at */
};

struct syi_id_example {
    const int32_t *inputs, *targets; /* borrowed; end tokens are among them */
    int32_t n_inputs, n_targets;
};

/* One side of the rows: R rows of L tokens. All but positions is the batch's. */
struct syi_side {
    int32_t length;        /* L; 0: the converter has no such side */
    const int32_t *tokens; /* (R, L) the examples one after the other, then SYI_ID_PAD */
    const int32_t
        *segments; /* (R, L) 1, 2, ...: which example of the row; 0: padding. Packed rows only, else NULL */
    int32_t *positions;    /* (R, L) 0, 1, ... in each example; 0 in padding. The same; owned */
    const int32_t *filled; /* (R) tokens that are no padding */
};

struct syi_rows {
    enum syi_converter converter;
    int packed;
    int32_t capacity;         /* rows there is memory for */
    int32_t n;                /* R: rows in use */
    int32_t *examples;        /* (R) how many are in each */
    struct syi_bucket bucket; /* of the batch */
    struct syi_batch batch;   /* which training fills by the same function, syi_batch_put */
    struct syi_side encoder;  /* encoder input tokens */
    struct syi_side decoder;  /* decoder target tokens */
    const int32_t
        *decoder_inputs; /* (R, T) targets shifted right by one, SYI_ID_PAD first and, in packed rows, at the
                                      first token of each example; the batch's */
    const float *loss_weights; /* (R, T) 1 where there is a target, else 0; the batch's */
};

/* Empty memory for `capacity` rows; the only allocation. Of SYI_CONVERT_LM inputs_length means nothing. */
int syi_rows_create(struct syi_rows *rows, enum syi_converter converter, int packed, int32_t inputs_length,
                    int32_t targets_length, int32_t capacity, struct sy_error *err) SYI_MUST_CHECK;
void syi_rows_free(struct syi_rows *rows); /* also of zeroed ones */
/* No rows, all padding. */
void syi_rows_clear(struct syi_rows *rows);
/* Whether the example goes into the row that is begun: packed, and both sides have room. (A row is filled in the order
 * of the examples; seqio never looks back at earlier ones.) */
int syi_rows_joins(const struct syi_rows *rows, const struct syi_id_example *example);
/* Adds an example, to the last row where it joins, else as a new row. SY_EINVAL: it is longer than a row. SY_ENOENT:
 * it needs a new row and there is no memory for one; nothing is changed. */
int syi_rows_add(struct syi_rows *rows, const struct syi_id_example *example,
                 struct sy_error *err) SYI_MUST_CHECK;

#endif
