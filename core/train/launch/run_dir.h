/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: run.conf (values in force), status (one word), lock (host and pid of the one writer),
 * log, metrics.db and checkpoints/. Only the process that holds the lock writes, but for the ranks' parts of
 * checkpoints and logs of their own. */
#ifndef SYI_RUN_DIR_H
#define SYI_RUN_DIR_H

#include "base/run_config.h"

struct syi_run_dir {
    char path[SYI_CONFIG_STRING];
    int locked; /* 1: this process is the writer */
    FILE *log;
};

/* "runs/NAME-YYYYMMDD-HHMMSS", made unique if it is there; run_name is that of a checked configuration. */
int syi_run_dir_name(const char *run_name, char *path, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Whether the folder holds a run (its run.conf is there). */
int syi_run_dir_exists(const char *path);
/* Makes the folder if needed and takes the lock (O_EXCL; a lock whose process on this host is dead is taken
 * over and logged; a live one is SY_EBUSY naming host and pid). */
int syi_run_dir_open(const char *path, struct syi_run_dir *dir, struct sy_error *err) SYI_MUST_CHECK;
/* Takes the lock off; status text was set before. */
void syi_run_dir_close(struct syi_run_dir *dir);
int syi_run_dir_status(const struct syi_run_dir *dir, const char *word, struct sy_error *err) SYI_MUST_CHECK;
int syi_run_dir_write_config(const struct syi_run_dir *dir, const struct syi_config *config,
                             struct sy_error *err) SYI_MUST_CHECK;
int syi_run_dir_read_config(const char *path, struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* Appends a line with the time to the log file. */
void syi_run_dir_log(struct syi_run_dir *dir, const char *line);
/* The log of one rank, PATH/ranks/rank-N.log, appended to; any rank, without the lock. */
int syi_run_dir_open_rank_log(const char *path, int rank, FILE **log, struct sy_error *err) SYI_MUST_CHECK;
/* Appends a line with the time; log may be NULL. */
void syi_log_append(FILE *log, const char *line);

#endif
