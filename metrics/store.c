/* SPDX-License-Identifier: Apache-2.0 */
/* Writes metric records into SQLite. One thread owns the connection after opening; records come through
 * queue.c and are written in transactions of about a second. The journal is SQLite's rollback journal, which
 * works on network filesystems too. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "metrics/queue.h"
#include "metrics/schema_sql.h"
#include "metrics/store.h"

/* A reader that holds the database (a shell piped into a pager does) makes the writer try again and again, with
 * pauses in which others may read. The training thread waits for it only when the queue is full. */
enum {
    QUEUE_BYTES = 4 << 20,
    OPEN_MILLISECONDS = 10000, /* a locked database is waited for at the start */
    TRY_MILLISECONDS = 100,    /* likewise in one try of the writer */
    PAUSE_MILLISECONDS = 400,  /* between two tries */
    WARN_TRIES = 20,           /* tries after which the user hears of it */
    PUT_SECONDS = 5,           /* a full queue is waited for */
    CLOSE_SECONDS = 5,         /* the writer may try, at the end */
    TIME_BYTES = 32
};

struct store {
    char *path;
    sqlite3 *db;
    sqlite3_stmt *insert[4]; /* by enum syi_record_kind */
    int64_t attempt;
    struct syi_queue queue;
    struct syi_record *scratch; /* (SYI_RECORD_MAX bytes) the record being written */
    uint64_t n_written;         /* records on disk; the writer's while it runs */
    int warned;                 /* the user heard of a lock; the writer's */
    pthread_t writer;
};

static const char *const insert_sql[] = {
    [SYI_RECORD_METRIC] = "INSERT OR REPLACE INTO metric VALUES (?1, ?2, ?3, ?4)",
    [SYI_RECORD_ROUTING] = "INSERT OR REPLACE INTO routing VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [SYI_RECORD_EVENT] = "INSERT INTO event (attempt, step, kind, text, time) VALUES (?1, ?2, ?3, ?4, ?5)",
    [SYI_RECORD_EVAL] =
        "INSERT INTO eval (attempt, step, task, name, value, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
};

/* A file that was removed or renamed while it is open is read-only to SQLite, which would say no more. */
static int sql_error(const struct store *store, const char *doing, struct sy_error *err)
{
    int code = sqlite3_errcode(store->db) & 0xff;

    if (sqlite3_extended_errcode(store->db) == SQLITE_READONLY_DBMOVED)
        return syi_error(err, SY_ENOENT,
                         "metrics: %s was removed or replaced by another file while it was open",
                         store->path);
    const char *hint = code == SQLITE_BUSY || code == SQLITE_LOCKED ? "; another program keeps it locked"
                       : code == SQLITE_FULL                        ? "; free some space"
                       : code == SQLITE_READONLY                    ? "; is the run directory writable?"
                                                                    : "";
    int status = code == SQLITE_BUSY || code == SQLITE_LOCKED      ? SY_EBUSY
                 : code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? SY_EFORMAT
                                                                   : SY_EIO;

    return syi_error(err, status, "metrics: cannot %s %s: %s%s", doing, store->path,
                     sqlite3_errmsg(store->db), hint);
}

static int execute(const struct store *store, const char *sql, const char *doing, struct sy_error *err)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK ? SY_OK : sql_error(store, doing, err);
}

/* ---- writing, in the writer thread ---- */

static void time_text(char text[TIME_BYTES], int64_t milliseconds)
{
    time_t seconds = (time_t)(milliseconds / 1000);
    struct tm utc;
    size_t n;

    gmtime_r(&seconds, &utc);
    n = strftime(text, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, TIME_BYTES - n, ".%03dZ", (int)(milliseconds % 1000));
}

