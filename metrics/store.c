/* SPDX-License-Identifier: Apache-2.0 */
/* The sink that writes metric records into SQLite. One thread owns the connection after opening; records come through
 * queue.c and are written in transactions of about a second. The journal is SQLite's rollback journal, which works on
 * network filesystems too. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"
#include "metrics/counts.h"
#include "metrics/expert_counts.h"
#include "metrics/place.h"
#include "metrics/queue.h"
#include "metrics/rows.h"
#include "metrics/schema.h"
#include "metrics/store.h"

/* A reader that holds the database (a shell piped into a pager does) and a disk that is full make the writer try again
 * and again, with pauses in which others may read. The training thread waits for it only when the queue is full. */
enum {
    QUEUE_BYTES = 64 << 20,
    LEAST_QUEUE = 64 << 10,
    OPEN_MILLISECONDS = 10000, /* a locked database is waited for at the start */
    TRY_MILLISECONDS = 100,    /* likewise in one try of the writer */
    PAUSE_MILLISECONDS = 400,  /* between two tries */
    LOCKED_TRIES = 20,         /* tries after which the user hears of a lock */
    ERROR_TRIES = 2,           /* and of anything else */
    PUT_SECONDS = 5,           /* a full queue is waited for while no try succeeds */
    CLOSE_SECONDS = 5,         /* the writer may try in vain, at the end */
    TEXT_BYTES = 256 << 10     /* what is longer is cut: a row must stay one that can be read */
};

/* Rows, and the steps that they are of. */
struct lost {
    uint64_t n;
    int64_t first, last;
};

struct store {
    struct syi_place place;
    struct syi_database database;
    struct syi_rows rows;
    struct syi_queue queue;
    int append;
    int64_t attempt;  /* of this start */
    int64_t current;  /* of what is put now: a later one once the run has gone back */
    int64_t step;     /* of the last record */
    int back_pending; /* 1: the run went back to back_step, which was refused: no row may come before it */
    int64_t back_step;
    uint64_t
        n_written; /* records on disk, and of them those in the run directory's copy; the writer's while it runs */
    uint64_t n_copied;
    uint64_t n_no_rows; /* refusals of what is no row */
    int doubtful; /* 1: the last transaction failed at its end, and may be on disk all the same; the writer's */
    atomic_int
        told; /* the user heard that rows wait, from the writer or the training thread, or is to hear of the
                        end alone */
    struct lost lost;         /* rows that were refused and that no event tells of yet */
    int warned_copy;          /* the user heard of a failed copy; the writer's */
    struct sy_error uncopied; /* why the run directory has not the last rows; the writer's */
    int noted_wait;           /* an event says that training waited */
    unsigned char *counts;    /* (counts_room) arrays of put_routing */
    size_t counts_room;
    pthread_t writer;
};

/* ---- writing, in the writer thread ---- */

/* Whether the transaction that failed at its end is on disk: its records are counted in it. */
static int is_there(const struct store *store, uint64_t n)
{
    char sql[100];
    int64_t records = -1;

    snprintf(sql, sizeof(sql), "SELECT records FROM run WHERE attempt = %lld", (long long)store->attempt);
    return !store->append && syi_database_ask(&store->database, sql, &records, NULL) == SY_OK &&
           (uint64_t)records == store->n_written + n;
}

static int count_records(const struct store *store, uint64_t n, struct sy_error *err)
{
    char sql[100];

    if (store->append) return SY_OK; /* the training that still runs has the count */
    snprintf(sql, sizeof(sql), "UPDATE run SET records = %llu WHERE attempt = %lld",
             (unsigned long long)store->n_written + n, (long long)store->attempt);
    return syi_database_run(&store->database, sql, "write", err);
}

static uint64_t count_batch(struct store *store, uint64_t from, uint64_t to)
{
    uint64_t n = 0;
    for (; from < to; n++) from += syi_queue_read(&store->queue, from)->bytes;
    return n;
}

