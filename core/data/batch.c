/* SPDX-License-Identifier: Apache-2.0 */
/* Fills batches as seqio's unpacked encoder-decoder converter does, and chooses length buckets. */
#include "config.h"

#include <string.h>

#include "data/batch.h"

struct syi_bucket syi_buckets_longest(const struct syi_bucket *buckets, int n_buckets)
{
    struct syi_bucket longest = buckets[0];
    for (int i = 1; i < n_buckets; i++) {
        if (buckets[i].input_length > longest.input_length) longest.input_length = buckets[i].input_length;
        if (buckets[i].target_length > longest.target_length)
            longest.target_length = buckets[i].target_length;
    }
    return longest;
}

int syi_buckets_check(const struct syi_bucket *buckets, int n_buckets, struct sy_error *err)
{
    struct syi_bucket longest;

    if (n_buckets < 1 || n_buckets > SYI_MAX_BUCKETS)
        return syi_error(err, SY_EINVAL, "%d length buckets; 1 to %d are possible", n_buckets,
                         SYI_MAX_BUCKETS);
    for (int i = 0; i < n_buckets; i++)
        if (buckets[i].input_length < 1 || buckets[i].target_length < 1 ||
            buckets[i].input_length > SYI_MAX_LENGTH || buckets[i].target_length > SYI_MAX_LENGTH)
            return syi_error(err, SY_EINVAL, "length bucket %d x %d: lengths are 1 to %d tokens",
                             buckets[i].input_length, buckets[i].target_length, SYI_MAX_LENGTH);
    longest = syi_buckets_longest(buckets, n_buckets);
    if (syi_buckets_fit(buckets, n_buckets, (size_t)longest.input_length, (size_t)longest.target_length) < 0)
        return syi_error(err, SY_EINVAL, "length buckets: none holds all others; add %d x %d",
                         longest.input_length, longest.target_length);
    return SY_OK;
}

int syi_buckets_fit(const struct syi_bucket *buckets, int n_buckets, size_t input_length,
                    size_t target_length)
{
    int best = -1;
    for (int i = 0; i < n_buckets; i++) {
        if (input_length > (size_t)buckets[i].input_length ||
            target_length > (size_t)buckets[i].target_length)
            continue;
        if (best < 0 || buckets[i].input_length + buckets[i].target_length <
                            buckets[best].input_length + buckets[best].target_length)
            best = i;
    }
    return best;
}

int syi_batch_create(struct syi_batch *batch, int32_t rows, const struct syi_bucket *buckets, int n_buckets,
                     struct sy_error *err)
{
    struct syi_bucket longest = syi_buckets_longest(buckets, n_buckets);
    size_t n_input = (size_t)rows * (size_t)longest.input_length;
    size_t n_target = (size_t)rows * (size_t)longest.target_length, n_rows = (size_t)rows;

    memset(batch, 0, sizeof(*batch));
    if (rows < 1) return syi_error(err, SY_EINVAL, "a batch of %d rows; at least 1 is needed", rows);
    batch->rows = rows;
    batch->capacity_input = longest.input_length;
    batch->capacity_target = longest.target_length;
    batch->encoder_ids = syi_alloc(n_input * sizeof(int32_t), err);
    batch->decoder_targets = syi_alloc(n_target * sizeof(int32_t), err);
    batch->decoder_inputs = syi_alloc(n_target * sizeof(int32_t), err);
    batch->loss_weights = syi_alloc(n_target * sizeof(float), err);
    batch->input_lengths = syi_alloc(n_rows * sizeof(int32_t), err);
    batch->target_lengths = syi_alloc(n_rows * sizeof(int32_t), err);
    batch->items = syi_alloc(n_rows * sizeof(*batch->items), err);
    if (batch->encoder_ids && batch->decoder_targets && batch->decoder_inputs && batch->loss_weights &&
        batch->input_lengths && batch->target_lengths && batch->items)
        return SY_OK;
    syi_batch_free(batch);
    return SY_ENOMEM;
}

int syi_batch_create_packed(struct syi_batch *batch, int32_t rows, const struct syi_bucket *bucket,
                            struct sy_error *err)
{
    int status = syi_batch_create(batch, rows, bucket, 1, err);
    if (status) return status;
    size_t n_input = (size_t)rows * (size_t)bucket->input_length;
    size_t n_target = (size_t)rows * (size_t)bucket->target_length;
    batch->segments = syi_alloc((n_input + n_target) * sizeof(int32_t), err);
    if (batch->segments) {
        batch->encoder_segments = batch->segments;
        batch->decoder_segments = batch->segments + n_input;
        return SY_OK;
    }
    syi_batch_free(batch);
    return SY_ENOMEM;
}

void syi_batch_free(struct syi_batch *batch)
{
    syi_free(batch->encoder_ids);
    syi_free(batch->decoder_targets);
    syi_free(batch->decoder_inputs);
    syi_free(batch->loss_weights);
    syi_free(batch->input_lengths);
    syi_free(batch->target_lengths);
    syi_free(batch->items);
    syi_free(batch->segments);
    memset(batch, 0, sizeof(*batch));
}

