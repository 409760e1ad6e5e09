/* SPDX-License-Identifier: Apache-2.0 */
/* ROUGE (Lin 2004) as the package rouge-score computes it without stemming: the mean over items of the F-measure, of
 * several references the best one. Words are runs of a-z and 0-9 of the text in lower case; other letters part them.
 * rougeL takes the longest common subsequence of the whole texts. */
#include "config.h"

#include "text_metrics/text_metrics.h"
#include "text_metrics/unicode.h"

static int cut(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to, struct sy_error *err)
{
    struct syi_text *plain = &texts->buffer[0];
    size_t bytes;

    plain->length = 0;
    for (size_t at = 0; at < text.bytes; at += bytes) {
        uint32_t code = syi_code_lower(syi_code_at(text, at, &bytes));
        char c = (code >= 'a' && code <= 'z') || (code >= '0' && code <= '9') ? (char)code : ' ';
        syi_text_append(plain, &c, 1);
        if (bytes > 1 && c != ' ' && code == 'i') syi_text_puts(plain, " "); /* the dot of U+0130 */
    }
    int status = syi_text_status(plain, err);
    return status ? status : syi_cut_words(texts, (struct syi_span){plain->data, plain->length}, to, err);
}

/* order 0: the longest common subsequence. */
static int add(struct syi_texts *t, const struct syi_text_item *item, size_t order, double *sum,
               struct sy_error *err)
{
    double best = 0;
    int64_t matches;
    int status = syi_texts_cut(t, item, cut, err);

    for (size_t n = 1; !status && n <= order; n++) status = syi_texts_grams(t, n, err);
    for (int32_t i = 0; !status && i < item->n; i++) {
        size_t each = order ? order : 1;
        status =
            order ? syi_texts_matches(t, i, i + 1, &matches, err) : syi_texts_common(t, i, &matches, err);
        if (status) break;
        double f = syi_f_measure(matches, syi_gram_count(t->output.n, each),
                                 syi_gram_count(syi_texts_length(t, i), each));
        if (f > best) best = f;
    }
    sum[0] += best;
    sum[1]++;
    return status;
}

int syi_rouge1_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                   double sum[SYI_TEXT_SUMS], struct sy_error *err)
{
    return add(&scratch->texts, item, 1, sum, err);
}

int syi_rouge2_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                   double sum[SYI_TEXT_SUMS], struct sy_error *err)
{
    return add(&scratch->texts, item, 2, sum, err);
}

int syi_rouge_l_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                    double sum[SYI_TEXT_SUMS], struct sy_error *err)
{
    return add(&scratch->texts, item, 0, sum, err);
}
