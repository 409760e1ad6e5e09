/* SPDX-License-Identifier: Apache-2.0 */
/* Plots as SVG: axes with round ticks, linear or logarithmic, lines and dots. Colours and text sizes are the page's, by
 * classes. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/plot.h"

enum { LEFT = 70, TOP = 10, BOTTOM = 30, MOST_DOTS = 60 };
static const double SPREAD = 30; /* times the smallest value, from which on an axis is logarithmic */

/* The classes of the page. */
static const char *const kinds[] = {[CLI_LINE_PLAIN] = "plain",
                                    [CLI_LINE_FINE] = "fine",
                                    [CLI_LINE_THIN] = "thin",
                                    [CLI_LINE_DASHED] = "dashed",
                                    [CLI_LINE_DOTS] = "dots"};

/* Where values are on the plot. */
struct scale {
    double x_low, x_high, y_low, y_high; /* logarithms where is_log */
    int is_log;
};

void cli_plot_add(struct cli_plot *plot, const struct cli_series *series, enum cli_line_kind kind, int colour,
                  const char *label)
{
    if (plot->n_lines == CLI_PLOT_LINES) return;
    plot->line[plot->n_lines++] = (struct cli_line){series, kind, colour, label};
}

/* ---- ticks ---- */

int cli_ticks(double low, double high, int most, double *first, double *step)
{
    static const double factors[] = {1, 2, 5};
    double range = high - low;
    if (!(range > 0) || !isfinite(range) || most < 1) return 0;
    double power = pow(10, floor(log10(range / most)));
    for (int i = 0;; i++) {
        *step = factors[i % 3] * power * (i < 3 ? 1 : 10);
        *first = ceil(low / *step - 1e-9) * *step;
        int n = (int)floor((high - *first) / *step + 1e-9) + 1;
        if (n <= most || i == 5) return n > 0 ? n : 0;
    }
}

void cli_tick_text(double value, char text[32])
{
    double size = fabs(value);
    if (size < 1e-300)
        strcpy(text, "0");
    else if (size >= 1e9 || size < 1e-4)
        snprintf(text, 32, "%.3g", value);
    else if (size >= 1e6)
        snprintf(text, 32, "%.6gM", value / 1e6);
    else if (size >= 1e4)
        snprintf(text, 32, "%.6gk", value / 1e3);
    else
        snprintf(text, 32, "%.6g", value);
}

/* ---- places ---- */

static double place_x(const struct scale *s, double x)
{
    return LEFT + (x - s->x_low) / (s->x_high - s->x_low) * CLI_PLOT_COLUMNS;
}

static double place_y(const struct scale *s, double y)
{
    double value = s->is_log ? log10(y) : y;
    return TOP + (s->y_high - value) / (s->y_high - s->y_low) * (CLI_PLOT_HEIGHT - TOP - BOTTOM);
}

/* What all lines need, with some room; 0 where there is no point. */
static int find_scale(const struct cli_plot *plot, struct scale *s)
{
    double low = INFINITY, high = -INFINITY, least = INFINITY;
    for (int i = 0; i < plot->n_lines; i++) {
        const struct cli_series *series = plot->line[i].series;
        low = fmin(low, series->y_low);
        high = fmax(high, series->y_high);
        least = fmin(least, series->y_least);
        s->x_low = series->x_low;
        s->x_high = series->x_high;
    }
    if (!(low <= high)) return 0;
    s->is_log = plot->log_allowed && low > 0 && high / low > SPREAD;
    if (s->is_log) low = log10(least), high = log10(high);
    double room = high > low ? (high - low) * 0.04 : high != 0 ? fabs(high) * 0.1 : 1;
    room = fmax(room, 1e-290); /* a range of denormal numbers has no tenths */
    s->y_low = low >= 0 && low < room && !s->is_log ? 0 : low - room;
    s->y_high = high + room;
    return 1;
}

/* ---- axes ---- */

static void put_y_tick(struct syi_text *out, const struct scale *s, double value)
{
    char text[32];
    double y = place_y(s, value);
    cli_tick_text(value, text);
    syi_text_printf(
        out,
        "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
        LEFT, y, CLI_PLOT_COLUMNS, LEFT - 7, y + 4, text);
}

/* Powers of ten, or with few of them also 2 and 5 times these. */
static void put_log_ticks(struct syi_text *out, const struct scale *s)
{
    static const double factors[] = {1, 2, 5};
    double decades = s->y_high - s->y_low, jump = ceil(decades / 7);
    int n = decades < 2.2 ? 3 : 1;
    int first = (int)ceil(s->y_low / jump - 1), last = (int)floor(s->y_high / jump);
    for (int k = first; k <= last; k++)
        for (int i = 0; i < n; i++) {
            double value = factors[i] * pow(10, k * jump), place = log10(value);
            if (place >= s->y_low && place <= s->y_high) put_y_tick(out, s, value);
        }
}

