/* SPDX-License-Identifier: Apache-2.0 */
/* Noise masks and what becomes of tokens under them. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "data/shuffle.h"
#include "data/spans.h"

enum { MOST_TOKENS = 1 << 30, MOST_EXTRA = 1024, NOISE_STREAM = 1, TEXT_STREAM, PREFIX_STREAM };

/* ---- lengths ---- */

/* Rounded half to even, as Python does. */
static void lengths_of(const struct syi_span_shape *shape, int64_t tokens, int64_t *inputs, int64_t *targets)
{
    int64_t noise = (int64_t)rint((double)tokens * shape->noise_density);
    int64_t spans = (int64_t)rint((double)noise / shape->mean_span_length);
    *inputs = tokens - noise + spans * shape->extra_inputs + 1;
    *targets = noise + spans * shape->extra_targets + 1;
}

static int check_shape(const struct syi_span_shape *shape, struct sy_error *err)
{
    if (!(shape->noise_density >= 0 && shape->noise_density <= 1) || !(shape->mean_span_length >= 0.001))
        return syi_error(err, SY_EINVAL,
                         "noise density %g, mean length of a span %g: 0..1 and 0.001 or more are possible",
                         shape->noise_density, shape->mean_span_length);
    if (shape->extra_inputs < 0 || shape->extra_inputs > MOST_EXTRA || shape->extra_targets < 0 ||
        shape->extra_targets > MOST_EXTRA)
        return syi_error(err, SY_EINVAL, "%d and %d extra tokens of a span: 0..%d are possible",
                         shape->extra_inputs, shape->extra_targets, MOST_EXTRA);
    return SY_OK;
}

int syi_span_lengths(const struct syi_span_shape *shape, int32_t inputs_length, int32_t *tokens,
                     int32_t *targets_length, struct sy_error *err)
{
    int64_t n = (int64_t)inputs_length - 1, inputs, targets;
    int status = check_shape(shape, err);
    if (status) return status;
    if (inputs_length < 1)
        return syi_error(err, SY_EINVAL, "span corruption: inputs of %d tokens; at least 1", inputs_length);
    for (;; n++) {
        lengths_of(shape, n + 1, &inputs, &targets);
        if (inputs > inputs_length) break;
        if (n >= MOST_TOKENS)
            return syi_error(
                err, SY_EINVAL,
                "span corruption: with a noise density of %g any number of tokens fits %d: lower it",
                shape->noise_density, inputs_length);
    }
    lengths_of(shape, n, &inputs, &targets);
    /* T5 makes both sides equally long here, which most often is a rounder number. */
    if (shape->noise_density == 0.5 && targets > inputs) {
        n--;
        targets--;
    }
    *tokens = (int32_t)n;
    *targets_length = (int32_t)targets;
    return SY_OK;
}

/* ---- masks ---- */

/* Which of n items, the first always, begin one of k segments: k - 1 of the others, drawn without replacement. first:
 * (n), zeroed. */
static void draw_segments(int32_t n, int32_t k, uint64_t key, uint8_t *first)
{
    first[0] = 1;
    for (int32_t i = 0; i < k - 1; i++) first[1 + syi_shuffle_index(key, (uint64_t)n - 1, (uint64_t)i)] = 1;
}

/* Lays a span of text and one of noise in turn, each as long as its segment. first_*: where segments begin. */
static void lay_spans(const uint8_t *first_text, int32_t n_text, const uint8_t *first_noise, int32_t n_noise,
                      int32_t n, uint8_t *mask)
{
    int32_t text = 0, noise = 0, at = 0;
    while (text < n_text || noise < n_noise) {
        do {
            if (at < n) mask[at] = 0;
            at++, text++;
        } while (text < n_text && !first_text[text]);
        do {
            if (at < n) mask[at] = 1;
            at++, noise++;
        } while (noise < n_noise && !first_noise[noise]);
    }
}

