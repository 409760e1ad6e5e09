/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the file that a run's database is written to, and copies between that and the run directory. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics/place.h"

/* A file that nobody writes but whoever has the run's lock is opened without locks, which may not work there. */
static const char no_locks[] = "unix-none";

/* ---- which file ---- */

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return syi_format(".");
    return syi_format("%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* 0: a lock of the kind SQLite uses cannot be had on the open file, errno says why. SQLite takes some of these errors for
 * a lock of another program. -1, no file: what is wrong there is SQLite's to say. */
static int can_lock(int fd, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    if (fd < 0 || fcntl(fd, F_SETLK, &range) == 0) return 1;
    return !(errno == ENOLCK || errno == ENOSYS || errno == EIO || errno == EOPNOTSUPP || errno == EINVAL);
}

int syi_place_can_lock(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), can = can_lock(fd, F_RDLCK);
    if (fd >= 0) close(fd);
    return can;
}

int syi_place_can_lock_in(const char *folder)
{
    char *path = syi_format("%s/.metrics-lock-%ld", folder, (long)getpid());
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1, can, reason;

    if (fd >= 0) unlink(path);
    can = can_lock(fd, F_WRLCK);
    reason = errno;
    if (fd >= 0) close(fd);
    syi_free(path);
    errno = reason;
    return can;
}

/* A folder of the user's own below $TMPDIR or /tmp; NULL with an error. */
static char *temporary_folder(struct sy_error *err)
{
    const char *base = getenv("TMPDIR");
    char *folder = syi_format("%s/switchyard-%ld", base && *base ? base : "/tmp", (long)geteuid());
    struct stat info;

    if (!folder) {
        syi_error(err, SY_ENOMEM, "out of memory");
        return NULL;
    }
    if ((mkdir(folder, 0700) == 0 || errno == EEXIST) && lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) &&
        info.st_uid == geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH)))
        return folder;
    syi_error(err, SY_EIO, "metrics: %s is no folder of this user's: set metrics.dir or TMPDIR to another",
              folder);
    syi_free(folder);
    return NULL;
}

/* The file of a folder that belongs to this run directory, wherever the program is started. */
static int set_local(struct syi_place *place, const char *folder, struct sy_error *err)
{
    char *run = folder_of(place->home), *full = run ? realpath(run, NULL) : NULL, hex[65];
    int status = SY_OK;

    if (run && !full) status = syi_error_system(err, "metrics: cannot find %s", run);
    if (!status && full) {
        struct syi_sha256 hash;
        syi_sha256_init(&hash);
        syi_sha256_add(&hash, full, strlen(full));
        syi_sha256_hex(&hash, hex);
        syi_free(place->path);
        place->path = syi_format("%s/metrics-%.16s.db", folder, hex);
        place->local = 1;
    }
    if (!status && (!full || !place->path)) status = syi_error(err, SY_ENOMEM, "out of memory");
    free(full);
    syi_free(run);
    return status;
}

int syi_place_leave_home(struct syi_place *place, const char *why, struct sy_error *err)
{
    char *folder = temporary_folder(err);
    int status = folder ? set_local(place, folder, err) : SY_EIO;

    if (!status)
        syi_log(
            SY_LOG_WARN,
            "metrics: file locks do not work beside %s (%s): it is written as %s and copied there with each "
            "checkpoint and at the end; metrics.dir names another folder",
            place->home, why, place->path);
    syi_free(folder);
    return status;
}

int syi_place_choose(struct syi_place *place, const char *home, const char *folder, struct sy_error *err)
{
    char *run;
    int status = SY_OK;

    memset(place, 0, sizeof(*place));
    place->home = syi_strdup(home, err);
    place->path = syi_strdup(home, err);
    if (!place->home || !place->path) return SY_ENOMEM;
    if (folder && *folder) {
        status = syi_make_folders(folder, err);
        return status ? status : set_local(place, folder, err);
    }
    run = folder_of(home);
    if (!run) return syi_error(err, SY_ENOMEM, "out of memory");
    if (!syi_place_can_lock_in(run)) status = syi_place_leave_home(place, strerror(errno), err);
    syi_free(run);
    return status;
}

void syi_place_free(struct syi_place *place)
{
    syi_free(place->home);
    syi_free(place->path);
    memset(place, 0, sizeof(*place));
}

/* ---- copying ---- */

static int copy_pages(sqlite3 *from, struct syi_database *to, struct sy_error *err)
{
    sqlite3_backup *backup;
    int code = sqlite3_open_v2(to->path, &to->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, no_locks);

    if (code == SQLITE_OK) code = sqlite3_exec(to->db, "PRAGMA journal_mode = OFF", NULL, NULL, NULL);
    backup = code == SQLITE_OK ? sqlite3_backup_init(to->db, "main", from, "main") : NULL;
    if (backup) {
        sqlite3_backup_step(backup, -1);
        code = sqlite3_backup_finish(backup);
    }
    if (backup && code == SQLITE_OK) return SY_OK;
    return syi_error(err, SY_EIO, "metrics: cannot copy the database to %s: %s", to->path,
                     code == SQLITE_OK ? sqlite3_errmsg(to->db) : sqlite3_errstr(code));
}

