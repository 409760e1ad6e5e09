/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding a batch with an engine: greedily, where the program itself chooses, or by beam search and sampling
 * (decode.h), of which the best sequence is taken. */
#include "config.h"

#include <string.h>

#include "data/vocabulary.h"
#include "train/engine_internal.h"

int syi_engine_searches(const struct syi_config *c)
{
    return c->decode.beams > 1 || c->decode.temperature > 0;
}

int syi_engine_decode_open(struct syi_engine *e, struct sy_error *err)
{
    const struct syi_config *c = &e->config;
    struct syi_decode_options options = {.beam_search = c->decode.beams > 1,
                                         .decodes = (int32_t)c->decode.beams,
                                         .batch = (int32_t)e->eval_rows,
                                         .length = syi_engine_decode_length(e),
                                         .vocab = (int32_t)c->model.vocab_size,
                                         .eos = SYI_ID_EOS,
                                         .alpha = c->decode.alpha,
                                         .temperature = c->decode.temperature,
                                         .top_k = (int32_t)c->decode.topk,
                                         .top_p = c->decode.topp,
                                         .rescale_log_probs = 1,
                                         .seed = (uint64_t)c->train.seed};
    size_t sequences = (size_t)(e->eval_rows * options.decodes);
    e->sequences = syi_alloc(sequences * (size_t)options.length * sizeof *e->sequences, err);
    e->scores = syi_alloc(sequences * sizeof *e->scores, err);
    e->example = syi_alloc((size_t)e->eval_rows * sizeof *e->example, err);
    if (!e->sequences || !e->scores || !e->example) return SY_ENOMEM;
    for (int i = 0; i < e->n_buckets; i++)
        e->bound[i].step = syi_decode_bind(e->session, e->bound[i].program[SYI_DECODE_STEP]);
    return syi_decoder_new(&options, &e->decoder, err);
}

/* The last of an example's sequences is its best. */
static void take_best(struct syi_engine *e, const struct syi_batch *batch, int32_t length, int32_t *ids,
                      int32_t *lengths)
{
    int64_t decodes = e->config.decode.beams;
    for (int64_t row = 0; row < e->eval_rows; row++) {
        const int32_t *best = e->sequences + ((row + 1) * decodes - 1) * length;
        for (int32_t i = 0; batch->input_lengths[row] && i < length && best[i] != SYI_ID_EOS; i++) {
            if (best[i] == SYI_ID_PAD) break;
            ids[row * length + i] = best[i];
            lengths[row] = i + 1;
        }
    }
}

static int search(struct syi_engine *e, const struct syi_batch *batch, int32_t *ids, int32_t *lengths,
                  struct sy_error *err)
{
    struct syi_decode_step step = {syi_decode_bound_run, &e->bound[batch->bucket].step};
    struct syi_decode_batch inputs = {.example = e->example, .active = e->finished};
    for (int64_t row = 0; row < e->eval_rows; row++) {
        e->example[row] = batch->items[row];
        e->finished[row] = batch->input_lengths[row] != 0;
    }
    int status = syi_decoder_run(e->decoder, &step, &inputs, e->sequences, e->scores, err);
    if (!status) take_best(e, batch, syi_engine_decode_length(e), ids, lengths);
    return status;
}

/* Takes the tokens chosen at `position`: rows go on until their end token. Returns how many are still open.
 */
static int64_t take_tokens(struct syi_engine *e, int32_t position, int32_t length, int32_t *ids,
                           int32_t *lengths)
{
    const int32_t *next = e->next->data;
    int64_t open = 0;
    for (int64_t row = 0; row < e->eval_rows; row++) {
        if (e->finished[row]) continue;
        if (next[row] == SYI_ID_EOS) {
            e->finished[row] = 1;
            continue;
        }
        ids[row * length + position] = next[row];
        lengths[row] = position + 1;
        open++;
    }
    return open;
}

static void put_tokens(struct syi_engine *e, int32_t position, const int32_t *next)
{
    int32_t *token = e->token->data, *seen = e->lengths->data;
    *(int32_t *)e->position->data = position;
    for (int64_t row = 0; row < e->token->dim[0]; row++) {
        token[row] = next ? next[e->token->first[0] + row] : SYI_ID_PAD;
        seen[row] = position + 1;
    }
}

static int decode_greedily(struct syi_engine *e, const struct syi_batch *batch, int32_t *ids,
                           int32_t *lengths, struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    int32_t length = syi_engine_decode_length(e);
    for (int64_t row = 0; row < e->eval_rows; row++) e->finished[row] = batch->input_lengths[row] == 0;
    int status = SY_OK;
    for (int32_t position = 0; !status && position < length; position++) {
        put_tokens(e, position, position ? e->next->data : NULL);
        status = syi_session_run(e->session, bound->program[SYI_DECODE_STEP], err);
        if (!status && !take_tokens(e, position, length, ids, lengths)) break;
    }
    return status;
}

int syi_engine_decode(struct syi_engine *e, const struct syi_batch *batch, int32_t *ids, int32_t *lengths,
                      struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    syi_engine_put(e, &bound->eval, batch, 0, e->eval_rows);
    memset(ids, 0, (size_t)(e->eval_rows * syi_engine_decode_length(e)) * sizeof *ids);
    memset(lengths, 0, (size_t)e->eval_rows * sizeof *lengths);
    int status = syi_session_run(e->session, bound->program[SYI_ENCODE], err);
    if (status) return status;
    return e->decoder ? search(e, batch, ids, lengths, err) : decode_greedily(e, batch, ids, lengths, err);
}
