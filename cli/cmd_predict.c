/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard predict RUN_DIR: one input a line on stdin, one output a line (or several) on stdout,
 * in order. Whoever waits for answers gets them when the input has no more lines at the moment. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/work_line.h"
#include "train/engine/engine.h"
#include "train/predict/predict.h"

struct dialog {
    struct cli_input input; /* first: the library knows it by the same address */
    int64_t too_long;       /* lines over the limit so far */
    int64_t most;           /* data.max_input_length */
    int scores;             /* decode.scores */
    int scored;             /* an output has a score, shown or not */
};

/* One line whatever the bytes, for any reader: no target of a training file holds one of these. */
static void put_text(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) putchar(text[i] && strchr("\n\r\t", text[i]) ? ' ' : text[i]);
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
    const int finite = !d->scored || !isnan(p->score);
    if (!finite) cli_input_not_finite(&d->input, p->index);
    put_text(p->text, p->bytes);
    if (d->scores) printf("\t%.6g", finite ? p->score : NAN); /* nan whatever its sign */
    putchar('\n');
    if (!p->decode) cli_input_show(&d->input, p->index + 1);
    return fflush(stdout) || ferror(stdout) ? syi_error_system(err, "predict: cannot write the output")
                                            : SY_OK;
}

int cli_predict(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct dialog dialog = {.input = {.command = "predict", .lines = {.fd = STDIN_FILENO}}};
    int status = cli_load_run(o->operand[0], o, &config, &err);
    if (status) return cli_load_failed(&err);
    status = cli_check_launch("predict", o, &config, 1);
    if (status) return status;
    dialog.most = config.data.max_input_length;
    dialog.scores = config.decode.scores;
    dialog.scored = syi_engine_searches(&config.decode);
    cli_log_to_stderr(1);
    cli_work_line_open(cli_terminal(stderr), o->quiet || isatty(STDOUT_FILENO));
    struct syi_predict_job job = {.lines = cli_lines_job(o, &config, &dialog), .put = put_line};
    status = syi_predict_run(&job, &err);
    cli_work_line_clear();
    cli_lines_free(&dialog.input.lines);
    if (status) return cli_fail(&err);
    return dialog.too_long || dialog.input.not_finite ? CLI_FAILED : CLI_DONE;
}
