/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the counts of experts in memory, so that a transaction of many steps writes each row of routing_block once. */
#include "config.h"

#include <string.h>

#include "metrics/counts.h"
#include "metrics/rollup.h"

enum { BLOCK = 1000 }; /* steps; schema.sql and doc/metrics.md say so, too */

static const char add_sql[] =
    "INSERT INTO routing_block (attempt, layer, expert, block, part, first_step, last_step, steps, tokens, dropped) "
    "VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9) "
    "ON CONFLICT (attempt, layer, expert, block, part) DO UPDATE SET "
    "first_step = min(first_step, excluded.first_step), last_step = max(last_step, excluded.last_step), "
    "steps = steps + excluded.steps, tokens = tokens + excluded.tokens, dropped = dropped + excluded.dropped";

int syi_rollup_open(struct syi_rollup *rollup, const struct syi_database *database, struct sy_error *err)
{
    return syi_database_prepare(database, add_sql, &rollup->add, err);
}

void syi_rollup_close(struct syi_rollup *rollup)
{
    sqlite3_finalize(rollup->add);
    for (size_t i = 0; i < rollup->n; i++) {
        syi_free(rollup->layer[i].name);
        syi_free(rollup->layer[i].tokens);
        syi_free(rollup->layer[i].dropped);
    }
    syi_free(rollup->layer);
    memset(rollup, 0, sizeof(*rollup));
}

void syi_rollup_reset(struct syi_rollup *rollup)
{
    for (size_t i = 0; i < rollup->n; i++) rollup->layer[i].steps = 0;
}

static int write_layer(struct syi_rollup *rollup, const struct syi_database *database,
                       struct syi_rollup_layer *layer, struct sy_error *err)
{
    const int64_t same[] = {layer->block, layer->first, layer->last, layer->steps};
    int status = SY_OK;

    for (size_t expert = 0; layer->steps && expert < layer->n && !status; expert++) {
        sqlite3_bind_int64(rollup->add, 1, layer->attempt);
        sqlite3_bind_text(rollup->add, 2, layer->name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(rollup->add, 3, (int64_t)expert);
        for (int i = 0; i < (int)SYI_COUNT(same); i++) sqlite3_bind_int64(rollup->add, 4 + i, same[i]);
        sqlite3_bind_int64(rollup->add, 8, layer->tokens[expert]);
        sqlite3_bind_int64(rollup->add, 9, layer->dropped[expert]);
        if (sqlite3_step(rollup->add) != SQLITE_DONE) status = syi_database_error(database, "write", err);
        sqlite3_reset(rollup->add);
    }
    layer->steps = 0;
    return status;
}

int syi_rollup_write(struct syi_rollup *rollup, const struct syi_database *database, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < rollup->n && !status; i++)
        status = write_layer(rollup, database, &rollup->layer[i], err);
    return status;
}

static struct syi_rollup_layer *find_layer(struct syi_rollup *rollup, struct syi_part name,
                                           struct sy_error *err)
{
    struct syi_rollup_layer *layer;

    for (size_t i = 0; i < rollup->n; i++)
        if (strlen(rollup->layer[i].name) == name.bytes &&
            !memcmp(rollup->layer[i].name, name.data, name.bytes))
            return &rollup->layer[i];
    if (SYI_GROW(rollup->layer, rollup->room, rollup->n + 1, err)) return NULL;
    layer = &rollup->layer[rollup->n];
    memset(layer, 0, sizeof(*layer));
    layer->name = syi_alloc(name.bytes + 1, err);
    if (!layer->name) return NULL;
    memcpy(layer->name, name.data, name.bytes);
    rollup->n++;
    return layer;
}

static void begin_block(struct syi_rollup_layer *layer, const struct syi_queue_record *record)
{
    layer->attempt = record->attempt;
    layer->block = (record->step - 1) / BLOCK;
    layer->first = layer->last = record->step;
    if (layer->n) memset(layer->tokens, 0, layer->n * sizeof(*layer->tokens));
    if (layer->n) memset(layer->dropped, 0, layer->n * sizeof(*layer->dropped));
}

