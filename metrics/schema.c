/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the tables of schema.sql, or brings those of versions 2 to 6 to it. */
#include "config.h"

#include "metrics/schema.h"
#include "metrics/schema_sql.h"

/* Version 2 had one row of routing an expert, no times and no tasks in metric, and fewer tables. Its tables get other
 * names while theirs are made; its views come anew. Views and tables that a user added are not looked at. */
static const char set_aside[] =
    "PRAGMA legacy_alter_table = ON;"
    "DROP VIEW IF EXISTS valid_metric; DROP VIEW IF EXISTS valid_routing; DROP VIEW IF EXISTS valid_eval;"
    "DROP VIEW IF EXISTS loss_curve; DROP VIEW IF EXISTS expert_curve; DROP VIEW IF EXISTS expert_load;"
    "DROP VIEW IF EXISTS eval_latest;"
    "ALTER TABLE run RENAME TO old_run; ALTER TABLE metric RENAME TO old_metric;"
    "ALTER TABLE event RENAME TO old_event; ALTER TABLE routing RENAME TO old_routing;"
    "ALTER TABLE eval RENAME TO old_eval;";

/* Blocks: rows that a later attempt replaced are a part of their own, as where a run goes on (rollup.c). */
static const char move_rows[] =
    "INSERT INTO run (attempt, time, start_step, version, host, config)"
    " SELECT attempt, time, start_step, version, host, config FROM old_run;"
    "INSERT INTO metric (attempt, step, task, name, value) SELECT attempt, step, 'train', name, value FROM old_metric;"
    "INSERT INTO event (attempt, time, step, kind, text)"
    " SELECT attempt, time, step, kind, text FROM old_event ORDER BY rowid;"
    "INSERT INTO eval (id, attempt, time, step, task, name, value)"
    " SELECT id, attempt, time, step, task, name, value FROM old_eval;"
    "INSERT INTO routing (attempt, step, layer, tokens, dropped)"
    " SELECT attempt, step, layer, counts_array(expert, tokens), counts_array(expert, dropped)"
    " FROM old_routing GROUP BY attempt, step, layer;"
    "INSERT INTO routing_block (attempt, layer, expert, block, part, first_step, last_step, steps, tokens, dropped)"
    " SELECT attempt, layer, expert, block, replaced, min(step), max(step), count(*), sum(tokens), sum(dropped)"
    " FROM (SELECT attempt, layer, expert, (step - 1) / 1000 AS block, step, tokens, dropped, EXISTS"
    " (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step) AS replaced FROM old_routing m)"
    " GROUP BY attempt, layer, expert, block, replaced;"
    "DROP TABLE old_routing; DROP TABLE old_metric; DROP TABLE old_event; DROP TABLE old_eval; DROP TABLE old_run;";

/* Versions 3 and 4 lacked a table, version 5 judged some evaluations by the wrong side, version 6 lost means after an infinity.
 * Tables that are there stay; views come anew. */
static const char drop_views[] =
    "DROP VIEW IF EXISTS valid_metric; DROP VIEW IF EXISTS valid_parameter; DROP VIEW IF EXISTS valid_routing;"
    "DROP VIEW IF EXISTS valid_routing_block; DROP VIEW IF EXISTS valid_eval; DROP VIEW IF EXISTS valid_example;"
    "DROP VIEW IF EXISTS loss_curve; DROP VIEW IF EXISTS loss_smooth; DROP VIEW IF EXISTS gradient_spikes;"
    "DROP VIEW IF EXISTS throughput; DROP VIEW IF EXISTS timing; DROP VIEW IF EXISTS stop_reason;"
    "DROP VIEW IF EXISTS expert_curve; DROP VIEW IF EXISTS expert_load; DROP VIEW IF EXISTS expert_balance;"
    "DROP VIEW IF EXISTS dropped_tokens; DROP VIEW IF EXISTS eval_latest; DROP VIEW IF EXISTS evaluation_history;"
    "DROP VIEW IF EXISTS best_checkpoint; DROP VIEW IF EXISTS loss_parts; DROP VIEW IF EXISTS valid_eval_routing;"
    "DROP VIEW IF EXISTS expert_tasks;";

/* Version 3 lacked a column besides. */
static const char add_column[] = "ALTER TABLE eval ADD COLUMN settings TEXT";

static int migrate(const struct syi_database *database, int version, struct sy_error *err)
{
    int status = syi_database_run(database, version == 2 ? set_aside : drop_views, "migrate", err);

    if (!status && version == 3) status = syi_database_run(database, add_column, "migrate", err);
    if (!status) status = syi_database_run(database, syi_schema_sql, "make the tables of", err);
    if (!status && version == 2) status = syi_database_run(database, move_rows, "migrate", err);
    if (!status)
        syi_log(SY_LOG_INFO, "metrics: the tables of %s were of version %d and are of version %d now",
                database->path, version, SYI_SCHEMA_VERSION);
    return status;
}

int syi_schema_check_version(const char *path, int64_t version, struct sy_error *err)
{
    if (version >= 2 && version <= SYI_SCHEMA_VERSION) return SY_OK;
    return syi_error(err, SY_EFORMAT, "metrics: %s has tables of version %lld, this program writes %d; %s",
                     path, (long long)version, SYI_SCHEMA_VERSION,
                     version < 2 ? "start a new run" : "take the newer switchyard that wrote it");
}

int syi_schema_prepare(const struct syi_database *database, struct sy_error *err)
{
    int64_t application = 0, version = 0, n_objects = 0;
    int status = syi_database_ask(database, "SELECT count(*) FROM sqlite_master", &n_objects, err);

    if (status == SY_OK && n_objects == 0)
        return syi_database_run(database, syi_schema_sql, "make the tables of", err);
    if (status == SY_OK) status = syi_database_ask(database, "PRAGMA application_id", &application, err);
    if (status == SY_OK) status = syi_database_ask(database, "PRAGMA user_version", &version, err);
    if (status) return status;
    if (application != SYI_SCHEMA_APPLICATION)
        return syi_error(err, SY_EFORMAT,
                         "metrics: %s is another program's database; choose another run directory",
                         database->path);
    status = syi_schema_check_version(database->path, version, err);
    return status || version == SYI_SCHEMA_VERSION ? status : migrate(database, (int)version, err);
}
