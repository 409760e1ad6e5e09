/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a report: head, style, and the parts in order. It asks no other file of anybody and has no scripts. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/report.h"

const char cli_report_mark[] = "<!DOCTYPE html>\n<!-- switchyard report -->\n";

/* Series in the colours of Okabe and Ito (jfly.uni-koeln.de/color), which people with any colour vision tell apart;
 * heat from blue over neutral to orange, likewise. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fbfbfa;--panel:#fff;--ink:#1c2126;--soft:#5d6771;--edge:#e3e5e8;--c0:#0072b2;"
    "--c1:#d55e00;--c2:#009e73;--c3:#b0578f;--c4:#e69f00;--c5:#3a9fd6;--c6:#7a5c1e;--c7:#4a4f57;--h0:#084f99;"
    "--h1:#3182bd;--h2:#6baed6;--h3:#bdd7e7;--h4:#f0f0ee;--h5:#fdd9b0;--h6:#fdae6b;--h7:#e6550d;--h8:#9a3503}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--panel:#1c2024;--ink:#e6e8ea;--soft:#98a2ac;--edge:#30363c;"
    "--c0:#56b4e9;--c1:#ff8a3d;--c2:#2fc79b;--c3:#e09bc4;--c4:#f0c040;--c5:#8fd0ff;--c6:#c8a96a;--c7:#b6bcc4;"
    "--h0:#8cc8f7;--h1:#4a90d0;--h2:#33659a;--h3:#2a4460;--h4:#2b3036;--h5:#553f24;--h6:#93642a;--h7:#d08c30;"
    "--h8:#ffc266}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'DejaVu Sans',sans-serif}\n"
    "main{max-width:1320px;margin:0 auto;padding:28px 24px 64px}\n"
    "h1{font-size:26px;line-height:1.2;margin:0 0 4px}h2{font-size:19px;margin:40px 0 12px}"
    "h3{font-size:15px;margin:26px 0 8px}\n"
    "p{margin:0}.sub,.note,.empty{color:var(--soft)}.note{font-size:12.5px;text-align:center}.note strong{color:var(--c1)}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0 0}\n"
    ".card,figure{background:var(--panel);border:1px solid var(--edge);border-radius:8px}\n"
    ".card{padding:10px 14px}.card b{display:block;font-size:20px;font-variant-numeric:tabular-nums;"
    "overflow-wrap:anywhere}.card.text b{font-size:15px;line-height:1.35}.card span{color:var(--soft);font-size:13px}\n"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));gap:16px}\n"
    "figure{margin:0;padding:12px 14px 10px;min-width:0}\n"
    "figcaption{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:center;justify-content:space-between;"
    "margin-bottom:6px}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:center;font-size:13px;color:var(--soft)}\n"
    ".key{display:inline-block;width:18px;height:0;border-top:3px solid;vertical-align:middle}"
    ".key.thin{opacity:.45}.key.dashed{border-top-style:dashed}.key.dots{width:8px;border:4px solid;"
    "border-radius:50%}.entry{display:inline-flex;align-items:center;gap:6px}\n"
    "svg{display:block;width:100%;height:auto}svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
    ".grid path.grid,.grid .axis{fill:none;stroke:var(--edge);stroke-width:1}.grid .axis{stroke:var(--soft)}\n"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}.line.fine{stroke-width:1.1}.line.thin{stroke-width:1;opacity:.38}"
    ".line.dashed{stroke-dasharray:6 5}\n"
    ".scale{display:flex;align-items:center;gap:3px;margin:0 0 12px;color:var(--soft);font-size:13px}"
    ".scale svg{width:22px}.scale span{margin:0 6px}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13.5px;background:var(--panel);"
    "border:1px solid var(--edge)}\n"
    "th,td{text-align:left;vertical-align:top;padding:5px 12px;border-bottom:1px solid var(--edge);"
    "overflow-wrap:anywhere}th{color:var(--soft);font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums;"
    "white-space:nowrap}\n"
    "details{margin-top:26px}summary{cursor:pointer;font-weight:600}pre{background:var(--panel);"
    "border:1px solid var(--edge);border-radius:8px;padding:14px;overflow-x:auto;font-size:12.5px;line-height:1.45}\n"
    "@media print{body{background:#fff}figure,.card,tr{break-inside:avoid}}\n";

static void put_style(struct syi_text *out)
{
    syi_text_puts(out, "<style>\n");
    syi_text_puts(out, style);
    for (int i = 0; i < CLI_REPORT_RUNS; i++)
        syi_text_printf(
            out, ".line.c%d{stroke:var(--c%d)}.dot.c%d{fill:var(--c%d)}.key.c%d{border-color:var(--c%d)}\n",
            i, i, i, i, i, i);
    for (int i = 0; i < 9; i++) syi_text_printf(out, ".h%d{fill:var(--h%d)}", i, i);
    syi_text_puts(out, "\n</style>\n");
}

static void put_title(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) syi_text_puts(out, i + 1 < n ? ", " : " and ");
        cli_html(out, runs[i].name);
    }
}

/* ---- head and cards ---- */

