/* SPDX-License-Identifier: Apache-2.0 */
/* Processors and memory that this process may use, and the limits of the shell that started it. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/threads.h"
#include "cli/doctor/doctor.h"

/* Fewer than these are worth a note. */
enum { FEW_FILES = 256 };
static const double little_memory = 1024.0 * 1024 * 1024, small_file = 4096.0 * 1024 * 1024;

static void add_cpus(struct doctor *d)
{
    char set[256], quota[64] = "no quota";
    int cpus = syi_cpu_count(), most = syi_cpu_quota("");
    syi_cpu_set_text(set, sizeof set);
    if (most) snprintf(quota, sizeof quota, "a quota of %d", most);
    doctor_add(d, DOCTOR_OK, "cpus", NULL, "%d of %ld online (bound to %s; %s of the control group)", cpus,
               sysconf(_SC_NPROCESSORS_ONLN), set[0] ? set + strspn(set, " \t") : "all", quota);
    doctor_number(d, "cpus", cpus);
}

static void add_memory(struct doctor *d)
{
    double bytes = (double)syi_memory_free("");
    char free_text[SYI_NUMBER_BYTES], system[SYI_NUMBER_BYTES], groups[SYI_NUMBER_BYTES] = "no limit";
    uint64_t of_groups = syi_memory_free_of_groups("");
    doctor_bytes(free_text, bytes);
    doctor_bytes(system, (double)syi_memory_free_of_system(""));
    if (of_groups) doctor_bytes(groups, (double)of_groups);
    if (bytes > 0)
        doctor_add(d, bytes < little_memory ? DOCTOR_NOTE : DOCTOR_OK, "memory",
                   bytes < little_memory ? "switchyard plan RUNFILE prints what a run takes" : NULL,
                   "%s free for a run (system %s, control groups %s)", free_text, system, groups);
    else
        doctor_add(d, DOCTOR_NOTE, "memory", "no run is refused for want of memory",
                   "this system does not say what is free");
    doctor_number(d, "free_bytes", bytes);
}

/* What the shell prints of a limit, in `unit` bytes. */
static void limit_text(int resource, double unit, char text[SYI_NUMBER_BYTES], double *limit)
{
    struct rlimit found;
    *limit = 1e300;
    snprintf(text, SYI_NUMBER_BYTES, "unlimited");
    if (getrlimit(resource, &found) || found.rlim_cur == RLIM_INFINITY) return;
    *limit = (double)found.rlim_cur;
    if (unit > 0)
        doctor_bytes(text, *limit);
    else
        snprintf(text, SYI_NUMBER_BYTES, "%.0f", *limit);
}

static void add_limits(struct doctor *d)
{
    char file[SYI_NUMBER_BYTES], locked[SYI_NUMBER_BYTES], files[SYI_NUMBER_BYTES];
    double file_limit, locked_limit, files_limit;
    const char *advice = NULL;
    limit_text(RLIMIT_FSIZE, 1, file, &file_limit);
    limit_text(RLIMIT_MEMLOCK, 1, locked, &locked_limit);
    limit_text(RLIMIT_NOFILE, 0, files, &files_limit);
    if (file_limit < small_file) advice = "checkpoints that are larger fail: ulimit -f unlimited";
    if (files_limit < FEW_FILES) advice = "raise it for data of many files: ulimit -n 1024";
    doctor_add(d, advice ? DOCTOR_NOTE : DOCTOR_OK, "limits", advice,
               "file size (ulimit -f) %s, locked memory (-l) %s, open files (-n) %s", file, locked, files);
}

void doctor_limits(struct doctor *d)
{
    add_cpus(d);
    add_memory(d);
    add_limits(d);
}
