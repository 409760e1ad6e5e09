/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of texts against the numbers of sacrebleu, rouge-score, jiwer and SQuAD's script for the pairs of
 * tests/vectors/text_metrics.json, each alone and all as a corpus; and what every one of them must do. */
#include "config.h"

#include <math.h>

#include "base/json.h"
#include "data_support.h"
#include "text_metrics/text_metrics.h"
#include "text_metrics/unicode.h"

#define METRIC_TEXT(constant, text) text,
static const char *const names[] = {SYI_TASK_METRIC_MAP(METRIC_TEXT)};

enum { MOST = 8 };

static struct syi_json vector(void)
{
    struct syi_json json;
    char path[4200], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/tests/vectors/text_metrics.json", getenv("abs_top_srcdir"));
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK, "%s", path);
    cr_assert_eq(syi_json_parse(&json, path, text, bytes, NULL), SY_OK);
    syi_free(text);
    return json;
}

static struct syi_text_scores all_scores(void)
{
    struct syi_text_scores scores;
    struct syi_strings list = {0};
    size_t used = 0;
    for (size_t i = 0; i < SYI_COUNT(names); i++, list.n++)
        used += (size_t)snprintf(list.text + used, sizeof list.text - used, "%s", names[i]) + 1;
    syi_text_scores_open(&scores, &list);
    cr_assert_eq(scores.n, SYI_COUNT(names));
    return scores;
}

static struct syi_span span(const char *text)
{
    return (struct syi_span){text, strlen(text)};
}

static struct syi_text_item item_of(const struct syi_json *json, uint32_t pair,
                                    struct syi_span reference[MOST])
{
    struct syi_text_item item = {span(syi_json_string(json, syi_json_member(json, pair, "output"))),
                                 reference, 0};
    uint32_t list = syi_json_member(json, pair, "references");
    for (uint32_t r = json->nodes[list].first; r; r = json->nodes[r].next)
        reference[item.n++] = span(syi_json_string(json, r));
    return item;
}

/* Returns how many numbers there were. */
static int compare(const struct syi_json *json, uint32_t expected, const struct syi_text_scores *scores,
                   const char *what)
{
    int n = 0;
    for (int i = 0; i < scores->n; i++) {
        const struct syi_json_node *node = &json->nodes[syi_json_member(json, expected, names[i])];
        double value = syi_text_scores_value(scores, i);
        if (node->kind != SYI_JSON_NUMBER) continue;
        n++;
        cr_expect(fabs(value - node->number) <= 1e-9 * fabs(node->number) + 1e-15,
                  "%s of %s: %.17g, expected %.17g", names[i], what, value, node->number);
    }
    return n;
}

/* As the script: one reference, words apart by blanks. */
static int is_plain(const struct syi_text_item *item)
{
    struct syi_span text[2] = {item->output, item->reference[0]};
    size_t bytes;
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < text[i].bytes; at += bytes) {
            uint32_t code = syi_code_at(text[i], at, &bytes);
            if (code != ' ' && syi_code_is_space(code)) return 0;
        }
    return item->n == 1;
}

/* plain: those alone that jiwer takes. */
static void check_corpus(const struct syi_json *json, const char *key, int plain)
{
    struct syi_text_scores scores = all_scores();
    struct syi_span reference[MOST];
    uint32_t pairs = syi_json_member(json, 0, "pairs");
    for (uint32_t p = json->nodes[pairs].first; p; p = json->nodes[p].next) {
        struct syi_text_item item = item_of(json, p, reference);
        if (plain && !is_plain(&item)) continue;
        cr_assert_eq(syi_text_scores_add(&scores, &item, NULL), SY_OK);
    }
    cr_assert_eq(compare(json, syi_json_member(json, 0, key), &scores, key), plain ? 10 : 9);
    syi_text_scores_free(&scores);
}

Test(text_metrics, agree_with_the_packages_on_each_pair)
{
    struct syi_json json = vector();
    struct syi_text_scores scores = all_scores();
    struct syi_span reference[MOST];
    uint32_t pairs = syi_json_member(&json, 0, "pairs");
    int n = 0, numbers = 0;
    for (uint32_t p = json.nodes[pairs].first; p; p = json.nodes[p].next, n++) {
        struct syi_text_item item = item_of(&json, p, reference);
        syi_text_scores_clear(&scores);
        cr_assert_eq(syi_text_scores_add(&scores, &item, NULL), SY_OK);
        numbers += compare(&json, p, &scores, syi_json_string(&json, syi_json_member(&json, p, "output")));
    }
    cr_assert_geq(n, 30);
    cr_assert_gt(numbers, 9 * n + 10);
    syi_text_scores_free(&scores);
    syi_json_free(&json);
}

Test(text_metrics, agree_with_the_packages_on_a_corpus)
{
    struct syi_json json = vector();
    check_corpus(&json, "corpus", 0);
    check_corpus(&json, "single_reference_corpus", 1);
    syi_json_free(&json);
}

