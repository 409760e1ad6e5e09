/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that a launcher (mpirun, srun) started as one run: opening MPI where there are several,
 * making sure that all do the same, and ending together with one status. A process started alone is a world
 * of one, and everything here is then free. */
#ifndef SYI_WORLD_H
#define SYI_WORLD_H

#include "base/run_config.h"
#include "comm/comm.h"

struct syi_world {
    struct syi_backend *backend; /* mpi; NULL: a world of one */
    struct syi_comm comm;
    int rank, ranks;
    int sharers;    /* ranks that may run on the same processors as this one, itself included */
    int neighbours; /* ranks on this host, itself included */
    int same;       /* 1: all ranks run the same program */
    int finished;   /* 1: a launch ended well on all ranks: from here on they only end */
    int failed;     /* 1: all ranks agreed on a failure, and nothing more is sent */
    int alone;      /* 1: not all came to agree: the process has to report its own error */
};

/* The rank that a launcher gave this process, 0 without one; for messages before a world is open. */
int syi_world_launcher_rank(void);
/* How many processes a launcher says it started: 1 when there is none, and *variable is as it was; else it names where
 * the launcher says so. */
long syi_world_launcher_size(const char **variable);
/* 1: a terminal here is one that the launcher made to read from, as Open MPI's mpirun does, also for a single process. Not
 * in a shell of `srun --pty`, where the terminal is the user's. */
int syi_world_terminal_lent(void);
/* How many processes srun started that have no way to each other; 0: it is no such start. */
long syi_world_tasks_apart(void);
/* comm: "auto" opens MPI where a launcher says that it started more than one process, "mpi" always, others
 * never. Tasks of srun that do not all find each other are refused by both. Where it fails, why is to be said before the
 * world is closed. */
int syi_world_open(const char *comm, struct syi_world *world, struct sy_error *err) SYI_MUST_CHECK;
/* Ends MPI. After `alone` this ends the other processes too. */
void syi_world_close(struct syi_world *world);
/* All ranks come here with their status and return one: SY_OK, or that of the lowest rank that failed, and
 * its text. */
int syi_world_agree(struct syi_world *world, int status, struct sy_error *err) SYI_MUST_CHECK;
/* Fails on all ranks where they run different programs. */
int syi_world_same_program(struct syi_world *world, struct sy_error *err) SYI_MUST_CHECK;
/* That, or where they have different values of the run file. */
int syi_world_same(struct syi_world *world, const struct syi_config *config,
                   struct sy_error *err) SYI_MUST_CHECK;
/* Rank 0's bytes on all ranks. */
int syi_world_share(struct syi_world *world, void *data, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Appends a file's contents to a hash; a file that cannot be read adds nothing. */
void syi_world_hash_file(const char *path, struct syi_sha256 *hash);

#endif
