/* SPDX-License-Identifier: Apache-2.0 */
/* Where the database of a run is written: in its run directory, or, where file locks do not work there or the user
 * wants it so, in a folder of this host, from where it is copied to the run directory. */
#ifndef SYI_PLACE_H
#define SYI_PLACE_H

#include "metrics/database.h"

struct syi_place {
    char *home;  /* RUN_DIR/metrics.db */
    char *path;  /* where the database is written: home, or a file of another folder */
    int local;   /* 1: the latter */
    int made;    /* 1: it was not there before it was fetched */
    int fetched; /* 1: what is in it came from home */
    int lock;    /* while it is locked the open file, else -1 */
};

/* folder: metrics.dir; NULL or "": the run directory, or, with a warning that says so, a folder below $TMPDIR or /tmp
 * if locks do not work there. */
int syi_place_choose(struct syi_place *place, const char *home, const char *folder,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The same warning and folder, for SQLite found that locks do not work. */
int syi_place_leave_home(struct syi_place *place, const char *why, struct sy_error *err) SYI_MUST_CHECK;
void syi_place_free(struct syi_place *place);

/* A local file is used by the training and by evaluations beside it. None may find it half made, replace what another
 * wrote, or lose rows with a file that another removes: who opens it or removes it has it locked, an evaluation from before it
 * opens it until after it closed it. The lock is a file of its own beside it, which is there as long. Nothing to do where the
 * place is not local. SY_EBUSY: it was not free within that time. */
int syi_place_lock(struct syi_place *place, int milliseconds, struct sy_error *err) SYI_MUST_CHECK;
void syi_place_unlock(struct syi_place *place); /* not locked: does nothing */

/* Before a run that begins afresh, without a copy in the run directory: a local file is of another that had this
 * directory, and is moved aside. */
int syi_place_begin(const struct syi_place *place, struct sy_error *err) SYI_MUST_CHECK;
/* The copy in the run directory comes into the open local file, unless that has gone on from it (a run that was killed here).
 * Nothing to do where the place is not local. A copy that is damaged is moved aside if it may be, else SY_EFORMAT. */
int syi_place_fetch(struct syi_place *place, const struct syi_database *database, int may_move,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Copies the open database to the run directory: that has the old or the new copy, never a part; what killed processes left
 * of such copies goes, also where the place is not local. Outside a transaction. SY_EEXIST: the copy there has a start of training that the database does not know, for another program took
 * the run over. */
int syi_place_copy_home(const struct syi_place *place, const struct syi_database *database,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Removes the local file, which was copied home; not without the lock. */
void syi_place_discard(const struct syi_place *place);

/* Whether SQLite can lock the file; no connection of this process to it may be open. */
int syi_place_can_lock(const char *path);
/* Whether a new file of the folder can be locked so; 0 with errno. 1 also where none can be made. */
int syi_place_can_lock_in(const char *folder);

/* Moves a database and its journal, which SQLite finds by its name, to the first free PATH.WORD-N, and says so. why: what
 * is wrong with it. */
int syi_place_move_aside(const char *path, const char *word, const struct sy_error *why,
                         struct sy_error *err) SYI_MUST_CHECK;

#endif
