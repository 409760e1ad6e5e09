/* SPDX-License-Identifier: Apache-2.0 */
/* Opens databases of runs for reading: beside a writer, after a crash, and with limits on what SQL may do. */
#include "config.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics/database.h"
#include "metrics/expert_counts.h"
#include "metrics/place.h"
#include "metrics/reading.h"
#include "metrics/runs.h"
#include "metrics/schema.h"

enum {
    BUSY_MILLISECONDS = 10000,
    CELL =
        1
        << 20, /* bytes of a value: functions of SQLite that compare two long texts may take their product */
    PATTERN = 1000,   /* bytes of a pattern of LIKE or GLOB, likewise */
    PROGRAM = 1000000 /* instructions of a compiled statement */
};

/* A journal must be rolled back, and this connection may not. */
static int lacks_recovery(int extended)
{
    return extended == SQLITE_READONLY_ROLLBACK || extended == SQLITE_READONLY_RECOVERY ||
           extended == SQLITE_READONLY_CANTLOCK;
}

int syi_reading_error(sqlite3 *db, const char *path, struct sy_error *err)
{
    int code = sqlite3_errcode(db) & 0xff;

    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return syi_error(err, SY_EBUSY, "metrics: %s is locked by another program; try again", path);
    if (code == SQLITE_NOMEM) return syi_error(err, SY_ENOMEM, "metrics: out of memory");
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return syi_error(
            err, SY_EFORMAT,
            "metrics: %s is damaged (%s): `switchyard train` with --resume sets it aside and begins a "
            "new one; what can be read of it prints `sqlite3 FILE .recover`",
            path, sqlite3_errmsg(db));
    if (lacks_recovery(sqlite3_extended_errcode(db)))
        return syi_error(
            err, SY_EINVAL,
            "metrics: %s has a journal that a killed writer left, and it may not be written here: run "
            "this once as the owner of the run, which rolls the journal back",
            path);
    if (code == SQLITE_READONLY || code == SQLITE_AUTH)
        return syi_error(err, SY_EINVAL, "metrics: %s is only read here: %s", path, sqlite3_errmsg(db));
    return syi_error(err, code == SQLITE_IOERR || code == SQLITE_CANTOPEN ? SY_EIO : SY_EINVAL,
                     "metrics: %s: %s", path, sqlite3_errmsg(db));
}

enum { NO_TABLES, OTHER_TABLES, OUR_TABLES };

static int take_tables(void *tables, int n, char **values, char **names)
{
    (void)n, (void)names;
    if (values[0]) *(int *)tables = values[0][0] == '1' ? OUR_TABLES : OTHER_TABLES;
    return 0;
}

/* Reads the first pages; the extended result code says what is in the way. *tables: whose there are. */
static int probe(sqlite3 *db, int *tables)
{
    *tables = NO_TABLES;
    sqlite3_extended_result_codes(db, 1);
    return sqlite3_exec(db, "SELECT max(name = 'run') FROM sqlite_master", take_tables, tables, NULL);
}

/* A writer that was killed in a transaction leaves a journal which only a connection that may write can roll
 * back. */
static void recover(const char *path)
{
    sqlite3 *db = NULL;
    int tables;

    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(db, BUSY_MILLISECONDS);
        probe(db, &tables);
    }
    sqlite3_close(db);
}

/* What SQL may be, so that no step of it runs for long without a look at the clock. */
static void limit(sqlite3 *db)
{
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, CELL);
    sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN);
    sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, PROGRAM);
}

/* Whether they are a run's, of a version that this program knows. */
static int check_tables(sqlite3 *db, const char *path, int tables, struct sy_error *err)
{
    const struct syi_database database = {db, path};
    int64_t version;
    int status;

    if (tables == NO_TABLES)
        return syi_error(
            err, SY_ENOENT,
            "metrics: %s is empty: the run ended before it made its tables, or has only just begun; "
            "`switchyard train` with --resume goes on with it",
            path);
    if (tables == OTHER_TABLES)
        return syi_error(
            err, SY_EINVAL,
            "metrics: %s is a database, but of no run (it has no table \"run\"): give the directory of "
            "a run, as `switchyard train` made it",
            path);
    status = syi_database_ask(&database, "PRAGMA user_version", &version, err);
    return status ? status : syi_schema_check_version(path, version, err);
}

/* vfs: that of SQLite which is used, NULL the usual one; where file locks do not work it becomes one without. */
static int open_with(const char *path, const char **vfs, sqlite3 **db, struct sy_error *err)
{
    int flags = SQLITE_OPEN_READONLY, code, tables = NO_TABLES, status = syi_database_check_library(err);
    struct stat info;

    *db = NULL;
    if (status) return status;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return syi_error(err, SY_EINVAL, "metrics: %s is a folder, and no database", path);
    if (access(path, F_OK) != 0)
        return syi_error(
            err, SY_ENOENT,
            "metrics: there is no %s; this is no directory of a run, or of one that ended before it "
            "made its database: `switchyard train` with --resume starts it",
            path);
    /* what is there without locks is a copy that is replaced as a whole (place.h) */
    if (!*vfs && !syi_place_can_lock(path)) *vfs = "unix-none";
    for (int try = 0;; try++) {
        code = sqlite3_open_v2(path, db, flags, *vfs);
        if (!*db) return syi_error(err, SY_ENOMEM, "metrics: out of memory");
        sqlite3_busy_timeout(*db, BUSY_MILLISECONDS);
        limit(*db);
        if (code == SQLITE_OK) code = syi_expert_counts_register(*db);
        if (code == SQLITE_OK) code = probe(*db, &tables);
        if (code == SQLITE_OK) break;
        if (try > 0 || ((code & 0xff) != SQLITE_READONLY && (code & 0xff) != SQLITE_CANTOPEN)) break;
        sqlite3_close(*db);
        recover(path);
    }
    status = code == SQLITE_OK ? check_tables(*db, path, tables, err) : syi_reading_error(*db, path, err);
    if (status == SY_OK) return SY_OK;
    sqlite3_close(*db);
    *db = NULL;
    return status;
}

/* Each of several by itself first, for what is wrong with it. */
int syi_reading_open(const char *path, const char *const *others, int n_others, sqlite3 **db,
                     struct sy_error *err)
{
    const char *vfs = NULL;
    int status = SY_OK;

    for (int i = 0; i < n_others && !status; i++) {
        status = open_with(others[i], &vfs, db, err);
        sqlite3_close(*db);
        *db = NULL;
    }
    if (!status) status = open_with(path, &vfs, db, err);
    if (!status) status = syi_runs_attach(*db, path, others, n_others, err);
    if (status) sqlite3_close(*db);
    if (status) *db = NULL;
    return status;
}
