/* SPDX-License-Identifier: Apache-2.0 */
/* Runs read-only SQL on a run's database and lays the rows out as text. */
#include "config.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "metrics/database.h"
#include "metrics/expert_counts.h"
#include "metrics/place.h"
#include "metrics/query.h"
#include "metrics/rows_text.h"
#include "metrics/runs.h"

enum {
    BUSY_MILLISECONDS = 10000,
    SECONDS = 300, /* that SQL may take */
    LOOKS = 10000, /* instructions of SQLite between two looks at the clock */
    CELL =
        1
        << 20, /* bytes of a value: functions of SQLite that compare two long texts may take their product */
    PATTERN = 1000,   /* bytes of a pattern of LIKE or GLOB, likewise */
    PROGRAM = 1000000 /* instructions of a compiled statement */
};
static const size_t ANSWER = (size_t)1 << 30; /* bytes */

/* A database, and what is left of the time and the room for an answer. */
struct reader {
    sqlite3 *db;
    const char *path;
    double seconds, end; /* allowed, and when they are over */
    size_t bytes, room;
    int rounds; /* 1: numbers are for people, who read six digits of them */
};

/* All cells of a result, header row first, as text. */
struct table {
    int n_columns;
    size_t n_rows;        /* header included */
    char **cells;         /* (n_rows, n_columns) */
    unsigned char *right; /* (n_columns) all values are numbers: align to the right */
    size_t n_cells, capacity;
};

static const struct section {
    const char *title, *sql;
} of_one[] = {
    {"attempts", "SELECT attempt, time, start_step, host, version FROM run ORDER BY attempt"},
    {"loss", "SELECT step, loss, learning_rate FROM loss_curve WHERE step IN (SELECT (SELECT min(step) FROM "
             "loss_curve WHERE step >= quarter * (SELECT max(step) FROM loss_curve) / 4) FROM (SELECT 0 AS "
             "quarter UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4)) ORDER BY step"},
    {"evaluation, newest",
     "SELECT task, step, name, value, settings FROM all_eval_latest ORDER BY task, name, settings"},
    {"expert load, last step",
     "SELECT layer, expert, tokens, dropped, round(share, 4) AS share FROM expert_load "
     "WHERE step = (SELECT step FROM routing m WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt "
     "AND r.start_step < m.step) ORDER BY step DESC LIMIT 1) ORDER BY layer, expert"},
    {"events, last ten",
     "SELECT time, step, kind, text FROM (SELECT rowid AS id, * FROM event ORDER BY rowid DESC "
     "LIMIT 10) ORDER BY id"},
};

/* Of several runs: a row each, and each result beside those of the others. */
static const struct section of_several[] = {
    {"runs",
     "SELECT a.run, (SELECT count(*) FROM all_run b WHERE b.run = a.run) AS attempts, max(l.step) AS step, "
     "(SELECT loss FROM all_loss b WHERE b.run = a.run ORDER BY step DESC LIMIT 1) AS loss, min(l.loss) AS lowest, "
     "(SELECT avg(value) FROM all_metric b WHERE b.run = a.run AND name = 'tokens_per_second') AS tokens_per_second, "
     "(SELECT kind FROM all_event b WHERE b.run = a.run AND kind IN ('done', 'stop', 'preemption', 'start', 'resume') "
     "ORDER BY attempt DESC, time DESC LIMIT 1) AS last_event "
     "FROM (SELECT DISTINCT run FROM all_run) a LEFT JOIN all_loss l ON l.run = a.run GROUP BY a.run ORDER BY a.run"},
    {"evaluation, newest and best",
     "SELECT task, name, run, step, value, lowest, highest, settings FROM (SELECT task, name, run, step, value, settings, "
     "min(value) OVER of_one AS lowest, max(value) OVER of_one AS highest, "
     "row_number() OVER (PARTITION BY run, task, name, settings ORDER BY attempt DESC, step DESC, time DESC) AS place "
     "FROM all_eval WINDOW of_one AS (PARTITION BY run, task, name, settings)) WHERE place = 1 ORDER BY task, name, settings, run"},
};
enum { MOST_SECTIONS = SYI_COUNT(of_one) };

