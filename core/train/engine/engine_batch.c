/* SPDX-License-Identifier: Apache-2.0 */
/* Batches into the inputs of programs: ids, which positions are real, loss weights, and the numbers that sums
 * over tokens are divided by. Every rank is given the whole batch and copies its own rows. */
#include "config.h"

#include <string.h>

#include "data/masks.h"
#include "train/engine/engine_internal.h"

/* Copies the rows of `from` (rows of `width` 4-byte elements, the first being that of row 0 of the tensor)
 * that this rank holds. */
static void put_rows(const struct sy_tensor *to, const void *from, int64_t width)
{
    if (to) memcpy(to->data, (const char *)from + to->first[0] * width * 4, (size_t)(to->dim[0] * width) * 4);
}

/* What is known of n rows of a batch. */
struct part {
    const int32_t *encoder_ids, *decoder_inputs, *decoder_targets;
    const int32_t *encoder_segments, *decoder_segments; /* or NULL */
    const int32_t *input_lengths, *target_lengths;
    const float *loss_weights; /* or NULL */
    int64_t n, input_length, target_length;
};

static const void *row_of(const void *rows, int64_t row, int64_t width)
{
    return rows ? (const char *)rows + row * width * 4 : NULL;
}

static struct part part_of(const struct syi_batch *b, int64_t row0, int64_t n)
{
    int64_t in = b->input_length, out = b->target_length;
    return (struct part){.encoder_ids = row_of(b->encoder_ids, row0, in),
                         .decoder_inputs = row_of(b->decoder_inputs, row0, out),
                         .decoder_targets = row_of(b->decoder_targets, row0, out),
                         .encoder_segments = row_of(b->encoder_segments, row0, in),
                         .decoder_segments = row_of(b->decoder_segments, row0, out),
                         .input_lengths = row_of(b->input_lengths, row0, 1),
                         .target_lengths = row_of(b->target_lengths, row0, 1),
                         .loss_weights = row_of(b->loss_weights, row0, out),
                         .n = n,
                         .input_length = in,
                         .target_length = out};
}

static struct syi_loss_weights effective_weights(struct syi_engine *e, const struct part *p)
{
    const struct syi_config *c = &e->config;
    struct syi_loss_targets targets = {.targets = p->decoder_targets,
                                       .weights = p->loss_weights,
                                       .segments = p->decoder_segments,
                                       .rows = p->n,
                                       .length = p->target_length,
                                       .padding_targets = syi_compat(c, c->loss.padding_targets)};
    return syi_loss_weights(&e->factor, &targets, e->weights);
}

static double count(const float *mask, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += mask[i] != 0;
    return sum;
}

/* mask of e->mask: real positions of the decoder, by targets or as T5X by inputs. */
static void decoder_mask(struct syi_engine *e, const struct part *p)
{
    const struct syi_config *c = &e->config;
    if (syi_compat(c, c->model.padding_mask))
        syi_decoder_logit_mask(p->decoder_inputs, p->n, p->target_length, e->mask);
    else
        syi_encoder_logit_mask(p->decoder_targets, p->n * p->target_length, e->mask);
}

/* Large parts are taken in pieces of the buffers' rows. */
struct syi_norms syi_engine_norms(struct syi_engine *e, const struct syi_batch *batch, int64_t row0,
                                  int64_t n)
{
    struct syi_norms norms = {0};
    int64_t most = e->train_rows > e->eval_rows ? e->train_rows : e->eval_rows;
    for (int64_t row = row0; row < row0 + n; row += most) {
        struct part p = part_of(batch, row, row0 + n - row < most ? row0 + n - row : most);
        struct syi_loss_weights weights = effective_weights(e, &p);
        int each = e->factor.kind == SYI_LOSS_FACTOR_NONE || e->factor.kind == SYI_LOSS_FACTOR_NUMBER;
        norms.loss = each ? weights.normalizer : norms.loss + weights.normalizer;
        norms.weight_sum += weights.weight_sum;
        norms.weighted += (int64_t)count(e->weights, p.n * p.target_length);
        syi_encoder_logit_mask(p.encoder_ids, p.n * p.input_length, e->mask);
        norms.input += count(e->mask, p.n * p.input_length);
        decoder_mask(e, &p);
        norms.target += count(e->mask, p.n * p.target_length);
    }
    if (norms.loss == 0) norms.loss = 1;
    return norms;
}

static void mark_rows(const struct sy_tensor *held, int64_t row0, uint8_t *mine)
{
    for (int64_t i = 0; held && i < held->dim[0]; i++) mine[row0 + held->first[0] + i] = 1;
}

void syi_engine_rows(const struct syi_engine *e, uint8_t *mine)
{
    const struct syi_bucket_inputs *in = &e->bound[0].train;
    for (int64_t m = 0; m < e->config.train.microbatches; m++) {
        mark_rows(in->encoder_ids, m * e->train_rows, mine);
        mark_rows(in->decoder_inputs, m * e->train_rows, mine);
        mark_rows(in->decoder_targets, m * e->train_rows, mine);
    }
}

void syi_engine_put_weights(const struct syi_bucket_inputs *in, const struct syi_batch *batch)
{
    put_rows(in->loss_weights, batch->loss_weights, batch->target_length);
}

/* The start token where each example of a row begins. segments: of all rows of the batch, 0 for padding. */
static void put_starts(const struct sy_tensor *inputs, const int32_t *segments, int64_t width, int32_t start)
{
    int32_t *to = inputs->data;
    segments += inputs->first[0] * width;
    for (int64_t i = 0; i < inputs->dim[0] * width; i++)
        if (segments[i] && (i % width == 0 || segments[i] != segments[i - 1])) to[i] = start;
}

void syi_engine_put(struct syi_engine *e, const struct syi_bucket_inputs *in, const struct syi_batch *batch,
                    int64_t row0, int64_t n)
{
    struct part p = part_of(batch, row0, n);
    int32_t start = (int32_t)e->config.model.decoder_start_token_id;
    put_rows(in->encoder_ids, p.encoder_ids, p.input_length);
    put_rows(in->decoder_inputs, p.decoder_inputs, p.target_length);
    put_rows(in->decoder_targets, p.decoder_targets, p.target_length);
    put_rows(in->encoder_lengths, p.input_lengths, 1);
    put_rows(in->decoder_lengths, p.target_lengths, 1);
    effective_weights(e, &p);
    put_rows(in->loss_weights, e->weights, p.target_length);
    syi_segments(p.encoder_ids, p.encoder_segments, n * p.input_length, e->segments);
    put_rows(in->encoder_segments, e->segments, p.input_length);
    syi_encoder_logit_mask(p.encoder_ids, n * p.input_length, e->mask);
    put_rows(in->encoder_mask, e->mask, p.input_length);
    syi_segments(p.decoder_targets, p.decoder_segments, n * p.target_length, e->segments);
    put_rows(in->decoder_segments, e->segments, p.target_length);
    if (in->decoder_inputs && start) put_starts(in->decoder_inputs, e->segments, p.target_length, start);
    decoder_mask(e, &p);
    put_rows(in->decoder_mask, e->mask, p.target_length);
}
