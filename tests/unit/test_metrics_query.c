/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a run's database: layout, read-only, errors, the summary. */
#include "config.h"

#include <sqlite3.h>

#include "metrics_support.h"
#include "metrics/query.h"
#include "metrics/reading.h"

struct lines {
    char text[16384];
    int stop_after; /* 0: never */
    int n;
};

static int add_line(void *arg, const char *line)
{
    struct lines *lines = arg;

    if (lines->stop_after && lines->n == lines->stop_after) return SY_ESTOPPED;
    lines->n++;
    strncat(lines->text, line, sizeof(lines->text) - strlen(lines->text) - 2);
    strcat(lines->text, "\n");
    return SY_OK;
}

static const char *make_run(void)
{
    const char *path = fresh_path("metrics.db");
    struct syi_store_options options = {.start_step = -1, .config = ""};
    struct syi_metric_sink sink;

    cr_assert(syi_store_open(path, &options, &sink, NULL) == SY_OK);
    for (int step = 1; step <= 100; step++)
        cr_assert(sink.metric(sink.arg, step, "loss", 10.0 / step, NULL) == SY_OK);
    cr_assert(sink.metric(sink.arg, 7, "loss", 0.0 / 0.0, NULL) == SY_OK);
    cr_assert(sink.routing(sink.arg, 100, "encoder/layers_1/mlp", 2, (int64_t[]){30, 90}, (int64_t[]){2, 0},
                           NULL) == SY_OK);
    cr_assert(sink.eval(sink.arg, 100, "dev", "wer", 0.325, "", NULL) == SY_OK);
    cr_assert(sink.event(sink.arg, 100, "stop", "two\nlines\tand \\ a tab", NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    return path;
}

static int ask_lines(const char *path, const char *sql, enum syi_query_format format, struct lines *lines,
                     struct sy_error *err)
{
    const struct syi_query query = {.sql = sql, .format = format};
    return syi_query_run(path, &query, add_line, lines, err);
}

static void expect(const char *path, const char *sql, enum syi_query_format format, const char *text)
{
    struct lines lines = {0};
    struct sy_error err = {0};

    cr_assert(ask_lines(path, sql, format, &lines, &err) == SY_OK, "%s", err.text);
    cr_assert(strcmp(lines.text, text) == 0, "%s gives\n%s", sql, lines.text);
}

Test(metrics_query, layouts)
{
    const char *path = make_run();

    expect(path, "SELECT step, loss FROM loss_curve WHERE step IN (1, 4, 7, 100);", SYI_QUERY_TSV,
           "step\tloss\n1\t10\n4\t2.5\n7\t\n100\t0.1\n");
    expect(path, "SELECT step, loss FROM loss_curve WHERE step IN (1, 4, 7, 100)", SYI_QUERY_COLUMNS,
           "step  loss\n   1    10\n   4   2.5\n   7      \n 100   0.1\n");
    expect(path, "SELECT 'x' AS a, 1 AS n UNION ALL SELECT '\xc3\xa9\xc3\xa9\xc3\xa9', 22", SYI_QUERY_COLUMNS,
           "a     n\nx     1\n\xc3\xa9\xc3\xa9\xc3\xa9  22\n");
    expect(path, "SELECT kind, text FROM event", SYI_QUERY_TSV,
           "kind\ttext\nstop\ttwo\\nlines\\tand \\\\ a tab\n");
    expect(path, "SELECT step FROM loss_curve WHERE step > 1000", SYI_QUERY_TSV, "step\n");
    expect(path, "-- a comment\nSELECT 1 AS n; -- another\n; /* one more */", SYI_QUERY_TSV, "n\n1\n");
    /* a text ends at a NUL, and only that */
    expect(path, "SELECT 'a' || char(0) || 'b' AS t, 1 AS n UNION ALL SELECT char(0), 2", SYI_QUERY_CSV,
           "t,n\r\na,1\r\n\"\",2\r\n");
    /* in a terminal no text is an order: ESC, DEL, C1, and bytes that are no UTF-8 */
    expect(path, "SELECT char(27) || '[2J' || char(127, 155, 233) || CAST(x'9b' AS TEXT) AS t, 1 AS n",
           SYI_QUERY_COLUMNS, "t         n\n?[2J??\xc3\xa9?  1\n");
    remove_path(path);
}

Test(metrics_query, summary)
{
    const char *path = make_run();
    struct lines lines = {0};

    cr_assert(ask_lines(path, NULL, SYI_QUERY_COLUMNS, &lines, NULL) == SY_OK);
    cr_assert(strstr(lines.text, "attempts\n"));
    cr_assert(strstr(lines.text, "loss, all its terms (loss_parts has each)\n") &&
              strstr(lines.text, "  50") && strstr(lines.text, " 100"));
    cr_assert(strstr(lines.text, "evaluation, newest\n") && strstr(lines.text, "0.325"));
    cr_assert(strstr(lines.text, "expert load, last step\n") && strstr(lines.text, "0.75"));
    cr_assert(strstr(lines.text, "events, last ten\n"));
    remove_path(path);
}

Test(metrics_query, only_reads)
{
    static const struct {
        const char *sql, *words;
    } cases[] = {
        {"DELETE FROM metric", "only read"},
        {"DROP TABLE run", "only read"},
        {"PRAGMA journal_mode = WAL", "only read"},
        {"PRAGMA user_version = 6", "only read"},
        {"ATTACH '/tmp/other.db' AS o", "attached"},
        {"SELECT 1; SELECT 2", "more than one"},
        {"SELECT 1; -- then\n; SELECT 2", "more than one"},
        {"SELECT 1; then", "more than one"},
        {"", "empty"},
        {"-- nothing", "empty"},
        {"SELEC 1", "syntax error"},
        {"SELECT absent FROM metric", "no such column"},
    };
    const char *path = make_run();

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct lines lines = {0};
        struct sy_error err = {0};
        cr_assert(ask_lines(path, cases[i].sql, SYI_QUERY_TSV, &lines, &err) == SY_EINVAL, "%s: %s",
                  cases[i].sql, err.text);
        cr_assert(strstr(err.text, cases[i].words), "%s: %s", cases[i].sql, err.text);
        cr_assert(lines.n == 0 && !strchr(err.text, '\n'));
    }
    expect(path, "SELECT count(*) AS n FROM metric", SYI_QUERY_TSV, "n\n100\n");
    remove_path(path);
}

/* Answers without end, and steps of SQLite that would take for ever. */
Test(metrics_query, ends)
{
#define ALL_NUMBERS "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    static const struct {
        const char *sql, *words;
    } cases[] = {
        {ALL_NUMBERS "SELECT i FROM n", "larger than 1 MiB"},
        {ALL_NUMBERS "SELECT count(*) FROM n", "took more than 0.5 s"},
        {ALL_NUMBERS "SELECT i FROM n ORDER BY i", "took more than 0.5 s"},
        {ALL_NUMBERS "SELECT group_concat(i) FROM n", "took more than 0.5 s"},
        {"SELECT zeroblob(2000000)", "too big"},
        {"SELECT 'a' LIKE hex(zeroblob(600))", "pattern too complex"},
    };
    const char *path = make_run();

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct lines lines = {0};
        struct sy_error err = {0};
        const struct syi_query query = {.sql = cases[i].sql, .seconds = 0.5, .bytes = 1 << 20};
        double begin = syi_seconds();
        cr_expect_eq(syi_query_run(path, &query, add_line, &lines, &err), SY_EINVAL, "%s", cases[i].sql);
        cr_expect(strstr(err.text, cases[i].words), "%s: %s", cases[i].sql, err.text);
        cr_expect(lines.n == 0 && syi_seconds() - begin < 20);
    }
    remove_path(path);
