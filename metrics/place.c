/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the file that a run's database is written to, and copies between that and the run directory. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "metrics/place.h"

/* A file that nobody writes but whoever has the run's lock is opened without locks, which may not work there. */
static const char no_locks[] = "unix-none";

/* ---- which file ---- */

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
    char *run = syi_file_parent(place->home, err), *full = run ? realpath(run, NULL) : NULL, hex[65];
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

    *place = (struct syi_place){.lock = -1};
    place->home = syi_strdup(home, err);
    place->path = syi_strdup(home, err);
    if (!place->home || !place->path) return SY_ENOMEM;
    if (folder && *folder) {
        status = syi_make_folders(folder, err);
        return status ? status : set_local(place, folder, err);
    }
    run = syi_file_parent(home, err);
    if (!run) return SY_ENOMEM;
    if (!syi_place_can_lock_in(run)) status = syi_place_leave_home(place, strerror(errno), err);
    syi_free(run);
    return status;
}

void syi_place_free(struct syi_place *place)
{
    syi_place_unlock(place);
    syi_free(place->home);
    syi_free(place->path);
}

/* ---- whose turn it is ---- */

/* The locked file, which still is what its name leads to: who had it before may have removed it. -1 with errno, EWOULDBLOCK:
 * it is not free. */
static int try_lock(const char *file)
{
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666), reason = EWOULDBLOCK;

    if (fd < 0) return -1;
    if (flock(fd, LOCK_EX | LOCK_NB))
        reason = errno;
    else if (syi_file_is_current(fd, file))
        return fd;
    close(fd);
    errno = reason;
    return -1;
}

