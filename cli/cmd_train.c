/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard train RUNFILE: the run directory, the metric store, signals and progress around syi_train. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/packed.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/work_line.h"
#include "data/vocabulary.h"
#include "metrics/database.h"
#include "metrics/store.h"
#include "train/engine/train_data.h"
#include "train/trainer/evaluate.h"
#include "train/trainer/trainer.h"

enum {
    LOCK_WAIT = 60 /* seconds, unless SWITCHYARD_LOCK_WAIT says otherwise */
};

/* Where a run directory that has no name yet will be: indexes of large files are kept beside it. */
static const char NEW_RUN[] = "runs/new";

static atomic_int stop_requested;

static void request_stop(void)
{
    atomic_store(&stop_requested, 1);
}

static void catch_signals(void)
{
    /* the further ones are sent by batch systems and by limits of processor time */
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGXCPU};
    cli_catch_stop(request_stop, numbers, SYI_COUNT(numbers));
    /* Control-C ends `tee` too: a run whose reader is gone still saves. main() reports the loss. */
    signal(SIGPIPE, SIG_IGN);
    /* Whoever started this may ignore it: then nobody would learn how a program of an action ended. */
    signal(SIGCHLD, SIG_DFL);
}

/* ---- resuming: which keys differ from the stored run file ---- */

static int tell_difference(void *arg, const char *key, enum syi_option_flags flags, const char *old_text,
                           const char *new_text)
{
    if (flags == SYI_OPTION_MODEL) {
        syi_error(
            arg, SY_EMISMATCH,
            "%s is %s in the run directory and %s now: this changes the model, start another run for it", key,
            old_text, new_text);
        return SY_EMISMATCH;
    }
    fprintf(stderr, "switchyard: resume: %s changes from %s to %s\n", key, old_text, new_text);
    return SY_OK;
}

/* Paths are compared as absolute ones. Those of runs of earlier versions are relative to the working directory. */
static int compare_with_stored(const char *path, const struct syi_config *config, syi_config_difference_fn fn,
                               void *arg, struct sy_error *err)
{
    struct syi_config *stored = syi_alloc(sizeof *stored, err), *now = syi_config_copy(config, err);
    int status = stored && now ? syi_run_dir_read_config(path, stored, err) : SY_ENOMEM;
    if (!status) {
        syi_run_dir_absolute(stored);
        syi_run_dir_absolute(now);
        status = syi_config_compare(stored, now, fn, arg, err);
    }
    syi_free(stored);
    syi_free(now);
    return status;
}

static int check_stored(const char *path, const struct syi_config *config, struct sy_error *err)
{
    return compare_with_stored(path, config, tell_difference, err, err);
}

/* ---- the run directory ---- */

/* Nothing is written over a run, nor over checkpoints that nobody knows the run of. SY_EEXIST: such are
 * there. */
static int check_folder(const char *path, int resume, struct sy_error *err)
{
    int64_t latest;
    int status = syi_database_check_path(path, err);
    if (status) return status;
    if (syi_run_dir_exists(path) && resume) return SY_OK;
    if (syi_run_dir_exists(path))
        return syi_error(
            err, SY_EEXIST,
            "train: %s holds a run already: add --resume to continue it, or choose another --run-dir", path);
    status = syi_checkpoint_latest(path, &latest, err);
    if (status || latest < 0) return status;
    return syi_error(
        err, SY_EEXIST,
        "train: %s holds checkpoints (the newest of step %lld), but no run.conf that says of which "
        "run: choose another --run-dir, or, to go on with them, put their run.conf back "
        "(`switchyard config RUNFILE` prints one) and add --resume",
        path, (long long)latest);
}

/* A run that goes on computes as it did, unless something else is asked for: cpu.bfloat16 and reproducible.min_leaf are what
 * they became when it began. */