static int write_all(struct store *store, uint64_t from, uint64_t to, uint64_t n, struct sy_error *err)
{
    int status = SY_OK;

    while (from < to && !status) {
        const struct syi_queue_record *record = syi_queue_read(&store->queue, from);
        status = syi_rows_insert(&store->rows, record, err);
        from += record->bytes;
    }
    if (!status) status = syi_rows_finish(&store->rows, err);
    return status ? status : count_records(store, n, err);
}

/* One transaction. *again: it failed in a way that may pass. */
static int write_records(struct store *store, uint64_t from, uint64_t to, int *again, struct sy_error *err)
{
    uint64_t n = count_batch(store, from, to);
    int status = syi_database_run(&store->database, "BEGIN EXCLUSIVE", "lock", err), there = 0;

    *again = status && syi_database_may_recover(&store->database);
    if (status) return status;
    there = store->doubtful && is_there(store, n);
    store->doubtful = 0;
    if (!there) status = write_all(store, from, to, n, err);
    if (!status) {
        status = syi_database_run(&store->database, "COMMIT", "write", err);
        store->doubtful = status != SY_OK;
    }
    *again = status && (status == SY_ENOMEM || syi_database_may_recover(&store->database));
    if (status) sqlite3_exec(store->database.db, "ROLLBACK", NULL, NULL, NULL);
    if (status) syi_rows_reset(&store->rows);
    if (!status) store->n_written += n;
    return status;
}

/* The same again while a reader keeps the database locked or the disk is full; the records are still in the queue. */
static void write_patiently(struct store *store, uint64_t from, uint64_t to, struct sy_error *failure)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MILLISECONDS * 1000000L};

    for (int try = 1;; try++) {
        struct sy_error reason = {.code = SY_OK};
        int again, status = write_records(store, from, to, &again, &reason);
        if (!status || !again || syi_queue_is_over(&store->queue)) {
            *failure = reason;
            return;
        }
        syi_queue_block(&store->queue);
        if (try >= (status == SY_EBUSY ? LOCKED_TRIES : ERROR_TRIES) && !atomic_exchange(&store->told, 1))
            syi_log(SY_LOG_WARN, "%s; its rows wait in memory", reason.text);
        nanosleep(&pause, NULL);
    }
}

/* Into the run directory, if there is anything new. A copy that fails is made with the next checkpoint. */
static void copy_home(struct store *store)
{
    struct sy_error reason = {.code = SY_OK};
    int status;

    if (!store->place.local || store->n_copied == store->n_written) return;
    sqlite3_busy_timeout(store->database.db, OPEN_MILLISECONDS); /* an evaluation may be at it */
    status = syi_place_copy_home(&store->place, &store->database, &reason);
    sqlite3_busy_timeout(store->database.db, TRY_MILLISECONDS);
    if (!status)
        store->n_copied = store->n_written;
    else if (!store->warned_copy++)
        syi_log(SY_LOG_WARN, "%s; it is tried again with the next checkpoint", reason.text);
    store->uncopied = reason;
}

/* Whether a copy was asked for among the records. */
static int wants_copy(struct store *store, uint64_t from, uint64_t to)
{
    int wanted = 0;

    while (store->place.local && from < to) {
        const struct syi_queue_record *record = syi_queue_read(&store->queue, from);
        wanted |= record->kind == SYI_RECORD_COPY;
        from += record->bytes;
    }
    return wanted;
}

static void *run_writer(void *arg)
{
    struct store *store = arg;
    struct sy_error failure = {.code = SY_OK};
    uint64_t from, to;

    syi_thread_give_way();
    while (syi_queue_wait(&store->queue, &from, &to)) {
        if (failure.code == SY_OK) write_patiently(store, from, to, &failure);
        if (failure.code == SY_OK && wants_copy(store, from, to)) copy_home(store);
        syi_queue_release(&store->queue, to, &failure);
    }
    /* the local file goes after the last copy: no evaluation may write into it in between */
    if (failure.code == SY_OK) (void)!syi_place_lock(&store->place, CLOSE_SECONDS * 1000, NULL);
    copy_home(store);
    return NULL;
}

