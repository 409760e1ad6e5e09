/* SPDX-License-Identifier: Apache-2.0 */
/* A run's numbers for other programs: CSV, JSON, typed rows, choice by name and step, files of TensorBoard. */
#include "config.h"

#include <math.h>

#include "base/json.h"
#include "data_support.h"
#include "metrics/export.h"
#include "metrics/query.h"
#include "metrics/selection.h"
#include "metrics/store.h"
#include "metrics/tensorboard.h"

static const char *make_run(void)
{
    const char *path = fresh_path("metrics.db");
    struct syi_store_options options = {.start_step = -1, .config = ""};
    struct syi_metric_sink sink;

    cr_assert_eq(syi_store_open(path, &options, &sink, NULL), SY_OK);
    for (int step = 1; step <= 5; step++)
        cr_assert_eq(sink.metric(sink.arg, step, "loss", step == 3 ? NAN : 1.0 / step, NULL), SY_OK);
    cr_assert_eq(sink.metric(sink.arg, 5, "experts/[x]", 2, NULL), SY_OK);
    cr_assert_eq(sink.eval(sink.arg, 4, "g2p/valid", "wer", 0.5, "", NULL), SY_OK);
    cr_assert_eq(sink.event(sink.arg, 5, "stop", "a \"quote\", a comma\nand a line", NULL), SY_OK);
    cr_assert_eq(sink.close(sink.arg, NULL), SY_OK);
    return path;
}

static int keep_text(void *arg, const char *line)
{
    struct syi_text *text = arg;
    syi_text_puts(text, line);
    syi_text_puts(text, "\n");
    return SY_OK;
}

static void expect(const char *path, const char *sql, enum syi_query_format format, const char *wanted)
{
    const struct syi_query query = {.sql = sql, .format = format};
    struct syi_text text = {0};
    struct sy_error err = {0};
    cr_assert_eq(syi_query_run(path, &query, keep_text, &text, &err), SY_OK, "%s", err.text);
    cr_assert_str_eq(text.data, wanted);
    syi_text_free(&text);
}

Test(metrics_export, csv_is_that_of_the_rfc)
{
    const char *path = make_run();
    expect(path, "SELECT step, text FROM event", SYI_QUERY_CSV,
           "step,text\r\n5,\"a \"\"quote\"\", a comma\nand a line\"\r\n");
    expect(path, "SELECT NULL AS n, '' AS empty, 1e300 AS r, x'00ff' AS b, 'a\rb' AS c", SYI_QUERY_CSV,
           "n,empty,r,b,c\r\n,\"\",1e+300,00ff,\"a\rb\"\r\n");
    expect(path, "SELECT step FROM event WHERE step > 5", SYI_QUERY_CSV, "step\r\n");
    remove_path(path);
}

Test(metrics_export, json_is_an_array_of_objects)
{
    const char *path = make_run();
    expect(path, "SELECT step, value FROM metric WHERE name = 'loss' AND step IN (2, 3)", SYI_QUERY_JSON,
           "[\n{\"step\":2,\"value\":0.5},\n{\"step\":3,\"value\":null}\n]\n");
    expect(path, "SELECT 9e999 AS i, -9e999 AS j, 'a\"b' AS t, x'0f' AS b", SYI_QUERY_JSON,
           "[\n{\"i\":null,\"j\":null,\"t\":\"a\\\"b\",\"b\":\"0f\"}\n]\n");
    expect(path, "SELECT 1 WHERE 0", SYI_QUERY_JSON, "[]\n");
    remove_path(path);
}

Test(metrics_export, a_summary_is_no_single_table)
{
    const char *path = make_run();
    const struct syi_query query = {.format = SYI_QUERY_JSON};
    struct sy_error err = {0};
    cr_assert_eq(syi_query_run(path, &query, keep_text, NULL, &err), SY_EINVAL);
    cr_assert(strstr(err.text, "SQL"));
    remove_path(path);
}

static void expect_selection(const char *path, struct syi_selection selection, const char *wanted)
{
    struct syi_text text = {0};
    struct sy_error err = {0};
    selection.format = SYI_QUERY_TSV;
    cr_assert_eq(syi_selection_run(path, &selection, keep_text, &text, &err), SY_OK, "%s", err.text);
    cr_assert_str_eq(text.data, wanted);
    syi_text_free(&text);
}

