/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding a batch with an engine: greedily, where the program itself chooses, or by beam search and sampling
 * (decode.h), of which the best sequences are taken. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/decode/decode_internal.h"
#include "train/engine/engine_internal.h"

/* Without a temperature, sampling is greedy; it is how greedy decoding gets its scores. */
int syi_engine_samples(const struct syi_decode_part *d)
{
    return d->temperature > 0 || (d->scores && syi_decode_sequences(d) == 1);
}

int syi_engine_searches(const struct syi_decode_part *d)
{
    return syi_engine_samples(d) || syi_decode_sequences(d) > 1;
}

static struct syi_decode_options decode_options(const struct syi_engine *e)
{
    const struct syi_config *c = &e->config;
    return (struct syi_decode_options){.beam_search = !syi_engine_samples(&c->decode),
                                       .decodes = (int32_t)syi_decode_sequences(&c->decode),
                                       .batch = (int32_t)e->eval_rows,
                                       .length = syi_engine_decode_length(e),
                                       .vocab = (int32_t)c->model.vocab_size,
                                       .start = (int32_t)c->model.decoder_start_token_id,
                                       .eos = e->end,
                                       .length_penalty = c->decode.length_penalty,
                                       .alpha = c->decode.alpha,
                                       .finished_beams = c->decode.finished_beams,
                                       .early_stopping = c->decode.early_stopping,
                                       .temperature = c->decode.temperature,
                                       .top_k = c->decode.temperature > 0 ? (int32_t)c->decode.topk : 0,
                                       .top_p = c->decode.temperature > 0 ? c->decode.topp : 0,
                                       .rescale_log_probs =
                                           c->decode.temperature > 0 && c->decode.rescale_log_probs,
                                       .seed = (uint64_t)c->train.seed};
}

int syi_engine_decode_open(struct syi_engine *e, struct sy_error *err)
{
    struct syi_decode_options options = decode_options(e);
    size_t sequences = (size_t)(e->eval_rows * options.decodes);
    e->sequences = syi_alloc(sequences * (size_t)options.length * sizeof *e->sequences, err);
    e->scores = syi_alloc(sequences * sizeof *e->scores, err);
    e->example = syi_alloc((size_t)e->eval_rows * sizeof *e->example, err);
    if (!e->sequences || !e->scores || !e->example) return SY_ENOMEM;
    return syi_decoder_new(&options, &e->decoder, err);
}

int syi_engine_decodes_alike(const struct syi_engine *e, const struct syi_decode_part *d)
{
    const struct syi_decode_part *own = &e->config.decode;
    return syi_decode_sequences(own) == syi_decode_sequences(d) &&
           syi_engine_samples(own) == syi_engine_samples(d) && own->max_length == d->max_length;
}

int syi_engine_decode_as(struct syi_engine *e, const struct syi_decode_part *decode, int64_t seed,
                         struct sy_error *err)
{
    struct syi_decode_part before = e->config.decode;
    int64_t seed_before = e->config.train.seed;
    e->config.decode = *decode;
    e->config.decode.batch_size = before.batch_size;
    e->config.train.seed = seed;
    struct syi_decode_options options = decode_options(e);
    int status = e->decoder ? syi_decoder_change(e->decoder, &options, err) : SY_OK;
    if (!status) return SY_OK;
    e->config.decode = before;
    e->config.train.seed = seed_before;
    return status;
}

/* Tokens of a sequence before its end. */
static int32_t output_length(const int32_t *sequence, int32_t length, int32_t end)
{
    int32_t n = 0;
    while (n < length && sequence[n] != end) n++;
    return n;
}

/* The last of an example's sequences is its best. A place that no finished sequence took is no output. */
static void take_sequences(struct syi_engine *e, const struct syi_batch *batch, const struct syi_outputs *out)
{
    int64_t sequences = syi_decode_sequences(&e->config.decode), length = syi_engine_decode_length(e);
    for (int64_t row = 0; row < e->eval_rows; row++)
        for (int64_t i = 0; batch->input_lengths[row] && i < out->decodes; i++) {
            int64_t from = (row + 1) * sequences - 1 - i, to = row * out->decodes + i;
            int none = e->scores[from] < SYI_DECODE_NONE / 2;
            const int32_t *sequence = e->sequences + from * length;
            int32_t n = none ? 0 : output_length(sequence, (int32_t)length, e->end);
            memcpy(out->ids + to * length, sequence, (size_t)n * sizeof *out->ids);
            out->lengths[to] = n;
            if (out->scores) out->scores[to] = none ? -INFINITY : e->scores[from];
        }
}

/* Where in a batch out->poll is asked. */
struct asking {
    struct syi_engine *engine;
    const struct syi_outputs *out;
    int64_t last, next; /* positions */
    double then;        /* when it was asked at `last`, seconds */
};

static struct asking asking(struct syi_engine *e, const struct syi_outputs *out)
{
    return (struct asking){.engine = e, .out = out, .last = -1, .then = syi_seconds()};
}

