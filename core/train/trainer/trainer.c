/* SPDX-License-Identifier: Apache-2.0 */
/* syi_train: opens the data, makes a trainer on every rank, then the run directory, continues from a checkpoint if
 * asked to, runs the loop (train_loop.c) and says how it ended. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "train/launch/common_files.h"
#include "train/launch/move_file.h"
#include "train/trainer/trainer_internal.h"

/* One process's part of a training: the files, read once for all of its ranks. */
struct training {
    const struct syi_train_job *job;
    struct syi_train_result *result;
    struct syi_eval_files valid;
    double begin;     /* seconds */
    atomic_flag told; /* a rank of this process has said how the run ended */
};

/* ---- setting up a rank ---- */

/* How often packed rows come round to an example follows from how full they are, so it is not foretold. */
static void introduce_data(struct syi_trainer *t)
{
    const struct syi_mixture *m = &t->data.mixture;
    int64_t steps = t->config->train.steps, rows = t->config->data.batch_size;
    for (int i = 0; i < m->n; i++) {
        const struct syi_dataset *d = &m->dataset[i];
        char share[64] = "", epochs[96] = "";
        if (m->n > 1) snprintf(share, sizeof share, ", %.3g %% of the mixture", 100 * m->rate[i]);
        if (!t->config->data.pack)
            snprintf(epochs, sizeof epochs, "; %" PRId64 " steps of %" PRId64 " are %.3g epochs", steps, rows,
                     syi_mixture_epochs(m, i, (double)steps * (double)rows));
        syi_trainer_say(t, "%s: %" PRId64 " examples, %" PRId64 " %s as too long%s%s", d->source.pattern,
                        d->counts.examples, d->counts.too_long,
                        d->form.task->too_long == SYI_TOO_LONG_TRIM ? "cut" : "left out", share, epochs);
    }
}

static void introduce(struct syi_trainer *t)
{
    const struct syi_model *model = syi_engine_model(t->engine);
    char text[512];

    syi_rank_describe(t->rank, text, sizeof(text));
    syi_trainer_say(t, "%s", text);
    syi_trainer_say(t, "model: %" PRId64 " parameters in %zu tensors", syi_engine_parameters(t->engine),
                    model->n);
    introduce_data(t);
    syi_trainer_event(t, "launch", text);
    if (*t->data.copied) {
        syi_trainer_say(t, "%s", t->data.copied);
        syi_trainer_event(t, "stage", t->data.copied);
    }
    for (int i = 0; i < t->evaluations.n; i++) {
        syi_evaluation_describe(&t->evaluations.part[i], text, sizeof(text));
        syi_trainer_say(t, "%s", text);
    }
}

static int compile_schedule(struct syi_trainer *t, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    int status = syi_schedule_compile_run(&t->schedule, t->config, reason);
    return status ? syi_error(err, status, "train.lr_factors: %s", reason) : SY_OK;
}

static int open_rank(struct syi_trainer *t, const struct training *training, struct sy_error *err)
{
    int use = SYI_USE_TRAIN | syi_eval_files_use(&training->valid), status = compile_schedule(t, err);

    if (t->config->checkpoint.background) use |= SYI_USE_SNAPSHOT;
    if (status) return status;
    syi_timing_init(&t->timing);
    t->routing = syi_alloc((size_t)(2 * t->config->moe.num_experts + 1) * sizeof(*t->routing), err);
    if (!t->routing) return SY_ENOMEM;
    t->compile_seconds = -syi_seconds();
    status = syi_engine_new(t->config, t->rank, use, 0, &t->engine, err);
    t->compile_seconds += syi_seconds();
    if (!status) status = syi_state_leaves_make(&t->state, t->engine, err);
    struct syi_train_reader reader = {.rank = t->rank,
                                      .engine = t->engine,
                                      .run_dir = t->job->dir->path,
                                      .ahead = (int)t->config->data.prefetch};
    if (!status) status = syi_train_data_open(&t->data, t->config, &reader, err);
    if (!status)
        status = syi_evaluations_open(&t->evaluations, &training->valid, t->config, t->engine, t->rank,
                                      &t->job->report, err);
    for (int i = 0; i < t->evaluations.n; i++) t->evaluations.part[i].unread = &t->unread;
    if (!status)
        status =
            syi_saver_new(t->job->dir->path, syi_engine_session(t->engine), t->rank->comm, &t->saver, err);
    return status;
}

static void close_rank(struct syi_trainer *t)
{
    syi_saver_free(t->saver);
    syi_evaluations_close(&t->evaluations);
    syi_actions_close(&t->actions);
    syi_train_data_close(&t->data);
    syi_state_leaves_free(&t->state);
    syi_init_report_free(&t->init);
    syi_engine_free(t->engine);
    syi_rank_log_close(&t->log);
    syi_free(t->routing);
}

