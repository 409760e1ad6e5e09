/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of examples, one in each or several packed. */
#include "config.h"

#include <string.h>

#include "data/converter.h"

enum { MOST_LENGTH = 1 << 20 };

/* ---- memory ---- */

static int create_side(struct syi_side *side, int32_t length, int packed, int32_t rows, struct sy_error *err)
{
    size_t n = (size_t)rows * (size_t)length * sizeof(int32_t);
    side->length = length;
    side->tokens = syi_alloc(n, err);
    side->filled = syi_alloc((size_t)rows * sizeof(int32_t), err);
    if (!side->tokens || !side->filled) return SY_ENOMEM;
    if (!packed) return SY_OK;
    side->segments = syi_alloc(n, err);
    side->positions = syi_alloc(n, err);
    return side->segments && side->positions ? SY_OK : SY_ENOMEM;
}

static void free_side(struct syi_side *side)
{
    syi_free(side->tokens);
    syi_free(side->segments);
    syi_free(side->positions);
    syi_free(side->filled);
}

int syi_rows_create(struct syi_rows *rows, enum syi_converter converter, int packed, int32_t inputs_length,
                    int32_t targets_length, int32_t capacity, struct sy_error *err)
{
    int encoder = converter == SYI_CONVERT_ENCDEC;
    memset(rows, 0, sizeof *rows);
    if (capacity < 1 || targets_length < 1 || targets_length > MOST_LENGTH ||
        (encoder && (inputs_length < 1 || inputs_length > MOST_LENGTH)))
        return syi_error(err, SY_EINVAL, "%d rows of %d and %d tokens; at least 1 of each, at most %d tokens",
                         capacity, inputs_length, targets_length, MOST_LENGTH);
    rows->converter = converter;
    rows->packed = packed;
    rows->capacity = capacity;
    size_t n = (size_t)capacity * (size_t)targets_length;
    int status = create_side(&rows->decoder, targets_length, packed, capacity, err);
    if (!status && encoder) status = create_side(&rows->encoder, inputs_length, packed, capacity, err);
    rows->examples = syi_alloc((size_t)capacity * sizeof *rows->examples, err);
    rows->decoder_inputs = syi_alloc(n * sizeof *rows->decoder_inputs, err);
    rows->loss_weights = syi_alloc(n * sizeof *rows->loss_weights, err);
    if (!rows->examples || !rows->decoder_inputs || !rows->loss_weights) status = SY_ENOMEM;
    if (status) syi_rows_free(rows);
    return status;
}

void syi_rows_free(struct syi_rows *rows)
{
    free_side(&rows->encoder);
    free_side(&rows->decoder);
    syi_free(rows->examples);
    syi_free(rows->decoder_inputs);
    syi_free(rows->loss_weights);
    memset(rows, 0, sizeof *rows);
}

static void clear_side(struct syi_side *side, int32_t rows)
{
    size_t n = (size_t)rows * (size_t)side->length * sizeof(int32_t);
    if (!side->length) return;
    memset(side->tokens, 0, n);
    memset(side->filled, 0, (size_t)rows * sizeof(int32_t));
    if (!side->segments) return;
    memset(side->segments, 0, n);
    memset(side->positions, 0, n);
}

void syi_rows_clear(struct syi_rows *rows)
{
    size_t n = (size_t)rows->n * (size_t)rows->decoder.length;
    clear_side(&rows->encoder, rows->n);
    clear_side(&rows->decoder, rows->n);
    memset(rows->examples, 0, (size_t)rows->n * sizeof *rows->examples);
    memset(rows->decoder_inputs, 0, n * sizeof *rows->decoder_inputs);
    for (size_t i = 0; i < n; i++) rows->loss_weights[i] = 0;
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

/* Returns where the example begins in the row. */
static size_t put(struct syi_side *side, int32_t row, int32_t segment, const int32_t *ids, int32_t n)
{
    size_t at = (size_t)row * (size_t)side->length + (size_t)side->filled[row];
    if (n) memcpy(side->tokens + at, ids, (size_t)n * sizeof *ids);
    for (size_t i = 0; side->segments && i < (size_t)n; i++) {
        side->segments[at + i] = segment;
        side->positions[at + i] = (int32_t)i;
    }
    side->filled[row] += n;
    return at;
}

/* The first input is a zero, as the memory is. In a row of one example the last token is an input, too, if there is
 * a place for it. */
static void put_shifted(struct syi_rows *rows, size_t at, size_t row_end, const int32_t *ids, int32_t n)
{
    size_t last = rows->packed ? at + (size_t)n : row_end, shifted = at + 1;
    for (size_t i = 0; i < (size_t)n; i++) {
        rows->loss_weights[at + i] = ids[i] != SYI_ID_PAD;
        if (shifted + i < last) rows->decoder_inputs[shifted + i] = ids[i];
    }
}

int syi_rows_add(struct syi_rows *rows, const struct syi_id_example *example, struct sy_error *err)
{
    int status = check_length("targets", example->n_targets, rows->decoder.length, err);
    if (!status && rows->encoder.length)
        status = check_length("inputs", example->n_inputs, rows->encoder.length, err);
    if (status) return status;
    int joins = syi_rows_joins(rows, example);
    if (!joins && rows->n == rows->capacity)
        return syi_error(err, SY_ENOENT, "all %d rows are full", rows->capacity);
    int32_t row = joins ? rows->n - 1 : rows->n++, segment = ++rows->examples[row];
    if (rows->encoder.length) put(&rows->encoder, row, segment, example->inputs, example->n_inputs);
    size_t at = put(&rows->decoder, row, segment, example->targets, example->n_targets);
    put_shifted(rows, at, (size_t)(row + 1) * (size_t)rows->decoder.length, example->targets,
                example->n_targets);
    return SY_OK;
}