/* ---- the sink, in the training thread ---- */

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* A text as a part, cut at the end of a character. */
static struct syi_part text_part(const char *text)
{
    size_t bytes = strnlen(text, TEXT_BYTES + 1);

    if (bytes > TEXT_BYTES) {
        bytes = TEXT_BYTES;
        for (int i = 0; i < 3 && ((unsigned char)text[bytes] & 0xc0) == 0x80; i++) bytes--;
    }
    return (struct syi_part){text, bytes};
}

static int put_event(void *arg, int64_t step, const char *kind, const char *text, struct sy_error *err);

/* Training waited: the user hears of it unless of the same before, and the database keeps it. */
static void tell_wait(struct store *store)
{
    char text[200];

    store->noted_wait = 1;
    snprintf(
        text, sizeof(text),
        "the queue of %.4g MiB was full (metrics.queue_bytes): training waited %.3g s for the metrics database",
        (double)store->queue.capacity / (1 << 20), store->queue.wait_seconds);
    if (!atomic_exchange(&store->told, 1))
        syi_log(SY_LOG_WARN, "metrics: %s; later waits are counted in the event of the end", text);
    (void)!put_event(store, store->step, "queue_full", text, NULL);
}

static void note_lost(struct lost *lost, int64_t step)
{
    if (!lost->n || step < lost->first) lost->first = step;
    if (!lost->n || step > lost->last) lost->last = step;
    lost->n++;
}

/* The database takes rows again: it keeps which are not there. */
static void tell_lost(struct store *store)
{
    const struct lost lost = store->lost;
    char text[160];

    store->lost = (struct lost){0};
    snprintf(text, sizeof(text),
             "%llu rows of steps %lld to %lld are missing: the metrics database took none for long",
             (unsigned long long)lost.n, (long long)lost.first, (long long)lost.last);
    if (put_event(store, store->step, "rows_lost", text, NULL)) store->lost = lost;
}

/* A way back that was refused comes before the next row, which would else seem to be of the attempt that was left. */
static int put_pending_back(struct store *store, struct sy_error *err)
{
    const struct syi_queue_record record = {
        .kind = SYI_RECORD_BACK, .attempt = store->current + 1, .step = store->back_step, .time = now()};
    int status = store->back_pending ? syi_queue_put(&store->queue, record, NULL, 0, err) : SY_OK;

    if (status || !store->back_pending) return status;
    store->current++;
    store->back_pending = 0;
    return SY_OK;
}

static int put(struct store *store, struct syi_queue_record record, const struct syi_part *part, int n_parts,
               struct sy_error *err)
{
    struct sy_error reason = {.code = SY_OK};
    int is_row = record.kind != SYI_RECORD_COPY && record.kind != SYI_RECORD_BACK;
    int status = put_pending_back(store, &reason);

    record.attempt = store->current;
    record.time = now();
    if (record.kind != SYI_RECORD_COPY) store->step = record.step;
    if (!status && record.kind != SYI_RECORD_BACK)
        status = syi_queue_put(&store->queue, record, part, n_parts, &reason);
    int may_recover = status == SY_EBUSY || status == SY_ENOMEM;
    if (may_recover && is_row) note_lost(&store->lost, record.step);
    if (status && !is_row) store->n_no_rows++;
    if (status)
        atomic_store(&store->told, 1); /* that they are lost, which whoever gave them tells, is more */
    if (status) return syi_error(err, status, "%s", reason.text);
    if (store->lost.n) tell_lost(store);
    if (store->queue.n_waits && !store->noted_wait) tell_wait(store);
    return SY_OK;
}

static int put_metric(void *arg, int64_t step, const char *name, double value, struct sy_error *err)
{
    const struct syi_part part[] = {text_part(name)};
    struct syi_queue_record record = {.kind = SYI_RECORD_METRIC, .step = step, .value = value};
    return put(arg, record, part, 1, err);
}

