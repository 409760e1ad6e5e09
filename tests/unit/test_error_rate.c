/* SPDX-License-Identifier: Apache-2.0 */
/* Word and phoneme error rate on cases worked out by hand. */
#include "config.h"

#include <math.h>

#include "text_metrics/error_rate.h"
#include "data_support.h"

static struct syi_span span(const char *text)
{
    return (struct syi_span){text, strlen(text)};
}

static int add(struct syi_error_rate *rate, const char *output, const char *first, const char *second)
{
    struct syi_span references[2] = {span(first), span(second ? second : "")};
    int right;

    cr_assert(syi_error_rate_add(rate, span(output), references, second ? 2 : 1, &right, NULL) == SY_OK);
    return right;
}

Test(error_rate, cases)
{
    static const struct {
        const char *output, *first, *second;
        int right, distance, length;
    } cases[] = {
        {"K AE T", "K AE T", NULL, 1, 0, 3},  {"K AE T", "K AH T", NULL, 0, 1, 3},
        {"K AE", "K AE T", NULL, 0, 1, 3},    {"K AE T S", "K AE T", NULL, 0, 1, 3},
        {"", "K AE T", NULL, 0, 3, 3},        {"AE T K", "K AE T", NULL, 0, 2, 3},
        {"A B C D", "X Y", "A B C", 0, 1, 3}, /* the nearest reference counts, and its length */
        {"A B", "A B C D", "A B", 1, 0, 2},   /* any reference makes it right */
        {"A  B ", "A B", NULL, 0, 0, 2},      /* same symbols, another text */
        {"", "A B C", "A B", 0, 2, 2},        /* what a cut item counts: its shortest reference */
        {"AB", "A B", NULL, 0, 2, 2},
    };
    int64_t distance = 0, length = 0;
    struct syi_error_rate rate;
    int wrong = 0;

    syi_error_rate_init(&rate);
    cr_assert(syi_error_rate_wer(&rate) == 0 && syi_error_rate_per(&rate) == 0);
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        cr_assert(add(&rate, cases[i].output, cases[i].first, cases[i].second) == cases[i].right, "case %zu",
                  i);
        distance += cases[i].distance;
        length += cases[i].length;
        wrong += !cases[i].right;
        cr_assert(rate.distance == distance && rate.length == length, "case %zu", i);
    }
    cr_assert(fabs(syi_error_rate_wer(&rate) - (double)wrong / (double)SYI_COUNT(cases)) < 1e-12);
    cr_assert(fabs(syi_error_rate_per(&rate) - (double)distance / (double)length) < 1e-12);
    syi_error_rate_free(&rate);
}

Test(error_rate, long_texts_grow_the_scratch)
{
    static char a[4001], b[3001];
    struct syi_error_rate rate;

    for (int i = 0; i < 4000; i++) a[i] = i % 2 ? ' ' : 'x';
    for (int i = 0; i < 3000; i++) b[i] = i % 2 ? ' ' : 'x';
    syi_error_rate_init(&rate);
    cr_assert(add(&rate, a, b, NULL) == 0);
    cr_assert(rate.distance == 500 && rate.length == 1500);
    syi_error_rate_free(&rate);
}
