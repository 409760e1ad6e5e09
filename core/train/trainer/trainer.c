/* SPDX-License-Identifier: Apache-2.0 */
/* syi_train: opens the data, makes a trainer on every rank, continues from a checkpoint if asked to, runs the
 * loop (train_loop.c) and says how it ended. */
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
    double begin;               /* seconds */
    atomic_flag told;           /* a rank of this process has said how the run ended */
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

static int introduce(struct syi_trainer *t, struct sy_error *err)
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
    return syi_trainer_event(t, "launch", text, err);
}

static int open_rank(struct syi_trainer *t, const struct training *training, struct sy_error *err)
{
    int use = SYI_USE_TRAIN, status;

    if (training->valid.name) use |= SYI_USE_EVAL | SYI_USE_DECODE;
    syi_action_state_init(&t->actions);
    syi_timing_init(&t->timing);
    status = syi_engine_new(t->config, t->rank, use, 0, &t->engine, err);
    if (!status)
        status = syi_train_data_open(t->config, &training->task, t->rank->rank != 0, &t->vocabulary,
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
    syi_engine_free(t->engine);
    syi_rank_log_close(&t->log);
}

/* ---- starting or going on ---- */

static int load(struct syi_trainer *t, int64_t step, struct sy_error *err)
{
    struct syi_moment moment = {.kind = SYI_AFTER_RESUME};
    struct syi_checkpoint_meta meta = {0};
    struct syi_verdict verdict;
    int status = syi_checkpoint_load(t->job->dir->path, step, syi_engine_session(t->engine), t->rank->comm, 1,
                                     &meta, err);

    syi_engine_params_changed(t->engine);
    if (status) return status;
    t->actions = (struct syi_action_state){.metric = (int)meta.best_of,
                                           .best = meta.best_metric,
                                           .best_step = meta.best_step,
                                           .stale = meta.stale,
                                           .previous = meta.previous_metric,
                                           .unbroken = meta.unbroken};
    t->step = t->saved = moment.step = meta.step;
    t->evaluated = meta.evaluated;
    memcpy(t->weights, meta.params_sha256, sizeof(t->weights));
    syi_trainer_say(t, "going on from the checkpoint of step %" PRId64, t->step);
    status = syi_trainer_event(t, "resume", "going on from a checkpoint", err);
    if (status) return status;
    syi_actions_run(t->config, &t->actions, &moment, &verdict);
    return syi_trainer_obey(t, &verdict, err);
}

/* Weights and place of the run. Rank 0 looks for the checkpoint: what other ranks see of its folder may be
 * old. */
static int begin(struct syi_trainer *t, struct sy_error *err)
{
    const char *folder = t->job->dir->path;
    int64_t latest = -1;
    int status;

    t->evaluated = t->saved = -1;
    if (t->job->resume && t->rank->rank == 0) latest = syi_checkpoint_latest(folder);
    status = syi_comm_broadcast(t->rank->comm, &latest, 1, err);
    if (status) return status;
    if (latest >= 0) return load(t, latest, err);
    if (t->job->resume) syi_trainer_say(t, "no checkpoint in %s: starting fresh", folder);
    syi_engine_init(t->engine, (uint64_t)t->config->train.seed);
    return syi_trainer_event(t, "start", "starting fresh", err);
}

/* ---- the whole ---- */

static int tell_end(struct syi_trainer *t, struct training *training, struct sy_error *err)
{
    static const char *const kind[] = {[SYI_END_DONE] = "done",
                                       [SYI_END_STOPPED_EARLY] = "stop",
                                       [SYI_END_NAN] = "stop",
                                       [SYI_END_SIGNAL] = "stop",
                                       [SYI_END_TIME_LIMIT] = "stop"};
    struct syi_train_result *result = training->result;

    if (!atomic_flag_test_and_set(&training->told)) {
        result->end = t->end;
        result->steps = t->step;
        memcpy(result->what, t->what, sizeof(result->what));
    }
    if (t->rank->rank != 0) return SY_OK;
    result->median_step_seconds = syi_timing_median(&t->timing);
    memcpy(result->weights_sha256, t->weights, sizeof(result->weights_sha256));
    syi_run_dir_log(t->job->dir, t->what);
    return syi_trainer_event(t, kind[t->end], t->what, err);
}

static int check_files(const struct syi_rank *rank, const struct training *training, struct sy_error *err)
{
    int status = syi_common_run_dir(rank, training->job->dir->path, err);
    if (!status) status = syi_common_task(rank, &training->task, err);
    if (!status && training->valid.name) status = syi_common_task(rank, &training->valid.task, err);
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
    if (!status) status = syi_rank_log_open(&t->log, t->config, t->job->dir->path, rank, err);
    if (!status) status = open_rank(t, training, err);
    if (!status) status = introduce(t, err);
    if (!status) status = begin(t, err);
    if (!status) status = syi_trainer_loop(t, err);
    if (!status) status = tell_end(t, training, err);
    syi_rank_log_say(&t->log, !status ? t->what : err->text[0] ? err->text : sy_status_text(status));
    close_rank(t);
    syi_free(t);
    return status;
}

static int load_files(struct training *training, struct sy_error *err)
{
    const struct syi_config *c = training->job->launch.config;
    int status;

    if (!*c->data.train)
        return syi_error(err, SY_EINVAL,
                         "data.train is not set; give it a file whose lines are input TAB target");
    status = syi_task_load(&training->task, c->data.train, err);
    if (!status && *c->data.valid) status = syi_eval_data_load(&training->valid, "valid", c->data.valid, err);
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