/* ---- actions ---- */

static void on_event(void *arg, const char *kind, const char *text)
{
    struct syi_trainer *t = arg;
    syi_trainer_say(t, "%s: %s", kind, text);
    syi_trainer_event(t, kind, text);
}

static void on_warning(void *arg, const char *text)
{
    struct syi_trainer *t = arg;
    syi_trainer_warn(t, syi_trainer_at(t), "action", text);
}

/* Whoever stops it may end it by force soon. Other ranks' signals are known after the next step. */
static int is_to_stop(void *arg)
{
    const struct syi_trainer *t = arg;
    return (t->job->stop && atomic_load(t->job->stop)) || syi_deadline_passed(&t->deadline) ||
           (t->ended && (t->end == SYI_END_SIGNAL || t->end == SYI_END_TIME_LIMIT));
}

static int open_actions(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_action_report report = {
        .arg = t, .event = on_event, .warning = on_warning, .is_to_stop = is_to_stop};
    return syi_actions_open(&t->actions, t->config, t->rank->comm, t->job->dir->path, &report, err);
}

/* Before the first step, and after the last. */
static int ask_at(struct syi_trainer *t, enum syi_moment_kind kind, struct sy_error *err)
{
    struct syi_moment moment = {.kind = kind, .text = kind == SYI_AT_END ? t->what : NULL};
    return syi_trainer_ask(t, t->step, &moment, err);
}

/* ---- starting or going on ---- */

/* Calls fn for each line of a text. */
static void each_line(struct syi_trainer *t, const struct syi_text *text,
                      void (*fn)(struct syi_trainer *t, const char *line))
{
    const char *at = text->data;
    while (at && *at) {
        char line[800];
        size_t n = strcspn(at, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line) - 1), at);
        fn(t, line);
        at += n + (at[n] == '\n');
    }
}

/* what: the files. 1: they are not those in the checkpoint's meta.json; text: in what they differ. */
static int has_changed(const struct syi_trainer *t, const char *what, const struct syi_file_id *now,
                       const struct syi_file_id *before, char *text, size_t bytes)
{
    if (!before->sha256[0] || !strcmp(before->sha256, now->sha256)) return 0;
    snprintf(text, bytes,
             "%s changed since the checkpoint of step %" PRId64 ": it had %" PRId64 " lines, %" PRId64
             " bytes and SHA-256 %.16s..., now %" PRId64 " lines, %" PRId64 " bytes and %.16s...",
             what, t->step, before->lines, before->bytes, before->sha256, now->lines, now->bytes,
             now->sha256);
    return 1;
}

/* A line where evaluations of the run had other files before. The checkpoint may know the first of them alone: those after may
 * be new, and earlier versions kept no more. */
static void check_valid(struct syi_trainer *t, const struct syi_checkpoint_meta *meta)
{
    const struct syi_evaluations *e = &t->evaluations;
    struct syi_file_id now = {0};
    char what[1200] = "the files of task.NAME.valid, which count as one here, have", text[1600];
    for (int n = 1; n <= e->n; n++) {
        now = syi_evaluations_id(e, n);
        if (!strcmp(now.sha256, meta->valid.sha256)) return;
    }
    if (e->n == 1)
        snprintf(what, sizeof(what), "task.%s.valid: %s has", e->part[0].data->options->name_of_part,
                 e->part[0].data->task.path);
    if (e->n && has_changed(t, what, &now, &meta->valid, text, sizeof(text)))
        syi_trainer_say(t, "%s; evaluations before and after do not compare", text);
}

/* Which example a step takes follows from its number and the file: with other contents the run would silently be
 * another one. What only evaluations read changes no weights. */
static int check_data(struct syi_trainer *t, const struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    char what[1200] = "", text[1600];

    if (!meta->train.sha256[0])
        syi_trainer_say(
            t, "the checkpoint does not say which data it was trained on: changes are not looked for");
    check_valid(t, meta);
    syi_train_data_name(t->config, what, sizeof(what));
    if (!has_changed(t, what, &t->data.mixture.id, &meta->train, text, sizeof(text))) return SY_OK;
    if (!t->config->data.allow_changes)
        return syi_error(
            err, SY_EMISMATCH,
            "%s; put the old contents back, or set data.allow_changes=true to go on with the new", text);
    syi_trainer_say(t, "%s", text);
    syi_trainer_event(t, "data", text);
    return SY_OK;
}

/* An event for each key that has another value since the checkpoint. */
static void write_change(struct syi_trainer *t, const char *line)
{
    syi_trainer_event(t, "setting", line);
}

