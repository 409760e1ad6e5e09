/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs side by side: their last numbers, and the keys of their run files that differ. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/report.h"

enum { MOST_KEYS = 2048 }; /* more than a run file can have: parts are limited, as are their keys */

/* The keys of a run file, cut out of its text. */
struct keys {
    char *text; /* owned; names and values point into it */
    int n;
    struct {
        const char *section, *key, *value;
    } key[MOST_KEYS];
};

static void read_keys(struct keys *keys)
{
    const char *section = "";
    for (char *line = keys->text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        char *equals = strstr(line, " = ");
        if (*line == '[') {
            section = line + 1;
            line[strcspn(line, "]")] = '\0';
        } else if (*line != '#' && equals && keys->n < MOST_KEYS) {
            *equals = '\0';
            keys->key[keys->n].section = section;
            keys->key[keys->n].key = line;
            keys->key[keys->n++].value = equals + 3;
        }
    }
}

static const char *find_key(const struct keys *keys, const char *section, const char *key)
{
    for (int i = 0; i < keys->n; i++)
        if (!strcmp(keys->key[i].key, key) && !strcmp(keys->key[i].section, section))
            return keys->key[i].value;
    return "";
}

static void put_key(struct syi_text *out, const struct keys *keys, int n, const char *section,
                    const char *key)
{
    syi_text_puts(out, "<tr><td>");
    cli_html(out, section);
    syi_text_puts(out, ".");
    cli_html(out, key);
    syi_text_puts(out, "</td>");
    for (int i = 0; i < n; i++) {
        syi_text_puts(out, "<td>");
        cli_html(out, find_key(&keys[i], section, key));
        syi_text_puts(out, "</td>");
    }
    syi_text_puts(out, "</tr>\n");
}

/* Whether run `at` is the first that has this key, and not all runs have the same value. */
static int is_to_show(const struct keys *keys, int n, int at, int k)
{
    const char *section = keys[at].key[k].section, *key = keys[at].key[k].key;
    int differs = 0;
    for (int i = 0; i < n; i++) {
        const char *value = find_key(&keys[i], section, key);
        if (i < at && *value) return 0;
        differs |= strcmp(value, keys[at].key[k].value) != 0;
    }
    return differs;
}

static void put_keys(struct syi_text *out, const struct keys *keys, int n)
{
    for (int at = 0; at < n; at++)
        for (int k = 0; k < keys[at].n; k++)
            if (is_to_show(keys, n, at, k))
                put_key(out, keys, n, keys[at].key[k].section, keys[at].key[k].key);
}

/* ---- numbers ---- */

static void put_number(struct syi_text *out, int known, double value, const char *format)
{
    char text[64] = "–";
    if (known) snprintf(text, sizeof text, "not finite");
    if (known && isfinite(value)) snprintf(text, sizeof text, fabs(value) < 1e9 ? format : "%.6g", value);
    syi_text_printf(out, "<td class=\"n\">%s</td>", text);
}

static void put_numbers(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    syi_text_puts(out, "<tr><td>steps</td>");
    for (int i = 0; i < n; i++)
        syi_text_printf(out, "<td class=\"n\">%lld</td>", (long long)runs[i].last_step);
    syi_text_puts(out, "</tr>\n<tr><td>loss, mean of the last 50 rows</td>");
    for (int i = 0; i < n; i++) put_number(out, cli_series_any(&runs[i].loss), runs[i].mean_loss, "%.4f");
    syi_text_puts(out, "</tr>\n<tr><td>tokens/s, mean</td>");
    for (int i = 0; i < n; i++) put_number(out, runs[i].speed.n > 0, runs[i].mean_speed, "%.0f");
    syi_text_puts(out, "</tr>\n");
}

static const struct cli_eval *find_eval(const struct cli_report_run *run, const struct cli_eval *as)
{
    for (int i = 0; i < run->n_evals; i++)
        if (!strcmp(run->eval[i].task, as->task) && !strcmp(run->eval[i].name, as->name))
            return &run->eval[i];
    return NULL;
}

static void put_evaluation(struct syi_text *out, const struct cli_report_run *runs, int n,
                           const struct cli_eval *eval)
{
    syi_text_puts(out, "<tr><td>");
    cli_html(out, eval->task);
    syi_text_puts(out, " ");
    cli_html(out, eval->name);
    syi_text_puts(out, "</td>");
    for (int i = 0; i < n; i++) {
        const struct cli_eval *found = find_eval(&runs[i], eval);
        int known = found && cli_series_any(found->series);
        put_number(out, known, known ? found->series->last.y : NAN, "%.6g");
    }
    syi_text_puts(out, "</tr>\n");
}

static void put_evaluations(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    for (int at = 0; at < n; at++)
        for (int e = 0; e < runs[at].n_evals; e++) {
            int shown = 0;
            for (int i = 0; i < at; i++) shown |= find_eval(&runs[i], &runs[at].eval[e]) != NULL;
            if (!shown) put_evaluation(out, runs, n, &runs[at].eval[e]);
        }
}

/* ---- the two tables ---- */

static void put_head(struct syi_text *out, const struct cli_report_run *runs, int n, const char *title,
                     const char *align)
{
    syi_text_printf(out, "<h2>%s</h2>\n<div class=\"wide\"><table>\n<thead><tr><th></th>", title);
    for (int i = 0; i < n; i++) {
        syi_text_printf(out, "<th class=\"%s\"><span class=\"key plain c%d\"></span> ", align, i);
        cli_html(out, runs[i].path);
        syi_text_puts(out, "</th>");
    }
    syi_text_puts(out, "</tr></thead>\n<tbody>\n");
}

void cli_report_compare(const struct cli_report_run *runs, int n, struct syi_text *out)
{
    put_head(out, runs, n, "Comparison", "n");
    put_numbers(out, runs, n);
    put_evaluations(out, runs, n);
    syi_text_puts(out, "</tbody></table></div>\n");
}

int cli_report_differences(const struct cli_report_run *runs, int n, struct syi_text *out,
                           struct sy_error *err)
{
    struct keys *keys = syi_alloc((size_t)n * sizeof *keys, err);
    int status = keys ? SY_OK : SY_ENOMEM;
    for (int i = 0; i < n && !status; i++) {
        keys[i].text = syi_strdup(runs[i].config ? runs[i].config : "", err);
        if (keys[i].text) read_keys(&keys[i]);
        status = keys[i].text ? SY_OK : SY_ENOMEM;
    }
    if (!status) {
        put_head(out, runs, n, "Keys of the run files that differ", "v");
        put_keys(out, keys, n);
        syi_text_puts(out, "</tbody></table></div>\n");
    }
    for (int i = 0; keys && i < n; i++) syi_free(keys[i].text);
    syi_free(keys);
    return status;
}
