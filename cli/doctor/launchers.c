/* SPDX-License-Identifier: Apache-2.0 */
/* What started this process: MPI and the launcher, Slurm, and the variables of ours that are set. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "cli/cli.h"
#include "cli/doctor/doctor.h"
#include "runtime/backend.h"
#include "train/launch/world.h"

/* ---- MPI ---- */

struct mpi {
    char build[128], refused[512]; /* "": none */
};

static void find_mpi(void *arg, const struct syi_backend_info *info)
{
    struct mpi *mpi = arg;
    if (strcmp(info->name, "mpi") || mpi->build[0]) return;
    snprintf(info->refused ? mpi->refused : mpi->build,
             info->refused ? sizeof mpi->refused : sizeof mpi->build, "%s",
             info->refused ? info->refused : info->build);
}

static void add_mpi(struct doctor *d)
{
    struct mpi mpi = {0};
    struct sy_error err = {0};
    char launcher[160] = "no launcher";
    const char *variable = NULL;
    long processes = syi_world_launcher_size(&variable);
    if (processes > 1) snprintf(launcher, sizeof launcher, "%s is %ld", variable, processes);
    if (syi_backend_list(find_mpi, &mpi, &err)) {
        doctor_add_error(d, DOCTOR_PROBLEM, "mpi", NULL, &err);
        return;
    }
    enum doctor_level missing = processes > 1 ? DOCTOR_PROBLEM : DOCTOR_NOTE;
    if (mpi.build[0])
        doctor_add(d, DOCTOR_OK, "mpi", NULL, "plugin, built with %s; %s", mpi.build, launcher);
    else if (mpi.refused[0])
        doctor_add(
            d, missing, "mpi",
            "load the MPI that it was built with, or configure with the MPICC= of this one and build again",
            "plugin refused: %s; %s", mpi.refused, launcher);
    else
        doctor_add(d, missing, "mpi",
                   "ranks as threads (--comm thread --ranks N) work without; for several processes configure "
                   "where mpicc is, or with MPICC=",
                   "no plugin; %s", launcher);
    doctor_number(d, "processes", (double)processes);
}

/* ---- Slurm ---- */

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : 0;
}

static const char *or_none(const char *variable)
{
    const char *text = getenv(variable);
    return text ? text : "none";
}

static void add_slurm(struct doctor *d)
{
    const char *job = getenv("SLURM_JOB_ID");
    long tasks = syi_world_tasks_apart(), cpus = number_of("SLURM_CPUS_PER_TASK");
    if (!job) {
        doctor_add(d, DOCTOR_OK, "slurm", NULL, "no job");
    } else if (tasks > 1) {
        doctor_add(d, DOCTOR_PROBLEM, "slurm",
                   "srun --mpi=list shows what there is: srun --mpi=pmix for Open MPI, pmi2 for MPICH",
                   "job %s: srun started %ld processes that know nothing of each other", job, tasks);
    } else {
        int few = cpus > syi_cpu_count();
        doctor_add(d, few ? DOCTOR_NOTE : DOCTOR_OK, "slurm",
                   few ? "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun" : NULL,
                   "job %s, %s nodes, %s tasks, %s CPUs a task, of which this process may use %d", job,
                   or_none("SLURM_JOB_NUM_NODES"), or_none("SLURM_NTASKS"), or_none("SLURM_CPUS_PER_TASK"),
                   syi_cpu_count());
    }
}

/* ---- variables ---- */

struct variables {
    struct doctor *doctor;
    struct syi_text set;
};

static void add_variable(void *arg, const char *name, const char *value, const char *nearest)
{
    struct variables *variables = arg;
    char advice[128];
    if (!nearest) {
        syi_text_printf(&variables->set, "%s%s=%.200s", variables->set.data ? " " : "", name, value);
        return;
    }
    snprintf(advice, sizeof advice, "did you mean %s?", nearest);
    doctor_add(variables->doctor, DOCTOR_NOTE, "variables", *nearest ? advice : NULL,
               "%s is set, which nothing reads", name);
}

/* Those of which train refuses the value; returns whether there are any. */
static int check_values(struct doctor *d)
{
    static const struct syi_config unset; /* the variable is over its log.ranks */
    const char *launcher;
    struct sy_error err = {0};
    double seconds;
    int wanted, refused = 0;
    /* only processes that talk to each other read this one */
    enum doctor_level alone = syi_world_launcher_size(&launcher) > 1 ? DOCTOR_PROBLEM : DOCTOR_NOTE;
    if (cli_read_seconds("SWITCHYARD_LOCK_WAIT", 0, &seconds, &err))
        refused = 1, doctor_add_error(d, DOCTOR_PROBLEM, "variables", NULL, &err);
    if (cli_read_seconds("SWITCHYARD_COMM_TIMEOUT", 1, &seconds, &err))
        refused = 1, doctor_add_error(d, alone, "variables", NULL, &err);
    if (syi_config_log_ranks(&unset, &wanted, &err))
        refused = 1, doctor_add_error(d, DOCTOR_PROBLEM, "variables", NULL, &err);
    return refused;
}

static void add_variables(struct doctor *d)
{
    struct variables variables = {.doctor = d};
    cli_each_variable(add_variable, &variables);
    int refused = check_values(d);
    doctor_add(d, refused ? DOCTOR_NOTE : DOCTOR_OK, "variables", NULL, "%s",
               doctor_say(d, &variables.set, "no SWITCHYARD_... is set"));
    syi_text_free(&variables.set);
}

void doctor_launchers(struct doctor *d)
{
    add_mpi(d);
    add_slurm(d);
    add_variables(d);
}