Test(text_metrics, are_zero_without_items)
{
    struct syi_text_scores scores = all_scores();
    for (int i = 0; i < scores.n; i++) cr_expect_eq(syi_text_scores_value(&scores, i), 0, "%s", names[i]);
    syi_text_scores_free(&scores);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Bytes of any kind, and words that come again. */
static struct syi_span any_text(uint32_t *state, char *text, size_t most)
{
    static const char *const parts[] = {"the ", "cat", " ", "",     "\xc3\xa9",     ".",
                                        "1",    "-",   ",", "\xff", "\xe4\xbb\x8a", "&amp;"};
    size_t n = 0, want = next_random(state) % most;
    while (n + 8 < want) {
        const char *part = parts[next_random(state) % SYI_COUNT(parts)];
        memcpy(text + n, part, strlen(part));
        n += strlen(part);
        if (next_random(state) % 8 == 0) text[n++] = (char)next_random(state);
    }
    return (struct syi_span){text, n};
}

/* Any bytes are texts: every number is in its range, an output that is a reference has the best one where it says
 * anything, and a reference more never makes it worse than the best of both (corpus counts apart). */
Test(text_metrics, any_bytes_are_texts)
{
    static char text[3][400];
    struct syi_text_scores scores = all_scores();
    uint32_t state = 7;
    for (int round = 0; round < 3000; round++) {
        struct syi_span reference[2] = {any_text(&state, text[1], 300), any_text(&state, text[2], 300)};
        struct syi_text_item item = {any_text(&state, text[0], 300), reference, 2};
        if (round % 4 == 0) item.output = reference[0];
        syi_text_scores_clear(&scores);
        cr_assert_eq(syi_text_scores_add(&scores, &item, NULL), SY_OK);
        for (int i = 0; i < scores.n; i++) {
            double most = i == SYI_TASK_METRIC_BLEU || i == SYI_TASK_METRIC_CHRF ? 100 : 1;
            double value = syi_text_scores_value(&scores, i);
            cr_assert(value >= 0 && (value <= most * (1 + 1e-12) || i == SYI_TASK_METRIC_PER), "%s: %g",
                      names[i], value);
            if (round % 4 || i == SYI_TASK_METRIC_PER) continue;
            if (i == SYI_TASK_METRIC_WER) cr_assert_eq(value, 0);
            if (i <= SYI_TASK_METRIC_ACCURACY) cr_assert_eq(value, 1);
            if (i >= SYI_TASK_METRIC_CHRF)
                cr_assert(value == 0 || value > most * (1 - 1e-12), "%s: %g", names[i], value);
        }
    }
    syi_text_scores_free(&scores);
}

/* Sums of counts do not depend on the order of the items; a metric named twice is one. */
Test(text_metrics, a_list_has_each_once)
{
    struct syi_text_scores scores;
    struct syi_strings list = {.n = 3, .text = "f1\0bleu\0f1"};
    syi_text_scores_open(&scores, &list);
    cr_assert_eq(scores.n, 2);
    cr_assert_str_eq(syi_text_metric(scores.metric[0])->result, "f1");
    cr_assert_str_eq(syi_text_metric(scores.metric[1])->result, "bleu");
    syi_text_scores_free(&scores);
}

/* mteval-v13a joins a word that a hyphen parts at the end of a line, but not at the end of the text. */
Test(text_metrics, words_parted_at_line_ends)
{
    static const struct {
        const char *text, *reference;
        int same;
    } cases[] = {
        {"a well-\nknown fact about cats", "a wellknown fact about cats", 1},
        {"all that cats know-\n", "all that cats know-", 1},
        {"all that cats know-\n", "all that cats know", 0},
    };
    struct syi_text_scores scores;
    struct syi_strings bleu = {.n = 1, .text = "bleu"};
    syi_text_scores_open(&scores, &bleu);
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_span reference = span(cases[i].reference);
        struct syi_text_item item = {span(cases[i].text), &reference, 1};
        syi_text_scores_clear(&scores);
        cr_assert_eq(syi_text_scores_add(&scores, &item, NULL), SY_OK);
        cr_expect_eq(syi_text_scores_value(&scores, 0) > 99.999, cases[i].same, "case %zu: %g", i,
                     syi_text_scores_value(&scores, 0));
    }
    syi_text_scores_free(&scores);
}

/* What Python's lower() makes of a capital sigma: a final one after a letter of upper or lower case and before none. */
Test(text_metrics, final_sigma)
{
    static const struct {
        const char *text, *lower;
        int same;
    } cases[] = {
        {"ΟΔΟΣ", "οδος", 1}, {"ΟΔΟΣ", "οδοσ", 0},  {"ΣΑΣ", "σας", 1}, {"5Σ", "5σ", 1},     {"5Σ", "5ς", 0},
        {"ΑΣ5", "ας5", 1},   {"ΑΣ5", "ασ5", 0},    {"漢Σ", "漢σ", 1}, {"ΑΣ漢", "ας漢", 1}, {"Σ", "σ", 1},
        {"Α Σ", "α σ", 1},   {"ΑΣ, Β", "ας β", 1}, {"ªΣ", "ªς", 1},
    };
    struct syi_text_scores scores;
    struct syi_strings f1 = {.n = 1, .text = "f1"};
    syi_text_scores_open(&scores, &f1);
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_span lower = span(cases[i].lower);
        struct syi_text_item item = {span(cases[i].text), &lower, 1};
        syi_text_scores_clear(&scores);
        cr_assert_eq(syi_text_scores_add(&scores, &item, NULL), SY_OK);
        cr_expect_eq(syi_text_scores_value(&scores, 0) == 1, cases[i].same, "%s, %s", cases[i].text,
                     cases[i].lower);
    }
    syi_text_scores_free(&scores);
}
