/* SPDX-License-Identifier: Apache-2.0 */
/* The store: what is put in comes out, a resume hides what it replaces, the queue neither drops nor breaks
 * under pressure, nobody waits for long for a locked database, failures reach the producer. */
#include "config.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data_support.h"
#include "metrics/queue.h"
#include "metrics/schema_sql.h"
#include "metrics/store.h"

static struct syi_metric_sink open_sink(const char *path, int64_t start_step, int append)
{
    struct syi_store_options options = {
        .start_step = start_step, .append = append, .config = "train.seed = 7\n"};
    struct syi_metric_sink sink;
    struct sy_error err = {0};

    cr_assert(syi_store_open(path, &options, &sink, &err) == SY_OK, "%s", err.text);
    return sink;
}

static sqlite3 *open_reader(const char *path)
{
    sqlite3 *db;
    cr_assert(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK);
    return db;
}

/* The first column of the first row; -1e9 for NULL. */
static double ask(const char *path, const char *sql)
{
    sqlite3 *db = open_reader(path);
    sqlite3_stmt *query;
    double value;

    cr_assert(sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    cr_assert(sqlite3_step(query) == SQLITE_ROW, "%s", sql);
    value = sqlite3_column_type(query, 0) == SQLITE_NULL ? -1e9 : sqlite3_column_double(query, 0);
    sqlite3_finalize(query);
    sqlite3_close(db);
    return value;
}

Test(metrics_store, everything_comes_out)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    cr_assert(sink.event(sink.arg, 0, "start", "fresh, it's \"quoted\"; \xc3\xa9", NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 1, "loss", 5.25, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 1, "learning_rate", 1e-3, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 2, "loss", 0.0 / 0.0, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 3, "loss", 9, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 3, "loss", 4, NULL) == SY_OK); /* replaces */
    cr_assert(sink.routing(sink.arg, 3, "encoder/layers_1", 0, 30, 2, NULL) == SY_OK);
    cr_assert(sink.routing(sink.arg, 3, "encoder/layers_1", 1, 10, 0, NULL) == SY_OK);
    cr_assert(sink.eval(sink.arg, 3, "dev", "wer", 0.5, NULL) == SY_OK);
    cr_assert(sink.eval(sink.arg, 3, "dev", "wer", 0.25, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 60, NULL) == SY_OK);
    /* flushed means on disk: another connection sees it while the store is open */
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 4);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 1") == 5.25);
    cr_assert(ask(path, "SELECT learning_rate FROM loss_curve WHERE step = 1") == 1e-3);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 2") == -1e9);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 3") == 4);
    cr_assert(ask(path, "SELECT share FROM expert_load WHERE step = 3 AND expert = 0") == 0.75);
    cr_assert(ask(path, "SELECT value FROM eval_latest WHERE task = 'dev' AND name = 'wer'") == 0.25);
    cr_assert(ask(path, "SELECT count(*) FROM event WHERE text LIKE 'fresh, it''s \"quoted\"%' AND "
                        "abs(strftime('%s', 'now') - strftime('%s', time)) < 60") == 1);
    cr_assert(ask(path, "SELECT count(*) FROM run WHERE start_step = -1 AND config LIKE 'train.seed%'") == 1);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    remove_path(path);
}

Test(metrics_store, schema_numbers_and_journal)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    cr_assert(ask(path, "PRAGMA user_version") == SYI_STORE_VERSION);
    cr_assert(ask(path, "PRAGMA application_id") == SYI_STORE_APPLICATION);
    cr_assert(ask(path, "SELECT journal_mode = 'delete' FROM pragma_journal_mode") == 1);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    remove_path(path);
}

/* Steps 1 to 9, then on from 5 up to 7, then on from 5 again up to 6: what a later attempt replaced is kept,
 * but no view shows it, and what comes before is valid still. */