static int too_long(const struct reader *r, struct sy_error *err)
{
    return syi_error(err, SY_EINVAL,
                     "metrics: the SQL took more than %g s: ask for less, or let sqlite3 read %s", r->seconds,
                     r->path);
}

static int sql_error(sqlite3 *db, const char *path, struct sy_error *err)
{
    int code = sqlite3_errcode(db) & 0xff;

    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return syi_error(err, SY_EBUSY, "metrics: %s is locked by another program; try again", path);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return syi_error(err, SY_EFORMAT, "metrics: %s: %s", path, sqlite3_errmsg(db));
    if (code == SQLITE_READONLY || code == SQLITE_AUTH)
        return syi_error(err, SY_EINVAL, "metrics: %s is only read here: %s", path, sqlite3_errmsg(db));
    return syi_error(err, code == SQLITE_IOERR || code == SQLITE_CANTOPEN ? SY_EIO : SY_EINVAL,
                     "metrics: %s: %s", path, sqlite3_errmsg(db));
}

/* ---- opening ---- */

static int is_there(void *there, int n, char **values, char **names)
{
    (void)n, (void)values, (void)names;
    *(int *)there = 1;
    return 0;
}

/* Reads the first page; the extended result code says what is in the way. *made: whether there are tables. */
static int probe(sqlite3 *db, int *made)
{
    *made = 0;
    sqlite3_extended_result_codes(db, 1);
    return sqlite3_exec(db, "SELECT 1 FROM sqlite_master LIMIT 1", is_there, made, NULL);
}

/* A writer that was killed in a transaction leaves a journal which only a connection that may write can roll
 * back. */
static void recover(const char *path)
{
    sqlite3 *db = NULL;
    int made;

    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(db, BUSY_MILLISECONDS);
        probe(db, &made);
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

/* vfs: that of SQLite which is used, NULL the usual one; where file locks do not work it becomes one without. */
static int open_with(const char *path, const char **vfs, sqlite3 **db, struct sy_error *err)
{
    int flags = SQLITE_OPEN_READONLY, code, made = 0, status = syi_database_check_library(err);

    *db = NULL;
    if (status) return status;
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
        if (code == SQLITE_OK) code = probe(*db, &made);
        if (code == SQLITE_OK) break;
        if (try > 0 || ((code & 0xff) != SQLITE_READONLY && (code & 0xff) != SQLITE_CANTOPEN)) break;
        sqlite3_close(*db);
        recover(path);
    }
    if (code == SQLITE_OK && made) return SY_OK;
    if (code == SQLITE_OK)
        status = syi_error(
            err, SY_ENOENT,
            "metrics: %s is empty: the run ended before it made its tables, or has only just begun; "
            "`switchyard train` with --resume goes on with it",
            path);
    else
        status = sql_error(*db, path, err);
    sqlite3_close(*db);
    *db = NULL;
    return status;
}

static int open_database(const char *path, sqlite3 **db, struct sy_error *err)
{
    const char *vfs = NULL;
    int status = open_with(path, &vfs, db, err);

    if (!status) status = syi_runs_attach(*db, path, NULL, 0, err);
    if (status) sqlite3_close(*db);
    if (status) *db = NULL;
    return status;
}

/* Each by itself first, for what is wrong with it. */
static int open_databases(const char *path, const struct syi_query *query, sqlite3 **db, struct sy_error *err)
{
    const char *vfs = NULL;
    int status = SY_OK;

    if (!query->n_others) return open_database(path, db, err);
    for (int i = 0; i < query->n_others && !status; i++) {
        status = open_with(query->others[i], &vfs, db, err);
        sqlite3_close(*db);
        *db = NULL;
    }
    if (!status) status = open_with(path, &vfs, db, err);
    if (!status) status = syi_runs_attach(*db, path, query->others, query->n_others, err);
    if (status) sqlite3_close(*db);
    if (status) *db = NULL;
    return status;
}

