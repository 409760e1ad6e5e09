/* SPDX-License-Identifier: Apache-2.0 */
/* A result as text for people and as TSV: all its cells are read, then laid out. */
#include "config.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "metrics/query_table.h"

/* ---- reading ---- */

/* Takes the bytes of a cell, and what keeps it, out of the room for the answer. */
static int take_room(struct syi_reading *r, size_t bytes, struct sy_error *err)
{
    bytes += 32;
    if (bytes > r->room)
        return syi_error(err, SY_EINVAL,
                         "metrics: the answer is larger than %zu MiB: ask for less, for example with LIMIT",
                         r->bytes >> 20);
    r->room -= bytes;
    return SY_OK;
}

static int add_cell(struct syi_reading *r, struct syi_query_table *table, const char *text, size_t bytes,
                    struct sy_error *err)
{
    struct syi_text cell = {0};
    const char *escape;
    int status = take_room(r, bytes, err);

    if (!status) status = SYI_GROW(table->cells, table->capacity, table->n_cells + 1, err);
    if (status) return status;
    for (size_t i = 0; i < bytes; i++) {
        escape = text[i] == '\t' ? "\\t" : text[i] == '\n' ? "\\n" : text[i] == '\\' ? "\\\\" : NULL;
        if (escape)
            syi_text_puts(&cell, escape);
        else
            syi_text_append(&cell, text + i, 1);
    }
    syi_text_append(&cell, "", 1);
    status = syi_text_status(&cell, err);
    if (status) {
        syi_text_free(&cell);
        return status;
    }
    table->cells[table->n_cells++] = cell.data;
    return SY_OK;
}

/* To six digits, or to a whole number. */
static double rounded(double value)
{
    char text[400];
    snprintf(text, sizeof text, fabs(value) < 1e6 ? "%.6g" : "%.0f", value);
    return strtod(text, NULL);
}

/* Numbers as the shortest text that reads back the same; NULL as nothing. */
static int add_value(struct syi_reading *r, struct syi_query_table *table, sqlite3_stmt *query, int column,
                     struct sy_error *err)
{
    char number[SYI_NUMBER_BYTES];
    int type = sqlite3_column_type(query, column);
    const char *text;

    if (type == SQLITE_NULL) return add_cell(r, table, "", 0, err);
    if (type == SQLITE_FLOAT) {
        double value = sqlite3_column_double(query, column);
        syi_format_double(number, r->rounds ? rounded(value) : value);
        return add_cell(r, table, number, strlen(number), err);
    }
    if (type != SQLITE_INTEGER) table->right[column] = 0;
    text = (const char *)sqlite3_column_text(query, column);
    if (!text && sqlite3_errcode(r->db) == SQLITE_NOMEM) return syi_reading_error(r->db, r->path, err);
    return add_cell(r, table, text ? text : "", text ? (size_t)sqlite3_column_bytes(query, column) : 0, err);
}

static int read_rows(struct syi_reading *r, sqlite3_stmt *query, struct syi_query_table *table,
                     struct sy_error *err)
{
    const char *name;
    int code, status = SY_OK;

    table->n_columns = sqlite3_column_count(query);
    table->right = syi_alloc((size_t)table->n_columns, err);
    if (!table->right) return SY_ENOMEM;
    memset(table->right, 1, (size_t)table->n_columns);
    for (int i = 0; i < table->n_columns && status == SY_OK; i++) {
        name = sqlite3_column_name(query, i);
        status = name ? add_cell(r, table, name, strlen(name), err)
                      : syi_error(err, SY_ENOMEM, "metrics: out of memory");
    }
    table->n_rows = 1;
    while (status == SY_OK && (code = sqlite3_step(query)) != SQLITE_DONE) {
        if (code == SQLITE_INTERRUPT) return syi_reading_too_long(r, err);
        if (code != SQLITE_ROW) return syi_reading_error(r->db, r->path, err);
        for (int i = 0; i < table->n_columns && status == SY_OK; i++)
            status = add_value(r, table, query, i, err);
        table->n_rows++;
    }
    return status;
}

