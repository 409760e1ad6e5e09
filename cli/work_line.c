/* SPDX-License-Identifier: Apache-2.0 */
/* The one line of a terminal that says how far work is. */
#include "config.h"

#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/base.h"
#include "cli/work_line.h"

enum { TEXT_BYTES = 200 }; /* more than a line of any width */
static const double live = 0.2,
                    plain = 60; /* seconds before a line, and between two: of a terminal, elsewhere */

static struct {
    pthread_mutex_t mutex;
    FILE *stream;  /* NULL: nothing is shown */
    int terminal;  /* 1: one line is rewritten */
    int drawn;     /* columns that it takes now */
    int kept;      /* 1: it is one that stays, and has no newline yet */
    char what[80]; /* the work at hand */
    double began, shown;
} line = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int cli_line_width(FILE *stream)
{
    struct winsize window;
    int width = ioctl(fileno(stream), TIOCGWINSZ, &window) ? 0 : window.ws_col;
    if (width <= 0) width = 80;
    return width < TEXT_BYTES ? width - 1 : TEXT_BYTES - 1;
}

void cli_time_text(double seconds, char *text, size_t bytes)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, bytes, "%ld h %02ld min", s / 3600, s / 60 % 60);
    else if (s >= 60)
        snprintf(text, bytes, "%ld min %02ld s", s / 60, s % 60);
    else
        snprintf(text, bytes, "%ld s", s);
}

void cli_work_line_open(FILE *terminal, int quiet)
{
    pthread_mutex_lock(&line.mutex);
    line.terminal = terminal != NULL;
    line.stream = quiet ? NULL : terminal ? terminal : stderr;
    line.what[0] = 0;
    pthread_mutex_unlock(&line.mutex);
}

static void erase(void)
{
    if (line.kept) fputc('\n', line.stream);
    line.kept = 0;
    if (line.drawn) fprintf(line.stream, "\r%*s\r", line.drawn, "");
    line.drawn = 0;
}

static void draw(const char *text)
{
    int width = cli_line_width(line.stream);
    if (line.kept) erase();
    if (line.terminal)
        line.drawn = fprintf(line.stream, "\r%-*.*s", line.drawn, width, text) - 1;
    else
        fprintf(line.stream, "%s\n", text);
    fflush(line.stream);
}

/* Work of another name begins its time anew. */
static int is_due(const char *what, double now)
{
    if (strncmp(line.what, what, sizeof line.what - 1)) {
        snprintf(line.what, sizeof line.what, "%s", what);
        line.began = line.shown = now;
    }
    return now - line.shown >= (line.terminal ? live : plain);
}

/* All that fits into the line; what matters least goes first. */
static void work_text(const char *what, const char *of_them, int64_t done, double share, double seconds,
                      char text[TEXT_BYTES])
{
    char part[40] = "", time[40] = "", left[60] = "";
    if (share > 0) {
        cli_time_text(seconds * (1 - share) / share, time, sizeof time);
        snprintf(part, sizeof part, ", %.0f %%", 100 * share);
        snprintf(left, sizeof left, ", %s left", time);
    }
    int width = cli_line_width(line.stream);
    for (int level = 0; level < 3; level++) {
        int length = snprintf(text, TEXT_BYTES, "%s: %lld %s%s%s", what, (long long)done, of_them,
                              level < 2 ? part : "", level < 1 ? left : "");
        if (length <= width) return;
    }
}

void cli_work_line_show(const char *what, const char *of_them, int64_t done, double share)
{
    double now = syi_seconds();
    char text[TEXT_BYTES];
    pthread_mutex_lock(&line.mutex);
    if (line.stream && is_due(what, now)) {
        work_text(what, of_them, done, share, now - line.began, text);
        draw(text);
        line.shown = now;
    }
    pthread_mutex_unlock(&line.mutex);
}

void cli_work_line_keep(const char *text)
{
    pthread_mutex_lock(&line.mutex);
    if (line.stream && line.terminal) {
        if (!line.kept) erase();
        fprintf(line.stream, "\r%-*s", cli_line_width(line.stream), text);
        line.kept = 1;
        fflush(line.stream);
    }
    pthread_mutex_unlock(&line.mutex);
}

void cli_work_line_clear(void)
{
    pthread_mutex_lock(&line.mutex);
    if (line.stream) {
        erase();
        fflush(line.stream);
    }
    pthread_mutex_unlock(&line.mutex);
}
