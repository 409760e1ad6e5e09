/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard score RUN_DIR: lines of input TAB target on stdin or in a file, the log-likelihood of each target on stdout,
 * in order, with the same streaming as predict. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/work_line.h"
#include "train/predict/predict.h"

struct scoring {
    struct cli_input input; /* first: the library knows it by the same address */
    const struct syi_config *config;
    int per_token;
    int64_t faults; /* lines without a score so far */
    struct syi_inflow file;
};

static void say_fault(const struct scoring *s, const struct syi_score *score)
{
    long long line = (long long)score->index + 1;
    if (score->fault == SYI_LINE_TOO_LONG)
        cli_error("score: input line %lld is over the limit of data.max_input_length=%lld or "
                  "data.max_target_length=%lld tokens, the end token included: its score is nan",
                  line, (long long)s->config->data.max_input_length,
                  (long long)s->config->data.max_target_length);
    else
        cli_error("score: input line %lld has %s: write `input TAB target`; its score is nan", line,
                  score->fault == SYI_LINE_NO_TAB ? "no tab" : "more than one tab");
}

/* As many digits as tell any two doubles apart. */
static int put_score(void *arg, const struct syi_score *score, struct sy_error *err)
{
    struct scoring *s = arg;
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, s->per_token && score->tokens ? score->value / score->tokens : score->value);
    if (score->fault) {
        s->faults++;
        say_fault(s, score);
    } else if (!isfinite(score->value)) {
        cli_input_not_finite(&s->input, score->index);
    }
    puts(text);
    cli_input_show(&s->input, score->index + 1);
    return fflush(stdout) || ferror(stdout) ? syi_error_system(err, "score: cannot write the output") : SY_OK;
}

/* Rank 0 alone reads. The exit status of all ranks. */
static int open_file(struct scoring *s, const char *path)
{
    struct sy_error why = {0}, err = {0};
    if (!path) return CLI_DONE;
    int failed = cli_world_first() && syi_inflow_open(&s->file, path, &why);
    s->input.lines.file = &s->file;
    s->input.lines.fd = s->file.fd;
    if (failed) syi_error(&err, why.code, "score: %s", why.text);
    failed = cli_world_agree(failed ? cli_fail(&err) : CLI_DONE);
    if (failed) syi_inflow_close(&s->file);
    return failed;
}

int cli_score(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct scoring s = {.input = {.command = "score", .lines = {.fd = STDIN_FILENO}, .tabs = 1},
                        .config = &config,
                        .file = {.fd = -1},
                        .per_token = o->per_token};
    int status = cli_load_run(o->operand[0], o, &config, &err);
    if (status) return cli_load_failed(&err);
    status = cli_check_launch("score", o, &config, 1);
    if (status) return status;
    status = open_file(&s, o->file);
    if (status) return status;
    cli_log_to_stderr(1);
    cli_work_line_open(cli_terminal(stderr), o->quiet || isatty(STDOUT_FILENO));
    struct syi_score_job job = {.lines = cli_lines_job(o, &config, &s), .put = put_score};
    status = syi_score_run(&job, &err);
    cli_work_line_clear();
    cli_lines_free(&s.input.lines);
    syi_inflow_close(&s.file);
    if (status) return cli_fail(&err);
    return s.faults || s.input.not_finite ? CLI_FAILED : CLI_DONE;
}
