/* SPDX-License-Identifier: Apache-2.0 */
/* Curves for a page: any number of points reduced to what a plot of this width shows, and plots as SVG. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "base/text.h"

enum { CLI_PLOT_WIDTH = 620, CLI_PLOT_HEIGHT = 280, CLI_PLOT_COLUMNS = 532, CLI_PLOT_LINES = 64 };

struct cli_point {
    double x, y;
};

/* The points that fall into one column of pixels: first, lowest, highest and last draw the same line as all. */
struct cli_column {
    int64_t n;
    struct cli_point first, low, high, last;
};

struct cli_series {
    double x_low, x_high;          /* of all columns */
    int64_t n, n_left_out;         /* points; those whose value is not finite, or over 1e300 */
    double y_low, y_high, y_least; /* of the points; y_least: the smallest over 0, infinity where none is */
    struct cli_point last;         /* added; of a run that diverged its y is not finite */
    struct cli_column column[CLI_PLOT_COLUMNS];
};

/* Points are added in any order, best by x; those beyond x_low..x_high do not count. */
void cli_series_begin(struct cli_series *series, double x_low, double x_high);
void cli_series_add(struct cli_series *series, double x, double y);
/* Whether a point was added, finite or not: without one there is no last. */
int cli_series_any(const struct cli_series *series);

/* FINE: of rough curves; THIN: under another line; DOTS: points alone. */
enum cli_line_kind { CLI_LINE_PLAIN, CLI_LINE_FINE, CLI_LINE_THIN, CLI_LINE_DASHED, CLI_LINE_DOTS };

struct cli_line {
    const struct cli_series *series; /* borrowed */
    enum cli_line_kind kind;
    int colour;        /* 0..7, the classes c0..c7 of the page */
    const char *label; /* in the legend, borrowed; NULL: not there */
};

struct cli_plot {
    const char *title, *note; /* borrowed; note NULL: none */
    int log_allowed;          /* the y axis is logarithmic where the values spread over more than 30 times */
    int n_lines;
    struct cli_line line[CLI_PLOT_LINES];
};

/* Adds a line; one too many is left out. Series without a point are drawn as nothing. */
void cli_plot_add(struct cli_plot *plot, const struct cli_series *series, enum cli_line_kind kind, int colour,
                  const char *label);
/* Appends a <figure>: title, legend, plot; where there is no point, words instead. */
void cli_plot_figure(const struct cli_plot *plot, struct syi_text *out);

/* At most `most` round numbers from low to high (1, 2 or 5 times a power of ten apart); *step is their distance. Returns
 * the number of ticks, 0 where low and high are equal or not finite. */
int cli_ticks(double low, double high, int most, double *first, double *step);
/* A tick's text: 0.25, 3k, 2M, 5e-7. */
void cli_tick_text(double value, char text[32]);

/* ---- html.c ---- */

/* Text for the inside of an element or of an attribute in double quotes. Malformed bytes and control characters are
 * U+FFFD. */
void cli_html(struct syi_text *out, const char *text);

#endif