static int put_parameter(void *arg, int64_t step, const char *parameter, const char *name, double value,
                         struct sy_error *err)
{
    const struct syi_part part[] = {text_part(parameter), text_part(name)};
    struct syi_queue_record record = {.kind = SYI_RECORD_PARAMETER, .step = step, .value = value};
    return put(arg, record, part, 2, err);
}

/* The arrays of a layer's experts as two parts, in a buffer of the store's until the next ones. */
static int encode_counts(struct store *store, int n_experts, const int64_t *tokens, const int64_t *dropped,
                         struct syi_part part[2], struct sy_error *err)
{
    size_t room = (size_t)n_experts * SYI_COUNT_BYTES;
    int n_dropped = n_experts, status = SYI_GROW(store->counts, store->counts_room, 2 * room, err);

    if (status) return status;
    while (n_dropped > 0 && !dropped[n_dropped - 1]) n_dropped--; /* counts that are not there are 0 */
    part[0] = (struct syi_part){store->counts, syi_counts_encode(tokens, n_experts, store->counts)};
    part[1] =
        (struct syi_part){store->counts + room, syi_counts_encode(dropped, n_dropped, store->counts + room)};
    return SY_OK;
}

static int put_routing(void *arg, int64_t step, const char *layer, int n_experts, const int64_t *tokens,
                       const int64_t *dropped, struct sy_error *err)
{
    struct syi_part part[3] = {text_part(layer)};
    int status = encode_counts(arg, n_experts, tokens, dropped, &part[1], err);
    if (status) return status;
    return put(arg, (struct syi_queue_record){.kind = SYI_RECORD_ROUTING, .step = step}, part, 3, err);
}

static int put_eval_routing(void *arg, int64_t step, const char *task, const char *layer, int n_experts,
                            const int64_t *tokens, const int64_t *dropped, struct sy_error *err)
{
    struct syi_part part[4] = {text_part(task), text_part(layer)};
    int status = encode_counts(arg, n_experts, tokens, dropped, &part[2], err);
    if (status) return status;
    return put(arg, (struct syi_queue_record){.kind = SYI_RECORD_EVAL_ROUTING, .step = step}, part, 4, err);
}

static int put_event(void *arg, int64_t step, const char *kind, const char *text, struct sy_error *err)
{
    const struct syi_part part[] = {text_part(kind), text_part(text)};
    return put(arg, (struct syi_queue_record){.kind = SYI_RECORD_EVENT, .step = step}, part, 2, err);
}

static int put_eval(void *arg, int64_t step, const char *task, const char *name, double value,
                    const char *settings, struct sy_error *err)
{
    const struct syi_part part[] = {text_part(task), text_part(name), text_part(settings)};
    struct syi_queue_record record = {.kind = SYI_RECORD_EVAL, .step = step, .value = value};
    return put(arg, record, part, 3, err);
}

static int put_back(void *arg, int64_t step, struct sy_error *err)
{
    struct store *store = arg;

    if (!store->back_pending || step < store->back_step) store->back_step = step;
    store->back_pending = 1;
    return put(store, (struct syi_queue_record){.kind = SYI_RECORD_BACK, .step = step}, NULL, 0, err);
}

static int put_example(void *arg, int64_t step, const struct syi_sink_example *example, struct sy_error *err)
{
    const struct syi_part part[] = {text_part(example->task), text_part(example->input),
                                    text_part(example->target), text_part(example->prediction)};
    struct syi_queue_record record = {
        .kind = SYI_RECORD_EXAMPLE, .step = step, .number = example->item, .value = example->score};
    return put(arg, record, part, 4, err);
}

static int flush(void *arg, double seconds, struct sy_error *err)
{
    struct store *store = arg;
    int status = SY_OK;

    if (store->place.local)
        status = put(store, (struct syi_queue_record){.kind = SYI_RECORD_COPY}, NULL, 0, err);
    if (status) return status;
    return syi_queue_flush(&store->queue, seconds, err);
}

