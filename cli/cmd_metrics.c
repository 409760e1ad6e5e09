/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard metrics RUN_DIR [SQL]: questions to a run's database. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
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

static int run(const struct cli_options *options)
{
    char path[SYI_CONFIG_STRING + 16];
    struct sy_error err = {0};
    snprintf(path, sizeof path, "%s/metrics.db", options->operand[0]);
    struct syi_query query = {.sql = options->n_operands > 1 ? options->operand[1] : NULL,
                              .format = options->tsv ? SYI_QUERY_TSV : SYI_QUERY_COLUMNS};
    signal(SIGALRM, give_up);
    alarm(PATIENCE);
    int status = syi_query_run(path, &query, print_line, NULL, &err);
    alarm(0);
    return status ? cli_fail(&err) : CLI_DONE;
}

const struct cli_cmd cli_metrics = {
    "metrics",
    "RUN_DIR [SQL]",
    "tsv",
    "Prints a summary of a run, or the answer to a SQL query on its database.",
    "Tables: run, metric, routing, eval, event. Views: loss_curve, expert_load, eval_latest and more "
    "(doc/metrics.md). Example:\n"
    "  switchyard metrics runs/g2p 'SELECT step, loss FROM loss_curve ORDER BY step DESC LIMIT 5'",
    run};
