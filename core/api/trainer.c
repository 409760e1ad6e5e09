/* SPDX-License-Identifier: Apache-2.0 */
/* sy_trainer: an engine that trains, on batches that the program brings. What it saves is a run directory like any other. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/api.h"
#include "base/compat.h"
#include "base/packed.h"
#include "optim/schedule.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/train_data.h"
#include "train/init/init.h"
#include "train/launch/run_dir.h"
#include "train/trainer/actions.h"
#include "train/trainer/state_leaves.h"
#include "train/trainer/step_sums.h"

/* A checkpoint; step -1: none. By its hash, for the folder may be moved away, and another run be there. */
struct known {
    int64_t step;
    char weights[65]; /* SHA-256 */
};

/* A run that a trainer was opened from or has saved to. */
struct home {
    char *path;          /* in full */
    struct known newest; /* of those that this trainer began with or saved */
    struct known tried;  /* of a save that failed: it may be there all the same */
};

struct sy_trainer {
    struct syi_alone alone;
    struct syi_config config;
    struct syi_mesh_part mesh; /* of a run that goes on */
    struct syi_engine *engine;
    struct syi_schedule schedule;
    struct syi_vocabularies vocabularies;
    struct syi_text vocabulary_file[SYI_CONFIG_PARTS]; /* what their files held, for the runs that it saves */
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    struct syi_batch batch;
    struct syi_init_report init;     /* of a run that begins */
    struct syi_state_leaves state;   /* of checkpoints under run.compat = t5x */
    struct syi_checkpoint_meta meta; /* of the checkpoint that it began with or saved last */
    struct syi_step_sums sums;       /* for metrics of a training that goes on from such a checkpoint */
    int64_t step;                    /* done */
    int spoiled;       /* 1: a step left weights that are not finite (train.nan_check = after) */
    struct home *home; /* [n_homes] */
    size_t n_homes, homes_room;
};

/* ---- opening ---- */

static int read_config(struct sy_trainer *t, const char *path, const char *checkpoint,
                       struct syi_api_place *place, int *is_run, struct sy_error *err)
{
    struct stat info;
    if (stat(path, &info)) return syi_error_system(err, "cannot open %.300s", path);
    *is_run = S_ISDIR(info.st_mode);
    if (*is_run) {
        int status = syi_api_find(path, checkpoint, place, err);
        if (!status && !syi_run_dir_exists(place->run_dir))
            status = syi_run_dir_refuse(place->run_dir, "", "a run file", err);
        return status ? status : syi_api_read_run(place, &t->config, &t->mesh, err);
    }
    if (checkpoint)
        return syi_error(err, SY_EINVAL, "%s is a run file, which has no checkpoints: give a run directory",
                         path);
    int status = syi_config_defaults(&t->config, err);
    return status ? status : syi_config_load(&t->config, path, err);
}

static int read_vocabularies(struct sy_trainer *t, struct sy_error *err)
{
    int status = syi_vocabularies_open(&t->vocabularies, &t->config, err);
    for (int i = 0; !status && i < t->config.vocabulary.n; i++) {
        const struct syi_vocabulary_part *part = &t->config.vocabulary.part[i];
        struct syi_text *file = &t->vocabulary_file[i];
        if (*part->file) status = syi_packed_read_vocabulary(part, &file->data, &file->length, err);
    }
    return status;
}

static int make_engine(struct sy_trainer *t, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    if (t->config.data.auto_buckets && !t->config.data.length_buckets.n)
        return syi_error(
            err, SY_EUNSUPPORTED,
            "data.auto_buckets: a trainer's examples come from its caller: set data.length_buckets");
    t->n_buckets = syi_engine_buckets(&t->config, t->buckets);
    int status = syi_schedule_compile_run(&t->schedule, &t->config, reason);
    if (status) return syi_error(err, status, "train.lr_factors: %s", reason);
    status = read_vocabularies(t, err);
    if (!status) status = syi_engine_new(&t->config, &t->alone.rank, SYI_USE_TRAIN, 0, &t->engine, err);
    if (!status) status = syi_state_leaves_make(&t->state, t->engine, err);
    return status ? status : syi_train_batch_create(&t->config, &t->batch, err);
}

