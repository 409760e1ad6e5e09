/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a run's database: statements that only read, within their time, and their rows one by one. */
#include "config.h"

#include <math.h>
#include <sqlite3.h>
#include <string.h>

#include "metrics/reader.h"
#include "metrics/reading.h"

enum { LOOKS = 10000 /* instructions of SQLite between two looks at the clock */ };

/* ---- a statement ---- */

/* 1: the time is over; SQLite then ends what it does. */
static int is_over(void *arg)
{
    const struct syi_reading *r = arg;
    return syi_seconds() >= r->end;
}

void syi_reading_begin(struct syi_reading *r)
{
    r->room = r->bytes;
    r->end = syi_seconds() + r->seconds;
    sqlite3_progress_handler(r->db, LOOKS, is_over, r);
}

int syi_reading_too_long(const struct syi_reading *r, struct sy_error *err)
{
    return syi_error(err, SY_EINVAL,
                     "metrics: the SQL took more than %g s: ask for less, or let sqlite3 read %s", r->seconds,
                     r->path);
}

/* Only comments may follow a statement. */
static int check_rest(struct syi_reading *r, const char *rest, struct sy_error *err)
{
    sqlite3_stmt *next = NULL;
    int code = SQLITE_OK;

    while (code == SQLITE_OK && !next && rest[strspn(rest, " \t\r\n;")])
        code = sqlite3_prepare_v2(r->db, rest, -1, &next, &rest);
    sqlite3_finalize(next);
    if (code == SQLITE_NOMEM) return syi_error(err, SY_ENOMEM, "metrics: out of memory");
    if (code == SQLITE_OK && !next) return SY_OK;
    return syi_error(err, SY_EINVAL, "metrics: more than one SQL statement; give one at a time");
}

/* One statement that only reads. On failure there is none. */
int syi_reading_prepare(struct syi_reading *r, const char *sql, sqlite3_stmt **query, struct sy_error *err)
{
    const char *rest = "";
    int status = SY_OK;

    if (sqlite3_prepare_v2(r->db, sql, -1, query, &rest) != SQLITE_OK)
        return is_over(r) ? syi_reading_too_long(r, err) : syi_reading_error(r->db, r->path, err);
    if (!*query)
        status = syi_error(err, SY_EINVAL, "metrics: the SQL is empty; try \"SELECT * FROM loss_curve\"");
    else
        status = check_rest(r, rest, err);
    if (!status && !sqlite3_stmt_readonly(*query))
        status =
            syi_error(err, SY_EINVAL, "metrics: this SQL would change %s, which is only read here", r->path);
    if (status) sqlite3_finalize(*query);
    return status;
}

void syi_reading_bind(sqlite3_stmt *query, const struct syi_value *given, int n_given)
{
    for (int i = 0; i < n_given; i++) {
        const struct syi_value *value = &given[i];
        if (value->kind == SYI_VALUE_INTEGER) sqlite3_bind_int64(query, i + 1, value->integer);
        if (value->kind == SYI_VALUE_REAL) sqlite3_bind_double(query, i + 1, value->real);
        if (value->kind == SYI_VALUE_TEXT)
            sqlite3_bind_text(query, i + 1, value->text, (int)value->bytes, SQLITE_STATIC);
    }
}

/* ---- its rows ---- */

/* A result being given out row by row. */
struct given_out {
    sqlite3_stmt *query;
    int n;
    const char **names;       /* (n) */
    struct syi_value *values; /* (n) */
};

static int read_value(const struct syi_reading *r, sqlite3_stmt *query, int column, struct syi_value *value,
                      struct sy_error *err)
{
    const void *text = NULL;