#undef ALL_NUMBERS
}

Test(metrics_query, missing_and_foreign_files)
{
    struct sy_error err = {0}, other = {0};
    struct lines lines = {0};
    const char *path;

    cr_assert(ask_lines("/nonexistent/metrics.db", NULL, SYI_QUERY_TSV, &lines, &err) == SY_ENOENT);
    cr_assert(strstr(err.text, "/nonexistent/metrics.db"));
    path = write_fresh("metrics.db",
                       "this is some text, not a database, and it is longer than a header is: "
                       "one hundred bytes at the least",
                       100);
    cr_assert(ask_lines(path, NULL, SYI_QUERY_TSV, &lines, &other) == SY_EFORMAT, "%s", other.text);
    remove_path(path);
}

Test(metrics_query, a_printer_can_stop)
{
    struct lines lines = {.stop_after = 3};
    const char *path = make_run();

    cr_assert(ask_lines(path, "SELECT * FROM metric", SYI_QUERY_TSV, &lines, NULL) == SY_ESTOPPED);
    cr_assert(lines.n == 3);
    remove_path(path);
}

/* A killed writer's journal is rolled back, though the question itself only reads. The journal of an open
 * transaction is copied beside a copy of the database: that is what a kill leaves. */
Test(metrics_query, after_a_crash)
{
    const char *path = make_run();
    char command[20000];
    sqlite3 *db;

    cr_assert(sqlite3_open(path, &db) == SQLITE_OK);
    cr_assert(sqlite3_exec(db,
                           "PRAGMA cache_size = 1; BEGIN; UPDATE metric SET value = 77; "
                           "CREATE TABLE more AS SELECT zeroblob(9000) FROM metric",
                           NULL, NULL, NULL) == SQLITE_OK);
    snprintf(command, sizeof(command), "cp %s %s.crash && cp %s-journal %s.crash-journal", path, path, path,
             path);
    cr_assert(system(command) == 0);
    sqlite3_close(db);
    snprintf(command, sizeof(command), "%s.crash", path);
    expect(command, "SELECT count(*) AS n FROM metric WHERE value = 77", SYI_QUERY_TSV, "n\n0\n");
    remove(command);
    remove_path(path);
}

/* Tables that this program does not know are not read as if it did, and who has to do what is said. */
Test(metrics_query, other_versions_are_refused)
{
    static const struct {
        const char *sql, *words;
    } cases[] = {{"PRAGMA user_version = 8", "take the newer switchyard"},
                 {"PRAGMA user_version = 1", "start a new run"}};
    const char *path = make_run();

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct lines lines = {0};
        struct sy_error err = {0};
        change(path, cases[i].sql);
        cr_assert(ask_lines(path, NULL, SYI_QUERY_COLUMNS, &lines, &err) == SY_EFORMAT);
        cr_assert(strstr(err.text, cases[i].words), "%s", err.text);
    }
    remove_path(path);
}

/* Of a run that was killed in a transaction, for a user who may not write there: not that a SELECT writes. */
Test(metrics_query, a_journal_that_may_not_be_rolled_back)
{
    const char *path = make_run();
    struct sy_error err = {0};
    char journal[4300];
    sqlite3 *db;

    write_and_die(path);
    cr_assert(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    cr_assert(sqlite3_exec(db, "SELECT * FROM run", NULL, NULL, NULL) == SQLITE_READONLY);
    cr_assert(syi_reading_error(db, path, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "a killed writer left") && strstr(err.text, "as the owner"), "%s", err.text);
    sqlite3_close(db);
    snprintf(journal, sizeof(journal), "%s-journal", path);
    cr_assert(remove(journal) == 0);
    remove_path(path);
}
