/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of typed values as CSV and as JSON. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "metrics/rows_text.h"

static void put_hexadecimal(struct syi_text *out, const struct syi_value *value)
{
    for (size_t i = 0; i < value->bytes; i++) syi_text_printf(out, "%02x", (unsigned char)value->text[i]);
}

static void put_real(struct syi_text *out, double real)
{
    char number[SYI_NUMBER_BYTES];
    syi_format_double(number, real);
    syi_text_puts(out, number);
}

/* Quoted where it must be, and where an empty text would look like NULL. It ends at a NUL, as in the other formats: the
 * answer is one C string. */
static void put_csv_text(struct syi_text *out, const char *text, size_t bytes)
{
    bytes = strnlen(text, bytes);
    int quoted = bytes == 0;
    for (size_t i = 0; i < bytes; i++) quoted |= strchr(",\"\r\n", text[i]) != NULL;
    if (!quoted) {
        syi_text_append(out, text, bytes);
        return;
    }
    syi_text_puts(out, "\"");
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') syi_text_puts(out, "\"");
        syi_text_append(out, text + i, 1);
    }
    syi_text_puts(out, "\"");
}

static void put_csv_value(struct syi_text *out, const struct syi_value *value)
{
    switch (value->kind) {
    case SYI_VALUE_NULL: break;
    case SYI_VALUE_INTEGER: syi_text_printf(out, "%" PRId64, value->integer); break;
    case SYI_VALUE_REAL: put_real(out, value->real); break;
    case SYI_VALUE_TEXT: put_csv_text(out, value->text, value->bytes); break;
    case SYI_VALUE_BYTES: put_hexadecimal(out, value); break;
    }
}

void syi_csv_head(struct syi_text *out, const struct syi_row *row)
{
    for (int i = 0; i < row->n; i++) {
        if (i) syi_text_puts(out, ",");
        put_csv_text(out, row->names[i], strlen(row->names[i]));
    }
    syi_text_puts(out, "\r\n");
}

void syi_csv_row(struct syi_text *out, const struct syi_row *row)
{
    for (int i = 0; i < row->n; i++) {
        if (i) syi_text_puts(out, ",");
        put_csv_value(out, &row->values[i]);
    }
    syi_text_puts(out, "\r\n");
}

static void put_json_bytes(struct syi_json_writer *json, const struct syi_value *value)
{
    struct syi_text text = {0};
    put_hexadecimal(&text, value);
    syi_json_put_string(json, text.data ? text.data : "");
    if (text.status) json->out->status = text.status;
    syi_text_free(&text);
}

void syi_json_row(struct syi_text *out, const struct syi_row *row)
{
    struct syi_json_writer json;
    syi_json_begin(&json, out);
    syi_json_open(&json, '{');
    for (int i = 0; i < row->n; i++) {
        const struct syi_value *value = &row->values[i];
        syi_json_put_key(&json, row->names[i]);
        if (value->kind == SYI_VALUE_INTEGER)
            syi_json_put_integer(&json, value->integer);
        else if (value->kind == SYI_VALUE_REAL && isfinite(value->real))
            syi_json_put_double(&json, value->real);
        else if (value->kind == SYI_VALUE_TEXT)
            syi_json_put_string(&json, value->text);
        else if (value->kind == SYI_VALUE_BYTES)
            put_json_bytes(&json, value);
        else
            syi_json_put_null(&json);
    }
    syi_json_close(&json, '}');
}
