/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard eval RUN_DIR: error rates of a checkpoint on held-out examples; kept in the run's database. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "metrics/store.h"

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
    struct syi_eval_result rows = *r;
    syi_eval_result_set(&rows, "items", (double)rows.items);
    syi_eval_result_set(&rows, "cut", (double)rows.cut);
    int status = syi_store_open(path, &options, &sink, &err);
    if (!status) {
        for (int i = 0; !status && i < rows.n; i++)
            status = sink.eval(sink.arg, step, rows.task, rows.value[i].name, rows.value[i].value, &err);
        int closed = sink.close(sink.arg, &err);
        if (!status) status = closed;
    }
    if (status) cli_error("eval: the result is not kept in the database: %s", err.text);
}

static int run(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct cli_progress progress;
    struct syi_eval_result result;
    char text[300];
    int64_t step = -1;
    const char *run_dir = o->operand[0];
    int status = cli_load_run(run_dir, o, &config, &err);
    if (status) return cli_usage(&err);
    const struct syi_task_part *task = syi_config_task(&config);
    const char *file = o->file ? o->file : task->test;
    char name[SYI_PART_NAME + 8];
    snprintf(name, sizeof name, "%s/test", task->name_of_part);
    if (!*file) {
        cli_error("eval: the run file has no task.NAME.test: give --file TSV");
        return CLI_USAGE;
    }
    status = cli_check_launch("eval", o, &config, 1);
    if (status) return status;
    cli_log_to_stderr(o->quiet);
    cli_progress_init(&progress, o->quiet, 1, NULL);
    struct syi_eval_job job = {.launch = cli_launch(o, &config),
                               .run_dir = run_dir,
                               .checkpoint = o->checkpoint,
                               .task = o->file ? o->file : name,
                               .file = file,
                               .report = cli_progress_report(&progress),
                               .step = &step};
    if (syi_eval_run(&job, &result, &err)) return cli_fail(&err);
    cli_progress_end(&progress);
    if (!cli_world_first()) return CLI_DONE;
    cli_eval_text(&result, text, sizeof text);
    printf("%s\n", text);
    keep(run_dir, &config, step, &result);
    return CLI_DONE;
}

const struct cli_cmd cli_eval = {"eval",
                                 "RUN_DIR",
                                 CLI_MODEL_OPTIONS " checkpoint file beams temperature",
                                 "Word and phoneme error rate of a checkpoint on held-out examples.",
                                 NULL,
                                 run};