/* ---- closing ---- */

static void disconnect(struct store *store)
{
    syi_rows_close(&store->rows);
    sqlite3_close(store->database.db);
    store->database.db = NULL;
}

static void free_store(struct store *store)
{
    disconnect(store);
    syi_queue_free(&store->queue);
    syi_place_free(&store->place);
    syi_free(store->counts);
    syi_free(store);
}

static void tell_waits(struct store *store)
{
    char text[120];

    if (!store->queue.n_waits) return;
    snprintf(text, sizeof(text), "training waited %llu times for the metrics database, %.3g s in all",
             (unsigned long long)store->queue.n_waits, store->queue.wait_seconds);
    (void)!put_event(store, store->step, "queue_full", text, NULL);
}

/* Rows are missing where the writer failed, and where a full queue refused them. */
static int close_store(void *arg, struct sy_error *err)
{
    struct store *store = arg;
    struct sy_error reason = {.code = SY_OK};
    uint64_t missing;
    int status;

    (void)!put_pending_back(store, NULL); /* refused at the end it counts as a row that is missing */
    if (store->lost.n) tell_lost(store);
    tell_waits(store);
    syi_queue_close(&store->queue, CLOSE_SECONDS);
    pthread_join(store->writer, NULL);
    status = syi_queue_flush(&store->queue, 0, &reason); /* nothing is left to write: this says how it went */
    missing = store->queue.n_put + store->queue.n_refused - store->n_no_rows - store->n_written;
    if (!status && missing)
        status =
            syi_error(&reason, SY_EBUSY, "metrics: %s could not be written for long", store->database.path);
    if (status)
        syi_error(err, status, "%s; %llu rows are not in it", reason.text, (unsigned long long)missing);
    if (!status && store->uncopied.code)
        status = syi_error(err, store->uncopied.code, "%s; all rows are in %s", store->uncopied.text,
                           store->place.path);
    disconnect(store);
    /* a file that was there before an evaluation may be that of a training that still runs */
    if (!status && (!store->append || store->place.made)) syi_place_discard(&store->place);
    free_store(store);
    return status;
}

/* ---- opening ---- */

static int begin_attempt(struct store *store, const struct syi_store_options *options, struct sy_error *err)
{
    const char *sql = "INSERT INTO run (time, start_step, version, host, config) VALUES (?1, ?2, ?3, ?4, ?5)";
    sqlite3_stmt *insert = NULL;
    char time[SYI_TIME_BYTES], host[256] = "";
    int status =
        syi_database_ask(&store->database, "SELECT coalesce(max(attempt), 0) FROM run", &store->attempt, err);

    store->append = options->append && store->attempt > 0;
    store->told = options->append; /* closed as soon as all is given to it, which says what is not on disk */
    if (status || store->append) return status;
    status = syi_rollup_split(&store->database, options->start_step, err);
    if (status) return status;
    syi_time_text(time, now());
    gethostname(host, sizeof(host) - 1);
    if (sqlite3_prepare_v2(store->database.db, sql, -1, &insert, NULL) == SQLITE_OK) {
        sqlite3_bind_text(insert, 1, time, -1, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 2, options->start_step);
        sqlite3_bind_text(insert, 3, sy_version(), -1, SQLITE_STATIC);
        sqlite3_bind_text(insert, 4, host, -1, SQLITE_STATIC);
        sqlite3_bind_text(insert, 5, options->config ? options->config : "", -1, SQLITE_STATIC);
    }
    if (!insert || sqlite3_step(insert) != SQLITE_DONE)
        status = syi_database_error(&store->database, "write", err);
    sqlite3_finalize(insert);
    store->attempt = sqlite3_last_insert_rowid(store->database.db);
    return status;
}