static void put_axes(struct syi_text *out, const struct scale *s)
{
    double first, step;
    char text[32];
    int n = s->is_log ? 0 : cli_ticks(s->y_low, s->y_high, 6, &first, &step);
    for (int i = 0; i < n; i++) put_y_tick(out, s, first + i * step);
    if (s->is_log) put_log_ticks(out, s);
    n = cli_ticks(s->x_low, s->x_high, 7, &first, &step);
    for (int i = 0; i < n; i++) {
        if (step < 1 && fmod(first + i * step, 1) != 0) continue; /* there is no half step */
        double x = place_x(s, first + i * step);
        cli_tick_text(first + i * step, text);
        syi_text_printf(
            out,
            "<path class=\"axis\" d=\"M%.1f %dv4\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
            x, CLI_PLOT_HEIGHT - BOTTOM, x, CLI_PLOT_HEIGHT - BOTTOM + 18, text);
    }
    syi_text_printf(out, "<path class=\"axis\" d=\"M%d %dh%d\"/>\n", LEFT, CLI_PLOT_HEIGHT - BOTTOM,
                    CLI_PLOT_COLUMNS);
}

/* ---- lines ---- */

/* The points of a column in the order of x, each once. */
static int points_of(const struct cli_column *c, struct cli_point point[4])
{
    int n = 0;
    const struct cli_point *a = &c->low, *b = &c->high;
    if (a->x > b->x) a = &c->high, b = &c->low;
    const struct cli_point *all[] = {&c->first, a, b, &c->last};
    for (int i = 0; c->n && i < 4; i++)
        if (!n || point[n - 1].x < all[i]->x) point[n++] = *all[i];
    return n;
}

static void put_path(struct syi_text *out, const struct scale *s, const struct cli_line *line)
{
    struct cli_point point[4];
    char command = 'M';
    syi_text_printf(out, "<path class=\"line %s c%d\" d=\"", kinds[line->kind], line->colour);
    for (int i = 0; i < CLI_PLOT_COLUMNS; i++) {
        int n = points_of(&line->series->column[i], point);
        for (int j = 0; j < n; j++) {
            syi_text_printf(out, "%c%.1f %.1f", command, place_x(s, point[j].x), place_y(s, point[j].y));
            command = 'L';
        }
    }
    syi_text_puts(out, "\"/>\n");
}

static void put_dots(struct syi_text *out, const struct scale *s, const struct cli_line *line)
{
    struct cli_point point[4];
    for (int i = 0; i < CLI_PLOT_COLUMNS; i++) {
        int n = points_of(&line->series->column[i], point);
        for (int j = 0; j < n; j++)
            syi_text_printf(
                out,
                "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %.0f: %.6g</title></circle>\n",
                line->colour, place_x(s, point[j].x), place_y(s, point[j].y), point[j].x, point[j].y);
    }
}

static void put_lines(struct syi_text *out, const struct scale *s, const struct cli_plot *plot)
{
    for (int i = 0; i < plot->n_lines; i++) {
        const struct cli_line *line = &plot->line[i];
        if (!line->series->n) continue;
        if (line->kind != CLI_LINE_DOTS) put_path(out, s, line);
        if (line->kind == CLI_LINE_DOTS || (line->kind != CLI_LINE_THIN && line->series->n <= MOST_DOTS))
            put_dots(out, s, line);
    }
}

/* ---- the figure ---- */

static void put_legend(struct syi_text *out, const struct cli_plot *plot)
{
    syi_text_puts(out, "<span class=\"legend\">");
    for (int i = 0; i < plot->n_lines; i++) {
        const struct cli_line *line = &plot->line[i];
        if (!line->label || !line->series->n) continue;
        syi_text_printf(out, "<span class=\"entry\"><span class=\"key %s c%d\"></span>", kinds[line->kind],
                        line->colour);
        cli_html(out, line->label);
        syi_text_puts(out, "</span>");
    }
    syi_text_puts(out, "</span>");
}

/* What the lines do not show, and why. */
static void put_notes(struct syi_text *out, const struct cli_plot *plot, const struct scale *s)
{
    int64_t left_out = 0;
    for (int i = 0; i < plot->n_lines; i++)
        if (plot->line[i].kind != CLI_LINE_DOTS)
            left_out =
                left_out > plot->line[i].series->n_left_out ? left_out : plot->line[i].series->n_left_out;
    syi_text_puts(out, "<p class=\"note\">step");
    if (s->is_log) syi_text_puts(out, " · logarithmic scale");
    if (plot->note) syi_text_puts(out, " · "), cli_html(out, plot->note);
    if (left_out)
        syi_text_printf(out, " · <strong>%lld values are no finite numbers</strong>", (long long)left_out);
    syi_text_puts(out, "</p>\n");
}

void cli_plot_figure(const struct cli_plot *plot, struct syi_text *out)
{
    struct scale s = {0};
    syi_text_puts(out, "<figure>\n<figcaption><b>");
    cli_html(out, plot->title);
    syi_text_puts(out, "</b>");
    put_legend(out, plot);
    syi_text_puts(out, "</figcaption>\n");
    if (find_scale(plot, &s)) {
        syi_text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", CLI_PLOT_WIDTH,
                        CLI_PLOT_HEIGHT);
        cli_html(out, plot->title);
        syi_text_puts(out, "\">\n");
        put_axes(out, &s);
        put_lines(out, &s, plot);
        syi_text_puts(out, "</svg>\n");
        put_notes(out, plot, &s);
    } else {
        syi_text_puts(out, "<p class=\"empty\">There are no numbers of this in the database.</p>\n");
    }
    syi_text_puts(out, "</figure>\n");
}
