/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of beam search, each with each: penalty of lengths, what is an output, when outputs are final; against a
 * plain search of one example that keeps lists of sequences. */
#include "config.h"

#include <stdlib.h>

#include "base/run_config.h"
#include "decoding_model.h"
#include "train/decode/decode_internal.h"

enum { BEAMS = 3, VOCAB = 7, LENGTH = 8, EXAMPLES = 24, EOS = 1, START = 4 };

struct sequence {
    int32_t id[LENGTH + 1]; /* the start token first */
    int n;                  /* tokens after it */
    double log_p, score;
};

static double penalty(const struct syi_decode_options *o, int n)
{
    return pow(o->length_penalty == SYI_LENGTH_PENALTY_POWER ? n : (5.0 + n) / 6.0, o->alpha);
}

static int by_score(const void *a, const void *b)
{
    double x = ((const struct sequence *)a)->score, y = ((const struct sequence *)b)->score;
    return (x < y) - (x > y);
}

/* Every continuation of the live sequences, the most probable first; returns how many. */
static int extend(const struct fake *f, int64_t example, const struct sequence *live, int n,
                  struct sequence *candidate)
{
    int all = 0;
    for (int i = 0; i < n; i++) {
        float logits[MAX_VOCAB];
        make_logits(f, example, live[i].id, live[i].n + 1, logits);
        for (int v = 0; v < VOCAB; v++, all++) {
            candidate[all] = live[i];
            candidate[all].id[++candidate[all].n] = v;
            candidate[all].log_p += (double)logits[v] - log_sum(logits, VOCAB);
            candidate[all].score = candidate[all].log_p;
        }
    }
    qsort(candidate, (size_t)all, sizeof *candidate, by_score);
    return all < 2 * BEAMS ? all : 2 * BEAMS;
}

static int is_output(const struct syi_decode_options *o, const struct sequence *s, int rank)
{
    int ended = s->id[s->n] == EOS;
    if (o->finished_beams == SYI_FINISHED_BEAMS_T5X) return ended;
    return rank < BEAMS && (ended || s->n == LENGTH);
}

static int is_final(const struct syi_decode_options *o, const struct sequence *output, int n,
                    const struct sequence *best_live)
{
    int longest = o->early_stopping == SYI_EARLY_STOPPING_NEVER;
    if (n < BEAMS) return 0;
    if (o->early_stopping == SYI_EARLY_STOPPING_TRUE) return 1;
    return output[BEAMS - 1].score >= best_live->log_p / penalty(o, longest ? LENGTH + 1 : best_live->n);
}

/* Outputs of an example, the best first; returns how many. */
static int search(const struct fake *f, int64_t example, struct sequence output[3 * BEAMS])
{
    const struct syi_decode_options *o = f->o;
    struct sequence live[BEAMS] = {{.id = {START}}}, candidate[BEAMS * VOCAB];
    int n_live = 1, n = 0;
    for (int step = 0; step < LENGTH && !is_final(o, output, n, &live[0]); step++) {
        int n_candidates = extend(f, example, live, n_live, candidate);
        n_live = 0;
        for (int k = 0; k < n_candidates; k++) {
            if (candidate[k].id[candidate[k].n] != EOS && n_live < BEAMS) live[n_live++] = candidate[k];
            if (!is_output(o, &candidate[k], k)) continue;
            output[n] = candidate[k];
            output[n++].score = candidate[k].log_p / penalty(o, candidate[k].n);
        }
        qsort(output, (size_t)n, sizeof *output, by_score);
        n = n < BEAMS ? n : BEAMS;
    }
    if (n) return n;
    memcpy(output, live, sizeof live);
    return n_live;
}

