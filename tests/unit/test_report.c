/* SPDX-License-Identifier: Apache-2.0 */
/* Curves, ticks and text of a report's page. */
#include "config.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "cli/report/report.h"
#include "metrics_support.h"

static struct cli_series series;

/* A pseudo-random number in [0, 1). */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* In every column of pixels the lowest and the highest of a million points are kept, and the ends. */
Test(report, a_reduced_curve_spans_what_the_curve_spans)
{
    enum { N = 1000000 };
    uint64_t state = 7;
    static double low[CLI_PLOT_COLUMNS], high[CLI_PLOT_COLUMNS];
    for (int i = 0; i < CLI_PLOT_COLUMNS; i++) low[i] = INFINITY, high[i] = -INFINITY;
    cli_series_begin(&series, 0, N);
    for (int x = 1; x <= N; x++) {
        double y = sin(x * 1e-5) + (draw(&state) < 1e-4 ? 50 * draw(&state) : draw(&state));
        int column = (int)((double)x / N * CLI_PLOT_COLUMNS);
        if (column == CLI_PLOT_COLUMNS) column--;
        low[column] = fmin(low[column], y);
        high[column] = fmax(high[column], y);
        cli_series_add(&series, x, y);
    }
    cr_assert_eq(series.n, N);
    for (int i = 0; i < CLI_PLOT_COLUMNS; i++) {
        cr_expect_eq(series.column[i].low.y, low[i]);
        cr_expect_eq(series.column[i].high.y, high[i]);
        cr_expect(series.column[i].first.x <= series.column[i].last.x);
    }
    cr_expect_eq(series.last.x, N);
    struct syi_text text = {0};
    struct cli_plot plot = {.title = "t"};
    cli_plot_add(&plot, &series, CLI_LINE_PLAIN, 0, NULL);
    cli_plot_figure(&plot, &text);
    cr_expect(text.length < 64 << 10, "%zu bytes for a curve", text.length);
    syi_text_free(&text);
}

Test(report, values_that_cannot_be_drawn_are_counted)
{
    static const double values[] = {1, NAN, INFINITY, -INFINITY, 1e305, 2};
    struct syi_text text = {0};
    struct cli_plot plot = {.title = "t", .log_allowed = 1};
    cli_series_begin(&series, 0, 10);
    for (size_t i = 0; i < SYI_COUNT(values); i++) cli_series_add(&series, (double)i, values[i]);
    cr_expect_eq(series.n, 2);
    cr_expect_eq(series.n_left_out, 4);
    cr_expect_eq(series.last.y, 2);
    cli_series_add(&series, 9, NAN);
    cli_series_add(&series, 11, 3); /* of a run that goes on while the page is made */
    cr_expect_eq(series.last.x, 9);
    cr_expect(isnan(series.last.y));
    cr_expect_eq(series.n_left_out, 5);
    cli_plot_add(&plot, &series, CLI_LINE_PLAIN, 0, NULL);
    cli_plot_figure(&plot, &text);
    cr_expect(strstr(text.data, "5 values are no finite numbers"));
    cr_expect(!strstr(text.data, "nan") && !strstr(text.data, "inf"));
    syi_text_free(&text);
}

/* Every mixture of huge and tiny values gives a picture inside its frame. */
Test(report, coordinates_stay_in_the_frame)
{
    static const double values[] = {0, 5e-324, -5e-324, 1e-300, 1, -1, 1e300, -1e300, 3};
    for (size_t i = 0; i < SYI_COUNT(values); i++)
        for (size_t j = 0; j < SYI_COUNT(values); j++) {
            struct syi_text text = {0};
            struct cli_plot plot = {.title = "t", .log_allowed = 1};
            cli_series_begin(&series, 0, 2);
            cli_series_add(&series, 1, values[i]);
            cli_series_add(&series, 2, values[j]);
            cli_plot_add(&plot, &series, CLI_LINE_PLAIN, 0, NULL);
            cli_plot_figure(&plot, &text);
            cr_assert(!strstr(text.data, "nan") && !strstr(text.data, "inf"), "%g %g: %s", values[i],
                      values[j], text.data);
            for (const char *at = text.data; (at = strstr(at, "cy=\"")); at += 4) {
                double y = strtod(at + 4, NULL);
                cr_expect(y >= 0 && y <= CLI_PLOT_HEIGHT, "%g %g: %g", values[i], values[j], y);
            }
            syi_text_free(&text);
        }
}

Test(report, a_curve_without_points_is_words)
{
    struct syi_text text = {0};
    struct cli_plot plot = {.title = "Loss <b>"};
    cli_series_begin(&series, 0, 1);
    cli_plot_add(&plot, &series, CLI_LINE_PLAIN, 0, "label");
    cli_plot_figure(&plot, &text);
    cr_expect(strstr(text.data, "There are no numbers"));
    cr_expect(strstr(text.data, "Loss &lt;b&gt;") && !strstr(text.data, "<svg"));
    syi_text_free(&text);
}

