/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of one rank: step, numbers, and between two steps evaluation, stopping and saving. All
 * ranks run it and decide alike: numbers are equal on all of them, the clock is rank 0's, a signal counts on
 * any. A step allocates nothing. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/compat.h"
#include "optim/optim.h"
#include "train/engine/bad_tensor.h"
#include "train/trainer/rollback.h"

static int is_first(const struct syi_trainer *t)
{
    return t->rank->rank == 0;
}

/* ---- one step ---- */

static void show_progress(struct syi_trainer *t, const struct syi_step_result *result, double now)
{
    struct syi_progress progress = {
        .step = t->step,
        .steps = t->config->train.steps,
        .loss = result->loss,
        .learning_rate = t->part_rate[0],
        .tokens_per_second = syi_timing_tokens_per_second(&t->timing),
        .step_seconds = syi_timing_median(&t->timing),
    };

    if (!is_first(t) || !t->job->report.progress) return;
    progress.seconds_left =
        (now - t->loop_begin) / (double)(t->step - t->loop_step) * (double)(progress.steps - t->step);
    t->job->report.progress(t->job->report.arg, &progress);
}

/* Of several bad steps one after the other the first alone is looked into. */
static int tell_first_bad(struct syi_trainer *t, struct sy_error *err)
{
    char tensor[SYI_BAD_TEXT], text[SYI_BAD_TEXT + 80];
    int status;

    if (t->bad) return SY_OK;
    status = syi_engine_find_bad(t->engine, t->batch, t->step, tensor, err);
    if (status) return status;
    snprintf(text, sizeof text, "the first tensor of step %" PRId64 " that is not finite: %s", t->step + 1,
             tensor);
    syi_trainer_say(t, "%s", text);
    syi_trainer_event(t, "first_not_finite", text);
    return SY_OK;
}

/* What is found out about a step that is made, and what actions say to it. */
static int look_into(struct syi_trainer *t, const struct syi_step_result *result, struct sy_error *err)
{
    struct syi_moment moment = {
        .kind = SYI_AFTER_STEP, .result = result, .batch = t->batch, .sums = &t->sums};
    int bad = syi_step_is_bad(t->config, result), status = SY_OK;

    if (bad && syi_compat(t->config, t->config->train.nan_check))
        t->spoiled = 1; /* its weights are no longer those that it was computed with */
    else if (bad)
        status = tell_first_bad(t, err);
    t->bad = bad;
    if (bad && !status) status = syi_trainer_wait_save(t, err); /* what can be gone back to must be known */
    return status ? status : syi_trainer_ask(t, t->step, &moment, err);
}

/* A bad step that ends the run is not counted: its update was left out, so the weights are those before it,
 * or it spoiled them and they are saved no more. */
static int after_step(struct syi_trainer *t, const struct syi_step_result *result, double now,
                      struct sy_error *err)
{
    int status;

    t->made = 1;
    status = look_into(t, result, err);
    t->made = 0;
    if (status || (t->ended && t->bad)) return status;
    t->step++;
    if (t->back) return syi_trainer_go_back(t, t->step, err);
    syi_trainer_write_step(t, result);
    if (result->weighed) syi_trainer_write_weights(t, result);
    show_progress(t, result, now);
    if (t->step % t->config->train.log_every == 0 || t->step >= t->config->train.steps)
        syi_rank_log_steps(&t->log, t->rank, t->step, t->config->train.steps);
    return SY_OK;
}

/* What counts as a target token of a step: T5X counts padding. */
static int64_t targets_of(const struct syi_trainer *t, const struct syi_step_result *result)
{
    int all = syi_compat(t->config, t->config->metrics.divide_by);
    return all ? (int64_t)t->batch->rows * t->batch->target_length : result->target_tokens;
}

/* What the step that was made moved by; rate: that of the run. */
static void note_rates(struct syi_trainer *t, double rate)
{
    const struct syi_chain *chains = syi_engine_chains(t->engine);
    for (int i = 0; i < t->config->optimizer.n; i++)
        t->part_rate[i] = syi_chain_rate(&chains[i], t->step, rate) * syi_actions_rate_factor(&t->actions);
}

/* The batch of the step to come. */
static int read_next(struct syi_trainer *t, struct sy_error *err)
{
    double begin = syi_seconds();
    int status = syi_train_data_get(&t->data, syi_holes_place(&t->holes, t->step), &t->next, err);
    if (status) t->next = NULL;
    t->read_seconds = syi_seconds() - begin;
    return status;
}

