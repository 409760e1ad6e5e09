/* SPDX-License-Identifier: Apache-2.0 */
/* What experts got: arrays of counts there and back, blocks that add up to the valid rows whatever was resumed, and a
 * database of version 2 that goes on. */
#include "config.h"

#include <unistd.h>

#include "metrics/counts.h"
#include "metrics/schema.h"
#include "metrics_support.h"

/* ---- arrays of counts ---- */

Test(metrics_routing, counts_come_back)
{
    static const int64_t count[] = {0, 1, 127, 128, 300, 16383, 16384, INT32_MAX, INT64_MAX, 5};
    unsigned char bytes[SYI_COUNT(count) * SYI_COUNT_BYTES];
    size_t n = syi_counts_encode(count, SYI_COUNT(count), bytes);
    const unsigned char *at = bytes;
    int64_t back;

    for (size_t i = 0; i < SYI_COUNT(count); i++)
        cr_assert(syi_counts_next(&at, bytes + n, &back) && back == count[i]);
    cr_assert(at == bytes + n && !syi_counts_next(&at, bytes + n, &back));
    /* 300 = 2 * 128 + 44, as the manual says */
    cr_assert(syi_counts_encode((int64_t[]){300}, 1, bytes) == 2 && bytes[0] == 0xac && bytes[1] == 0x02);
}

/* What is no array of counts is an error or an array of others, never more. */
Test(metrics_routing, bytes_that_are_no_counts)
{
    static const char *const wrong[] = {"x'80'", "x'ffffffffffffffffffff01'", "x'05ff'"};
    const char *path = write_fresh("metrics.db", "", 0);
    sqlite3 *db = open_reader(path);
    char sql[200];

    for (size_t i = 0; i < SYI_COUNT(wrong); i++) {
        snprintf(sql, sizeof(sql), "SELECT sum(tokens) FROM expert_counts(%s, x'')", wrong[i]);
        cr_assert(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_ERROR);
        cr_assert(strstr(sqlite3_errmsg(db), "no array of counts"), "%s", sqlite3_errmsg(db));
        snprintf(sql, sizeof(sql), "SELECT counts_sum(%s)", wrong[i]);
        cr_assert(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_ERROR);
    }
    cr_assert(sqlite3_exec(db, "SELECT * FROM expert_counts", NULL, NULL, NULL) == SQLITE_ERROR);
    sqlite3_close(db);
    cr_assert(ask(path, "SELECT count(*) FROM expert_counts(NULL, NULL)") == 0);
    cr_assert(
        ask(path,
            "SELECT sum(expert * 10000 + tokens * 100 + dropped) FROM expert_counts(x'0102', x'000003')") ==
        100 + 10200 + 20003);
    cr_assert(
        ask(path, "SELECT hex(counts_array(column1, column2)) = '0500AC02' FROM (VALUES (2, 300), (0, 5))") ==
        1);
    remove_path(path);
}

/* ---- blocks ---- */

static void put_steps(const char *path, int64_t start, int64_t first, int64_t last, int64_t every,
                      uint32_t *random)
{
    struct syi_metric_sink sink = open_sink(path, start, 0);
    static const char *const layers[] = {"encoder/layers_1/mlp", "decoder/layers_1/mlp"};

    for (int64_t step = first; step <= last; step++)
        for (size_t layer = 0; layer < 2 && step % every == 0; layer++) {
            int64_t tokens[3], dropped[3];
            for (int i = 0; i < 3; i++) {
                *random = *random * 1664525 + 1013904223;
                tokens[i] = *random >> 20;
                dropped[i] = *random >> 8 & 1 ? *random >> 24 : 0;
            }
            cr_assert(sink.routing(sink.arg, step, layers[layer], 3, tokens, dropped, NULL) == SY_OK);
        }
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
}

