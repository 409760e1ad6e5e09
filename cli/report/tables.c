/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a report: events, examples, configuration, straight from the database. */
#include "config.h"

#include <string.h>

#include "cli/report/report.h"

/* A table as it is written. */
struct table {
    struct syi_text *out;
    int64_t rows;
};

static void put_cell(struct syi_text *out, const struct syi_value *value)
{
    char number[SYI_NUMBER_BYTES];
    int is_text = value->kind == SYI_VALUE_TEXT;
    syi_text_puts(out, is_text ? "<td>" : "<td class=\"n\">");
    if (is_text) cli_html(out, value->text);
    if (value->kind == SYI_VALUE_INTEGER) syi_text_printf(out, "%lld", (long long)value->integer);
    if (value->kind == SYI_VALUE_REAL) {
        snprintf(number, sizeof number, "%.6g", value->real);
        syi_text_puts(out, number);
    }
    syi_text_puts(out, "</td>");
}

/* The head comes with the first row, which shows what columns are of numbers. */
static void put_head(struct table *table, const struct syi_row *row)
{
    syi_text_puts(table->out, "<div class=\"wide\"><table>\n<thead><tr>");
    for (int i = 0; i < row->n; i++) {
        syi_text_puts(table->out, row->values[i].kind == SYI_VALUE_TEXT ? "<th>" : "<th class=\"n\">");
        cli_html(table->out, row->names[i]);
        syi_text_puts(table->out, "</th>");
    }
    syi_text_puts(table->out, "</tr></thead>\n<tbody>\n");
}

static int put_row(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct table *table = arg;
    if (!table->rows++) put_head(table, row);
    syi_text_puts(table->out, "<tr>");
    for (int i = 0; i < row->n; i++) put_cell(table->out, &row->values[i]);
    syi_text_puts(table->out, "</tr>\n");
    return syi_text_status(table->out, err);
}

static int put_table(const struct cli_report_run *run, const char *title, const char *sql,
                     struct syi_text *out, struct sy_error *err)
{
    struct table table = {.out = out};
    const struct syi_question question = {.sql = sql, .row = put_row, .arg = &table};
    syi_text_printf(out, "<h3>%s</h3>\n", title);
    int status = syi_reader_ask(run->reader, &question, err);
    syi_text_puts(out, table.rows ? "</tbody></table></div>\n" : "<p class=\"empty\">There are none.</p>\n");
    return status;
}

static void put_config(const struct cli_report_run *run, struct syi_text *out)
{
    syi_text_puts(out, "<details><summary>Run configuration</summary>\n<pre>");
    cli_html(out, run->config && *run->config ? run->config : "The database has none.");
    syi_text_puts(out, "</pre></details>\n");
}

static const char newest_sql[] =
    "SELECT task, name, step, value, settings AS decoded FROM eval_latest ORDER BY task, name, settings";
/* Versions before 4 do not keep how texts were decoded. */
static const char newest_sql_3[] =
    "SELECT e.task, e.name, e.step, e.value FROM eval e JOIN (SELECT max(id) AS id FROM valid_eval GROUP BY task, name) l "
    "ON l.id = e.id ORDER BY e.task, e.id";

int cli_report_tables(const struct cli_report_run *run, struct syi_text *out, struct sy_error *err)
{
    int examples = 0, status = syi_reader_has(run->reader, "valid_example", &examples, err);
    if (!status && examples)
        status = put_table(run, "Examples, the newest 24",
                           "SELECT step, task, item, input, target, prediction, score FROM valid_example "
                           "ORDER BY step DESC, id LIMIT 24",
                           out, err);
    if (!status)
        status = put_table(run, "Newest results of evaluations",
                           syi_reader_version(run->reader) >= 4 ? newest_sql : newest_sql_3, out, err);
    if (!status)
        status = put_table(
            run, "Events, the last 100",
            "SELECT time, step, kind, text FROM (SELECT rowid AS id, * FROM event ORDER BY rowid DESC "
            "LIMIT 100) ORDER BY id",
            out, err);
    if (!status)
        status = put_table(
            run, "Attempts",
            "SELECT attempt, time, start_step AS \"from step\", host, version FROM run ORDER BY attempt", out,
            err);
    put_config(run, out);
    return status;
}
