/* SPDX-License-Identifier: Apache-2.0 */
/* Where the database of a run is written: in its run directory, or, where file locks do not work there or the user
 * wants it so, in a folder of this host, from where it is copied to the run directory. */
#ifndef SYI_PLACE_H
#define SYI_PLACE_H

#include "metrics/database.h"

struct syi_place {
    char *home; /* RUN_DIR/metrics.db */
    char *path; /* where the database is written: home, or a file of another folder */
    int local;  /* 1: the latter */
    int made;   /* 1: it was not there before it was fetched */
};

/* folder: metrics.dir; NULL or "": the run directory, or, with a warning that says so, a folder below $TMPDIR or /tmp
 * if locks do not work there. */
int syi_place_choose(struct syi_place *place, const char *home, const char *folder,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The same warning and folder, for SQLite found that locks do not work. */
int syi_place_leave_home(struct syi_place *place, const char *why, struct sy_error *err) SYI_MUST_CHECK;
void syi_place_free(struct syi_place *place); /* zeroed: does nothing */

/* Before the database is opened: the copy in the run directory comes to the local path, unless the file that is there
 * has gone on from it (a run that was killed here). Nothing to do where the place is not local. SY_EFORMAT: the copy in
 * the run directory is damaged. */
int syi_place_fetch(struct syi_place *place, struct sy_error *err) SYI_MUST_CHECK;
/* Copies the open database to the run directory: that has the old or the new copy, never a part. */
int syi_place_copy_home(const struct syi_place *place, sqlite3 *db, struct sy_error *err) SYI_MUST_CHECK;
/* Removes the local file, which was closed and copied home. */
void syi_place_discard(const struct syi_place *place);

/* Whether SQLite can lock the file; no connection of this process to it may be open. */
int syi_place_can_lock(const char *path);
/* Whether a new file of the folder can be locked so; 0 with errno. 1 also where none can be made. */
int syi_place_can_lock_in(const char *folder);

/* Moves a damaged database and its journal, which SQLite finds by its name, to the first free PATH.corrupt-N, and says
 * so. damage: what is wrong with it. */
int syi_place_move_aside(const char *path, const struct sy_error *damage,
                         struct sy_error *err) SYI_MUST_CHECK;

#endif