/* It is read already, unless the run has just gone back. */
static int train_step(struct syi_trainer *t, struct sy_error *err)
{
    double rate = syi_schedule_value(&t->schedule, t->step), begin, now;
    struct syi_step_result result;
    int status = t->next ? SY_OK : read_next(t, err), first = t->step == t->loop_step;

    if (status) return status;
    begin = syi_seconds() - t->read_seconds;
    t->batch = t->next;
    t->next = NULL;
    t->rows = t->batch->position;
    if (first) syi_trainer_write_seconds(t, t->step, "timing/train_iter_warmup", t->read_seconds);
    status = syi_engine_step(t->engine, t->batch, t->step, rate, &result, err);
    if (status) return status;
    now = syi_seconds();
    syi_timing_add(&t->timing, now - begin, result.input_tokens + result.target_tokens);
    syi_rates_add(&t->rates, now - begin, t->batch->rows, targets_of(t, &result));
    note_rates(t, rate);
    syi_step_sums_add(&t->sums, t->config, t->step, t->batch, &result);
    status = after_step(t, &result, now, err);
    if (first) syi_trainer_write_seconds(t, t->step, "timing/first_step_seconds", now - begin);
    return status;
}

/* ---- between two steps ---- */

/* Whether work of train.checkpoint_seconds would be lost now, by rank 0's clock. */
static int is_overdue(const struct syi_trainer *t)
{
    int64_t most = t->config->train.checkpoint_seconds;
    return is_first(t) && most && syi_seconds() - t->saved_at >= (double)most;
}

static void end_late(struct syi_trainer *t, enum syi_deadline_kind kind)
{
    char why[100];
    syi_deadline_text(t->config, kind, why, sizeof why);
    syi_trainer_end(t, SYI_END_TIME_LIMIT, "%s after step %" PRId64 "; --resume goes on", why, t->step);
}

/* All ranks are here: the run says why the lowest of those that cannot read does not. */
static int end_unread(struct syi_trainer *t, struct sy_error *err)
{
    struct sy_error why = t->unread;
    int status = syi_comm_failure(t->rank->comm, &why, err);
    if (status) return status;
    syi_trainer_end(t, SYI_END_DATA,
                    "stopped after step %" PRId64
                    ", for data cannot be read: %.300s; once they can be, --resume goes on",
                    t->step, why.text);
    return SY_OK;
}

/* What all ranks must know alike after a step, in one sum: whether the run is asked to stop, by a signal that
 * any rank got, the time limit as rank 0 sees it, its failed sink or data that a rank cannot read, whether a
 * checkpoint is overdue, whether it is asked to move to another backend, and how far the checkpoint that is
 * being written has come. */
static int agree(struct syi_trainer *t, struct sy_error *err)
{
    enum { SIGNAL, LATE, SINK, UNREAD, OVERDUE, MOVE, SAVER, WORDS = SAVER + SYI_SAVER_WORDS };
    int64_t word[WORDS]; /* ranks that say so; LATE: rank 0's enum syi_deadline_kind */
    struct sy_error cause = {0};
    int status = is_first(t) ? syi_run_dir_beat(t->job->dir, SYI_HEARTBEAT, err) : SY_OK;

    if (status) return status;
    word[SIGNAL] = t->job->stop && atomic_load(t->job->stop);
    word[LATE] = is_first(t) ? (int64_t)syi_deadline_passed(&t->deadline) : 0;
    word[SINK] = t->sink_failed && t->config->metrics.on_failure == SYI_ON_FAILURE_STOP;
    word[UNREAD] = t->unread.code != SY_OK;
    word[OVERDUE] = is_overdue(t);
    word[MOVE] = is_first(t) && syi_trainer_is_asked(t);
    syi_saver_words(t->saver, &word[SAVER]);
    status = syi_comm_sum(t->rank->comm, word, WORDS, &cause);
    if (status)
        return syi_error(err, status, "after step %" PRId64 ", asking all ranks whether to go on: %s",
                         t->step, cause.text);
    if (word[SIGNAL])
        syi_trainer_end(t, SYI_END_SIGNAL, "stopped by a signal after step %" PRId64 "; --resume goes on",
                        t->step);
    else if (word[LATE])
        end_late(t, (enum syi_deadline_kind)word[LATE]);
    else if (word[SINK])
        syi_trainer_end(t, SYI_END_SINK,
                        "stopped after step %" PRId64
                        ", for the metrics database failed and metrics.on_failure is stop; "
                        "--resume goes on",
                        t->step);
    else if (word[UNREAD])
        status = end_unread(t, err);
    t->overdue = word[OVERDUE] != 0;
    t->asked |= word[MOVE] != 0;
    return status ? status : syi_trainer_advance_save(t, &word[SAVER], err);
}

