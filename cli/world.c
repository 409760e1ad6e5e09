/* SPDX-License-Identifier: Apache-2.0 */
/* A command run by several processes: rank 0 prints, a failure of one rank is told once and ends all with one
 * exit status. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

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

int cli_world_open(const struct cli_cmd *cmd, const struct cli_options *options)
{
    struct sy_error err = {0};
    if (!takes_comm(cmd)) return CLI_DONE;
    int status = syi_world_open(options->comm, &world, &err);
    if (status) {
        if (syi_world_launcher_rank() == 0) cli_fail(&err);
        return status == SY_ENOENT || status == SY_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    if (world.rank) cli_error_hold();
    if (world.rank && !freopen("/dev/null", "w", stdout)) return cli_world_close(CLI_FAILED);
    if (!world.backend || !runs_alone(cmd)) return CLI_DONE;
    cli_error(
        "%s: runs in one process: start it without mpirun, with --comm thread --ranks N for several ranks",
        cmd->name);
    return cli_world_close(CLI_USAGE);
}

/* Not all ranks came to agree on one message, so each has to tell its own; the lowest is the first, and ends
 * the others. */
static void tell_alone(void)
{
    struct timespec delay = {.tv_sec = world.rank / 4 < 10 ? world.rank / 4 : 10,
                             .tv_nsec = world.rank % 4 * 250000000L};
    if (world.rank == 0) return; /* its messages are out */
    nanosleep(&delay, NULL);
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
    return syi_world_same(&world, config, &err) ? cli_fail(&err) : CLI_DONE;
}

int cli_world_share(char *text, size_t bytes)
{
    struct sy_error err = {0};
    return syi_world_share(&world, text, bytes, &err) ? cli_fail(&err) : CLI_DONE;
}

/* Behind a launch that ended well on all ranks only rank 0 can fail: what is left is files and output. */
static int end_status(int status)
{
    struct sy_error err = {0};
    int64_t word = status;
    if (!world.finished) return cli_world_agree(status);
    return syi_share_words(&world.share, &word, 1, &err) ? cli_fail(&err) : (int)word;
}

int cli_world_close(int status)
{
    if (!world.backend) return status;
    if (world.alone)
        tell_alone();
    else if (!world.failed)
        status = end_status(status);
    /* A launcher kills what is left when the first process ends with a failure: rank 0, which puts the run
     * directory in order, goes first. */
    if (world.failed && world.rank) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    syi_world_close(&world);
    return status;
}
