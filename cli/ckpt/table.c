/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of cells as aligned columns, TSV or JSON. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/ckpt/ckpt.h"

static size_t count_columns(const struct ckpt_table *t)
{
    size_t n = 0;
    while (n < CKPT_COLUMNS && t->column[n]) n++;
    return n;
}

int ckpt_put(struct ckpt_table *t, struct sy_error *err, const char *format, ...)
{
    va_list args;
    int status = SYI_GROW(t->cell, t->capacity, t->n_cells + 1, err);
    if (status) return status;
    va_start(args, format);
    vsnprintf(t->cell[t->n_cells++], CKPT_CELL, format, args);
    va_end(args);
    return SY_OK;
}

void ckpt_table_free(struct ckpt_table *t)
{
    syi_free(t->cell);
    t->cell = NULL;
}

/* Numbers to the right. width 0: no blanks, and a TAB between cells. */
static void put_cell(const struct ckpt_table *t, size_t column, size_t n, const char *text, int width,
                     struct syi_text *out)
{
    int right = t->numbers >> column & 1, last = column + 1 == n;
    const char *end = last ? "\n" : width ? "  " : "\t";
    syi_text_printf(out, "%*s%s", right || !width ? width : last ? 0 : -width, text, end);
}

static void put_text(const struct ckpt_table *t, int aligned, struct syi_text *out)
{
    size_t n = count_columns(t);
    int width[CKPT_COLUMNS] = {0};
    for (size_t i = 0; aligned && i < n; i++) width[i] = (int)strlen(t->column[i]);
    for (size_t i = 0; aligned && i < t->n_cells; i++)
        if ((int)strlen(t->cell[i]) > width[i % n]) width[i % n] = (int)strlen(t->cell[i]);
    for (size_t i = 0; i < n; i++) put_cell(t, i, n, t->column[i], width[i], out);
    for (size_t i = 0; i < t->n_cells; i++) put_cell(t, i % n, n, t->cell[i], width[i % n], out);
}

/* nan and infinities are null, as in `metrics`. */
static void put_number(struct syi_json_writer *w, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || value - value != 0)
        syi_json_put_null(w);
    else if (!text[strspn(text, "-0123456789")])
        syi_json_put_integer(w, strtoll(text, NULL, 10));
    else
        syi_json_put_double(w, value);
}

static void put_json(const struct ckpt_table *t, struct syi_text *out)
{
    struct syi_json_writer w;
    size_t n = count_columns(t);
    syi_json_begin(&w, out);
    syi_json_open(&w, '[');
    for (size_t i = 0; i < t->n_cells; i++) {
        if (i % n == 0) syi_json_open(&w, '{');
        syi_json_put_key(&w, t->column[i % n]);
        if (t->numbers >> i % n & 1)
            put_number(&w, t->cell[i]);
        else
            syi_json_put_string(&w, t->cell[i]);
        if (i % n == n - 1) syi_json_close(&w, '}');
    }
    syi_json_close(&w, ']');
    syi_text_puts(out, "\n");
}

int ckpt_print(const struct ckpt_table *t, const struct cli_options *o, struct sy_error *err)
{
    struct syi_text text = {0};
    if (o->json)
        put_json(t, &text);
    else
        put_text(t, !o->tsv, &text);
    int status = syi_text_status(&text, err);
    if (!status) fputs(text.data, stdout);
    syi_text_free(&text);
    return status;
}
