/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of SQL over arrays of counts: a table-valued function, a sum and an aggregate. */
#include "config.h"

#include <string.h>

#include "metrics/counts.h"
#include "metrics/expert_counts.h"

static const char not_counts[] = "this is no array of counts";

/* ---- the table-valued function ---- */

enum column { EXPERT, TOKENS, DROPPED, TOKENS_ARRAY, DROPPED_ARRAY };

/* What is left of the two arrays after the row at hand. */
struct cursor {
    sqlite3_vtab_cursor base;
    unsigned char *bytes; /* both arrays */
    const unsigned char *tokens_at, *tokens_end, *dropped_at, *dropped_end;
    int64_t expert, tokens, dropped;
    int at_end;
};

static int connect(sqlite3 *db, void *arg, int argc, const char *const *argv, sqlite3_vtab **table,
                   char **message)
{
    (void)arg, (void)argc, (void)argv, (void)message;
    int code = sqlite3_declare_vtab(
        db,
        "CREATE TABLE x(expert INTEGER, tokens INTEGER, dropped INTEGER, tokens_array HIDDEN, dropped_array HIDDEN)");
    if (code != SQLITE_OK) return code;
    *table = sqlite3_malloc(sizeof(**table));
    if (!*table) return SQLITE_NOMEM;
    memset(*table, 0, sizeof(**table));
#ifdef SQLITE_VTAB_INNOCUOUS
    sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
#endif
    return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *table)
{
    sqlite3_free(table);
    return SQLITE_OK;
}

/* Both arguments must be known before the rows are asked for. */
static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    int place[2] = {-1, -1};
    (void)table;

    for (int i = 0; i < info->nConstraint; i++) {
        int column = info->aConstraint[i].iColumn;
        if (column != TOKENS_ARRAY && column != DROPPED_ARRAY) continue;
        if (info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ) continue;
        if (!info->aConstraint[i].usable) return SQLITE_CONSTRAINT;
        place[column - TOKENS_ARRAY] = i;
    }
    if (place[0] < 0 || place[1] < 0) return SQLITE_CONSTRAINT;
    for (int i = 0; i < 2; i++) {
        info->aConstraintUsage[place[i]].argvIndex = i + 1;
        info->aConstraintUsage[place[i]].omit = 1;
    }
    info->estimatedCost = 64;
    info->estimatedRows = 64;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor)
{
    struct cursor *c = sqlite3_malloc(sizeof(*c));
    (void)table;

    if (!c) return SQLITE_NOMEM;
    memset(c, 0, sizeof(*c));
    *cursor = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
    struct cursor *c = (struct cursor *)cursor;
    sqlite3_free(c->bytes);
    sqlite3_free(c);
    return SQLITE_OK;
}

static int complain(struct cursor *c)
{
    sqlite3_free(c->base.pVtab->zErrMsg);
    c->base.pVtab->zErrMsg = sqlite3_mprintf("expert_counts: %s", not_counts);
    return SQLITE_ERROR;
}

/* As many rows as the longer array has counts. */
static int read_next(struct cursor *c)
{
    c->at_end = c->tokens_at == c->tokens_end && c->dropped_at == c->dropped_end;
    c->tokens = c->dropped = 0;
    if (c->tokens_at < c->tokens_end && !syi_counts_next(&c->tokens_at, c->tokens_end, &c->tokens))
        return complain(c);
    if (c->dropped_at < c->dropped_end && !syi_counts_next(&c->dropped_at, c->dropped_end, &c->dropped))
        return complain(c);
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *name, int argc, sqlite3_value **argv)
{
    struct cursor *c = (struct cursor *)cursor;
    const void *tokens = sqlite3_value_blob(argv[0]), *dropped = sqlite3_value_blob(argv[1]);
    size_t n_tokens = (size_t)sqlite3_value_bytes(argv[0]), n_dropped = (size_t)sqlite3_value_bytes(argv[1]);
    (void)number, (void)name, (void)argc;

    sqlite3_free(c->bytes);
    c->bytes = sqlite3_malloc64(n_tokens + n_dropped + 1);
    if (!c->bytes) return SQLITE_NOMEM;
    if (n_tokens) memcpy(c->bytes, tokens, n_tokens);
    if (n_dropped) memcpy(c->bytes + n_tokens, dropped, n_dropped);
    c->tokens_at = c->bytes;
    c->tokens_end = c->dropped_at = c->bytes + n_tokens;
    c->dropped_end = c->dropped_at + n_dropped;
    c->expert = 0;
    return read_next(c);
}