/* ---- reading ---- */

/* 1: the time is over; SQLite then ends what it does. */
static int is_over(void *arg)
{
    const struct reader *r = arg;
    return syi_seconds() >= r->end;
}

/* Takes the bytes of a cell, and what keeps it, out of the room for the answer. */
static int take_room(struct reader *r, size_t bytes, struct sy_error *err)
{
    bytes += 32;
    if (bytes > r->room)
        return syi_error(err, SY_EINVAL,
                         "metrics: the answer is larger than %zu MiB: ask for less, for example with LIMIT",
                         r->bytes >> 20);
    r->room -= bytes;
    return SY_OK;
}

static int add_cell(struct reader *r, struct table *table, const char *text, size_t bytes,
                    struct sy_error *err)
{
    struct syi_text cell = {0};
    const char *escape;
    int status = take_room(r, bytes, err);

    if (!status) status = SYI_GROW(table->cells, table->capacity, table->n_cells + 1, err);
    if (status) return status;
    for (size_t i = 0; i < bytes; i++) {
        escape = text[i] == '\t' ? "\\t" : text[i] == '\n' ? "\\n" : text[i] == '\\' ? "\\\\" : NULL;
        if (escape)
            syi_text_puts(&cell, escape);
        else
            syi_text_append(&cell, text + i, 1);
    }
    syi_text_append(&cell, "", 1);
    status = syi_text_status(&cell, err);
    if (status) {
        syi_text_free(&cell);
        return status;
    }
    table->cells[table->n_cells++] = cell.data;
    return SY_OK;
}

/* To six digits, or to a whole number. */
static double rounded(double value)
{
    char text[400];
    snprintf(text, sizeof text, fabs(value) < 1e6 ? "%.6g" : "%.0f", value);
    return strtod(text, NULL);
}

/* Numbers as the shortest text that reads back the same; NULL as nothing. */
static int add_value(struct reader *r, struct table *table, sqlite3_stmt *query, int column,
                     struct sy_error *err)
{
    char number[SYI_NUMBER_BYTES];
    int type = sqlite3_column_type(query, column);
    const char *text;

    if (type == SQLITE_NULL) return add_cell(r, table, "", 0, err);
    if (type == SQLITE_FLOAT) {
        double value = sqlite3_column_double(query, column);
        syi_format_double(number, r->rounds ? rounded(value) : value);
        return add_cell(r, table, number, strlen(number), err);
    }
    if (type != SQLITE_INTEGER) table->right[column] = 0;
    text = (const char *)sqlite3_column_text(query, column);
    return add_cell(r, table, text ? text : "", text ? (size_t)sqlite3_column_bytes(query, column) : 0, err);
}

static int read_rows(struct reader *r, sqlite3_stmt *query, struct table *table, struct sy_error *err)
{
    const char *name;
    int code, status = SY_OK;

    table->n_columns = sqlite3_column_count(query);
    table->right = syi_alloc((size_t)table->n_columns, err);
    if (!table->right) return SY_ENOMEM;
    memset(table->right, 1, (size_t)table->n_columns);
    for (int i = 0; i < table->n_columns && status == SY_OK; i++) {
        name = sqlite3_column_name(query, i);
        status = add_cell(r, table, name ? name : "", name ? strlen(name) : 0, err);
    }
    table->n_rows = 1;
    while (status == SY_OK && (code = sqlite3_step(query)) != SQLITE_DONE) {
        if (code == SQLITE_INTERRUPT) return too_long(r, err);
        if (code != SQLITE_ROW) return sql_error(r->db, r->path, err);
        for (int i = 0; i < table->n_columns && status == SY_OK; i++)
            status = add_value(r, table, query, i, err);
        table->n_rows++;
    }
    return status;
}

