/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard top RUN_DIR: a run as it goes, in a terminal. */
#include "config.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/top/top.h"

static const double EVERY = 2, LEAST = 0.1; /* seconds: if not given; more often would hinder the writer */

/* The first of these that is set and not empty names the locale. */
static int has_unicode(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < SYI_COUNT(variables); i++) {
        const char *value = getenv(variables[i]);
        if (value && *value)
            return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8") ||
                   strstr(value, "utf-8");
    }
    return 0;
}

/* Where there is no terminal: as wide as COLUMNS says, with all lines. */
static int print_once(const struct cli_top *top)
{
    struct syi_text text = {0};
    struct sy_error err = {0};
    const char *columns = getenv("COLUMNS");
    struct cli_top_size size = {
        .width = columns ? atoi(columns) : 0, .height = 1 << 20, .unicode = has_unicode()};
    if (size.width < 20 || size.width > 1000) size.width = 80;
    cli_top_frame(top, &size, &text);
    if (syi_text_status(&text, &err)) return cli_fail(&err);
    fputs(text.data, stdout);
    syi_text_free(&text);
    return CLI_DONE;
}

static int show(const struct cli_top *top, struct sy_error *err)
{
    struct syi_text text = {0};
    struct cli_top_size size = {.unicode = has_unicode(), .colour = !getenv("NO_COLOR")};
    cli_top_terminal_size(&size);
    cli_top_frame(top, &size, &text);
    int status = syi_text_status(&text, err);
    if (!status) status = cli_top_terminal_show(text.data, err);
    syi_text_free(&text);
    return status;
}

/* New numbers; where they cannot be had, a database that is locked for example, the old ones and why. */
static void look_again(const char *path, struct cli_top *top, struct cli_top *next)
{
    struct sy_error err = {0};
    if (!cli_top_gather(path, next, &err))
        *top = *next;
    else
        snprintf(top->problem, sizeof top->problem, "%.*s", (int)sizeof top->problem - 1, err.text);
}

static int watch(const char *path, double every, struct cli_top *top, struct cli_top *next)
{
    struct sy_error err = {0};
    int status = cli_top_terminal_open(&err);
    while (!status) {
        status = show(top, &err);
        enum cli_top_wake wake = status ? CLI_TOP_QUIT : cli_top_terminal_wait(every);
        if (wake == CLI_TOP_QUIT) break;
        if (wake == CLI_TOP_TIME) look_again(path, top, next);
    }
    cli_top_terminal_close();
    return status ? cli_fail(&err) : CLI_DONE;
}

int cli_top(const struct cli_options *o)
{
    struct sy_error err = {0};
    if (o->every > 0 && o->every < LEAST) {
        cli_error("top: --every=%g: at least %g s, for the run's sake", o->every, LEAST);
        return CLI_USAGE;
    }
    setlocale(LC_CTYPE, ""); /* how wide characters are */
    struct cli_top *top = syi_alloc(2 * sizeof *top, &err);
    int once = o->once || !isatty(STDOUT_FILENO), status = CLI_FAILED;
    if (!top || cli_top_gather(o->operand[0], top, &err))
        cli_fail(&err);
    else
        status = once ? print_once(top) : watch(o->operand[0], o->every > 0 ? o->every : EVERY, top, top + 1);
    syi_free(top);
    return status;
}
