/* SPDX-License-Identifier: Apache-2.0 */
/* When training saves, what belongs into a checkpoint besides tensors, and what follows when one is on disk or could not
 * be written. A save goes on beside the steps (train/checkpoint/checkpoint.h) unless checkpoint.background is false; one at
 * a time, and the last of the run is waited for. */
#include "config.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "train/trainer/rollback.h"
#include "train/trainer/trainer_internal.h"

enum { FLUSH_SECONDS = 2 }; /* that a checkpoint waits for the sink */

int syi_trainer_is_to_be_kept(const struct syi_trainer *t)
{
    int64_t step[SYI_ACTIONS_KEPT];
    int n = syi_actions_kept(&t->actions, step);
    if (syi_actions_best_step(&t->actions) == t->step) return 1;
    for (int i = 0; i < n; i++)
        if (step[i] == t->step) return 1;
    return 0;
}

/* Whether there is nothing yet that a bad step could send the run back to. */
static int needs_first(const struct syi_trainer *t)
{
    return syi_trainer_newest(t) < 0 && syi_actions_need_checkpoint(&t->actions);
}

/* The weights of the best evaluation are saved at once, so that they are there whatever happens later; so are those
 * that a bad step may send the run back to, before the first. */
int syi_trainer_is_save_due(const struct syi_trainer *t)
{
    int64_t every = t->config->train.checkpoint_every;
    if (t->saved == t->step || t->spoiled) return 0;
    if (t->overdue || (t->retry_steps && t->step >= t->retry)) return 1;
    if (needs_first(t)) return 1;
    return t->ended || syi_trainer_is_to_be_kept(t) || (every && t->step && t->step % every == 0);
}

/* ---- beginning one ---- */

static struct syi_checkpoint_meta describe(const struct syi_trainer *t)
{
    struct syi_checkpoint_meta meta = {
        .step = t->step,
        .evaluated = t->evaluated,
        .train = t->data.mixture.id,
    };
    int64_t batches = syi_holes_place(&t->holes, t->step);
    if (__builtin_mul_overflow(batches, t->config->data.batch_size, &meta.examples))
        meta.examples = INT64_MAX;
    meta.holes = t->holes;
    if (t->rows.row <= meta.examples) meta.rows = t->rows; /* else of the larger batches that it had before */
    meta.valid = syi_evaluations_id(&t->evaluations, t->evaluations.n);
    syi_actions_put(&t->actions, &meta);
    syi_step_sums_put(&t->sums, t->config, &meta);
    return meta;
}

/* A folder that was moved or removed under the run has been made again for the checkpoint, which --resume finds by its run.conf
 * alone. This may be the saver's thread: the trainer tells of it when the save has ended. */
static int keep_run_conf(struct syi_trainer *t, struct sy_error *err)
{
    if (!t->job->begun || syi_run_dir_exists(t->job->dir->path)) return SY_OK;
    int status = t->job->begun(t->job->open_arg, err);
    t->config_again = !status;
    return status;
}

static void tell_of_run_conf(struct syi_trainer *t, int64_t step)
{
    char text[SYI_CONFIG_STRING + 120];
    if (!t->config_again) return;
    t->config_again = 0;
    snprintf(text, sizeof text,
             "%s/run.conf was moved or removed: it is written again, for --resume to go on",
             t->job->dir->path);
    syi_trainer_warn(t, step, "warning", text);
}

/* Between the files of a checkpoint and the name that makes it count: a kill before leaves a run that goes on
 * from the checkpoint before, one after leaves the rows. So the loss curve of a run that goes on has no gap. A run
 * directory that was taken over meanwhile gets no name any more. */
static int before_the_name(void *arg, struct sy_error *err)
{
    struct syi_trainer *t = arg;
    int status = syi_run_dir_beat(t->job->dir, 0, err);
    if (!status) status = keep_run_conf(t, err);
    if (!status) syi_trainer_flush(t, FLUSH_SECONDS);
    return status;
}

/* In turns, so that at most checkpoint.writers ranks of a node write at the same time. */
static void choose_turn(const struct syi_trainer *t, struct syi_checkpoint_saving *saving)
{
    const struct syi_node *node = &t->rank->node;
    int writers = (int)t->config->checkpoint.writers;
    if (!writers) return;
    saving->turn = node->place / writers;
    saving->turns = (node->largest + writers - 1) / writers;
}

static void begin_save(struct syi_trainer *t, int background)
{
    int64_t kept[SYI_ACTIONS_KEPT];
    struct syi_checkpoint_meta meta = describe(t);
    struct syi_checkpoint_saving saving = {.keep = (int)t->config->train.keep_checkpoints,
                                           .keep_every = t->config->checkpoint.keep_every,
                                           .besides = kept,
                                           .n_besides = syi_actions_kept(&t->actions, kept),
                                           .leaves = syi_state_leaves_written(&t->state, t->config),
                                           .written = before_the_name,
                                           .arg = t};
    choose_turn(t, &saving);
    syi_state_leaves_set(&t->state, t->step, syi_schedule_value(&t->schedule, t->step));
    syi_saver_begin(t->saver, &meta, &saving, background);
}

/* ---- its end ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* After which step a save is tried next, from that one on: again, or because one is due anyway, at the end at last. */
static int64_t next_try(const struct syi_trainer *t, int64_t from)
{
    int64_t every = t->config->train.checkpoint_every, next = least(t->retry, t->config->train.steps);
    if (needs_first(t)) return from;
    return every ? least(next, from + (every - from % every) % every) : next;
}

