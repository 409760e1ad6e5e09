/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder: options checked, memory laid out, one of the two algorithms called. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/decode/decode_internal.h"

static int check(const struct syi_decode_options *o, struct sy_error *err)
{
    if (o->decodes < 1 || o->batch < 1 || o->length < 1)
        return syi_error(err, SY_EINVAL,
                         "decoding %d sequences of %d tokens for each of %d examples: all must be positive",
                         o->decodes, o->length, o->batch);
    if (o->vocab < 2 || o->eos < 0 || o->eos >= o->vocab)
        return syi_error(err, SY_EINVAL,
                         "decoding: end token %d of %d ids, give at least two ids and one of them", o->eos,
                         o->vocab);
    if (o->start < 0 || o->start >= o->vocab)
        return syi_error(err, SY_EINVAL, "decoding: start token %d of %d ids, give one of them", o->start,
                         o->vocab);
    if (o->length >= 1 << 30 || o->decodes > 1 << 20 || (int64_t)o->batch * o->decodes >= 1 << 30)
        return syi_error(err, SY_EINVAL,
                         "decoding %d x %d sequences of %d tokens is too much, try a smaller batch", o->batch,
                         o->decodes, o->length);
    if (o->beam_search && !isfinite(o->alpha))
        return syi_error(err, SY_EINVAL, "decoding: alpha must be a finite number");
    if (o->beam_search) return SY_OK;
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return syi_error(err, SY_EINVAL, "decoding: decode.temperature=%g must be 0 or more", o->temperature);
    if (o->top_k < 0 || !(o->top_p >= 0 && o->top_p <= 1))
        return syi_error(
            err, SY_EINVAL,
            "decoding: decode.topk=%d (of the library top_k) must be 0 or more, decode.topp=%g (top_p) "
            "within 0..1",
            o->top_k, o->top_p);
    if (o->top_k && o->top_p > 0)
        return syi_error(
            err, SY_EINVAL,
            "decoding: decode.topk=%d and decode.topp=%g (of the library top_k and top_p) exclude each "
            "other, set one to 0",
            o->top_k, o->top_p);
    return SY_OK;
}

/* Takes `n` 4-byte elements from *memory, or only counts them where there is none yet. */
static void *take(char *memory, size_t *used, int64_t n)
{
    void *at = memory ? memory + *used : NULL;
    *used += ((size_t)n * 4 + 63) / 64 * 64;
    return at;
}

static void lay_out_beams(struct syi_beams *beams, char *memory, size_t *used, int64_t rows, int64_t length)
{
    beams->sequence = take(memory, used, rows * (length + 1));
    beams->value = take(memory, used, rows);
    beams->filled = take(memory, used, rows);
}

/* Points all arrays into memory; returns the bytes they need. */
static size_t lay_out(struct syi_decoder *d, char *memory)
{
    const struct syi_decode_options *o = &d->options;
    int64_t rows = (int64_t)o->batch * o->decodes, beams = o->decodes;
    struct syi_candidates *c = &d->candidates;
    size_t used = 0;
    d->token = take(memory, &used, rows);
    d->prompt = take(memory, &used, rows);
    lay_out_beams(&d->live, memory, &used, rows, o->length);
    if (o->beam_search) {
        d->from = take(memory, &used, rows);
        d->settled = take(memory, &used, o->batch);
        lay_out_beams(&d->finished, memory, &used, rows, o->length);
        lay_out_beams(&d->next_live, memory, &used, rows, o->length);
        lay_out_beams(&d->next_finished, memory, &used, rows, o->length);
        c->value = take(memory, &used, 2 * beams);
        c->id = take(memory, &used, 2 * beams);
        c->beam = take(memory, &used, 2 * beams);
        c->head = take(memory, &used, beams);
        c->ranked = take(memory, &used, 3 * beams);
        c->flagged = take(memory, &used, 3 * beams);
        c->chosen = take(memory, &used, beams);
    } else {
        d->ended = take(memory, &used, rows);
        d->scaled = take(memory, &used, o->vocab);
        d->weight = take(memory, &used, 2 * (int64_t)o->vocab);
    }
    return used;
}

int syi_decoder_new(const struct syi_decode_options *options, struct syi_decoder **decoder,
                    struct sy_error *err)
{
    int status = check(options, err);
    if (status) return status;
    struct syi_decoder *d = syi_alloc(sizeof *d, err);
    if (!d) return SY_ENOMEM;
    d->options = *options;
    d->memory = syi_alloc(lay_out(d, NULL), err);
    if (!d->memory) {
        syi_free(d);
        return SY_ENOMEM;
    }
    lay_out(d, d->memory);
    *decoder = d;
    return SY_OK;
}

int syi_decoder_change(struct syi_decoder *d, const struct syi_decode_options *options, struct sy_error *err)
{
    const struct syi_decode_options *o = &d->options;
    int status = check(options, err);
    if (status) return status;
    if (options->beam_search != o->beam_search || options->batch != o->batch ||
        options->decodes != o->decodes || options->length != o->length || options->vocab != o->vocab)
        return syi_error(err, SY_EINTERNAL, "a decoder was made for other sizes");
    d->options = *options;
    return SY_OK;
}

void syi_decoder_free(struct syi_decoder *d)
{
    if (!d) return;
    syi_free(d->memory);
    syi_free(d);
}

int syi_decoder_run(struct syi_decoder *d, const struct syi_decode_step *step,
                    const struct syi_decode_batch *batch, int32_t *ids, float *scores, struct sy_error *err)
{
    if (d->options.beam_search) return syi_decode_beams(d, step, batch, ids, scores, err);
    return syi_decode_samples(d, step, batch, ids, scores, err);
}
