/* SPDX-License-Identifier: Apache-2.0 */
/* Trimming, mixing rates, span corruption: what must hold for any example. The reference's own numbers are
 * in tests/golden/data. */
#include "config.h"

#include <math.h>

#include "data/mixing.h"
#include "data/preprocess.h"
#include "data/spans.h"
#include "data_support.h"

Test(data_preprocess, ends)
{
    static const int32_t three[] = {7, 8, 9};
    struct syi_ids ids = {0};
    cr_assert(syi_ids_append(&ids, three, 3, NULL) == SY_OK);
    syi_trim(&ids, SYI_NO_LENGTH);
    syi_trim(&ids, 3);
    cr_assert(ids.n == 3);
    cr_assert(syi_append_end_after_trim(&ids, 3, 5, NULL) == SY_OK);
    cr_assert(ids.n == 3 && ids.id[1] == 8 && ids.id[2] == 5);
    cr_assert(syi_append_end_after_trim(&ids, SYI_NO_LENGTH, 6, NULL) == SY_OK);
    cr_assert(ids.n == 4 && ids.id[3] == 6);
    cr_assert(syi_append_end_after_trim(&ids, 1, 6, NULL) == SY_OK && ids.n == 1 && ids.id[0] == 6);
    cr_assert(syi_pad(&ids, 4, NULL) == SY_OK && ids.n == 4 && ids.id[3] == 0);
    syi_ids_free(&ids);
}

Test(data_preprocess, mixing_rates)
{
    cr_assert_eq(syi_mixing_rate(1000, 1, 0, 1), 1000);
    cr_assert_eq(syi_mixing_rate(1000, 2, 500, 1), 500);
    cr_assert_float_eq(syi_mixing_rate(1e6, 1, 1e4, 2), 100, 1e-12 * 100);
    cr_assert_eq(syi_mixing_rate(0, 1, 0, 3), 0);
    /* A temperature draws rates together, a maximum cuts the larger one. */
    double plain = syi_mixing_rate(1e6, 1, 0, 1) / syi_mixing_rate(1e3, 1, 0, 1);
    double drawn = syi_mixing_rate(1e6, 1, 0, 3) / syi_mixing_rate(1e3, 1, 0, 3);
    cr_assert(plain > 999 && drawn > 9.99 && drawn < 10.01);
}

/* ---- spans ---- */

static const struct syi_span_shape t5 = {0.15, 3, 1, 1};

/* T5 reads 568 tokens for 512 of inputs, of which 114 of targets come. */
Test(data_preprocess, lengths_of_t5)
{
    int32_t tokens, targets;
    struct sy_error err = {0};
    struct syi_span_shape all = {1, 3, 0, 1};
    cr_assert(syi_span_lengths(&t5, 512, &tokens, &targets, NULL) == SY_OK);
    cr_assert(tokens == 568 && targets == 114);
    cr_assert(syi_span_lengths(&t5, 0, &tokens, &targets, NULL) == SY_EINVAL);
    all.noise_density = 0.999999999;
    all.mean_span_length = 1e8;
    cr_assert(syi_span_lengths(&all, 16, &tokens, &targets, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "any number of tokens fits"), "%s", err.text);
    all.mean_span_length = 0;
    cr_assert(syi_span_lengths(&all, 16, &tokens, &targets, NULL) == SY_EINVAL);
}

static void check_mask(int32_t n, double density, double mean, uint64_t key)
{
    static uint8_t mask[600], again[600];
    int32_t noise = 0, spans = 0;
    cr_assert(syi_span_mask(n, density, mean, key, mask, NULL) == SY_OK);
    cr_assert(syi_span_mask(n, density, mean, key, again, NULL) == SY_OK);
    cr_assert(memcmp(mask, again, (size_t)n) == 0);
    for (int32_t i = 0; i < n; i++) {
        cr_assert(mask[i] <= 1);
        noise += mask[i];
        spans += mask[i] && !mask[i - 1]; /* mask[0] is 0 */
    }
    int32_t want = (int32_t)rintf((float)n * (float)density);
    if (want < 1) want = 1;
    cr_assert(mask[0] == 0 && mask[n - 1] == 1 && noise == want, "%d of %d", noise, want);
    want = (int32_t)rintf((float)noise / (float)mean);
    cr_assert(spans == (want < 1 ? 1 : want), "%d spans", spans);
}

Test(data_preprocess, masks)
{
    for (int32_t n = 2; n < 600; n += n / 7 + 1)
        for (uint64_t key = 0; key < 20; key++) {
            check_mask(n, 0.15, 3, key);
            check_mask(n, 0.3, 1, key);
            check_mask(n, 0.5, 8, key);
        }
}