static int load(struct syi_trainer *t, int64_t step, struct sy_error *err)
{
    struct syi_moment moment = {.kind = SYI_AFTER_RESUME};
    struct syi_checkpoint_meta meta = {0};
    double begin = syi_seconds();
    int status = syi_checkpoint_resume(t->job->dir->path, step, syi_engine_session(t->engine), t->rank->comm,
                                       &t->state.leaves, &meta, err);

    syi_engine_params_changed(t->engine);
    t->restore_seconds += syi_seconds() - begin;
    if (status) return status;
    syi_actions_take(&t->actions, &meta);
    syi_step_sums_take(&t->sums, t->config, &meta);
    t->holes = meta.holes;
    t->rows = meta.rows;
    syi_prefetch_seek(&t->data.prefetch, meta.rows);
    t->step = t->saved = t->newest = meta.step;
    t->evaluated = meta.evaluated;
    memcpy(t->weights, meta.params_sha256, sizeof(t->weights));
    syi_trainer_say(t, "going on from the checkpoint of step %" PRId64, t->step);
    syi_trainer_event(t, "resume", "going on from a checkpoint");
    if (t->job->changes) each_line(t, t->job->changes, write_change);
    status = check_data(t, &meta, err);
    return status ? status : syi_trainer_ask(t, t->step, &moment, err);
}

/* *latest: step of the checkpoint to go on from, -1: none. Rank 0 looks for it: what other ranks see of its folder
 * may be old. */
static int find_checkpoint(struct syi_trainer *t, int64_t *latest, struct sy_error *err)
{
    int status = SY_OK;
    *latest = -1;
    if (t->job->resume && t->rank->rank == 0) status = syi_checkpoint_latest(t->job->dir->path, latest, err);
    return status ? status : syi_comm_broadcast(t->rank->comm, latest, 1, err);
}

/* Where there is no checkpoint to go on from. Before the run directory is opened, so that weights which cannot be taken
 * leave none. */
static int draw_or_take(struct syi_trainer *t, struct sy_error *err)
{
    double begin = syi_seconds();
    int64_t latest;
    int status = find_checkpoint(t, &latest, err);

    t->drawn = latest < 0;
    if (!status && t->drawn)
        status = syi_init_weights(t->engine, t->config, t->rank, &t->state.leaves, &t->init, err);
    t->restore_seconds += syi_seconds() - begin;
    return status;
}

static void tell_note(struct syi_trainer *t, const char *line)
{
    syi_trainer_say(t, "%s", line);
    syi_trainer_event(t, "init", line);
}

/* What is not simply taken. */
static void log_tensor(struct syi_trainer *t, const char *line)
{
    if (strncmp(line, "taken\t", 6)) syi_run_dir_log(t->job->dir, line);
}

static int tell_init(struct syi_trainer *t, struct sy_error *err)
{
    int taken = *t->config->train.init_from != '\0';

    syi_trainer_event(t, "start", taken ? "starting with weights of another run" : "starting fresh");
    if (!taken) return SY_OK;
    each_line(t, &t->init.notes, tell_note);
    if (t->rank->rank != 0) return SY_OK;
    each_line(t, &t->init.tensors, log_tensor);
    return syi_init_report_write(&t->init, t->job->dir, err);
}

/* Weights and place of the run. Before it was opened, another process may have saved a checkpoint in it. */
static int begin(struct syi_trainer *t, struct sy_error *err)
{
    const char *folder = t->job->dir->path;
    int64_t latest;
    int status = SY_OK;

    t->evaluated = t->saved = t->newest = -1;
    if (t->rank->rank == 0) syi_move_clean(folder);
    if (t->rank->rank == 0) status = syi_checkpoint_clean(folder, err);
    if (!status) status = find_checkpoint(t, &latest, err);
    if (status) return status;
    if (latest >= 0) return load(t, latest, err);
    if (t->job->resume) syi_trainer_say(t, "no checkpoint in %s: starting fresh", folder);
    if (!t->drawn)
        return syi_error(err, SY_ENOENT, "%s held a checkpoint to go on from, which is gone now: start again",
                         folder);
    t->step = t->init.step;
    return tell_init(t, err);
}

/* The run directory says what the run is from now on. Where less is asked for than is done already nothing is trained, and it
 * stays as it was: else a later --resume would take that for the end of the run. */
