/* SPDX-License-Identifier: Apache-2.0 */
/* The table of metrics, those of a few lines, and the sums of a task. */
#include "config.h"

#include <string.h>

#include "text_metrics/text_metrics.h"
#include "text_metrics/unicode.h"

/* Metrics that are a mean have their sum first, and the items after it. */
static double mean(const double sum[SYI_TEXT_SUMS])
{
    return sum[1] > 0 ? sum[0] / sum[1] : 0;
}

/* ---- whole texts ---- */

static int same(struct syi_span a, struct syi_span b)
{
    return a.bytes == b.bytes && (!a.bytes || !memcmp(a.text, b.text, a.bytes));
}

static int exact_match_add(struct syi_text_scratch *scratch, const struct syi_text_item *item, double *sum,
                           struct sy_error *err)
{
    int right = 0;
    (void)scratch, (void)err;
    for (int32_t i = 0; i < item->n; i++) right |= same(item->output, item->reference[i]);
    sum[0] += right;
    sum[1]++;
    return SY_OK;
}

/* Without the white space around it. */
static struct syi_span label(struct syi_span text)
{
    size_t begin = 0, end = 0, bytes;
    for (size_t at = 0; at < text.bytes; at += bytes) {
        if (syi_code_is_space(syi_code_at(text, at, &bytes))) continue;
        if (!end) begin = at;
        end = at + bytes;
    }
    return (struct syi_span){text.text + begin, end - begin};
}

static int accuracy_add(struct syi_text_scratch *scratch, const struct syi_text_item *item, double *sum,
                        struct sy_error *err)
{
    int right = 0;
    (void)scratch, (void)err;
    for (int32_t i = 0; i < item->n; i++) right |= same(label(item->output), label(item->reference[i]));
    sum[0] += right;
    sum[1]++;
    return SY_OK;
}

/* ---- error rates: error_rate.c counts one item at a time ---- */

static int rate_of(struct syi_text_scratch *scratch, const struct syi_text_item *item, struct sy_error *err)
{
    struct syi_error_rate *rate = &scratch->rate;
    rate->n_items = rate->n_wrong = rate->distance = rate->length = 0;
    return syi_error_rate_add(rate, item->output, item->reference, item->n, NULL, err);
}

static int wer_add(struct syi_text_scratch *scratch, const struct syi_text_item *item, double *sum,
                   struct sy_error *err)
{
    int status = rate_of(scratch, item, err);
    sum[0] += (double)scratch->rate.n_wrong;
    sum[1]++;
    return status;
}

static int per_add(struct syi_text_scratch *scratch, const struct syi_text_item *item, double *sum,
                   struct sy_error *err)
{
    int status = rate_of(scratch, item, err);
    sum[0] += (double)scratch->rate.distance;
    sum[1] += (double)scratch->rate.length;
    return status;
}

/* ---- the table ---- */

static const struct syi_text_metric metrics[] = {
    [SYI_TASK_METRIC_EXACT_MATCH] = {"exact_match", exact_match_add, mean},
    [SYI_TASK_METRIC_ACCURACY] = {"label_accuracy", accuracy_add, mean},
    [SYI_TASK_METRIC_WER] = {"wer", wer_add, mean},
    [SYI_TASK_METRIC_PER] = {"per", per_add, mean},
    [SYI_TASK_METRIC_BLEU] = {"bleu", syi_bleu_add, syi_bleu_value},
    [SYI_TASK_METRIC_CHRF] = {"chrf", syi_chrf_add, syi_chrf_value},
    [SYI_TASK_METRIC_ROUGE1] = {"rouge1", syi_rouge1_add, mean},
    [SYI_TASK_METRIC_ROUGE2] = {"rouge2", syi_rouge2_add, mean},
    [SYI_TASK_METRIC_ROUGE_L] = {"rougeL", syi_rouge_l_add, mean},
    [SYI_TASK_METRIC_F1] = {"f1", syi_answer_f1_add, mean},
};
_Static_assert(SYI_COUNT(metrics) == SYI_TASK_METRICS, "a metric without a row");

const struct syi_text_metric *syi_text_metric(int metric)
{
    return &metrics[metric];
}

/* ---- the metrics of a task ---- */

static int number_of(const char *name)
{
#define METRIC_TEXT(constant, text) text,
    static const char *const names[] = {SYI_TASK_METRIC_MAP(METRIC_TEXT)};
#undef METRIC_TEXT
    int i = 0;
    while (i < SYI_TASK_METRICS && strcmp(names[i], name)) i++;
    return i;
}

void syi_text_scores_open(struct syi_text_scores *scores, const struct syi_strings *names)
{
    memset(scores, 0, sizeof *scores);
    for (int i = 0; i < names->n; i++) {
        int metric = number_of(syi_strings_at(names, i)), known = metric == SYI_TASK_METRICS;
        for (int k = 0; k < scores->n; k++) known |= scores->metric[k] == metric;
        if (!known) scores->metric[scores->n++] = metric;
    }
}

void syi_text_scores_free(struct syi_text_scores *scores)
{
    syi_texts_free(&scores->scratch.texts);
    syi_error_rate_free(&scores->scratch.rate);
    memset(scores, 0, sizeof *scores);
}

void syi_text_scores_clear(struct syi_text_scores *scores)
{
    memset(scores->sum, 0, sizeof scores->sum);
}

int syi_text_scores_add(struct syi_text_scores *scores, const struct syi_text_item *item,
                        struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; !status && i < scores->n; i++)
        status = metrics[scores->metric[i]].add(&scores->scratch, item, scores->sum[i], err);
    return status;
}

double syi_text_scores_value(const struct syi_text_scores *scores, int i)
{
    return metrics[scores->metric[i]].value(scores->sum[i]);
}
