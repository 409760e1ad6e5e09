/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps of expert load as SVG: a row an expert, time to the right, the colour says how its share of the tokens
 * compares with a fair one. Cells of one colour are one path, and neighbours of one colour one cell, so that maps of
 * many experts stay small. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/report.h"

enum { LEFT = 62, AXIS = 24 };
static const double CELL = (double)CLI_PLOT_COLUMNS / CLI_HEAT_COLUMNS; /* width */

int cli_heat_level(double tokens, double all, int n_experts)
{
    double ratio = tokens * n_experts / all, level = floor(2 * log2(ratio) + 4.5);
    return !(ratio > 0) || level < 0 ? 0 : level >= CLI_HEAT_LEVELS ? CLI_HEAT_LEVELS - 1 : (int)level;
}

static int is_used(const struct cli_heat *heat, int column)
{
    for (int e = 0; e < heat->n_experts; e++)
        if (heat->tokens[e * CLI_HEAT_COLUMNS + column] > 0) return 1;
    return 0;
}

/* The level of every cell; a column without a recorded step is as the one before it. -1: before the first and after
 * the last of them. */
static void find_levels(const struct cli_heat *heat, signed char *level)
{
    int end = CLI_HEAT_COLUMNS;
    memset(level, -1, (size_t)heat->n_experts * CLI_HEAT_COLUMNS);
    while (end && !is_used(heat, end - 1)) end--;
    for (int c = 0; c < end; c++) {
        double all = 0;
        for (int e = 0; e < heat->n_experts; e++) all += heat->tokens[e * CLI_HEAT_COLUMNS + c];
        for (int e = 0; e < heat->n_experts; e++) {
            signed char *at = &level[e * CLI_HEAT_COLUMNS + c];
            if (all > 0)
                *at =
                    (signed char)cli_heat_level(heat->tokens[e * CLI_HEAT_COLUMNS + c], all, heat->n_experts);
            else if (c)
                *at = at[-1];
        }
    }
}

static double row_height(int n_experts)
{
    return n_experts <= 8 ? 20 : n_experts <= 24 ? 10 : fmax(1.5, 240.0 / n_experts);
}

void cli_put_cells(const struct cli_cells *cells, struct syi_text *out)
{
    for (int wanted = 0; wanted < CLI_HEAT_LEVELS; wanted++) {
        syi_text_printf(out, "<path class=\"h%d\" d=\"", wanted);
        for (int r = 0; r < cells->rows; r++)
            for (int c = 0, end; c < cells->columns; c = end) {
                const signed char *row = &cells->level[(ptrdiff_t)r * cells->columns];
                for (end = c + 1; end < cells->columns && row[end] == row[c];) end++;
                if (row[c] != wanted) continue;
                double width = (end - c) * cells->width;
                syi_text_printf(out, "M%g %.1fh%gv%.1fh-%gz", cells->left + c * cells->width,
                                r * cells->height, width, cells->height, width);
            }
        syi_text_puts(out, "\"/>\n");
    }
}

static void put_axes(struct syi_text *out, const struct cli_heat *heat, int64_t last_step)
{
    char text[32];
    double height = row_height(heat->n_experts), bottom = height * heat->n_experts, first, step;
    int every = 1, n = cli_ticks(0, last_step > 0 ? (double)last_step : 1, 7, &first, &step);
    while (every * height < 16) every *= 2;
    for (int e = 0; e < heat->n_experts; e += every)
        syi_text_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", LEFT - 7,
                        (e + 0.5) * height + 4, e);
    for (int i = 0; i < n; i++) {
        if (step < 1 && fmod(first + i * step, 1) != 0) continue;
        double x = LEFT + (first + i * step) / (double)(last_step > 0 ? last_step : 1) * CLI_PLOT_COLUMNS;
        cli_tick_text(first + i * step, text);
        syi_text_printf(
            out,
            "<path class=\"axis\" d=\"M%.1f %.1fv4\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
            x, bottom, x, bottom + 18, text);
    }
}

static void put_map(struct syi_text *out, const struct cli_heat *heat, const signed char *level,
                    int64_t last_step)
{
    double all = heat->taken + heat->dropped,
           height = row_height(heat->n_experts) * heat->n_experts + AXIS + 6;
    const struct cli_cells cells = {
        heat->n_experts, CLI_HEAT_COLUMNS, LEFT, CELL, row_height(heat->n_experts), level};
    syi_text_puts(out, "<figure>\n<figcaption><b>");
    cli_html(out, heat->layer);
    syi_text_puts(out, "</b></figcaption>\n");
    syi_text_printf(out, "<svg viewBox=\"0 -6 %d %.0f\" role=\"img\" aria-label=\"expert load\">\n",
                    CLI_PLOT_WIDTH, height);
    cli_put_cells(&cells, out);
    put_axes(out, heat, last_step);
    syi_text_printf(
        out,
        "</svg>\n<p class=\"note\">step · %d experts from 0 · dropped %.2f %% of the tokens</p>\n</figure>\n",
        heat->n_experts, all > 0 ? heat->dropped / all * 100 : 0);
}

static void put_legend(struct syi_text *out)
{
    syi_text_puts(out, "<p class=\"scale\"><span>tokens of an expert, of a fair share: ¼ or less</span>");
    for (int i = 0; i < CLI_HEAT_LEVELS; i++)
        syi_text_printf(out, "<svg viewBox=\"0 0 10 10\"><path class=\"h%d\" d=\"M0 0h10v10h-10z\"/></svg>",
                        i);
    syi_text_puts(out, "<span>4 times or more; the middle is fair</span></p>\n");
}

void cli_heat_maps(const struct cli_report_run *run, int64_t last_step, struct syi_text *out)
{
    put_legend(out);
    syi_text_puts(out, "<div class=\"grid\">\n");
    for (size_t i = 0; i < run->n_heat; i++) {
        const struct cli_heat *heat = &run->heat[i];
        signed char *level = syi_alloc((size_t)heat->n_experts * CLI_HEAT_COLUMNS + 1, NULL);
        if (!level) {
            out->status = SY_ENOMEM;
            return;
        }
        if (heat->n_experts) find_levels(heat, level), put_map(out, heat, level, last_step);
        syi_free(level);
    }
    syi_text_puts(out, "</div>\n");
}
