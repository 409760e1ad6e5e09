/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search over a small made-up model: exhaustive search, hand-worked ties, prompts, when it stops. */
#include "config.h"

#include "decoding_model.h"

struct best {
    double score;
    int32_t id[MAX_LENGTH];
};

/* All sequences that go on from prefix[0 .. n) (BOS first). */
static void search(const struct fake *f, int64_t example, int32_t *prefix, int n, double log_p,
                   struct best *best)
{
    float logits[MAX_VOCAB];
    const struct syi_decode_options *o = f->o;
    make_logits(f, example, prefix, n, logits);
    for (int v = 0; v < o->vocab; v++) {
        double p = log_p + (double)logits[v] - log_sum(logits, o->vocab);
        double score = p / pow((5.0 + n) / 6.0, o->alpha);
        prefix[n] = v;
        if (v == o->eos && score > best->score) {
            best->score = score;
            memset(best->id, 0, sizeof best->id);
            memcpy(best->id, prefix + 1, (size_t)n * sizeof *prefix);
        } else if (v != o->eos && n < o->length) {
            search(f, example, prefix, n + 1, p, best);
        }
    }
}

static void expect_exhaustive(double alpha, float eos_bias)
{
    enum { BATCH = 4, BEAMS = 81, LENGTH = 4 };
    struct syi_decode_options o = {.beam_search = 1,
                                   .decodes = BEAMS,
                                   .batch = BATCH,
                                   .length = LENGTH,
                                   .vocab = 4,
                                   .eos = 1,
                                   .alpha = alpha};
    static int32_t ids[BATCH * BEAMS * LENGTH];
    float scores[BATCH * BEAMS];
    fake = (struct fake){.eos_bias = eos_bias};
    decode(&fake, &o, &plain, ids, scores);
    for (int i = 0; i < BATCH; i++) {
        struct best best = {.score = -INFINITY};
        int32_t prefix[MAX_LENGTH + 1] = {0};
        search(&fake, i, prefix, 1, 0, &best);
        left_align(best.id, LENGTH);
        int row = i * BEAMS + BEAMS - 1;
        cr_expect_float_eq(scores[row], best.score, 1e-5, "example %d: %g, expected %g", i,
                           (double)scores[row], best.score);
        for (int t = 0; t < LENGTH; t++) cr_expect_eq(ids[row * LENGTH + t], best.id[t], "example %d", i);
        for (int k = 1; k < BEAMS; k++) cr_expect(scores[i * BEAMS + k - 1] <= scores[i * BEAMS + k]);
    }
}

Test(decoding, beams_for_every_prefix_find_the_best)
{
    expect_exhaustive(0.6, -2);
    expect_exhaustive(0, -2);
    expect_exhaustive(2, -4);
}

/* A prompt counts as length, not as log-probability. */
Test(decoding, beams_go_on_from_prompts)
{
    enum { BEAMS = 27, LENGTH = 5 };
    struct syi_decode_options o = {
        .beam_search = 1, .decodes = BEAMS, .batch = 2, .length = LENGTH, .vocab = 4, .eos = 1, .alpha = 0.6};
    const int32_t prompt[2 * LENGTH] = {0, 3, 2, 1, 0, 0, 2, 3, 0, 0};
    const struct syi_decode_batch batch = {.prompt = prompt};
    int32_t ids[2 * BEAMS * LENGTH];
    float scores[2 * BEAMS];
    fake = (struct fake){.eos_bias = -2};
    decode(&fake, &o, &batch, ids, scores);
    for (int i = 0; i < 2; i++) {
        struct best best = {.score = -INFINITY};
        int32_t prefix[MAX_LENGTH + 1] = {0, prompt[i * LENGTH + 1], prompt[i * LENGTH + 2]};
        search(&fake, i, prefix, 3, 0, &best);
        int row = i * BEAMS + BEAMS - 1;
        cr_expect_float_eq(scores[row], best.score, 1e-5);
        cr_expect_arr_eq(ids + row * LENGTH, best.id, LENGTH * sizeof *ids);
        cr_expect_eq(ids[i * BEAMS * LENGTH], prefix[1]);
    }
}

