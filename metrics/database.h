/* SPDX-License-Identifier: Apache-2.0 */
/* An open database of a run, and what SQLite says of it as errors of ours. */
#ifndef SYI_DATABASE_H
#define SYI_DATABASE_H

#include <sqlite3.h>

#include "base/base.h"

struct syi_database {
    sqlite3 *db;
    const char *path; /* borrowed */
};

/* Whether the SQLite that the program found when it started is as new as what is asked of it: SY_EUNSUPPORTED. It may be
 * another one than configure tried. */
int syi_database_check_library(struct sy_error *err) SYI_MUST_CHECK;
/* Whether the library takes the path that the database of this run directory has: SQLite has a limit of its own. The folder
 * need not be there. */
int syi_database_check_path(const char *run_dir, struct sy_error *err) SYI_MUST_CHECK;
/* SQLite's header that this was compiled with and its library that was found at start: "3.40.1". */
struct syi_database_library {
    const char *compiled, *running; /* static */
};
struct syi_database_library syi_database_library(void);
/* The last error of SQLite: SY_EBUSY locked by another program, SY_EFORMAT no database or a damaged one, SY_ENOENT
 * removed or replaced while it was open, SY_EIO the rest. doing: "write". */
int syi_database_error(const struct syi_database *database, const char *doing, struct sy_error *err);
/* Whether that error may pass by itself: locks, I/O errors, a full disk, no files or memory left. */
int syi_database_may_recover(const struct syi_database *database);
/* Whether locks do not work there. */
int syi_database_cannot_lock(const struct syi_database *database);
/* Runs statements without rows. */
int syi_database_run(const struct syi_database *database, const char *sql, const char *doing,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The whole number in the first column of the first row. */
int syi_database_ask(const struct syi_database *database, const char *sql, int64_t *number,
                     struct sy_error *err) SYI_MUST_CHECK;
int syi_database_prepare(const struct syi_database *database, const char *sql, sqlite3_stmt **statement,
                         struct sy_error *err) SYI_MUST_CHECK;

#endif
