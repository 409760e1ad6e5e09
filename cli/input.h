/* SPDX-License-Identifier: Apache-2.0 */
/* The input of commands that answer lines: as struct syi_lines_job wants it, with a word about bytes that are no text. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "cli/cli.h"
#include "cli/lines.h"
#include "train/predict/predict.h"

/* Start from {.command = ..., .lines = {.fd = ...}}; cli_lines_job sets the most bytes of a line, cli_lines_free(&lines)
 * frees the buffer. */
struct cli_input {
    struct cli_lines lines;
    const char *command; /* for messages */
    int64_t n;           /* lines read so far */
    int invalid;         /* 1: a line was not valid UTF-8, which was said */
    int tabs;            /* 0: a line has no TAB, and the first that does is warned of; 1: it may */
    int not_finite;      /* 1: the score of a line was not finite, which was said */
};

/* The lines of input, for the run that the command names; arg: begins with a struct cli_input. */
struct syi_lines_job cli_lines_job(const struct cli_options *options, const struct syi_config *config,
                                   void *arg);
/* Shows how far they are, after an answer: `answered` lines of them. */
void cli_input_show(const struct cli_input *input, int64_t answered);
/* The score of this line, from 0, is not finite, though nothing is wrong with the line: the first is warned of. */
void cli_input_not_finite(struct cli_input *input, int64_t index);
/* `next` of struct syi_lines_job; input: struct cli_input. */
int cli_input_next(void *input, int wait, const char **text, size_t *bytes, struct sy_error *err);

#endif
