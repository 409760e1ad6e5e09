/* SPDX-License-Identifier: Apache-2.0 */
/* What `switchyard doctor` finds, part by part. Each part adds findings; a finding is printed as soon as it is there, so
 * that a file system that does not answer is seen by what is missing after it. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "base/json.h"

enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_PROBLEM }; /* a problem prevents training */

struct doctor {
    struct syi_text *json; /* NULL: lines for a reader on standard output */
    struct syi_json_writer writer;
    int open; /* 1: the object of the last finding has no end yet */
    int notes, problems;
    struct sy_error lost; /* memory was short for a part of it, so the report is not whole */
};

/* ---- findings.c ---- */

/* advice: what to do, or NULL. */
void doctor_add(struct doctor *doctor, enum doctor_level level, const char *topic, const char *advice,
                const char *format, ...) SYI_PRINTF(5, 6);
/* The same of an error: its text, or, where memory was short, doctor->lost. */
void doctor_add_error(struct doctor *doctor, enum doctor_level level, const char *topic, const char *advice,
                      const struct sy_error *err);
/* What a text says, `none` where it is empty; a text that could not grow is doctor->lost. */
const char *doctor_say(struct doctor *doctor, const struct syi_text *text, const char *none);
void doctor_lose(struct doctor *doctor); /* after a system call that failed: errno ENOMEM is doctor->lost */
/* With --json: numbers of the last finding. */
void doctor_number(struct doctor *doctor, const char *key, double value);
void doctor_end(struct doctor *doctor); /* no more numbers of it come */
/* "1.5 GiB" */
void doctor_bytes(char text[SYI_NUMBER_BYTES], double bytes);

/* ---- the parts ---- */

void doctor_program(struct doctor *doctor);   /* program.c: build, processor, kernels, backends, libraries */
void doctor_launchers(struct doctor *doctor); /* launchers.c: MPI, Slurm, variables */
void doctor_cuda(struct doctor *doctor);      /* cuda.c */
void doctor_limits(struct doctor *doctor);    /* limits.c: processors, memory, limits of the process */
void doctor_folders(struct doctor *doctor, const char *run_dir); /* folders.c; run_dir: NULL, not given */

#endif
