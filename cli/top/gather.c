/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of `switchyard top` from a run's directory and database. Every question is answered from an index in
 * a moment, however long the run is, so its writer hardly ever finds the database locked. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/run_config.h"
#include "cli/top/top.h"
#include "metrics/reader.h"
#include "train/launch/run_dir.h"
#include "train/launch/run_state.h"

static const double PATIENCE =
    1; /* seconds that a locked database is waited for; the next frame tries again */

struct gather {
    struct syi_reader *reader;
    struct cli_top *top;
    int64_t attempt, step;                                   /* of the newest row that has a loss */
    double value;                                            /* of a question for one number */
    int64_t tokens[CLI_TOP_LAYERS], dropped[CLI_TOP_LAYERS]; /* sums of a layer */
};

static struct syi_value integer_value(int64_t value)
{
    return (struct syi_value){.kind = SYI_VALUE_INTEGER, .integer = value, .text = ""};
}

static int ask(struct gather *g, const char *sql, int64_t first, int64_t second, syi_row_fn row,
               struct sy_error *err)
{
    const struct syi_value given[] = {integer_value(first), integer_value(second)};
    const struct syi_question question = {.sql = sql, .given = given, .n_given = 2, .row = row, .arg = g};
    return syi_reader_ask(g->reader, &question, err);
}