int syi_place_lock(struct syi_place *place, int milliseconds, struct sy_error *err)
{
    const double until = syi_seconds() + milliseconds / 1e3;
    char *file;
    int status = SY_OK;

    if (!place->local || place->lock >= 0) return SY_OK;
    file = syi_format("%s-lock", place->path);
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    while (!status && (place->lock = try_lock(file)) < 0) {
        if (errno != EWOULDBLOCK)
            status = syi_error_system(err, "metrics: cannot lock %s", file);
        else if (syi_seconds() >= until)
            status =
                syi_error(err, SY_EBUSY, "metrics: another program is at work on %s: try again", place->path);
        else
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    syi_free(file);
    return status;
}

void syi_place_unlock(struct syi_place *place)
{
    char *file = place->lock >= 0 ? syi_format("%s-lock", place->path) : NULL;

    if (file) unlink(file);
    if (place->lock >= 0) close(place->lock);
    place->lock = -1;
    syi_free(file);
}

/* ---- copying ---- */

/* What a journal belongs to was removed or is replaced as a whole: rolled back into another file it would damage that. */
static void remove_journal(const char *path)
{
    char *journal = syi_format("%s-journal", path);
    if (journal) unlink(journal);
    syi_free(journal);
}

static int copy_pages(sqlite3 *from, const struct syi_database *to, struct sy_error *err)
{
    sqlite3_backup *backup = sqlite3_backup_init(to->db, "main", from, "main");

    if (backup) sqlite3_backup_step(backup, -1);
    if (backup && sqlite3_backup_finish(backup) == SQLITE_OK) return SY_OK;
    return syi_database_error(to, "copy the database to", err);
}

static int fill_copy(void *from, int fd, const char *name, struct sy_error *err)
{
    struct syi_database to = {.path = name};
    int status = SY_OK;

    (void)fd;
    if (sqlite3_open_v2(name, &to.db, SQLITE_OPEN_READWRITE, no_locks) != SQLITE_OK)
        status = syi_database_error(&to, "open", err);
    if (!status) status = syi_database_run(&to, "PRAGMA journal_mode = OFF", "open", err);
    if (!status) status = copy_pages(from, &to, err);
    sqlite3_close(to.db);
    return status;
}

void syi_place_discard(const struct syi_place *place)
{
    if (!place->local || place->lock < 0) return;
    remove_journal(place->path);
    unlink(place->path);
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

/* Of a damaged copy only the trouble with it is known; it is moved aside as if there had been none. */
static int read_home(const char *path, int may_move, sqlite3 **db, char start[START_BYTES],
                     struct sy_error *err)
{
    struct syi_database home = {.path = path};
    struct sy_error reason = {.code = SY_OK};
    int status = SY_OK;

    *start = 0;
    if (access(path, F_OK) != 0) return SY_OK;
    /* writing: a journal that a killed writer left is rolled back, or it would spoil the next copy */
    if (sqlite3_open_v2(path, &home.db, SQLITE_OPEN_READWRITE, no_locks) != SQLITE_OK ||
        last_start(home.db, start) != SQLITE_OK)
        status = syi_database_error(&home, "read", &reason);
    *db = home.db;
    if (status == SY_EFORMAT && may_move) return syi_place_move_aside(path, "corrupt", &reason, err);
    return status ? syi_error(err, status, "%s", reason.text) : SY_OK;
}

/* Whether the local file knows that start: then it has gone on from the copy. */
static int has_start(const struct syi_database *database, const char *text, int *there, struct sy_error *err)
{
    sqlite3_stmt *query = NULL;
    int status = syi_database_prepare(
        database, "SELECT count(*) FROM run WHERE attempt || ' ' || time || ' ' || host = ?1", &query, err);

    if (status) return status;
    sqlite3_bind_text(query, 1, text, -1, SQLITE_STATIC);
    if (sqlite3_step(query) == SQLITE_ROW)
        *there = sqlite3_column_int(query, 0) > 0;
    else
        status = syi_database_error(database, "read", err);
    sqlite3_finalize(query);
    return status;
}

int syi_place_fetch(struct syi_place *place, const struct syi_database *database, int may_move,
                    struct sy_error *err)
{
    char start[START_BYTES];
    sqlite3 *home = NULL;
    int64_t n_objects = 0;
    int knows = 0, status;

    place->made = place->fetched = 0;
    if (!place->local) return SY_OK;
    status = syi_database_ask(database, "SELECT count(*) FROM sqlite_master", &n_objects, err);
    if (!status) place->made = !n_objects;
    if (!status) status = read_home(place->home, may_move, &home, start, err);
    if (!status && *start && n_objects) status = has_start(database, start, &knows, err);
    if (!status && *start && !knows) {
        place->fetched = 1;
        status = copy_pages(home, database, err);
    }
    sqlite3_close(home);
    return status;
}

/* The copy in the run directory has a start of training that the local file does not know: the run was taken over, and what
 * has gone on there is not replaced. */
static int check_home(const struct syi_place *place, const struct syi_database *database,
                      struct sy_error *err)
{
    char start[START_BYTES];
    sqlite3 *home = NULL;
    int knows = 1, status = read_home(place->home, 1, &home, start, err);

    sqlite3_close(home);
    if (!status && *start) status = has_start(database, start, &knows, err);
    if (!status && !knows)
        status = syi_error(err, SY_EEXIST, "metrics: %s is of a later start, which took this run over",
                           place->home);
    return status;
}

int syi_place_copy_home(const struct syi_place *place, const struct syi_database *database,
                        struct sy_error *err)
{
    int status;

    syi_file_remove_unfinished(place->home);
    if (!place->local) return SY_OK;
    /* nobody writes before the copy has its name: of two that copy, none brings less than the one before */
    status = syi_database_run(database, "BEGIN; SELECT count(*) FROM sqlite_master", "read", err);
    if (!status) status = check_home(place, database, err);
    if (!status) remove_journal(place->home);
    if (!status) status = syi_file_make(place->home, fill_copy, database->db, err);
    if (!status) status = syi_file_sync_parent(place->home, err);
    sqlite3_exec(database->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* ---- a file in the way ---- */

static int move_file(const char *path, const char *suffix, const char *to, struct sy_error *err)
{
    char *from = syi_format("%s%s", path, suffix), *target = syi_format("%s%s", to, suffix);
    int status = from && target ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");

    if (!status && rename(from, target) != 0 && errno != ENOENT)
        status = syi_error_system(err, "metrics: cannot move %s out of the way, to %s", from, target);
    syi_free(from);
    syi_free(target);
    return status;
}

int syi_place_move_aside(const char *path, const char *word, const struct sy_error *why, struct sy_error *err)
{
    char *to = NULL;
    int status;

    for (int n = 1; !to || access(to, F_OK) == 0; n++) {
        syi_free(to);
        to = syi_format("%s.%s-%d", path, word, n);
        if (!to) return syi_error(err, SY_ENOMEM, "out of memory");
    }
    status = move_file(path, "-journal", to, err);
    if (!status) status = move_file(path, "", to, err);
    if (!status) syi_log(SY_LOG_WARN, "%s; it is kept as %s and a new one begins", why->text, to);
    syi_free(to);
    return status;
}

int syi_place_begin(const struct syi_place *place, struct sy_error *err)
{
    struct sy_error why = {.code = SY_OK};

    if (!place->local || access(place->path, F_OK) != 0 || access(place->home, F_OK) == 0) return SY_OK;
    syi_error(&why, SY_EEXIST, "metrics: %s is of a run that was in this directory before", place->path);
    return syi_place_move_aside(place->path, "removed", &why, err);
}
