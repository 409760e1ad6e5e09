/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer gives to its sink, and what a failure there means: it never is an error of the training. It is
 * reported once, and metrics.on_failure says whether the run goes on. Rank 0 alone has a sink. */
#include "config.h"

#include "train/engine/step_metrics.h"
#include "train/trainer/trainer_internal.h"

static const struct syi_metric_sink *sink_of(const struct syi_trainer *t)
{
    return t->rank->rank == 0 ? t->job->sink : NULL;
}

void syi_trainer_warn(struct syi_trainer *t, const char *kind, const char *text)
{
    syi_rank_log_say(&t->log, text);
    if (t->rank->rank != 0) return;
    syi_run_dir_log(t->job->dir, text);
    syi_log(SY_LOG_WARN, "%s", text);
    syi_trainer_event(t, kind, text);
}

static void report_failure(struct syi_trainer *t, const struct sy_error *reason)
{
    const char *what = t->config->metrics.on_failure == SYI_ON_FAILURE_STOP
                           ? "training stops (metrics.on_failure = stop)"
                           : "training goes on, rows are lost (metrics.on_failure = continue)";
    char text[1200];

    if (t->sink_failed) return;
    t->sink_failed = 1;
    snprintf(text, sizeof(text), "%s; %s", reason->text, what);
    syi_trainer_warn(t, "warning", text);
}

void syi_trainer_event(struct syi_trainer *t, const char *kind, const char *text)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink && sink->event(sink->arg, t->step, kind, text, &err)) report_failure(t, &err);
}

void syi_trainer_write_eval(struct syi_trainer *t, const struct syi_eval_result *result)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};
    struct syi_eval_result rows = *result;

    syi_eval_result_set(&rows, "items", (double)rows.items);
    syi_eval_result_set(&rows, "cut", (double)rows.cut);
    for (int i = 0; sink && i < rows.n; i++)
        if (sink->eval(sink->arg, t->step, rows.task, rows.value[i].name, rows.value[i].value, &err))
            report_failure(t, &err);
}

static void write_metric(struct syi_trainer *t, const char *name, double value)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink->metric(sink->arg, t->step, name, value, &err)) report_failure(t, &err);
}

static void write_routing(struct syi_trainer *t)
{
    const struct syi_metric_sink *sink = sink_of(t);
    int layers = syi_engine_moe_layers(t->engine), experts = syi_engine_experts(t->engine);
    struct sy_error err = {0};
    int64_t *kept = t->routing, *dropped = t->routing + experts, chosen;

    for (int layer = 0; layer < layers; layer++) {
        for (int expert = 0; expert < experts; expert++) {
            syi_engine_routing(t->engine, layer, expert, &chosen, &kept[expert]);
            dropped[expert] = chosen - kept[expert];
        }
        if (sink->routing(sink->arg, t->step, syi_engine_moe_layer(t->engine, layer), experts, kept, dropped,
                          &err))
            report_failure(t, &err);
    }
}

/* Every so many steps, and at the last one. */
static int is_due(const struct syi_trainer *t, int64_t every)
{
    return t->step % every == 0 || t->step >= t->config->train.steps;
}

void syi_trainer_write_step(struct syi_trainer *t, const struct syi_step_result *result, double rate)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    double step_seconds, tokens_per_second;
    int n;

    if (!sink_of(t)) return;
    if (is_due(t, t->config->metrics.routing_every)) write_routing(t);
    if (!is_due(t, t->config->metrics.every)) return;
    n = syi_step_metrics(t->config, &t->batch, result, metric);
    for (int i = 0; i < n; i++) write_metric(t, metric[i].name, syi_step_metric_value(t->config, &metric[i]));
    syi_timing_row(&t->timing, &step_seconds, &tokens_per_second);
    write_metric(t, "learning_rate", rate);
    write_metric(t, "tokens_per_second", tokens_per_second);
    write_metric(t, "step_seconds", step_seconds);
}

void syi_trainer_flush(struct syi_trainer *t, double seconds)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};
    int status = sink ? sink->flush(sink->arg, seconds, &err) : SY_OK;

    if (status && status != SY_EBUSY) report_failure(t, &err);
}
