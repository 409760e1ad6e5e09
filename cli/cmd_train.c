/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard train RUNFILE: the run directory, the metric store, signals and progress around syi_train. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "data/vocabulary.h"
#include "metrics/store.h"
#include "train/trainer/trainer.h"

static atomic_int stop_requested;

/* A second signal ends the process at once. */
static void on_signal(int number)
{
    atomic_store(&stop_requested, 1);
    signal(number, SIG_DFL);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SYI_COUNT(numbers); i++) sigaction(numbers[i], &action, NULL);
    /* Control-C ends `tee` too: a run whose reader is gone still saves. main() tells that output was lost. */
    signal(SIGPIPE, SIG_IGN);
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

static int check_stored(const char *path, const struct syi_config *config, struct sy_error *err)
{
    struct syi_config stored;
    int status = syi_run_dir_read_config(path, &stored, err);
    return status ? status : syi_config_compare(&stored, config, tell_difference, err, err);
}

/* ---- the run directory ---- */

/* Which folder the run lives in, and whether it may. Usage errors have been told when it returns CLI_USAGE.
 */
static int choose_folder(const struct cli_options *o, const struct syi_config *config, char *path,
                         size_t bytes)
{
    struct sy_error err = {0};
    if (o->resume && !o->run_dir) {
        cli_error("train: --resume needs --run-dir, the run to continue");
        return CLI_USAGE;
    }
    if (!o->run_dir) return syi_run_dir_name(config->run.name, path, bytes, &err) ? cli_fail(&err) : CLI_DONE;
    if (snprintf(path, bytes, "%s", o->run_dir) >= (int)bytes) {
        cli_error("train: --run-dir is longer than %zu bytes", bytes - 1);
        return CLI_USAGE;
    }
    if (!syi_run_dir_exists(path)) return CLI_DONE;
    if (!o->resume) {
        cli_error("train: %s holds a run already: add --resume to continue it, or choose another --run-dir",
                  path);
        return CLI_USAGE;
    }
    return check_stored(path, config, &err) ? cli_usage(&err) : CLI_DONE;
}

/* Before a folder is made for the run: are its files there, does the model have the vocabulary's ids? */
static int check_data(const struct syi_config *config)
{
    struct syi_vocabulary vocabulary;
    struct sy_error err = {0};
    const struct syi_task_part *task = syi_config_task(config);
    const struct {
        const char *key, *file;
    } files[] = {{"train", task->train}, {"valid", task->valid}};
    if (!*task->train) {
        cli_error("train: task.%s.train is not set: give it a file whose lines are input TAB target",
                  *task->name_of_part ? task->name_of_part : "NAME");
        return CLI_USAGE;
    }
    if (syi_vocabulary_open(&vocabulary, config, &err)) return cli_usage(&err);
    syi_vocabulary_close(&vocabulary);
    for (size_t i = 0; i < SYI_COUNT(files); i++) {
        if (!*files[i].file || !access(files[i].file, R_OK)) continue;
        cli_error("train: task.%s.%s: cannot read %s: %s", task->name_of_part, files[i].key, files[i].file,
                  strerror(errno));
        return CLI_FAILED;
    }
    return CLI_DONE;
}

static int open_store(const struct syi_run_dir *dir, const struct syi_config *config, int resume,
                      struct syi_metric_sink *sink, struct sy_error *err)
{
    char path[SYI_CONFIG_STRING + 16];
    struct syi_text text = {0};
    snprintf(path, sizeof path, "%s/metrics.db", dir->path);
    syi_config_print(config, false, &text);
    struct syi_store_options options = {.start_step = resume ? syi_checkpoint_latest(dir->path) : -1,
                                        .config = text.data};
    int status = syi_text_status(&text, err);
    if (!status) status = syi_store_open(path, &options, sink, err);
    syi_text_free(&text);
    return status;
}

/* ---- the run ---- */

static const char *end_word(const struct syi_train_result *result, int status)
{
    if (status || result->end == SYI_END_NAN) return "failed";
    return result->end == SYI_END_DONE || result->end == SYI_END_STOPPED_EARLY ? "done" : "stopped";
}

static int exit_status(const struct syi_train_result *result)
{
    switch (result->end) {
    case SYI_END_NAN: return CLI_FAILED;
    case SYI_END_SIGNAL:
    case SYI_END_TIME_LIMIT: return CLI_RESUMABLE;
    default: return CLI_DONE;
    }
}