static int sync_file(const char *path, struct sy_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), failed = fd < 0 || fsync(fd) != 0;
    int status = failed ? syi_error_system(err, "metrics: cannot sync %s", path) : SY_OK;
    if (fd >= 0) close(fd);
    return status;
}

/* To another name, synced and renamed. */
static int copy_database(sqlite3 *from, const char *path, struct sy_error *err)
{
    char *part = syi_format("%s.tmp", path), *folder = folder_of(path);
    struct syi_database to = {.path = part};
    int status = part && folder ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");

    if (!status) {
        unlink(part);
        status = copy_pages(from, &to, err);
        sqlite3_close(to.db);
    }
    if (!status) status = sync_file(part, err);
    if (!status && rename(part, path) != 0)
        status = syi_error_system(err, "metrics: cannot rename %s to %s", part, path);
    if (!status) status = syi_file_sync_folder(folder, err);
    syi_free(part);
    syi_free(folder);
    return status;
}

int syi_place_copy_home(const struct syi_place *place, sqlite3 *db, struct sy_error *err)
{
    return place->local ? copy_database(db, place->home, err) : SY_OK;
}

void syi_place_discard(const struct syi_place *place)
{
    if (place->local) unlink(place->path);
}

/* ---- finding it again ---- */

enum { START_BYTES = 600 };

/* The last start of training that a database knows, as text that no other start has; "": none. Returns a result code of
 * SQLite. */
static int last_start(sqlite3 *db, char text[START_BYTES])
{
    sqlite3_stmt *query = NULL;
    int code = sqlite3_prepare_v2(db, "SELECT 1 FROM sqlite_master WHERE name = 'run'", -1, &query, NULL);

    *text = 0;
    if (code == SQLITE_OK) code = sqlite3_step(query);
    sqlite3_finalize(query);
    if (code != SQLITE_ROW) return code == SQLITE_DONE ? SQLITE_OK : code;
    code = sqlite3_prepare_v2(
        db, "SELECT attempt || ' ' || time || ' ' || host FROM run ORDER BY attempt DESC LIMIT 1", -1, &query,
        NULL);
    if (code == SQLITE_OK) code = sqlite3_step(query);
    const char *start = code == SQLITE_ROW ? (const char *)sqlite3_column_text(query, 0) : NULL;
    if (code == SQLITE_ROW && !start) code = SQLITE_NOMEM;
    if (start) snprintf(text, START_BYTES, "%s", start);
    sqlite3_finalize(query);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

static int has_start(sqlite3 *db, const char *text)
{
    sqlite3_stmt *query = NULL;
    int there = 0;

    if (sqlite3_prepare_v2(db, "SELECT 1 FROM run WHERE attempt || ' ' || time || ' ' || host = ?1", -1,
                           &query, NULL) == SQLITE_OK) {
        sqlite3_bind_text(query, 1, text, -1, SQLITE_STATIC);
        there = sqlite3_step(query) == SQLITE_ROW;
    }
    sqlite3_finalize(query);
    return there;
}

/* Whether the local file is there and knows that start: then it has gone on from the copy. */
static int has_gone_on(const char *path, const char *start)
{
    sqlite3 *db = NULL;
    int there = access(path, F_OK) == 0 &&
                sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK && has_start(db, start);
    sqlite3_close(db);
    return there;
}

int syi_place_fetch(struct syi_place *place, struct sy_error *err)
{
    struct syi_database home = {.path = place->home};
    char start[START_BYTES] = "";
    int status = SY_OK;

    if (!place->local) return SY_OK;
    place->made = access(place->path, F_OK) != 0;
    if (access(place->home, F_OK) != 0) return SY_OK;
    /* writing: a journal that a killed writer left is rolled back, or it would spoil the next copy */
    if (sqlite3_open_v2(place->home, &home.db, SQLITE_OPEN_READWRITE, no_locks) != SQLITE_OK ||
        last_start(home.db, start) != SQLITE_OK)
        status = syi_database_error(&home, "read", err);
    if (!status && *start && !has_gone_on(place->path, start))
        status = copy_database(home.db, place->path, err);
    sqlite3_close(home.db);
    return status;
}

/* ---- a damaged file ---- */

static int move_file(const char *path, const char *suffix, const char *to, struct sy_error *err)
{
    char *from = syi_format("%s%s", path, suffix), *target = syi_format("%s%s", to, suffix);
    int status = from && target ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");

    if (!status && rename(from, target) != 0 && errno != ENOENT)
        status = syi_error_system(err, "metrics: cannot move %s, which is damaged, to %s", from, target);
    syi_free(from);
    syi_free(target);
    return status;
}

int syi_place_move_aside(const char *path, const struct sy_error *damage, struct sy_error *err)
{
    char *to = NULL;
    int status;

    for (int n = 1; !to || access(to, F_OK) == 0; n++) {
        syi_free(to);
        to = syi_format("%s.corrupt-%d", path, n);
        if (!to) return syi_error(err, SY_ENOMEM, "out of memory");
    }
    status = move_file(path, "-journal", to, err);
    if (!status) status = move_file(path, "", to, err);
    if (!status) syi_log(SY_LOG_WARN, "%s; it is kept as %s and a new one begins", damage->text, to);
    syi_free(to);
    return status;
}
