/* SPDX-License-Identifier: Apache-2.0 */
/* Padded lengths chosen from a sample: none of all possible lists leaves fewer padded positions. */
#include "config.h"

#include "base/philox.h"
#include "data/length_buckets.h"
#include "data_support.h"

enum { BATCHES = 24, TRIES = 200 };

/* A number below n, other for each index. */
static int draw(int index, int n)
{
    uint32_t counter[4] = {(uint32_t)index, 0, 0, 0}, key[2] = {7, 7}, out[4];
    syi_philox(counter, key, out);
    return (int)(out[0] % (uint32_t)n);
}

static struct syi_length_sample make_sample(struct syi_bucket *batch, int try)
{
    struct syi_length_sample s = {.batch = batch,
                                  .n = 1 + draw(4 * try, BATCHES),
                                  .most = {13 + draw(4 * try + 1, 20), 13 + draw(4 * try + 2, 20)},
                                  .least = draw(4 * try + 3, 8)};
    for (int i = 0; i < s.n; i++) {
        int at = 4 * TRIES + 2 * (try * BATCHES + i);
        batch[i].input_length = 1 + draw(at, s.most.input_length);
        batch[i].target_length = 1 + draw(at + 1, s.most.target_length);
    }
    return s;
}

/* The fewest positions of all lists with at most `count` lengths, each a multiple of 4 from `least` on or the longest. */
static double best_of_all(const struct syi_length_sample *s, int count)
{
    int longest = s->most.input_length > s->most.target_length ? s->most.input_length : s->most.target_length;
    int n = (longest - 1) / 4;
    double best = 1e9;
    for (unsigned set = 0; set < 1U << n; set++) {
        struct syi_ints list = {0};
        for (int i = 0; i < n; i++)
            if (set >> i & 1) list.values[list.n++] = 4 * (i + 1);
        list.values[list.n++] = longest;
        if (list.n > count || (list.n > 1 && list.values[0] < s->least)) continue;
        double positions = syi_length_buckets_positions(s, &list);
        if (positions < best) best = positions;
    }
    return best;
}

Test(data_length_buckets, none_leaves_less_padding)
{
    struct syi_bucket batch[BATCHES];

    for (int try = 0; try < TRIES; try++) {
        struct syi_length_sample s = make_sample(batch, try);
        struct syi_ints list;
        int count = 1 + try % SYI_MAX_AUTO_BUCKETS;
        cr_assert(syi_length_buckets_choose(&s, count, &list, NULL) == SY_OK);
        cr_assert(list.n >= 1 && list.n <= count);
        for (int i = 0; i < list.n; i++) {
            cr_assert(i == 0 || list.values[i] > list.values[i - 1]);
            cr_assert(list.values[i] >= s.least && (list.values[i] % 4 == 0 || i == list.n - 1));
        }
        double best = best_of_all(&s, count), have = syi_length_buckets_positions(&s, &list);
        cr_assert(have == best, "try %d: %g positions, and %g are possible", try, have, best);
    }
}

/* A length more would change nothing: 32, the most of the inputs, is one of theirs without standing in the list. */
Test(data_length_buckets, no_more_than_help)
{
    struct syi_bucket batch[] = {{8, 8}, {8, 20}, {32, 20}};
    struct syi_length_sample s = {.batch = batch, .n = 3, .most = {32, 64}};
    struct syi_ints list;

    cr_assert(syi_length_buckets_choose(&s, 8, &list, NULL) == SY_OK);
    cr_assert(list.n == 3);
    cr_assert(list.values[0] == 8 && list.values[1] == 20 && list.values[2] == 64);
    cr_assert(syi_length_buckets_positions(&s, &list) == (16 + 28 + 52) / 3.0);
}