/* A disk that is full now may not be so soon, and hours of work are worth more than a checkpoint: training goes on
 * and saves again after 1 step, 2 more, 4 more, at most 1024 more: all ranks count steps alike.
 * train.checkpoint_seconds count on beside them. */
static void go_on_unsaved(struct syi_trainer *t, const struct syi_saved *saved)
{
    const struct sy_error *failure = &saved->failure;
    int64_t from = t->step > saved->step ? t->step : saved->step + 1; /* what can be saved from now on */
    char text[sizeof failure->text + 100];

    t->saved = -1;
    if (!t->retry_steps) t->retry_steps = 1;
    t->retry = saved->step + t->retry_steps;
    if (t->retry < from) t->retry = from;
    if (t->ended)
        snprintf(text, sizeof text, "%s", failure->text);
    else
        snprintf(text, sizeof text,
                 "%s; %straining goes on and tries again after step %" PRId64 " at the latest", failure->text,
                 t->newest < 0 ? "" : "earlier ones are kept, ", next_try(t, from));
    syi_trainer_warn(t, saved->step, "save_failed", text);
}

static int go_on_saved(struct syi_trainer *t, const struct syi_saved *saved, struct sy_error *err)
{
    struct syi_moment moment = {.kind = SYI_AFTER_CHECKPOINT};
    char text[64];

    t->newest = saved->step;
    t->retry_steps = 0;
    memcpy(t->weights, saved->params_sha256, sizeof(t->weights));
    syi_trainer_write_seconds(t, saved->step, "timing/checkpoint_seconds", saved->seconds);
    syi_trainer_write_seconds(t, saved->step, "timing/checkpoint_pause_seconds", t->pause);
    snprintf(text, sizeof(text), "checkpoint of step %" PRId64 " saved", saved->step);
    syi_trainer_say(t, "%s", text);
    syi_trainer_event_at(t, saved->step, "checkpoint", text);
    return syi_trainer_ask(t, saved->step, &moment, err);
}

int syi_trainer_note_save(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_saved saved;
    if (!syi_saver_take(t->saver, &saved)) return SY_OK;
    tell_of_run_conf(t, saved.step);
    if (!saved.failure.code) return go_on_saved(t, &saved, err);
    go_on_unsaved(t, &saved);
    return SY_OK;
}

/* Ranks that wait in vain for one say what for. */
static int wait_for_saver(struct syi_trainer *t, struct sy_error *err)
{
    struct sy_error cause = {0};
    int status = syi_saver_wait(t->saver, &cause);
    if (!status) return SY_OK;
    return syi_error(err, status, "after step %" PRId64 ", writing a checkpoint: %s", t->step, cause.text);
}

int syi_trainer_wait_save(struct syi_trainer *t, struct sy_error *err)
{
    double begin = syi_seconds();
    int status = wait_for_saver(t, err);
    t->pause += syi_seconds() - begin;
    return status ? status : syi_trainer_note_save(t, err);
}

int syi_trainer_advance_save(struct syi_trainer *t, const int64_t sum[SYI_SAVER_WORDS], struct sy_error *err)
{
    double begin = syi_seconds();
    int status = syi_saver_advance(t->saver, sum, err);
    t->pause += syi_seconds() - begin;
    return status;
}

/* ---- saving ---- */

/* At the end of the run there is nothing to do beside it. The last chance of these weights is taken more than once:
 * after 1, 3 and 7 s. All ranks see the same failures, so all come to the same tries. */
static int save_last(struct syi_trainer *t, struct sy_error *err)
{
    enum { LAST_TRIES = 4 };
    for (int try = 1;; try++) {
        struct syi_saved saved;
        begin_save(t, 0);
        int status = wait_for_saver(t, err);
        if (status || !syi_saver_take(t->saver, &saved)) return status;
        if (!saved.failure.code) {
            t->pause += syi_seconds();
            return go_on_saved(t, &saved, err);
        }
        if (try == LAST_TRIES)
            return syi_error(err, saved.failure.code, "%s; %s", saved.failure.text,
                             t->newest < 0
                                 ? "there is no earlier one, so --resume starts fresh"
                                 : "earlier ones are kept, --resume goes on from the newest of them");
        nanosleep(&(struct timespec){.tv_sec = 1 << (try - 1)}, NULL);
    }
}

/* A try that was due anyway is none of the tries again: the wait, which counts from the newest failure, grows with those alone. */
static void count_retry(struct syi_trainer *t)
{
    if (t->retry_steps && t->step >= t->retry) t->retry_steps = least(2 * t->retry_steps, 1024);
    t->retry = INT64_MAX; /* until it is known how this one ended */
}

/* The sink writes its rows beside the weights. These are on disk whatever becomes of it, and wait for it only for
 * moments before they count. */
int syi_trainer_save(struct syi_trainer *t, struct sy_error *err)
{
    int status = syi_trainer_wait_save(t, err);
    if (status) return status;
    t->pause = -syi_seconds();
    if (t->rank->rank == 0) status = syi_run_dir_beat(t->job->dir, 0, err);
    if (!status) status = syi_engine_average(t->engine, err);
    if (status) return status;
    syi_trainer_flush(t, 0);
    t->saved = t->step;
    t->saved_at = syi_seconds();
    t->overdue = 0;
    count_retry(t);
    if (t->ended) return save_last(t, err);
    begin_save(t, t->config->checkpoint.background);
    t->pause += syi_seconds();
    return t->config->checkpoint.background ? SY_OK : syi_trainer_wait_save(t, err);
}