Test(metrics_store, resume_supersedes_later_steps)
{
    static const int64_t attempts[][2] = {{-1, 9}, {5, 7}, {5, 6}};
    const char *path = fresh_path("metrics.db");

    for (int i = 0; i < 3; i++) {
        struct syi_metric_sink sink = open_sink(path, attempts[i][0], 0);
        for (int64_t step = attempts[i][0] < 0 ? 1 : attempts[i][0] + 1; step <= attempts[i][1]; step++) {
            cr_assert(sink.metric(sink.arg, step, "loss", (double)(100 * i + step), NULL) == SY_OK);
            cr_assert(sink.routing(sink.arg, step, "x", 0, 100 * i + step, 0, NULL) == SY_OK);
        }
        cr_assert(sink.eval(sink.arg, attempts[i][1], "dev", "wer", i, NULL) == SY_OK);
        cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    }
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 9 + 2 + 1);
    cr_assert(ask(path, "SELECT count(*) FROM loss_curve") == 6);
    cr_assert(ask(path, "SELECT max(step) FROM loss_curve") == 6);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 5") == 5);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 6") == 206);
    cr_assert(ask(path, "SELECT tokens FROM expert_load WHERE step = 6") == 206);
    cr_assert(ask(path, "SELECT value FROM eval_latest") == 2);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 3);
    remove_path(path);
}

Test(metrics_store, append_belongs_to_the_last_attempt)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    cr_assert(sink.metric(sink.arg, 9, "loss", 1, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    sink = open_sink(path, 4, 1);
    cr_assert(sink.eval(sink.arg, 4, "test", "wer", 0.5, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 1);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 9") == 1);
    cr_assert(ask(path, "SELECT value FROM eval_latest") == 0.5);
    remove_path(path);
}

/* Far more than the queue holds, with texts of many lengths, so that records wrap in every way. */
Test(metrics_store, nothing_is_dropped_under_pressure)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    int64_t bytes = 0;
    char text[3001];

    memset(text, 'x', sizeof(text));
    for (int i = 0; i < 6000; i++) {
        int length = i * 37 % 3000;
        text[length] = 0;
        cr_assert(sink.event(sink.arg, i, "note", text, NULL) == SY_OK);
        text[length] = 'x';
        bytes += length;
    }
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM event") == 6000);
    cr_assert(ask(path, "SELECT count(*) FROM event WHERE rowid = step + 1") == 6000);
    cr_assert(ask(path, "SELECT sum(length(text)) FROM event") == (double)bytes);
    remove_path(path);
}

Test(metrics_store, too_long_a_text_is_refused)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    char *text = calloc(1, SYI_RECORD_MAX + 1);
    struct sy_error err = {0};

    memset(text, 'x', SYI_RECORD_MAX);
    cr_assert(sink.event(sink.arg, 1, "note", text, &err) == SY_EINVAL && strstr(err.text, "at most"));
    text[SYI_RECORD_MAX - sizeof(struct syi_record) - 16] = 0;
    cr_assert(sink.event(sink.arg, 1, "note", text, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM event") == 1);
    free(text);
    remove_path(path);
}

/* A reader in a transaction keeps the writer waiting for a while, but takes nothing from it. */
Test(metrics_store, waits_for_a_reader)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    struct timespec moment = {.tv_nsec = 300000000};
    sqlite3 *db = open_reader(path);

    cr_assert(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM metric", NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 0; i < 100; i++) cr_assert(sink.metric(sink.arg, i, "loss", i, NULL) == SY_OK);
    nanosleep(&moment, NULL);
    cr_assert(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 100);
    remove_path(path);
}

/* A reader that never lets go: flush and close come back in time, close says what is missing, and what was on
 * disk before is there. */
Test(metrics_store, a_reader_that_stays_costs_seconds)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    sqlite3 *db = open_reader(path);
    struct sy_error err = {0};
    double begin;

    cr_assert(sink.metric(sink.arg, 1, "loss", 1, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 60, NULL) == SY_OK);
    cr_assert(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM metric", NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 2; i <= 4; i++) cr_assert(sink.metric(sink.arg, i, "loss", i, NULL) == SY_OK);
    begin = syi_seconds();
    cr_assert(sink.flush(sink.arg, 0.5, NULL) == SY_EBUSY);
    cr_assert(sink.flush(sink.arg, 60, NULL) == SY_EBUSY); /* in vain once: not waited for again */
    cr_assert(syi_seconds() - begin < 3);
    begin = syi_seconds();
    cr_assert(sink.close(sink.arg, &err) == SY_EBUSY);
    cr_assert(syi_seconds() - begin < 10);
    cr_assert(strstr(err.text, "3 rows are not in it") && strstr(err.text, path), "%s", err.text);
    sqlite3_close(db);
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 1);
    remove_path(path);
}

/* Others read between two tries of the writer. */
Test(metrics_store, a_blocked_writer_lets_others_read)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    sqlite3 *db = open_reader(path), *other = open_reader(path);

    cr_assert(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM metric", NULL, NULL, NULL) == SQLITE_OK);
    cr_assert(sink.metric(sink.arg, 1, "loss", 1, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 0.2, NULL) == SY_EBUSY);
    sqlite3_busy_timeout(other, 5000);
    cr_assert(sqlite3_exec(other, "SELECT count(*) FROM metric", NULL, NULL, NULL) == SQLITE_OK, "%s",
              sqlite3_errmsg(other));
    sqlite3_close(other);
    sqlite3_close(db);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 1);
    remove_path(path);
}

