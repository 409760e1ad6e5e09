/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of one rank: step, numbers, and between two steps evaluation, stopping and saving. All
 * ranks run it and decide alike: numbers are equal on all of them, the clock is rank 0's, a signal counts on
 * any. A step allocates nothing. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/compat.h"
#include "optim/schedule.h"
#include "train/engine/step_metrics.h"
#include "train/trainer/trainer_internal.h"

static int is_first(const struct syi_trainer *t)
{
    return t->rank->rank == 0;
}

/* The sink of rank 0, NULL elsewhere. */
static const struct syi_metric_sink *sink_of(const struct syi_trainer *t)
{
    return is_first(t) ? t->job->sink : NULL;
}

void syi_trainer_say(struct syi_trainer *t, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    syi_rank_log_say(&t->log, text);
    if (is_first(t) && t->job->report.line) t->job->report.line(t->job->report.arg, text);
}

int syi_trainer_event(struct syi_trainer *t, const char *kind, const char *text, struct sy_error *err)
{
    const struct syi_metric_sink *sink = sink_of(t);
    return sink ? sink->event(sink->arg, t->step, kind, text, err) : SY_OK;
}

static void end_run(struct syi_trainer *t, enum syi_end end, const char *format, ...) SYI_PRINTF(3, 4);
static void end_run(struct syi_trainer *t, enum syi_end end, const char *format, ...)
{
    va_list args;

    t->ended = 1;
    t->end = end;
    va_start(args, format);
    vsnprintf(t->what, sizeof(t->what), format, args);
    va_end(args);
}

int syi_trainer_obey(struct syi_trainer *t, const struct syi_verdict *verdict, struct sy_error *err)
{
    if (verdict->stop) end_run(t, verdict->end, "%s: %s", verdict->action, verdict->text);
    if (!verdict->action || verdict->stop) return SY_OK;
    syi_trainer_say(t, "%s: %s", verdict->action, verdict->text);
    return syi_trainer_event(t, verdict->action, verdict->text, err);
}

/* ---- one step ---- */

static int write_routing(struct syi_trainer *t, const struct syi_metric_sink *sink, struct sy_error *err)
{
    int layers = syi_engine_moe_layers(t->engine), experts = syi_engine_experts(t->engine), status = SY_OK;
    int64_t chosen, kept;

    for (int layer = 0; !status && layer < layers; layer++)
        for (int expert = 0; !status && expert < experts; expert++) {
            syi_engine_routing(t->engine, layer, expert, &chosen, &kept);
            status = sink->routing(sink->arg, t->step, syi_engine_moe_layer(t->engine, layer), expert, kept,
                                   chosen - kept, err);
        }
    return status;
}

static int write_metrics(struct syi_trainer *t, const struct syi_step_result *result, double rate,
                         struct sy_error *err)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    double step_seconds, tokens_per_second;
    int status = SY_OK, n;

    if (!sink) return SY_OK;
    n = syi_step_metrics(t->config, &t->batch, result, metric);
    for (int i = 0; !status && i < n; i++)
        status = sink->metric(sink->arg, t->step, metric[i].name,
                              syi_step_metric_value(t->config, &metric[i]), err);
    syi_timing_row(&t->timing, &step_seconds, &tokens_per_second);
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"learning_rate", rate},
        {"tokens_per_second", tokens_per_second},
        {"step_seconds", step_seconds},
    };
    for (size_t i = 0; !status && i < SYI_COUNT(rows); i++)
        status = sink->metric(sink->arg, t->step, rows[i].name, rows[i].value, err);
    return status ? status : write_routing(t, sink, err);
}

static void show_progress(struct syi_trainer *t, const struct syi_step_result *result, double rate,
                          double now)
{
    struct syi_progress progress = {
        .step = t->step,
        .steps = t->config->train.steps,
        .loss = result->loss,
        .learning_rate = rate,
        .tokens_per_second = syi_timing_tokens_per_second(&t->timing),
        .step_seconds = syi_timing_median(&t->timing),
    };

    if (!is_first(t) || !t->job->report.progress) return;
    progress.seconds_left =
        (now - t->loop_begin) / (double)(t->step - t->loop_step) * (double)(progress.steps - t->step);
    t->job->report.progress(t->job->report.arg, &progress);
}

