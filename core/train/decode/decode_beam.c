/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search as T5X has it (t5x/decoding.py beam_search): live and finished beams apart, both from worst to
 * best, 2 x beams candidates a step. Equal values rank by place, the lower first, in every choice; each
 * choice is then turned around. Scores are float32. The search of transformers 5 (_beam_search) differs in the
 * penalty of lengths, in which candidates finish, and in when it stops; each is an option. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/run_config.h"
#include "train/decode/decode_internal.h"

static float length_penalty(const struct syi_decode_options *o, int32_t tokens)
{
    if (o->length_penalty == SYI_LENGTH_PENALTY_POWER) return (float)pow((double)tokens, o->alpha);
    return (float)pow((double)((5.0f + (float)tokens) / 6.0f), (double)(float)o->alpha);
}

static int is_active(const struct syi_decode_batch *batch, int32_t example)
{
    return !batch->active || batch->active[example];
}

static void begin(struct syi_decoder *d, const struct syi_decode_batch *batch)
{
    const struct syi_decode_options *o = &d->options;
    size_t width = (size_t)o->length + 1;
    for (int32_t i = 0; i < o->batch; i++) d->settled[i] = !is_active(batch, i);
    for (int32_t row = 0; row < o->batch * o->decodes; row++) {
        int32_t *sequence = d->live.sequence + (size_t)row * width;
        d->prompt[row] = syi_decode_prompt(o, batch, row / o->decodes, sequence);
        memcpy(d->finished.sequence + (size_t)row * width, sequence, width * sizeof *sequence);
        d->token[row] = sequence[0];
        d->live.value[row] = row % o->decodes ? SYI_DECODE_NONE : 0.0f;
        d->finished.value[row] = SYI_DECODE_NONE;
        d->finished.filled[row] = 0;
    }
}

/* Whether T5X's search of an example ends: no live beam, grown to the full length, could score more than the worst of
 * its outputs. An empty place counts as SYI_DECODE_NONE. */
static int cannot_improve(const struct syi_decoder *d, const int32_t *filled, float best_live, float worst)
{
    float best = best_live / length_penalty(&d->options, d->options.length + 1);
    for (int32_t i = 0; i < d->options.decodes; i++)
        if (!((filled[i] ? worst : SYI_DECODE_NONE) > best)) return 0;
    return 1;
}

/* Whether an example's outputs are final after `tokens` tokens. */
static int is_settled(const struct syi_decoder *d, int32_t example, int32_t tokens)
{
    const struct syi_decode_options *o = &d->options;
    const float *score = d->finished.value + (int64_t)example * o->decodes;
    const int32_t *filled = d->finished.filled + (int64_t)example * o->decodes;
    float best_live = d->live.value[(int64_t)example * o->decodes + o->decodes - 1], worst = score[0];
    int full = 1;
    for (int32_t i = 0; i < o->decodes; i++) {
        worst = score[i] < worst ? score[i] : worst;
        full &= filled[i];
    }
    switch (o->early_stopping) {
    case SYI_EARLY_STOPPING_TRUE: return full;
    case SYI_EARLY_STOPPING_FALSE: return full && worst >= best_live / length_penalty(o, tokens);
    default: return cannot_improve(d, filled, best_live, worst);
    }
}

/* Notes which examples are settled; returns whether all are. */
static int settle(struct syi_decoder *d, int32_t tokens)
{
    int all = 1;
    for (int32_t i = 0; i < d->options.batch; i++) {
        d->settled[i] = d->settled[i] || is_settled(d, i, tokens);
        all &= d->settled[i];
    }
    return all;
}

/* The 2 x beams best continuations of an example, merged from the falling lists of its rows. */
static void merge(struct syi_decoder *d, int32_t example, const struct syi_decode_io *io)
{
    struct syi_candidates *c = &d->candidates;
    int32_t beams = d->options.decodes, width = syi_decode_width(&d->options);
    const float *value = io->top_value + (int64_t)example * beams * width;
    const int32_t *id = io->top_id + (int64_t)example * beams * width;
    memset(c->head, 0, (size_t)beams * sizeof *c->head);
    for (int32_t i = 0; i < 2 * beams; i++) {
        int32_t best = -1;
        for (int32_t row = 0; row < beams; row++) {
            if (c->head[row] == width) continue;
            if (best < 0 ||
                value[(int64_t)row * width + c->head[row]] > value[(int64_t)best * width + c->head[best]])
                best = row;
        }
        int64_t place = (int64_t)best * width + c->head[best]++;
        c->value[i] = value[place];
        c->id[i] = id[place];
        c->beam[i] = best;
    }
}

