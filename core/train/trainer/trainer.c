/* SPDX-License-Identifier: Apache-2.0 */
/* syi_train: opens the data, makes a trainer on every rank, then the run directory, continues from a checkpoint if
 * asked to, runs the loop (train_loop.c) and says how it ended. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "train/launch/common_files.h"
#include "train/engine/train_data.h"
#include "train/trainer/trainer_internal.h"

/* One process's part of a training: the files, read once for all of its ranks. */
struct training {
    const struct syi_train_job *job;
    struct syi_train_result *result;
    struct syi_task task;
    struct syi_eval_data valid; /* name NULL: none */
    char valid_name[SYI_PART_NAME + 8];
    double begin;     /* seconds */
    atomic_flag told; /* a rank of this process has said how the run ended */
};

/* ---- setting up a rank ---- */

static int64_t count_parameters(const struct syi_model *model)
{
    int64_t sum = 0, elements;

    for (size_t i = 0; i < model->n; i++) {
        elements = 1;
        for (int d = 0; d < model->param[i].rank; d++) elements *= model->param[i].dim[d];
        sum += elements;
    }
    return sum;
}

static void introduce(struct syi_trainer *t)
{
    const struct syi_model *model = syi_engine_model(t->engine);
    const struct syi_batcher *batcher = &t->batcher;
    char text[512];

    syi_rank_describe(t->rank, text, sizeof(text));
    syi_trainer_say(t, "%s", text);
    syi_trainer_say(t, "model: %" PRId64 " parameters in %zu tensors", count_parameters(model), model->n);
    syi_trainer_say(t, "%s: %d examples, %d left out as too long; %" PRId64 " steps of %d are %.3g epochs",
                    batcher->task->path, batcher->task->n_examples, batcher->n_skipped,
                    t->config->train.steps, batcher->batch_size,
                    syi_batcher_epochs(batcher, t->config->train.steps));
    if (t->evaluation.data)
        syi_trainer_say(t, "%s: %d items, %d too long and counted as wrong", t->evaluation.data->task.path,
                        t->evaluation.data->items.n_items, t->evaluation.decode.n_cut);
    syi_trainer_event(t, "launch", text);
}

static int compile_schedule(struct syi_trainer *t, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    int status = syi_schedule_compile_run(&t->schedule, t->config, reason);
    return status ? syi_error(err, status, "train.lr_factors: %s", reason) : SY_OK;
}

static int open_rank(struct syi_trainer *t, const struct training *training, struct sy_error *err)
{
    int use = SYI_USE_TRAIN, status = compile_schedule(t, err);

    if (status) return status;
    if (training->valid.name) use |= SYI_USE_EVAL | SYI_USE_DECODE;
    syi_action_states_init(&t->actions);
    syi_timing_init(&t->timing);
    status = syi_engine_new(t->config, t->rank, use, 0, &t->engine, err);
    if (!status)
        status = syi_train_data_open(t->config, &training->task, t->rank->rank != 0, &t->vocabularies,
                                     &t->batcher, &t->batch, err);
    if (!status && training->valid.name)
        status =
            syi_evaluation_open(&t->evaluation, &training->valid, t->config, t->engine, t->rank->comm, err);
    return status;
}

static void close_rank(struct syi_trainer *t)
{
    if (t->evaluation.data) syi_evaluation_close(&t->evaluation);
    syi_batch_free(&t->batch);
    syi_batcher_free(&t->batcher);
    syi_vocabularies_close(&t->vocabularies);
    syi_engine_free(t->engine);
    syi_rank_log_close(&t->log);
}

/* ---- starting or going on ---- */

/* 1: the file of task.NAME.KEY is not the one in the checkpoint's meta.json; text: in what they differ. */
static int has_changed(const struct syi_trainer *t, const char *key, const struct syi_task *task,
                       const struct syi_file_id *before, char *text, size_t bytes)
{
    const struct syi_file_id *now = &task->id;
    if (!before->sha256[0] || !strcmp(before->sha256, now->sha256)) return 0;
    snprintf(text, bytes,
             "task.%s.%s: %s has changed since the checkpoint of step %" PRId64 ": it had %" PRId64
             " lines, %" PRId64 " bytes and SHA-256 %.16s..., now %" PRId64 " lines, %" PRId64
             " bytes and %.16s...",
             syi_config_task(t->config)->name_of_part, key, task->path, t->step, before->lines, before->bytes,
             before->sha256, now->lines, now->bytes, now->sha256);
    return 1;
}

/* Which example a step takes follows from its number and the file: with other contents the run would silently be
 * another one. What only evaluations read changes no weights. */
static int check_data(struct syi_trainer *t, const struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    char text[800];

    if (!meta->train.sha256[0])
        syi_trainer_say(
            t, "the checkpoint does not say which data it was trained on: changes are not looked for");
    if (t->evaluation.data &&
        has_changed(t, "valid", &t->evaluation.data->task, &meta->valid, text, sizeof(text)))
        syi_trainer_say(t, "%s; evaluations before and after do not compare", text);
    if (!has_changed(t, "train", t->batcher.task, &meta->train, text, sizeof(text))) return SY_OK;
    if (!t->config->data.allow_changes)
        return syi_error(
            err, SY_EMISMATCH,
            "%s; put the old contents back, or set data.allow_changes=true to go on with the new", text);
    syi_trainer_say(t, "%s", text);
    syi_trainer_event(t, "data", text);
    return SY_OK;
}