static int insert_record(const struct store *store, const struct syi_record *record, struct sy_error *err)
{
    sqlite3_stmt *insert = store->insert[record->kind];
    const char *first = (const char *)(record + 1), *second = first + record->first_bytes;
    char time[TIME_BYTES];
    int done;

    time_text(time, record->time);
    sqlite3_bind_int64(insert, 1, store->attempt);
    sqlite3_bind_int64(insert, 2, record->step);
    sqlite3_bind_text(insert, 3, first, (int)record->first_bytes - 1, SQLITE_STATIC);
    switch ((enum syi_record_kind)record->kind) {
    case SYI_RECORD_METRIC: sqlite3_bind_double(insert, 4, record->value); break;
    case SYI_RECORD_ROUTING:
        sqlite3_bind_int(insert, 4, record->expert);
        sqlite3_bind_int64(insert, 5, record->tokens);
        sqlite3_bind_int64(insert, 6, record->dropped);
        break;
    case SYI_RECORD_EVENT:
        sqlite3_bind_text(insert, 4, second, (int)record->second_bytes - 1, SQLITE_STATIC);
        sqlite3_bind_text(insert, 5, time, -1, SQLITE_STATIC);
        break;
    case SYI_RECORD_EVAL:
        sqlite3_bind_text(insert, 4, second, (int)record->second_bytes - 1, SQLITE_STATIC);
        sqlite3_bind_double(insert, 5, record->value);
        sqlite3_bind_text(insert, 6, time, -1, SQLITE_STATIC);
        break;
    }
    done = sqlite3_step(insert) == SQLITE_DONE ? SY_OK : sql_error(store, "write", err);
    sqlite3_reset(insert);
    return done;
}

static int write_records(struct store *store, uint64_t from, uint64_t to, struct sy_error *err)
{
    int status = execute(store, "BEGIN EXCLUSIVE", "lock", err);
    uint64_t n = 0;

    if (status) return status;
    for (; from < to && status == SY_OK; n++) {
        from = syi_queue_read(&store->queue, from, store->scratch);
        status = insert_record(store, store->scratch, err);
    }
    if (status == SY_OK) status = execute(store, "COMMIT", "write", err);
    if (status)
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    else
        store->n_written += n;
    return status;
}

/* The same again while a reader keeps the database locked; the records are still in the queue. */
static void write_patiently(struct store *store, uint64_t from, uint64_t to, struct sy_error *failure)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MILLISECONDS * 1000000L};

    for (int try = 1;; try++) {
        struct sy_error reason = {.code = SY_OK};
        int status = write_records(store, from, to, &reason);
        if (status != SY_EBUSY || syi_queue_is_over(&store->queue)) {
            *failure = reason;
            return;
        }
        if (try == WARN_TRIES && !store->warned++)
            syi_log(SY_LOG_WARN, "metrics: another program keeps %s locked; its rows wait in memory",
                    store->path);
        nanosleep(&pause, NULL);
    }
}

static void *run_writer(void *arg)
{
    struct store *store = arg;
    struct sy_error failure = {.code = SY_OK};
    uint64_t from, to;

    while (syi_queue_wait(&store->queue, &from, &to)) {
        if (failure.code == SY_OK) write_patiently(store, from, to, &failure);
        syi_queue_release(&store->queue, to, &failure);
    }
    return NULL;
}

/* ---- the sink, in the training thread ---- */

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int put_metric(void *arg, int64_t step, const char *name, double value, struct sy_error *err)
{
    struct store *store = arg;
    return syi_queue_put(&store->queue,
                         (struct syi_record){.kind = SYI_RECORD_METRIC, .step = step, .value = value}, name,
                         "", err);
}

static int put_routing(void *arg, int64_t step, const char *layer, int expert, int64_t tokens,
                       int64_t dropped, struct sy_error *err)
{
    struct store *store = arg;
    struct syi_record record = {
        .kind = SYI_RECORD_ROUTING, .step = step, .expert = expert, .tokens = tokens, .dropped = dropped};
    return syi_queue_put(&store->queue, record, layer, "", err);
}

static int put_event(void *arg, int64_t step, const char *kind, const char *text, struct sy_error *err)
{
    struct store *store = arg;
    return syi_queue_put(&store->queue,
                         (struct syi_record){.kind = SYI_RECORD_EVENT, .step = step, .time = now()}, kind,
                         text, err);
}

