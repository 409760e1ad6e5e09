/* SPDX-License-Identifier: Apache-2.0 */
/* Reduces a curve to four points a column of pixels (first, lowest, highest, last), after which it looks the same:
 * Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/plot.h"

static const double LARGEST = 1e300; /* so that differences of values are finite */

void cli_series_begin(struct cli_series *s, double x_low, double x_high)
{
    memset(s, 0, sizeof *s);
    s->x_low = x_low;
    s->x_high = x_high > x_low ? x_high : x_low + 1;
    s->y_low = s->y_least = INFINITY;
    s->y_high = -INFINITY;
}

void cli_series_add(struct cli_series *s, double x, double y)
{
    struct cli_point point = {x, y};
    double place = (x - s->x_low) / (s->x_high - s->x_low) * CLI_PLOT_COLUMNS;
    if (!(place >= 0) || place > CLI_PLOT_COLUMNS) return; /* written since the page's last step was read */
    s->last = point;
    if (!isfinite(y) || fabs(y) > LARGEST) {
        s->n_left_out++;
        return;
    }
    struct cli_column *c = &s->column[place < CLI_PLOT_COLUMNS ? (int)place : CLI_PLOT_COLUMNS - 1];
    if (!c->n++) c->first = c->low = c->high = point;
    if (y < c->low.y) c->low = point;
    if (y > c->high.y) c->high = point;
    c->last = point;
    s->n++;
    s->y_low = fmin(s->y_low, y);
    s->y_high = fmax(s->y_high, y);
    if (y > 0) s->y_least = fmin(s->y_least, y);
}

int cli_series_any(const struct cli_series *s)
{
    return s->n + s->n_left_out > 0;
}
