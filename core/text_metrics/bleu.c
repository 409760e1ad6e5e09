/* SPDX-License-Identifier: Apache-2.0 */
/* BLEU of a corpus (Papineni et al. 2002) as sacrebleu 2 computes it with its defaults: tokens by mteval-v13a, up to 4
 * words, exponential smoothing, the reference of the nearest length (Post 2018, arXiv 1804.08771). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "text_metrics/text_metrics.h"
#include "text_metrics/unicode.h"

enum { ORDERS = 4, MATCHES = 0, TOTAL = ORDERS, OUTPUT = 2 * ORDERS, REFERENCE };

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_stop(char c)
{
    return c == '.' || c == ',';
}

/* Signs of ASCII that are words of their own wherever they stand; blanks stay blanks. */
static int is_sign(char c)
{
    return (c >= ' ' && c <= '~' && !strchr("',-.", c) && !is_digit(c) &&
            !((c | 32) >= 'a' && (c | 32) <= 'z'));
}

/* ---- mteval-v13a: each pass rewrites the whole text, as matches of one pattern do not overlap ---- */

static void replace(struct syi_text *to, const struct syi_text *from, const char *what, const char *with)
{
    size_t n = strlen(what);
    for (size_t i = 0; i < from->length;) {
        int hit = i + n <= from->length && !memcmp(from->data + i, what, n);
        if (hit)
            syi_text_puts(to, with);
        else
            syi_text_append(to, from->data + i, 1);
        i += hit ? n : 1;
    }
}

static void part_signs(struct syi_text *to, const struct syi_text *from)
{
    for (size_t i = 0; i < from->length; i++) {
        int sign = is_sign(from->data[i]);
        if (sign) syi_text_puts(to, " ");
        syi_text_append(to, from->data + i, 1);
        if (sign) syi_text_puts(to, " ");
    }
}

enum pair { STOP_AFTER_OTHER, STOP_BEFORE_OTHER, DASH_AFTER_DIGIT };

static int is_pair(enum pair pair, char a, char b)
{
    if (pair == STOP_AFTER_OTHER) return !is_digit(a) && is_stop(b);
    return pair == STOP_BEFORE_OTHER ? is_stop(a) && !is_digit(b) : is_digit(a) && b == '-';
}

/* "a." to "a . ", ".a" to " . a", "1-" to "1 - ". What a pair has taken begins no other one. A code point of several
 * bytes is no digit and no stop, so bytes do as well. */
static void part_pairs(struct syi_text *to, const struct syi_text *from, enum pair pair)
{
    for (size_t i = 0; i < from->length; i++) {
        const char *at = from->data + i;
        int hit = i + 1 < from->length && is_pair(pair, at[0], at[1]);
        if (hit && pair == STOP_BEFORE_OTHER) syi_text_puts(to, " ");
        syi_text_append(to, at, 1);
        if (!hit) continue;
        syi_text_puts(to, " ");
        syi_text_append(to, at + 1, 1);
        if (pair != STOP_BEFORE_OTHER) syi_text_puts(to, " ");
        i++;
    }
}

/* Bytes up to the white space at the end, which SacreBLEU takes off: a hyphen before it joins nothing. */
static size_t without_end(struct syi_span text)
{
    size_t end = 0, bytes;
    for (size_t at = 0; at < text.bytes; at += bytes)
        if (!syi_code_is_space(syi_code_at(text, at, &bytes))) end = at + bytes;
    return end;
}

static int cut_13a(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to,
                   struct sy_error *err)
{
    static const char *const entity[][2] = {{"<skipped>", ""}, {"-\n", ""},   {"&quot;", "\""},
                                            {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    struct syi_text *now = &texts->buffer[0], *then = &texts->buffer[1], *swap;
    size_t passes = SYI_COUNT(entity) + 4;

    now->length = 0;
    syi_text_append(now, text.text, without_end(text));
    for (size_t pass = 0; pass < passes; pass++, swap = now, now = then, then = swap) {
        size_t step = pass < SYI_COUNT(entity) ? 0 : pass - SYI_COUNT(entity);
        then->length = 0;
        if (pass < SYI_COUNT(entity))
            replace(then, now, entity[pass][0], entity[pass][1]);
        else if (step == 0) {
            syi_text_puts(now, " ");
            syi_text_puts(then, " ");
            part_signs(then, now);
        } else
            part_pairs(then, now, (enum pair)(step - 1));
    }
    int status = syi_text_status(&texts->buffer[0], err);
    if (!status) status = syi_text_status(&texts->buffer[1], err);
    return status ? status : syi_cut_words(texts, (struct syi_span){now->data, now->length}, to, err);
}

/* ---- counting ---- */

/* Length of the reference whose length is nearest, of two the shorter one. */
static size_t nearest_length(const struct syi_texts *t)
{
    size_t best = syi_texts_length(t, 0), n = t->output.n;
    for (int32_t i = 1; i < t->n_references; i++) {
        size_t here = syi_texts_length(t, i);
        size_t far = here > n ? here - n : n - here, least = best > n ? best - n : n - best;
        if (far < least || (far == least && here < best)) best = here;
    }
    return best;
}

int syi_bleu_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                 double sum[SYI_TEXT_SUMS], struct sy_error *err)
{
    struct syi_texts *t = &scratch->texts;
    int64_t matches;
    int status = syi_texts_cut(t, item, cut_13a, err);

    for (size_t order = 1; !status && order <= ORDERS; order++) {
        status = syi_texts_grams(t, order, err);
        if (!status) status = syi_texts_matches(t, 0, t->n_references, &matches, err);
        if (status) break;
        sum[MATCHES + order - 1] += (double)matches;
        sum[TOTAL + order - 1] += (double)syi_gram_count(t->output.n, order);
    }
    if (status) return status;
    sum[OUTPUT] += (double)t->output.n;
    sum[REFERENCE] += (double)nearest_length(t);
    return SY_OK;
}

/* Where an order has n-grams but no match, half, then a quarter, ... of one is taken for it. */
double syi_bleu_value(const double sum[SYI_TEXT_SUMS])
{
    double logs = 0, part = 1;

    if (sum[MATCHES] == 0) return 0; /* no word matches, so nothing does */
    for (int i = 0; i < ORDERS; i++) {
        if (sum[TOTAL + i] == 0) return 0;
        if (sum[MATCHES + i] == 0) part *= 2;
        logs += log(sum[MATCHES + i] > 0 ? 100 * sum[MATCHES + i] / sum[TOTAL + i]
                                         : 100 / (part * sum[TOTAL + i]));
    }
    double penalty = sum[OUTPUT] < sum[REFERENCE] ? exp(1 - sum[REFERENCE] / sum[OUTPUT]) : 1;
    return penalty * exp(logs / ORDERS);
}
