/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard doctor: what this installation and this machine have, and what would prevent training. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/doctor/doctor.h"

enum { INDENT = 20, TEXT_BYTES = 1400 };

static const char *const levels[] = {"ok", "note", "problem"};

static void end_object(struct doctor *d)
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
        end_object(d);
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

void doctor_number(struct doctor *d, const char *key, double value)
{
    if (!d->json) return;
    syi_json_put_key(&d->writer, key);
    syi_json_put_double(&d->writer, value);
}

void doctor_bytes(char text[SYI_NUMBER_BYTES], double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t i = 0;
    for (; bytes >= 1024 && i + 1 < SYI_COUNT(units); i++) bytes /= 1024;
    snprintf(text, SYI_NUMBER_BYTES, "%.*f %s", i && bytes < 100 ? 1 : 0, bytes, units[i]);
}

static void look(struct doctor *d, const struct cli_options *o)
{
    doctor_program(d);
    doctor_launchers(d);
    doctor_cuda(d);
    doctor_limits(d);
    doctor_folders(d, o->run_dir);
}

/* Warnings of the library would stand between the lines; what they say is among the findings. */
static void no_log(void *arg, enum sy_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static int run_json(struct doctor *d, const struct cli_options *o)
{
    struct syi_text text = {0};
    struct sy_error err = {0};
    d->json = &text;
    syi_json_begin(&d->writer, &text);
    syi_json_open(&d->writer, '{');
    syi_json_put_key_string(&d->writer, "version", sy_version());
    syi_json_put_key(&d->writer, "findings");
    syi_json_open(&d->writer, '[');
    look(d, o);
    end_object(d);
    syi_json_close(&d->writer, ']');
    syi_json_put_key_integer(&d->writer, "notes", d->notes);
    syi_json_put_key_integer(&d->writer, "problems", d->problems);
    syi_json_close(&d->writer, '}');
    int status = syi_text_status(&text, &err);
    if (!status) puts(text.data);
    syi_text_free(&text);
    if (status) return cli_fail(&err);
    return d->problems ? CLI_FAILED : CLI_DONE;
}

static int run(const struct cli_options *o)
{
    struct doctor doctor = {0};
    sy_log_set(no_log, NULL);
    if (o->json) return run_json(&doctor, o);
    look(&doctor, o);
    if (!doctor.problems) {
        printf("Nothing here prevents training.\n");
        return CLI_DONE;
    }
    printf("%d problem%s training.\n", doctor.problems, doctor.problems == 1 ? " prevents" : "s prevent");
    return CLI_FAILED;
}

const struct cli_cmd cli_doctor = {
    "doctor",
    "",
    "run-dir json",
    "Prints what this installation and this machine have, and what would prevent training.",
    "Each line is ok, a note, or a problem that prevents training, with what to do. Processes and folders are\n"
    "looked at as a run would: start it where the run will start, on a compute node in a job. Files that it\n"
    "makes for a moment are removed. Exit status: 0 nothing prevents training, 1 something does.",
    run};
