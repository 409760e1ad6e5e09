/* SPDX-License-Identifier: Apache-2.0 */
/* The store: what is put in comes out, a resume hides what it replaces, the queue neither drops nor breaks
 * under pressure, nobody waits for long for a locked database, failures reach the producer. */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "metrics_support.h"
#include "metrics/queue.h"
#include "metrics/schema.h"

Test(metrics_store, everything_comes_out)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    const struct syi_sink_example example = {.task = "dev",
                                             .item = 7,
                                             .input = "in\tput",
                                             .target = "",
                                             .prediction = "\xc3\xa9",
                                             .score = 0.0 / 0.0};

    cr_assert(sink.event(sink.arg, 0, "start", "fresh, it's \"quoted\"; \xc3\xa9", NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 1, "loss", 5.25, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 1, "learning_rate", 1e-3, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 2, "loss", 0.0 / 0.0, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 3, "loss", 9, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 3, "loss", 4, NULL) == SY_OK); /* replaces */
    cr_assert(sink.routing(sink.arg, 3, "encoder/layers_1", 2, (int64_t[]){300, 100}, (int64_t[]){2, 0},
                           NULL) == SY_OK);
    cr_assert(sink.parameter(sink.arg, 3, "encoder/w", "weight_rms", 0.5, NULL) == SY_OK);
    cr_assert(sink.example(sink.arg, 3, &example, NULL) == SY_OK);
    cr_assert(sink.eval(sink.arg, 3, "dev", "wer", 0.5, "", NULL) == SY_OK);
    cr_assert(sink.eval(sink.arg, 3, "dev", "wer", 0.25, "", NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 60, NULL) == SY_OK);
    /* flushed means on disk: another connection sees it while the store is open */
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 4);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 1") == 5.25);
    cr_assert(ask(path, "SELECT learning_rate FROM loss_curve WHERE step = 1") == 1e-3);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 2") == -1e9);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 3") == 4);
    cr_assert(ask(path, "SELECT share FROM expert_load WHERE step = 3 AND expert = 0") == 0.75);
    cr_assert(ask(path, "SELECT value FROM eval_latest WHERE task = 'dev' AND name = 'wer'") == 0.25);
    cr_assert(
        ask(path,
            "SELECT value FROM valid_parameter WHERE parameter = 'encoder/w' AND name = 'weight_rms' AND "
            "step = 3") == 0.5);
    cr_assert(
        ask(path,
            "SELECT count(*) FROM valid_example WHERE task = 'dev' AND item = 7 AND input = 'in\tput' AND "
            "target = '' AND prediction = '\xc3\xa9' AND score IS NULL AND step = 3") == 1);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric WHERE task = 'train' AND "
                        "abs(julianday('now') - julianday(time)) * 86400 < 60") == 4);
    cr_assert(ask(path, "SELECT hex(tokens) || ' ' || hex(dropped) = 'AC0264 02' FROM routing") == 1);
    cr_assert(ask(path, "SELECT records FROM run") == 11);
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

    cr_assert(ask(path, "PRAGMA user_version") == SYI_SCHEMA_VERSION);
    cr_assert(ask(path, "PRAGMA application_id") == SYI_SCHEMA_APPLICATION);
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
            cr_assert(sink.routing(sink.arg, step, "x", 1, (int64_t[]){100 * i + step}, (int64_t[]){0},
                                   NULL) == SY_OK);
        }
        cr_assert(sink.eval(sink.arg, attempts[i][1], "dev", "wer", i, "", NULL) == SY_OK);
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
    cr_assert(sink.eval(sink.arg, 4, "test", "wer", 0.5, "", NULL) == SY_OK);
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