static void put_card(struct syi_text *out, const char *kind, const char *name, const char *value)
{
    syi_text_printf(out, "<div class=\"card %s\"><b>", kind);
    cli_html(out, value);
    syi_text_puts(out, "</b><span>");
    cli_html(out, name);
    syi_text_puts(out, "</span></div>\n");
}

static void put_number_card(struct syi_text *out, const char *name, const char *format, double value)
{
    char text[64] = "not finite";
    if (isfinite(value)) snprintf(text, sizeof text, fabs(value) < 1e9 ? format : "%.4g", value);
    put_card(out, "number", name, text);
}

static void put_cards(struct syi_text *out, const struct cli_report_run *run)
{
    syi_text_puts(out, "<div class=\"cards\">\n");
    put_card(out, "text", "state", run->state);
    put_number_card(out, "steps", "%.0f", (double)run->last_step);
    if (cli_series_any(&run->loss))
        put_number_card(out, "loss, mean of the last 50 rows", "%.4f", run->mean_loss);
    if (run->speed.n) put_number_card(out, "tokens/s, mean", "%.0f", run->mean_speed);
    for (int i = 0, shown = 0, of_task = 0; i < run->n_evals && shown < 6; i++) {
        const struct cli_eval *e = &run->eval[i];
        char name[200];
        if (i && strcmp(e->task, e[-1].task)) of_task = 0;
        if (of_task == 2 || !cli_series_any(e->series) || !strcmp(e->name, "items") ||
            !strcmp(e->name, "cut"))
            continue;
        snprintf(name, sizeof name, "%s %s, newest", e->task, e->name);
        put_number_card(out, name, "%.4g", e->series->last.y);
        shown++, of_task++;
    }
    syi_text_puts(out, "</div>\n");
}

/* "2026-11-22T17:20:46.408Z" to the minute. */
static void put_time(struct syi_text *out, const char *time)
{
    char text[32];
    snprintf(text, sizeof text, "%.10s %.5s UTC", time, strlen(time) > 16 ? time + 11 : "");
    cli_html(out, strlen(time) > 16 ? text : "at an unknown time");
}

static void put_head(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    syi_text_puts(out, "<h1>");
    put_title(out, runs, n);
    syi_text_puts(out, "</h1>\n");
    for (int i = 0; i < n; i++) {
        syi_text_puts(out, "<p class=\"sub\">");
        if (n > 1) syi_text_printf(out, "<span class=\"key plain c%d\"></span> ", i);
        cli_html(out, runs[i].path);
        syi_text_puts(out, " · begun ");
        put_time(out, runs[i].began);
        syi_text_puts(out, " on ");
        cli_html(out, runs[i].host[0] ? runs[i].host : "an unknown host");
        syi_text_printf(out, " · %lld attempt%s · switchyard ", (long long)runs[i].attempts,
                        runs[i].attempts == 1 ? "" : "s");
        cli_html(out, runs[i].version);
        if (n > 1) syi_text_puts(out, " · "), cli_html(out, runs[i].state);
        syi_text_puts(out, "</p>\n");
    }
}

/* ---- plots ---- */

/* One curve of each run; the runs' names stand in the legend where there are several. */
static void put_curves(struct syi_text *out, const char *title, enum cli_line_kind kind,
                       const struct cli_report_run *runs, int n, size_t series)
{
    struct cli_plot plot = {.title = title};
    for (int i = 0; i < n; i++)
        cli_plot_add(&plot, (const struct cli_series *)(const void *)((const char *)&runs[i] + series), kind,
                     i, n > 1 ? runs[i].path : NULL);
    cli_plot_figure(&plot, out);
}

