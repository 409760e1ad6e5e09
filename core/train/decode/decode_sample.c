/* SPDX-License-Identifier: Apache-2.0 */
/* Temperature sampling as T5X has it (t5x/decoding.py temperature_sample), prompts, top-k and top-p included.
 * Its random numbers are our own: one Philox draw a token, named by seed, example, decode and position, so
 * that what an example gets does not depend on the batch around it. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "train/decode/decode_internal.h"

enum { SAMPLE_SITE = 0x73616d70 }; /* second word of the key; dropout's sites are small */

/* Temperatures up to this take the largest logit. */
static const float least_temperature = 1e-4f;

/* Floats in their order as integers, and back. */
static int32_t to_key(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? bits ^ INT32_MAX : bits;
}

static float from_key(int32_t key)
{
    float x;
    key = key < 0 ? key ^ INT32_MAX : key;
    memcpy(&x, &key, sizeof x);
    return x;
}

static float largest(const float *x, int32_t n)
{
    float most = x[0];
    for (int32_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* Sum of the weights of x's elements that are at least `cut`; NULL: their number. */
static double measure(const float *x, const double *weight, int32_t n, float cut)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (x[i] >= cut) sum += weight ? weight[i] : 1;
    return sum;
}

/* The largest cut whose measure reaches goal: by halving the range of floats, so equal elements stay together
 * and nothing is sorted. -infinity where none does. */
static float find_cut(const float *x, const double *weight, int32_t n, double goal)
{
    int64_t low = to_key(-INFINITY), high = (int64_t)to_key(INFINITY) + 1;
    if (!(measure(x, weight, n, -INFINITY) >= goal)) return -INFINITY;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (measure(x, weight, n, from_key((int32_t)middle)) >= goal)
            low = middle;
        else
            high = middle;
    }
    return from_key((int32_t)low);
}

/* log softmax(x)[id] */
static float log_probability(const float *x, int32_t n, int32_t id)
{
    float most = largest(x, n);
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)most);
    return (float)((double)x[id] - (double)most - log(sum));
}