static int keep_arithmetic(const char *path, struct syi_config *config, struct sy_error *err)
{
    struct syi_config stored;
    int asks = config->cpu.variant == SYI_CPU_VARIANT_AUTO && config->cpu.bfloat16 == SYI_CPU_BFLOAT16_AUTO &&
               config->model.dtype == SYI_DTYPE_BFLOAT16;
    int status = syi_run_dir_read_config(path, &stored, err);
    if (status) return status;
    if (asks) config->cpu.bfloat16 = stored.cpu.bfloat16;
    if (!config->reproducible.min_leaf) config->reproducible.min_leaf = stored.reproducible.min_leaf;
    return SY_OK;
}

/* The folder that --run-dir names, into path, if a run may begin or go on in it; without --run-dir path stays
 * empty. */
static int choose_folder(const struct cli_options *o, struct syi_config *config, char path[SYI_CONFIG_STRING])
{
    struct sy_error err = {0};
    if (!o->run_dir && (o->resume || o->takeover)) {
        cli_error("train: --%s needs --run-dir, the run to continue", o->resume ? "resume" : "takeover");
        return CLI_USAGE;
    }
    if (!o->run_dir) return CLI_DONE;
    if (strlen(o->run_dir) >= SYI_CONFIG_STRING) {
        cli_error("train: --run-dir is longer than %d bytes", SYI_CONFIG_STRING - 1);
        return CLI_USAGE;
    }
    strcpy(path, o->run_dir);
    if (check_folder(path, o->resume, &err))
        return err.code == SY_EEXIST || err.code == SY_EINVAL ? cli_usage(&err) : cli_fail(&err);
    if (!syi_run_dir_exists(path)) return CLI_DONE;
    return keep_arithmetic(path, config, &err) || check_stored(path, config, &err) ? cli_usage(&err)
                                                                                   : CLI_DONE;
}

/* Last of all before training, which removes it again if it fails before the run begins. */
static int make_folder(const struct syi_config *config, char *path, size_t bytes)
{
    struct sy_error err = {0};
    return syi_run_dir_make(config->run.name, path, bytes, &err) ? cli_fail(&err) : CLI_DONE;
}

/* Seconds to wait for a process that holds the run directory: one that was told to stop may be saving. */
static int read_lock_wait(double *seconds)
{
    struct sy_error err = {0};
    *seconds = LOCK_WAIT;
    return cli_read_seconds("SWITCHYARD_LOCK_WAIT", 0, seconds, &err) ? cli_usage(&err) : CLI_DONE;
}

/* Whether a file that is not where its path says is there as seen from the run file's folder, of `length` bytes. */
static int is_beside(const char *run_file, const char *file, int *length)
{
    char path[2 * SYI_CONFIG_STRING];
    const char *slash = run_file ? strrchr(run_file, '/') : NULL;
    if (!slash || *file == '/') return 0;
    *length = (int)(slash - run_file);
    return snprintf(path, sizeof path, "%.*s/%s", *length, run_file, file) < (int)sizeof path &&
           !access(path, R_OK);
}

/* A pattern is looked at when it is read. */
static int check_file(const struct cli_options *o, const struct syi_task_part *task, const char *key,
                      const char *file)
{
    int length;
    if (!*file || strpbrk(file, "*?[") || !access(file, R_OK)) return CLI_DONE;
    const char *reason = strerror(errno);
    if (is_beside(o->operand[0], file, &length))
        cli_error(
            "train: task.%s.%s: cannot read %s: %s. It is beside the run file, but paths begin at the folder "
            "that a command runs in: cd %.*s, or give whole paths",
            task->name_of_part, key, file, reason, length, o->operand[0]);
    else
        cli_error("train: task.%s.%s: cannot read %s: %s", task->name_of_part, key, file, reason);
    return CLI_FAILED;
}

/* Before a folder is made for the run: are its files there, does the model have the vocabulary's ids? */
static int check_data(const struct cli_options *o, const struct syi_config *config)
{
    struct syi_vocabularies vocabularies;
    struct sy_error err = {0};
    const struct syi_task_part *task = syi_config_task(config);
    if (!*task->train) {
        cli_error("train: task.%s.train is not set: give it a file whose lines are input TAB target",
                  *task->name_of_part ? task->name_of_part : "NAME");
        return CLI_USAGE;
    }
    int status = CLI_DONE;
    for (int i = 0; !status && i < config->task.n; i++) {
        task = &config->task.part[i];
        status = check_file(o, task, "train", task->train);
        if (!status) status = check_file(o, task, "valid", task->valid);
        if (!status) status = check_file(o, task, "test", task->test);
    }
    if (status) return status;
    if (syi_vocabularies_open(&vocabularies, config, &err)) return cli_usage(&err);
    syi_vocabularies_close(&vocabularies);
    return CLI_DONE;
}