/* Cut at the end of a character, so that `switchyard metrics` can show it. */
Test(metrics_store, too_long_a_text_is_cut)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    enum { MOST = 256 << 10 };
    char *text = calloc(1, 2 * MOST);

    memset(text, 'x', 2 * MOST - 1);
    memcpy(text + MOST - 1, "\xe2\x82\xac", 3);
    cr_assert(sink.event(sink.arg, 1, "note", text, NULL) == SY_OK);
    text[MOST - 1] = 0;
    cr_assert(sink.event(sink.arg, 2, "note", text, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM event WHERE length(CAST(text AS BLOB)) = 262143") == 2);
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

/* Ends a reader's transaction after a second. */
static void *let_go(void *arg)
{
    end_transaction(arg, (struct timespec){.tv_sec = 1});
    return NULL;
}

static int put_note(struct syi_queue *queue, size_t bytes, struct sy_error *err)
{
    static const char text[1 << 17];
    const struct syi_part part[] = {{"note", 4}, {text, bytes}};
    return syi_queue_put(queue, (struct syi_queue_record){.kind = SYI_RECORD_EVENT}, part, 2, err);
}

/* A full queue whose writer cannot get on is waited for once, then records are refused at once and counted; when the
 * writer gets on there is room again. */
Test(metrics_store, a_full_queue_refuses_in_time)
{
    struct sy_error none = {.code = SY_OK}, err = {0};
    struct syi_queue queue;
    uint64_t from, to, n = 0;
    double begin;

    cr_assert(syi_queue_create(&queue, 64 << 10, 0.3, NULL) == SY_OK);
    cr_assert(put_note(&queue, 100, NULL) == SY_OK && syi_queue_wait(&queue, &from, &to));
    syi_queue_block(&queue);
    begin = syi_seconds();
    while (put_note(&queue, 1000, &err) == SY_OK) n++;
    cr_assert(err.code == SY_EBUSY && n + 1 == queue.n_put && queue.n_refused == 1, "%s", err.text);
    cr_assert(n > 50 && queue.put <= 64 << 10 && queue.n_waits == 1);
    cr_assert(syi_seconds() - begin >= 0.3 && queue.wait_seconds >= 0.3);
    begin = syi_seconds();
    for (int i = 0; i < 20; i++) cr_assert(put_note(&queue, 1000, NULL) == SY_EBUSY);
    cr_assert(syi_seconds() - begin < 2 && queue.n_refused == 21);
    cr_assert(syi_queue_wait(&queue, &from, &to));
    syi_queue_release(&queue, to, &none);
    cr_assert(put_note(&queue, 1000, NULL) == SY_OK);
    cr_assert(put_note(&queue, 1 << 17, NULL) == SY_EBUSY); /* more than the queue: only alone */
    syi_queue_free(&queue);
}

static void *release_slowly(void *arg)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    struct sy_error none = {.code = SY_OK};
    struct syi_queue *queue = arg;
    uint64_t from, to;

    while (syi_queue_wait(queue, &from, &to)) {
        to = from + syi_queue_read(queue, from)->bytes;
        nanosleep(&pause, NULL);
        syi_queue_release(queue, to, &none);
    }
    return NULL;
}

/* A writer that is slow but gets on is waited for, however long that takes in all; the waits are counted. It gathers no
 * rows meanwhile: a second for each would make half a minute. */
Test(metrics_store, a_slow_writer_is_waited_for)
{
    struct syi_queue queue;
    pthread_t writer;

    cr_assert(syi_queue_create(&queue, 64 << 10, 0.6, NULL) == SY_OK);
    cr_assert(pthread_create(&writer, NULL, release_slowly, &queue) == 0);
    for (int i = 0; i < 110; i++) cr_assert(put_note(&queue, 1000, NULL) == SY_OK);
    cr_assert(put_note(&queue, 1 << 17, NULL) == SY_OK);
    cr_assert(queue.n_refused == 0 && queue.n_waits > 40 && queue.wait_seconds > 0.5 &&
                  queue.wait_seconds < 20,
              "%g", queue.wait_seconds);
    syi_queue_close(&queue, 60);
    pthread_join(writer, NULL);
    cr_assert(queue.taken == queue.put && queue.n_put == 111);
    syi_queue_free(&queue);
}

/* Training waits while the queue is full, and no longer; the user hears of it once, the database keeps how often and how
 * long, and every row is there. */
Test(metrics_store, a_full_queue_is_told_once)
{
    const char *path = fresh_path("metrics.db");
    struct syi_store_options options = {.start_step = -1, .config = "", .queue_bytes = 64 << 10};
    struct timespec moment = {.tv_nsec = 100000000};
    struct syi_metric_sink sink;
    struct caught_log log = {0};
    pthread_t reader;

    sy_log_set(catch_line, &log);
    cr_assert(syi_store_open(path, &options, &sink, NULL) == SY_OK);
    for (int round = 0; round < 2; round++) {
        sqlite3 *db = open_reader(path);
        sqlite3_busy_timeout(db, 10000);
        cr_assert(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM metric", NULL, NULL, NULL) == SQLITE_OK);
        cr_assert(pthread_create(&reader, NULL, let_go, db) == 0);
        for (int i = 0; i < 2000; i++)
            cr_assert(sink.metric(sink.arg, 2000 * round + i, "loss", i, NULL) == SY_OK);
        pthread_join(reader, NULL);
        nanosleep(&moment, NULL);
    }
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(log.n == 1 && strstr(log.last, "training waited") && strstr(log.last, "0.0625 MiB"), "%d: %s",
              log.n, log.last);
    cr_assert(ask(path, "SELECT count(*) FROM metric") == 4000);
    cr_assert(ask(path, "SELECT count(*) FROM event WHERE kind = 'queue_full'") == 2);
    cr_assert(
        ask(path,
            "SELECT step = 3999 AND substr(text, 17) + 0 >= 2 AND text LIKE 'training waited % times%' FROM "
            "event WHERE kind = 'queue_full' ORDER BY rowid DESC LIMIT 1") == 1);
    remove_path(path);
}

/* A reader that stays until rows are refused: the writer's word of a wait keeps nobody from hearing of it, and once rows are
 * taken again an event says which are missing. A way back that is refused meanwhile comes before them: the rows that it takes
 * back are not those of the run. */
Test(metrics_store, lost_rows_are_an_event, .timeout = 60)
{
    const char *path = fresh_path("metrics.db");
    struct syi_store_options options = {.start_step = -1, .config = "", .queue_bytes = 64 << 10};
    struct syi_metric_sink sink;
    struct sy_error err = {0};
    char text[100];
    sqlite3 *db;
    int64_t step = 0, first;
    int refused = 1;

    cr_assert(syi_store_open(path, &options, &sink, NULL) == SY_OK);
    db = open_reader(path);
    cr_assert(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM metric", NULL, NULL, NULL) == SQLITE_OK);
    while (sink.metric(sink.arg, ++step, "loss", 1, NULL) == SY_OK)
        ;
    first = step;
    for (int i = 0; i < 9; i++, refused++)
        cr_assert(sink.metric(sink.arg, ++step, "loss", 1, NULL) == SY_EBUSY);
    cr_assert(sink.back(sink.arg, 9, NULL) == SY_EBUSY);
    cr_assert(sink.back(sink.arg, 5, NULL) == SY_EBUSY);
    sqlite3_close(db);
    for (; sink.metric(sink.arg, step + 1, "loss", 1, NULL) == SY_EBUSY; refused++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    cr_assert(sink.close(sink.arg, &err) == SY_EBUSY);
    snprintf(text, sizeof(text), "; %d rows are not in it", refused);
    cr_assert(strstr(err.text, text), "%s, not %d", err.text, refused);
    cr_assert(ask(path, "SELECT start_step FROM run WHERE attempt = 2") == 5);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 2);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 6);
    cr_assert(ask(path, "SELECT count(*) FROM event WHERE kind = 'rows_lost'") == 1);
    cr_assert(ask(path, "SELECT substr(text, 1, instr(text, ' ')) + 0 FROM event WHERE kind = 'rows_lost'") >=
              10);
    cr_assert(
        ask(path, "SELECT substr(text, instr(text, 'steps ') + 6) + 0 FROM event WHERE kind = 'rows_lost'") ==
        (double)first);
    cr_assert(ask(path, "SELECT count(*) FROM metric") == (double)first);
    remove_path(path);
}

/* A disk that is full for a while: the writer tries again, and no row is missing. */
Test(metrics_store, a_full_disk_is_waited_for)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    struct rlimit before, full = {.rlim_cur = 8192};
    struct caught_log log = {0};
    static char text[9000];

    memset(text, 'x', sizeof(text) - 1);
    sy_log_set(catch_line, &log);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(sink.flush(sink.arg, 60, NULL) == SY_OK);
    cr_assert(getrlimit(RLIMIT_FSIZE, &before) == 0);
    full.rlim_max = before.rlim_max;
    cr_assert(setrlimit(RLIMIT_FSIZE, &full) == 0);
    for (int i = 0; i < 20; i++) cr_assert(sink.event(sink.arg, i, "note", text, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 1.5, NULL) == SY_EBUSY);
    cr_assert(setrlimit(RLIMIT_FSIZE, &before) == 0);
    for (int i = 20; i < 30; i++) cr_assert(sink.event(sink.arg, i, "note", text, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(log.n == 1 && strstr(log.last, "its rows wait in memory"), "%d: %s", log.n, log.last);
    cr_assert(ask(path, "SELECT count(*) + 100 * count(DISTINCT step) FROM event") == 3030);
    remove_path(path);
}

static sqlite3_vfs *real_vfs;
static atomic_int is_read_only, n_refused;

static int open_unless_read_only(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *got)
{
    file->pMethods = NULL;
    if (is_read_only && (flags & SQLITE_OPEN_MAIN_JOURNAL)) {
        n_refused++;
        return SQLITE_READONLY_DIRECTORY;
    }
    return real_vfs->xOpen(vfs, name, file, flags, got);
}

/* The default VFS with one function of a test's own, from now on. */
static sqlite3_vfs *copy_vfs(void)
{
    static sqlite3_vfs vfs;

    sqlite3_initialize();
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.zName = "failing";
    sqlite3_vfs_register(&vfs, 1);
    return &vfs;
}

/* A folder that may not be written for a while: no row is missing afterwards. */
Test(metrics_store, a_read_only_folder_is_waited_for)
{
    const char *path = fresh_path("metrics.db");
    const struct timespec moment = {.tv_nsec = 10000000};
    sqlite3_vfs *vfs = copy_vfs();
    struct syi_metric_sink sink;
    struct caught_log log = {0};

    sy_log_set(catch_line, &log);
    vfs->xOpen = open_unless_read_only;
    sink = open_sink(path, -1, 0);
    is_read_only = 1;
    for (int i = 0; i < 20; i++) cr_assert(sink.event(sink.arg, i, "note", "text", NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 0.2, NULL) == SY_EBUSY);
    while (n_refused < 3) nanosleep(&moment, NULL); /* the user hears of the second */
    is_read_only = 0;
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(log.n == 1 && strstr(log.last, "is the run directory writable?; its rows wait in memory"),
              "%d: %s", log.n, log.last);
    sqlite3_vfs_unregister(vfs);
    cr_assert(ask(path, "SELECT count(*) + 100 * count(DISTINCT step) FROM event") == 2020);
    remove_path(path);
}

static int n_deleted;

/* The journal is gone, which makes its transaction count; then the folder cannot be synced. Every third time. */
static int delete_and_fail(sqlite3_vfs *vfs, const char *name, int sync)
{
    int code = real_vfs->xDelete(vfs, name, sync);
    return code == SQLITE_OK && strstr(name, "-journal") && ++n_deleted % 3 == 0 ? SQLITE_IOERR_DIR_FSYNC
                                                                                 : code;
}

/* A transaction whose end fails may be on disk: it is not written twice. */
Test(metrics_store, no_row_twice)
{
    const char *path = fresh_path("metrics.db");
    sqlite3_vfs *vfs = copy_vfs();
    struct syi_metric_sink sink;

    vfs->xDelete = delete_and_fail;
    sink = open_sink(path, -1, 0);
    for (int i = 0; i < 12; i++) {
        cr_assert(sink.event(sink.arg, i, "note", "text", NULL) == SY_OK);
        cr_assert(sink.eval(sink.arg, i, "dev", "wer", i, "", NULL) == SY_OK);
        if (i == 6) cr_assert(sink.back(sink.arg, 4, NULL) == SY_OK);
        cr_assert(sink.flush(sink.arg, 60, NULL) == SY_OK);
    }
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    sqlite3_vfs_unregister(vfs);
    cr_assert(n_deleted >= 12, "%d transactions", n_deleted);
    cr_assert(ask(path, "SELECT count(*) FROM event") == 12);
    cr_assert(ask(path, "SELECT count(*) FROM eval") == 12);
    cr_assert(ask(path, "SELECT records FROM run") == 25);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 2);
    cr_assert(ask(path, "SELECT min(step) FROM event WHERE attempt = 2") == 7);
    remove_path(path);
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
    static const char *const words[] = {"another program's",
                                        "version 99, this program writes 7; take the newer"};
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

/* A row each millisecond, without a flush; the parent hears when each was put. */
static void write_slowly(const char *path, int pipe)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    for (int64_t step = 1;; step++) {
        double put = syi_seconds();
        if (sink.metric(sink.arg, step, "loss", put, NULL) != SY_OK ||
            write(pipe, &put, sizeof(put)) != sizeof(put))
            _exit(1);
        nanosleep(&pause, NULL);
    }
}

/* Rows wait for others for a second, and a kill takes no more than these (here with as much again for a busy machine). */
Test(metrics_store, a_kill_takes_a_second_at_most)
{
    const char *path = fresh_path("metrics.db");
    double first = 0, last = 0, put;
    int ends[2];

    cr_assert(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) write_slowly(path, ends[1]);
    close(ends[1]);
    while (read(ends[0], &put, sizeof(put)) == sizeof(put)) {
        if (first == 0) first = put;
        if (put - first > 4 && last == 0) kill(child, SIGKILL);
        if (put - first > 4) last = put;
    }
    waitpid(child, NULL, 0);
    close(ends[0]);
    cr_assert(last > 0);
    cr_assert(ask(path, "SELECT max(value) FROM metric") >= last - 2.5, "%g s are lost",
              last - ask(path, "SELECT max(value) FROM metric"));
    cr_assert(ask(path, "SELECT count(*) - max(step) FROM metric") == 0);
    remove_path(path);
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