/* A bad step that ends the run is not counted: its update was left out, so the weights are those before it,
 * or it spoiled them and they are saved no more. */
static int after_step(struct syi_trainer *t, const struct syi_step_result *result, double rate, double now,
                      struct sy_error *err)
{
    struct syi_moment moment = {.kind = SYI_AFTER_STEP, .step = t->step, .result = result};
    struct syi_verdict verdict;
    int status;

    if (syi_compat(t->config, t->config->train.nan_check) && syi_step_is_bad(t->config, result))
        t->spoiled = 1;
    syi_actions_run(t->config, &t->actions, &moment, &verdict);
    status = syi_trainer_obey(t, &verdict, err);
    if (status || t->ended) return status;
    t->step++;
    if (t->step % t->config->metrics.every == 0 || t->step >= t->config->train.steps)
        status = write_metrics(t, result, rate, err);
    if (!status) show_progress(t, result, rate, now);
    if (t->step % t->config->train.log_every == 0 || t->step >= t->config->train.steps)
        syi_rank_log_steps(&t->log, t->rank, t->step, t->config->train.steps);
    return status;
}

static int train_step(struct syi_trainer *t, struct sy_error *err)
{
    double rate = syi_schedule_rate(t->config, t->step), begin = syi_seconds(), now;
    struct syi_step_result result;
    int status = syi_batcher_fetch(&t->batcher, t->step, &t->batch, err);

    if (!status) status = syi_engine_step(t->engine, &t->batch, t->step, rate, &result, err);
    if (status) return status;
    now = syi_seconds();
    syi_timing_add(&t->timing, now - begin, result.input_tokens + result.target_tokens);
    return after_step(t, &result, rate, now, err);
}

/* ---- between two steps ---- */

/* Whether the run is asked to stop: by a signal that any rank got, or the time limit as rank 0 sees it. */
static int look_for_stop(struct syi_trainer *t, struct sy_error *err)
{
    int64_t limit = t->config->train.time_limit, stop[2]; /* ranks that had a signal; that are late */
    struct sy_error cause = {0};
    int status;

    stop[0] = t->job->stop && atomic_load(t->job->stop);
    stop[1] = is_first(t) && limit && syi_seconds() - t->begin >= (double)limit;
    status = syi_comm_sum(t->rank->comm, stop, 2, &cause);
    if (status)
        return syi_error(err, status, "after step %" PRId64 ", asking all ranks whether to go on: %s",
                         t->step, cause.text);
    if (stop[0])
        end_run(t, SYI_END_SIGNAL, "stopped by a signal after step %" PRId64 "; --resume goes on", t->step);
    if (!stop[0] && stop[1])
        end_run(t, SYI_END_TIME_LIMIT,
                "train.time_limit of %" PRId64 " s reached after step %" PRId64 "; --resume goes on", limit,
                t->step);
    return SY_OK;
}

static int poll_stop(void *arg, struct sy_error *err)
{
    struct syi_trainer *t = arg;
    int status = look_for_stop(t, err);
    return !status && t->ended ? SY_ESTOPPED : status;
}

static int tell_evaluation(struct syi_trainer *t, const struct syi_eval_result *result, struct sy_error *err)
{
    const struct syi_metric_sink *sink = sink_of(t);
    const struct {
        const char *name;
        double value;
    } rows[] = {{"loss", result->loss},
                {"wer", result->wer},
                {"per", result->per},
                {"items", (double)result->items},
                {"cut", (double)result->cut}};
    int status = SY_OK;

    for (size_t i = 0; sink && !status && i < SYI_COUNT(rows); i++)
        status = sink->eval(sink->arg, t->step, result->task, rows[i].name, rows[i].value, err);
    if (!status && is_first(t) && t->job->report.eval)
        t->job->report.eval(t->job->report.arg, t->step, result);
    return status;
}

