/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of examples, one in each or several packed. */
#include "config.h"

#include <string.h>

#include "data/converter.h"

/* ---- memory ---- */

/* A side's tokens, segments and lengths are those of the batch. */
static int open_side(struct syi_side *side, int32_t length, const int32_t *tokens, const int32_t *segments,
                     const int32_t *filled, int32_t rows, struct sy_error *err)
{
    *side = (struct syi_side){.length = length, .tokens = tokens, .segments = segments, .filled = filled};
    if (segments) side->positions = syi_alloc((size_t)rows * (size_t)length * sizeof(int32_t), err);
    return segments && !side->positions ? SY_ENOMEM : SY_OK;
}

int syi_rows_create(struct syi_rows *rows, enum syi_converter converter, int packed, int32_t inputs_length,
                    int32_t targets_length, int32_t capacity, struct sy_error *err)
{
    int encoder = converter == SYI_CONVERT_ENCDEC;
    struct syi_batch *b = &rows->batch;
    memset(rows, 0, sizeof *rows);
    if (capacity < 1 || targets_length < 1 || targets_length > SYI_MAX_LENGTH ||
        (encoder && (inputs_length < 1 || inputs_length > SYI_MAX_LENGTH)))
        return syi_error(err, SY_EINVAL, "%d rows of %d and %d tokens; at least 1 of each, at most %d tokens",
                         capacity, inputs_length, targets_length, SYI_MAX_LENGTH);
    rows->converter = converter;
    rows->packed = packed;
    rows->capacity = capacity;
    rows->bucket = (struct syi_bucket){encoder ? inputs_length : 1, targets_length};
    int status = packed ? syi_batch_create_packed(b, capacity, &rows->bucket, err)
                        : syi_batch_create(b, capacity, &rows->bucket, 1, err);
    if (status) return status;
    status = open_side(&rows->decoder, targets_length, b->decoder_targets, b->decoder_segments,
                       b->target_lengths, capacity, err);
    if (!status && encoder)
        status = open_side(&rows->encoder, inputs_length, b->encoder_ids, b->encoder_segments,
                           b->input_lengths, capacity, err);
    rows->examples = syi_alloc((size_t)capacity * sizeof *rows->examples, err);
    if (!rows->examples) status = SY_ENOMEM;
    rows->decoder_inputs = b->decoder_inputs;
    rows->loss_weights = b->loss_weights;
    if (status)
        syi_rows_free(rows);
    else
        syi_rows_clear(rows);
    return status;
}

void syi_rows_free(struct syi_rows *rows)
{
    syi_free(rows->encoder.positions);
    syi_free(rows->decoder.positions);
    syi_free(rows->examples);
    syi_batch_free(&rows->batch);
    memset(rows, 0, sizeof *rows);
}

static void clear_positions(struct syi_side *side, int32_t rows)
{
    if (side->positions) memset(side->positions, 0, (size_t)rows * (size_t)side->length * sizeof(int32_t));
}

void syi_rows_clear(struct syi_rows *rows)
{
    syi_batch_begin(&rows->batch, &rows->bucket, 0);
    clear_positions(&rows->encoder, rows->capacity);
    clear_positions(&rows->decoder, rows->capacity);
    memset(rows->examples, 0, (size_t)rows->capacity * sizeof *rows->examples);
    rows->n = 0;
}

/* ---- examples ---- */

static int has_room(const struct syi_side *side, int32_t row, int32_t n)
{
    return n <= side->length - side->filled[row];
}

int syi_rows_joins(const struct syi_rows *rows, const struct syi_id_example *example)
{
    if (!rows->packed || !rows->n) return 0;
    return has_room(&rows->decoder, rows->n - 1, example->n_targets) &&
           (!rows->encoder.length || has_room(&rows->encoder, rows->n - 1, example->n_inputs));
}

static int check_length(const char *side, int32_t n, int32_t length, struct sy_error *err)
{
    if (n <= length) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "an example's %s have %d tokens, a row has %d: trim it first, or take longer rows", side,
                     n, length);
}

/* Of an example of n tokens from `at` on. */
static void count_positions(struct syi_side *side, int32_t row, int32_t at, int32_t n)
{
    int32_t *position = side->positions ? side->positions + (size_t)row * (size_t)side->length + at : NULL;
    for (int32_t i = 0; position && i < n; i++) position[i] = i;
}

int syi_rows_add(struct syi_rows *rows, const struct syi_id_example *example, struct sy_error *err)
{
    int encoder = rows->encoder.length > 0;
    int status = check_length("targets", example->n_targets, rows->decoder.length, err);
    if (!status && encoder) status = check_length("inputs", example->n_inputs, rows->encoder.length, err);
    if (status) return status;
    int joins = syi_rows_joins(rows, example);
    if (!joins && rows->n == rows->capacity)
        return syi_error(err, SY_ENOENT, "all %d rows are full", rows->capacity);
    int32_t row = joins ? rows->n - 1 : rows->n++, segment = ++rows->examples[row];
    struct syi_ids inputs = {(int32_t *)example->inputs, encoder ? (size_t)example->n_inputs : 0, 0};
    struct syi_ids targets = {(int32_t *)example->targets, (size_t)example->n_targets,
                              0}; /* only read from */
    struct syi_slot slot = {row, rows->packed ? segment : 0, encoder ? rows->encoder.filled[row] : 0,
                            rows->decoder.filled[row]};
    if (encoder) count_positions(&rows->encoder, row, slot.input_at, example->n_inputs);
    count_positions(&rows->decoder, row, slot.target_at, example->n_targets);
    syi_batch_put(&rows->batch, &slot, row, &inputs, &targets);
    return SY_OK;
}