/* The places of the `beams` largest of ranked[0 .. n), falling. Those taken become NaN in ranked. */
static void choose(struct syi_candidates *c, int32_t n, int32_t beams)
{
    for (int32_t i = 0; i < beams; i++) {
        int32_t best = -1;
        for (int32_t k = 0; k < n; k++)
            if (!isnan(c->ranked[k]) && (best < 0 || c->ranked[k] > c->ranked[best])) best = k;
        if (best < 0) best = 0; /* a model that gives only NaN */
        c->chosen[i] = best;
        c->ranked[best] = NAN;
    }
}

/* Sequence of candidate k: its beam's with the token after it. */
static void put_sequence(const struct syi_decoder *d, int32_t example, int32_t position, int32_t k,
                         int32_t *to)
{
    const struct syi_candidates *c = &d->candidates;
    size_t width = (size_t)d->options.length + 1;
    const int32_t *from =
        d->live.sequence + ((size_t)example * (size_t)d->options.decodes + (size_t)c->beam[k]) * width;
    memcpy(to, from, width * sizeof *to);
    to[position + 1] = c->id[k];
}

static float live_value(const struct syi_decoder *d, int32_t k)
{
    const struct syi_candidates *c = &d->candidates;
    return c->id[k] == d->options.eos ? c->value[k] + SYI_DECODE_NONE : c->value[k];
}

/* The best candidates that have not ended go on living. */
static void grow_live(struct syi_decoder *d, int32_t example, int32_t position)
{
    struct syi_candidates *c = &d->candidates;
    int32_t beams = d->options.decodes;
    for (int32_t k = 0; k < 2 * beams; k++) c->ranked[k] = live_value(d, k);
    choose(c, 2 * beams, beams);
    for (int32_t i = 0; i < beams; i++) {
        int32_t k = c->chosen[beams - 1 - i];
        int64_t row = (int64_t)example * beams + i;
        put_sequence(d, example, position, k, d->next_live.sequence + row * (d->options.length + 1));
        d->next_live.value[row] = live_value(d, k);
        d->from[row] = example * beams + c->beam[k];
        d->token[row] = c->id[k];
    }
}

/* Whether candidate k is an output. */
static int ends(const struct syi_decoder *d, int32_t position, int32_t k)
{
    const struct syi_decode_options *o = &d->options;
    int ended = d->candidates.id[k] == o->eos;
    if (o->finished_beams == SYI_FINISHED_BEAMS_T5X) return ended;
    return k < o->decodes && (ended || position + 1 == o->length);
}

/* The best of those finished before and those that end now. The candidates' values become scores. What continues a beam
 * that is not in use is no output: divided by the penalty its SYI_DECODE_NONE might pass for a score. */
static void grow_finished(struct syi_decoder *d, int32_t example, int32_t position)
{
    struct syi_candidates *c = &d->candidates;
    int32_t beams = d->options.decodes, *flagged = c->flagged;
    int64_t row0 = (int64_t)example * beams, width = d->options.length + 1;
    float penalty = length_penalty(&d->options, position + 1);
    for (int32_t i = 0; i < beams; i++) {
        c->ranked[i] = d->finished.value[row0 + i];
        flagged[i] = d->finished.filled[row0 + i];
    }
    for (int32_t k = 0; k < 2 * beams; k++) {
        flagged[beams + k] = ends(d, position, k) && c->value[k] > SYI_DECODE_NONE / 2;
        c->value[k] = c->value[k] / penalty + (flagged[beams + k] ? 0.0f : SYI_DECODE_NONE);
        c->ranked[beams + k] = c->value[k];
    }
    choose(c, 3 * beams, beams);
    for (int32_t i = 0; i < beams; i++) {
        int32_t k = c->chosen[beams - 1 - i];
        int32_t *to = d->next_finished.sequence + (row0 + i) * width;
        if (k < beams)
            memcpy(to, d->finished.sequence + (row0 + k) * width, (size_t)width * sizeof *to);
        else
            put_sequence(d, example, position, k - beams, to);
        d->next_finished.value[row0 + i] = k < beams ? d->finished.value[row0 + k] : c->value[k - beams];
        d->next_finished.filled[row0 + i] = flagged[k];
    }
}

