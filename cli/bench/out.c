/* SPDX-License-Identifier: Apache-2.0 */
/* Printing: each name and number once, as aligned text at once or as a JSON document at the end. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "cli/bench/bench.h"

void bench_begin(struct bench_out *out, int json, const char *what)
{
    *out = (struct bench_out){.json = json};
    if (!json) return;
    syi_json_begin(&out->writer, &out->document);
    syi_json_open(&out->writer, '{');
    bench_put_text(out, "benchmark", what);
}

void bench_put_text(struct bench_out *out, const char *name, const char *text)
{
    if (out->json)
        syi_json_put_key_string(&out->writer, name, text);
    else
        printf("%s: %s\n", name, text);
}

static void put_members(struct bench_out *out, const struct bench_number *number, int n)
{
    for (int i = 0; i < n; i++)
        if (!isnan(number[i].value)) syi_json_put_key_double(&out->writer, number[i].name, number[i].value);
}

static void format(char text[40], const struct bench_number *number)
{
    if (number->decimals < 0)
        snprintf(text, 40, "%.4g", number->value);
    else
        snprintf(text, 40, "%.*f", number->decimals, number->value);
}

void bench_put_numbers(struct bench_out *out, const char *name, const struct bench_number *number, int n)
{
    char text[40];
    if (out->json) {
        syi_json_put_key(&out->writer, name);
        syi_json_open(&out->writer, '{');
        put_members(out, number, n);
        syi_json_close(&out->writer, '}');
        return;
    }
    printf("%s\n", name);
    for (int i = 0; i < n; i++) {
        if (isnan(number[i].value)) continue;
        format(text, &number[i]);
        printf("  %-28s %16s\n", number[i].name, text);
    }
}

void bench_table(struct bench_out *out, const char *name)
{
    out->in_table = 0;
    if (out->json) {
        syi_json_put_key(&out->writer, name);
        syi_json_open(&out->writer, '[');
    } else {
        printf("%s\n", name);
    }
}

void bench_put_row(struct bench_out *out, const char *label, const struct bench_number *number, int n)
{
    char text[40];
    if (out->json) {
        syi_json_open(&out->writer, '{');
        syi_json_put_key_string(&out->writer, "name", label);
        put_members(out, number, n);
        syi_json_close(&out->writer, '}');
        return;
    }
    if (!out->in_table++) {
        printf("  %-48s", "");
        for (int i = 0; i < n; i++)
            if (!isnan(number[i].value)) printf(" %16s", number[i].name);
        printf("\n");
    }
    printf("  %-48s", label);
    for (int i = 0; i < n; i++) {
        if (isnan(number[i].value)) continue;
        format(text, &number[i]);
        printf(" %16s", text);
    }
    printf("\n");
    fflush(stdout);
}

void bench_table_end(struct bench_out *out)
{
    if (out->json) syi_json_close(&out->writer, ']');
}

int bench_end(struct bench_out *out, struct sy_error *err)
{
    int status = SY_OK;
    if (out->json) {
        syi_json_close(&out->writer, '}');
        status = syi_text_status(&out->document, err);
        if (!status) printf("%s\n", out->document.data);
    }
    syi_text_free(&out->document);
    return status;
}
