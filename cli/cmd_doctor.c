/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard doctor: what this installation and this machine have, and what would prevent training. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "cli/doctor/doctor.h"

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
    d->json = &text;
    syi_json_begin(&d->writer, &text);
    syi_json_open(&d->writer, '{');
    syi_json_put_key_string(&d->writer, "version", sy_version());
    syi_json_put_key(&d->writer, "findings");
    syi_json_open(&d->writer, '[');
    look(d, o);
    doctor_end(d);
    syi_json_close(&d->writer, ']');
    syi_json_put_key_integer(&d->writer, "notes", d->notes);
    syi_json_put_key_integer(&d->writer, "problems", d->problems);
    syi_json_close(&d->writer, '}');
    int status = syi_text_status(&text, &d->lost);
    if (!status) status = d->lost.code;
    if (!status) puts(text.data);
    syi_text_free(&text);
    if (status) return cli_fail(&d->lost);
    return d->problems ? CLI_FAILED : CLI_DONE;
}

int cli_doctor(const struct cli_options *o)
{
    struct doctor doctor = {0};
    sy_log_set(no_log, NULL);
    if (o->json) return run_json(&doctor, o);
    look(&doctor, o);
    if (doctor.lost.code) return cli_fail(&doctor.lost);
    if (!doctor.problems) {
        printf("Nothing here prevents training.\n");
        return CLI_DONE;
    }
    printf("%d problem%s training.\n", doctor.problems, doctor.problems == 1 ? " prevents" : "s prevent");
    return CLI_FAILED;
}