/* All ranks meet when they are asked, and where they share processors that costs more than a short position.
 * So the clock of rank 0 decides how many positions pass: as many as take a quarter of a second, but at most
 * twice as many as before, because the first ones say little. */
static int ask(struct asking *a, int32_t position, struct sy_error *err)
{
    static const double PAUSE = 0.25;
    if (!a->out->poll || position < a->next) return SY_OK;
    double now = syi_seconds();
    int64_t passed = position - a->last, pass = (int64_t)(PAUSE / (now - a->then + 1e-9) * (double)passed);
    pass = pass < 1 ? 1 : pass < 2 * passed ? pass : 2 * passed;
    int status = syi_comm_broadcast(a->engine->rank.comm, &pass, 1, err);
    a->last = position;
    a->next = position + pass;
    a->then = now;
    return status ? status : a->out->poll(a->out->poll_arg, err);
}

struct search_step {
    struct syi_decode_bound *bound;
    struct asking asking;
};

static int run_search_step(void *arg, struct syi_decode_io *io, struct sy_error *err)
{
    struct search_step *step = arg;
    int status = ask(&step->asking, io->position, err);
    return status ? status : syi_decode_bound_run(step->bound, io, err);
}

static int search(struct syi_engine *e, const struct syi_batch *batch, const int64_t *example,
                  const struct syi_outputs *out, struct sy_error *err)
{
    struct search_step inner = {&e->bound[batch->bucket].step, asking(e, out)};
    struct syi_decode_step step = {run_search_step, &inner};
    struct syi_decode_batch inputs = {.example = e->example, .active = e->finished, .whole = out->whole};
    for (int64_t row = 0; row < e->eval_rows; row++) {
        e->example[row] = example ? example[row] : batch->items[row];
        e->finished[row] = batch->input_lengths[row] != 0;
    }
    int status = syi_decoder_run(e->decoder, &step, &inputs, e->sequences, e->scores, err);
    if (!status) take_sequences(e, batch, out);
    return status;
}

/* Takes the tokens chosen at `position`: rows go on until their end token. Returns how many are still open.
 */
static int64_t take_tokens(struct syi_engine *e, const int32_t *next, int32_t position, int32_t length,
                           int32_t *ids, int32_t *lengths)
{
    int64_t open = 0;
    for (int64_t row = 0; row < e->eval_rows; row++) {
        if (e->finished[row]) continue;
        if (next[row] == e->end) {
            e->finished[row] = 1;
            continue;
        }
        ids[row * length + position] = next[row];
        lengths[row] = position + 1;
        open++;
    }
    return open;
}

/* next: the tokens chosen before, of all rows; NULL: the start token. */
static void put_tokens(const struct syi_decode_bound *step, int32_t position, const int32_t *next,
                       int32_t start)
{
    int32_t *token = step->token->data, *seen = step->lengths->data;
    *(int32_t *)step->position->data = position;
    for (int64_t row = 0; row < step->token->dim[0]; row++) {
        token[row] = next ? next[step->token->first[0] + row] : start;
        seen[row] = position + 1;
    }
}

static int decode_greedily(struct syi_engine *e, const struct syi_batch *batch, const struct syi_outputs *out,
                           struct sy_error *err)
{
    const struct syi_decode_bound *step = &e->bound[batch->bucket].step;
    const int32_t *next = step->next->data;
    int32_t length = syi_engine_decode_length(e), start = (int32_t)e->config.model.decoder_start_token_id;
    struct asking a = asking(e, out);
    for (int64_t row = 0; row < e->eval_rows; row++) e->finished[row] = batch->input_lengths[row] == 0;
    int status = SY_OK;
    for (int32_t position = 0; !status && position < length; position++) {
        put_tokens(step, position, position ? next : NULL, start);
        status = ask(&a, position, err);
        if (!status) status = syi_session_run(e->session, step->program, err);
        if (!status && !take_tokens(e, next, position, length, out->ids, out->lengths) && !out->whole) break;
    }
    return status;
}

static int encode(struct syi_engine *e, const struct syi_batch *batch, struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    syi_engine_put(e, &bound->eval, batch, 0, e->eval_rows);
    int status = syi_engine_copy_weights(e, err);
    return status ? status : syi_session_run(e->session, bound->program[SYI_ENCODE], err);
}

int syi_engine_encode(struct syi_engine *e, const struct syi_batch *batch, const struct sy_tensor **encoded,
                      struct sy_error *err)
{
    int status = encode(e, batch, err);
    if (!status) *encoded = e->bound[batch->bucket].encoded;
    return status;
}

int syi_engine_decode(struct syi_engine *e, const struct syi_batch *batch, const int64_t *example,
                      const struct syi_outputs *out, struct sy_error *err)
{
    size_t outputs = (size_t)(e->eval_rows * out->decodes);
    memset(out->ids, 0, outputs * (size_t)syi_engine_decode_length(e) * sizeof *out->ids);
    memset(out->lengths, 0, outputs * sizeof *out->lengths);
    int status = encode(e, batch, err);
    if (status) return status;
    if (e->decoder) return search(e, batch, example, out, err);
    return decode_greedily(e, batch, out, err);
}