/* The blocks that count are the rows that count, an expert and a block at a time. */
static void expect_equal_totals(const char *path, const char *when)
{
    double wrong = ask(
        path,
        "WITH a AS (SELECT layer, expert, (step - 1) / 1000 AS block, count(*) AS n, min(step) AS low, max(step) AS high, "
        "sum(tokens) AS tokens, sum(dropped) AS dropped FROM valid_routing GROUP BY 1, 2, 3), "
        "b AS (SELECT layer, expert, block, sum(steps) AS n, min(first_step) AS low, max(last_step) AS high, "
        "sum(tokens) AS tokens, sum(dropped) AS dropped FROM valid_routing_block GROUP BY 1, 2, 3) "
        "SELECT (SELECT count(*) FROM (SELECT * FROM a EXCEPT SELECT * FROM b)) + "
        "(SELECT count(*) FROM (SELECT * FROM b EXCEPT SELECT * FROM a))");
    cr_assert(wrong == 0, "%s: %g blocks differ", when, wrong);
    /* and nothing is lost of what was replaced */
    wrong =
        ask(path, "SELECT (SELECT sum(c.tokens) FROM routing r JOIN expert_counts(r.tokens, r.dropped) c) - "
                  "(SELECT sum(tokens) FROM routing_block)");
    cr_assert(wrong == 0, "%s: rows and blocks of all attempts differ by %g", when, wrong);
}

/* Resumed within a block, at its edges, before an earlier resume, after it, from the start, at a step without rows, and
 * from where the run had not come. */
Test(metrics_routing, blocks_are_the_valid_rows)
{
    static const struct {
        int64_t start, last, every;
    } attempts[] = {{-1, 2500, 1},   {1300, 1700, 1}, {1200, 2999, 7}, {2000, 2600, 1},
                    {1000, 1001, 1}, {1001, 3100, 3}, {999, 1500, 1},  {-1, 800, 10},
                    {455, 2100, 10}, {455, 460, 1},   {0, 40, 10},     {40, 1100, 1}};
    const char *path = fresh_path("metrics.db");
    uint32_t random = 12345;
    char when[60];

    for (size_t i = 0; i < SYI_COUNT(attempts); i++) {
        int64_t first = attempts[i].start < 0 ? 1 : attempts[i].start + 1;
        put_steps(path, attempts[i].start, first, attempts[i].last, attempts[i].every, &random);
        snprintf(when, sizeof(when), "attempt %zu", i + 1);
        expect_equal_totals(path, when);
    }
    cr_assert(ask(path, "SELECT count(*) FROM run") == SYI_COUNT(attempts));
    cr_assert(ask(path, "SELECT count(*) FROM routing_block WHERE part > 1") > 0,
              "no block was divided twice");
    cr_assert(ask(path, "SELECT sum(tokens) - (SELECT sum(tokens) FROM valid_routing) FROM dropped_tokens") ==
              0);
    remove_path(path);
}

/* A run that goes back to a checkpoint goes on as another attempt, in one transaction with what came before: to the start,
 * twice within a block, to its edge. What it replaced is no part of the totals. */
Test(metrics_routing, blocks_of_a_run_that_went_back)
{
    static const int64_t to[] = {0, 10, 650, 1000}, last[] = {720, 30, 900, 1100, 1010};
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    int64_t step = 1;

    for (size_t i = 0; i < SYI_COUNT(last); i++) {
        for (; step <= last[i]; step++) {
            const int64_t tokens[] = {step, 3 * (int64_t)i}, dropped[] = {(int64_t)i, 0};
            cr_assert(sink.routing(sink.arg, step, "x", 2, tokens, dropped, NULL) == SY_OK);
        }
        if (i == SYI_COUNT(to)) break;
        cr_assert(sink.back(sink.arg, to[i], NULL) == SY_OK);
        step = to[i] + 1;
    }
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    expect_equal_totals(path, "after four ways back");
    cr_assert(ask(path, "SELECT count(*) FROM run WHERE config = 'train.seed = 7\n'") == 5);
    cr_assert(ask(path, "SELECT tokens FROM dropped_tokens WHERE expert = 0") == 1010 * 1011 / 2);
    cr_assert(ask(path, "SELECT dropped FROM dropped_tokens WHERE expert = 0") ==
              1 * 10 + 2 * 640 + 3 * 350 + 4 * 10);
    remove_path(path);
}

