/* SPDX-License-Identifier: Apache-2.0 */
/* Whether experts specialise: a map of each layer with a row for each evaluated task and a column for each expert, in the
 * colours of heat maps. Where its rows are alike, experts do not go by the task. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/report.h"

enum { LEFT = 150, ROW = 22, AXIS = 24, MOST_LETTERS = 20 };

static double sum_of(const struct cli_task_load *t)
{
    double sum = 0;
    for (int e = 0; e < t->n_experts; e++) sum += t->tokens[e];
    return sum;
}

static int experts_of(const struct cli_task_load *t, size_t n)
{
    int most = 0;
    for (size_t i = 0; i < n; i++)
        if (t[i].n_experts > most) most = t[i].n_experts;
    return most;
}

/* Share of the tokens of two tasks that have other experts (the total variation distance of their shares). */
static double distance(const struct cli_task_load *a, const struct cli_task_load *b, int n_experts)
{
    double sum_a = sum_of(a), sum_b = sum_of(b), differs = 0;
    for (int e = 0; e < n_experts; e++) {
        double of_a = e < a->n_experts ? a->tokens[e] / sum_a : 0,
               of_b = e < b->n_experts ? b->tokens[e] / sum_b : 0;
        differs += fabs(of_a - of_b) / 2;
    }
    return differs;
}

static double largest_distance(const struct cli_task_load *t, size_t n, int n_experts)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) most = fmax(most, distance(&t[i], &t[j], n_experts));
    return most;
}

static void put_name(struct syi_text *out, const char *task, double y)
{
    char name[MOST_LETTERS + 1];
    size_t bytes = strlen(task), skipped = bytes > MOST_LETTERS ? bytes - MOST_LETTERS : 0;
    while (((unsigned char)task[skipped] & 0xc0) == 0x80) skipped++; /* within a character */
    snprintf(name, sizeof name, "%s", task + skipped);
    syi_text_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s", LEFT - 7, y, skipped ? "…" : "");
    cli_html(out, name);
    syi_text_puts(out, "<title>");
    cli_html(out, task);
    syi_text_puts(out, "</title></text>\n");
}

static void put_axes(struct syi_text *out, const struct cli_task_load *t, size_t n,
                     const struct cli_cells *cells)
{
    int every = 1;
    while (every * cells->width < 22) every *= 2;
    for (size_t i = 0; i < n; i++) put_name(out, t[i].task, ((double)i + 0.5) * ROW + 4);
    for (int e = 0; e < cells->columns; e += every)
        syi_text_printf(out, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>\n",
                        cells->left + (e + 0.5) * cells->width, (double)n * ROW + 18, e);
}

/* The tasks of one layer. */
static void put_layer(struct syi_text *out, const struct cli_task_load *t, size_t n)
{
    int experts = experts_of(t, n);
    signed char *level = syi_alloc(n * (size_t)experts + 1, NULL);
    const struct cli_cells cells = {(int)n, experts, LEFT, (double)(CLI_PLOT_WIDTH - LEFT - 18) / experts,
                                    ROW,    level};
    if (!level) {
        out->status = SY_ENOMEM;
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (int e = 0; e < experts; e++)
            level[i * (size_t)experts + (size_t)e] =
                (signed char)cli_heat_level(e < t[i].n_experts ? t[i].tokens[e] : 0, sum_of(&t[i]), experts);
    syi_text_puts(out, "<figure>\n<figcaption><b>");
    cli_html(out, t->layer);
    syi_text_puts(out, "</b></figcaption>\n");
    syi_text_printf(out, "<svg viewBox=\"0 -6 %d %zu\" role=\"img\" aria-label=\"experts of tasks\">\n",
                    CLI_PLOT_WIDTH, n * ROW + AXIS + 6);
    cli_put_cells(&cells, out);
    put_axes(out, t, n, &cells);
    syi_text_printf(
        out,
        "</svg>\n<p class=\"note\">expert · two tasks differ in the experts of up to %.1f %% of their tokens</p>\n</figure>\n",
        100 * largest_distance(t, n, experts));
    syi_free(level);
}

void cli_task_maps(const struct cli_report_run *run, struct syi_text *out)
{
    int any = 0;
    for (size_t i = 0, end; i < run->n_task_loads; i = end) {
        const struct cli_task_load *t = &run->task_load[i];
        for (end = i; end < run->n_task_loads && !strcmp(run->task_load[end].layer, t->layer);) end++;
        if (end - i < 2) continue;
        if (!any++)
            syi_text_puts(
                out, "<h3>Experts by task, of the newest evaluation of each</h3>\n<div class=\"grid\">\n");
        put_layer(out, t, end - i);
    }
    if (any) syi_text_puts(out, "</div>\n");
}