void syi_batch_begin(struct syi_batch *batch, const struct syi_bucket *buckets, int bucket)
{
    size_t rows = (size_t)batch->rows;
    size_t n_input = rows * (size_t)buckets[bucket].input_length;
    size_t n_target = rows * (size_t)buckets[bucket].target_length;

    batch->bucket = bucket;
    batch->input_length = buckets[bucket].input_length;
    batch->target_length = buckets[bucket].target_length;
    batch->n_real = 0;
    batch->n_input_tokens = batch->n_target_tokens = 0;
    memset(batch->encoder_ids, 0, n_input * sizeof(int32_t));
    memset(batch->decoder_targets, 0, n_target * sizeof(int32_t));
    memset(batch->decoder_inputs, 0, n_target * sizeof(int32_t));
    memset(batch->loss_weights, 0, n_target * sizeof(float));
    memset(batch->input_lengths, 0, rows * sizeof(int32_t));
    memset(batch->target_lengths, 0, rows * sizeof(int32_t));
    if (batch->segments) memset(batch->segments, 0, (n_input + n_target) * sizeof(int32_t));
    for (size_t i = 0; i < rows; i++) batch->items[i] = -1;
}

/* The decoder reads what came before: its own targets moved on by one. In a packed row an example begins with padding, and
 * its end token is no input; in a row alone the end token is one where there is room. */
static void settle_targets(struct syi_batch *batch, const struct syi_slot *slot, int32_t n)
{
    size_t at = (size_t)slot->row * (size_t)batch->target_length + (size_t)slot->target_at;
    int32_t room = batch->target_length - slot->target_at - 1, shifted = n - (slot->segment > 0);
    if (shifted > room) shifted = room;
    for (int32_t i = 0; i < shifted; i++)
        batch->decoder_inputs[at + 1 + (size_t)i] = batch->decoder_targets[at + (size_t)i];
    for (int32_t i = 0; i < n; i++)
        batch->loss_weights[at + (size_t)i] = batch->decoder_targets[at + (size_t)i] != SYI_ID_PAD;
}

void syi_batch_settle(struct syi_batch *batch, const struct syi_slot *slot, int64_t item, int32_t n_inputs,
                      int32_t n_targets)
{
    int32_t row = slot->row;
    settle_targets(batch, slot, n_targets);
    if (slot->segment) {
        int32_t *encoder = batch->segments + (size_t)row * (size_t)batch->input_length + slot->input_at;
        int32_t *decoder = batch->segments + (size_t)batch->rows * (size_t)batch->input_length +
                           (size_t)row * (size_t)batch->target_length + slot->target_at;
        for (int32_t i = 0; i < n_inputs; i++) encoder[i] = slot->segment;
        for (int32_t i = 0; i < n_targets; i++) decoder[i] = slot->segment;
    }
    if (batch->items[row] < 0) batch->items[row] = item;
    if (row >= batch->n_real) batch->n_real = row + 1;
    batch->input_lengths[row] += n_inputs;
    batch->target_lengths[row] += n_targets;
    batch->n_input_tokens += n_inputs;
    batch->n_target_tokens += n_targets;
}

static void copy_ids(int32_t *row, int32_t at, const struct syi_ids *ids)
{
    if (ids->n) memcpy(row + at, ids->id, ids->n * sizeof(int32_t));
}

void syi_batch_put(struct syi_batch *batch, const struct syi_slot *slot, int64_t item,
                   const struct syi_ids *inputs, const struct syi_ids *targets)
{
    size_t row = (size_t)slot->row;
    copy_ids(batch->encoder_ids + row * (size_t)batch->input_length, slot->input_at, inputs);
    copy_ids(batch->decoder_targets + row * (size_t)batch->target_length, slot->target_at, targets);
    syi_batch_settle(batch, slot, item, (int32_t)inputs->n, (int32_t)targets->n);
}

/* Token ids and the end token. */
static int put_tokens(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                      int32_t room, int32_t *length, struct sy_error *err)
{
    size_t n;
    int status = syi_vocabulary_encode(vocabulary, text, ids, (size_t)room, &n, err);
    if (status) return status;
    if (n >= (size_t)room) n = (size_t)room - 1; /* the caller has checked: this only keeps memory safe */
    ids[n] = vocabulary->end;
    *length = (int32_t)n + 1;
    return SY_OK;
}

int syi_batch_add(struct syi_batch *batch, const struct syi_vocabularies *vocabularies, int64_t item,
                  struct syi_span input, const struct syi_span *target, struct sy_error *err)
{
    struct syi_slot slot = {.row = batch->n_real, .segment = batch->segments != NULL};
    size_t row = (size_t)slot.row;
    int32_t n_inputs, n_targets = 0;

    int status =
        put_tokens(&vocabularies->input, input, batch->encoder_ids + row * (size_t)batch->input_length,
                   batch->input_length, &n_inputs, err);
    if (!status && target)
        status = put_tokens(&vocabularies->target, *target,
                            batch->decoder_targets + row * (size_t)batch->target_length, batch->target_length,
                            &n_targets, err);
    if (!status) syi_batch_settle(batch, &slot, item, n_inputs, n_targets);
    return status;
}