Test(metrics_export, selection)
{
    const char *path = make_run();
    expect_selection(path, (struct syi_selection){.from = 2, .to = 3, .pattern = "lo?s"},
                     "step\tname\tvalue\n2\tloss\t0.5\n3\tloss\t\n");
    expect_selection(path, (struct syi_selection){.from = 0, .to = 9, .pattern = "*[x]"},
                     "step\tname\tvalue\n5\texperts/[x]\t2\n");
    expect_selection(path, (struct syi_selection){.from = 0, .to = 9, .pattern = "g2p/valid/*"},
                     "step\tname\tvalue\n4\tg2p/valid/wer\t0.5\n");
    expect_selection(path, (struct syi_selection){.from = INT64_MIN, .to = INT64_MAX, .list = 1},
                     "kind\tname\trows\tfirst_step\tlast_step\nevaluation\tg2p/valid/wer\t1\t4\t4\n"
                     "metric\texperts/[x]\t1\t5\t5\nmetric\tloss\t5\t1\t5\n");
    remove_path(path);
}

/* ---- rows for programs ---- */

static int stop_at_second(void *arg, const struct syi_row *row, struct sy_error *err)
{
    int *n = arg;
    cr_assert_eq(row->n, 2);
    cr_assert_str_eq(row->names[1], "value");
    cr_assert_eq(row->values[0].kind, SYI_VALUE_INTEGER);
    cr_assert_float_eq(syi_value_number(&row->values[1]), 1.0 / row->values[0].integer, 1e-15);
    return ++*n == 2 ? syi_error(err, SY_ESTOPPED, "enough") : SY_OK;
}

Test(metrics_export, a_reader_of_rows_may_stop)
{
    const char *path = make_run();
    struct syi_reader *reader;
    struct sy_error err = {0};
    int n = 0;
    const struct syi_value name = {.kind = SYI_VALUE_TEXT, .text = "loss", .bytes = 4};
    const struct syi_question question = {.sql = "SELECT step, value FROM metric WHERE name = ?1",
                                          .given = &name,
                                          .n_given = 1,
                                          .row = stop_at_second,
                                          .arg = &n},
                              change = {.sql = "DELETE FROM metric", .row = stop_at_second};
    cr_assert_eq(syi_reader_open(path, 0, &reader, &err), SY_OK);
    cr_assert_eq(syi_reader_ask(reader, &question, &err), SY_ESTOPPED);
    cr_assert_eq(n, 2);
    err = (struct sy_error){0};
    cr_assert_eq(syi_reader_ask(reader, &change, &err), SY_EINVAL);
    syi_reader_close(reader);
    remove_path(path);
}

/* ---- TensorBoard ---- */

