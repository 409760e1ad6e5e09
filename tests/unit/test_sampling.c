/* SPDX-License-Identifier: Apache-2.0 */
/* Temperature sampling over a small made-up model: distributions, scores, prompts, batches put together
 * differently; and the options of both ways to decode. */
#include "config.h"

#include "decoding_model.h"

static struct syi_decode_options sampling(int batch, int decodes, double temperature)
{
    return (struct syi_decode_options){.decodes = decodes,
                                       .batch = batch,
                                       .length = 6,
                                       .vocab = 10,
                                       .eos = 1,
                                       .temperature = temperature,
                                       .rescale_log_probs = 1,
                                       .seed = 5};
}

Test(sampling, temperature_zero_is_top_one)
{
    struct syi_decode_options o = sampling(6, 1, 0);
    int32_t ids[36], other[36];
    float scores[6], zero[6];
    o.rescale_log_probs = 0;
    fake = (struct fake){.eos_bias = 0.5};
    decode(&fake, &o, &plain, ids, scores);
    o.rescale_log_probs = 1;
    o.temperature = 1;
    o.top_k = 1;
    decode(&fake, &o, &plain, other, zero);
    cr_expect_arr_eq(ids, other, sizeof ids);
    for (int i = 0; i < 6; i++) cr_expect(zero[i] == 0 && scores[i] < 0);
    o.temperature = 1e-5;
    o.top_k = 0;
    decode(&fake, &o, &plain, other, zero);
    cr_expect_arr_eq(ids, other, sizeof ids);
}

/* While nothing ends one beam is the greedy path. */
Test(sampling, one_beam_is_greedy)
{
    struct syi_decode_options o = sampling(6, 1, 0);
    int32_t ids[36], other[36];
    float scores[6], beam_scores[6];
    o.rescale_log_probs = 0;
    fake = (struct fake){.eos_bias = -100};
    decode(&fake, &o, &plain, ids, scores);
    o.beam_search = 1;
    o.alpha = 0.6;
    decode(&fake, &o, &plain, other, beam_scores);
    for (int i = 0; i < 6; i++) {
        left_align(ids + i * 6, 6); /* as beam search does */
        cr_expect_float_eq(beam_scores[i], scores[i], 1e-5);
    }
    cr_expect_arr_eq(ids, other, sizeof ids);
}

/* Shares of the first token over many examples. */
static void shares(struct syi_decode_options *o, const float *logits, double share[MAX_VOCAB])
{
    enum { ROUNDS = 200 };
    static int32_t ids[MAX_ROWS];
    float scores[MAX_ROWS];
    int64_t example[MAX_ROWS];
    struct syi_decode_batch batch = {.example = example};
    memset(share, 0, MAX_VOCAB * sizeof *share);
    o->batch = MAX_ROWS;
    o->length = 1;
    fake = (struct fake){.fixed = logits};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MAX_ROWS; i++) example[i] = (int64_t)round * MAX_ROWS + i;
        decode(&fake, o, &batch, ids, scores);
        for (int i = 0; i < MAX_ROWS; i++) share[ids[i]] += 1.0 / (ROUNDS * MAX_ROWS);
    }
}

static const float five[5] = {0.5f, -1, 2, 1, 1}; /* softmax: .11 .02 .49 .18 .18, rising: 1 0 3=4 2 */

static void expect_shares(struct syi_decode_options o, const int kept[5])
{
    double share[MAX_VOCAB], total = 0, temperature = o.temperature;
    o.vocab = 5;
    shares(&o, five, share);
    for (int v = 0; v < 5; v++) total += kept[v] * exp((double)five[v] / temperature);
    for (int v = 0; v < 5; v++) {
        double want = kept[v] * exp((double)five[v] / temperature) / total;
        double sigma = sqrt(want * (1 - want) / (200.0 * MAX_ROWS));
        cr_expect(fabs(share[v] - want) <= 4.5 * sigma + 1e-9, "token %d: %g, expected %g +- %g", v, share[v],
                  want, sigma);
    }
}

Test(sampling, tokens_are_drawn_by_their_probability)
{
    struct syi_decode_options o = sampling(1, 1, 1);
    expect_shares(o, (int[5]){1, 1, 1, 1, 1});
    o.temperature = 2.5;
    expect_shares(o, (int[5]){1, 1, 1, 1, 1});
    o.temperature = 1;
    o.top_k = 1;
    expect_shares(o, (int[5]){0, 0, 1, 0, 0});
    o.top_k = 2; /* two equals share the second place */
    expect_shares(o, (int[5]){0, 0, 1, 1, 1});
    o.top_k = 50;
    expect_shares(o, (int[5]){1, 1, 1, 1, 1});
    o.top_k = 0;
    o.top_p = 0.4;
    expect_shares(o, (int[5]){0, 0, 1, 0, 0});
    o.top_p = 0.6;
    expect_shares(o, (int[5]){0, 0, 1, 1, 1});
    o.top_p = 0.9;
    expect_shares(o, (int[5]){1, 0, 1, 1, 1});
    o.top_p = 1;
    expect_shares(o, (int[5]){1, 1, 1, 1, 1});
}

static double sequence_score(int64_t example, const int32_t *ids, int from, int n, double temperature)
{
    int32_t prefix[MAX_LENGTH + 1] = {0};
    double sum = 0;
    memcpy(prefix + 1, ids, (size_t)n * sizeof *ids);
    for (int t = from + 1; t <= n; t++) {
        float logits[MAX_VOCAB];
        make_logits(&fake, example, prefix, t, logits);
        for (int v = 0; v < fake.o->vocab; v++) logits[v] = (float)(logits[v] / temperature);
        sum += (double)logits[prefix[t]] - log_sum(logits, fake.o->vocab);
        if (prefix[t] == fake.o->eos) break;
    }
    return sum;
}