static int connect_database(struct store *store, const struct syi_store_options *options,
                            struct sy_error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, status;
    struct syi_database *database = &store->database;

    database->path = store->place.path;
    if (sqlite3_open_v2(database->path, &database->db, flags, NULL) != SQLITE_OK ||
        syi_expert_counts_register(database->db) != SQLITE_OK)
        return syi_database_error(database, "open", err);
    sqlite3_busy_timeout(database->db, OPEN_MILLISECONDS);
    status = syi_place_fetch(&store->place, database, !options->append, err);
    if (!status) status = syi_database_run(database, "PRAGMA journal_mode = DELETE", "open", err);
    if (!status) status = syi_database_run(database, "BEGIN IMMEDIATE", "write", err);
    if (!status) status = syi_schema_prepare(database, err);
    if (!status) status = begin_attempt(store, options, err);
    if (!status) status = syi_database_run(database, "COMMIT", "write", err);
    if (!status) status = syi_rows_open(&store->rows, database, err);
    /* the copy of a run knows its last start, by which a later start sees which file is the newer one */
    if (!status) status = syi_place_copy_home(&store->place, database, err);
    store->current = store->attempt;
    sqlite3_busy_timeout(database->db, TRY_MILLISECONDS);
    return status;
}

static int is_damaged(const struct store *store)
{
    int code = sqlite3_errcode(store->database.db) & 0xff;
    return code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
}

/* What is damaged is moved aside, and what comes then is made anew. A local file comes once more from the run directory,
 * where a sound copy may be; what came from there was damaged there, too. */
static int open_database(struct store *store, const struct syi_store_options *options, struct sy_error *err)
{
    enum { FILES = 3 }; /* the local one, the copy in the run directory, and what came from there */
    int status = syi_place_lock(&store->place, OPEN_MILLISECONDS, err);

    if (!status && !options->append && options->start_step < 0) status = syi_place_begin(&store->place, err);
    for (int n = 0; !status; n++) {
        struct sy_error reason = {.code = SY_OK};
        const struct syi_place *place = &store->place;
        int failed = connect_database(store, options, &reason);
        if (!failed) return SY_OK;
        if (!place->local && syi_database_cannot_lock(&store->database)) {
            status = syi_place_leave_home(&store->place, sqlite3_errmsg(store->database.db), err);
            disconnect(store);
            return status ? status : open_database(store, options, err);
        }
        if (options->append || !is_damaged(store) || n == FILES)
            return syi_error(err, failed, "%s", reason.text);
        status = syi_place_move_aside(place->fetched ? place->home : place->path, "corrupt", &reason, err);
        disconnect(store);
    }
    return status;
}

static int open_parts(struct store *store, const char *path, const struct syi_store_options *options,
                      struct sy_error *err)
{
    size_t bytes = options->queue_bytes ? options->queue_bytes : QUEUE_BYTES;
    int status = syi_place_choose(&store->place, path, options->folder, err);

    if (bytes < LEAST_QUEUE) bytes = LEAST_QUEUE;
    if (!status) status = syi_queue_create(&store->queue, bytes, PUT_SECONDS, err);
    if (!status) status = open_database(store, options, err);
    if (status) disconnect(store);
    if (status && store->place.made) syi_place_discard(&store->place);
    if (!options->append) syi_place_unlock(&store->place); /* an evaluation is soon done with it */
    return status ? status : syi_thread_start(&store->writer, "metrics", run_writer, store, err);
}

int syi_store_open(const char *path, const struct syi_store_options *options, struct syi_metric_sink *sink,
                   struct sy_error *err)
{
    int status = syi_database_check_library(err);
    if (status) return status;
    struct store *store = syi_alloc(sizeof(*store), err);

    if (!store) return SY_ENOMEM;
    status = open_parts(store, path, options, err);
    if (status) {
        free_store(store);
        return status;
    }
    *sink = (struct syi_metric_sink){.arg = store,
                                     .metric = put_metric,
                                     .parameter = put_parameter,
                                     .example = put_example,
                                     .routing = put_routing,
                                     .event = put_event,
                                     .eval = put_eval,
                                     .eval_routing = put_eval_routing,
                                     .back = put_back,
                                     .flush = flush,
                                     .close = close_store};
    return SY_OK;
}