/* Equal logits: of equals the lower place is first, then each choice is turned around. */
Test(decoding, ties_go_to_the_lower_place)
{
    struct syi_decode_options o = {
        .beam_search = 1, .decodes = 2, .batch = 1, .length = 2, .vocab = 3, .eos = 1};
    int32_t ids[4];
    float scores[2];
    fake = (struct fake){.flat = 1};
    decode(&fake, &o, &plain, ids, scores);
    const int32_t want[4] = {2, 1, 1, 0};
    for (int i = 0; i < 4; i++) cr_expect_eq(ids[i], want[i], "%d: %d", i, ids[i]);
    cr_expect_float_eq(scores[0], -2 * log(3.0), 1e-6);
    cr_expect_float_eq(scores[1], -log(3.0), 1e-6);
}

Test(decoding, live_beams_are_returned_where_none_ended)
{
    struct syi_decode_options o = {
        .beam_search = 1, .decodes = 2, .batch = 2, .length = 5, .vocab = 6, .eos = 1, .alpha = 0.6};
    int32_t ids[20];
    float scores[4];
    fake = (struct fake){.eos_bias = -100};
    decode(&fake, &o, &plain, ids, scores);
    cr_expect_eq(fake.steps, 5);
    for (int row = 0; row < 4; row++) {
        double log_p = 0;
        int32_t prefix[6] = {0};
        if (ids[row * 5] == 0) continue; /* nothing but padding */
        memcpy(prefix + 1, ids + row * 5, 5 * sizeof *ids);
        if (prefix[5] == 0) continue; /* may have lost zeros in front */
        for (int t = 1; t <= 5; t++) {
            float logits[MAX_VOCAB];
            make_logits(&fake, row / 2, prefix, t, logits);
            log_p += (double)logits[prefix[t]] - log_sum(logits, 6);
        }
        cr_expect_float_eq(scores[row], log_p, 1e-5, "row %d: no length penalty", row);
    }
    cr_expect(scores[0] <= scores[1] && scores[2] <= scores[3]);
}

Test(decoding, beams_stop_when_nothing_can_improve)
{
    struct syi_decode_options o = {
        .beam_search = 1, .decodes = 2, .batch = 3, .length = 8, .vocab = 6, .eos = 1, .alpha = 0.6};
    const uint8_t active[3] = {1, 0, 1};
    const struct syi_decode_batch batch = {.active = active};
    int32_t ids[3 * 2 * 8];
    float scores[6];
    fake = (struct fake){.eos_bias = 12};
    decode(&fake, &o, &batch, ids, scores);
    cr_expect(fake.steps < 5, "%d steps", fake.steps);
    for (int i = 0; i < 16; i++) cr_expect_eq(ids[16 + i], 0, "an inactive example gives zeros");
    cr_expect_eq(ids[8], 1);
    cr_expect(scores[1] > scores[0] && scores[2] == 0);
}

/* P(end) = 0.5, P(2) = 0.4: after one step log 0.5 could still be beaten by log 0.4 / (14/6), the score of a
 * live beam grown to the length + 1; after two steps it could not by 2 log 0.4 / (14/6). */
Test(decoding, beams_go_on_as_long_as_they_may_improve)
{
    const float logits[3] = {logf(0.1f), logf(0.5f), logf(0.4f)};
    struct syi_decode_options o = {
        .beam_search = 1, .decodes = 1, .batch = 1, .length = 8, .vocab = 3, .eos = 1, .alpha = 1};
    int32_t ids[8];
    float score;
    fake = (struct fake){.fixed = logits};
    decode(&fake, &o, &plain, ids, &score);
    cr_expect_eq(fake.steps, 2, "%d steps", fake.steps);
    cr_expect_eq(ids[0], 1);
    cr_expect_float_eq(score, logf(0.5f), 1e-6);
}

Test(decoding, more_candidates_than_ids)
{
    struct syi_decode_options o = {
        .beam_search = 1, .decodes = 5, .batch = 1, .length = 3, .vocab = 3, .eos = 1, .alpha = 0.6};
    int32_t ids[15];
    float scores[5];
    cr_expect_eq(syi_decode_width(&o), 3);
    fake = (struct fake){.eos_bias = 0};
    decode(&fake, &o, &plain, ids, scores);
    struct best best = {.score = -INFINITY};
    int32_t prefix[MAX_LENGTH + 1] = {0};
    search(&fake, 0, prefix, 1, 0, &best);
    cr_expect_float_eq(scores[4], best.score, 1e-5);
}
