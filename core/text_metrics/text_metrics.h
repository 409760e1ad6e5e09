/* SPDX-License-Identifier: Apache-2.0 */
/* How good decoded texts are: a table of metrics, one function or file and one row each (SYI_TASK_METRIC_MAP in
 * base/run_config.h), chosen by task.NAME.metrics. Definitions and sources are in doc/evaluation.md. Texts are UTF-8
 * code points; a byte that is no part of valid UTF-8 counts as a code point of its own. */
#ifndef SYI_TEXT_METRICS_H
#define SYI_TEXT_METRICS_H

#include "base/run_config.h"
#include "text_metrics/error_rate.h"
#include "text_metrics/symbols.h"

enum { SYI_TEXT_SUMS = 18 };

/* What the metrics of one evaluation share. All zero is an empty one. */
struct syi_text_scratch {
    struct syi_texts texts;
    struct syi_error_rate rate;
};

/* A row: what an item adds, and the number from the sums over all items (0 without any). Counts are whole numbers in
 * double, exact up to 2^53. */
struct syi_text_metric {
    const char
        *result; /* name of the number: that of the metric, but where training has another one of that name */
    int (*add)(struct syi_text_scratch *scratch, const struct syi_text_item *item, double sum[SYI_TEXT_SUMS],
               struct sy_error *err);
    double (*value)(const double sum[SYI_TEXT_SUMS]);
};
const struct syi_text_metric *syi_text_metric(int metric); /* of SYI_TASK_METRIC_MAP */

/* The metrics of one task and their sums. */
struct syi_text_scores {
    int n;
    int metric[SYI_TASK_METRICS]; /* [n] of SYI_TASK_METRIC_MAP */
    double sum[SYI_TASK_METRICS][SYI_TEXT_SUMS];
    struct syi_text_scratch scratch;
};

/* names: task.NAME.metrics, checked. One that is named twice is there once. */
void syi_text_scores_open(struct syi_text_scores *scores, const struct syi_strings *names);
void syi_text_scores_free(struct syi_text_scores *scores);
void syi_text_scores_clear(struct syi_text_scores *scores); /* no items */
int syi_text_scores_add(struct syi_text_scores *scores, const struct syi_text_item *item,
                        struct sy_error *err) SYI_MUST_CHECK;
double syi_text_scores_value(const struct syi_text_scores *scores, int i);

/* ---- bleu.c, chrf.c, rouge.c, answer_f1.c ---- */

int syi_bleu_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                 double sum[SYI_TEXT_SUMS], struct sy_error *err);
double syi_bleu_value(const double sum[SYI_TEXT_SUMS]);
int syi_chrf_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                 double sum[SYI_TEXT_SUMS], struct sy_error *err);
double syi_chrf_value(const double sum[SYI_TEXT_SUMS]);
int syi_rouge1_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                   double sum[SYI_TEXT_SUMS], struct sy_error *err);
int syi_rouge2_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                   double sum[SYI_TEXT_SUMS], struct sy_error *err);
int syi_rouge_l_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                    double sum[SYI_TEXT_SUMS], struct sy_error *err);
int syi_answer_f1_add(struct syi_text_scratch *scratch, const struct syi_text_item *item,
                      double sum[SYI_TEXT_SUMS], struct sy_error *err);

#endif
