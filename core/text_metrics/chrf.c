/* SPDX-License-Identifier: Apache-2.0 */
/* chrF2 of a corpus (Popovic 2015) as sacrebleu 2 computes it with its defaults: n-grams of 1 to 6 code points across
 * words without white space, recall counts twice (beta = 2), no word n-grams. Counts are summed over the corpus; of
 * several references the one with the best score of the item counts. */
#include "config.h"

#include <string.h>

#include "text_metrics/text_metrics.h"

enum { ORDERS = 6, OUTPUT = 0, REFERENCE, MATCHES, EACH };
_Static_assert(ORDERS *EACH <= SYI_TEXT_SUMS, "sums");

/* Means of precision and recall over the orders that both sides have n-grams of. */
double syi_chrf_value(const double sum[SYI_TEXT_SUMS])
{
    double precision = 0, recall = 0, beta2 = 4;
    int orders = 0;

    for (const double *s = sum; s < sum + ORDERS * EACH; s += EACH) {
        if (s[OUTPUT] == 0 || s[REFERENCE] == 0) continue;
        precision += s[MATCHES] / s[OUTPUT];
        recall += s[MATCHES] / s[REFERENCE];
        orders++;
    }
    if (precision + recall == 0) return 0;
    precision /= orders;
    recall /= orders;
    return 100 * (1 + beta2) * precision * recall / (beta2 * precision + recall);
}

/* count[reference]: what it would add. */
static int count(struct syi_texts *t, int32_t reference, double counts[SYI_TEXT_SUMS], struct sy_error *err)
{
    int64_t matches;
    int status = SY_OK;

    memset(counts, 0, SYI_TEXT_SUMS * sizeof *counts);
    for (size_t order = 1; !status && order <= ORDERS; order++) {
        double *s = counts + (order - 1) * EACH;
        status = syi_texts_grams(t, order, err);
        if (!status) status = syi_texts_matches(t, reference, reference + 1, &matches, err);
        if (status) break;
        s[REFERENCE] = (double)syi_gram_count(syi_texts_length(t, reference), order);
        s[OUTPUT] = s[REFERENCE] > 0 ? (double)syi_gram_count(t->output.n, order) : 0;
        s[MATCHES] = (double)matches;
    }
    return status;
}

int syi_chrf_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                 double sum[SYI_TEXT_SUMS], struct sy_error *err)
{
    double counts[SYI_TEXT_SUMS], best[SYI_TEXT_SUMS] = {0}, most = -1;
    int status = syi_texts_cut(&scratch->texts, item, syi_cut_codes, err);

    for (int32_t i = 0; !status && i < item->n; i++) {
        status = count(&scratch->texts, i, counts, err);
        if (status || syi_chrf_value(counts) <= most) continue;
        most = syi_chrf_value(counts);
        memcpy(best, counts, sizeof best);
    }
    for (int i = 0; !status && i < SYI_TEXT_SUMS; i++) sum[i] += best[i];
    return status;
}
