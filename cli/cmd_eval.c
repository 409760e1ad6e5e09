/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard eval RUN_DIR: a checkpoint on held-out examples, a line for each task; kept in the run's database. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/packed.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/work_line.h"
#include "data/record.h"
#include "metrics/store.h"

struct evaluating {
    const char *run_dir;
    const struct syi_config *config;
};

/* Numbers of an evaluation join the run's database where it can be written; a read-only run is evaluated all
 * the same. */
static void keep(const char *run_dir, const struct syi_config *config, int64_t step,
                 const struct syi_eval_result *r)
{
    char path[SYI_CONFIG_STRING + 16];
    struct sy_error err = {0};
    struct syi_metric_sink sink;
    struct syi_store_options options = {.start_step = step, .append = 1, .folder = config->metrics.dir};
    snprintf(path, sizeof path, "%s/metrics.db", run_dir);
    int status = syi_store_open(path, &options, &sink, &err);
    if (!status) {
        status = syi_eval_result_write(r, &sink, step, &err);
        int closed = sink.close(sink.arg, status ? NULL : &err);
        if (!status) status = closed;
    }
    if (status) cli_error("eval: the result is not kept in the database: %s", err.text);
}

static void show(void *arg, int64_t step, const struct syi_eval_result *r)
{
    const struct evaluating *e = arg;
    char text[CLI_EVAL_TEXT];
    cli_work_line_clear();
    cli_eval_text(r, text, sizeof text);
    cli_print_line(text, 2);
    fflush(stdout);
    if (!syi_packed_is(e->run_dir)) keep(e->run_dir, e->config, step, r);
}

/* --file is read as files of the task are, and those need not be tsv. */
static void no_file(const struct cli_options *o, const struct syi_config *config)
{
    const struct syi_task_part *task =
        o->task ? syi_config_task_named(config, o->task) : syi_config_task(config);
    cli_error("eval: the run file has no task.%s.test: give a file of format %s as --file",
              o->task ? o->task : "NAME", syi_record_format(task->format)->name);
}

/* Whether there is something to evaluate: CLI_DONE, or CLI_USAGE after having said what is missing. */
static int check_tasks(const struct cli_options *o, const struct syi_config *config)
{
    const char *names[SYI_CONFIG_PARTS];
    int n = config->task.n, tests = 0, known = !o->task;
    for (int i = 0; i < n; i++) {
        const struct syi_task_part *part = &config->task.part[i];
        int wanted = !o->task || !strcmp(o->task, part->name_of_part);
        names[i] = part->name_of_part;
        known |= wanted;
        tests += wanted && *part->test;
    }
    if (!known && !n)
        cli_error("eval: --task %s: the run has no task", o->task);
    else if (!known)
        cli_error("eval: --task %s: the run has no such task, did you mean %s?", o->task,
                  cli_nearest(o->task, names, (size_t)n));
    else if (!o->file && !tests)
        no_file(o, config);
    else
        return CLI_DONE;
    return CLI_USAGE;
}

int cli_eval(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct cli_progress progress;
    struct evaluating evaluating = {o->operand[0], &config};
    int status = cli_load_run(o->operand[0], o, &config, &err);
    if (status) return cli_load_failed(&err);
    status = check_tasks(o, &config);
    if (!status) status = cli_check_launch("eval", o, &config, 1);
    if (status) return status;
    cli_log_to_stderr(o->quiet);
    cli_progress_init(&progress, o->quiet, 1, NULL);
    struct syi_eval_job job = {.launch = cli_launch(o, &config),
                               .run_dir = o->operand[0],
                               .checkpoint = o->checkpoint,
                               .task = o->task,
                               .file = o->file,
                               .report = cli_progress_report(&progress),
                               .arg = &evaluating,
                               .result = show};
    if (syi_eval_run(&job, &err)) return cli_fail(&err);
    return CLI_DONE;
}
