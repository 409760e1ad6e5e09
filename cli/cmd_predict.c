/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard predict RUN_DIR: one input a line on stdin, one output a line on stdout, in order. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "data/vocabulary.h"
#include "train/trainer.h"

struct lines {
    char *line; /* of getline */
    size_t capacity;
    int64_t n, too_long; /* read so far; of them over the limit */
    int invalid;         /* 1: a line was not valid UTF-8, which was said */
    int64_t most;        /* data.max_input_length */
};

/* Bytes are legal input, but most often they are a mistake. */
static void look_at(struct lines *lines, const char *text, size_t bytes)
{
    lines->n++;
    if (lines->invalid || syi_utf8_valid((struct syi_span){text, bytes})) return;
    lines->invalid = 1;
    cli_error("warning: predict: input line %lld is not valid UTF-8; the bytes are used as they are",
              (long long)lines->n);
}

static int next_line(void *arg, const char **text, size_t *bytes)
{
    struct lines *lines = arg;
    ssize_t n = getline(&lines->line, &lines->capacity, stdin);
    if (n < 0) return ferror(stdin) ? SY_EIO : 0;
    if (n > 0 && lines->line[n - 1] == '\n') n--;
    if (n > 0 && lines->line[n - 1] == '\r') n--;
    *text = lines->line;
    *bytes = (size_t)n;
    look_at(lines, *text, *bytes);
    return 1;
}

static int put_line(void *arg, int64_t index, const char *text, size_t bytes, int too_long)
{
    struct lines *lines = arg;
    if (too_long) {
        lines->too_long++;
        cli_error(
            "predict: input line %lld is over the limit of data.max_input_length=%lld tokens, the end token "
            "included: its output is empty",
            (long long)index + 1, (long long)lines->most);
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
    status = cli_check_launch("predict", o, &config, 1);
    if (status) return status;
    lines.most = config.data.max_input_length;
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

const struct cli_cmd cli_predict = {
    "predict",
    "RUN_DIR",
    CLI_MODEL_OPTIONS " checkpoint beams temperature",
    "Reads one input a line and writes one output a line.",
    "An input over the length limit gives an empty line, a message, and exit status 1 at the end.",
    run};