static int put_eval(void *arg, int64_t step, const char *task, const char *name, double value,
                    struct sy_error *err)
{
    struct store *store = arg;
    struct syi_record record = {.kind = SYI_RECORD_EVAL, .step = step, .time = now(), .value = value};
    return syi_queue_put(&store->queue, record, task, name, err);
}

static int flush(void *arg, double seconds, struct sy_error *err)
{
    struct store *store = arg;
    return syi_queue_flush(&store->queue, seconds, err);
}

static void disconnect(struct store *store)
{
    for (size_t i = 0; i < SYI_COUNT(store->insert); i++) {
        sqlite3_finalize(store->insert[i]);
        store->insert[i] = NULL;
    }
    sqlite3_close(store->db);
    store->db = NULL;
}

static void free_store(struct store *store)
{
    disconnect(store);
    syi_queue_free(&store->queue);
    syi_free(store->scratch);
    syi_free(store->path);
    syi_free(store);
}

/* Rows are missing where the writer failed, and where a full queue refused them. */
static int close_store(void *arg, struct sy_error *err)
{
    struct store *store = arg;
    struct sy_error reason = {.code = SY_OK};
    uint64_t missing;
    int status;

    syi_queue_close(&store->queue, CLOSE_SECONDS);
    pthread_join(store->writer, NULL);
    status = syi_queue_flush(&store->queue, 0, &reason); /* nothing is left to write: this says how it went */
    missing = store->queue.n_put + store->queue.n_refused - store->n_written;
    if (!status && missing)
        status = syi_error(&reason, SY_EBUSY, "metrics: %s was locked for long", store->path);
    if (status)
        syi_error(err, status, "%s; %llu rows are not in it", reason.text, (unsigned long long)missing);
    free_store(store);
    return status;
}

/* ---- opening ---- */

static int ask_number(const struct store *store, const char *sql, int64_t *number, struct sy_error *err)
{
    sqlite3_stmt *query = NULL;
    int status = SY_OK;

    if (sqlite3_prepare_v2(store->db, sql, -1, &query, NULL) == SQLITE_OK &&
        sqlite3_step(query) == SQLITE_ROW)
        *number = sqlite3_column_int64(query, 0);
    else
        status = sql_error(store, "read", err);
    sqlite3_finalize(query);
    return status;
}

/* Makes the tables in an empty database; in one that has some they must be ours, of this version. */
static int prepare_schema(const struct store *store, struct sy_error *err)
{
    int64_t application = 0, version = 0, n_objects = 0;
    int status = ask_number(store, "SELECT count(*) FROM sqlite_master", &n_objects, err);

    if (status == SY_OK && n_objects == 0) return execute(store, syi_schema_sql, "make the tables of", err);
    if (status == SY_OK) status = ask_number(store, "PRAGMA application_id", &application, err);
    if (status == SY_OK) status = ask_number(store, "PRAGMA user_version", &version, err);
    if (status) return status;
    if (application != SYI_STORE_APPLICATION)
        return syi_error(err, SY_EFORMAT,
                         "metrics: %s is another program's database; choose another run directory",
                         store->path);
    if (version != SYI_STORE_VERSION)
        return syi_error(err, SY_EFORMAT,
                         "metrics: %s has tables of version %lld, this program writes %d; start a new run",
                         store->path, (long long)version, SYI_STORE_VERSION);
    return SY_OK;
}

static int begin_attempt(struct store *store, const struct syi_store_options *options, struct sy_error *err)
{
    const char *sql = "INSERT INTO run (time, start_step, version, host, config) VALUES (?1, ?2, ?3, ?4, ?5)";
    sqlite3_stmt *insert = NULL;
    char time[TIME_BYTES], host[256] = "";
    int status = ask_number(store, "SELECT coalesce(max(attempt), 0) FROM run", &store->attempt, err);

    if (status || (options->append && store->attempt > 0)) return status;
    time_text(time, now());
    gethostname(host, sizeof(host) - 1);
    if (sqlite3_prepare_v2(store->db, sql, -1, &insert, NULL) == SQLITE_OK) {
        sqlite3_bind_text(insert, 1, time, -1, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 2, options->start_step);
        sqlite3_bind_text(insert, 3, sy_version(), -1, SQLITE_STATIC);
        sqlite3_bind_text(insert, 4, host, -1, SQLITE_STATIC);
        sqlite3_bind_text(insert, 5, options->config ? options->config : "", -1, SQLITE_STATIC);
    }
    if (!insert || sqlite3_step(insert) != SQLITE_DONE) status = sql_error(store, "write", err);
    sqlite3_finalize(insert);
    store->attempt = sqlite3_last_insert_rowid(store->db);
    return status;
}

