/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a run's database: a user's SQL, read-only, or a summary, as lines of text, or rows of typed values
 * for a program. Works beside a running writer and after a crash. */
#ifndef SYI_QUERY_H
#define SYI_QUERY_H

#include "base/base.h"

enum syi_value_kind { SYI_VALUE_NULL, SYI_VALUE_INTEGER, SYI_VALUE_REAL, SYI_VALUE_TEXT, SYI_VALUE_BYTES };

/* One value of the database. */
struct syi_value {
    enum syi_value_kind kind;
    int64_t integer;
    double real;
    const char *text; /* of TEXT, NUL-terminated, and BYTES, which are not; "" for the others */
    size_t bytes;     /* without the NUL */
};

enum syi_query_format {
    SYI_QUERY_COLUMNS, /* for people: aligned, numbers to the right */
    SYI_QUERY_TSV, /* for programs: tabs, a header line; tab, line feed and backslash in texts as \t \n \\ */
    SYI_QUERY_CSV, /* RFC 4180 with a header line; NULL is an empty field, an empty text "" */
    SYI_QUERY_JSON /* one array of objects; a number that is not finite is null */
};

/* Gets one line without its line feed; another value than SY_OK stops the printing and is returned. */
typedef int (*syi_query_line_fn)(void *arg, const char *line);

struct syi_query {
    const char *sql; /* NULL: a summary of the run, which has several tables: not as CSV or JSON */
    const struct syi_value *given; /* (n_given) what stands for ?1, ?2, ... in the SQL */
    int n_given;
    enum syi_query_format format;
    double seconds;            /* that it may take, 0: 300 */
    size_t bytes;              /* that the answer may have, 0: 1 GiB */
    const char *const *others; /* (n_others) databases of more runs: see runs.h; the summary compares them */
    int n_others;
};

/* Runs one SELECT (or EXPLAIN, or a reading PRAGMA) on the database at path, header line first. The rows are read
 * before the first line is given out, so a slow printer never keeps the writer from its database. Whatever the
 * SQL is, nothing is written but SQLite's own temporary files, and an answer without end is an error. */
int syi_query_run(const char *path, const struct syi_query *query, syi_query_line_fn line, void *arg,
                  struct sy_error *err) SYI_MUST_CHECK;

/* ---- rows for a program ---- */

/* Borrowed until the function it is given to returns. */
struct syi_row {
    int n; /* columns */
    const char *const *names;
    const struct syi_value *values; /* NULL: this is the head, before the first row */
};

/* Another value than SY_OK, with its reason in err, ends the reading and is returned. */
typedef int (*syi_row_fn)(void *arg, const struct syi_row *row, struct sy_error *err);

struct syi_reader;

struct syi_question {
    const char *sql;               /* one statement that only reads */
    const struct syi_value *given; /* (n_given) what stands for ?1, ?2, ...; REAL, INTEGER, TEXT or NULL */
    int n_given;
    syi_row_fn head; /* called once before the rows; NULL: not at all */
    syi_row_fn row;
    void *arg;
};

/* patience: seconds that a database locked by its writer is waited for, 0: 10. */
int syi_reader_open(const char *path, double patience, struct syi_reader **reader,
                    struct sy_error *err) SYI_MUST_CHECK;
/* The database is locked for its writer while this runs: row must not wait for anybody. 300 s at most. */
int syi_reader_ask(struct syi_reader *reader, const struct syi_question *question,
                   struct sy_error *err) SYI_MUST_CHECK;
/* *there: whether the database has a table or a view of that name. */
int syi_reader_has(struct syi_reader *reader, const char *name, int *there,
                   struct sy_error *err) SYI_MUST_CHECK;
/* The version of the schema (user_version of metrics/schema.sql). Version 2 has no column `task` in metric, no times
 * there, and no tables of parameters and examples. */
int syi_reader_version(const struct syi_reader *reader);
/* What a WHERE on metric or valid_metric needs further so that only rows of training are met: "" in version 2, where
 * all rows are. */
const char *syi_reader_training(const struct syi_reader *reader);
void syi_reader_close(struct syi_reader *reader); /* NULL: does nothing */

/* A number as double, NaN for everything else. */
double syi_value_number(const struct syi_value *value);

#endif
