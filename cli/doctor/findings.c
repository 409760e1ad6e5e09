/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of `switchyard doctor`, each printed as it comes: a line for a reader, or an object of JSON. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/doctor/doctor.h"

enum { INDENT = 20, TEXT_BYTES = 1400 };

static const char *const levels[] = {"ok", "note", "problem"};

void doctor_end(struct doctor *d)
{
    if (d->open) syi_json_close(&d->writer, '}');
    d->open = 0;
}

void doctor_add(struct doctor *d, enum doctor_level level, const char *topic, const char *advice,
                const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    d->notes += level == DOCTOR_NOTE;
    d->problems += level == DOCTOR_PROBLEM;
    if (d->json) {
        doctor_end(d);
        syi_json_open(&d->writer, '{');
        d->open = 1;
        syi_json_put_key_string(&d->writer, "topic", topic);
        syi_json_put_key_string(&d->writer, "level", levels[level]);
        syi_json_put_key_string(&d->writer, "text", text);
        if (advice) syi_json_put_key_string(&d->writer, "advice", advice);
        return;
    }
    if (advice) snprintf(text + strlen(text), sizeof text - strlen(text), ": %s", advice);
    printf("%-8s %-*s", levels[level], INDENT - 9, topic);
    cli_wrap(stdout, text, strlen(text), INDENT, INDENT);
    fflush(stdout);
}

void doctor_add_error(struct doctor *d, enum doctor_level level, const char *topic, const char *advice,
                      const struct sy_error *err)
{
    if (err->code == SY_ENOMEM)
        syi_error(&d->lost, SY_ENOMEM, "%s", err->text);
    else
        doctor_add(d, level, topic, advice, "%s", err->text);
}

const char *doctor_say(struct doctor *d, const struct syi_text *text, const char *none)
{
    if (text->status) syi_error(&d->lost, text->status, "out of memory");
    return text->data ? text->data : none;
}

void doctor_lose(struct doctor *d)
{
    if (errno == ENOMEM) syi_error(&d->lost, SY_ENOMEM, "out of memory");
}

void doctor_number(struct doctor *d, const char *key, double value)
{
    if (!d->json) return;
    syi_json_put_key_double(&d->writer, key, value);
}

void doctor_bytes(char text[SYI_NUMBER_BYTES], double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t i = 0;
    for (; bytes >= 1024 && i + 1 < SYI_COUNT(units); i++) bytes /= 1024;
    snprintf(text, SYI_NUMBER_BYTES, "%.*f %s", i && bytes < 100 ? 1 : 0, bytes, units[i]);
}