static int connect_database(struct store *store, const struct syi_store_options *options,
                            struct sy_error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, status;

    if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
        return sql_error(store, "open", err);
    sqlite3_busy_timeout(store->db, OPEN_MILLISECONDS);
    status = execute(store, "PRAGMA journal_mode = DELETE", "open", err);
    if (status == SY_OK) status = execute(store, "BEGIN IMMEDIATE", "write", err);
    if (status == SY_OK) status = prepare_schema(store, err);
    if (status == SY_OK) status = begin_attempt(store, options, err);
    if (status == SY_OK) status = execute(store, "COMMIT", "write", err);
    for (size_t i = 0; i < SYI_COUNT(insert_sql) && status == SY_OK; i++)
        if (sqlite3_prepare_v2(store->db, insert_sql[i], -1, &store->insert[i], NULL) != SQLITE_OK)
            status = sql_error(store, "prepare", err);
    sqlite3_busy_timeout(store->db, TRY_MILLISECONDS);
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

/* Moves the database and its journal, which SQLite finds by its name, to the first free PATH.corrupt-N. */
static int move_aside(const struct store *store, const struct sy_error *damage, struct sy_error *err)
{
    char *to = NULL;
    int status;

    for (int n = 1; !to || access(to, F_OK) == 0; n++) {
        syi_free(to);
        to = syi_format("%s.corrupt-%d", store->path, n);
        if (!to) return syi_error(err, SY_ENOMEM, "out of memory");
    }
    status = move_file(store->path, "-journal", to, err);
    if (!status) status = move_file(store->path, "", to, err);
    if (!status) syi_log(SY_LOG_WARN, "%s; it is kept as %s and a new one begins", damage->text, to);
    syi_free(to);
    return status;
}

static int open_database(struct store *store, const struct syi_store_options *options, struct sy_error *err)
{
    struct sy_error reason = {.code = SY_OK};
    int status = connect_database(store, options, &reason), code = sqlite3_errcode(store->db) & 0xff;

    if (status && !options->append && (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)) {
        disconnect(store);
        status = move_aside(store, &reason, err);
        return status ? status : connect_database(store, options, err);
    }
    return status ? syi_error(err, status, "%s", reason.text) : SY_OK;
}

/* Signals are for the threads of the program, never for the writer. */
static int start_writer(struct store *store, struct sy_error *err)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&store->writer, NULL, run_writer, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? syi_error(err, SY_ENOMEM, "metrics: cannot start the writer thread: %s", strerror(failed))
                  : SY_OK;
}

int syi_store_open(const char *path, const struct syi_store_options *options, struct syi_metric_sink *sink,
                   struct sy_error *err)
{
    struct store *store = syi_alloc(sizeof(*store), err);
    int status = SY_ENOMEM;

    if (!store) return status;
    store->path = syi_strdup(path, err);
    store->scratch = syi_alloc(SYI_RECORD_MAX, err);
    if (store->path && store->scratch)
        status = syi_queue_create(&store->queue, QUEUE_BYTES, PUT_SECONDS, err);
    if (status == SY_OK) status = open_database(store, options, err);
    if (status == SY_OK) status = start_writer(store, err);
    if (status) {
        free_store(store);
        return status;
    }
    *sink = (struct syi_metric_sink){.arg = store,
                                     .metric = put_metric,
                                     .routing = put_routing,
                                     .event = put_event,
                                     .eval = put_eval,
                                     .flush = flush,
                                     .close = close_store};
    return SY_OK;
}