/* Ticks are inside the range, round, and as many as said. */
Test(report, ticks)
{
    uint64_t state = 3;
    for (int i = 0; i < 20000; i++) {
        double low = (draw(&state) - 0.5) * pow(10, floor(draw(&state) * 40) - 20);
        double high = low + (draw(&state) + 1e-6) * pow(10, floor(draw(&state) * 40) - 20), first, step;
        if (!(high > low) || (high - low) < 1e-9 * fabs(low)) continue;
        int most = 2 + i % 8, n = cli_ticks(low, high, most, &first, &step);
        double lead = step / pow(10, floor(log10(step) + 1e-9)), slack = step * 1e-6;
        cr_assert(n <= most && n >= 0, "%d ticks of %d", n, most);
        cr_assert(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6, "step %g", step);
        if (n) cr_assert(first >= low - slack && first + (n - 1) * step <= high + slack);
        cr_assert(n * 2.5 + 2 >= most / 2, "%d ticks of %d from %g to %g", n, most, low, high);
    }
    double first, step;
    cr_expect_eq(cli_ticks(0, 1000, 6, &first, &step), 6);
    cr_expect(first == 0 && step == 200);
    cr_expect_eq(cli_ticks(1, 1, 6, &first, &step), 0);
    cr_expect_eq(cli_ticks(0, INFINITY, 6, &first, &step), 0);
}

Test(report, tick_texts)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},        {0.25, "0.25"}, {2000, "2000"},     {15000, "15k"}, {2500000, "2.5M"},
                 {5e-7, "5e-07"}, {-3, "-3"},     {0.1 + 0.2, "0.3"}, {1e12, "1e+12"}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        char text[32];
        cli_tick_text(cases[i].value, text);
        cr_expect_str_eq(text, cases[i].text);
    }
}

Test(report, text_is_never_markup)
{
    struct syi_text text = {0};
    cli_html(&text, "<a href=\"x\" onload='y'>&amp;\x01\x7f\xff\xc2\x85\xc3\xa9\n");
    cr_expect_str_eq(
        text.data,
        "&lt;a href=&quot;x&quot; onload=&#39;y&#39;&gt;&amp;amp;\ufffd\ufffd\ufffd\ufffd\xc3\xa9\n");
    syi_text_free(&text);
}

/* Tasks of a layer with half of their tokens in other experts; a layer with one task has no map. A name is cut at its
 * beginning, between two characters. */
Test(report, experts_of_tasks_are_a_map)
{
    double one[] = {50, 50, 0, 0}, other[] = {0, 5, 5};
    char layer[] = "encoder/layers_1/mlp", alone[] = "decoder/layers_1/mlp", de[] = "<de>/valid",
         fr[] = "/a/long/folder/\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9.some-words.tsv";
    struct cli_task_load load[] = {{.layer = layer, .task = de, .n_experts = 4, .tokens = one},
                                   {.layer = layer, .task = fr, .n_experts = 3, .tokens = other},
                                   {.layer = alone, .task = de, .n_experts = 4, .tokens = one}};
    const struct cli_report_run run = {.task_load = load, .n_task_loads = SYI_COUNT(load)};
    struct syi_text text = {0};
    cli_task_maps(&run, &text);
    cr_assert_eq(text.status, SY_OK);
    cr_expect(strstr(text.data, "differ in the experts of up to 50.0 %"), "%s", text.data);
    cr_expect(strstr(text.data, layer) && !strstr(text.data, alone));
    cr_expect(strstr(text.data, ">&lt;de&gt;/valid<") && !strstr(text.data, "<de>"));
    cr_expect(strstr(text.data, ">…\xc3\xa9\xc3\xa9.some-words.tsv<title>"), "%s", text.data);
    /* of the first: twice a fair share, of experts 0 and 1 in one cell; nothing of 2 and 3 in another */
    cr_expect(strstr(text.data, "class=\"h6\" d=\"M150 0.0h226v22.0h-226z"), "%s", text.data);
    cr_expect(strstr(text.data, "class=\"h0\" d=\"M376 0.0h226v22.0h-226z"), "%s", text.data);
    syi_text_free(&text);
}

/* A run that went back from step 9 to 5 and on to 7: what was replaced is no step of it. The last row has the time of
 * all before. */
Test(report, steps_that_were_replaced_do_not_count)
{
    const char *path = fresh_path("metrics.db");
    static struct cli_report_run run;
    struct sy_error err = {0};
    char folder[4300];

    for (int attempt = 0; attempt < 2; attempt++) {
        struct syi_metric_sink sink = open_sink(path, attempt ? 5 : -1, 0);
        for (int64_t step = attempt ? 6 : 1; step <= (attempt ? 7 : 9); step++) {
            cr_assert_eq(sink.metric(sink.arg, step, "loss", 1, NULL), SY_OK);
            cr_assert_eq(sink.metric(sink.arg, step, "tokens_per_second", step == 7 ? 4000 : 1000, NULL),
                         SY_OK);
            cr_assert_eq(sink.metric(sink.arg, step, "timing/seconds", step == 7 ? 6 : 1, NULL), SY_OK);
            cr_assert_eq(sink.routing(sink.arg, step, "x", 1, (int64_t[]){attempt + 1}, (int64_t[]){0}, NULL),
                         SY_OK);
        }
        cr_assert_eq(sink.eval(sink.arg, attempt ? 6 : 9, "dev", "wer", 1, "", NULL), SY_OK);
        cr_assert_eq(sink.close(sink.arg, NULL), SY_OK);
    }
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    run.path = folder;
    cr_assert_eq(cli_report_open(&run, &err), SY_OK, "%s", err.text);
    cr_expect_eq(run.last_step, 7);
    cr_assert_eq(cli_report_gather(&run, run.last_step, &err), SY_OK, "%s", err.text);
    cr_expect_eq(run.routing_steps, 7);
    cr_expect_float_eq(run.mean_speed, 2500, 1e-9);
    cr_expect_eq(run.heat[0].taken, 5 + 2 * 2);
    cli_report_close(&run);
    remove_path(path);
}
