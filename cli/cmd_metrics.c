/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard metrics RUN_DIR... [SQL]: questions to the databases of runs. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "metrics/query.h"

enum { PATIENCE = 360 }; /* seconds, more than SQL may take by metrics/query.h */

/* SQLite looks at the clock between its steps. SQL of which one step takes for ever ends here. */
static void give_up(int number)
{
    static const char text[] = "switchyard: metrics: the SQL does not come to an end: ask for less\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(CLI_FAILED);
    _exit(CLI_FAILED);
}

static int print_line(void *arg, const char *line)
{
    (void)arg;
    alarm(0); /* a pager may take its time */
    return puts(line) < 0 ? SY_EIO : SY_OK;
}

/* The last operand, unless it is a folder or could be the name of one that is not there. */
static const char *find_sql(const struct cli_options *options)
{
    struct stat info;
    const char *last = options->operand[options->n_operands - 1];
    if (options->n_operands < 2 || (!stat(last, &info) && S_ISDIR(info.st_mode))) return NULL;
    return !*last || strpbrk(last, " \t\n(;") ? last : NULL;
}

static int ask(const struct cli_options *options, char **path, struct sy_error *err)
{
    const char *sql = find_sql(options);
    int n = options->n_operands - (sql != NULL);
    for (int i = 0; i < n; i++) {
        path[i] = syi_format("%s/metrics.db", options->operand[i]);
        if (!path[i]) return syi_error(err, SY_ENOMEM, "out of memory");
    }
    struct syi_query query = {.sql = sql,
                              .format = options->tsv ? SYI_QUERY_TSV : SYI_QUERY_COLUMNS,
                              .others = (const char *const *)(path + 1),
                              .n_others = n - 1};
    return syi_query_run(path[0], &query, print_line, NULL, err);
}

static int run(const struct cli_options *options)
{
    struct sy_error err = {0};
    char **path = syi_alloc((size_t)options->n_operands * sizeof *path, &err);
    if (!path) return cli_fail(&err);
    signal(SIGALRM, give_up);
    alarm(PATIENCE);
    int status = ask(options, path, &err);
    alarm(0);
    for (int i = 0; i < options->n_operands; i++) syi_free(path[i]);
    syi_free(path);
    return status ? cli_fail(&err) : CLI_DONE;
}

const struct cli_cmd cli_metrics = {
    "metrics",
    "RUN_DIR... [SQL]",
    "tsv",
    "Prints a summary of a run, a comparison of several, or the answer to a SQL query on their databases.",
    "Tables: run, metric, parameter, routing, eval, example, event. Views: loss_curve, expert_balance, best_checkpoint,\n"
    "stop_reason and more, with several runs all_loss, all_metric, all_eval (doc/metrics.md). Example:\n"
    "  switchyard metrics runs/g2p 'SELECT step, loss FROM loss_curve ORDER BY step DESC LIMIT 5'",
    run};