/* A full queue is waited for once, then records are refused at once and counted; when the writer gets on
 * there is room again. */
Test(metrics_store, a_full_queue_refuses_in_time)
{
    struct sy_error none = {.code = SY_OK}, err = {0};
    struct syi_record record = {.kind = SYI_RECORD_EVENT};
    struct syi_queue queue;
    uint64_t from, to, n = 0;
    double begin;

    cr_assert(syi_queue_create(&queue, 0, 0.3, NULL) == SY_OK);
    begin = syi_seconds();
    while (syi_queue_put(&queue, record, "note", "text", &err) == SY_OK) n++;
    cr_assert(err.code == SY_EBUSY && n == queue.n_put && queue.n_refused == 1, "%s", err.text);
    cr_assert(syi_seconds() - begin >= 0.3);
    begin = syi_seconds();
    for (int i = 0; i < 20; i++) cr_assert(syi_queue_put(&queue, record, "note", "text", NULL) == SY_EBUSY);
    cr_assert(syi_seconds() - begin < 2 && queue.n_refused == 21);
    cr_assert(syi_queue_wait(&queue, &from, &to));
    syi_queue_release(&queue, to, &none);
    cr_assert(syi_queue_put(&queue, record, "note", "text", NULL) == SY_OK);
    syi_queue_free(&queue);
}

/* The file is gone: the writer says so instead of writing where nobody will look. */
Test(metrics_store, a_removed_database_is_noticed)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    struct sy_error err = {0};

    cr_assert(remove(path) == 0);
    cr_assert(sink.metric(sink.arg, 1, "loss", 1, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 60, &err) == SY_ENOENT && strstr(err.text, "was removed or replaced"),
              "%s", err.text);
    cr_assert(sink.close(sink.arg, NULL) == SY_ENOENT);
    remove_path(path);
}