Test(metrics_export, crc32c_vectors)
{
    unsigned char zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    cr_expect_eq(syi_crc32c(0, "123456789", 9), 0xe3069283u);
    cr_expect_eq(syi_crc32c(0, zeros, sizeof zeros), 0x8a9136aau); /* RFC 3720 B.4 */
    cr_expect_eq(syi_crc32c(0, ones, sizeof ones), 0x62a8ab43u);
    cr_expect_eq(syi_crc32c(syi_crc32c(0, "1234567", 7), "89", 2), 0xe3069283u);
    cr_expect_eq(syi_crc32c_masked("", 0), 0xa282ead8u);
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

/* The length of the record at `at`, whose frame must be right. */
static size_t check_record(const unsigned char *at, size_t left)
{
    cr_assert(left >= 16);
    size_t bytes = little(at, 8);
    cr_assert(bytes <= left - 16);
    cr_assert_eq(little(at + 8, 4), syi_crc32c_masked(at, 8));
    cr_assert_eq(little(at + 12 + bytes, 4), syi_crc32c_masked(at + 12, bytes));
    return bytes;
}

Test(metrics_export, records_of_event_files)
{
    /* time 1.5, step 300, a summary of tag "ab" and 0.25, byte by byte of the encoding of protocol buffers. */
    static const unsigned char scalar[] = {0x09, 0,    0,    0,    0,    0,    0,   0xf8, 0x3f,
                                           0x10, 0xac, 0x02, 0x2a, 0x0b, 0x0a, 9,   0x0a, 2,
                                           'a',  'b',  0x15, 0,    0,    0x80, 0x3e};
    const char *path = fresh_path("x");
    struct syi_events *events;
    char *folder = syi_strdup(path, NULL), *file, *text;
    size_t bytes;
    *strrchr(folder, '/') = '\0';
    cr_assert_eq(syi_events_open(folder, 12, &events, NULL), SY_OK);
    file = syi_strdup(syi_events_path(events), NULL);
    cr_assert_eq(syi_events_scalar(events, 1.5, 300, "ab", 0.25, NULL), SY_OK);
    cr_assert_eq(syi_events_text(events, 1.5, 300, "t", "words", NULL), SY_OK);
    cr_assert_eq(syi_events_close(events, NULL), SY_OK);
    cr_assert_eq(syi_file_read(file, &text, &bytes, NULL), SY_OK);
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    size_t length = check_record(at, bytes);
    cr_assert(length == 9 + 2 + 13 && !memcmp(at + 12 + 11, "brain.Event:2", 13));
    at += length + 16;
    length = check_record(at, (size_t)(end - at));
    cr_assert_eq(length, sizeof scalar);
    cr_assert_arr_eq(at + 12, scalar, sizeof scalar);
    at += length + 16;
    length = check_record(at, (size_t)(end - at));
    cr_assert_eq(at + length + 16, end);
    syi_free(text);
    struct sy_error err = {0};
    cr_assert_neq(syi_events_open(folder, 12, &events, &err), SY_OK, "a file was written over");
    remove_path(file);
    syi_free(file);
    syi_free(folder);
}

static void count_file(void *arg, const char *file, int64_t rows)
{
    (void)file;
    *(int64_t *)arg += rows;
}

/* A task is whatever --file said: its files stay below the folder. */
Test(metrics_export, tasks_cannot_leave_the_folder)
{
    const char *path = make_run();
    struct syi_store_options options = {.start_step = -1, .append = 1, .config = ""};
    struct syi_metric_sink sink;
    char command[5000], folder[4400];
    int64_t rows = 0;
    cr_assert_eq(syi_store_open(path, &options, &sink, NULL), SY_OK);
    cr_assert_eq(sink.eval(sink.arg, 5, "../../../tmp/../x y.tsv", "wer", 1, "", NULL), SY_OK);
    cr_assert_eq(sink.eval(sink.arg, 5, "/a", "wer", 1, "", NULL), SY_OK);
    cr_assert_eq(sink.close(sink.arg, NULL), SY_OK);
    snprintf(folder, sizeof folder, "%s.tb", path);
    struct sy_error err = {0};
    cr_assert_eq(syi_export_tensorboard(path, folder, count_file, &rows, &err), SY_OK, "%s", err.text);
    cr_assert_eq(rows, 6 + 1 + 3);
    snprintf(command, sizeof command, "test $(find %s -name '*tfevents*' | wc -l) = 4", folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(syi_export_csv(path, folder, count_file, &rows, &err), SY_EINVAL,
                 "into a folder that is not empty");
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    remove_path(path);
}

/* Evaluated in one second, and of one name but for what a folder cannot be called. */
Test(metrics_export, tasks_have_a_folder_each)
{
    static const char *const tasks[] = {"a b", "a_b", "a?b", "gr\u00f6\u00dfe", "gr\u00fc\u00dfe"};
    const char *path = make_run();
    struct syi_store_options options = {.start_step = -1, .append = 1, .config = ""};
    struct syi_metric_sink sink;
    struct sy_error err = {0};
    char command[9000], folder[4400];
    int64_t rows = 0;

    cr_assert_eq(syi_store_open(path, &options, &sink, NULL), SY_OK);
    for (size_t i = 0; i < SYI_COUNT(tasks); i++)
        cr_assert_eq(sink.eval(sink.arg, 5, tasks[i], "wer", 1, "", NULL), SY_OK);
    cr_assert_eq(sink.close(sink.arg, NULL), SY_OK);
    snprintf(folder, sizeof folder, "%s.tb", path);
    cr_assert_eq(syi_export_tensorboard(path, folder, count_file, &rows, &err), SY_OK, "%s", err.text);
    snprintf(command, sizeof command,
             "cd %s && test -d a_b && test -d gr\u00f6\u00dfe && test $(ls -d a_b* gr* | wc -l) = 5", folder);
    cr_assert_eq(system(command), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    remove_path(path);
}
