/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of an input that may be a file, a pipe or a terminal, without waiting for more than is there. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "base/compress.h"

/* Start from {.fd = ..., .most = ...}; cli_lines_free frees the buffer. */
struct cli_lines {
    int fd;
    struct syi_inflow *file; /* of fd, whose bytes it unpacks; NULL: they are taken as they are */
    size_t most;             /* bytes of a line that are kept; 0: all */
    char *buffer;            /* (capacity) */
    size_t capacity;
    size_t begin, end; /* what was read and not yet given away is between them */
    size_t seen;       /* bytes after `begin` that hold no line feed */
    int begun;         /* 1: a line was given away */
    int ended;         /* the input has no more */
    int dropping;      /* 1: what was read of this line was over `most`, and is gone */
};

enum cli_lines_result { CLI_LINES_END, CLI_LINES_LINE, CLI_LINES_LATER, CLI_LINES_LONG };

/* The next line without its end, LF or CR LF; valid until the next call. A last line may lack its end. wait:
 * ms after which CLI_LINES_LATER says that the input has no whole line yet, -1: never. CLI_LINES_LONG: it is over
 * lines->most bytes, and *text is empty. Failures (negative) say why. */
int cli_lines_next(struct cli_lines *lines, int wait, const char **text, size_t *bytes,
                   struct sy_error *err) SYI_MUST_CHECK;
void cli_lines_free(struct cli_lines *lines);

#endif
