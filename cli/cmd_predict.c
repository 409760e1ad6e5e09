/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard predict RUN_DIR: one input a line on stdin, one output a line (or several) on stdout,
 * in order. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "data/vocabulary.h"
#include "train/trainer/trainer.h"

struct lines {
    char *line; /* of getline */
    size_t capacity;
    int64_t n, too_long; /* read so far; of them over the limit */
    int invalid;         /* 1: a line was not valid UTF-8, which was said */
    int64_t most;        /* data.max_input_length */
    int scores;          /* decode.scores */
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

/* One line whatever the bytes: no target of a training file holds a line feed or a TAB. */
static void put_text(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) putchar(text[i] == '\n' || text[i] == '\t' ? ' ' : text[i]);
}

static int put_line(void *arg, const struct syi_prediction *p)
{
    struct lines *lines = arg;
    if (p->too_long && !p->decode) {
        lines->too_long++;
        cli_error(
            "predict: input line %lld is over the limit of data.max_input_length=%lld tokens, the end token "
            "included: its output is empty",
            (long long)p->index + 1, (long long)lines->most);
    }
    put_text(p->text, p->bytes);
    if (lines->scores) printf("\t%.6g", p->score);
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
    lines.scores = config.decode.scores;
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
    CLI_MODEL_OPTIONS " checkpoint beams temperature decodes scores",
    "Reads one input a line and writes one output a line, or with --decodes N the N best.",
    "Lines of output are in the order of the inputs, N for each, the best first. A score is the\n"
    "log-probability of the output, of beams divided by ((5 + length) / 6)^decode.alpha; -inf: an empty "
    "line,\n"
    "as fewer than N outputs were found. A TAB or line feed in an output is written as a space. An input "
    "over\n"
    "the length limit gives empty lines, a message, and exit status 1 at the end.",
    run};