static int same_lengths(const struct syi_ints *a, const struct syi_ints *b)
{
    return a->n == b->n && !memcmp(a->values, b->values, (size_t)a->n * sizeof *a->values);
}

/* Whether examples of the longest that the run may have now still fit. */
static int reach_longest(const struct syi_ints *lengths, const struct syi_config *config)
{
    int64_t last = lengths->n ? lengths->values[lengths->n - 1] : 0;
    return last >= config->data.max_input_length && last >= config->data.max_target_length;
}

/* A run that goes on keeps the padded lengths that it has, unless another number of them is asked for or longer ones are
 * needed. */
static int keep_buckets(const char *run_dir, struct syi_config *config, struct sy_error *err)
{
    struct syi_ints *lengths = &config->data.length_buckets;
    struct syi_config *stored = syi_alloc(sizeof *stored, err);
    int status = stored ? syi_run_dir_read_config(run_dir, stored, err) : SY_ENOMEM;
    if (!status) {
        const struct syi_ints *before = &stored->data.length_buckets;
        int same_number = stored->data.auto_buckets == config->data.auto_buckets;
        if (same_number && !lengths->n && reach_longest(before, config)) *lengths = *before;
        if (!same_number && same_lengths(lengths, before)) lengths->n = 0;
    }
    syi_free(stored);
    return status;
}

/* data.auto_buckets */
static int find_buckets(const struct cli_options *o, struct syi_config *config)
{
    struct syi_ints *lengths = &config->data.length_buckets;
    struct sy_error err = {0};
    double positions[2];
    if (!config->data.auto_buckets) return CLI_DONE;
    if (o->run_dir && syi_run_dir_exists(o->run_dir) && keep_buckets(o->run_dir, config, &err))
        return cli_fail(&err);
    if (lengths->n) return CLI_DONE;
    int status = check_data(o, config);
    if (status) return status;
    if (syi_train_find_buckets(config, o->run_dir ? o->run_dir : NEW_RUN, positions, &err))
        return cli_fail(&err);
    if (o->quiet) return CLI_DONE;
    printf("padded lengths");
    for (int i = 0; i < lengths->n; i++) printf("%s %" PRId64, i ? "," : "", lengths->values[i]);
    printf(": %.1f positions a row on average, %.1f with one length\n", positions[0], positions[1]);
    return CLI_DONE;
}

/* Training does not read them, `eval` does when all is done: a line that is wrong is found before. Running text, of which
 * hardly anything can be wrong, is left to `eval`. */
static int check_test_files(const struct syi_config *config)
{
    struct sy_error err = {0};
    struct syi_eval_data *data = syi_alloc(sizeof *data, &err);
    int status = data ? SY_OK : SY_ENOMEM;
    for (int i = 0; !status && i < config->task.n; i++) {
        const struct syi_task_part *task = &config->task.part[i];
        if (!*task->test || task->objective != SYI_OBJECTIVE_PAIRS) continue;
        status = syi_eval_data_load(data, config, task, task->test, task->test, NULL, &err);
        if (!status) syi_eval_data_free(data);
    }
    syi_free(data);
    return status ? cli_fail(&err) : CLI_DONE;
}