/* In float, as TensorFlow computes them; at most `most`. */
static int32_t round_float(float value, int32_t most)
{
    return value < (float)most ? (int32_t)rintf(value) : most;
}

/* Tokens of noise and spans of them in n tokens, n at least 2. */
static void count_noise(int32_t n, double noise_density, double mean_span_length, int32_t *noise,
                        int32_t *spans)
{
    *noise = round_float((float)n * (float)noise_density, n);
    *noise = *noise < 1 ? 1 : *noise > n - 1 ? n - 1 : *noise;
    *spans = round_float((float)*noise / (float)mean_span_length, n);
    if (*spans < 1) *spans = 1;
}

void syi_span_sides(const struct syi_span_shape *shape, int32_t n, int32_t *input, int32_t *target)
{
    int32_t noise = 0, spans = 0;
    if (shape->noise_density != 0)
        count_noise(n, shape->noise_density, shape->mean_span_length, &noise, &spans);
    *input = n - noise + spans * shape->extra_inputs + 1;
    *target = noise + spans * shape->extra_targets + 1;
}

/* As count_noise, if each span has a token of noise and one of text before it. */
static int find_spans(const struct syi_span_shape *shape, int32_t n, int32_t *noise, int32_t *spans,
                      struct sy_error *err)
{
    int32_t length = n < 2 ? 2 : n;
    count_noise(length, shape->noise_density, shape->mean_span_length, noise, spans);
    if (*spans <= *noise && *spans <= length - *noise) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "span corruption: %d tokens at a noise density of %g have no room for %d spans of %g "
                     "tokens: lower the density, or make spans longer",
                     n, shape->noise_density, *spans, shape->mean_span_length);
}

int syi_span_mask(int32_t n, double noise_density, double mean_span_length, uint64_t key, uint8_t *mask,
                  struct sy_error *err)
{
    struct syi_span_shape shape = {noise_density, mean_span_length, 1, 1};
    int status = check_shape(&shape, err);
    if (status || n <= 0) return status;
    memset(mask, 0, (size_t)n);
    if (noise_density == 0) return SY_OK;
    int32_t length = n < 2 ? 2 : n, noise, spans;
    status = find_spans(&shape, n, &noise, &spans, err);
    if (status) return status;
    int32_t text = length - noise;
    uint8_t *first = syi_alloc((size_t)length, err);
    if (!first) return SY_ENOMEM;
    draw_segments(text, spans, syi_shuffle_key(key, TEXT_STREAM), first);
    draw_segments(noise, spans, syi_shuffle_key(key, NOISE_STREAM), first + text);
    lay_spans(first, text, first + text, noise, n, mask);
    syi_free(first);
    return SY_OK;
}

int32_t syi_prefix_length(int32_t n, uint64_t key)
{
    int32_t most = n - 1, least = most < 1 ? most : 1;
    if (most <= least) return least;
    return least + (int32_t)(syi_shuffle_key(key, PREFIX_STREAM) % (uint64_t)(most - least + 1));
}

void syi_prefix_mask(int32_t n, uint64_t key, uint8_t *mask)
{
    if (n <= 0) return;
    int32_t prefix = syi_prefix_length(n, key);
    memset(mask, 1, (size_t)prefix);
    memset(mask + prefix, 0, (size_t)(n - prefix));
}

/* ---- what becomes of tokens ---- */

/* Runs of marked tokens become sentinels: one for each run or for each token, the same one or always one less. */
static int32_t replace(const int32_t *ids, const uint8_t *mask, int marked, int each, int unique, int32_t n,
                       int32_t sentinel, int32_t *out)
{
    int32_t kept = 0;
    for (int32_t i = 0, before = 0; i < n; i++) {
        int now = !!mask[i] == marked;
        if (!now)
            out[kept++] = ids[i];
        else if (!before || each)
            out[kept++] = sentinel, sentinel -= unique;
        before = now;
    }
    return kept;
}

static int32_t drop(const int32_t *ids, const uint8_t *mask, int marked, int32_t n, int32_t *out)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (!!mask[i] != marked) out[kept++] = ids[i];
    return kept;
}