    *value = (struct syi_value){.kind = SYI_VALUE_NULL, .text = ""};
    switch (sqlite3_column_type(query, column)) {
    case SQLITE_INTEGER:
        value->kind = SYI_VALUE_INTEGER;
        value->integer = sqlite3_column_int64(query, column);
        return SY_OK;
    case SQLITE_FLOAT:
        value->kind = SYI_VALUE_REAL;
        value->real = sqlite3_column_double(query, column);
        return SY_OK;
    case SQLITE_TEXT:
        value->kind = SYI_VALUE_TEXT;
        text = sqlite3_column_text(query, column);
        break;
    case SQLITE_BLOB:
        value->kind = SYI_VALUE_BYTES;
        text = sqlite3_column_blob(query, column); /* NULL of an empty one, too */
        break;
    default: return SY_OK;
    }
    if (!text && sqlite3_errcode(r->db) == SQLITE_NOMEM) return syi_reading_error(r->db, r->path, err);
    if (text) value->text = text;
    if (text) value->bytes = (size_t)sqlite3_column_bytes(query, column);
    return SY_OK;
}

/* Names are read after the first step, which may compile the SQL anew. */
static int give_head(const struct given_out *out, const struct syi_question *question, struct sy_error *err)
{
    const struct syi_row row = {.n = out->n, .names = out->names};

    for (int i = 0; i < out->n; i++) {
        const char *name = sqlite3_column_name(out->query, i);
        if (!name) return syi_error(err, SY_ENOMEM, "metrics: out of memory");
        out->names[i] = name;
    }
    return question->head ? question->head(question->arg, &row, err) : SY_OK;
}

static int give_rows(struct syi_reading *r, const struct given_out *out, const struct syi_question *question,
                     struct sy_error *err)
{
    const struct syi_row row = {.n = out->n, .names = out->names, .values = out->values};
    int code = sqlite3_step(out->query), status = SY_OK;

    if (code == SQLITE_ROW || code == SQLITE_DONE) status = give_head(out, question, err);
    for (; status == SY_OK && code == SQLITE_ROW; code = sqlite3_step(out->query)) {
        for (int i = 0; i < out->n && !status; i++)
            status = read_value(r, out->query, i, &out->values[i], err);
        if (!status) status = question->row(question->arg, &row, err);
        if (status) break;
    }
    if (status) return status;
    if (code == SQLITE_INTERRUPT) return syi_reading_too_long(r, err);
    return code == SQLITE_DONE ? SY_OK : syi_reading_error(r->db, r->path, err);
}

int syi_reading_ask(struct syi_reading *r, const struct syi_question *question, struct sy_error *err)
{
    struct given_out out = {0};
    int status;

    r->end = syi_seconds() + r->seconds;
    status = syi_reading_prepare(r, question->sql, &out.query, err);
    if (status) return status;
    out.n = sqlite3_column_count(out.query);
    out.names = syi_alloc((size_t)(out.n + 1) * sizeof *out.names, err);
    out.values = syi_alloc((size_t)(out.n + 1) * sizeof *out.values, err);
    if (out.names && out.values) {
        syi_reading_bind(out.query, question->given, question->n_given);
        status = give_rows(r, &out, question, err);
    } else {
        status = SY_ENOMEM;
    }
    sqlite3_finalize(out.query);
    syi_free(out.names);
    syi_free(out.values);
    return status;
}

/* ---- for a program ---- */

struct syi_reader {
    struct syi_reading r;
    char *path;
    int version; /* of the schema */
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

int syi_reader_ask(struct syi_reader *reader, const struct syi_question *question, struct sy_error *err)
{
    return syi_reading_ask(&reader->r, question, err);
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
    made->r = (struct syi_reading){.path = made->path, .seconds = SYI_READING_SECONDS};
    if (made->path) status = syi_reading_open(made->path, NULL, 0, &made->r.db, err);
    if (status) {
        syi_reader_close(made);
        return status;
    }
    if (patience > 0) sqlite3_busy_timeout(made->r.db, (int)(patience * 1000));
    syi_reading_begin(&made->r);
    status = read_version(made, err);
    if (status)
        syi_reader_close(made);
    else
        *reader = made;
    return status;
}
