/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard metrics RUN_DIR [SQL]: questions to a run's database. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "metrics/query.h"

static int print_line(void *arg, const char *line)
{
    (void)arg;
    return puts(line) < 0 ? SY_EIO : SY_OK;
}

static int run(const struct cli_options *options)
{
    char path[SYI_CONFIG_STRING + 16];
    struct sy_error err = {0};
    snprintf(path, sizeof path, "%s/metrics.db", options->operand[0]);
    int status = syi_query_run(path, options->n_operands > 1 ? options->operand[1] : NULL,
                               options->tsv ? SYI_QUERY_TSV : SYI_QUERY_COLUMNS, print_line, NULL, &err);
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
