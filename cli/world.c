/* SPDX-License-Identifier: Apache-2.0 */
/* A command run by several processes: rank 0 prints, a failure of one rank is reported once and ends all with
 * one exit status. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/held_files.h"
#include "cli/cli.h"
#include "train/launch/first_reads.h"

static struct syi_world world = {.ranks = 1};

struct syi_world *cli_world(void)
{
    return &world;
}

int cli_world_first(void)
{
    return world.rank == 0;
}

static int takes_comm(const struct cli_cmd *cmd)
{
    return strstr(cmd->options, "comm") != NULL;
}

/* A command that launches twice, side by side: for one process. */
static int runs_alone(const struct cli_cmd *cmd)
{
    return !strcmp(cmd->name, "diff");
}

/* ---- failing before the ranks can meet ---- */

void cli_world_begin(const struct cli_cmd *cmd)
{
    if (takes_comm(cmd) && syi_world_launcher_rank() > 0) cli_error_hold(1);
}

/* Ranks speak one after the other; the first that does ends the others. */
static void wait_turn(int rank, int seconds)
{
    struct timespec delay = {.tv_sec = seconds + (rank / 2 < 10 ? rank / 2 : 10),
                             .tv_nsec = rank % 2 * 500000000L};
    nanosleep(&delay, NULL);
}

/* A launcher ends the others when a process fails. MPICH's does so with a status of its own, and only where
 * the process had started MPI or was killed, unless it is asked to in the words of PMI 1. */
static void end_others(int status)
{
    const char *text = getenv("PMI_FD");
    struct stat info;
    int fd = text ? (int)strtol(text, NULL, 10) : -1;
    if (fd <= STDERR_FILENO || fstat(fd, &info) || !S_ISSOCK(info.st_mode)) return;
    nanosleep(&(struct timespec){.tv_nsec = 200000000L},
              NULL); /* the message goes another way: it comes first */
    dprintf(fd, "cmd=abort exitcode=%d\n", status);
}

int cli_world_give_up(const struct cli_cmd *cmd, int status)
{
    char host[256] = "";
    int rank = syi_world_launcher_rank();
    if (!takes_comm(cmd)) return status;
    if (rank > 0) {
        wait_turn(rank, 1);
        gethostname(host, sizeof host - 1);
        fprintf(stderr, "switchyard: rank %d on host %s: %s\n", rank, host, cli_error_last());
    }
    end_others(status);
    return status;
}

/* ---- open and close ---- */

int cli_world_open(const struct cli_cmd *cmd, const struct cli_options *options)
{
    struct sy_error err = {0};
    int status = takes_comm(cmd) ? syi_world_open(options->comm, &world, &err) : SY_OK;
    if (status) {
        cli_fail(&err);
        status = cli_world_give_up(cmd, status == SY_ENOENT || status == SY_EINVAL ? CLI_USAGE : CLI_FAILED);
        syi_world_close(&world); /* where not all came this ends the process: the message is out */
        return status;
    }
    cli_error_hold(world.rank > 0);
    if (world.rank && !freopen("/dev/null", "w", stdout)) return cli_world_close(CLI_FAILED);
    if (syi_world_same_program(&world, &err)) return cli_world_close(cli_fail(&err));
    if (!world.backend || !runs_alone(cmd)) return CLI_DONE;
    cli_error(
        "%s: runs in one process: start it without mpirun, with --comm thread --ranks N for several ranks",
        cmd->name);
    return cli_world_close(CLI_USAGE);
}

/* Not all ranks came to agree on one message, so each has to report its own; the lowest is the first, and
 * ends the others. */
static void tell_alone(void)
{
    if (world.rank == 0) return; /* its messages are out */
    wait_turn(world.rank, 0);
    fprintf(stderr, "switchyard: %s\n", cli_error_last());
}

int cli_world_agree(int status)
{
    struct sy_error err = {0};
    if (!world.backend || world.failed) return status;
    if (status) syi_error(&err, status, "%s", cli_error_last());
    int agreed = syi_world_agree(&world, status, &err);
    if (world.alone) {
        if (!status) cli_fail(&err);
        tell_alone();
    } else if (agreed && !status && world.rank == 0) {
        cli_fail(&err);
    }
    return !agreed || (agreed >= CLI_FAILED && agreed <= CLI_RESUMABLE) ? agreed : CLI_FAILED;
}

int cli_world_same(const struct syi_config *config)
{
    struct sy_error err = {0};
    int status = syi_world_same(&world, config, &err);
    if (!status) status = syi_world_hold_vocabularies(&world, config, &err);
    return status ? cli_fail(&err) : CLI_DONE;
}

/* Ranks that do different things would wait for each other in vain. */
int cli_world_same_command(const char command[CLI_COMMAND_BYTES])
{
    char first[CLI_COMMAND_BYTES];
    struct sy_error err = {0};
    if (world.ranks == 1) return CLI_DONE;
    memcpy(first, command, sizeof first);
    int status = syi_world_share(&world, first, sizeof first, &err);
    if (!status && strcmp(first, command))
        status =
            syi_error(&err, SY_EMISMATCH,
                      "rank %d was started as `switchyard %.300s` where rank 0 is `switchyard %.300s`: all "
                      "ranks need the same command and options",
                      world.rank, command, first);
    return syi_world_agree(&world, status, &err) ? cli_usage(&err) : CLI_DONE;
}

int cli_world_share(void *data, size_t bytes)
{
    struct syi_busy busy = syi_busy_begin(&world.comm);
    struct sy_error err = {0};
    if (world.ranks == 1) return CLI_DONE;
    return syi_busy_share(&busy, data, bytes, &err) ? cli_fail(&err) : CLI_DONE;
}

int cli_world_work(syi_work_fn fn, void *arg, struct sy_error *err)
{
    struct syi_busy busy = syi_busy_begin(&world.comm);
    return world.ranks == 1 ? fn(arg, err) : syi_busy_run(&busy, fn, arg, err);
}

/* After a launch that ended well on all ranks only rank 0 can fail: what is left is files and output. */
static int end_status(int status)
{
    if (!world.finished) return cli_world_agree(status);
    int failed = cli_world_share(&status, sizeof status);
    return failed ? failed : status;
}

int cli_world_close(int status)
{
    syi_held_free();
    if (!world.backend) return status;
    if (world.alone)
        tell_alone();
    else if (!world.failed)
        status = end_status(status);
    /* A launcher kills what is left when the first process ends with a failure: rank 0, which puts the run
     * directory in order, goes first. */
    if (world.failed && world.rank) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    if (world.failed && !world.alone && !world.rank) end_others(status);
    syi_world_close(&world);
    return status;
}

FILE *cli_terminal(FILE *stream)
{
    return isatty(fileno(stream)) && !world.backend && !syi_world_terminal_lent() ? stream : NULL;
}
