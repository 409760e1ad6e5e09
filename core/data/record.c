/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records from a file: all of them one after the other, or the one at an offset. What a record is, its format says
 * (record_text.c, record_jsonl.c). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "data/record.h"

enum {
    SCAN_PIECE = 1 << 18, /* bytes read at once by a scan */
    READ_PIECE = 1 << 12, /* and at first for a single record */
    LOOK_PIECE = 1 << 14, /* and to find the first line end */
    LINE_END_BYTES = 2,   /* most of them */
    MARK_BYTES = 3        /* of a byte order mark */
};

const struct syi_record_format *syi_record_format(int format)
{
#define ADDRESS(X, NAME, name, help) [SYI_FORMAT_##NAME] = &syi_record_##name,
    static const struct syi_record_format *const formats[] = {SYI_FORMATS(ADDRESS, )};
    return formats[format];
}

/* ---- one after the other ---- */

/* Looks for the first line feed; without one, lines end in CR. */
static int find_line_end(struct syi_scan *scan, struct sy_error *err)
{
    char piece[LOOK_PIECE];
    size_t n = 1;
    scan->line_end = '\r';
    for (int64_t at = 0; n && scan->line_end == '\r'; at += (int64_t)n) {
        int status = syi_read_at(scan->fd, scan->path, at, piece, sizeof piece, &n, err);
        if (status) return status;
        if (memchr(piece, '\n', n)) scan->line_end = '\n';
    }
    return SY_OK;
}

int syi_scan_open(struct syi_scan *scan, const char *path, const struct syi_record_format *format,
                  struct sy_error *err)
{
    struct stat info;
    memset(scan, 0, sizeof *scan);
    scan->format = format;
    scan->fd = -1;
    scan->line = 1;
    scan->piece = SCAN_PIECE;
    syi_sha256_init(&scan->hash);
    scan->path = syi_strdup(path, err);
    if (!scan->path) return SY_ENOMEM;
    scan->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (scan->fd < 0 || fstat(scan->fd, &info) != 0) return syi_error_system(err, "cannot open %s", path);
    if (!S_ISREG(info.st_mode))
        return syi_error(
            err, SY_EINVAL,
            "%s is no regular file: records are read in any order, so copy what it gives into a file", path);
    return find_line_end(scan, err);
}

void syi_scan_close(struct syi_scan *scan)
{
    if (scan->path && scan->fd >= 0) close(scan->fd);
    syi_free(scan->path);
    syi_free(scan->buffer);
    memset(scan, 0, sizeof *scan);
}

/* Reads on: at least as much as the buffer holds already, so that a long record costs its length and not the square. */
static int fill(struct syi_scan *scan, struct sy_error *err)
{
    size_t left = scan->end - scan->begin, want = left > scan->piece ? left : scan->piece;
    if (left) memmove(scan->buffer, scan->buffer + scan->begin, left);
    scan->begin = 0;
    scan->end = left;
    int status = SYI_GROW(scan->buffer, scan->capacity, left + want, err);
    if (status) return status;
    char *at = scan->buffer + left;
    ssize_t got;
    do got = read(scan->fd, at, want);
    while (got < 0 && errno == EINTR);
    if (got < 0) return syi_error_system(err, "cannot read %s", scan->path);
    scan->end += (size_t)got;
    scan->ended = got == 0;
    if (got == 0) return SY_OK;
    syi_sha256_add(&scan->hash, at, (size_t)got);
    scan->id.bytes += got;
    scan->last = at[got - 1];
    for (const char *stop = at + got; (at = memchr(at, '\n', (size_t)(stop - at))); at++) scan->id.lines++;
    return SY_OK;
}

/* Bytes that are done with. */
static void leave(struct syi_scan *scan, size_t bytes)
{
    const char *at = scan->buffer + scan->begin, *stop = at + bytes;
    for (; bytes && (at = memchr(at, scan->line_end, (size_t)(stop - at))); at++) scan->line++;
    scan->begin += bytes;
    scan->offset += (int64_t)bytes;
}

/* Line ends at the beginning. */
static void leave_empty_lines(struct syi_scan *scan)
{
    for (size_t left; (left = scan->end - scan->begin) > 0;) {
        const char *at = scan->buffer + scan->begin;
        if (at[0] == scan->line_end)
            leave(scan, 1);
        else if (at[0] == '\r' && left > 1 && at[1] == '\n')
            leave(scan, 2);
        else if (at[0] == '\r' && left == 1 && scan->ended)
            leave(scan, 1);
        else
            break;
    }
}

