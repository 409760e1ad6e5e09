/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of made-up words for engines over the small model. */
#ifndef SMALL_BATCH_H
#define SMALL_BATCH_H

#include "data/batch.h"
#include "small_model.h"

enum { BATCH_ROWS = 16, BATCH_TARGETS = 6 }; /* every target has that many tokens */

static const struct syi_bucket batch_bucket = {8, BATCH_TARGETS};

static inline void batch_open(struct syi_batch *batch)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_batch_create(batch, BATCH_ROWS, &batch_bucket, 1, &err), SY_OK, "%s", err.text);
}

/* Batch `number` of inputs of 3 to 8 tokens. */
static inline void batch_fill(struct syi_batch *batch, int number)
{
    struct ms_random random = {(uint64_t)number * 7 + 1};
    struct syi_vocabularies v;
    struct sy_error err = {0};
    cr_assert_eq(syi_vocabulary_bytes(&v.input, 0, &err), SY_OK, "%s", err.text);
    v.target = v.input;
    syi_batch_begin(batch, &batch_bucket, 0);
    for (int row = 0; row < BATCH_ROWS; row++) {
        char text[7];
        for (int i = 0; i < 7; i++) text[i] = (char)('a' + ms_below(&random, 20));
        struct syi_span input = {text, 2 + (size_t)ms_below(&random, 6)}, target = {text, BATCH_TARGETS - 1};
        cr_assert_eq(syi_batch_add(batch, &v, row, input, &target, &err), SY_OK, "%s", err.text);
    }
}

#endif
