/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard predict RUN_DIR: one input a line on stdin, one output a line (or several) on stdout,
 * in order. Whoever waits for answers gets them when the input has no more lines at the moment. */
#include "config.h"

#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "data/vocabulary.h"
#include "train/trainer/trainer.h"

struct dialog {
    struct cli_lines input;
    int64_t n, too_long; /* lines read so far; of them over the limit */
    int invalid;         /* 1: a line was not valid UTF-8, which was said */
    int64_t most;        /* data.max_input_length */
    int scores;          /* decode.scores */
};

/* Bytes are legal input, but most often they are a mistake. */
static void look_at(struct dialog *d, const char *text, size_t bytes)
{
    if (d->invalid || syi_utf8_valid((struct syi_span){text, bytes})) return;
    d->invalid = 1;
    cli_error("warning: predict: input line %lld is not valid UTF-8; the bytes are used as they are",
              (long long)d->n);
}

static int next_line(void *arg, int wait, const char **text, size_t *bytes, struct sy_error *err)
{
    static const int results[] = {[CLI_LINES_END] = SYI_INPUT_END,
                                  [CLI_LINES_LINE] = SYI_INPUT_LINE,
                                  [CLI_LINES_LATER] = SYI_INPUT_LATER};
    struct dialog *d = arg;
    struct sy_error why = {0};
    int result = cli_lines_next(&d->input, wait, text, bytes, &why);
    if (result < 0) return syi_error(err, result, "predict: after line %lld: %s", (long long)d->n, why.text);
    if (result != CLI_LINES_LINE) return results[result];
    size_t mark = d->n++ ? 0 : syi_utf8_mark(*text, *bytes);
    *text += mark;
    *bytes -= mark;
    look_at(d, *text, *bytes);
    return SYI_INPUT_LINE;
}

/* One line whatever the bytes: no target of a training file holds a line feed or a TAB. */
static void put_text(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) putchar(text[i] == '\n' || text[i] == '\t' ? ' ' : text[i]);
}

static int put_line(void *arg, const struct syi_prediction *p, struct sy_error *err)
{
    struct dialog *d = arg;
    if (p->too_long && !p->decode) {
        d->too_long++;
        cli_error(
            "predict: input line %lld is over the limit of data.max_input_length=%lld tokens, the end token "
            "included: its output is empty",
            (long long)p->index + 1, (long long)d->most);
    }
    put_text(p->text, p->bytes);
    if (d->scores) printf("\t%.6g", p->score);
    putchar('\n');
    return fflush(stdout) || ferror(stdout) ? syi_error_system(err, "predict: cannot write the output")
                                            : SY_OK;
}

static int run(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct dialog dialog = {.input = {.fd = STDIN_FILENO}};
    int status = cli_load_run(o->operand[0], o, &config, &err);
    if (status) return cli_usage(&err);
    status = cli_check_launch("predict", o, &config, 1);
    if (status) return status;
    dialog.most = config.data.max_input_length;
    dialog.scores = config.decode.scores;
    cli_log_to_stderr(1);
    struct syi_predict_job job = {.launch = cli_launch(o, &config),
                                  .run_dir = o->operand[0],
                                  .checkpoint = o->checkpoint,
                                  .arg = &dialog,
                                  .next = next_line,
                                  .put = put_line};
    status = syi_predict_run(&job, &err);
    cli_lines_free(&dialog.input);
    if (status) return cli_fail(&err);
    return dialog.too_long ? CLI_FAILED : CLI_DONE;
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