/* Passes a line that is too long for a record, without keeping it. */
static int leave_long_line(struct syi_scan *scan, struct syi_record *record, struct sy_error *err)
{
    _Static_assert(SYI_RECORD_BYTES == 64 << 20, "what the message says");
    record->text = (struct syi_span){"", 0};
    record->bad = "a line of more than 64 MiB; look at its line ends";
    for (;;) {
        size_t left = scan->end - scan->begin;
        const char *at = scan->buffer + scan->begin, *stop = left ? memchr(at, scan->line_end, left) : NULL;
        leave(scan, stop ? (size_t)(stop - at) + 1 : left);
        if (stop || scan->ended) return SY_OK;
        int status = fill(scan, err);
        if (status) return status;
    }
}

/* In files with line feeds a carriage return elsewhere is the end of a line to another program: what this one takes for a
 * record would be several. `text` goes on after the record's. */
static void check_returns(const struct syi_scan *scan, struct syi_span text, struct syi_record *record)
{
    const char *at = text.text, *stop = at + record->text.bytes, *end = at + text.bytes;
    if (scan->line_end == '\r') return;
    for (; at < stop && (at = memchr(at, '\r', (size_t)(stop - at))); at++) {
        if (at + 1 == end || at[1] == '\n') continue;
        for (const char *c = text.text; c < at; c++) record->line += *c == '\n';
        record->bad = "a carriage return within the line: end all lines with a line feed";
        return;
    }
}

/* The record at the beginning of the buffer; *found 0: not all of it is there. */
static int cut(struct syi_scan *scan, struct syi_record *record, int *found, struct sy_error *err)
{
    struct syi_span text = {scan->buffer + scan->begin, scan->end - scan->begin};
    size_t skip = 0, bytes = text.bytes ? scan->format->cut(text, scan->line_end, scan->ended, &skip) : 0;
    *found = skip > 0;
    *record = (struct syi_record){scan->offset, scan->line, {text.text, bytes}, NULL};
    if (*found ? bytes > SYI_RECORD_BYTES : text.bytes >= SYI_RECORD_BYTES + LINE_END_BYTES) {
        *found = 1;
        return leave_long_line(scan, record, err);
    }
    if (*found) check_returns(scan, text, record);
    leave(scan, skip);
    return SY_OK;
}

static void finish_id(struct syi_scan *scan)
{
    if (scan->id.sha256[0]) return;
    scan->id.lines += scan->id.bytes > 0 && scan->last != '\n';
    syi_sha256_hex(&scan->hash, scan->id.sha256);
}

int syi_scan_next(struct syi_scan *scan, struct syi_record *record, struct sy_error *err)
{
    for (int found = 0;;) {
        size_t have = scan->end - scan->begin;
        int status = SY_OK, at_mark = scan->offset == 0;
        if (scan->ended || !at_mark || have >= MARK_BYTES) {
            if (at_mark && have) leave(scan, syi_utf8_mark(scan->buffer + scan->begin, have));
            if (!scan->format->empty_lines) leave_empty_lines(scan);
            status = cut(scan, record, &found, err);
            if (status || found) return status;
        }
        if (scan->ended) {
            finish_id(scan);
            return SY_ENOENT;
        }
        status = fill(scan, err);
        if (status) return status;
    }
}

/* ---- at an offset ---- */

int syi_record_read(int fd, const char *path, const struct syi_record_format *format, char line_end,
                    int64_t offset, char **buffer, size_t *capacity, struct syi_span *text,
                    struct sy_error *err)
{
    const size_t most = SYI_RECORD_BYTES + LINE_END_BYTES;
    size_t skip = 0, n = 0;
    for (size_t want = READ_PIECE;; want = want * 4 < most ? want * 4 : most) {
        int status = SYI_GROW(*buffer, *capacity, want, err);
        if (!status) status = syi_read_at(fd, path, offset, *buffer, want, &n, err);
        if (status) return status;
        *text = (struct syi_span){*buffer, n};
        if (n) text->bytes = format->cut(*text, line_end, n < want, &skip);
        if (skip || n < want || want == most) break;
    }
    if (skip && text->bytes <= SYI_RECORD_BYTES && (text->bytes || format->empty_lines)) return SY_OK;
    return syi_error(err, SY_EFORMAT,
                     "%s: no record is at byte %" PRId64
                     " any more: the file has changed since it was looked through",
                     path, offset);
}

/* ---- records that are not as they should be ---- */

int syi_record_refuse(const struct syi_record *record, const char *path, const char *why, int skip,
                      struct syi_bad_records *bad, struct sy_error *err)
{
    if (!skip) return syi_error(err, SY_EFORMAT, "%s:%" PRId64 ": %s", path, record->line, why);
    if (!bad->n++) snprintf(bad->first, sizeof bad->first, "%s:%" PRId64 ": %s", path, record->line, why);
    return SY_OK;
}

void syi_bad_records_warn(const struct syi_bad_records *bad)
{
    if (bad->n)
        syi_log(SY_LOG_WARN, "bad records are skipped: %" PRId64 ", the first is %s", bad->n, bad->first);
}