static int tell_begun(struct syi_trainer *t, struct sy_error *err)
{
    const struct syi_train_job *job = t->job;
    if (t->step > t->config->train.steps) {
        syi_trainer_say(t,
                        "train.steps = %" PRId64 " is less than the %" PRId64
                        " steps that are done: nothing is trained, run.conf stays as it was",
                        t->config->train.steps, t->step);
        return SY_OK;
    }
    if (t->step && t->step == t->config->train.steps)
        syi_trainer_say(t, "all %" PRId64 " steps of train.steps are done: nothing is left to train",
                        t->step);
    return t->rank->rank == 0 && job->begun ? job->begun(job->open_arg, err) : SY_OK;
}

/* ---- the whole ---- */

static void tell_end(struct syi_trainer *t, struct training *training)
{
    static const char *const kind[] = {
        [SYI_END_DONE] = "done",         [SYI_END_STOPPED_EARLY] = "stop", [SYI_END_NAN] = "stop",
        [SYI_END_SIGNAL] = "preemption", [SYI_END_TIME_LIMIT] = "stop",    [SYI_END_SINK] = "stop",
        [SYI_END_DATA] = "stop"};
    struct syi_train_result *result = training->result;

    if (!atomic_flag_test_and_set(&training->told)) {
        result->end = t->end;
        result->steps = t->step;
        memcpy(result->what, t->what, sizeof(result->what));
    }
    if (t->rank->rank != 0) return;
    result->median_step_seconds = syi_timing_median(&t->timing);
    memcpy(result->weights_sha256, t->weights, sizeof(result->weights_sha256));
    syi_run_dir_log(t->job->dir, t->what);
    syi_trainer_event(t, kind[t->end], t->what);
}

static int open_output(void *trainer, struct sy_error *err)
{
    const struct syi_trainer *t = trainer;
    return t->job->open(t->job->open_arg, t->rank, err);
}

/* Once every rank has all it needs, rank 0 opens the run directory, when it is free: what fails before leaves none. */
static int open_run(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_busy busy = syi_busy_begin(t->rank->comm);
    int log, status = syi_config_log_ranks(t->config, &log, err);
    if (!status) status = syi_comm_barrier(t->rank->comm, err);
    if (!status && t->rank->rank == 0) status = syi_busy_run(&busy, open_output, t, err);
    if (!status) status = syi_busy_end(&busy, err);
    if (!status) status = syi_common_run_dir(t->rank, t->job->dir->path, err);
    if (!status) status = syi_rank_log_open(&t->log, t->job->dir->path, t->rank, log, err);
    return status;
}

/* Weights of a step before the failure of this rank are good. With other ranks there is no meeting any more. */
static void save_what_is_begun(struct syi_trainer *t)
{
    struct sy_error why = {0};
    if (t->saver && t->rank->ranks == 1 && syi_trainer_wait_save(t, &why)) syi_trainer_say(t, "%s", why.text);
}

static int train_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct training *training = arg;
    struct syi_trainer *t = syi_alloc(sizeof(*t), err);
    int status;

    if (!t) return SY_ENOMEM;
    t->job = training->job;
    t->config = training->job->launch.config;
    t->rank = rank;
    t->begin = training->begin;
    if (rank->rank == 0) t->deadline = syi_deadline_of(t->config, t->begin);
    status = open_rank(t, training, err);
    if (!status) status = open_actions(t, err);
    if (!status) status = draw_or_take(t, err);
    if (!status) status = open_run(t, err);
    if (!status) introduce(t);
    if (!status) status = begin(t, err);
    if (!status) status = tell_begun(t, err);
    if (!status) status = ask_at(t, SYI_AT_START, err);
    if (!status) status = syi_trainer_loop(t, err);
    if (!status) status = ask_at(t, SYI_AT_END, err);
    if (!status) tell_end(t, training);
    if (status) save_what_is_begun(t);
    syi_rank_log_say(&t->log, !status ? t->what : err->text[0] ? err->text : sy_status_text(status));
    close_rank(t);
    syi_free(t);
    return status;
}

static int load_files(struct training *training, struct sy_error *err)
{
    const struct syi_task_part *task = syi_config_task(training->job->launch.config);

    if (!*task->train)
        return syi_error(err, SY_EINVAL,
                         "task.NAME.train is not set; give it a file whose lines are input TAB target");
    return syi_eval_files_load(&training->valid, training->job->launch.config, SYI_EVAL_VALID, NULL,
                               training->job->launch.world, err);
}

int syi_train(const struct syi_train_job *job, struct syi_train_result *result, struct sy_error *err)
{
    struct training training = {
        .job = job, .result = result, .begin = syi_seconds(), .told = ATOMIC_FLAG_INIT};
    int status;

    memset(result, 0, sizeof(*result));
    status = load_files(&training, err);
    if (!status) status = syi_launch_run(&job->launch, train_rank, &training, err);
    syi_eval_files_free(&training.valid);
    return status;
}