/* Room for the counts of expert `i`, which begin with 0. */
static int reach(struct syi_rollup_layer *layer, size_t i, struct sy_error *err)
{
    int status = i < layer->n ? SY_OK : SYI_GROW(layer->tokens, layer->tokens_room, i + 1, err);

    if (!status && i >= layer->n) status = SYI_GROW(layer->dropped, layer->dropped_room, i + 1, err);
    for (; !status && layer->n <= i; layer->n++) layer->tokens[layer->n] = layer->dropped[layer->n] = 0;
    return status;
}

static int add_counts(struct syi_rollup_layer *layer, struct syi_part array, int dropped,
                      struct sy_error *err)
{
    const unsigned char *at = array.data, *end = at + array.bytes;
    int64_t count;
    int status = SY_OK;

    for (size_t i = 0; !status && syi_counts_next(&at, end, &count); i++) {
        status = reach(layer, i, err);
        if (!status) (dropped ? layer->dropped : layer->tokens)[i] += count;
    }
    return status;
}

int syi_rollup_add(struct syi_rollup *rollup, const struct syi_database *database,
                   const struct syi_queue_record *record, struct sy_error *err)
{
    struct syi_rollup_layer *layer = find_layer(rollup, syi_record_part(record, 0), err);
    int status = layer ? SY_OK : SY_ENOMEM;

    if (!status && layer->steps &&
        (layer->block != (record->step - 1) / BLOCK || layer->attempt != record->attempt))
        status = write_layer(rollup, database, layer, err);
    if (status) return status;
    if (!layer->steps) begin_block(layer, record);
    if (record->step < layer->first) layer->first = record->step;
    if (record->step > layer->last) layer->last = record->step;
    layer->steps++;
    status = add_counts(layer, syi_record_part(record, 1), 0, err);
    return status ? status : add_counts(layer, syi_record_part(record, 2), 1, err);
}

/* ---- where a run goes on ---- */

/* The rest of a row that is divided, from the rows of routing, and what is left of it. ?1: the step before the cut, ?2
 * its block. */
static const char rest_sql[] =
    "INSERT INTO routing_block (attempt, layer, expert, block, part, first_step, last_step, steps, tokens, dropped) "
    "SELECT b.attempt, b.layer, c.expert, ?2, "
    "(SELECT max(p.part) + 1 FROM routing_block p WHERE p.block = ?2 AND p.attempt = b.attempt AND p.layer = b.layer), "
    "min(r.step), max(r.step), count(*), sum(c.tokens), sum(c.dropped) "
    "FROM (SELECT DISTINCT attempt, layer, last_step FROM routing_block "
    "WHERE block = ?2 AND part = 0 AND first_step <= ?1 AND last_step > ?1) b "
    "JOIN routing r ON r.attempt = b.attempt AND r.layer = b.layer AND r.step > ?1 AND r.step <= b.last_step "
    "JOIN expert_counts(r.tokens, r.dropped) c GROUP BY b.attempt, b.layer, c.expert";
#define REST_OF(column)                                                                                         \
    column                                                                                                      \
        " = " column " - (SELECT p." column " FROM routing_block p WHERE p.block = ?2 AND "                     \
        "p.attempt = routing_block.attempt AND p.layer = routing_block.layer AND "                              \
        "p.expert = routing_block.expert AND p.first_step > ?1 AND p.last_step <= routing_block.last_step AND " \
        "p.part > 0)"
static const char left_sql[] =
    "UPDATE routing_block SET " REST_OF("steps") ", " REST_OF("tokens") ", " REST_OF(
        "dropped") ", last_step = (SELECT max(r.step) FROM routing r WHERE r.step <= ?1 AND r.attempt = "
                   "routing_block.attempt AND r.layer = routing_block.layer) "
                   "WHERE block = ?2 AND part = 0 AND first_step <= ?1 AND last_step > ?1";
#undef REST_OF

int syi_rollup_split(const struct syi_database *database, int64_t start_step, struct sy_error *err)
{
    static const char *const sql[] = {rest_sql, left_sql};
    int status = SY_OK;

    for (size_t i = 0; start_step > 0 && i < SYI_COUNT(sql) && !status; i++) {
        sqlite3_stmt *statement = NULL;
        status = syi_database_prepare(database, sql[i], &statement, err);
        if (status) break;
        sqlite3_bind_int64(statement, 1, start_step);
        sqlite3_bind_int64(statement, 2, (start_step - 1) / BLOCK);
        if (sqlite3_step(statement) != SQLITE_DONE) status = syi_database_error(database, "write", err);
        sqlite3_finalize(statement);
    }
    return status;
}
