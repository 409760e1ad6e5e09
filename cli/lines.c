/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines with read(2) and a buffer of its own: what stdio has read ahead, poll does not show. The buffer holds a line of
 * the most bytes that it may have, and what one read brings besides, however long the lines of the input are. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/lines.h"

enum { CHUNK = 64 << 10 }; /* bytes that a read has room for at least */

/* Whether a read would not wait; timeout in ms, -1: until it is so. */
static int is_ready(int fd, int timeout)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    return poll(&input, 1, timeout) > 0;
}

/* Adds what there is to the buffer, which has room. */
static int read_some(struct cli_lines *l, size_t *n, struct sy_error *err)
{
    ssize_t got;
    if (l->file) return syi_inflow_read(l->file, l->buffer + l->end, l->capacity - l->end, n, err);
    while ((got = read(l->fd, l->buffer + l->end, l->capacity - l->end)) < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            is_ready(l->fd, -1); /* who shares the terminal may have set it so */
        else if (errno != EINTR)
            return syi_error_system(err, "cannot read the input");
    }
    *n = (size_t)got;
    return SY_OK;
}

/* Before the first line, for no magic number holds the end of one. */
static int refuse_compressed(const struct cli_lines *l, struct sy_error *err)
{
    enum syi_compression compression = syi_compression_of(l->buffer, l->end);
    if (l->begun || compression == SYI_COMPRESSION_NONE) return SY_OK;
    const char *tool = compression == SYI_COMPRESSION_GZIP ? "gzip" : "zstd";
    return syi_error(err, SY_EFORMAT,
                     "the input is compressed with %s: unpack it first (%s -dc FILE | switchyard ...)", tool,
                     tool);
}

static int read_more(struct cli_lines *l, struct sy_error *err)
{
    size_t got = 0;
    if (l->begin) memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    int status = SYI_GROW(l->buffer, l->capacity, l->end + CHUNK, err);
    if (!status) status = read_some(l, &got, err);
    if (status) return status;
    l->ended = got == 0;
    l->end += got;
    return refuse_compressed(l, err);
}

static int is_over(const struct cli_lines *l, size_t stop)
{
    return l->most && stop - l->begin > l->most;
}

/* The line up to `stop`, and `skip` bytes of its end. */
static int take_line(struct cli_lines *l, size_t stop, size_t skip, const char **text, size_t *bytes)
{
    int is_long = l->dropping || is_over(l, stop);
    *text = is_long ? "" : l->buffer + l->begin;
    *bytes = is_long ? 0 : stop - l->begin;
    if (*bytes && l->buffer[stop - 1] == '\r') --*bytes;
    l->begin = stop + skip;
    l->seen = 0;
    l->begun = 1;
    l->dropping = 0;
    return is_long ? CLI_LINES_LONG : CLI_LINES_LINE;
}

int cli_lines_next(struct cli_lines *l, int wait, const char **text, size_t *bytes, struct sy_error *err)
{
    for (;;) {
        size_t from = l->begin + l->seen;
        const char *feed = from < l->end ? memchr(l->buffer + from, '\n', l->end - from) : NULL;
        if (feed) return take_line(l, (size_t)(feed - l->buffer), 1, text, bytes);
        int rest = l->dropping || l->begin < l->end;
        if (l->ended) return rest ? take_line(l, l->end, 0, text, bytes) : CLI_LINES_END;
        if (is_over(l, l->end)) {
            l->dropping = 1;
            l->begin = l->end;
        }
        l->seen = l->end - l->begin;
        if (wait >= 0 && !is_ready(l->fd, wait)) return CLI_LINES_LATER;
        int status = read_more(l, err);
        if (status) return status;
    }
}

void cli_lines_free(struct cli_lines *l)
{
    syi_free(l->buffer);
    *l = (struct cli_lines){.fd = l->fd};
}