Test(sampling, decodes_are_sorted_and_scored)
{
    struct syi_decode_options o = sampling(3, 7, 1.5);
    int32_t ids[3 * 7 * 6];
    float scores[21];
    for (int rescale = 0; rescale < 2; rescale++) {
        o.rescale_log_probs = rescale;
        fake = (struct fake){.eos_bias = 1};
        decode(&fake, &o, &plain, ids, scores);
        for (int row = 0; row < 21; row++) {
            double want = sequence_score(row / 7, ids + row * 6, 0, 6, rescale ? 1.5 : 1);
            cr_expect_float_eq(scores[row], want, 1e-4, "row %d: %g, expected %g", row, (double)scores[row],
                               want);
            if (row % 7) cr_expect(scores[row - 1] <= scores[row]);
        }
    }
}

Test(sampling, prompts_are_forced_and_do_not_score)
{
    struct syi_decode_options o = sampling(2, 1, 0);
    const int32_t prompt[12] = {0, 4, 7, 1, 0, 0, 0, 9, 0, 0, 0, 0}; /* the end token is taken out */
    const struct syi_decode_batch batch = {.prompt = prompt};
    int32_t ids[12];
    float scores[2];
    o.rescale_log_probs = 0;
    fake = (struct fake){.eos_bias = -1};
    decode(&fake, &o, &batch, ids, scores);
    cr_expect(ids[0] == 4 && ids[1] == 7 && ids[6] == 9);
    cr_expect_float_eq(scores[0], sequence_score(0, ids, 2, 6, 1), 1e-5);
    cr_expect_float_eq(scores[1], sequence_score(1, ids + 6, 1, 6, 1), 1e-5);
}

/* Every bit of a seed chooses other numbers. */
Test(sampling, seeds)
{
    struct syi_decode_options o = sampling(6, 3, 1);
    int32_t ids[6 * 3 * 6], other[6 * 3 * 6];
    float scores[18];
    fake = (struct fake){.eos_bias = -1};
    decode(&fake, &o, &plain, ids, scores);
    for (int bit = 0; bit < 63; bit++) {
        o.seed = 5 ^ (uint64_t)1 << bit;
        decode(&fake, &o, &plain, other, scores);
        cr_expect(memcmp(ids, other, sizeof ids), "bit %d changes nothing", bit);
    }
}

/* The same examples, alone, together and turned around. */
static void expect_batch_invariant(struct syi_decode_options o)
{
    enum { N = 6, DECODES = 3, LENGTH = 6 };
    int64_t example[N], one;
    int32_t ids[N * DECODES * LENGTH], again[DECODES * LENGTH];
    float scores[N * DECODES], again_scores[DECODES];
    for (int i = 0; i < N; i++) example[i] = ((int64_t)1 << 33) + 17 * (N - i);
    fake = (struct fake){.eos_bias = 2, .example = example};
    o.batch = N;
    decode(&fake, &o, &(struct syi_decode_batch){.example = example}, ids, scores);
    o.batch = 1;
    for (int i = 0; i < N; i++) {
        one = example[i];
        fake.example = &one;
        decode(&fake, &o, &(struct syi_decode_batch){.example = &one}, again, again_scores);
        cr_expect_arr_eq(again, ids + i * DECODES * LENGTH, sizeof again, "example %d", i);
        cr_expect_arr_eq(again_scores, scores + i * DECODES, sizeof again_scores, "example %d", i);
    }
}

Test(sampling, an_example_does_not_depend_on_its_batch)
{
    struct syi_decode_options o = sampling(1, 3, 1);
    expect_batch_invariant(o);
    o.top_p = 0.8;
    expect_batch_invariant(o);
    o.beam_search = 1;
    o.alpha = 0.6;
    expect_batch_invariant(o);
}

static void expect_refused(struct syi_decode_options o, const char *word)
{
    struct syi_decoder *decoder = NULL;
    struct sy_error err = {0};
    cr_expect_eq(syi_decoder_new(&o, &decoder, &err), SY_EINVAL);
    cr_expect(strstr(err.text, word), "%s", err.text);
}

Test(sampling, options_are_checked)
{
    struct syi_decode_options o = sampling(1, 1, 1), bad;
    bad = o, bad.top_k = 2, bad.top_p = 0.5;
    expect_refused(bad, "decode.topk=2 and decode.topp=0.5 (of the library top_k and top_p) exclude");
    bad = o, bad.temperature = -1;
    expect_refused(bad, "temperature");
    bad = o, bad.top_p = 1.5;
    expect_refused(bad, "decode.topp=1.5");
    bad = o, bad.decodes = 0;
    expect_refused(bad, "positive");
    bad = o, bad.eos = 10;
    expect_refused(bad, "end token");
    bad = o, bad.batch = 1 << 20, bad.decodes = 1 << 20;
    expect_refused(bad, "smaller");
}

Test(sampling, not_a_number_ends_nowhere)
{
    const float nan_logits[10] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    struct syi_decode_options o = sampling(2, 3, 1);
    int32_t ids[2 * 3 * 6];
    float scores[6];
    for (int beam = 0; beam < 2; beam++) {
        fake = (struct fake){.fixed = nan_logits};
        o.beam_search = beam;
        decode(&fake, &o, &plain, ids, scores);
        for (int i = 0; i < 36; i++) cr_expect(ids[i] >= 0 && ids[i] < 10);
        for (int i = 0; i < 6 && !beam; i++)
            cr_expect(isnan(scores[i]), "output %d: %g", i, (double)scores[i]);
    }
}