static int open_store(const struct syi_run_dir *dir, const struct syi_config *config, int resume,
                      struct syi_metric_sink *sink, struct sy_error *err)
{
    char path[SYI_CONFIG_STRING + 16];
    struct syi_text text = {0};
    struct syi_store_options options = {
        .start_step = -1, .folder = config->metrics.dir, .queue_bytes = (size_t)config->metrics.queue_bytes};
    int status = resume ? syi_checkpoint_latest(dir->path, &options.start_step, err) : SY_OK;
    snprintf(path, sizeof path, "%s/metrics.db", dir->path);
    struct syi_config *absolute = syi_config_copy(config, err);
    if (absolute) syi_run_dir_absolute(absolute); /* as run.conf has it, which it is compared with */
    if (absolute) syi_config_print(absolute, false, &text);
    if (!status) status = absolute ? syi_text_status(&text, err) : SY_ENOMEM;
    syi_free(absolute);
    options.config = text.data;
    if (!status) status = syi_store_open(path, &options, sink, err);
    syi_text_free(&text);
    return status;
}

/* ---- the run ---- */

static int has_failed(const struct syi_train_result *result)
{
    return result->end == SYI_END_NAN || result->end == SYI_END_SINK || result->end == SYI_END_DATA;
}

static const char *end_word(const struct syi_train_result *result, int status)
{
    if (status || has_failed(result)) return "failed";
    return result->end == SYI_END_DONE || result->end == SYI_END_STOPPED_EARLY ? "done" : "stopped";
}

static int exit_status(const struct syi_train_result *result)
{
    switch (result->end) {
    case SYI_END_NAN:
    case SYI_END_SINK:
    case SYI_END_DATA: return CLI_FAILED;
    case SYI_END_SIGNAL:
    case SYI_END_TIME_LIMIT: return CLI_RESUMABLE;
    default: return CLI_DONE;
    }
}

static void print_result(const struct syi_train_result *result, const char *path)
{
    if (has_failed(result))
        cli_error("train: %s", result->what);
    else
        printf("%s\n", result->what);
    if (result->median_step_seconds > 0) printf("median step %.4f s\n", result->median_step_seconds);
    if (result->weights_sha256[0]) printf("weights sha256 %s\n", result->weights_sha256);
    printf("run directory %s\n", path);
}

/* What rank 0 writes: the run directory and the database. */
struct output {
    const struct cli_options *o;
    struct syi_config *config; /* gets what auto took when the ranks stand */
    struct syi_lock_options lock;
    int existed; /* 1: a run was there when the folder was checked */
    int refused; /* 1: the folder is another run's: an error of usage */
    int kept;    /* 1: its run.conf stays until the run has begun */
    struct syi_run_dir dir;
    struct syi_metric_sink sink;
    int stored;              /* 1: sink is open */
    struct syi_text changes; /* keys that differ from those stored, a line each */
};

/* The lock, and another look at what whoever had it before has left. Until the lock is there a signal ends
 * the process at once. */
static int take_folder(struct output *out, const char *path, struct sy_error *err)
{
    int status = syi_run_dir_open(path, &out->lock, &out->dir, err);
    if (status) return status;
    catch_signals();
    status = check_folder(path, out->o->resume, err);
    if (!status && !out->existed && syi_run_dir_exists(path)) status = check_stored(path, out->config, err);
    out->refused = status == SY_EEXIST || status == SY_EMISMATCH;
    if (status) syi_run_dir_close(&out->dir);
    return status;
}

static int keep_difference(void *arg, const char *key, enum syi_option_flags flags, const char *old_text,
                           const char *new_text)
{
    (void)flags;
    syi_text_printf(arg, "%s changes from %s to %s\n", key, old_text, new_text);
    return SY_OK;
}

/* What the run directory said before, which is written over next. */
static int keep_changes(struct output *out, struct sy_error *err)
{
    if (!out->existed) return SY_OK;
    int status = compare_with_stored(out->dir.path, out->config, keep_difference, &out->changes, err);
    return status ? status : syi_text_status(&out->changes, err);
}

static int open_output(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct output *out = arg;
    syi_rank_settle(rank, out->config);
    char path[SYI_CONFIG_STRING];
    memcpy(path, out->dir.path, sizeof path);
    int status = take_folder(out, path, err);
    if (!status) status = keep_changes(out, err);
    if (status) return status;
    if (!out->o->quiet) printf("run directory %s\n", path), fflush(stdout);
    status = syi_run_dir_keep_vocabularies(&out->dir, out->config, err);
    out->kept = syi_run_dir_exists(path);
    if (!status && !out->kept) status = syi_run_dir_write_config(&out->dir, out->config, err);
    if (!status) status = syi_run_dir_status(&out->dir, "running", err);
    if (!status) status = open_store(&out->dir, out->config, out->o->resume, &out->sink, err);
    out->stored = !status;
    return status;
}