/* The folder in full, owned by the receiver, as long as it is there. */
static int full_path(const char *path, char **full, struct sy_error *err)
{
    char *found = realpath(path, NULL);
    *full = NULL;
    if (!found) return syi_error_system(err, "run directory %.300s", path);
    *full = syi_strdup(found, err);
    free(found);
    return *full ? SY_OK : SY_ENOMEM;
}

static struct home *find_home(const struct sy_trainer *t, const char *full)
{
    for (size_t i = 0; i < t->n_homes; i++)
        if (!strcmp(t->home[i].path, full)) return &t->home[i];
    return NULL;
}

/* *home: that of this folder, a new one if there was none. */
static int take_home(struct sy_trainer *t, const char *path, struct home **home, struct sy_error *err)
{
    char *full;
    int status = SYI_GROW(t->home, t->homes_room, t->n_homes + 1, err);
    if (!status) status = full_path(path, &full, err);
    if (status) return status;
    *home = find_home(t, full);
    if (*home) {
        syi_free(full);
        return SY_OK;
    }
    *home = &t->home[t->n_homes++];
    **home = (struct home){.path = full, .newest = {.step = -1}, .tried = {.step = -1}};
    return SY_OK;
}

static struct known known_of(const struct syi_checkpoint_meta *meta)
{
    struct known known = {.step = meta->step};
    memcpy(known.weights, meta->params_sha256, sizeof known.weights);
    return known;
}

static int go_on(struct sy_trainer *t, const struct syi_api_place *place, struct sy_error *err)
{
    struct home *home;
    int status = take_home(t, place->run_dir, &home, err);
    if (!status)
        status = syi_checkpoint_resume(place->run_dir, place->checkpoint, syi_engine_session(t->engine),
                                       t->alone.rank.comm, &t->state.leaves, &t->meta, err);
    syi_engine_params_changed(t->engine);
    t->step = t->meta.step;
    syi_step_sums_take(&t->sums, &t->config, &t->meta);
    if (!status) home->newest = known_of(&t->meta);
    return status;
}

/* As a training of the command begins, train.init_* included. */
static int begin(struct sy_trainer *t, struct sy_error *err)
{
    int status = syi_init_weights(t->engine, &t->config, &t->alone.rank, &t->state.leaves, &t->init, err);
    t->step = t->init.step;
    return status;
}

/* Opening is done, for which one rank was all there are; what is saved is for the ranks of the command. */
static void put_mesh_back(struct sy_trainer *t)
{
    t->mesh.zero = t->config.mesh.zero;
    t->config.mesh = t->mesh;
}

static int open_trainer(struct sy_trainer *t, const char *path, const struct sy_open_options *given,
                        struct sy_error *err)
{
    struct sy_open_options options;
    struct syi_api_place place;
    int is_run = 0, status = syi_api_take(&options, sizeof options, given, "sy_open_options", err);
    if (!status && (!path || !*path))
        status = syi_error(err, SY_EINVAL, "no path: give a run file or a run directory");
    if (!status && syi_packed_is(path))
        status = syi_error(err, SY_EUNSUPPORTED,
                           "%s: a packed model answers only: name the run that it was made of, or a run file",
                           path);
    if (!status) status = read_config(t, path, options.checkpoint, &place, &is_run, err);
    if (!status && options.max_batch)
        status = syi_error(err, SY_EINVAL, "max_batch is of a model: a trainer has data.batch_size");
    if (!status && options.max_calls)
        status =
            syi_error(err, SY_EINVAL, "max_calls is of a model: one thread at a time calls with a trainer");
    if (!status) status = syi_api_apply(&options, &t->config, err);
    if (!status) syi_run_dir_absolute(&t->config); /* the program may change its working directory */
    if (!status) status = syi_api_launch(&options, &t->config, 1, &t->alone, err);
    if (!status) syi_rank_settle(&t->alone.rank, &t->config);
    if (!status) status = make_engine(t, err);
    if (status) return status;
    if (is_run) put_mesh_back(t);
    t->meta = (struct syi_checkpoint_meta){.evaluated = -1, .best_step = -1, .best_metric = NAN};
    return is_run ? go_on(t, &place, err) : begin(t, err);
}

