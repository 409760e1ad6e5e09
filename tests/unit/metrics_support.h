/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the metrics database: opening a store, asking a database. */
#ifndef METRICS_SUPPORT_H
#define METRICS_SUPPORT_H

#include <sqlite3.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data_support.h"
#include "metrics/expert_counts.h"
#include "metrics/store.h"

static inline struct syi_metric_sink open_sink(const char *path, int64_t start_step, int append)
{
    struct syi_store_options options = {
        .start_step = start_step, .append = append, .config = "train.seed = 7\n"};
    struct syi_metric_sink sink;
    struct sy_error err = {0};

    cr_assert(syi_store_open(path, &options, &sink, &err) == SY_OK, "%s", err.text);
    return sink;
}

static inline sqlite3 *open_reader(const char *path)
{
    sqlite3 *db;
    cr_assert(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
    cr_assert(syi_expert_counts_register(db) == SQLITE_OK);
    return db;
}

/* The first column of the first row; -1e9 for NULL. */
static inline double ask(const char *path, const char *sql)
{
    sqlite3 *db = open_reader(path);
    sqlite3_stmt *query;
    double value;

    cr_assert(sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    cr_assert(sqlite3_step(query) == SQLITE_ROW, "%s: %s", sql, sqlite3_errmsg(db));
    value = sqlite3_column_type(query, 0) == SQLITE_NULL ? -1e9 : sqlite3_column_double(query, 0);
    sqlite3_finalize(query);
    sqlite3_close(db);
    return value;
}

static inline void change(const char *path, const char *sql)
{
    sqlite3 *db = open_reader(path);
    cr_assert(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

static inline void end_transaction(sqlite3 *db, struct timespec moment)
{
    nanosleep(&moment, NULL);
    cr_assert(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

/* Leaves the journal of a transaction that was killed. */
static inline void write_and_die(const char *path)
{
    static const char sql[] =
        "PRAGMA cache_size = 1; BEGIN; UPDATE metric SET value = 2; INSERT INTO event (attempt, time, step, kind, "
        "text) SELECT 1, '', 1, 'note', hex(zeroblob(9000)) FROM metric, metric LIMIT 20";
    int status;
    pid_t child = fork();

    if (child == 0) _exit(sqlite3_exec(open_reader(path), sql, NULL, NULL, NULL));
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
}

#endif
