/* SPDX-License-Identifier: Apache-2.0 */
/* How long work is shown: one line rewritten on a terminal, plain lines every so often when piped. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "train/trainer/trainer.h"

struct cli_progress {
    int quiet;
    int terminal;  /* 1: one line is rewritten. Not under mpirun, which gives ranks a terminal of its own */
    int64_t every; /* steps between two plain lines */
    double shown;  /* time of the last terminal line */
    struct syi_run_dir *dir; /* its log gets every line, or NULL */
};

void cli_progress_init(struct cli_progress *progress, int quiet, int64_t every, struct syi_run_dir *dir);
struct syi_report cli_progress_report(struct cli_progress *progress);
enum { CLI_EVAL_TEXT = 700 };
/* "valid: 6647 items, loss 0.412, word error rate 33.1 %, phoneme error rate 8.0 %, 3 cut (counted wrong)": the loss, the
 * metrics of texts that are there, accuracy where there are none. */
void cli_eval_text(const struct syi_eval_result *result, char *text, size_t bytes);

#endif
