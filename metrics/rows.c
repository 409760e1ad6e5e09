/* SPDX-License-Identifier: Apache-2.0 */
/* How each kind of record becomes a row: one statement a kind, which picks what it wants of a record. */
#include "config.h"

#include <string.h>
#include <time.h>

#include "metrics/rows.h"

/* What stands for what in the statements. */
enum { ATTEMPT = 1, STEP, TIME, VALUE, NUMBER, TEXT_TIME, PART /* and those after it */ };

/* The first row of a layer and a step counts: routing_block has added it up. */
static const char *const insert_sql[] = {
    [SYI_RECORD_METRIC] = "INSERT OR REPLACE INTO metric (attempt, step, time, task, name, value) "
                          "VALUES (?1, ?2, ?3, 'train', ?7, ?4)",
    [SYI_RECORD_PARAMETER] = "INSERT OR REPLACE INTO parameter (attempt, step, time, parameter, name, value) "
                             "VALUES (?1, ?2, ?3, ?7, ?8, ?4)",
    [SYI_RECORD_ROUTING] = "INSERT OR IGNORE INTO routing (attempt, step, time, layer, tokens, dropped) "
                           "VALUES (?1, ?2, ?3, ?7, ?8, ?9)",
    [SYI_RECORD_EVENT] = "INSERT INTO event (attempt, step, time, kind, text) VALUES (?1, ?2, ?6, ?7, ?8)",
    [SYI_RECORD_EVAL] =
        "INSERT INTO eval (attempt, step, time, task, name, value, settings) VALUES (?1, ?2, ?6, ?7, ?8, ?4, ?9)",
    [SYI_RECORD_EXAMPLE] =
        "INSERT INTO example (attempt, step, time, task, item, input, target, prediction, score) "
        "VALUES (?1, ?2, ?6, ?7, ?5, ?8, ?9, ?10, ?4)",
    [SYI_RECORD_EVAL_ROUTING] =
        "INSERT OR REPLACE INTO eval_routing (attempt, step, time, task, layer, expert, tokens, dropped) "
        "SELECT ?1, ?2, ?3, ?7, ?8, expert, tokens, dropped FROM expert_counts(?9, ?10)",
    [SYI_RECORD_BACK] = "INSERT INTO run (attempt, time, start_step, version, host, config) "
                        "SELECT ?1, ?6, ?2, version, host, config FROM run WHERE attempt = ?1 - 1",
    [SYI_RECORD_COPY] = NULL,
};

void syi_time_text(char text[SYI_TIME_BYTES], int64_t milliseconds)
{
    time_t seconds = (time_t)(milliseconds / 1000);
    struct tm utc;
    size_t n;

    gmtime_r(&seconds, &utc);
    n = strftime(text, SYI_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, SYI_TIME_BYTES - n, ".%03dZ", (int)(milliseconds % 1000));
}

int syi_rows_open(struct syi_rows *rows, const struct syi_database *database, struct sy_error *err)
{
    int status = syi_rollup_open(&rows->rollup, database, err);

    rows->database = database;
    for (size_t i = 0; i < SYI_RECORD_KINDS && !status; i++)
        if (insert_sql[i]) status = syi_database_prepare(database, insert_sql[i], &rows->insert[i], err);
    return status;
}

void syi_rows_close(struct syi_rows *rows)
{
    for (size_t i = 0; i < SYI_RECORD_KINDS; i++) sqlite3_finalize(rows->insert[i]);
    syi_rollup_close(&rows->rollup);
    memset(rows, 0, sizeof(*rows));
}

/* Numbers that a statement does not have are not bound. */
static void bind(sqlite3_stmt *insert, const struct syi_queue_record *record, char time[SYI_TIME_BYTES])
{
    int arrays = record->kind == SYI_RECORD_ROUTING        ? 1
                 : record->kind == SYI_RECORD_EVAL_ROUTING ? 2
                                                           : SYI_RECORD_PARTS; /* the first of them */

    sqlite3_bind_int64(insert, ATTEMPT, record->attempt);
    sqlite3_bind_int64(insert, STEP, record->step);
    sqlite3_bind_int64(insert, TIME, record->time);
    sqlite3_bind_double(insert, VALUE, record->value);
    sqlite3_bind_int64(insert, NUMBER, record->number);
    if (record->kind == SYI_RECORD_EVENT || record->kind == SYI_RECORD_EVAL ||
        record->kind == SYI_RECORD_EXAMPLE || record->kind == SYI_RECORD_BACK) {
        syi_time_text(time, record->time);
        sqlite3_bind_text(insert, TEXT_TIME, time, -1, SQLITE_STATIC);
    }
    for (int i = 0; i < SYI_RECORD_PARTS; i++) {
        struct syi_part part = syi_record_part(record, i);
        if (i >= arrays)
            sqlite3_bind_blob(insert, PART + i, part.data, (int)part.bytes, SQLITE_STATIC);
        else
            sqlite3_bind_text(insert, PART + i, part.data, (int)part.bytes, SQLITE_STATIC);
    }
}

/* Where the blocks of the attempts so far end for the one that goes on from this step. */
static int divide_blocks(struct syi_rows *rows, int64_t step, struct sy_error *err)
{
    int status = syi_rollup_write(&rows->rollup, rows->database, err);
    return status ? status : syi_rollup_split(rows->database, step, err);
}

int syi_rows_insert(struct syi_rows *rows, const struct syi_queue_record *record, struct sy_error *err)
{
    sqlite3_stmt *insert = rows->insert[record->kind];
    char time[SYI_TIME_BYTES];
    int status;

    if (!insert) return SY_OK;
    if (record->kind == SYI_RECORD_BACK) {
        status = divide_blocks(rows, record->step, err);
        if (status) return status;
    }
    bind(insert, record, time);
    status = sqlite3_step(insert) == SQLITE_DONE ? SY_OK : syi_database_error(rows->database, "write", err);
    sqlite3_reset(insert);
    if (!status && record->kind == SYI_RECORD_ROUTING && sqlite3_changes(rows->database->db))
        status = syi_rollup_add(&rows->rollup, rows->database, record, err);
    return status;
}

int syi_rows_finish(struct syi_rows *rows, struct sy_error *err)
{
    return syi_rollup_write(&rows->rollup, rows->database, err);
}

void syi_rows_reset(struct syi_rows *rows)
{
    syi_rollup_reset(&rows->rollup);
}