static void put_loss(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    struct cli_plot plot = {.title = "Training loss", .log_allowed = 1};
    for (int i = 0; i < n; i++)
        cli_plot_add(&plot, &runs[i].loss, CLI_LINE_THIN, i, n > 1 ? NULL : "every row");
    for (int i = 0; i < n; i++)
        cli_plot_add(&plot, &runs[i].smooth, CLI_LINE_PLAIN, i, n > 1 ? runs[i].path : "mean of 50 rows");
    if (n > 1) plot.note = "thin: every row, thick: mean of 50 rows";
    cli_plot_figure(&plot, out);
}

static const char *const parts[CLI_PARTS] = {[CLI_CROSS_ENTROPY] = "Cross entropy",
                                             [CLI_LABEL_SMOOTHING] = "Label smoothing",
                                             [CLI_Z_LOSS] = "Z-loss",
                                             [CLI_AUXILIARY_LOSS] = "Load balancing loss",
                                             [CLI_ROUTER_Z_LOSS] = "Router z-loss"};

/* What the loss is the sum of: of one run in one plot, of several a plot each. */
static void put_parts(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    struct cli_plot plot = {.title = "Parts of the loss", .log_allowed = 1};
    for (int p = 0; n == 1 && p < CLI_PARTS; p++)
        cli_plot_add(&plot, &runs[0].part[p], CLI_LINE_FINE, p, parts[p]);
    if (n == 1) cli_plot_figure(&plot, out);
    for (int p = 0; n > 1 && p < CLI_PARTS; p++) {
        int any = 0;
        for (int i = 0; i < n; i++) any |= runs[i].part[p].n > 0;
        if (any) put_curves(out, parts[p], CLI_LINE_FINE, runs, n, offsetof(struct cli_report_run, part[p]));
    }
}

static void put_norm(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    struct cli_plot plot = {.title = "Gradient norm", .log_allowed = 1};
    int spikes = 0;
    for (int i = 0; i < n; i++)
        cli_plot_add(&plot, &runs[i].norm, CLI_LINE_FINE, i, n > 1 ? runs[i].path : NULL);
    for (int i = 0; i < n; i++) {
        cli_plot_add(&plot, &runs[i].spikes, CLI_LINE_DOTS, n > 1 ? i : 1,
                     n > 1 ? NULL : "over 3 times the mean before");
        spikes |= runs[i].spikes.n > 0;
    }
    if (n > 1 && spikes) plot.note = "dots: over 3 times the mean before";
    cli_plot_figure(&plot, out);
}

/* Whether one of the evaluations before has this name, of any run. */
static int was_shown(const struct cli_report_run *runs, int run, int at)
{
    for (int i = 0; i <= run; i++)
        for (int j = 0; j < (i < run ? runs[i].n_evals : at); j++)
            if (!strcmp(runs[i].eval[j].name, runs[run].eval[at].name)) return 1;
    return 0;
}

/* All tasks and runs in one plot: of one run a colour a task, of several a colour a run, the first task drawn
 * through and the others dashed. */
static void put_evaluation(struct syi_text *out, const struct cli_report_run *runs, int n, const char *name)
{
    struct syi_text labels[CLI_PLOT_LINES] = {{0}};
    struct cli_plot plot = {.title = name, .log_allowed = 1};
    for (int i = 0; i < n; i++)
        for (int j = 0, task = 0; j < runs[i].n_evals; j++) {
            const struct cli_eval *e = &runs[i].eval[j];
            task += j && strcmp(e->task, e[-1].task) != 0;
            if (strcmp(e->name, name) || plot.n_lines == CLI_PLOT_LINES) continue;
            struct syi_text *label = &labels[plot.n_lines];
            syi_text_printf(label, n > 1 ? "%s %s" : "%s", e->task, runs[i].path);
            cli_plot_add(&plot, e->series, n > 1 && task ? CLI_LINE_DASHED : CLI_LINE_PLAIN,
                         n > 1 ? i : task % CLI_REPORT_RUNS, label->data);
            if (label->status) out->status = label->status;
        }
    cli_plot_figure(&plot, out);
    for (int i = 0; i < plot.n_lines; i++) syi_text_free(&labels[i]);
}

