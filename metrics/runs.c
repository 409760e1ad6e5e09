/* SPDX-License-Identifier: Apache-2.0 */
/* Attaches the databases of several runs and makes views over all. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "metrics/runs.h"

/* A view over all runs: what it shows of each, and of those before a version, which lack some columns. */
static const struct view {
    const char *name, *from, *columns;
    int since;
    const char *columns_before;
} views[] = {
    {"all_run", "run", "attempt, time, start_step, version, host", 0, NULL},
    {"all_metric", "valid_metric", "attempt, step, time, task, name, value", 3,
     "attempt, step, NULL AS time, 'train' AS task, name, value"},
    {"all_loss", "loss_curve", "step, loss, learning_rate, grad_norm", 0, NULL},
    {"all_eval", "valid_eval", "attempt, time, step, task, name, value, settings", 4,
     "attempt, time, step, task, name, value, NULL AS settings"},
    {"all_eval_latest", "eval_latest", "task, step, name, value, time, settings", 4,
     "task, step, name, value, time, NULL AS settings"},
    {"all_event", "event", "attempt, time, step, kind, text", 0, NULL},
};

static int failed(sqlite3 *db, const char *path, struct sy_error *err)
{
    return syi_error(err, SY_EIO, "metrics: %s: %s", path, sqlite3_errmsg(db));
}

static int attach(sqlite3 *db, const char *path, int number, struct sy_error *err)
{
    char sql[64];
    sqlite3_stmt *statement = NULL;
    int code;

    snprintf(sql, sizeof(sql), "ATTACH ?1 AS run_%d", number);
    code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK) code = sqlite3_bind_text(statement, 1, path, -1, SQLITE_STATIC);
    if (code == SQLITE_OK) code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SY_OK : failed(db, path, err);
}

/* The folder that a database is in, without the folders before it. */
static int name_of(const char *path, char *name, size_t bytes, struct sy_error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? syi_format("%.*s/", (int)(slash - path), path) : syi_format(".");
    char *full = folder ? realpath(folder, NULL) : NULL;
    const char *last = full ? strrchr(full, '/') : NULL;
    int no_memory = !folder || (!full && errno == ENOMEM);

    snprintf(name, bytes, "%s", last && last[1] ? last + 1 : path);
    free(full);
    syi_free(folder);
    return no_memory ? syi_error(err, SY_ENOMEM, "metrics: out of memory") : SY_OK;
}

static int schema_version(sqlite3 *db, const char *schema, int *version, struct sy_error *err)
{
    char sql[64];
    sqlite3_stmt *query = NULL;
    int there;

    snprintf(sql, sizeof(sql), "PRAGMA %s.user_version", schema);
    there = sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK && sqlite3_step(query) == SQLITE_ROW;
    if (there) *version = sqlite3_column_int(query, 0);
    int status = there ? SY_OK : failed(db, schema, err);
    sqlite3_finalize(query);
    return status;
}

enum { NAME_BYTES = 1024, SCHEMA_BYTES = 24 };

struct run {
    char name[NAME_BYTES];
    int is_shared; /* 1: another run's folder has the same name; then it is the folder as it was given */
    char schema[SCHEMA_BYTES];
    int version;
};

static int make_view(sqlite3 *db, const struct view *view, const struct run *run, int n, struct sy_error *err)
{
    struct syi_text sql = {0};
    int status;

    syi_text_printf(&sql, "CREATE TEMP VIEW %s AS", view->name);
    for (int i = 0; i < n; i++) {
        char *quoted = sqlite3_mprintf("%Q", run[i].name);
        if (!quoted) sql.status = SY_ENOMEM;
        const char *columns = run[i].version < view->since ? view->columns_before : view->columns;
        syi_text_printf(&sql, "%s SELECT %s AS run, %s FROM %s.%s", i ? " UNION ALL" : "",
                        quoted ? quoted : "''", columns, run[i].schema, view->from);
        sqlite3_free(quoted);
    }
    status = syi_text_status(&sql, err);
    if (!status && sqlite3_exec(db, sql.data, NULL, NULL, NULL) != SQLITE_OK)
        status = failed(db, view->name, err);
    syi_text_free(&sql);
    return status;
}

static int name_runs(struct run *run, const char *path, const char *const *others, int n,
                     struct sy_error *err)
{
    for (int i = 0; i <= n; i++) {
        int status = name_of(i ? others[i - 1] : path, run[i].name, NAME_BYTES, err);
        if (status) return status;
    }
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= n; j++)
            if (i != j && !strcmp(run[i].name, run[j].name)) run[i].is_shared = 1;
    for (int i = 0; i <= n; i++) {
        const char *file = i ? others[i - 1] : path, *slash = strrchr(file, '/');
        if (run[i].is_shared && slash) snprintf(run[i].name, NAME_BYTES, "%.*s", (int)(slash - file), file);
    }
    return SY_OK;
}

/* A run that two names lead to would be counted twice. What is not there is attach's error. */
static int refuse_twice(const char *path, const char *const *others, int n, struct sy_error *err)
{
    struct stat a, b;
    for (int i = 0; i < n; i++)
        for (int j = -1; j < i; j++) {
            const char *earlier = j < 0 ? path : others[j];
            if (stat(earlier, &a) || stat(others[i], &b) || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
                continue;
            return syi_error(err, SY_EINVAL, "metrics: %s and %s are one and the same run: name it once",
                             earlier, others[i]);
        }
    return SY_OK;
}

int syi_runs_attach(sqlite3 *db, const char *path, const char *const *others, int n, struct sy_error *err)
{
    struct run *run = syi_alloc((size_t)(n + 1) * sizeof(*run), err);
    int status = run ? SY_OK : SY_ENOMEM, before = sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 1 << 20);
    int most = sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, -1);

    if (!status && n > most)
        status = syi_error(err, SY_EINVAL, "metrics: %d runs; this SQLite can compare %d at once", n + 1,
                           most + 1);
    if (!status) status = refuse_twice(path, others, n, err);
    if (!status) status = name_runs(run, path, others, n, err);
    for (int i = 0; i <= n && !status; i++) {
        if (i) status = attach(db, others[i - 1], i + 1, err);
        if (!status) snprintf(run[i].schema, SCHEMA_BYTES, i ? "run_%d" : "main", i + 1);
        if (!status) status = schema_version(db, run[i].schema, &run[i].version, err);
    }
    for (size_t i = 0; i < SYI_COUNT(views) && !status; i++)
        status = make_view(db, &views[i], run, n + 1, err);
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, before);
    syi_free(run);
    return status;
}
