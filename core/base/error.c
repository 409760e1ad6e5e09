/* SPDX-License-Identifier: Apache-2.0 */
/* Status texts, the version, and the one place that writes into struct sy_error. Does not log and does not
 * print: the program that called the library decides where an error text goes. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"

const char *sy_status_text(int status)
{
    switch (status) {
#define STATUS_CASE(name, number, text)                                                                      \
    case number: return text;
        SY_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *sy_version(void)
{
    return PACKAGE_VERSION;
}

void syi_keep_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

/* A text that is too long loses its middle, most often of a path or a value: what is wrong with it stands at the end. */
static void keep_ends(const char *whole, struct sy_error *err)
{
    static const char gap[] = " ... ";
    const size_t length = strlen(whole), room = sizeof(err->text) - sizeof(gap);
    size_t head = room / 2, tail = length - (room - head);
    if (length < sizeof(err->text)) {
        memcpy(err->text, whole, length + 1);
        return;
    }
    while (head && ((unsigned char)whole[head] & 0xc0) == 0x80) head--; /* no part of a UTF-8 character */
    while (((unsigned char)whole[tail] & 0xc0) == 0x80) tail++;
    memcpy(err->text, whole, head);
    memcpy(err->text + head, gap, sizeof(gap) - 1);
    memcpy(err->text + head + sizeof(gap) - 1, whole + tail, length - tail + 1);
}

static int write_error(struct sy_error *err, int code, const char *detail, const char *format, va_list args)
{
    char whole[3 * 4096]; /* two paths of the longest that the system takes, and what is said of them */
    if (!err || err->code != SY_OK) return code;
    err->code = code;
    vsnprintf(whole, sizeof(whole), format, args);
    if (detail) {
        size_t used = strlen(whole);
        snprintf(whole + used, sizeof(whole) - used, ": %s", detail);
    }
    syi_keep_one_line(whole);
    keep_ends(whole, err);
    return code;
}

int syi_error(struct sy_error *err, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_error(err, code, NULL, format, args);
    va_end(args);
    return code;
}

static int status_of_errno(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR: return SY_ENOENT;
    case EEXIST: return SY_EEXIST;
    case ENOMEM: return SY_ENOMEM;
    default: return SY_EIO;
    }
}

int syi_error_system(struct sy_error *err, const char *format, ...)
{
    int number = errno;
    va_list args;
    va_start(args, format);
    int code = write_error(err, status_of_errno(number), strerror(number), format, args);
    va_end(args);
    return code;
}