static void expect_outputs(const struct fake *f, int64_t example, const int32_t *ids, const float *scores)
{
    struct sequence output[3 * BEAMS];
    int n = search(f, example, output);
    for (int i = 0; i < BEAMS; i++) {
        const int32_t *got = ids + (BEAMS - 1 - i) * LENGTH;
        if (i >= n) {
            cr_assert_lt(scores[BEAMS - 1 - i], -1e6f, "example %d, output %d", (int)example, i);
            continue;
        }
        int32_t want[LENGTH] = {0};
        memcpy(want, output[i].id + 1, (size_t)output[i].n * sizeof *want);
        left_align(want, LENGTH);
        cr_assert_arr_eq(got, want, sizeof want, "example %d, output %d", (int)example, i);
        cr_assert_float_eq(scores[BEAMS - 1 - i], output[i].score, 1e-5, "example %d, output %d",
                           (int)example, i);
    }
}

/* Also where the model runs at all positions, which changes nothing. Returns a hash of the outputs. */
static uint64_t check(int length_penalty, int finished_beams, int early_stopping, double alpha,
                      float eos_bias)
{
    static int32_t ids[EXAMPLES * BEAMS * LENGTH];
    static float scores[EXAMPLES * BEAMS];
    uint64_t hash = 0;
    struct syi_decode_options o = {.beam_search = 1,
                                   .decodes = BEAMS,
                                   .batch = EXAMPLES,
                                   .length = LENGTH,
                                   .vocab = VOCAB,
                                   .start = START,
                                   .eos = EOS,
                                   .length_penalty = length_penalty,
                                   .alpha = alpha,
                                   .finished_beams = finished_beams,
                                   .early_stopping = early_stopping};
    for (int whole = 0; whole < 2; whole++) {
        const struct syi_decode_batch batch = {.whole = whole};
        fake = (struct fake){.eos_bias = eos_bias};
        decode(&fake, &o, &batch, ids, scores);
        for (int i = 0; i < EXAMPLES; i++)
            expect_outputs(&fake, i, ids + i * BEAMS * LENGTH, scores + i * BEAMS);
    }
    for (size_t i = 0; i < SYI_COUNT(ids); i++) hash = hash * 0x100000001b3u + (uint64_t)ids[i];
    return hash;
}

/* All rules together find what a plain search finds, and each makes a difference. */
Test(beam_rules, every_combination_finds_what_a_plain_search_finds)
{
    uint64_t seen[12];
    int n = 0;
    for (int penalty = 0; penalty < 2; penalty++)
        for (int finished = 0; finished < 2; finished++)
            for (int stopping = 0; stopping < 3; stopping++) {
                seen[n] = check(penalty, finished, stopping, 0.6, -1);
                seen[n] = seen[n] * 31 + check(penalty, finished, stopping, 2, 1);
                seen[n] = seen[n] * 31 + check(penalty, finished, stopping, 2, 0);
                check(penalty, finished, stopping, 0, 0);
                n++;
                for (int i = 0; i < n - 1; i++)
                    cr_assert_neq(seen[i], seen[n - 1], "combinations %d and %d give the same", i, n - 1);
            }
}

/* Of 3 ids there are 7 outputs of up to 3 tokens that end, and 8 more that are as long as they may be: what more is asked for
 * does not exist, however its length is counted. */
Test(beam_rules, no_more_outputs_than_there_are)
{
    enum { MANY = 16, IDS = 3, TOKENS = 3 };
    for (int finished = 0; finished < 2; finished++) {
        struct syi_decode_options o = {.beam_search = 1,
                                       .decodes = MANY,
                                       .batch = 1,
                                       .length = TOKENS,
                                       .vocab = IDS,
                                       .start = 2,
                                       .eos = EOS,
                                       .length_penalty = SYI_LENGTH_PENALTY_POWER,
                                       .alpha = 2,
                                       .finished_beams = finished};
        int32_t ids[MANY * TOKENS];
        float scores[MANY];
        int n = 0, want = finished == SYI_FINISHED_BEAMS_T5X ? 7 : 15;
        fake = (struct fake){.eos_bias = 0};
        decode(&fake, &o, &plain, ids, scores);
        for (int i = 0; i < MANY; i++) n += scores[i] >= SYI_DECODE_NONE / 2;
        cr_expect_eq(n, want, "%d outputs instead of %d", n, want);
    }
}
