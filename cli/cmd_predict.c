/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard predict RUN_DIR: one input a line on stdin, one output a line on stdout, in order. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "train/trainer.h"

struct lines {
    char *line; /* of getline */
    size_t capacity;
    int64_t too_long;
};

static int next_line(void *arg, const char **text, size_t *bytes)
{
    struct lines *lines = arg;
    ssize_t n = getline(&lines->line, &lines->capacity, stdin);
    if (n < 0) return ferror(stdin) ? SY_EIO : 0;
    if (n > 0 && lines->line[n - 1] == '\n') n--;
    if (n > 0 && lines->line[n - 1] == '\r') n--;
    *text = lines->line;
    *bytes = (size_t)n;
    return 1;
}

static int put_line(void *arg, int64_t index, const char *text, size_t bytes, int too_long)
{
    struct lines *lines = arg;
    if (too_long) {
        lines->too_long++;
        cli_error("predict: input line %lld is longer than data.max_input_length allows; its output is empty",
                  (long long)index + 1);
    }
    fwrite(text, 1, bytes, stdout);
    putchar('\n');
    return fflush(stdout) ? SY_EIO : SY_OK;
}

static int run(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct lines lines = {0};
    int status = cli_load_run(o->operand[0], o, &config, &err);
    if (status) return cli_usage(&err);
    cli_log_to_stderr(1);
    struct syi_predict_job job = {.launch = cli_launch(o, &config),
                                  .run_dir = o->operand[0],
                                  .checkpoint = o->checkpoint,
                                  .arg = &lines,
                                  .next = next_line,
                                  .put = put_line};
    status = syi_predict_run(&job, &err);
    free(lines.line);
    if (status) return cli_fail(&err);
    return lines.too_long ? CLI_FAILED : CLI_DONE;
}

const struct cli_cmd cli_predict = {"predict", "RUN_DIR", CLI_MODEL_OPTIONS " checkpoint",
                                    "Reads one input a line and writes one output a line.",
                                    "An input over the length limit gives an empty line, a message, and exit status 1 at the end.",
                                    run};
