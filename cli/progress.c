/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of training and evaluation on stdout. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/work_line.h"

void cli_progress_init(struct cli_progress *progress, int quiet, int64_t every, struct syi_run_dir *dir)
{
    memset(progress, 0, sizeof *progress);
    progress->quiet = quiet;
    progress->terminal = cli_terminal(stdout) != NULL;
    progress->every = every;
    progress->dir = dir;
    cli_work_line_open(cli_terminal(stdout), quiet);
}

static void show_line(void *arg, const char *text)
{
    struct cli_progress *progress = arg;
    if (progress->dir) syi_run_dir_log(progress->dir, text);
    if (progress->quiet) return;
    cli_work_line_clear();
    cli_print_line(text, 2);
    fflush(stdout);
}

/* All that fits into bytes - 1 columns; what matters least goes first. */
static void progress_text(const struct syi_progress *p, char *text, size_t bytes)
{
    char left[40], step[80], rate[40], time[40], learning[40];
    cli_time_text(p->seconds_left, left, sizeof left);
    snprintf(step, sizeof step, "step %lld/%lld  loss %.4f", (long long)p->step, (long long)p->steps,
             p->loss);
    snprintf(learning, sizeof learning, "  lr %.2e", p->learning_rate);
    snprintf(rate, sizeof rate, "  %.0f tokens/s", p->tokens_per_second);
    snprintf(time, sizeof time, "  %.1f ms/step", p->step_seconds * 1e3);
    for (int level = 0; level < 4; level++) {
        int length = snprintf(text, bytes, "%s%s%s%s  %s left", step, level < 2 ? learning : "",
                              level < 3 ? rate : "", level < 1 ? time : "", left);
        if (length >= 0 && (size_t)length < bytes) return;
    }
}

static void show_progress(void *arg, const struct syi_progress *p)
{
    struct cli_progress *progress = arg;
    char text[200]; /* cli_line_width is less */
    int plain = p->step % progress->every == 0 || p->step == p->steps;
    double now = syi_seconds();
    int live = progress->terminal && !progress->quiet && (now - progress->shown > 0.2 || p->step == p->steps);
    if (!plain && !live) return;
    progress_text(p, text, sizeof text);
    if (plain && progress->dir) syi_run_dir_log(progress->dir, text);
    if (progress->quiet) return;
    if (progress->terminal && live) {
        progress_text(p, text, (size_t)cli_line_width(stdout) + 1);
        cli_work_line_keep(text);
        progress->shown = now;
    } else if (!progress->terminal) {
        cli_work_line_clear();
        puts(text);
        fflush(stdout);
    }
}

/* How a number of an evaluation is called, and how it is printed. */
static const struct shown {
    const char *name, *text;
    enum { PLAIN, POINTS, PERCENT } as; /* 0.4123; of 100, 41.23; a share of 1 in percent */
} shown[] = {
    {"loss", "loss", PLAIN},
    {"wer", "word error rate", PERCENT},
    {"per", "phoneme error rate", PERCENT},
    {"exact_match", "exact match", PERCENT},
    {"label_accuracy", "accuracy", PERCENT},
    {"bleu", "BLEU", POINTS},
    {"chrf", "chrF2", POINTS},
    {"rouge1", "ROUGE-1", PERCENT},
    {"rouge2", "ROUGE-2", PERCENT},
    {"rougeL", "ROUGE-L", PERCENT},
    {"f1", "F1", PERCENT},
};

static void put_shown(struct syi_text *out, const struct shown *s, double value)
{
    static const char *const formats[] = {
        [PLAIN] = ", %s %.4f", [POINTS] = ", %s %.2f", [PERCENT] = ", %s %.2f %%"};
    syi_text_printf(out, formats[s->as], s->text, s->as == PERCENT ? 100 * value : value);
}

void cli_eval_text(const struct syi_eval_result *r, char *text, size_t bytes)
{
    static const struct shown tokens = {"accuracy", "token accuracy", PERCENT};
    const double *accuracy = syi_eval_result_find(r, tokens.name);
    int decoded = (r->modes & SYI_MODE_INFER_EVAL) != 0;
    struct syi_text out = syi_text_in(text, bytes);
    syi_text_printf(&out, "%s: %lld items", r->task, (long long)r->items);
    for (size_t i = 0; i < SYI_COUNT(shown); i++) {
        const double *value = syi_eval_result_find(r, shown[i].name);
        if (value) put_shown(&out, &shown[i], *value);
    }
    if (!decoded && accuracy) put_shown(&out, &tokens, *accuracy);
    syi_text_printf(&out, ", %lld cut (%s)", (long long)r->cut, decoded ? "counted wrong" : "left out");
}

static void show_eval(void *arg, int64_t step, const struct syi_eval_result *result)
{
    char text[CLI_EVAL_TEXT], line[CLI_EVAL_TEXT + 40];
    cli_eval_text(result, text, sizeof text);
    snprintf(line, sizeof line, "step %lld  %s", (long long)step, text);
    show_line(arg, line);
}

static void show_work(void *arg, const char *what, int64_t done, int64_t all)
{
    char of_them[40];
    (void)arg;
    snprintf(of_them, sizeof of_them, "of %lld items", (long long)all);
    cli_work_line_show(what, of_them, done, (double)done / (double)(all ? all : 1));
}

struct syi_report cli_progress_report(struct cli_progress *progress)
{
    return (struct syi_report){progress, show_line, show_progress, show_eval, show_work};
}