static void free_table(struct table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) syi_free(table->cells[i]);
    syi_free(table->cells);
    syi_free(table->right);
}

/* One statement that only reads. On failure there is none. */
static int prepare(struct reader *r, const char *sql, sqlite3_stmt **query, struct sy_error *err)
{
    const char *rest = "";
    int status = SY_OK;

    if (sqlite3_prepare_v2(r->db, sql, -1, query, &rest) != SQLITE_OK)
        return is_over(r) ? too_long(r, err) : sql_error(r->db, r->path, err);
    if (!*query)
        status = syi_error(err, SY_EINVAL, "metrics: the SQL is empty; try \"SELECT * FROM loss_curve\"");
    else if (rest[strspn(rest, " \t\r\n;")])
        status = syi_error(err, SY_EINVAL, "metrics: more than one SQL statement; give one at a time");
    else if (!sqlite3_stmt_readonly(*query))
        status =
            syi_error(err, SY_EINVAL, "metrics: this SQL would change %s, which is only read here", r->path);
    if (status) sqlite3_finalize(*query);
    return status;
}

static void bind_values(sqlite3_stmt *query, const struct syi_value *given, int n_given)
{
    for (int i = 0; i < n_given; i++) {
        const struct syi_value *value = &given[i];
        if (value->kind == SYI_VALUE_INTEGER) sqlite3_bind_int64(query, i + 1, value->integer);
        if (value->kind == SYI_VALUE_REAL) sqlite3_bind_double(query, i + 1, value->real);
        if (value->kind == SYI_VALUE_TEXT)
            sqlite3_bind_text(query, i + 1, value->text, (int)value->bytes, SQLITE_STATIC);
    }
}

static int read_table(struct reader *r, const struct syi_query *asked, const char *sql, struct table *table,
                      struct sy_error *err)
{
    sqlite3_stmt *query = NULL;
    int status;

    memset(table, 0, sizeof(*table));
    status = prepare(r, sql, &query, err);
    if (status) return status;
    bind_values(query, asked->given, asked->n_given);
    status = read_rows(r, query, table, err);
    sqlite3_finalize(query);
    if (status) {
        free_table(table);
        memset(table, 0, sizeof(*table));
    }
    return status;
}

/* ---- printing ---- */