int sy_trainer_open(const char *path, const struct sy_open_options *options, struct sy_trainer **trainer,
                    struct sy_error *err)
{
    fenv_t before;
    *trainer = NULL;
    struct sy_trainer *t = syi_alloc(sizeof *t, err);
    if (!t) return SY_ENOMEM;
    syi_api_enter(&before);
    int status = open_trainer(t, path, options, err);
    syi_api_leave(&before);
    if (status)
        sy_trainer_close(t);
    else
        *trainer = t;
    return status;
}

void sy_trainer_close(struct sy_trainer *t)
{
    if (!t) return;
    syi_init_report_free(&t->init);
    syi_state_leaves_free(&t->state);
    syi_engine_free(t->engine);
    syi_batch_free(&t->batch);
    syi_vocabularies_close(&t->vocabularies);
    for (int i = 0; i < SYI_CONFIG_PARTS; i++) syi_text_free(&t->vocabulary_file[i]);
    syi_launch_close(&t->alone);
    for (size_t i = 0; i < t->n_homes; i++) syi_free(t->home[i].path);
    syi_free(t->home);
    syi_free(t);
}

/* ---- a step ---- */

/* *bucket: the smallest that holds all pairs. */
static int find_bucket(const struct sy_trainer *t, const struct sy_pair *pairs, size_t n, int *bucket,
                       struct sy_error *err)
{
    struct syi_bucket longest = syi_buckets_longest(t->buckets, t->n_buckets);
    size_t inputs = 1, targets = 1, ids;
    for (size_t i = 0; i < n; i++) {
        int status =
            syi_vocabulary_encode(&t->vocabularies.input, syi_api_span(&pairs[i].input), NULL, 0, &ids, err);
        if (status) return status;
        if (inputs < ids + 1) inputs = ids + 1;
        status = syi_vocabulary_encode(&t->vocabularies.target, syi_api_span(&pairs[i].target), NULL, 0, &ids,
                                       err);
        if (status) return status;
        if (targets < ids + 1) targets = ids + 1;
        if (inputs > (size_t)longest.input_length || targets > (size_t)longest.target_length)
            return syi_error(
                err, SY_EINVAL,
                "pair %zu is over the limit of data.max_input_length=%d or data.max_target_length=%d tokens, "
                "the end token included",
                i, longest.input_length, longest.target_length);
    }
    *bucket = syi_buckets_fit(t->buckets, t->n_buckets, inputs, targets);
    return SY_OK;
}

static int fill_batch(struct sy_trainer *t, const struct sy_pair *pairs, size_t n, struct sy_error *err)
{
    int bucket = 0, status;
    if (n < 1 || n > (size_t)t->batch.rows)
        return syi_error(err, SY_EINVAL, "a step on %zu pairs: give 1 to data.batch_size=%d", n,
                         t->batch.rows);
    status = find_bucket(t, pairs, n, &bucket, err);
    if (status) return status;
    syi_batch_begin(&t->batch, t->buckets, bucket);
    for (size_t i = 0; !status && i < n; i++) {
        struct syi_span target = syi_api_span(&pairs[i].target);
        status = syi_batch_add(&t->batch, &t->vocabularies, (int32_t)i, syi_api_span(&pairs[i].input),
                               &target, err);
    }
    return status;
}

static int train(struct sy_trainer *t, const struct sy_pair *pairs, size_t n, struct sy_step *out,
                 struct sy_error *err)
{
    struct syi_step_result result;
    double rate = syi_schedule_value(&t->schedule, t->step);
    int status = fill_batch(t, pairs, n, err);
    if (!status) status = syi_engine_step(t->engine, &t->batch, t->step, rate, &result, err);
    if (status) return status;
    int bad = syi_step_is_bad(&t->config, &result);
    t->spoiled |= bad && syi_compat(&t->config, t->config.train.nan_check);
    syi_step_sums_add(&t->sums, &t->config, t->step, &t->batch, &result);
    t->step++;
    *out = (struct sy_step){.step = t->step,
                            .tokens = result.target_tokens,
                            .loss = result.loss,
                            .grad_norm = result.grad_norm,
                            .rate = rate,
                            .updated = result.ok};
    return SY_OK;
}