/* The sign $ in the SQL stands for what restricts rows to those of training. */
static int ask_training(struct gather *g, const char *sql, int64_t first, int64_t second, syi_row_fn row,
                        struct sy_error *err)
{
    const char *sign = strchr(sql, '$');
    char *text = syi_format("%.*s%s%s", (int)(sign - sql), sql, syi_reader_training(g->reader), sign + 1);
    int status = text ? ask(g, text, first, second, row, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(text);
    return status;
}

static int take_number(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    (void)err;
    g->value = syi_value_number(&row->values[0]);
    return SY_OK;
}

/* ---- the newest step ---- */

static int take_place(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    (void)err;
    g->attempt = row->values[0].integer;
    g->step = row->values[1].integer;
    return SY_OK;
}

static int take_metric(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct cli_top *top = ((struct gather *)arg)->top;
    const char *name = row->values[0].text;
    double value = syi_value_number(&row->values[1]);
    (void)err;
    if (!strcmp(name, "loss")) top->loss = value;
    if (!strcmp(name, "learning_rate")) top->learning_rate = value;
    if (!strcmp(name, "weight_gradient_norm")) top->gradient_norm = value;
    if (!strcmp(name, "tokens_per_second")) top->tokens_per_second = value;
    return SY_OK;
}

/* Mean seconds of the last steps, and with them what is left. */
static int gather_speed(struct gather *g, struct sy_error *err)
{
    struct cli_top *top = g->top;
    g->value = NAN;
    int status =
        ask_training(g,
                     "SELECT avg(value) FROM (SELECT value FROM metric WHERE attempt = ?1 AND step <= ?2 "
                     "AND name = 'step_seconds'$ ORDER BY step DESC LIMIT 20)",
                     g->attempt, g->step, take_number, err);
    top->step_seconds = g->value;
    if (top->steps > top->step) top->seconds_left = top->step_seconds * (double)(top->steps - top->step);
    return status;
}

/* Of the newest step: one with a checkpoint, or the last of a run, may have other rows alone, and so may an attempt
 * that has just gone on from one. So the numbers are those of the newest that has a loss, whichever attempt made it. */
static int gather_step(struct gather *g, struct sy_error *err)
{
    int status = ask(g, "SELECT attempt, step FROM valid_metric ORDER BY attempt DESC, step DESC LIMIT 1", 0,
                     0, take_place, err);
    g->top->step = g->step;
    if (!status)
        status = ask_training(g,
                              "SELECT attempt, step FROM valid_metric WHERE name = 'loss'$ "
                              "ORDER BY attempt DESC, step DESC LIMIT 1",
                              0, 0, take_place, err);
    if (!status)
        status = ask_training(g, "SELECT name, value FROM metric WHERE attempt = ?1 AND step = ?2$",
                              g->attempt, g->step, take_metric, err);
    return status ? status : gather_speed(g, err);
}

/* ---- the loss since the start ---- */

/* Each point is the mean of the first rows of its stretch: enough to see the course, and quick. */
static int gather_curve(struct gather *g, struct sy_error *err)
{
    static const char sql[] =
        "SELECT avg(value) FROM (SELECT value FROM valid_metric WHERE attempt IN (SELECT attempt FROM run) "
        "AND step > ?1 AND step <= ?2 AND name = 'loss'$ LIMIT 30)";
    struct cli_top *top = g->top;
    int64_t n = top->step < CLI_TOP_POINTS ? top->step : CLI_TOP_POINTS;
    int status = SY_OK;
    for (int64_t i = 0; i < n && !status; i++) {
        double from = (double)top->step * (double)i / (double)n,
               to = (double)top->step * (double)(i + 1) / (double)n;
        g->value = NAN;
        status = ask_training(g, sql, (int64_t)from, i + 1 == n ? top->step : (int64_t)to, take_number, err);
        if (isfinite(g->value)) top->loss_at[top->n_points++] = g->value;
    }
    return status;
}

/* ---- evaluations, experts, events ---- */

static int take_evaluation(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct cli_top *top = ((struct gather *)arg)->top;
    const struct syi_value *v = row->values;
    (void)err;
    if (top->n_evals == CLI_TOP_EVALS) {
        top->evals_left_out++;
        return SY_OK;
    }
    struct cli_top_eval *e = &top->eval[top->n_evals++];
    snprintf(e->task, sizeof e->task, "%s", v[0].text);
    snprintf(e->name, sizeof e->name, "%s", v[2].text);
    e->step = v[1].integer;
    e->value = syi_value_number(&v[3]);
    return SY_OK;
}

/* layer, expert, tokens, dropped: in the order of layers. */
static int take_load(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct gather *g = arg;
    struct cli_top *top = g->top;
    const struct syi_value *v = row->values;
    struct cli_top_layer *layer = top->n_layers ? &top->layer[top->n_layers - 1] : NULL;
    (void)err;
    if (!layer || strncmp(layer->name, v[0].text, sizeof layer->name - 1)) {
        if (top->n_layers == CLI_TOP_LAYERS) {
            top->layers_left_out += v[1].integer == 0;
            return SY_OK;
        }
        layer = &top->layer[top->n_layers++];
        snprintf(layer->name, sizeof layer->name, "%s", v[0].text);
    }
    if (v[1].integer < 0) return SY_OK;
    g->tokens[top->n_layers - 1] += v[2].integer;
    g->dropped[top->n_layers - 1] += v[3].integer;
    if (v[1].integer >= CLI_TOP_EXPERTS) {
        layer->experts_left_out++;
        return SY_OK;
    }
    int expert = (int)v[1].integer;
    if (expert >= layer->n_experts) layer->n_experts = expert + 1;
    layer->share[expert] = fmax(0, syi_value_number(&v[2]));
    return SY_OK;
}

static int gather_load(struct gather *g, struct sy_error *err)
{
    static const char sql[] =
        "SELECT layer, expert, sum(tokens), sum(dropped) FROM valid_routing WHERE step IN "
        "(SELECT DISTINCT step FROM routing m WHERE step <= ?1 AND NOT EXISTS (SELECT 1 FROM run r "
        "WHERE r.attempt > m.attempt AND r.start_step < m.step) ORDER BY step DESC LIMIT 10) "
        "GROUP BY layer, expert ORDER BY layer LIKE 'decoder%', length(layer), layer, expert";
    int status = ask(g, sql, g->top->step, 0, take_load, err);
    for (int i = 0; i < g->top->n_layers; i++) {
        struct cli_top_layer *layer = &g->top->layer[i];
        double taken = (double)g->tokens[i], all = taken + (double)g->dropped[i];
        for (int j = 0; j < layer->n_experts; j++) layer->share[j] = taken > 0 ? layer->share[j] / taken : 0;
        layer->dropped = all > 0 ? (double)g->dropped[i] / all : 0;
    }
    return status;
}

static int take_event(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct cli_top *top = ((struct gather *)arg)->top;
    (void)err;
    snprintf(top->event, sizeof top->event, "last event: %s at step %lld: %s", row->values[0].text,
             (long long)row->values[1].integer, row->values[2].text);
    return SY_OK;
}

static int gather_all(struct gather *g, struct sy_error *err)
{
    int status = gather_step(g, err);
    if (!status) status = gather_curve(g, err);
    if (!status)
        status = ask(
            g,
            "SELECT e.task, e.step, e.name, e.value FROM eval e JOIN (SELECT max(id) AS id FROM valid_eval GROUP BY task, name) l "
            "ON l.id = e.id ORDER BY e.task, e.step, e.id",
            0, 0, take_evaluation, err);
    if (!status) status = gather_load(g, err);
    if (!status)
        status =
            ask(g, "SELECT kind, step, text FROM event ORDER BY rowid DESC LIMIT 1", 0, 0, take_event, err);
    return status;
}

/* Name and steps of the run file in force. Without it the rest is still worth seeing. */
static void gather_config(const char *path, struct cli_top *top)
{
    struct syi_config *config = syi_alloc(sizeof *config, NULL);
    if (config && !syi_run_dir_read_config(path, config, NULL)) {
        snprintf(top->run, sizeof top->run, "%.*s", (int)sizeof top->run - 1, config->run.name);
        top->steps = config->train.steps;
    }
    syi_free(config);
}

int cli_top_gather(const char *path, struct cli_top *top, struct sy_error *err)
{
    struct syi_run_state state;
    struct gather g = {.top = top};
    char *file = syi_format("%s/metrics.db", path);
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    *top = (struct cli_top){.loss = NAN,
                            .learning_rate = NAN,
                            .gradient_norm = NAN,
                            .tokens_per_second = NAN,
                            .step_seconds = NAN,
                            .seconds_left = NAN};
    snprintf(top->path, sizeof top->path, "%s", path);
    gather_config(path, top);
    syi_run_state_read(path, &state);
    snprintf(top->state, sizeof top->state, "%.*s", (int)sizeof top->state - 1, state.text);
    top->live = state.live;
    int status = syi_reader_open(file, PATIENCE, &g.reader, err);
    if (!status) status = gather_all(&g, err);
    syi_reader_close(g.reader);
    syi_free(file);
    return status;
}