static void put_evaluations(struct syi_text *out, const struct cli_report_run *runs, int n)
{
    int any = 0, left_out = 0;
    syi_text_puts(out, "<h2>Evaluations</h2>\n<div class=\"grid\">\n");
    for (int i = 0; i < n; i++) {
        left_out |= runs[i].evals_left_out;
        for (int j = 0; j < runs[i].n_evals; j++) {
            const char *name = runs[i].eval[j].name;
            if (!strcmp(name, "items") || !strcmp(name, "cut") || was_shown(runs, i, j)) continue;
            put_evaluation(out, runs, n, name);
            any = 1;
        }
    }
    syi_text_puts(out, "</div>\n");
    if (!any)
        syi_text_puts(
            out,
            "<p class=\"empty\">This run was not evaluated: train.evaluate_every and task.NAME.valid ask for it.</p>\n");
    if (left_out)
        syi_text_printf(out, "<p class=\"note\">More than %d evaluations: the table has all.</p>\n",
                        CLI_REPORT_EVALS);
}

static void put_experts(struct syi_text *out, const struct cli_report_run *runs, int n, int64_t last_step)
{
    int any = 0;
    syi_text_puts(out, "<h2>Expert load</h2>\n");
    for (int i = 0; i < n; i++) {
        if (!runs[i].n_heat) continue;
        if (n > 1) syi_text_puts(out, "<h3>"), cli_html(out, runs[i].path), syi_text_puts(out, "</h3>\n");
        cli_heat_maps(&runs[i], last_step, out);
        cli_task_maps(&runs[i], out);
        if (runs[i].routing_steps > runs[i].heat_steps)
            syi_text_printf(
                out, "<p class=\"note\">made of %lld recorded steps of %lld, evenly over the run</p>\n",
                (long long)runs[i].heat_steps, (long long)runs[i].routing_steps);
        any = 1;
    }
    if (!any) syi_text_puts(out, "<p class=\"empty\">There are no experts, or no row of them yet.</p>\n");
}

/* ---- the page ---- */

static int put_tables(struct syi_text *out, const struct cli_report_run *runs, int n, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < n && !status; i++) {
        syi_text_puts(out, "<h2>");
        cli_html(out, n > 1 ? runs[i].path : "Tables");
        syi_text_puts(out, "</h2>\n");
        status = cli_report_tables(&runs[i], out, err);
    }
    return status;
}

int cli_report_page(struct cli_report_run *runs, int n, struct syi_text *out, struct sy_error *err)
{
    int64_t last_step = 1;
    int status = SY_OK;
    for (int i = 0; i < n; i++) last_step = runs[i].last_step > last_step ? runs[i].last_step : last_step;
    for (int i = 0; i < n && !status; i++) status = cli_report_gather(&runs[i], last_step, err);
    if (status) return status;
    syi_text_puts(out, cli_report_mark);
    syi_text_puts(out, "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>");
    put_title(out, runs, n);
    syi_text_puts(out, "</title>\n");
    put_style(out);
    syi_text_puts(out, "</head>\n<body>\n<main>\n");
    put_head(out, runs, n);
    if (n == 1) put_cards(out, &runs[0]);
    if (n > 1) cli_report_compare(runs, n, out);
    syi_text_puts(out, "<h2>Training</h2>\n<div class=\"grid\">\n");
    put_loss(out, runs, n);
    put_parts(out, runs, n);
    put_curves(out, "Learning rate", CLI_LINE_PLAIN, runs, n, offsetof(struct cli_report_run, rate));
    put_norm(out, runs, n);
    put_curves(out, "Tokens per second", CLI_LINE_FINE, runs, n, offsetof(struct cli_report_run, speed));
    syi_text_puts(out, "</div>\n");
    put_evaluations(out, runs, n);
    put_experts(out, runs, n, last_step);
    if (n > 1) status = cli_report_differences(runs, n, out, err);
    if (!status) status = put_tables(out, runs, n, err);
    syi_text_puts(out, "</main>\n</body>\n</html>\n");
    return status ? status : syi_text_status(out, err);
}