int sy_trainer_step(struct sy_trainer *t, const struct sy_pair *pairs, size_t n, struct sy_step *step,
                    struct sy_error *err)
{
    struct sy_step done;
    fenv_t before;
    syi_api_enter(&before);
    int status = step ? syi_api_give(step, &(struct sy_step){0}, sizeof done, "sy_step", err) : SY_OK;
    if (!status) status = train(t, pairs, n, &done, err);
    if (!status && step) status = syi_api_give(step, &done, sizeof done, "sy_step", err);
    syi_api_leave(&before);
    return status;
}

/* ---- saving ---- */

/* *is: whether the folder has that checkpoint. */
static int has_checkpoint(const char *path, const struct known *known, int *is, struct sy_error *err)
{
    struct syi_checkpoint_view view;
    int status = syi_checkpoint_view_open(path, known->step, &view, err);
    *is = !status && !strcmp(view.meta.params_sha256, known->weights);
    syi_checkpoint_view_close(&view);
    return status;
}

/* A save that failed may have given its checkpoint its name. Looked for when the next one begins: that one may have failed
 * for want of memory, which a look takes, too. */
static int look_for_tried(struct home *home, struct sy_error *err)
{
    struct sy_error why = {0};
    int is;
    if (home->tried.step < 0) return SY_OK;
    int status = has_checkpoint(home->path, &home->tried, &is, &why);
    if (status && status != SY_ENOENT) return syi_error(err, status, "%s", why.text);
    if (is) home->newest = home->tried;
    home->tried.step = -1;
    return SY_OK;
}

/* *is: whether the folder still holds what made it a home. */
static int check_home(struct home *home, int *is, struct sy_error *err)
{
    int64_t step = -1;
    int status = look_for_tried(home, err);
    if (!status)
        status = syi_checkpoint_before(home->path, home->newest.step < 0 ? INT64_MAX : home->newest.step,
                                       &step, err);
    *is = !status && step == home->newest.step;
    return *is && step >= 0 ? has_checkpoint(home->path, &home->newest, is, err) : status;
}

/* Nothing is written over another run, nor over checkpoints that nobody knows the run of. */
static int check_folder(const struct sy_trainer *t, const char *path, struct sy_error *err)
{
    char *full;
    int64_t latest;
    struct stat info;
    int is_home = 0;
    if (stat(path, &info) && errno == ENOENT) return SY_OK;
    int status = full_path(path, &full, err);
    if (status) return status;
    struct home *home = find_home(t, full);
    syi_free(full);
    status = syi_checkpoint_latest(path, &latest, err);
    if (!status && home) status = check_home(home, &is_home, err);
    if (status || (is_home && latest <= home->newest.step)) return status;
    if (is_home)
        return syi_error(err, SY_EEXIST,
                         "%s has a checkpoint of step %" PRId64
                         ", but this training knows it up to step %" PRId64 ": save to a new folder",
                         path, latest, home->newest.step);
    if (syi_run_dir_exists(path) || latest >= 0)
        return syi_error(err, SY_EEXIST, "%s holds another run: save to a new folder", path);
    if (home) home->newest.step = -1; /* what was there is gone */
    return SY_OK;
}

