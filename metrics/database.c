/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite's errors in our words, and the calls that every user of a run's database makes. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "metrics/database.h"

enum { LEAST_SQLITE = 3025000 }; /* m4/sy_sqlite.m4 asks for the same */

int syi_database_check_library(struct sy_error *err)
{
    if (sqlite3_libversion_number() >= LEAST_SQLITE) return SY_OK;
    return syi_error(
        err, SY_EUNSUPPORTED,
        "metrics: the SQLite library that was found at start is version %s, and 3.25 is needed: ldd says "
        "which it is; take its folder out of LD_LIBRARY_PATH, or configure with --with-sqlite=DIR",
        sqlite3_libversion());
}

int syi_database_check_path(const char *run_dir, struct sy_error *err)
{
    /* MAX_PATHNAME of SQLite's os_unix.c, without the "-journal" of a second file. */
    enum { LONGEST = 512 - 8 };
    char here[4096] = "";
    if (*run_dir != '/' && !getcwd(here, sizeof here))
        return syi_error_system(err, "metrics: the current folder");
    size_t bytes = strlen(here) + (*here != '\0') + strlen(run_dir) + strlen("/metrics.db");
    if (bytes <= LONGEST) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "metrics: metrics.db in run directory %.60s... would have a path of %zu bytes, and SQLite takes "
        "%d: choose a shorter one",
        run_dir, bytes, LONGEST);
}

struct syi_database_library syi_database_library(void)
{
    return (struct syi_database_library){SQLITE_VERSION, sqlite3_libversion()};
}

/* A file that was removed or renamed while it is open is read-only to SQLite, which would say no more. */
int syi_database_error(const struct syi_database *database, const char *doing, struct sy_error *err)
{
    int code = sqlite3_errcode(database->db) & 0xff;

    if (sqlite3_extended_errcode(database->db) == SQLITE_READONLY_DBMOVED)
        return syi_error(err, SY_ENOENT,
                         "metrics: %s was removed or replaced by another file while it was open",
                         database->path);
    const char *hint = code == SQLITE_BUSY || code == SQLITE_LOCKED ? "; another program keeps it locked"
                       : code == SQLITE_FULL                        ? "; free some space"
                       : code == SQLITE_READONLY                    ? "; is the run directory writable?"
                                                                    : "";
    int status = code == SQLITE_BUSY || code == SQLITE_LOCKED      ? SY_EBUSY
                 : code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? SY_EFORMAT
                                                                   : SY_EIO;

    int reason = code == SQLITE_IOERR || code == SQLITE_CANTOPEN ? sqlite3_system_errno(database->db) : 0;
    return syi_error(err, status, "metrics: cannot %s %s: %s%s%s%s", doing, database->path,
                     sqlite3_errmsg(database->db), reason ? ": " : "", reason ? strerror(reason) : "", hint);
}

int syi_database_may_recover(const struct syi_database *database)
{
    switch (sqlite3_errcode(database->db) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_FULL:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL:
    case SQLITE_NOMEM: return 1;
    /* permissions come back, a file that was moved does not */
    case SQLITE_READONLY: return sqlite3_extended_errcode(database->db) != SQLITE_READONLY_DBMOVED;
    default: return 0;
    }
}

int syi_database_cannot_lock(const struct syi_database *database)
{
    switch (sqlite3_extended_errcode(database->db)) {
    case SQLITE_IOERR_LOCK:
    case SQLITE_IOERR_RDLOCK:
    case SQLITE_IOERR_UNLOCK:
    case SQLITE_IOERR_CHECKRESERVEDLOCK:
    case SQLITE_PROTOCOL: return 1;
    default: return 0;
    }
}

int syi_database_run(const struct syi_database *database, const char *sql, const char *doing,
                     struct sy_error *err)
{
    if (sqlite3_exec(database->db, sql, NULL, NULL, NULL) == SQLITE_OK) return SY_OK;
    return syi_database_error(database, doing, err);
}

int syi_database_prepare(const struct syi_database *database, const char *sql, sqlite3_stmt **statement,
                         struct sy_error *err)
{
    if (sqlite3_prepare_v2(database->db, sql, -1, statement, NULL) == SQLITE_OK) return SY_OK;
    return syi_database_error(database, "prepare", err);
}

int syi_database_ask(const struct syi_database *database, const char *sql, int64_t *number,
                     struct sy_error *err)
{
    sqlite3_stmt *query = NULL;
    int status = SY_OK;

    if (sqlite3_prepare_v2(database->db, sql, -1, &query, NULL) == SQLITE_OK &&
        sqlite3_step(query) == SQLITE_ROW)
        *number = sqlite3_column_int64(query, 0);
    else
        status = syi_database_error(database, "read", err);
    sqlite3_finalize(query);
    return status;
}
