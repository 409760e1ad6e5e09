/* SPDX-License-Identifier: Apache-2.0 */
/* What reader.c and query.c share: a database that is open for reading (open.c), and statements on it (reader.c). */
#ifndef SYI_READING_H
#define SYI_READING_H

#include <sqlite3.h>

#include "metrics/reader.h"

enum { SYI_READING_SECONDS = 300 }; /* that SQL may take */

/* A database, and what is left of the time and the room for an answer. */
struct syi_reading {
    sqlite3 *db;
    const char *path;
    double seconds, end; /* allowed, and when they are over */
    size_t bytes, room;
    int rounds; /* 1: numbers are for people, who read six digits of them */
};

/* ---- open.c ---- */

/* others[n_others]: databases of more runs (runs.h), n_others 0: path alone. */
int syi_reading_open(const char *path, const char *const *others, int n_others, sqlite3 **db,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The error of what SQLite just refused. */
int syi_reading_error(sqlite3 *db, const char *path, struct sy_error *err);

/* ---- reader.c ---- */

/* From now on time and room are used up. */
void syi_reading_begin(struct syi_reading *r);
int syi_reading_too_long(const struct syi_reading *r, struct sy_error *err);
/* One statement that only reads. On failure there is none. */
int syi_reading_prepare(struct syi_reading *r, const char *sql, sqlite3_stmt **query,
                        struct sy_error *err) SYI_MUST_CHECK;
void syi_reading_bind(sqlite3_stmt *query, const struct syi_value *given, int n_given);
/* Within a time of its own. */
int syi_reading_ask(struct syi_reading *r, const struct syi_question *question,
                    struct sy_error *err) SYI_MUST_CHECK;

#endif
