/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of an evaluation: their list, those that are made of sums over batches, and their rows in a sink. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/compat.h"
#include "train/engine/step_metrics.h"
#include "train/trainer/evaluate.h"

void syi_eval_result_set(struct syi_eval_result *result, const char *name, double value)
{
    syi_eval_result_set_mode(result, name, value, SYI_MODE_TRAIN_EVAL);
}

void syi_eval_result_set_mode(struct syi_eval_result *result, const char *name, double value,
                              enum syi_mode mode)
{
    result->modes |= (int)mode;
    for (int i = 0; i < result->n; i++)
        if (!strcmp(result->value[i].name, name)) {
            result->value[i].value = value;
            return;
        }
    if (result->n < SYI_EVAL_VALUES) result->value[result->n++] = (struct syi_eval_value){name, value, mode};
}

const double *syi_eval_result_find(const struct syi_eval_result *result, const char *name)
{
    for (int i = 0; i < result->n; i++)
        if (!strcmp(result->value[i].name, name)) return &result->value[i].value;
    return NULL;
}

/* ---- from sums ---- */

/* Over the targets, each as much as its loss weight. */
static double per_target(const struct syi_eval_sums *sums, double sum)
{
    double weights = sums->value[SYI_STEP_WEIGHT_SUM];
    return weights > 0 ? sum / weights : NAN;
}

void syi_eval_loss(const struct syi_eval_sums *sums, struct syi_eval_result *result)
{
    syi_eval_result_set(result, "loss", per_target(sums, sums->loss_sum));
}

/* The five numbers of layers with experts, in the order of struct syi_eval_layer. */
static void expert_metrics(const struct syi_config *config, const struct syi_eval_layer *layer, int layers,
                           struct syi_eval_result *result)
{
    double parts = config->moe.aux_loss_reduction == SYI_REDUCTION_SUM ? 1 : layers;
    struct syi_eval_layer mean = {0};

    for (int i = 0; i < layers; i++) {
        double tokens = layer[i].tokens > 0 ? layer[i].tokens : NAN;
        mean.auxiliary_loss += layer[i].auxiliary_loss / tokens / parts;
        mean.router_z_loss += layer[i].router_z_loss / tokens / parts;
        mean.left_behind += layer[i].left_behind / tokens / layers;
        mean.usage += layer[i].usage / tokens / layers;
        mean.confidence += layer[i].confidence / tokens / layers;
    }
    syi_eval_result_set(result, "experts/auxiliary_loss", config->moe.aux_loss_factor * mean.auxiliary_loss);
    syi_eval_result_set(result, "experts/router_z_loss",
                        config->moe.router_z_loss_factor * mean.router_z_loss);
    syi_eval_result_set(result, "experts/fraction_tokens_left_behind", mean.left_behind);
    syi_eval_result_set(result, "experts/expert_usage", mean.usage);
    syi_eval_result_set(result, "experts/router_confidence", mean.confidence);
}

/* T5X's others, which count padding and go by batches: a run that wants its numbers as T5X has them. */
static void batch_metrics(const struct syi_config *config, const struct syi_eval_sums *sums,
                          struct syi_eval_result *result)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = syi_step_metrics_of_batches(config, sums->packed, sums->value, metric);

    for (int i = 0; i < n; i++)
        syi_eval_result_set(result, metric[i].name, metric[i].total / metric[i].divisor);
}

void syi_eval_training_metrics(const struct syi_config *config, const struct syi_eval_sums *sums, int layers,
                               struct syi_eval_result *result)
{
    syi_eval_result_set(result, "accuracy",
                        sums->weighted ? sums->correct_sum / (double)sums->weighted : NAN);
    syi_eval_result_set(result, "cross_ent_loss", per_target(sums, sums->loss_sum - sums->z_sum));
    syi_eval_result_set(result, "cross_entropy",
                        per_target(sums, sums->loss_sum - sums->z_sum - sums->smoothing_sum));
    syi_eval_result_set(result, "z_loss", per_target(sums, sums->z_sum));
    if (layers) expert_metrics(config, sums->layer, layers, result);
    if (syi_compat(config, config->metrics.divide_by)) batch_metrics(config, sums, result);
}

/* ---- rows ---- */

static int write_examples(const struct syi_eval_result *result, const struct syi_metric_sink *sink,
                          int64_t step, struct sy_error *err)
{
    int first = SY_OK;
    for (int i = 0; i < result->n_examples; i++) {
        struct sy_error here = {0};
        int status = sink->example(sink->arg, step, &result->example[i], &here);
        if (status && !first) first = syi_error(err, status, "%s", here.text);
    }
    return first;
}

static int write_routing(const struct syi_eval_result *result, const struct syi_metric_sink *sink,
                         int64_t step, struct sy_error *err)
{
    int first = SY_OK;
    for (int i = 0; i < result->n_routing; i++) {
        const struct syi_eval_routing *r = &result->routing[i];
        struct sy_error here = {0};
        int status = sink->eval_routing(sink->arg, step, result->task, r->layer, result->n_experts, r->tokens,
                                        r->dropped, &here);
        if (status && !first) first = syi_error(err, status, "%s", here.text);
    }
    return first;
}

int syi_eval_result_write(const struct syi_eval_result *result, const struct syi_metric_sink *sink,
                          int64_t step, struct sy_error *err)
{
    struct syi_eval_result rows = *result;
    int first = SY_OK;

    syi_eval_result_set(&rows, "items", (double)rows.items);
    syi_eval_result_set(&rows, "cut", (double)rows.cut);
    for (int i = 0; i < rows.n; i++) {
        struct sy_error here = {0};
        const struct syi_eval_value *value = &rows.value[i];
        const char *settings = value->mode == SYI_MODE_INFER_EVAL ? rows.settings : "";
        int status = sink->eval(sink->arg, step, rows.task, value->name, value->value, settings, &here);
        if (status && !first) first = syi_error(err, status, "%s", here.text);
    }
    int examples = write_examples(result, sink, step, first ? NULL : err);
    if (!first) first = examples;
    int routing = write_routing(result, sink, step, first ? NULL : err);
    return first ? first : routing;
}