static int next(sqlite3_vtab_cursor *cursor)
{
    struct cursor *c = (struct cursor *)cursor;
    c->expert++;
    return read_next(c);
}

static int at_end(sqlite3_vtab_cursor *cursor)
{
    return ((struct cursor *)cursor)->at_end;
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int i)
{
    const struct cursor *c = (struct cursor *)cursor;
    switch ((enum column)i) {
    case EXPERT: sqlite3_result_int64(context, c->expert); break;
    case TOKENS: sqlite3_result_int64(context, c->tokens); break;
    case DROPPED: sqlite3_result_int64(context, c->dropped); break;
    case TOKENS_ARRAY:
    case DROPPED_ARRAY: break; /* NULL: whoever gave them has them */
    }
    return SQLITE_OK;
}

static int row_number(sqlite3_vtab_cursor *cursor, sqlite3_int64 *number)
{
    *number = ((struct cursor *)cursor)->expert;
    return SQLITE_OK;
}

static const sqlite3_module module = {.xConnect = connect,
                                      .xBestIndex = best_index,
                                      .xDisconnect = disconnect,
                                      .xOpen = open_cursor,
                                      .xClose = close_cursor,
                                      .xFilter = filter,
                                      .xNext = next,
                                      .xEof = at_end,
                                      .xColumn = column,
                                      .xRowid = row_number};

/* ---- the sum ---- */

static void counts_sum(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    const unsigned char *at = sqlite3_value_blob(argv[0]);
    const unsigned char *end = at ? at + sqlite3_value_bytes(argv[0]) : at;
    uint64_t sum = 0;
    int64_t count;
    (void)argc;

    while (at < end) {
        if (!syi_counts_next(&at, end, &count)) {
            sqlite3_result_error(context, not_counts, -1);
            return;
        }
        sum = syi_add_u64(sum, (uint64_t)count);
    }
    sqlite3_result_int64(context, sum < INT64_MAX ? (int64_t)sum : INT64_MAX);
}

/* ---- the aggregate ---- */

enum { MOST_EXPERTS = 1 << 20 };

struct counts {
    int64_t *count; /* (n), room for `room` */
    int n, room;
};

static void free_counts(struct counts *counts)
{
    sqlite3_free(counts->count);
    memset(counts, 0, sizeof(*counts));
}

/* Room for one more expert; the counts between are 0. */
static int reach(struct counts *counts, int n)
{
    if (n > counts->room) {
        int room = n > 2 * counts->room ? n + 16 : 2 * counts->room;
        int64_t *more = sqlite3_realloc64(counts->count, (sqlite3_uint64)room * sizeof(*more));
        if (!more) return 0;
        memset(more + counts->room, 0, (size_t)(room - counts->room) * sizeof(*more));
        counts->count = more;
        counts->room = room;
    }
    if (n > counts->n) counts->n = n;
    return 1;
}

static void array_step(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    struct counts *counts = sqlite3_aggregate_context(context, sizeof(*counts));
    int64_t expert = sqlite3_value_int64(argv[0]), count = sqlite3_value_int64(argv[1]);
    (void)argc;

    if (expert < 0 || expert >= MOST_EXPERTS || count < 0)
        sqlite3_result_error(context, "counts_array: an expert or a count is out of range", -1);
    else if (!counts || !reach(counts, (int)expert + 1))
        sqlite3_result_error_nomem(context);
    else
        counts->count[expert] = count;
}

static void array_final(sqlite3_context *context)
{
    struct counts *counts = sqlite3_aggregate_context(context, sizeof(*counts));
    unsigned char *bytes;

    if (!counts) {
        sqlite3_result_error_nomem(context);
        return;
    }
    bytes = sqlite3_malloc64((sqlite3_uint64)counts->n * SYI_COUNT_BYTES + 1);
    if (bytes)
        sqlite3_result_blob(context, bytes, (int)syi_counts_encode(counts->count, counts->n, bytes),
                            sqlite3_free);
    else
        sqlite3_result_error_nomem(context);
    free_counts(counts);
}

int syi_expert_counts_register(sqlite3 *db)
{
    int kind = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
#ifdef SQLITE_INNOCUOUS
    kind |= SQLITE_INNOCUOUS;
#endif
    int code = sqlite3_create_module_v2(db, "expert_counts", &module, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_create_function_v2(db, "counts_sum", 1, kind, NULL, counts_sum, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_create_function_v2(db, "counts_array", 2, kind, NULL, NULL, array_step, array_final,
                                          NULL);
    return code;
}
