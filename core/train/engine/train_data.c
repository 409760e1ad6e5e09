/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of a run file's training. Which example comes when is the batcher's business. */
#include "config.h"

#include <string.h>

#include "base/philox.h"
#include "train/engine/engine.h"
#include "train/engine/train_data.h"

/* Batches that are sorted by length together: padding falls to a few percent. */
enum { POOL_BATCHES = 16, POOL_ROWS = 1 << 24 };

int syi_train_batch_create(const struct syi_config *c, struct syi_batch *batch, struct sy_error *err)
{
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(c, buckets);

    return syi_batch_create(batch, (int32_t)c->data.batch_size, buckets, n, err);
}

int syi_train_data_open(const struct syi_config *c, const struct syi_task *task, int quiet,
                        struct syi_vocabularies *vocabularies, struct syi_batcher *batcher,
                        struct syi_batch *batch, struct sy_error *err)
{
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int64_t pool = POOL_ROWS / c->data.batch_size;
    struct syi_batcher_options options = {
        .buckets = buckets,
        .n_buckets = syi_engine_buckets(c, buckets),
        .batch_size = (int32_t)c->data.batch_size,
        .pool_batches = pool < POOL_BATCHES ? (int32_t)pool : POOL_BATCHES,
        .seed = (uint64_t)c->train.seed,
        .warm_examples = c->data.warm_examples,
        .warm_max_target = (int32_t)c->data.warm_max_target - 1, /* without the end token */
        .quiet = quiet,
    };
    int status = syi_vocabularies_open(vocabularies, c, err);

    if (!status) status = syi_batcher_create(batcher, task, vocabularies, &options, err);
    return status ? status : syi_train_batch_create(c, batch, err);
}

/* ---- made up ---- */

/* Which random number of a batch: of `row`, on one side, `index` 0 for the length and then the tokens. */
struct draw {
    uint64_t seed;
    uint32_t step, row, side;
};

static uint32_t draw_below(const struct draw *d, uint32_t index, uint32_t n)
{
    uint32_t counter[4] = {d->step, d->row, d->side, index},
             key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    uint32_t out[4];
    syi_philox(counter, key, out);
    return out[0] % n;
}

/* 1 token or more, of ids below n_ids, and the end token; returns the length. */
static int32_t make_up_row(const struct draw *d, const struct syi_vocabulary *vocabulary, int64_t n_ids,
                           int32_t *ids, int32_t longest)
{
    int32_t n = 1 + (int32_t)draw_below(d, 0, (uint32_t)longest - 1);
    uint32_t choices = n_ids > vocabulary->first ? (uint32_t)(n_ids - vocabulary->first) : 1;

    for (int32_t i = 0; i < n; i++)
        ids[i] = vocabulary->first + (int32_t)draw_below(d, (uint32_t)i + 1, choices);
    ids[n] = vocabulary->end;
    return n + 1;
}

void syi_train_batch_make_up(const struct syi_config *c, const struct syi_vocabularies *vocabularies,
                             int64_t step, struct syi_batch *b)
{
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets = syi_engine_buckets(c, buckets);

    syi_batch_begin(b, buckets, (int)(step % n_buckets));
    for (int32_t row = 0; row < b->rows; row++) {
        struct draw d = {(uint64_t)c->train.seed, (uint32_t)step, (uint32_t)row, 0};
        size_t at = (size_t)row * (size_t)b->target_length;
        b->input_lengths[row] =
            make_up_row(&d, &vocabularies->input, c->model.vocab_size,
                        b->encoder_ids + (size_t)row * (size_t)b->input_length, b->input_length);
        d.side = 1;
        b->target_lengths[row] = make_up_row(&d, &vocabularies->target, c->model.vocab_size,
                                             b->decoder_targets + at, b->target_length);
        memcpy(b->decoder_inputs + at + 1, b->decoder_targets + at,
               (size_t)(b->target_length - 1) * sizeof *b->decoder_inputs);
        for (int32_t i = 0; i < b->target_lengths[row]; i++) b->loss_weights[at + (size_t)i] = 1;
        b->n_input_tokens += b->input_lengths[row];
        b->n_target_tokens += b->target_lengths[row];
        b->items[row] = row;
    }
    b->n_real = b->rows;
}
