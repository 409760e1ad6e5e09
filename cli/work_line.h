/* SPDX-License-Identifier: Apache-2.0 */
/* How far work is that takes long and is no training: evaluations, predictions, scores. On a terminal one line that is
 * rewritten and goes away at the end; elsewhere a plain line a minute on standard error. Any thread. */
#ifndef CLI_WORK_LINE_H
#define CLI_WORK_LINE_H

#include <stdint.h>
#include <stdio.h>

/* terminal: the stream that has the line, if cli_terminal says it is one; NULL: none. quiet: nothing is shown from now
 * on. */
void cli_work_line_open(FILE *terminal, int quiet);
/* "WHAT: 512 of 6647 items, 2 min 03 s left". share: of the whole that is done, in 0..1; less than 0: not known. Nothing
 * is shown at first. */
void cli_work_line_show(const char *what, const char *of_them, int64_t done, double share);
/* On a terminal: a line that stays when others come after it, as that of the last step; until then this writes over it.
 * text: of cli_line_width columns at most. */
void cli_work_line_keep(const char *text);
/* Before anything else is printed, by anybody, and when the work is done: the line goes, or ends if it is one that stays. */
void cli_work_line_clear(void);
/* Columns that a line on this stream may have: one less than the terminal, for a cursor past the last one may begin a new
 * line. */
int cli_line_width(FILE *stream);
/* "2 min 03 s" */
void cli_time_text(double seconds, char *text, size_t bytes);

#endif