static int poll_stop(void *arg, struct sy_error *err)
{
    struct syi_trainer *t = arg;
    int status = agree(t, err);
    return !status && t->ended ? SY_ESTOPPED : status;
}

/* Every so many steps (0: never), and at the end. */
static int is_due(const struct syi_trainer *t, int64_t every)
{
    return t->step >= t->config->train.steps || (every && t->step && t->step % every == 0);
}

static int is_decoding_due(const struct syi_trainer *t)
{
    return is_due(t, t->config->train.decode_every);
}

static int is_evaluation_due(const struct syi_trainer *t)
{
    if (!t->evaluations.n || t->evaluated == t->step) return 0;
    return is_decoding_due(t) || is_due(t, t->config->train.evaluate_every);
}

/* One that is cut short by a stop counts as not made: a resumed run makes it first. */
static int evaluate(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_evaluations *e = &t->evaluations;
    struct syi_moment moment = {.kind = SYI_AFTER_EVALUATION, .evaluated = e->result, .n_evaluated = e->n};
    int decode = !t->config->train.decode_every || is_decoding_due(t);
    double begin = syi_seconds();
    int status = syi_engine_average(t->engine, err);

    if (!status) status = syi_evaluations_run(e, decode, poll_stop, t, err);
    if (status == SY_ESTOPPED && t->ended) return SY_OK;
    if (status) return status;
    for (int i = 0; i < e->n; i++) {
        syi_trainer_write_eval(t, &e->result[i]);
        if (is_first(t) && t->job->report.eval)
            t->job->report.eval(t->job->report.arg, t->step, &e->result[i]);
    }
    syi_trainer_write_seconds(t, t->step, "timing/evaluate_seconds", syi_seconds() - begin);
    t->evaluated = t->step;
    status = syi_trainer_ask(t, t->step, &moment, err);
    if (syi_trainer_is_to_be_kept(t)) t->saved = -1; /* what was saved before does not know of it */
    return status;
}

static int between_steps(struct syi_trainer *t, struct sy_error *err)
{
    int status = SY_OK;

    if (!t->ended && is_evaluation_due(t)) status = evaluate(t, err);
    if (status) return status;
    if (t->back) return syi_trainer_go_back(t, t->step, err);
    if (!t->ended && t->step >= t->config->train.steps && t->spoiled)
        syi_trainer_end(t, SYI_END_NAN,
                        "after %" PRId64
                        " steps the weights hold numbers that are not finite: they are not saved",
                        t->step);
    if (!t->ended && t->step >= t->config->train.steps)
        syi_trainer_end(t, SYI_END_DONE, "done after %" PRId64 " steps", t->step);
    if (!t->ended) (void)!read_next(t, &t->unread); /* what fails is told to all */
    if (!t->ended) status = agree(t, err);
    if (!status && t->asked && !t->ended) status = syi_trainer_move(t, err);
    if (!status) status = t->ended ? syi_trainer_wait_save(t, err) : syi_trainer_note_save(t, err);
    if (!status && syi_trainer_is_save_due(t)) status = syi_trainer_save(t, err);
    return status;
}

int syi_trainer_loop(struct syi_trainer *t, struct sy_error *err)
{
    int status;

    t->loop_begin = t->saved_at = syi_seconds();
    t->loop_step = t->step;
    syi_trainer_write_seconds(t, t->step, "timing/compilation_seconds", t->compile_seconds);
    syi_trainer_write_seconds(t, t->step, "timing/init_or_restore_seconds", t->restore_seconds);
    syi_trainer_write_seconds(t, t->step, "timing/set_up_seconds", t->loop_begin - t->begin);
    syi_rank_log_begin(&t->log, t->rank, t->engine, t->step);
    for (;;) {
        status = between_steps(t, err);
        if (status || t->ended) return status;
        status = train_step(t, err);
        if (status) return status;
    }
}