/* A checkpoint that does not fit what is asked for now still fits the run.conf that was there. */
static int write_kept_config(void *arg, struct sy_error *err)
{
    struct output *out = arg;
    return out->kept || !syi_run_dir_exists(out->dir.path)
               ? syi_run_dir_write_config(&out->dir, out->config, err)
               : SY_OK;
}

/* Rows that are missing do not change how training ended, unless metrics.on_failure is stop. */
static void close_store(struct output *out, struct syi_train_result *result)
{
    struct sy_error err = {0};
    if (!out->stored || !out->sink.close(out->sink.arg, &err)) return;
    syi_run_dir_log(&out->dir, err.text);
    if (out->config->metrics.on_failure == SYI_ON_FAILURE_STOP && !has_failed(result)) {
        result->end = SYI_END_SINK;
        snprintf(result->what, sizeof result->what, "%.*s", (int)sizeof result->what - 1, err.text);
    } else {
        syi_log(SY_LOG_WARN, "%s", err.text);
    }
}

struct closing {
    struct output *out;
    struct syi_train_result *result;
    int status; /* of the training */
};

/* Returns the first failure, the training's own before that of the end. */
static int close_output(void *arg, struct sy_error *err)
{
    const struct closing *c = arg;
    struct output *out = c->out;
    struct sy_error late = {0};
    int status = c->status;
    close_store(out, c->result);
    if (out->dir.locked) {
        int marked = syi_run_dir_status(&out->dir, end_word(c->result, status), status ? &late : err);
        if (!status) status = marked;
    }
    syi_run_dir_close(&out->dir);
    return status;
}

static struct syi_launch train_launch(const struct cli_options *o, const struct syi_config *config)
{
    struct syi_launch launch = cli_launch(o, config);
    launch.exact = 1;
    return launch;
}

static int train_in(const char *path, int existed, const struct syi_lock_options *lock,
                    const struct cli_options *o, struct syi_config *config)
{
    struct sy_error err = {0};
    struct output out = {.o = o, .config = config, .existed = existed, .lock = *lock};
    struct cli_progress progress;
    struct syi_train_result result = {0};
    snprintf(out.dir.path, sizeof out.dir.path, "%s", path);
    cli_progress_init(&progress, o->quiet, config->train.log_every, &out.dir);
    struct syi_train_job job = {.launch = train_launch(o, config),
                                .dir = &out.dir,
                                .resume = o->resume,
                                .sink = &out.sink,
                                .open = open_output,
                                .begun = write_kept_config,
                                .open_arg = &out,
                                .changes = &out.changes,
                                .report = cli_progress_report(&progress),
                                .stop = &stop_requested};
    int status = syi_train(&job, &result, &err);
    cli_work_line_clear();
    struct closing closing = {&out, &result, status};
    /* Where training failed the others wait no more. */
    status = status ? close_output(&closing, &err) : cli_world_work(close_output, &closing, &err);
    syi_text_free(&out.changes);
    if (status) return out.refused ? cli_usage(&err) : cli_fail(&err);
    print_result(&result, path);
    return exit_status(&result);
}

/* The other ranks write their parts of checkpoints, and nothing else. */
static int train_silently(const char *path, const struct cli_options *o, const struct syi_config *config)
{
    struct sy_error err = {0};
    struct syi_run_dir dir = {0};
    struct syi_train_result result = {0};
    snprintf(dir.path, sizeof dir.path, "%s", path);
    struct syi_train_job job = {
        .launch = train_launch(o, config), .dir = &dir, .resume = o->resume, .stop = &stop_requested};
    return syi_train(&job, &result, &err) ? cli_fail(&err) : exit_status(&result);
}