/* The same layer and step again changes nothing. */
Test(metrics_routing, a_step_counts_once)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    for (int i = 1; i <= 3; i++)
        cr_assert(sink.routing(sink.arg, 5, "x", 2, (int64_t[]){i, 1}, (int64_t[]){0, 1}, NULL) == SY_OK);
    cr_assert(sink.flush(sink.arg, 60, NULL) == SY_OK);
    cr_assert(sink.routing(sink.arg, 5, "x", 2, (int64_t[]){9, 9}, (int64_t[]){0, 1}, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT sum(tokens) FROM valid_routing") == 2);
    cr_assert(ask(path, "SELECT sum(tokens) + 10 * sum(steps) FROM valid_routing_block") == 22);
    remove_path(path);
}

/* ---- version 2 ---- */

static const char *copy_of_version_2(void)
{
    const char *top = getenv("abs_top_srcdir");
    char path[4200], *bytes;
    size_t n;
    struct sy_error err = {0};

    cr_assert(top != NULL, "abs_top_srcdir is not set");
    snprintf(path, sizeof(path), "%s/tests/golden/metrics/version-2.db", top);
    cr_assert(syi_file_read(path, &bytes, &n, &err) == SY_OK, "%s", err.text);
    const char *copy = write_fresh("metrics.db", bytes, n);
    syi_free(bytes);
    return copy;
}

/* Made by a program of version 2: 6 steps, then on from step 4 to step 8. All its rows are there, as they were seen, and
 * training goes on in it. A table and a view that a user made stay. */
Test(metrics_routing, version_2_goes_on)
{
    static const char *const questions[] = {
        "SELECT sum(loss * step) FROM loss_curve",
        "SELECT count(*) FROM metric",
        "SELECT sum(tokens * (expert + 2) * step) FROM valid_routing",
        "SELECT sum(dropped * (expert + 2) * step) FROM valid_routing",
        "SELECT sum(share * step) FROM expert_load WHERE expert = 1",
        "SELECT sum(value * step) FROM eval_latest",
        "SELECT count(*) FROM eval",
        "SELECT sum(rowid * length(kind || text || time) * step) FROM event",
        "SELECT sum(length(config) * attempt + start_step) FROM run",
        "SELECT n FROM mine",
    };
    const char *path = copy_of_version_2();
    double before[SYI_COUNT(questions)];

    change(path,
           "CREATE TABLE notes (x); CREATE VIEW mine AS SELECT count(*) AS n FROM metric WHERE step = 5");
    cr_assert(ask(path, "PRAGMA user_version") == 2);
    for (size_t i = 0; i < SYI_COUNT(questions); i++) before[i] = ask(path, questions[i]);
    struct syi_metric_sink sink = open_sink(path, 4, 1); /* an evaluation: no new attempt */
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "PRAGMA user_version") == SYI_SCHEMA_VERSION);
    for (size_t i = 0; i < SYI_COUNT(questions); i++) {
        double after = ask(path, questions[i]);
        cr_assert(before[i] != 0 && after == before[i], "%s: %.17g, before %.17g", questions[i], after,
                  before[i]);
    }
    cr_assert(ask(path, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'old_%'") == 0);
    expect_equal_totals(path, "migrated");
    sink = open_sink(path, 7, 0);
    cr_assert(sink.metric(sink.arg, 8, "loss", 2.5, NULL) == SY_OK);
    cr_assert(sink.routing(sink.arg, 8, "encoder/layers_1/mlp", 4, (int64_t[]){1, 2, 3, 4},
                           (int64_t[]){0, 0, 0, 1}, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT max(attempt) FROM run") == 3);
    cr_assert(ask(path, "SELECT loss FROM loss_curve WHERE step = 8") == 2.5);
    cr_assert(ask(path, "SELECT count(*) FROM loss_curve") == 8);
    expect_equal_totals(path, "gone on");
    cr_assert(ask(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1);
    remove_path(path);
}

/* All or nothing: where the rows do not fit into the new tables, the file stays what it was. */
Test(metrics_routing, a_migration_that_fails_changes_nothing)
{
    const char *path = copy_of_version_2();
    struct syi_store_options options = {.start_step = 4, .config = ""};
    struct syi_metric_sink sink;
    struct sy_error err = {0};

    change(path, "UPDATE routing SET tokens = -1 WHERE step = 3 AND expert = 2");
    double rows = ask(path, "SELECT count(*) + 1000 * sum(tokens) FROM routing");
    cr_assert(syi_store_open(path, &options, &sink, &err) == SY_EIO && strstr(err.text, "out of range"), "%s",
              err.text);
    cr_assert(ask(path, "PRAGMA user_version") == 2);
    cr_assert(ask(path, "SELECT count(*) + 1000 * sum(tokens) FROM routing") == rows);
    cr_assert(ask(path, "SELECT count(*) FROM loss_curve") == 8);
    remove_path(path);
}
