/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a report from a run's database: each table is read once, curves are reduced as they come. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/report/report.h"
#include "train/launch/run_state.h"

enum {
    WINDOW = 50 /* rows that the smooth loss is the mean of */,
    HEAT_STEPS = 1000 /* looked at, at most */
};

struct gather {
    struct cli_report_run *run;
    double last_step;
    double window[WINDOW], tokens, seconds; /* the newest losses; of all rows */
    double window_step[WINDOW];
    double row_seconds; /* of the steps of row_step's row */
    int64_t n_losses, row_step;
    int64_t entropy_step; /* the last step that has a cross entropy with label smoothing, and that */
    double entropy;
    int64_t *step; /* (n_steps) that have rows of experts */
    size_t n_steps, capacity;
};

static int ask(struct gather *g, const char *sql, syi_row_fn row, struct sy_error *err)
{
    const struct syi_question question = {.sql = sql, .row = row, .arg = g};
    return syi_reader_ask(g->run->reader, &question, err);
}

/* The sign $ in the SQL stands for what restricts rows to those of training. */
static int ask_training(struct gather *g, const char *sql, syi_row_fn row, struct sy_error *err)
{
    const char *sign = strchr(sql, '$');
    char *text =
        syi_format("%.*s%s%s", (int)(sign - sql), sql, syi_reader_training(g->run->reader), sign + 1);
    int status = text ? ask(g, text, row, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(text);
    return status;
}

/* ---- who and how far ---- */

static int take_attempt(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct cli_report_run *run = ((struct gather *)arg)->run;
    const struct syi_value *v = row->values;
    if (!run->attempts++) snprintf(run->began, sizeof run->began, "%s", v[0].text);
    snprintf(run->version, sizeof run->version, "%s", v[1].text);
    snprintf(run->host, sizeof run->host, "%s", v[2].text);
    syi_free(run->config);
    run->config = syi_strdup(v[3].text, err);
    return run->config ? SY_OK : SY_ENOMEM;
}

static int take_range(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct cli_report_run *run = ((struct gather *)arg)->run;
    (void)err;
    if (row->values[0].integer > run->last_step) run->last_step = row->values[0].integer;
    return SY_OK;
}

/* The value of the first key `name`, which is that of [run]: a string in quotes, \ before a quote or a \ in it. */
static void find_name(struct cli_report_run *run)
{
    static const char key[] = "\nname = \"";
    const char *from = run->config ? strstr(run->config, key) : NULL, *folder = strrchr(run->path, '/');
    size_t n = 0;
    if (from) from += sizeof key - 1;
    for (; from && *from && *from != '"' && *from != '\n' && n + 1 < sizeof run->name; from++) {
        if (*from == '\\' && from[1]) from++;
        run->name[n++] = *from;
    }
    if (!n) snprintf(run->name, sizeof run->name, "%s", folder && folder[1] ? folder + 1 : run->path);
}

int cli_report_open(struct cli_report_run *run, struct sy_error *err)
{
    struct syi_run_state state;
    struct gather g = {.run = run};
    char *file = syi_format("%s/metrics.db", run->path);
    int status =
        file ? syi_reader_open(file, 0, &run->reader, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(file);
    if (!status)
        status = ask(&g, "SELECT time, version, host, config FROM run ORDER BY attempt", take_attempt, err);
    /* by the newest attempt, from an index: of a long run the largest of all takes long */
    if (!status)
        status = ask(&g, "SELECT step FROM valid_metric ORDER BY attempt DESC, step DESC LIMIT 1", take_range,
                     err);
    if (!status) status = ask(&g, "SELECT max(step) FROM valid_eval", take_range, err);
    syi_run_state_read(run->path, &state);
    memcpy(run->state, state.text, sizeof run->state);
    find_name(run);
    return status;
}

void cli_report_close(struct cli_report_run *run)
{
    for (int i = 0; i < run->n_evals; i++) {
        syi_free(run->eval[i].task);
        syi_free(run->eval[i].name);
        syi_free(run->eval[i].series);
    }
    for (size_t i = 0; i < run->n_heat; i++) {
        syi_free(run->heat[i].layer);
        syi_free(run->heat[i].tokens);
    }
    for (size_t i = 0; i < run->n_task_loads; i++) {
        syi_free(run->task_load[i].layer);
        syi_free(run->task_load[i].task);
        syi_free(run->task_load[i].tokens);
    }
    syi_free(run->task_load);
    syi_free(run->heat);
    syi_free(run->config);
    syi_reader_close(run->reader);
}

/* ---- curves of training ---- */

/* The mean of the last n losses, not finite where one of them is not: a run that diverged has no older mean. It stands at
 * the middle of them, so that the curve does not lag behind. */
static double add_mean(struct gather *g, int64_t n)
{
    double sum = 0;
    for (int64_t i = 1; i <= n; i++) sum += g->window[(g->n_losses - i) % WINDOW];
    if (isfinite(sum)) /* each loss that is not counts once, in the curve of all rows */
        cli_series_add(&g->run->smooth, g->window_step[(g->n_losses - 1 - n / 2) % WINDOW], sum / (double)n);
    return sum / (double)n;
}

static void take_loss(struct gather *g, int64_t step, double loss)
{
    cli_series_add(&g->run->loss, (double)step, loss);
    g->window[g->n_losses % WINDOW] = loss;
    g->window_step[g->n_losses++ % WINDOW] = (double)step;
    g->run->mean_loss = add_mean(g, g->n_losses < WINDOW ? g->n_losses : WINDOW);
}

/* Smaller windows bring the curve close to the end. */
static void end_means(struct gather *g)
{
    for (int64_t n = (g->n_losses < WINDOW ? g->n_losses : WINDOW) - 2; n >= 8; n -= 2) (void)add_mean(g, n);
}

/* cross_ent_loss comes before cross_entropy, which it contains. */
static void take_part(struct gather *g, int64_t step, const char *name, double value)
{
    static const char *const names[CLI_PARTS] = {[CLI_CROSS_ENTROPY] = "cross_entropy",
                                                 [CLI_LABEL_SMOOTHING] = "cross_ent_loss",
                                                 [CLI_Z_LOSS] = "z_loss",
                                                 [CLI_AUXILIARY_LOSS] = "experts/auxiliary_loss",
                                                 [CLI_ROUTER_Z_LOSS] = "experts/router_z_loss"};
    struct cli_series *part = g->run->part;
    int i = 0;
    while (i < CLI_PARTS && strcmp(name, names[i])) i++;
    if (i == CLI_PARTS) return;
    if (i == CLI_LABEL_SMOOTHING) {
        g->entropy_step = step;
        g->entropy = value;
        return;
    }
    cli_series_add(&part[i], (double)step, value);
    if (i == CLI_CROSS_ENTROPY && step == g->entropy_step && g->entropy != value)
        cli_series_add(&part[CLI_LABEL_SMOOTHING], (double)step, g->entropy - value);
}

/* A row of many steps counts as the time of them; in rows of versions that did not keep it all count alike. */
static void take_speed(struct gather *g, int64_t step, double tokens_per_second)
{
    double seconds = g->row_step == step ? g->row_seconds : 1;
    cli_series_add(&g->run->speed, (double)step, tokens_per_second);
    if (!isfinite(tokens_per_second * seconds)) return;
    g->tokens += tokens_per_second * seconds;
    g->seconds += seconds;
}

/* The names of a step come in their order. */
static int take_metric(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    int64_t step = row->values[0].integer;
    const char *name = row->values[1].text;
    double value = syi_value_number(&row->values[2]);
    (void)err;
    take_part(g, step, name, value);
    if (!strcmp(name, "loss")) take_loss(g, step, value);
    if (!strcmp(name, "learning_rate")) cli_series_add(&g->run->rate, (double)step, value);
    if (!strcmp(name, "weight_gradient_norm")) cli_series_add(&g->run->norm, (double)step, value);
    if (!strcmp(name, "timing/seconds")) g->row_step = step, g->row_seconds = value;
    if (!strcmp(name, "tokens_per_second")) take_speed(g, step, value);
    return SY_OK;
}

static int take_spike(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    (void)err;
    cli_series_add(&g->run->spikes, (double)row->values[0].integer, syi_value_number(&row->values[1]));
    return SY_OK;
}

static int gather_training(struct gather *g, struct sy_error *err)
{
    struct cli_report_run *run = g->run;
    struct cli_series *all[] = {&run->loss, &run->smooth, &run->rate, &run->norm, &run->spikes, &run->speed};
    int spikes = 0;
    run->mean_loss = NAN;
    g->entropy_step = -1;
    for (size_t i = 0; i < SYI_COUNT(all); i++) cli_series_begin(all[i], 0, g->last_step);
    for (int i = 0; i < CLI_PARTS; i++) cli_series_begin(&run->part[i], 0, g->last_step);
    int status = ask_training(
        g,
        "SELECT step, name, value FROM valid_metric WHERE name IN ('loss', 'learning_rate', "
        "'weight_gradient_norm', 'timing/seconds', 'tokens_per_second', 'cross_ent_loss', 'cross_entropy', 'z_loss', "
        "'experts/auxiliary_loss', 'experts/router_z_loss')$ ORDER BY attempt, step, name",
        take_metric, err);
    end_means(g);
    run->mean_speed = g->seconds > 0 ? g->tokens / g->seconds : NAN;
    if (!status) status = syi_reader_has(run->reader, "gradient_spikes", &spikes, err);
    if (!status && spikes)
        status = ask(g, "SELECT step, grad_norm FROM gradient_spikes WHERE grad_norm IS NOT NULL", take_spike,
                     err);
    return status;
}

/* ---- evaluations ---- */

/* task, name, step, value: in the order of tasks and names. Texts that were decoded in several ways have a curve of each. */
static const char evaluations_sql[] =
    "SELECT label, name, step, value FROM (SELECT *, min(id) OVER (PARTITION BY label, name) AS first FROM "
    "(SELECT id, name, step, value, CASE WHEN min(settings) OVER of_one <> max(settings) OVER of_one "
    "THEN task || ' (' || coalesce(settings, 'not known how') || ')' ELSE task END AS label "
    "FROM valid_eval WINDOW of_one AS (PARTITION BY task, name))) ORDER BY label, first, id";
/* Versions before 4 do not keep how. */
static const char evaluations_sql_3[] =
    "SELECT task, name, step, value FROM (SELECT *, min(id) OVER (PARTITION BY task, name) AS first "
    "FROM valid_eval) ORDER BY task, first, id";

static int take_evaluation(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    struct cli_report_run *run = g->run;
    const struct syi_value *v = row->values;
    struct cli_eval *e = run->n_evals ? &run->eval[run->n_evals - 1] : NULL;
    if (!e || strcmp(e->task, v[0].text) || strcmp(e->name, v[1].text)) {
        if (run->n_evals == CLI_REPORT_EVALS) {
            run->evals_left_out = 1;
            return SY_OK;
        }
        e = &run->eval[run->n_evals++];
        e->task = syi_strdup(v[0].text, err);
        e->name = syi_strdup(v[1].text, err);
        e->series = syi_alloc(sizeof *e->series, err);
        if (!e->task || !e->name || !e->series) return SY_ENOMEM;
        cli_series_begin(e->series, 0, g->last_step);
    }
    cli_series_add(e->series, (double)v[2].integer, syi_value_number(&v[3]));
    return SY_OK;
}

/* ---- experts ---- */

static struct cli_heat *find_heat(struct cli_report_run *run, const char *layer, struct sy_error *err)
{
    for (size_t i = 0; i < run->n_heat; i++)
        if (!strcmp(run->heat[i].layer, layer)) return &run->heat[i];
    if (SYI_GROW(run->heat, run->heat_capacity, run->n_heat + 1, err)) return NULL;
    struct cli_heat *heat = &run->heat[run->n_heat];
    heat->layer = syi_strdup(layer, err);
    if (!heat->layer) return NULL;
    run->n_heat++;
    return heat;
}

/* step, layer, expert, tokens, dropped. */
static int take_load(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    const struct syi_value *v = row->values;
    double place = (double)v[0].integer / g->last_step * CLI_HEAT_COLUMNS, tokens = syi_value_number(&v[3]);
    struct cli_heat *heat = find_heat(g->run, v[1].text, err);
    if (!heat) return SY_ENOMEM;
    if (v[2].integer < 0 || v[2].integer > 65535 || !(place >= 0) || place > CLI_HEAT_COLUMNS ||
        !(tokens >= 0))
        return SY_OK;
    size_t expert = (size_t)v[2].integer,
           column = place < CLI_HEAT_COLUMNS ? (size_t)place : CLI_HEAT_COLUMNS - 1;
    int status = SYI_GROW(heat->tokens, heat->capacity, (expert + 1) * CLI_HEAT_COLUMNS, err);
    if (status) return status;
    if ((int)expert >= heat->n_experts) heat->n_experts = (int)expert + 1;
    heat->tokens[expert * CLI_HEAT_COLUMNS + column] += tokens;
    heat->taken += tokens;
    if (v[4].kind == SYI_VALUE_INTEGER) heat->dropped += (double)v[4].integer;
    return SY_OK;
}

static int take_step(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    int status = SYI_GROW(g->step, g->capacity, g->n_steps + 1, err);
    if (!status) g->step[g->n_steps++] = row->values[0].integer;
    return status;
}

/* Single steps, from an index, evenly over the run: of a long run all rows would take minutes. */
static int gather_experts(struct gather *g, struct sy_error *err)
{
    int status = ask(g,
                     "SELECT DISTINCT step FROM routing m WHERE NOT EXISTS (SELECT 1 FROM run r "
                     "WHERE r.attempt > m.attempt AND r.start_step < m.step) ORDER BY step",
                     take_step, err);
    size_t n = g->n_steps < HEAT_STEPS ? g->n_steps : HEAT_STEPS;
    g->run->routing_steps = (int64_t)g->n_steps;
    g->run->heat_steps = (int64_t)n;
    for (size_t i = 0; i < n && !status; i++) {
        struct syi_value step = {
            .kind = SYI_VALUE_INTEGER, .integer = g->step[i * g->n_steps / n], .text = ""};
        const struct syi_question question = {
            .sql =
                "SELECT step, layer, expert, tokens, dropped FROM valid_routing WHERE attempt IN (SELECT attempt "
                "FROM run) AND step = ?1 ORDER BY layer LIKE 'decoder%', length(layer), layer",
            .given = &step,
            .n_given = 1,
            .row = take_load,
            .arg = g};
        status = syi_reader_ask(g->run->reader, &question, err);
    }
    return status;
}

/* layer, task, step, expert, tokens: a layer's tasks one after the other, experts from 0. */
static int take_task_load(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct cli_report_run *run = ((struct gather *)arg)->run;
    const struct syi_value *v = row->values;
    struct cli_task_load *t = run->n_task_loads ? &run->task_load[run->n_task_loads - 1] : NULL;
    if (!t || strcmp(t->layer, v[0].text) || strcmp(t->task, v[1].text)) {
        if (SYI_GROW(run->task_load, run->task_load_capacity, run->n_task_loads + 1, err)) return SY_ENOMEM;
        t = &run->task_load[run->n_task_loads++];
        *t = (struct cli_task_load){
            .layer = syi_strdup(v[0].text, err), .task = syi_strdup(v[1].text, err), .step = v[2].integer};
        if (!t->layer || !t->task) return SY_ENOMEM;
    }
    if (v[3].integer != t->n_experts) return SY_OK;
    int status = SYI_GROW(t->tokens, t->capacity, (size_t)t->n_experts + 1, err);
    if (!status) t->tokens[t->n_experts++] = fmax(syi_value_number(&v[4]), 0); /* no number: 0 */
    return status;
}

static int gather_tasks(struct gather *g, struct sy_error *err)
{
    int there = 0, status = syi_reader_has(g->run->reader, "expert_tasks", &there, err);
    if (status || !there) return status;
    return ask(g,
               "SELECT layer, task, step, expert, tokens FROM expert_tasks "
               "ORDER BY layer LIKE 'decoder%', length(layer), layer, task, expert",
               take_task_load, err);
}

int cli_report_gather(struct cli_report_run *run, int64_t last_step, struct sy_error *err)
{
    struct gather g = {.run = run, .last_step = last_step > 0 ? (double)last_step : 1};
    int status = gather_training(&g, err);
    if (!status)
        status = ask(&g, syi_reader_version(run->reader) >= 4 ? evaluations_sql : evaluations_sql_3,
                     take_evaluation, err);
    if (!status) status = gather_experts(&g, err);
    if (!status) status = gather_tasks(&g, err);
    syi_free(g.step);
    return status;
}
