/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on stderr: one line, what, where, what to try. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/work_line.h"

static int hold;
static char text[1400]; /* the last message */

void cli_error_hold(int on)
{
    hold = on;
}

const char *cli_error_last(void)
{
    return text;
}

void cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
    if (hold) return;
    cli_work_line_clear();
    fprintf(stderr, "switchyard: %s\n", text);
}

int cli_fail(const struct sy_error *err)
{
    cli_error("%s", err->text[0] ? err->text : "failed without a message");
    return CLI_FAILED;
}

int cli_usage(const struct sy_error *err)
{
    cli_fail(err);
    return CLI_USAGE;
}

static int show_info = 1;

static void print_line(void *arg, enum sy_log_level level, const char *line)
{
    (void)arg;
    if (hold) return;
    if (level == SY_LOG_DEBUG || (level == SY_LOG_INFO && !show_info)) return;
    cli_work_line_clear();
    fprintf(stderr, "%s%s\n", level == SY_LOG_WARN ? "switchyard: warning: " : "", line);
}

void cli_log_to_stderr(int quiet)
{
    show_info = !quiet;
    sy_log_set(print_line, NULL);
}