static int write_checkpoint(struct sy_trainer *t, struct home *home, struct sy_error *err)
{
    struct sy_error failure = {0};
    int64_t kept[SYI_ACTIONS_KEPT];
    struct syi_checkpoint_saving saving = {.keep = (int)t->config.train.keep_checkpoints,
                                           .keep_every = t->config.checkpoint.keep_every,
                                           .besides = kept,
                                           .n_besides = syi_actions_kept_in(&t->meta, &t->config, kept),
                                           .leaves = syi_state_leaves_written(&t->state, &t->config)};
    struct syi_checkpoint_meta meta = t->meta;
    int64_t examples;
    meta.step = t->step;
    if (__builtin_mul_overflow(meta.step - t->meta.step, t->config.data.batch_size, &examples) ||
        __builtin_add_overflow(meta.examples, examples, &meta.examples))
        meta.examples = INT64_MAX;
    syi_step_sums_put(&t->sums, &t->config, &meta);
    syi_state_leaves_set(&t->state, t->step, syi_schedule_value(&t->schedule, t->step));
    int status = syi_checkpoint_save(home->path, syi_engine_session(t->engine), t->alone.rank.comm, &meta,
                                     &saving, &failure, err);
    if (!status && failure.code) status = syi_error(err, failure.code, "%s", failure.text);
    *(status ? &home->tried : &home->newest) = known_of(&meta);
    if (!status) t->meta = meta;
    return status;
}

/* The run gets the vocabularies that its weights were trained with, whatever has become of their files. */
static int keep_vocabularies(const struct sy_trainer *t, const struct syi_run_dir *dir, struct sy_error *err)
{
    for (int i = 0; i < t->config.vocabulary.n; i++) {
        const struct syi_text *file = &t->vocabulary_file[i];
        struct sy_error why = {0};
        if (!file->data) continue;
        int status =
            syi_run_dir_keep_vocabulary(dir, &t->config.vocabulary.part[i], file->data, file->length, &why);
        if (status == SY_EMISMATCH)
            return syi_error(err, status,
                             "%s keeps another vocabulary than the weights were trained with: put the old "
                             "contents back, or save to a new folder",
                             dir->path);
        if (status) return syi_error(err, status, "%s", why.text);
    }
    return SY_OK;
}

static int write_run(struct sy_trainer *t, struct home *home, const struct syi_run_dir *dir,
                     struct sy_error *err)
{
    int status = keep_vocabularies(t, dir, err);
    if (!status) status = syi_checkpoint_clean(dir->path, err);
    if (!status) status = syi_run_dir_write_config(dir, &t->config, err);
    if (!status && t->init.notes.length) status = syi_init_report_write(&t->init, dir, err);
    if (!status) status = write_checkpoint(t, home, err);
    return status ? status
                  : syi_run_dir_status(dir, t->step < t->config.train.steps ? "stopped" : "done", err);
}

/* After a failure, too, the trainer may try again in a folder where it began a run; what has no run.conf yet is anybody's. */
static int save_in(struct sy_trainer *t, const struct syi_run_dir *dir, struct sy_error *err)
{
    struct home *home;
    size_t before = t->n_homes;
    int status = take_home(t, dir->path, &home, err);
    if (status) return status;
    status = write_run(t, home, dir, err);
    if (!syi_run_dir_exists(dir->path) && t->n_homes > before) syi_free(t->home[--t->n_homes].path);
    return status;
}

static int save(struct sy_trainer *t, const char *path, struct sy_error *err)
{
    struct syi_run_dir dir;
    if (t->spoiled)
        return syi_error(err, SY_ENUMERIC,
                         "after %" PRId64 " steps the weights hold numbers that are not finite: they are "
                         "not saved",
                         t->step);
    if (!path || !*path) return syi_error(err, SY_EINVAL, "no path: give a folder for the run");
    int status = syi_engine_average(t->engine, err); /* which refuses what a failed update left */
    if (!status) status = check_folder(t, path, err);
    if (!status) status = syi_run_dir_open(path, NULL, &dir, err);
    if (status) return status;
    status = check_folder(t, path, err); /* before the lock was ours another one may have saved there */
    if (!status) status = save_in(t, &dir, err);
    syi_run_dir_close(&dir);
    return status;
}

int sy_trainer_save(struct sy_trainer *t, const char *run_dir, struct sy_error *err)
{
    fenv_t before;
    syi_api_enter(&before);
    int status = save(t, run_dir, err);
    syi_api_leave(&before);
    return status;
}