/* Columns a terminal needs for the text: code points, taken as one column each. */
static size_t width(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void append_aligned(struct syi_text *line, const char *cell, size_t columns, int right, int last)
{
    size_t blanks = columns - width(cell);

    if (right) syi_text_printf(line, "%*s", (int)blanks, "");
    syi_text_puts(line, cell);
    if (!last) syi_text_printf(line, "%*s", (int)(right ? 0 : blanks) + 2, "");
}

static int print_line(struct syi_text *text, syi_query_line_fn line, void *arg, struct sy_error *err)
{
    int status;

    syi_text_append(text, "", 0);
    status = syi_text_status(text, err);
    if (status == SY_OK) status = line(arg, text->data ? text->data : "");
    syi_text_free(text);
    return status;
}

static int print_tsv(const struct table *table, syi_query_line_fn line, void *arg, struct sy_error *err)
{
    int status = SY_OK;

    for (size_t row = 0; row < table->n_rows && status == SY_OK; row++) {
        struct syi_text text = {0};
        for (int i = 0; i < table->n_columns; i++) {
            if (i) syi_text_puts(&text, "\t");
            syi_text_puts(&text, table->cells[row * (size_t)table->n_columns + (size_t)i]);
        }
        status = print_line(&text, line, arg, err);
    }
    return status;
}

static int print_columns(const struct table *table, syi_query_line_fn line, void *arg, struct sy_error *err)
{
    size_t n = (size_t)table->n_columns, *widths = syi_alloc(n * sizeof(*widths), err), cell;
    int status = widths ? SY_OK : SY_ENOMEM;

    for (size_t i = 0; i < table->n_cells && status == SY_OK; i++) {
        cell = width(table->cells[i]);
        if (cell > widths[i % n]) widths[i % n] = cell;
    }
    for (size_t row = 0; row < table->n_rows && status == SY_OK; row++) {
        struct syi_text text = {0};
        for (size_t i = 0; i < n; i++)
            append_aligned(&text, table->cells[row * n + i], widths[i], table->right[i], i == n - 1);
        status = print_line(&text, line, arg, err);
    }
    syi_free(widths);
    return status;
}

static int print_table(const struct table *table, enum syi_query_format format, syi_query_line_fn line,
                       void *arg, struct sy_error *err)
{
    if (table->n_columns == 0) return SY_OK;
    return format == SYI_QUERY_TSV ? print_tsv(table, line, arg, err) : print_columns(table, line, arg, err);
}

/* Every section that has rows, under its title. */
static int print_summary(const struct section *summary, size_t n, const struct table *tables,
                         enum syi_query_format format, syi_query_line_fn line, void *arg,
                         struct sy_error *err)
{
    int status = SY_OK, printed = 0;

    for (size_t i = 0; i < n && status == SY_OK; i++) {
        if (tables[i].n_rows < 2) continue;
        if (printed++) status = line(arg, "");
        if (status == SY_OK) status = line(arg, summary[i].title);
        if (status == SY_OK) status = print_table(&tables[i], format, line, arg, err);
    }
    return status;
}

/* ---- rows for a program ---- */

struct syi_reader {
    struct reader r;
    char *path;
    int version; /* of the schema */
};

/* A result being given out row by row. */
struct given_out {
    sqlite3_stmt *query;
    int n;
    const char **names;       /* (n) */
    struct syi_value *values; /* (n) */
};

double syi_value_number(const struct syi_value *value)
{
    if (value->kind == SYI_VALUE_INTEGER) return (double)value->integer;
    return value->kind == SYI_VALUE_REAL ? value->real : (double)NAN;
}

void syi_reader_close(struct syi_reader *reader)
{
    if (!reader) return;
    sqlite3_close(reader->r.db);
    syi_free(reader->path);
    syi_free(reader);
}

static struct syi_value read_value(sqlite3_stmt *query, int column)
{
    struct syi_value value = {.kind = SYI_VALUE_NULL, .text = ""};
    const void *text = NULL;

    switch (sqlite3_column_type(query, column)) {
    case SQLITE_INTEGER:
        value.kind = SYI_VALUE_INTEGER;
        value.integer = sqlite3_column_int64(query, column);
        return value;
    case SQLITE_FLOAT:
        value.kind = SYI_VALUE_REAL;
        value.real = sqlite3_column_double(query, column);
        return value;
    case SQLITE_TEXT:
        value.kind = SYI_VALUE_TEXT;
        text = sqlite3_column_text(query, column);
        break;
    case SQLITE_BLOB:
        value.kind = SYI_VALUE_BYTES;
        text = sqlite3_column_blob(query, column);
        break;
    default: return value;
    }
    if (text) value.text = text;
    if (text) value.bytes = (size_t)sqlite3_column_bytes(query, column);
    return value;
}

/* Names are read after the first step, which may compile the SQL anew. */
static int give_head(const struct given_out *out, const struct syi_question *question, struct sy_error *err)
{
    const struct syi_row row = {.n = out->n, .names = out->names};

    for (int i = 0; i < out->n; i++) {
        const char *name = sqlite3_column_name(out->query, i);
        out->names[i] = name ? name : "";
    }
    return question->head ? question->head(question->arg, &row, err) : SY_OK;
}

static int give_rows(struct reader *r, const struct given_out *out, const struct syi_question *question,
                     struct sy_error *err)
{
    const struct syi_row row = {.n = out->n, .names = out->names, .values = out->values};
    int code = sqlite3_step(out->query), status = SY_OK;

    if (code == SQLITE_ROW || code == SQLITE_DONE) status = give_head(out, question, err);
    for (; status == SY_OK && code == SQLITE_ROW; code = sqlite3_step(out->query)) {
        for (int i = 0; i < out->n; i++) out->values[i] = read_value(out->query, i);
        status = question->row(question->arg, &row, err);
        if (status) break;
    }
    if (status) return status;
    if (code == SQLITE_INTERRUPT) return too_long(r, err);
    return code == SQLITE_DONE ? SY_OK : sql_error(r->db, r->path, err);
}

static int ask_rows(struct reader *r, const struct syi_question *question, struct sy_error *err)
{
    struct given_out out = {0};
    int status;

    r->end = syi_seconds() + r->seconds;
    status = prepare(r, question->sql, &out.query, err);
    if (status) return status;
    out.n = sqlite3_column_count(out.query);
    out.names = syi_alloc((size_t)(out.n + 1) * sizeof *out.names, err);
    out.values = syi_alloc((size_t)(out.n + 1) * sizeof *out.values, err);
    if (out.names && out.values) {
        bind_values(out.query, question->given, question->n_given);
        status = give_rows(r, &out, question, err);
    } else {
        status = SY_ENOMEM;
    }
    sqlite3_finalize(out.query);
    syi_free(out.names);
    syi_free(out.values);
    return status;
}

int syi_reader_ask(struct syi_reader *reader, const struct syi_question *question, struct sy_error *err)
{
    return ask_rows(&reader->r, question, err);
}

static int found(void *arg, const struct syi_row *row, struct sy_error *err)
{
    (void)row, (void)err;
    *(int *)arg = 1;
    return SY_OK;
}

int syi_reader_has(struct syi_reader *reader, const char *name, int *there, struct sy_error *err)
{
    const struct syi_value value = {.kind = SYI_VALUE_TEXT, .text = name, .bytes = strlen(name)};
    const struct syi_question question = {.sql = "SELECT 1 FROM sqlite_master WHERE name = ?1",
                                          .given = &value,
                                          .n_given = 1,
                                          .row = found,
                                          .arg = there};
    *there = 0;
    return syi_reader_ask(reader, &question, err);
}

/* ---- opening one ---- */

static int take_version(void *arg, const struct syi_row *row, struct sy_error *err)
{
    (void)err;
    *(int *)arg = (int)row->values[0].integer;
    return SY_OK;
}

static int read_version(struct syi_reader *reader, struct sy_error *err)
{
    const struct syi_question question = {
        .sql = "PRAGMA user_version", .row = take_version, .arg = &reader->version};
    return syi_reader_ask(reader, &question, err);
}

int syi_reader_version(const struct syi_reader *reader)
{
    return reader->version;
}

const char *syi_reader_training(const struct syi_reader *reader)
{
    return reader->version >= 3 ? " AND task = 'train'" : "";
}

int syi_reader_open(const char *path, double patience, struct syi_reader **reader, struct sy_error *err)
{
    struct syi_reader *made = syi_alloc(sizeof *made, err);
    int status = SY_ENOMEM;

    *reader = NULL;
    if (!made) return status;
    made->path = syi_strdup(path, err);
    made->r = (struct reader){.path = made->path, .seconds = SECONDS};
    if (made->path) status = open_database(made->path, &made->r.db, err);
    if (status) {
        syi_reader_close(made);
        return status;
    }
    if (patience > 0) sqlite3_busy_timeout(made->r.db, (int)(patience * 1000));
    sqlite3_progress_handler(made->r.db, LOOKS, is_over, &made->r);
    status = read_version(made, err);
    if (status)
        syi_reader_close(made);
    else
        *reader = made;
    return status;
}

/* ---- text for other programs ---- */

/* The answer as it grows. */
struct answer {
    struct syi_text text;
    int is_json, n_rows;
    size_t room; /* bytes it may have */
};

static int add_head(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct answer *answer = arg;
    (void)err;
    if (answer->is_json)
        syi_text_puts(&answer->text, "[");
    else
        syi_csv_head(&answer->text, row);
    return SY_OK;
}

static int add_row(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct answer *answer = arg;
    if (answer->is_json) {
        syi_text_puts(&answer->text, answer->n_rows++ ? ",\n" : "\n");
        syi_json_row(&answer->text, row);
    } else {
        syi_csv_row(&answer->text, row);
    }
    if (answer->text.length > answer->room)
        return syi_error(err, SY_EINVAL,
                         "metrics: the answer is larger than %zu MiB: ask for less, for example with LIMIT",
                         answer->room >> 20);
    return syi_text_status(&answer->text, err);
}

static int read_answer(struct reader *r, const struct syi_query *query, struct answer *answer,
                       struct sy_error *err)
{
    const struct syi_question question = {query->sql, query->given, query->n_given,
                                          add_head,   add_row,      answer};
    answer->is_json = query->format == SYI_QUERY_JSON;
    answer->room = r->bytes;
    int status = ask_rows(r, &question, err);
    if (answer->is_json) syi_text_puts(&answer->text, answer->n_rows ? "\n]" : "]");
    return status ? status : syi_text_status(&answer->text, err);
}

/* Without the end of the last line, which the printer gives it. */
static int print_answer(struct answer *answer, syi_query_line_fn line, void *arg)
{
    if (!answer->is_json) answer->text.data[answer->text.length - 1] = '\0';
    return line(arg, answer->text.data);
}

/* ---- a question ---- */

/* Aligned and TSV: of every section, or of the one SQL. */
static int read_tables(struct reader *r, const struct syi_query *query, const struct section *summary,
                       struct table *tables, size_t n, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < n && status == SY_OK; i++)
        status = read_table(r, query, query->sql ? query->sql : summary[i].sql, &tables[i], err);
    return status;
}