static int plan_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct syi_config *config = arg;
    struct syi_engine *engine;
    int evaluates = syi_config_evaluates(config);
    int use = SYI_USE_TRAIN | (evaluates & SYI_EVALUATES ? SYI_USE_EVAL : 0) |
              (evaluates & SYI_EVALUATES_DECODED ? SYI_USE_DECODE : 0) |
              (config->checkpoint.background ? SYI_USE_SNAPSHOT : 0);
    int status = syi_engine_new(config, rank, use, 1, &engine, err);
    if (!status) syi_engine_free(engine);
    return status;
}

/* Before a folder is made for the run: what cannot be split over these ranks, or does not fit the budget; optimizers that
 * contradict each other are a mistake in the run file. */
static int check_plan(const struct cli_options *o, struct syi_config *config)
{
    struct syi_launch launch = train_launch(o, config);
    struct sy_error err = {0};
    int status = syi_launch_threads(&launch, &launch.threads, &err);
    if (!status) status = syi_launch_plan(&launch, plan_rank, config, &err);
    if (status == SY_EMISMATCH) return cli_usage(&err);
    return status ? cli_fail(&err) : CLI_DONE;
}

/* What rank 0 does before the others are needed, which may take long: it reads data. */
struct preparation {
    const struct cli_options *o;
    struct syi_config *config;
    char *path; /* [SYI_CONFIG_STRING] */
    struct syi_lock_options *lock;
};

static int prepare(void *arg, struct sy_error *err)
{
    const struct preparation *p = arg;
    (void)err;
    int status = find_buckets(p->o, p->config);
    if (!status) status = choose_folder(p->o, p->config, p->path);
    if (!status) status = read_lock_wait(&p->lock->wait);
    if (!status) status = check_data(p->o, p->config);
    if (!status) status = check_test_files(p->config);
    if (!status) status = check_plan(p->o, p->config);
    if (!status && !*p->path) status = make_folder(p->config, p->path, SYI_CONFIG_STRING);
    return status;
}

static int run_in(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    char path[SYI_CONFIG_STRING] = "";
    struct syi_lock_options lock = {.takeover = o->takeover};
    int existed = o->run_dir && syi_run_dir_exists(o->run_dir);
    int stored = o->run_dir && !strcmp(o->operand[0], o->run_dir);
    int status = stored ? cli_load_to_resume(o->run_dir, o, &config, &err)
                        : cli_load_config(o->operand[0], o, &config, &err);
    if (status) return cli_load_failed(&err);
    status = cli_check_launch("train", o, &config, 1);
    struct preparation preparation = {o, &config, path, &lock};
    if (!status && cli_world_first()) status = cli_world_work(prepare, &preparation, &err);
    if (!status) status = cli_world_share(path, sizeof path);
    if (!status && config.data.auto_buckets)
        status = cli_world_share(&config.data.length_buckets, sizeof config.data.length_buckets);
    if (!status) status = cli_world_share(&config.cpu.bfloat16, sizeof config.cpu.bfloat16);
    if (!status) status = cli_world_share(&config.reproducible.min_leaf, sizeof config.reproducible.min_leaf);
    if (status) return status;
    if (!cli_world_first()) {
        catch_signals();
        return train_silently(path, o, &config);
    }
    cli_log_to_stderr(o->quiet);
    status = train_in(path, existed, &lock, o, &config);
    if (status && !o->run_dir) rmdir(path); /* empty, if the run did not begin */
    return status;
}

/* A run directory in place of a run file is itself the run to go on with, by the run file stored in it. */
int cli_train(const struct cli_options *o)
{
    struct cli_options mine = *o;
    if (syi_packed_is(o->operand[0])) {
        cli_error(
            "train: %s is a packed model: name a run file, in which train.init_from may name the run that the "
            "model was packed of",
            o->operand[0]);
        return CLI_USAGE;
    }
    if (!cli_is_folder(o->operand[0])) return run_in(&mine);
    if (!o->resume || o->run_dir) {
        cli_error(
            "train: %s is a folder: `switchyard train --resume %s` goes on with a run, else name a run file",
            o->operand[0], o->operand[0]);
        return CLI_USAGE;
    }
    mine.run_dir = mine.operand[0];
    return run_in(&mine);
}