/* The table is gone: the writer fails, the next calls say so, none hangs, close gives the reason too. */
Test(metrics_store, failure_of_the_writer_reaches_the_producer)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    sqlite3 *db = open_reader(path);
    struct sy_error err = {0}, last = {0};

    cr_assert(sqlite3_exec(db, "DROP TABLE metric", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    cr_assert(sink.metric(sink.arg, 1, "loss", 1, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 60, &err) == SY_EIO && strstr(err.text, "metric"), "%s", err.text);
    for (int i = 0; i < 3; i++) cr_assert(sink.event(sink.arg, 1, "note", "x", NULL) == SY_EIO);
    cr_assert(sink.close(sink.arg, &last) == SY_EIO);
    cr_assert(strstr(last.text, err.text) == last.text && strstr(last.text, "; 4 rows are not in it"), "%s",
              last.text);
    remove_path(path);
}

Test(metrics_store, refuses_what_is_not_its_own)
{
    struct syi_store_options options = {.start_step = -1};
    static const char *const foreign[] = {"CREATE TABLE mine (x)",
                                          "CREATE TABLE mine (x); PRAGMA application_id = 1398361412; "
                                          "PRAGMA user_version = 99"};
    static const char *const words[] = {"another program's", "version 99"};
    struct syi_metric_sink sink;
    struct sy_error err = {0};
    const char *path;

    for (size_t i = 0; i < SYI_COUNT(foreign); i++) {
        struct sy_error reason = {0};
        path = write_fresh("metrics.db", "", 0);
        sqlite3 *db = open_reader(path);
        cr_assert(sqlite3_exec(db, foreign[i], NULL, NULL, NULL) == SQLITE_OK);
        sqlite3_close(db);
        cr_assert(syi_store_open(path, &options, &sink, &reason) == SY_EFORMAT);
        cr_assert(strstr(reason.text, words[i]), "%s", reason.text);
        remove_path(path);
    }
    cr_assert(syi_store_open("/nonexistent/metrics.db", &options, &sink, &err) == SY_EIO);
    cr_assert(strstr(err.text, "/nonexistent/metrics.db"));
}

/* A damaged file is kept under another name, beside an earlier one, and a new database begins; an evaluation
 * moves nothing. */
Test(metrics_store, a_damaged_file_is_moved_aside)
{
    static const char text[] =
        "this is some text, not a database, and it is longer than a header is: one hundred "
        "bytes at the least";
    const char *path = write_fresh("metrics.db", text, sizeof(text));
    struct syi_store_options evaluation = {.start_step = 4, .append = 1};
    struct syi_metric_sink sink;
    struct sy_error err = {0};
    struct caught_log log = {0};
    char aside[4300];
    FILE *file;

    sy_log_set(catch_line, &log);
    cr_assert(syi_store_open(path, &evaluation, &sink, &err) == SY_EFORMAT && strstr(err.text, path), "%s",
              err.text);
    cr_assert(log.n == 0);
    for (int n = 1; n <= 2; n++) {
        sink = open_sink(path, -1, 0);
        cr_assert(sink.close(sink.arg, NULL) == SY_OK);
        snprintf(aside, sizeof(aside), "%s.corrupt-%d", path, n);
        cr_assert(log.n == n && strstr(log.last, aside), "%s", log.last);
        cr_assert(ask(path, "SELECT count(*) FROM run") == 1);
        file = fopen(path, "wb");
        cr_assert(file && fwrite(text, 1, sizeof(text), file) == sizeof(text));
        fclose(file);
    }
    for (int n = 1; n <= 2; n++) {
        char kept[sizeof(text)] = "";
        snprintf(aside, sizeof(aside), "%s.corrupt-%d", path, n);
        file = fopen(aside, "rb");
        cr_assert(file && fread(kept, 1, sizeof(kept), file) == sizeof(kept) && !strcmp(kept, text));
        fclose(file);
        remove(aside);
    }
    remove_path(path);
}

/* Writes and reports through the pipe each step whose row is flushed, until it is killed. */
static void write_until_killed(const char *path, int pipe)
{
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    for (int64_t step = 1;; step++) {
        if (sink.metric(sink.arg, step, "loss", 1, NULL) != SY_OK) _exit(1);
        if (step % 50 == 0 &&
            (sink.flush(sink.arg, 60, NULL) != SY_OK || write(pipe, &step, sizeof(step)) != sizeof(step)))
            _exit(1);
    }
}

/* Killed at any moment: what was flushed is there, and the database opens again. */
Test(metrics_store, survives_a_kill)
{
    const char *path = fresh_path("metrics.db");
    char sql[100];

    for (int round = 1; round <= 3; round++) {
        struct timespec moment = {.tv_nsec = 7000000 * round};
        int64_t flushed = 0;
        int ends[2];
        cr_assert(pipe(ends) == 0);
        pid_t child = fork();
        if (child == 0) write_until_killed(path, ends[1]);
        close(ends[1]);
        for (int i = 0; i < round; i++)
            cr_assert(read(ends[0], &flushed, sizeof(flushed)) == sizeof(flushed));
        nanosleep(&moment, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(ends[0], &flushed, sizeof(flushed)) == sizeof(flushed)) continue;
        close(ends[0]);
        snprintf(sql, sizeof(sql), "SELECT count(*) FROM metric WHERE attempt = %d AND step <= %d", round,
                 (int)flushed);
        cr_assert(flushed >= 50 * round && ask(path, sql) == (double)flushed, "round %d: %g rows of %d",
                  round, ask(path, sql), (int)flushed);
    }
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1);
    remove_path(path);
}
