/* SPDX-License-Identifier: Apache-2.0 */
/* F1 of answers (SQuAD 1.1, Rajpurkar et al. 2016, arXiv 1606.05250, its evaluate-v1.1.py): words that answer and
 * reference share, each as often as both have it; the mean over items of the best reference. Texts are normalised: lower
 * case, without ASCII punctuation, without the words a, an, the. */
#include "config.h"

#include <string.h>

#include "text_metrics/text_metrics.h"
#include "text_metrics/unicode.h"

enum { SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2, DOT = 0x307, DOTTED_I = 0x130 };

static int is_punctuation(uint32_t code)
{
    return code > ' ' && code < 0x7f && !syi_code_is_word(code);
}

static int cased_at(struct syi_span text, size_t at)
{
    size_t bytes;
    return at < text.bytes && syi_code_is_cased(syi_code_at(text, at, &bytes));
}

static void put_code(struct syi_text *to, uint32_t code)
{
    char utf8[4], byte = (char)(code - SYI_CODE_BYTE);
    if (code >= SYI_CODE_BYTE)
        syi_text_append(to, &byte, 1);
    else
        syi_text_append(to, utf8, (size_t)syi_utf8_encode(code, utf8));
}

/* Lower case without punctuation. A capital sigma that ends a word has a small letter of its own. */
static void lower(struct syi_text *to, struct syi_span text)
{
    int after_cased = 0;
    size_t bytes;

    for (size_t at = 0; at < text.bytes; at += bytes) {
        uint32_t code = syi_code_at(text, at, &bytes);
        if (code == SIGMA && after_cased && !cased_at(text, at + bytes))
            put_code(to, FINAL_SIGMA);
        else if (!is_punctuation(code))
            put_code(to, syi_code_lower(code));
        if (code == DOTTED_I) put_code(to, DOT);
        after_cased = syi_code_is_cased(code);
    }
}

static int is_article(struct syi_span word)
{
    static const char *const articles[] = {"a", "an", "the"};
    for (size_t i = 0; i < SYI_COUNT(articles); i++)
        if (word.bytes == strlen(articles[i]) && !memcmp(word.text, articles[i], word.bytes)) return 1;
    return 0;
}

/* A blank in place of each article: a run of letters and digits that is nothing else. */
static void blank_articles(struct syi_text *text)
{
    struct syi_span all = {text->data, text->length};
    size_t bytes;

    for (size_t at = 0, begin = 0; at <= all.bytes; at += bytes) {
        bytes = 1;
        if (at < all.bytes && syi_code_is_word(syi_code_at(all, at, &bytes))) continue;
        if (is_article((struct syi_span){all.text + begin, at - begin}))
            memset(text->data + begin, ' ', at - begin);
        begin = at + bytes;
    }
}

static int cut(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to, struct sy_error *err)
{
    struct syi_text *plain = &texts->buffer[0];

    plain->length = 0;
    lower(plain, text);
    int status = syi_text_status(plain, err);
    if (status) return status;
    if (plain->length) blank_articles(plain);
    return syi_cut_words(texts, (struct syi_span){plain->data, plain->length}, to, err);
}

int syi_answer_f1_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                      double sum[SYI_TEXT_SUMS], struct sy_error *err)
{
    struct syi_texts *t = &scratch->texts;
    double best = 0;
    int64_t matches;
    int status = syi_texts_cut(t, item, cut, err);

    if (!status) status = syi_texts_grams(t, 1, err);
    for (int32_t i = 0; !status && i < item->n; i++) {
        status = syi_texts_matches(t, i, i + 1, &matches, err);
        double f = status ? 0 : syi_f_measure(matches, t->output.n, syi_texts_length(t, i));
        if (f > best) best = f;
    }
    sum[0] += best;
    sum[1]++;
    return status;
}
