/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a step from its result and its batch, row by row of model/step_metrics.def. What counts
 * padding is there with metrics.divide_by = all only; else its place is taken by what counts real tokens. */
#include "config.h"

#include <string.h>

#include "base/compat.h"
#include "data/loss_weights.h"
#include "train/engine/step_metrics.h"

/* Sets of cases that a row is there in. */
enum {
    ALL = 1,
    SUMMED = 2,
    EXPERTS = 4,
    PLAIN = 8,
    PACKED = 16,
    DENSE = PLAIN | PACKED,
    ALWAYS = EXPERTS | DENSE
};

static const struct row {
    const char *name, *mean;
    enum syi_step_value total, divisor;
    unsigned when;
} rows[] = {
#define SYI_STEP_METRIC(name, TOTAL, DIVISOR, WHEN)                                                          \
    {name, "mean/" name, SYI_STEP_##TOTAL, SYI_STEP_##DIVISOR, WHEN},
#include "model/step_metrics.def"
};
_Static_assert(SYI_COUNT(rows) <= SYI_STEP_METRICS_MOST, "raise SYI_STEP_METRICS_MOST");

/* Whether the loss is a sum over targets; else it is per token already. */
static int is_summed(const struct syi_config *config)
{
    struct syi_loss_factor factor;
    if (syi_loss_factor_parse(&factor, config->loss.loss_normalizing_factor, NULL)) return 0;
    return factor.kind == SYI_LOSS_FACTOR_NONE || factor.kind == SYI_LOSS_FACTOR_NUMBER;
}

static unsigned cases(const struct syi_config *config, int packed)
{
    unsigned now = config->moe.num_experts ? EXPERTS : packed ? PACKED : PLAIN;
    if (syi_compat(config, config->metrics.divide_by)) return now | ALL;
    return is_summed(config) ? now | SUMMED : now;
}

/* Tokens that are not 0. */
static int64_t tokens(const int32_t *ids, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += ids[i] > 0;
    return count;
}

/* Rows with a token; of packed rows the examples in them. */
static int64_t examples(const int32_t *ids, const int32_t *segments, int64_t n_rows, int64_t length)
{
    int64_t count = 0;
    for (int64_t row = 0; row < n_rows; row++) {
        int64_t most = 0;
        for (int64_t i = row * length; i < (row + 1) * length; i++) {
            int64_t here = segments ? segments[i] : ids[i] > 0;
            if (here > most) most = here;
        }
        count += most;
    }
    return count;
}

void syi_step_count_batch(const struct syi_batch *b, double value[SYI_STEP_VALUES])
{
    int64_t in = (int64_t)b->rows * b->input_length, out = (int64_t)b->rows * b->target_length;
    int64_t n_in = tokens(b->encoder_ids, in), n_out = tokens(b->decoder_targets, out);
    value[SYI_STEP_INPUT_TOKENS] = (double)n_in;
    value[SYI_STEP_TARGET_TOKENS] = (double)n_out;
    value[SYI_STEP_TOKENS] = (double)(n_in + n_out);
    value[SYI_STEP_INPUT_PLACES] = (double)in;
    value[SYI_STEP_TARGET_PLACES] = (double)out;
    value[SYI_STEP_PLACES] = (double)(in + out);
    value[SYI_STEP_INPUT_EXAMPLES] =
        (double)examples(b->encoder_ids, b->encoder_segments, b->rows, b->input_length);
    value[SYI_STEP_TARGET_EXAMPLES] =
        (double)examples(b->decoder_targets, b->decoder_segments, b->rows, b->target_length);
}

const char *syi_step_value_name(enum syi_step_value value)
{
    return syi_step_value_info(value)->name;
}

static int counts_steps(const struct row *r)
{
    return r->divisor == SYI_STEP_MICROBATCHES || r->divisor == SYI_STEP_ONE;
}

int syi_step_metrics(const struct syi_config *config, const struct syi_batch *batch,
                     const struct syi_step_result *result, struct syi_step_metric out[SYI_STEP_METRICS_MOST])
{
    double value[SYI_STEP_VALUES];
    unsigned now = cases(config, batch->decoder_segments != NULL);
    int n = 0;
    memcpy(value, result->value, sizeof value);
    syi_step_count_batch(batch, value);
    for (size_t i = 0; i < SYI_COUNT(rows); i++) {
        const struct row *r = &rows[i];
        if (r->when & now)
            out[n++] = (struct syi_step_metric){r->name, value[r->total], value[r->divisor], counts_steps(r)};
    }
    return n;
}

int syi_step_means(const struct syi_config *config, const struct syi_step_sums *sums,
                   struct syi_step_metric out[SYI_STEP_METRICS_MOST])
{
    unsigned now = cases(config, sums->packed);
    int n = 0;
    for (size_t i = 0; i < SYI_COUNT(rows) && sums->steps > 0; i++) {
        const struct row *r = &rows[i];
        double divisor = counts_steps(r) ? sums->steps : sums->value[r->divisor];
        if (r->when & now) out[n++] = (struct syi_step_metric){r->mean, sums->value[r->total], divisor, 0};
    }
    return n;
}

/* Whether evaluations have it from what they count of their batches. */
static int is_of_batches(const struct row *r)
{
    if (r->total == SYI_STEP_INPUT_EXAMPLES || r->total == SYI_STEP_TARGET_EXAMPLES) return 1;
    return r->divisor == SYI_STEP_WEIGHT_SUM || r->divisor == SYI_STEP_INPUT_PLACES ||
           r->divisor == SYI_STEP_TARGET_PLACES || r->divisor == SYI_STEP_PLACES;
}

int syi_step_metrics_of_batches(const struct syi_config *config, int packed,
                                const double value[SYI_STEP_VALUES],
                                struct syi_step_metric out[SYI_STEP_METRICS_MOST])
{
    unsigned now = cases(config, packed);
    int n = 0;
    for (size_t i = 0; i < SYI_COUNT(rows); i++)
        if ((rows[i].when & now) && is_of_batches(&rows[i]))
            out[n++] =
                (struct syi_step_metric){rows[i].name, value[rows[i].total], value[rows[i].divisor], 0};
    return n;
}

double syi_step_metric_value(const struct syi_config *config, const struct syi_step_metric *metric)
{
    if (metric->steps) return metric->total;
    if (metric->divisor == 0 && !syi_compat(config, config->metrics.divide_by)) return 0;
    return metric->total / metric->divisor;
}