void syi_query_table_free(struct syi_query_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) syi_free(table->cells[i]);
    syi_free(table->cells);
    syi_free(table->right);
}

int syi_query_table_read(struct syi_reading *r, const struct syi_query *asked, const char *sql,
                         struct syi_query_table *table, struct sy_error *err)
{
    sqlite3_stmt *query = NULL;
    int status;

    memset(table, 0, sizeof(*table));
    status = syi_reading_prepare(r, sql, &query, err);
    if (status) return status;
    syi_reading_bind(query, asked->given, asked->n_given);
    status = read_rows(r, query, table, err);
    sqlite3_finalize(query);
    if (status) {
        syi_query_table_free(table);
        memset(table, 0, sizeof(*table));
    }
    return status;
}

/* ---- printing ---- */

/* Columns a terminal needs for the text: code points, taken as one column each. */
static size_t width(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Texts of a run are no orders to the terminal that shows them: control characters become '?', in place. */
static void keep_shown(char *text)
{
    const unsigned char *from = (const unsigned char *)text;
    int bytes;

    for (size_t left = strlen(text); left; left -= (size_t)bytes, from += bytes) {
        if (syi_utf8_is_shown(from, left, &bytes)) {
            memmove(text, from, (size_t)bytes);
            text += bytes;
        } else {
            *text++ = '?';
        }
    }
    *text = '\0';
}

static void append_aligned(struct syi_text *line, const char *cell, size_t columns, int right, int last)
{
    size_t blanks = columns - width(cell);

    if (right) syi_text_printf(line, "%*s", (int)blanks, "");
    syi_text_puts(line, cell);
    if (!last) syi_text_printf(line, "%*s", (int)(right ? 0 : blanks) + 2, "");
}

static int print_line(struct syi_text *text, syi_query_line_fn line, void *arg, struct sy_error *err)
{
    int status;

    syi_text_append(text, "", 0);
    status = syi_text_status(text, err);
    if (status == SY_OK) status = line(arg, text->data ? text->data : "");
    syi_text_free(text);
    return status;
}

static int print_tsv(const struct syi_query_table *table, syi_query_line_fn line, void *arg,
                     struct sy_error *err)
{
    int status = SY_OK;

    for (size_t row = 0; row < table->n_rows && status == SY_OK; row++) {
        struct syi_text text = {0};
        for (int i = 0; i < table->n_columns; i++) {
            if (i) syi_text_puts(&text, "\t");
            syi_text_puts(&text, table->cells[row * (size_t)table->n_columns + (size_t)i]);
        }
        status = print_line(&text, line, arg, err);
    }
    return status;
}

static int print_columns(const struct syi_query_table *table, syi_query_line_fn line, void *arg,
                         struct sy_error *err)
{
    size_t n = (size_t)table->n_columns, *widths = syi_alloc(n * sizeof(*widths), err), cell;
    int status = widths ? SY_OK : SY_ENOMEM;

    for (size_t i = 0; i < table->n_cells && status == SY_OK; i++) {
        keep_shown(table->cells[i]);
        cell = width(table->cells[i]);
        if (cell > widths[i % n]) widths[i % n] = cell;
    }
    for (size_t row = 0; row < table->n_rows && status == SY_OK; row++) {
        struct syi_text text = {0};
        for (size_t i = 0; i < n; i++)
            append_aligned(&text, table->cells[row * n + i], widths[i], table->right[i], i == n - 1);
        status = print_line(&text, line, arg, err);
    }
    syi_free(widths);
    return status;
}

int syi_query_table_print(const struct syi_query_table *table, enum syi_query_format format,
                          syi_query_line_fn line, void *arg, struct sy_error *err)
{
    if (table->n_columns == 0) return SY_OK;
    return format == SYI_QUERY_TSV ? print_tsv(table, line, arg, err) : print_columns(table, line, arg, err);
}