static void print_result(const struct syi_train_result *result, const struct syi_run_dir *dir)
{
    if (result->end == SYI_END_NAN)
        cli_error("train: %s", result->what);
    else
        printf("%s\n", result->what);
    if (result->median_step_seconds > 0) printf("median step %.4f s\n", result->median_step_seconds);
    if (result->weights_sha256[0]) printf("weights sha256 %s\n", result->weights_sha256);
    printf("run directory %s\n", dir->path);
}

/* Rank 0 writes the run directory and the database. */
static int begin(const struct syi_run_dir *dir, const struct cli_options *o, const struct syi_config *config,
                 struct syi_metric_sink *sink)
{
    struct sy_error err = {0}, late = {0};
    int status = syi_run_dir_write_config(dir, config, &err);
    if (!status) status = syi_run_dir_status(dir, "running", &err);
    if (!status) status = open_store(dir, config, o->resume, sink, &err);
    if (!status) return CLI_DONE;
    cli_fail(&err);
    if (syi_run_dir_status(dir, "failed", &late)) cli_error("%s", late.text);
    return CLI_FAILED;
}

static int train_in(struct syi_run_dir *dir, const struct cli_options *o, const struct syi_config *config)
{
    struct sy_error err = {0}, late = {0};
    struct syi_metric_sink sink;
    struct cli_progress progress;
    struct syi_train_result result = {0};
    int status = begin(dir, o, config, &sink);
    if (status) return status;
    cli_progress_init(&progress, o->quiet, config->train.log_every, dir);
    struct syi_train_job job = {.launch = cli_launch(o, config),
                                .dir = dir,
                                .resume = o->resume,
                                .sink = &sink,
                                .report = cli_progress_report(&progress),
                                .stop = &stop_requested};
    status = syi_train(&job, &result, &err);
    cli_progress_end(&progress);
    int closed = sink.close(sink.arg, status ? &late : &err);
    if (!status) status = closed;
    int marked = syi_run_dir_status(dir, end_word(&result, status), status ? &late : &err);
    if (!status) status = marked;
    if (status) return cli_fail(&err);
    print_result(&result, dir);
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
        .launch = cli_launch(o, config), .dir = &dir, .resume = o->resume, .stop = &stop_requested};
    return syi_train(&job, &result, &err) ? cli_fail(&err) : exit_status(&result);
}

static int plan_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct syi_config *config = arg;
    struct syi_engine *engine;
    int use = SYI_USE_TRAIN | (*syi_config_task(config)->valid ? SYI_USE_EVAL | SYI_USE_DECODE : 0);
    int status = syi_engine_new(config, rank, use, 1, &engine, err);
    if (!status) syi_engine_free(engine);
    return status;
}

/* Before a folder is made for the run: what cannot be split over these ranks, or does not fit the budget. */
static int check_plan(const struct cli_options *o, struct syi_config *config)
{
    struct syi_launch launch = cli_launch(o, config);
    struct sy_error err = {0};
    return syi_launch_plan(&launch, plan_rank, config, &err) ? cli_fail(&err) : CLI_DONE;
}

static int run(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct syi_run_dir dir;
    char path[SYI_CONFIG_STRING] = "";
    int status = cli_load_config(o->operand[0], o, &config, &err);
    if (status) return cli_usage(&err);
    status = cli_check_launch("train", o, &config, 1);
    if (!status && cli_world_first()) status = choose_folder(o, &config, path, sizeof path);
    if (!status) status = check_data(&config);
    if (!status && cli_world_first()) status = check_plan(o, &config);
    if (!status) status = cli_world_share(path, sizeof path);
    if (status) return status;
    catch_signals();
    if (!cli_world_first()) return train_silently(path, o, &config);
    if (!o->quiet) printf("run directory %s\n", path), fflush(stdout);
    cli_log_to_stderr(o->quiet);
    if (syi_run_dir_open(path, &dir, &err)) return cli_fail(&err);
    status = train_in(&dir, o, &config);
    syi_run_dir_close(&dir);
    return status;
}

const struct cli_cmd cli_train = {
    "train",
    "RUNFILE",
    CLI_MODEL_OPTIONS " run-dir resume",
    "Trains the model a run file describes.",
    "Exit status: 0 done, 1 failed, 2 usage, 3 stopped by a signal or the time limit; the same command with\n"
    "--resume goes on from there (or starts, where there is no checkpoint yet).",
    run};
