/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the queue as rows of the database. */
#ifndef SYI_ROWS_H
#define SYI_ROWS_H

#include "metrics/rollup.h"

enum { SYI_TIME_BYTES = 32 };

struct syi_rows {
    const struct syi_database *database;
    sqlite3_stmt *insert[SYI_RECORD_KINDS]; /* by enum syi_record_kind */
    struct syi_rollup rollup;
};

int syi_rows_open(struct syi_rows *rows, const struct syi_database *database,
                  struct sy_error *err) SYI_MUST_CHECK;
void syi_rows_close(struct syi_rows *rows); /* zeroed: does nothing */
/* Writes the record, within a transaction of the caller's. */
int syi_rows_insert(struct syi_rows *rows, const struct syi_queue_record *record,
                    struct sy_error *err) SYI_MUST_CHECK;
/* What is written last in a transaction, and what is forgotten with one. */
int syi_rows_finish(struct syi_rows *rows, struct sy_error *err) SYI_MUST_CHECK;
void syi_rows_reset(struct syi_rows *rows);

/* Milliseconds since 1970 as ISO 8601 in UTC. */
void syi_time_text(char text[SYI_TIME_BYTES], int64_t milliseconds);

#endif