static void swap(struct syi_beams *a, struct syi_beams *b)
{
    struct syi_beams kept = *a;
    *a = *b;
    *b = kept;
}

/* Finished beams, or live ones and their log-probabilities where an example has none. Zeros in front of the
 * first token vanish: T5X joins outputs to their prompts by their first token that is not 0. */
static void put_result(const struct syi_decoder *d, int32_t example, int32_t *ids, float *scores)
{
    int32_t beams = d->options.decodes, length = d->options.length, any = 0;
    for (int32_t i = 0; i < beams; i++) any |= d->finished.filled[(int64_t)example * beams + i];
    const struct syi_beams *from = any ? &d->finished : &d->live;
    for (int64_t row = (int64_t)example * beams; row < ((int64_t)example + 1) * beams; row++) {
        const int32_t *sequence = from->sequence + row * (length + 1) + 1;
        int32_t first = 0;
        while (first < length && sequence[first] == 0) first++;
        memcpy(ids + row * length, sequence + first, (size_t)(length - first) * sizeof *ids);
        memset(ids + row * length + length - first, 0, (size_t)first * sizeof *ids);
        scores[row] = from->value[row];
    }
}

static void copy_beams(const struct syi_beams *from, struct syi_beams *to, int64_t row, int64_t n,
                       int64_t width)
{
    memcpy(to->sequence + row * width, from->sequence + row * width,
           (size_t)(n * width) * sizeof *to->sequence);
    memcpy(to->value + row, from->value + row, (size_t)n * sizeof *to->value);
    memcpy(to->filled + row, from->filled + row, (size_t)n * sizeof *to->filled);
}

/* An example inside its prompt only reads on; one whose outputs are final stays as it is. */
static void hold(struct syi_decoder *d, int32_t example, int32_t position)
{
    int32_t beams = d->options.decodes;
    int64_t row0 = (int64_t)example * beams, width = d->options.length + 1;
    copy_beams(&d->live, &d->next_live, row0, beams, width);
    copy_beams(&d->finished, &d->next_finished, row0, beams, width);
    for (int64_t row = row0; row < row0 + beams; row++) {
        d->from[row] = (int32_t)row;
        d->token[row] = d->live.sequence[row * width + position + 1];
    }
}

static void grow(struct syi_decoder *d, const struct syi_decode_io *io)
{
    for (int32_t i = 0; i < d->options.batch; i++) {
        int final = d->settled[i] && d->options.early_stopping != SYI_EARLY_STOPPING_NEVER;
        if (final || io->position < d->prompt[(int64_t)i * d->options.decodes]) {
            hold(d, i, io->position);
            continue;
        }
        merge(d, i, io);
        grow_live(d, i, io->position);
        grow_finished(d, i, io->position);
    }
    swap(&d->live, &d->next_live);
    swap(&d->finished, &d->next_finished);
}

int syi_decode_beams(struct syi_decoder *d, const struct syi_decode_step *step,
                     const struct syi_decode_batch *batch, int32_t *ids, float *scores, struct sy_error *err)
{
    const struct syi_decode_options *o = &d->options;
    int64_t rows = (int64_t)o->batch * o->decodes;
    begin(d, batch);
    for (int32_t position = 0; position < o->length; position++) {
        if (settle(d, position) && !batch->whole) break;
        struct syi_decode_io io = {
            .position = position, .token = d->token, .from = position ? d->from : NULL, .add = d->live.value};
        int status = step->run(step->arg, &io, err);
        if (status) return status;
        grow(d, &io);
    }
    memset(ids, 0, (size_t)(rows * o->length) * sizeof *ids);
    memset(scores, 0, (size_t)rows * sizeof *scores);
    for (int32_t i = 0; i < o->batch; i++)
        if (is_active(batch, i)) put_result(d, i, ids, scores);
    return SY_OK;
}
