/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: run.conf (values in force), vocabulary (a copy of its file, if it has one), status (one word), lock
 * (the one writer), log, metrics.db and checkpoints/. Only the process that holds the lock writes, but for the ranks' parts of
 * checkpoints and logs of their own. */
#ifndef SYI_RUN_DIR_H
#define SYI_RUN_DIR_H

#include "base/run_config.h"
#include "train/launch/run_lock.h"

struct syi_run_dir {
    char path[SYI_CONFIG_STRING];
    int locked;  /* 1: this process is the writer */
    double look; /* when it looked at the lock last, seconds */
    struct syi_heartbeat *heartbeat;
    FILE *log;
};

/* Makes an empty folder "runs/NAME-YYYYMMDD-HHMMSS", with -2, -3, ... where others have that name; run_name is
 * that of a checked configuration. */
int syi_run_dir_make(const char *run_name, char *path, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Whether the folder holds a run (its run.conf is there). One that cannot be looked at counts as a run, so that
 * nothing is written over it; reading its run.conf says what is wrong. */
int syi_run_dir_exists(const char *path);
/* Makes the folder if needed and takes the lock as run_lock.h says; taking one over is logged. */
int syi_run_dir_open(const char *path, const struct syi_lock_options *options, struct syi_run_dir *dir,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The writer looks at its lock, if it last did `seconds` ago (0: now), and gives a heartbeat. SY_EBUSY: the directory was
 * taken over, and this process must not write there any more. */
int syi_run_dir_beat(struct syi_run_dir *dir, double seconds, struct sy_error *err) SYI_MUST_CHECK;
/* Takes the lock off; status text was set before. */
void syi_run_dir_close(struct syi_run_dir *dir);
int syi_run_dir_status(const struct syi_run_dir *dir, const char *word, struct sy_error *err) SYI_MUST_CHECK;
/* Paths of files of examples and of vocabularies, of data.cache and of metrics.dir, relative to the working directory until
 * now, as absolute ones. */
void syi_run_dir_absolute(struct syi_config *config);
/* Writes PATH/run.conf, with such paths: the run is found to be the same from any working directory. */
int syi_run_dir_write_config(const struct syi_run_dir *dir, const struct syi_config *config,
                             struct sy_error *err) SYI_MUST_CHECK;
/* Writes the file PATH/NAME. */
int syi_run_dir_write_text(const struct syi_run_dir *dir, const char *name, const struct syi_text *text,
                           struct sy_error *err) SYI_MUST_CHECK;
/* SY_ENOENT for a path that holds no run, with what to give: a run directory or `others`; where it is a checkpoint of
 * another program, how to import it. `before` opens the message. */
int syi_run_dir_refuse(const char *path, const char *before, const char *others,
                       struct sy_error *err) SYI_MUST_CHECK;
/* Of a run directory or a packed model (base/packed.h). */
int syi_run_dir_read_config(const char *path, struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* Copies the files of all vocabularies to PATH/vocabulary and PATH/vocabulary.targets. SY_EMISMATCH: a copy is there and
 * holds something else: the model was trained with that. */
int syi_run_dir_keep_vocabularies(const struct syi_run_dir *dir, const struct syi_config *config,
                                  struct sy_error *err) SYI_MUST_CHECK;
/* The same of one vocabulary, whose file held these bytes. */
int syi_run_dir_keep_vocabulary(const struct syi_run_dir *dir, const struct syi_vocabulary_part *part,
                                const char *text, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Puts those copies, where there are such, in place of the files that a run's configuration names. */
int syi_run_dir_use_vocabularies(const char *path, struct syi_config *config,
                                 struct sy_error *err) SYI_MUST_CHECK;
/* Appends a line with the time to the log file. */
void syi_run_dir_log(struct syi_run_dir *dir, const char *line);
/* The log of one rank or node, PATH/ranks/NAME.log, appended to; any rank, without the lock. */
int syi_run_dir_open_rank_log(const char *path, const char *name, FILE **log,
                              struct sy_error *err) SYI_MUST_CHECK;
/* Appends a line with the time; log may be NULL. Lines that cannot be written, as on a full disk, are lost: the next that can
 * be says so. */
void syi_log_append(FILE *log, const char *line);

#endif