int syi_query_run(const char *path, const struct syi_query *query, syi_query_line_fn line, void *arg,
                  struct sy_error *err)
{
    struct table tables[MOST_SECTIONS];
    const struct section *summary = query->n_others ? of_several : of_one;
    struct answer answer = {{0}, 0, 0, 0};
    size_t n = query->sql ? 1 : query->n_others ? SYI_COUNT(of_several) : SYI_COUNT(of_one);
    int for_programs = query->format == SYI_QUERY_CSV || query->format == SYI_QUERY_JSON, status;
    struct reader r = {.path = path,
                       .seconds = query->seconds > 0 ? query->seconds : SECONDS,
                       .bytes = query->bytes ? query->bytes : ANSWER,
                       .rounds = !query->sql && query->format == SYI_QUERY_COLUMNS};

    if (for_programs && !query->sql)
        return syi_error(err, SY_EINVAL,
                         "metrics: the summary is several tables: for CSV or JSON ask with SQL");
    status = open_databases(path, query, &r.db, err);
    if (status) return status;
    memset(tables, 0, sizeof(tables));
    r.room = r.bytes;
    r.end = syi_seconds() + r.seconds;
    sqlite3_progress_handler(r.db, LOOKS, is_over, &r);
    status =
        for_programs ? read_answer(&r, query, &answer, err) : read_tables(&r, query, summary, tables, n, err);
    sqlite3_close(r.db);
    if (status == SY_OK && for_programs)
        status = print_answer(&answer, line, arg);
    else if (status == SY_OK)
        status = query->sql ? print_table(&tables[0], query->format, line, arg, err)
                            : print_summary(summary, n, tables, query->format, line, arg, err);
    for (size_t i = 0; i < n; i++) free_table(&tables[i]);
    syi_text_free(&answer.text);
    return status;
}
