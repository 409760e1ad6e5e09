/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a run's database: a user's SQL, read-only, or a summary, as lines of text. */
#ifndef SYI_QUERY_H
#define SYI_QUERY_H

#include "metrics/reader.h"

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

#endif