/* An event for each key that has another value since the checkpoint. */
static void write_changes(struct syi_trainer *t)
{
    const char *at = t->job->changes ? t->job->changes->data : NULL;

    while (at && *at) {
        char line[800];
        size_t n = strcspn(at, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line) - 1), at);
        syi_trainer_event(t, "setting", line);
        at += n + (at[n] == '\n');
    }
}

static int load(struct syi_trainer *t, int64_t step, struct sy_error *err)
{
    struct syi_moment moment = {.kind = SYI_AFTER_RESUME};
    struct syi_checkpoint_meta meta = {0};
    struct syi_verdict verdict;
    int status = syi_checkpoint_load(t->job->dir->path, step, syi_engine_session(t->engine), t->rank->comm, 1,
                                     &meta, err);

    syi_engine_params_changed(t->engine);
    if (status) return status;
    syi_action_states_take(t->config, &meta, &t->actions);
    t->step = t->saved = moment.step = meta.step;
    t->evaluated = meta.evaluated;
    memcpy(t->weights, meta.params_sha256, sizeof(t->weights));
    syi_trainer_say(t, "going on from the checkpoint of step %" PRId64, t->step);
    syi_trainer_event(t, "resume", "going on from a checkpoint");
    write_changes(t);
    status = check_data(t, &meta, err);
    if (status) return status;
    syi_actions_run(t->config, &t->actions, &moment, &verdict);
    syi_trainer_obey(t, &verdict);
    return SY_OK;
}

/* Weights and place of the run. Rank 0 looks for the checkpoint: what other ranks see of its folder may be
 * old. */
static int begin(struct syi_trainer *t, struct sy_error *err)
{
    const char *folder = t->job->dir->path;
    int64_t latest = -1;
    int status = SY_OK;

    t->evaluated = t->saved = -1;
    if (t->rank->rank == 0) status = syi_checkpoint_clean(folder, err);
    if (!status && t->job->resume && t->rank->rank == 0) status = syi_checkpoint_latest(folder, &latest, err);
    if (!status) status = syi_comm_broadcast(t->rank->comm, &latest, 1, err);
    if (status) return status;
    if (latest >= 0) return load(t, latest, err);
    if (t->job->resume) syi_trainer_say(t, "no checkpoint in %s: starting fresh", folder);
    syi_engine_init(t->engine, (uint64_t)t->config->train.seed);
    syi_trainer_event(t, "start", "starting fresh");
    return SY_OK;
}

/* ---- the whole ---- */

static void tell_end(struct syi_trainer *t, struct training *training)
{
    static const char *const kind[] = {
        [SYI_END_DONE] = "done",   [SYI_END_STOPPED_EARLY] = "stop", [SYI_END_NAN] = "stop",
        [SYI_END_SIGNAL] = "stop", [SYI_END_TIME_LIMIT] = "stop",    [SYI_END_SINK] = "stop"};
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

static int check_files(const struct syi_rank *rank, const struct training *training, struct sy_error *err)
{
    int status = syi_common_task(rank, &training->task, err);
    if (!status) status = syi_common_vocabularies(rank, training->job->launch.config, err);
    if (!status && training->valid.name) status = syi_common_task(rank, &training->valid.task, err);
    return status;
}

/* Once every rank has all it needs, rank 0 opens the run directory: what fails before leaves none. */
static int open_run(struct syi_trainer *t, struct sy_error *err)
{
    const struct syi_train_job *job = t->job;
    int log, status = syi_rank_log_wanted(t->config, &log, err);
    if (!status) status = syi_comm_barrier(t->rank->comm, err);
    if (!status && t->rank->rank == 0) status = job->open(job->open_arg, err);
    if (!status) status = syi_comm_barrier(t->rank->comm, err);
    if (!status) status = syi_common_run_dir(t->rank, job->dir->path, err);
    if (!status && log) status = syi_rank_log_open(&t->log, job->dir->path, t->rank, err);
    return status;
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
    status = check_files(rank, training, err);
    if (!status) status = open_rank(t, training, err);
    if (!status) status = open_run(t, err);
    if (!status) introduce(t);
    if (!status) status = begin(t, err);
    if (!status) status = syi_trainer_loop(t, err);
    if (!status) tell_end(t, training);
    syi_rank_log_say(&t->log, !status ? t->what : err->text[0] ? err->text : sy_status_text(status));
    close_rank(t);
    syi_free(t);
    return status;
}

static int load_files(struct training *training, struct sy_error *err)
{
    const struct syi_task_part *task = syi_config_task(training->job->launch.config);
    int status;

    if (!*task->train)
        return syi_error(err, SY_EINVAL,
                         "task.NAME.train is not set; give it a file whose lines are input TAB target");
    status = syi_task_load(&training->task, task->train, err);
    snprintf(training->valid_name, sizeof(training->valid_name), "%s/valid", task->name_of_part);
    if (!status && *task->valid)
        status = syi_eval_data_load(&training->valid, training->valid_name, task->valid, err);
    return status;
}

int syi_train(const struct syi_train_job *job, struct syi_train_result *result, struct sy_error *err)
{
    struct training training = {
        .job = job, .result = result, .begin = syi_seconds(), .told = ATOMIC_FLAG_INIT};
    int status;

    memset(result, 0, sizeof(*result));
    status = load_files(&training, err);
    if (!status) status = syi_launch_run(&job->launch, train_rank, &training, err);
    syi_eval_data_free(&training.valid);
    syi_task_free(&training.task);
    return status;
}
