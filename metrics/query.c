/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a user's SQL, or sums a run or several up: lines of text in one of four formats. */
#include "config.h"

#include <sqlite3.h>
#include <string.h>

#include "base/text.h"
#include "metrics/query.h"
#include "metrics/query_table.h"
#include "metrics/rows_text.h"

static const size_t ANSWER = (size_t)1 << 30; /* bytes */

static const struct section {
    const char *title, *sql;
} of_one[] = {
    {"attempts", "SELECT attempt, time, start_step, host, version FROM run ORDER BY attempt"},
    {"loss, all its terms (loss_parts has each)",
     /* steps from valid_metric, which of a long run is quicker than loss_curve */
     "SELECT step, loss, learning_rate FROM loss_curve WHERE step IN (SELECT (SELECT min(step) FROM "
     "valid_metric WHERE name = 'loss' AND step >= quarter * (SELECT step FROM valid_metric WHERE name = 'loss' "
     "ORDER BY attempt DESC, step DESC LIMIT 1) / 4) FROM (SELECT 0 AS "
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
     /* a row of many steps counts as the time of them; in rows of versions that did not keep it all count alike */
     "(SELECT sum(speed * seconds) / sum(seconds) FROM (SELECT "
     "max(CASE name WHEN 'tokens_per_second' THEN value END) AS speed, "
     "coalesce(max(CASE name WHEN 'timing/seconds' THEN value END), 1) AS seconds FROM all_metric b "
     "WHERE b.run = a.run AND name IN ('tokens_per_second', 'timing/seconds') GROUP BY step) "
     "WHERE speed NOT NULL) AS tokens_per_second, "
     "(SELECT kind FROM all_event b WHERE b.run = a.run AND kind IN ('done', 'stop', 'preemption', 'start', 'resume') "
     "ORDER BY attempt DESC, kind IN ('start', 'resume'), time DESC LIMIT 1) AS last_event "
     "FROM (SELECT DISTINCT run FROM all_run) a LEFT JOIN all_loss l ON l.run = a.run GROUP BY a.run ORDER BY a.run"},
    {"evaluation, newest and best",
     "SELECT l.task, l.name, l.run, l.step, l.value, lowest, highest, l.settings FROM all_eval_latest l "
     "JOIN (SELECT run, task, name, settings, min(value) AS lowest, max(value) AS highest FROM all_eval "
     "GROUP BY run, task, name, settings) e "
     "ON e.run = l.run AND e.task = l.task AND e.name = l.name AND e.settings IS l.settings "
     "ORDER BY l.task, l.name, l.settings, l.run"},
};
enum { MOST_SECTIONS = SYI_COUNT(of_one) };

/* Every section that has rows, under its title. */
static int print_summary(const struct section *summary, size_t n, const struct syi_query_table *tables,
                         enum syi_query_format format, syi_query_line_fn line, void *arg,
                         struct sy_error *err)
{
    int status = SY_OK, printed = 0;

    for (size_t i = 0; i < n && status == SY_OK; i++) {
        if (tables[i].n_rows < 2) continue;
        if (printed++) status = line(arg, "");
        if (status == SY_OK) status = line(arg, summary[i].title);
        if (status == SY_OK) status = syi_query_table_print(&tables[i], format, line, arg, err);
    }
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

static int read_answer(struct syi_reading *r, const struct syi_query *query, struct answer *answer,
                       struct sy_error *err)
{
    const struct syi_question question = {query->sql, query->given, query->n_given,
                                          add_head,   add_row,      answer};
    answer->is_json = query->format == SYI_QUERY_JSON;
    answer->room = r->bytes;
    int status = syi_reading_ask(r, &question, err);
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
static int read_tables(struct syi_reading *r, const struct syi_query *query, const struct section *summary,
                       struct syi_query_table *tables, size_t n, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < n && status == SY_OK; i++)
        status = syi_query_table_read(r, query, query->sql ? query->sql : summary[i].sql, &tables[i], err);
    return status;
}

int syi_query_run(const char *path, const struct syi_query *query, syi_query_line_fn line, void *arg,
                  struct sy_error *err)
{
    struct syi_query_table tables[MOST_SECTIONS];
    const struct section *summary = query->n_others ? of_several : of_one;
    struct answer answer = {{0}, 0, 0, 0};
    size_t n = query->sql ? 1 : query->n_others ? SYI_COUNT(of_several) : SYI_COUNT(of_one);
    int for_programs = query->format == SYI_QUERY_CSV || query->format == SYI_QUERY_JSON, status;
    struct syi_reading r = {.path = path,
                            .seconds = query->seconds > 0 ? query->seconds : SYI_READING_SECONDS,
                            .bytes = query->bytes ? query->bytes : ANSWER,
                            .rounds = !query->sql && query->format == SYI_QUERY_COLUMNS};

    if (for_programs && !query->sql)
        return syi_error(err, SY_EINVAL,
                         "metrics: the summary is several tables: for CSV or JSON ask with SQL");
    status = syi_reading_open(path, query->others, query->n_others, &r.db, err);
    if (status) return status;
    memset(tables, 0, sizeof(tables));
    syi_reading_begin(&r);
    status =
        for_programs ? read_answer(&r, query, &answer, err) : read_tables(&r, query, summary, tables, n, err);
    sqlite3_close(r.db);
    if (status == SY_OK && for_programs)
        status = print_answer(&answer, line, arg);
    else if (status == SY_OK)
        status = query->sql ? syi_query_table_print(&tables[0], query->format, line, arg, err)
                            : print_summary(summary, n, tables, query->format, line, arg, err);
    for (size_t i = 0; i < n; i++) syi_query_table_free(&tables[i]);
    syi_text_free(&answer.text);
    return status;
}