static int is_evaluation_due(const struct syi_trainer *t)
{
    int64_t every = t->config->train.evaluate_every;
    if (!t->evaluation.data || t->evaluated == t->step) return 0;
    return t->step >= t->config->train.steps || (every && t->step && t->step % every == 0);
}

/* One that is cut short by a stop counts as not made: a resumed run makes it first. */
static int evaluate(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_moment moment = {.kind = SYI_AFTER_EVALUATION, .step = t->step};
    struct syi_eval_result result;
    struct syi_verdict verdict;
    int status = syi_evaluation_run(&t->evaluation, poll_stop, t, &result, err);

    if (status == SY_ESTOPPED && t->ended) return SY_OK;
    if (!status) status = tell_evaluation(t, &result, err);
    if (status) return status;
    t->evaluated = t->step;
    moment.evaluated = &result;
    syi_actions_run(t->config, &t->actions, &moment, &verdict);
    if (t->actions.best_step == t->step) t->saved = -1; /* what was saved before does not know of it */
    return syi_trainer_obey(t, &verdict, err);
}

/* The weights of the best evaluation are saved at once, so that they are there whatever happens later. */
static int is_checkpoint_due(const struct syi_trainer *t)
{
    int64_t every = t->config->train.checkpoint_every;
    if (t->saved == t->step || t->spoiled) return 0;
    return t->ended || t->actions.best_step == t->step || (every && t->step && t->step % every == 0);
}

/* The store is on disk first, so what it holds never ends before the checkpoint a run goes on from. */
static int save(struct syi_trainer *t, struct sy_error *err)
{
    const struct syi_metric_sink *sink = sink_of(t);
    struct syi_checkpoint_meta meta = {
        .step = t->step,
        .examples = t->step * t->config->data.batch_size,
        .best_metric = t->actions.best,
        .best_step = t->actions.best_step,
        .stale = t->actions.stale,
        .previous_metric = t->actions.previous,
        .unbroken = t->actions.unbroken,
        .best_of = t->actions.metric,
        .evaluated = t->evaluated,
    };
    char text[64];
    int status = sink ? sink->flush(sink->arg, err) : SY_OK;

    if (!status)
        status = syi_checkpoint_save(t->job->dir->path, syi_engine_session(t->engine), t->rank->comm, &meta,
                                     (int)t->config->train.keep_checkpoints, err);
    if (status) return status;
    t->saved = t->step;
    memcpy(t->weights, meta.params_sha256, sizeof(t->weights));
    snprintf(text, sizeof(text), "checkpoint of step %" PRId64 " saved", t->step);
    syi_trainer_say(t, "%s", text);
    return syi_trainer_event(t, "checkpoint", text, err);
}

static int between_steps(struct syi_trainer *t, struct sy_error *err)
{
    int status = SY_OK;

    if (!t->ended && is_evaluation_due(t)) status = evaluate(t, err);
    if (status) return status;
    if (!t->ended && t->step >= t->config->train.steps && t->spoiled)
        end_run(t, SYI_END_NAN,
                "after %" PRId64 " steps the weights hold numbers that are not finite: they are not saved",
                t->step);
    if (!t->ended && t->step >= t->config->train.steps)
        end_run(t, SYI_END_DONE, "done after %" PRId64 " steps", t->step);
    if (!t->ended) status = look_for_stop(t, err);
    if (!status && is_checkpoint_due(t)) status = save(t, err);
    return status;
}

int syi_trainer_loop(struct syi_trainer *t, struct sy_error *err)
{
    int status;

    t->loop_begin = syi_seconds();
    t->loop_step = t->step;
    syi_rank_log_begin(&t->log, t->rank, t->engine, t->step);
    for (;;) {
        status = between_steps(t, err);
        if (status || t->ended) return status;
        status = train_step(t, err);
        if (status) return status;
    }
}