/* Every token but the first is noise now and then, in about as many masks as any other. */
Test(data_preprocess, masks_lie_everywhere)
{
    enum { N = 100, KEYS = 4000 };
    int32_t hits[N] = {0};
    uint8_t mask[N];
    for (uint64_t key = 0; key < KEYS; key++) {
        cr_assert(syi_span_mask(N, 0.15, 3, key, mask, NULL) == SY_OK);
        for (int32_t i = 0; i < N; i++) hits[i] += mask[i];
    }
    for (int32_t i = 20; i < 80; i++)
        cr_assert(hits[i] > 0.09 * KEYS && hits[i] < 0.19 * KEYS, "token %d: %d", i, hits[i]);
}

Test(data_preprocess, masks_refused)
{
    uint8_t mask[20];
    struct sy_error err = {0};
    cr_assert(syi_span_mask(20, 0.9, 1, 1, mask, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "no room for 18 spans"), "%s", err.text);
    cr_assert(syi_span_mask(20, NAN, 1, 1, mask, NULL) == SY_EINVAL);
    cr_assert(syi_span_mask(20, 1.5, 1, 1, mask, NULL) == SY_EINVAL);
    cr_assert(syi_span_mask(20, 0.5, 1e-30, 1, mask, NULL) == SY_EINVAL);
    cr_assert(syi_span_mask(0, 0.5, 3, 1, mask, NULL) == SY_OK);
}

/* Each sentinel of the inputs replaced by what follows it in the targets gives the text back. */
static void check_restored(const struct syi_vocabulary *v, const struct syi_ids *tokens, uint64_t key)
{
    struct syi_ids inputs = {0}, targets = {0}, back = {0};
    size_t t = 0;
    cr_assert(syi_span_corrupt(v, &t5, tokens, key, &inputs, &targets, NULL) == SY_OK);
    for (size_t i = 0; i < inputs.n; i++) {
        if (inputs.id[i] < v->n_base) {
            cr_assert(syi_ids_append(&back, &inputs.id[i], 1, NULL) == SY_OK);
            continue;
        }
        cr_assert_eq(targets.id[t], inputs.id[i]);
        for (t++; t < targets.n && targets.id[t] < v->n_base; t++)
            cr_assert(syi_ids_append(&back, &targets.id[t], 1, NULL) == SY_OK);
    }
    cr_assert(t == targets.n && back.n == tokens->n);
    cr_assert(!memcmp(back.id, tokens->id, back.n * sizeof *back.id));
    syi_ids_free(&inputs);
    syi_ids_free(&targets);
    syi_ids_free(&back);
}

Test(data_preprocess, corruption_can_be_undone)
{
    struct syi_vocabulary v;
    struct syi_ids tokens = {0}, inputs = {0}, targets = {0};
    struct sy_error err = {0};
    cr_assert(syi_vocabulary_bytes(&v, 100, NULL) == SY_OK);
    for (int32_t n = 2; n < 568; n++) {
        int32_t id = 3 + n % 256;
        if (n == 2) cr_assert(syi_ids_append(&tokens, &id, 1, NULL) == SY_OK);
        cr_assert(syi_ids_append(&tokens, &id, 1, NULL) == SY_OK);
        check_restored(&v, &tokens, (uint64_t)n);
    }
    v.n_extra = 5;
    cr_assert(syi_span_corrupt(&v, &t5, &tokens, 1, &inputs, &targets, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "needs 28 sentinels, the vocabulary has 5"), "%s", err.text);
    cr_assert(inputs.n == 0 && targets.n == 0);
    syi_ids_free(&tokens);
}

/* Both sides of a prefix are there, and all places of the cut come. */
Test(data_preprocess, prefixes)
{
    static const int32_t five[] = {3, 4, 5, 6, 7};
    int seen[6] = {0};
    for (uint64_t key = 0; key < 200; key++) {
        struct syi_ids tokens = {0}, inputs = {0}, targets = {0};
        cr_assert(syi_ids_append(&tokens, five, 5, NULL) == SY_OK);
        cr_assert(syi_prefix_split(&tokens, key, &inputs, &targets, NULL) == SY_OK);
        cr_assert(inputs.n >= 1 && targets.n >= 1 && inputs.n + targets.n == 5);
        cr_assert(!memcmp(inputs.id, five, inputs.n * 4) &&
                  !memcmp(targets.id, five + inputs.n, targets.n * 4));
        seen[inputs.n]++;
        syi_ids_free(&tokens);
        syi_ids_free(&inputs);
        syi_ids_free(&targets);
    }
    for (int i = 1; i < 5; i++) cr_assert(seen[i] > 25, "a prefix of %d came %d times", i, seen[i]);
}