int32_t syi_noise_apply(enum syi_noise what, const int32_t *ids, const uint8_t *mask, int32_t n,
                        int32_t sentinel, int32_t *out)
{
    switch (what) {
    case SYI_DROP_NOISE: return drop(ids, mask, 1, n, out);
    case SYI_DROP_TEXT: return drop(ids, mask, 0, n, out);
    case SYI_NOISE_TO_SENTINEL: return replace(ids, mask, 1, 1, 0, n, sentinel, out);
    case SYI_NOISE_SPAN_TO_SENTINEL: return replace(ids, mask, 1, 0, 0, n, sentinel, out);
    case SYI_NOISE_SPAN_TO_UNIQUE_SENTINEL: return replace(ids, mask, 1, 0, 1, n, sentinel, out);
    default: return replace(ids, mask, 0, 0, 1, n, sentinel, out);
    }
}

/* ---- both together ---- */

int syi_span_check(const struct syi_vocabulary *vocabulary, const struct syi_span_shape *shape, int32_t n,
                   struct sy_error *err)
{
    int32_t noise, spans;
    int status = find_spans(shape, n, &noise, &spans, err);
    if (status || spans <= vocabulary->n_extra) return status;
    return syi_error(err, SY_EINVAL,
                     "span corruption: an example of %d tokens needs %d sentinels, the vocabulary has "
                     "%d: raise its extra_ids, or lower data.max_input_length",
                     n, spans, vocabulary->n_extra);
}

static int append_applied(enum syi_noise what, const struct syi_ids *tokens, const uint8_t *mask,
                          int32_t sentinel, struct syi_ids *to, struct sy_error *err)
{
    int status = SYI_GROW(to->id, to->capacity, to->n + tokens->n, err);
    if (!status)
        to->n +=
            (size_t)syi_noise_apply(what, tokens->id, mask, (int32_t)tokens->n, sentinel, to->id + to->n);
    return status;
}

static int new_mask(const struct syi_ids *tokens, uint8_t **mask, struct sy_error *err)
{
    *mask = NULL;
    if (tokens->n > MOST_TOKENS)
        return syi_error(err, SY_EINVAL, "an example of %zu tokens; at most %d", tokens->n, MOST_TOKENS);
    *mask = syi_alloc(tokens->n + 1, err);
    return *mask ? SY_OK : SY_ENOMEM;
}

int syi_span_corrupt(const struct syi_vocabulary *vocabulary, const struct syi_span_shape *shape,
                     const struct syi_ids *tokens, uint64_t key, struct syi_ids *inputs,
                     struct syi_ids *targets, struct sy_error *err)
{
    uint8_t *mask;
    int32_t n = (int32_t)tokens->n, first = syi_vocabulary_sentinel(vocabulary, 0);
    int status = new_mask(tokens, &mask, err);
    if (!status) status = syi_span_mask(n, shape->noise_density, shape->mean_span_length, key, mask, err);
    if (!status) status = syi_span_check(vocabulary, shape, n, err);
    if (!status) status = append_applied(SYI_NOISE_SPAN_TO_UNIQUE_SENTINEL, tokens, mask, first, inputs, err);
    if (!status) status = append_applied(SYI_TEXT_SPAN_TO_UNIQUE_SENTINEL, tokens, mask, first, targets, err);
    syi_free(mask);
    return status;
}

int syi_prefix_split(const struct syi_ids *tokens, uint64_t key, struct syi_ids *inputs,
                     struct syi_ids *targets, struct sy_error *err)
{
    uint8_t *mask;
    int status = new_mask(tokens, &mask, err);
    if (status) return status;
    syi_prefix_mask((int32_t)tokens->n, key, mask);
    status = append_applied(SYI_DROP_TEXT, tokens, mask, 0, inputs, err);
    if (!status) status = append_applied(SYI_DROP_NOISE, tokens, mask, 0, targets, err);
    syi_free(mask);
    return status;
}
