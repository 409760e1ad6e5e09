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

void syi_trainer_say(struct syi_trainer *t, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    syi_rank_log_say(&t->log, text);
    if (t->rank->rank == 0 && t->job->report.line) t->job->report.line(t->job->report.arg, text);
}

void syi_trainer_warn(struct syi_trainer *t, int64_t step, const char *kind, const char *text)
{
    syi_rank_log_say(&t->log, text);
    if (t->rank->rank != 0) return;
    syi_run_dir_log(t->job->dir, text);
    syi_log(SY_LOG_WARN, "%s", text);
    syi_trainer_event_at(t, step, kind, text);
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
    syi_trainer_warn(t, t->step, "warning", text);
}

int64_t syi_trainer_at(const struct syi_trainer *t)
{
    return t->step + t->made;
}

void syi_trainer_event(struct syi_trainer *t, const char *kind, const char *text)
{
    syi_trainer_event_at(t, syi_trainer_at(t), kind, text);
}

void syi_trainer_event_at(struct syi_trainer *t, int64_t step, const char *kind, const char *text)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink && sink->event(sink->arg, step, kind, text, &err)) report_failure(t, &err);
}

void syi_trainer_write_eval(struct syi_trainer *t, const struct syi_eval_result *result)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink && syi_eval_result_write(result, sink, t->step, &err)) report_failure(t, &err);
}

static void write_metric_at(struct syi_trainer *t, int64_t step, const char *name, double value)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink->metric(sink->arg, step, name, value, &err)) report_failure(t, &err);
}

static void write_metric(struct syi_trainer *t, const char *name, double value)
{
    write_metric_at(t, t->step, name, value);
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

/* How long a step waited for its batch, since the last row. */
static void write_waiting(struct syi_trainer *t, double steps, double step_seconds)
{
    enum { LEAST_STEPS = 10 };
    double waited = t->data.prefetch.waited / steps, share = waited / step_seconds;
    char text[160];

    t->data.prefetch.waited = 0;
    write_metric(t, "timing/data_wait_seconds", waited);
    if (t->told_to_wait || steps < LEAST_STEPS || !(share > 0.1)) return;
    t->told_to_wait = 1;
    snprintf(
        text, sizeof text,
        "steps wait %.0f %% of their time for batches (timing/data_wait_seconds): raise data.prefetch, or "
        "leave a core to the reading thread",
        100 * share);
    syi_trainer_warn(t, t->step, "warning", text);
}

/* That of [optimizer], and those that named optimizers have of their own. */
static void write_rates(struct syi_trainer *t)
{
    for (int i = 1; i < t->config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &t->config->optimizer.part[i];
        char name[SYI_PART_NAME + 16];
        snprintf(name, sizeof name, "learning_rate/%s", part->name_of_part);
        if (*part->lr_factors) write_metric(t, name, t->part_rate[i]);
    }
    write_metric(t, "learning_rate", t->part_rate[0]);
    write_metric(t, "learning_rate/current", t->part_rate[0]);
}

void syi_trainer_write_step(struct syi_trainer *t, const struct syi_step_result *result)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    struct syi_rate speed[SYI_RATES];
    double step_seconds, tokens_per_second;
    int64_t steps;
    int n;

    if (!sink_of(t)) return;
    if (is_due(t, t->config->metrics.routing_every)) write_routing(t);
    if (!is_due(t, t->config->metrics.every)) return;
    n = syi_step_metrics(t->config, t->batch, result, metric);
    for (int i = 0; i < n; i++) write_metric(t, metric[i].name, syi_step_metric_value(t->config, &metric[i]));
    n = syi_step_means(t->config, &t->sums, metric);
    for (int i = 0; i < n; i++) write_metric(t, metric[i].name, syi_step_metric_value(t->config, &metric[i]));
    n = syi_rates_values(&t->rates, t->rank->ranks, speed);
    for (int i = 0; i < n; i++) write_metric(t, speed[i].name, speed[i].value);
    t->rates = (struct syi_rates){0};
    steps = t->timing.row_steps;
    syi_timing_row(&t->timing, &step_seconds, &tokens_per_second);
    if (steps) write_waiting(t, (double)steps, step_seconds);
    write_metric(t, "timing/uptime", syi_seconds() - t->begin);
    write_rates(t);
    write_metric(t, "tokens_per_second", tokens_per_second);
    write_metric(t, "step_seconds", step_seconds);
}

static void write_parameter(struct syi_trainer *t, const char *parameter, const char *name, double value)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink->parameter(sink->arg, t->step, parameter, name, value, &err)) report_failure(t, &err);
}

void syi_trainer_write_weights(struct syi_trainer *t, const struct syi_step_result *result)
{
    const struct syi_model *model = syi_engine_model(t->engine);
    double value[SYI_WEIGHT_METRICS];

    if (!sink_of(t)) return;
    for (size_t i = 0; i < model->n; i++)
        for (int m = 0; syi_engine_weight_metrics(t->engine, i, value) && m < SYI_WEIGHT_METRICS; m++)
            write_parameter(t, model->param[i].name, syi_weight_metric_name((enum syi_weight_metric)m),
                            value[m]);
    for (int m = 0; m < SYI_WEIGHT_METRICS; m++)
        write_metric(t, syi_weight_metric_name((enum syi_weight_metric)m), result->weights[m]);
}

void syi_trainer_write_seconds(struct syi_trainer *t, int64_t step, const char *name, double seconds)
{
    if (sink_of(t)) write_metric_at(t, step, name, seconds);
}

void syi_trainer_write_back(struct syi_trainer *t)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};

    if (sink && sink->back(sink->arg, t->step, &err)) report_failure(t, &err);
}

void syi_trainer_flush(struct syi_trainer *t, double seconds)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct sy_error err = {0};
    int status = sink ? sink->flush(sink->arg, seconds, &err) : SY_OK;

    if (status && status != SY_EBUSY) report_failure(t, &err);
}
