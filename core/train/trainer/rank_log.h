/* SPDX-License-Identifier: Apache-2.0 */
/* The log of one rank of a training, where log.ranks asks for it: who it is and where, everything the trainer
 * says, its time and its waiting, and what it failed of. Errors while writing are not the run's. */
#ifndef SYI_RANK_LOG_H
#define SYI_RANK_LOG_H

#include "train/engine/engine.h"

struct syi_rank_log {
    FILE *file;  /* NULL: not wanted */
    int of_node; /* 1: of all ranks of the node; lines begin with the rank */
    int rank;
    double begin;  /* seconds: the last line about steps */
    double waited; /* likewise: the communication's count */
    int64_t step;  /* likewise */
};

/* More ranks than these share a file a node where all are to write one: folders of thousands of files are slow. */
enum { SYI_RANK_LOG_MOST = 64 };

/* Opens it in the run directory, if it is wanted (syi_config_log_ranks). One that is zeroed takes lines too and writes nothing. */
int syi_rank_log_open(struct syi_rank_log *log, const char *run_dir, const struct syi_rank *rank, int wanted,
                      struct sy_error *err) SYI_MUST_CHECK;
void syi_rank_log_close(struct syi_rank_log *log);
void syi_rank_log_say(struct syi_rank_log *log, const char *line);
/* Steps begin here. */
void syi_rank_log_begin(struct syi_rank_log *log, const struct syi_rank *rank, struct syi_engine *engine,
                        int64_t step);
/* Time of the steps since the last such line, and what of it was waiting for other ranks. */
void syi_rank_log_steps(struct syi_rank_log *log, const struct syi_rank *rank, int64_t step, int64_t steps);

#endif