static double uniform(const struct syi_decode_options *o, int32_t position, int64_t example, int32_t decode)
{
    const uint32_t key[2] = {(uint32_t)o->seed, SAMPLE_SITE ^ (uint32_t)(o->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(uint64_t)example,
                                 (uint32_t)((uint64_t)example >> 32), (uint32_t)decode};
    uint32_t word[4];
    syi_philox(counter, key, word);
    return (double)((uint64_t)word[0] << 21 | word[1] >> 11) * 0x1p-53;
}

static void leave_out(const float *x, double *weight, int32_t n, float cut)
{
    for (int32_t i = 0; i < n; i++)
        if (!(x[i] >= cut)) weight[i] = 0;
}

/* The id where the running sum of weights passes u of their total, which is left in *total. */
static int32_t pick(const double *weight, int32_t n, double u, double *total)
{
    double sum = 0, running = 0;
    int32_t last = 0;
    for (int32_t i = 0; i < n; i++) sum += weight[i];
    *total = sum;
    for (int32_t i = 0; i < n; i++) {
        running += weight[i];
        if (weight[i] > 0) last = i;
        if (running > u * sum) return i;
    }
    return last;
}

/* Draws one token and gives the logarithm of its probability. */
static int32_t draw(struct syi_decoder *d, const float *logits, double u, float *log_p)
{
    const struct syi_decode_options *o = &d->options;
    float temperature = (float)o->temperature;
    double total;
    for (int32_t i = 0; i < o->vocab; i++) d->scaled[i] = logits[i] / temperature;
    float most = largest(d->scaled, o->vocab);
    for (int32_t i = 0; i < o->vocab; i++) d->weight[i] = exp((double)d->scaled[i] - (double)most);
    if (o->top_k > 0)
        leave_out(d->scaled, d->weight, o->vocab, find_cut(d->scaled, NULL, o->vocab, o->top_k));
    if (o->top_p > 0) {
        pick(d->weight, o->vocab, 0, &total);
        leave_out(d->scaled, d->weight, o->vocab, find_cut(d->scaled, d->weight, o->vocab, o->top_p * total));
    }
    int32_t id = pick(d->weight, o->vocab, u, &total);
    *log_p = o->rescale_log_probs ? (float)((double)d->scaled[id] - (double)most - log(total))
                                  : log_probability(logits, o->vocab, id);
    return id;
}

static int32_t take_largest(const struct syi_decode_options *o, const float *logits, float *log_p)
{
    int32_t id = 0;
    for (int32_t i = 1; i < o->vocab; i++)
        if (logits[i] > logits[id]) id = i;
    *log_p = o->rescale_log_probs ? 0.0f : log_probability(logits, o->vocab, id);
    return id;
}

/* Sequences hold the prompt before they are decoded. */
static void begin(struct syi_decoder *d, const struct syi_decode_batch *batch)
{
    const struct syi_decode_options *o = &d->options;
    for (int64_t row = 0; row < (int64_t)o->batch * o->decodes; row++) {
        int64_t example = row / o->decodes;
        d->prompt[row] = syi_decode_prompt(o, batch, example, d->live.sequence + row * (o->length + 1));
        d->live.value[row] = 0;
        d->ended[row] = batch->active && !batch->active[example];
    }
}

/* The token after `position` of a row that goes on. T5X runs the prompt's first tokens, as many as are not
 * 0, in one go, whatever they are; later ones that are not 0 are forced too. */
static void extend(struct syi_decoder *d, const struct syi_decode_io *io, int64_t row, int64_t example)
{
    const struct syi_decode_options *o = &d->options;
    int32_t *sequence = d->live.sequence + row * (o->length + 1);
    int32_t position = io->position;
    float log_p;
    if (position < d->prompt[row] || sequence[position + 1] != 0) return;
    const float *logits = io->logits + row * o->vocab;
    int32_t id;
    if ((float)o->temperature > least_temperature)
        id = draw(d, logits, uniform(o, position, example, (int32_t)(row % o->decodes)), &log_p);
    else
        id = take_largest(o, logits, &log_p);
    sequence[position + 1] = id;
    d->live.value[row] += log_p;
    d->ended[row] = id == o->eos;
}

/* Returns how many rows go on. */
static int64_t extend_all(struct syi_decoder *d, const struct syi_decode_io *io,
                          const struct syi_decode_batch *batch)
{
    const struct syi_decode_options *o = &d->options;
    int64_t rows = (int64_t)o->batch * o->decodes, open = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t example = row / o->decodes;
        if (d->ended[row])
            d->live.sequence[row * (o->length + 1) + io->position + 1] = 0;
        else
            extend(d, io, row, batch->example ? batch->example[example] : example);
        open += !d->ended[row];
    }
    return open;
}

/* Every decode has its place, those whose score is no number the lowest. */
static float rank_of(float score)
{
    return isnan(score) ? -INFINITY : score;
}

/* Writes an example's decodes by rising score; equals keep their order. */
static void put_sorted(const struct syi_decoder *d, int64_t example, int32_t *ids, float *scores)
{
    const struct syi_decode_options *o = &d->options;
    const float *value = d->live.value + example * o->decodes;
    for (int32_t i = 0; i < o->decodes; i++) {
        int64_t place = example * o->decodes;
        for (int32_t k = 0; k < o->decodes; k++) {
            float mine = rank_of(value[i]), other = rank_of(value[k]);
            place += other < mine || (k < i && other == mine);
        }
        memcpy(ids + place * o->length, d->live.sequence + (example * o->decodes + i) * (o->length + 1) + 1,
               (size_t)o->length * sizeof *ids);
        scores[place] = value[i];
    }
}

int syi_decode_samples(struct syi_decoder *d, const struct syi_decode_step *step,
                       const struct syi_decode_batch *batch, int32_t *ids, float *scores,
                       struct sy_error *err)
{
    const struct syi_decode_options *o = &d->options;
    int64_t rows = (int64_t)o->batch * o->decodes, open = 0;
    begin(d, batch);
    for (int64_t row = 0; row < rows; row++) open += !d->ended[row];
    for (int32_t position = 0; position < o->length && (open || batch->whole); position++) {
        struct syi_decode_io io = {.position = position, .token = d->token};
        for (int64_t row = 0; row < rows; row++)
            d->token[row] = d->live.sequence[row * (o->length + 1) + position];
        int status = step->run(step->arg, &io, err);
        if (status) return status;
        open = extend_all(d, &io, batch);
    }
    memset(ids, 0, (size_t)(rows * o->length) * sizeof *ids);
    memset(scores, 0, (size_t)rows * sizeof *scores);
    for (int64_t example = 0; example < o->batch; example++) put_sorted(d, example, ids, scores);
    return SY_OK;
}
