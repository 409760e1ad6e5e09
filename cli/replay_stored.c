/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/replay_stored.h"
#include "optim/schedule.h"
#include "train/launch/run_dir.h"
#include "train/trainer/rollback.h"

void cli_stored_open(struct cli_stored *stored, const char *run_dir)
{
    struct sy_error ignored = {0};
    char *path = syi_format("%s/metrics.db", run_dir);
    stored->reader = NULL;
    if (path && syi_reader_open(path, 0, &stored->reader, &ignored)) stored->reader = NULL;
    syi_free(path);
}

void cli_stored_close(struct cli_stored *stored)
{
    syi_reader_close(stored->reader);
    stored->reader = NULL;
}

static struct syi_value integer_value(int64_t value)
{
    return (struct syi_value){.kind = SYI_VALUE_INTEGER, .integer = value, .text = ""};
}

static struct syi_value text_value(const char *text)
{
    return (struct syi_value){.kind = SYI_VALUE_TEXT, .text = text, .bytes = strlen(text)};
}

/* ---- numbers of steps ---- */

struct number {
    int there;
    double value;
};

static int take_number(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct number *number = arg;
    (void)err;
    number->there = 1;
    number->value = syi_value_number(&row->values[0]);
    return SY_OK;
}

static int ask_number(const struct cli_stored *stored, const char *sql, const struct syi_value *given, int n,
                      double *value)
{
    struct number number = {0};
    struct sy_error ignored = {0};
    const struct syi_question question = {
        .sql = sql, .given = given, .n_given = n, .row = take_number, .arg = &number};
    if (!stored->reader || syi_reader_ask(stored->reader, &question, &ignored)) return 0;
    *value = number.value;
    return number.there;
}

int cli_stored_number(const struct cli_stored *stored, const char *name, int64_t step, double *value)
{
    const struct syi_value given[] = {text_value(name), integer_value(step)};
    char sql[200];
    if (!stored->reader) return 0;
    snprintf(sql, sizeof sql, "SELECT value FROM valid_metric WHERE name = ?1 AND step = ?2%s",
             syi_reader_training(stored->reader));
    return ask_number(stored, sql, given, 2, value);
}

/* The last row of a name: an evaluation that was made again replaces what it gave before. */
int cli_stored_evaluated(void *arg, int64_t step, const char *task, const char *name, double *value)
{
    const struct syi_value given[] = {text_value(task), integer_value(step), text_value(name)};
    return ask_number(arg,
                      "SELECT value FROM valid_eval WHERE task = ?1 AND step = ?2 AND name = ?3 ORDER BY id",
                      given, 3, value);
}

/* ---- settings ---- */

/* Of an attempt. */
struct settings {
    int64_t start;             /* step that it went on from, -1: it began */
    int is_last;               /* 1: the same as of the last attempt, which the run directory keeps */
    struct syi_config *config; /* what is read goes there; NULL: nowhere */
};

static int take_settings(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct settings *to = arg;
    const struct syi_value *v = row->values;
    to->start = v[0].integer;
    to->is_last = v[1].integer != 0;
    if (to->is_last || v[2].kind != SYI_VALUE_TEXT) return SY_OK;
    int status = syi_config_defaults(to->config, err);
    if (!status) status = syi_config_load_text(to->config, "metrics.db, run", v[2].text, v[2].bytes, err);
    if (!status) syi_run_dir_absolute(to->config); /* as of runs of earlier versions */
    return status;
}

/* Those of the attempt that a step is of. */
static int ask_settings(const struct cli_stored *stored, int64_t step, struct settings *to,
                        struct sy_error *err)
{
    const struct syi_value given[] = {integer_value(step)};
    const struct syi_question question = {
        .sql =
            "SELECT start_step, config = (SELECT config FROM run ORDER BY attempt DESC LIMIT 1), config FROM run "
            "WHERE attempt = (SELECT max(attempt) FROM run WHERE start_step < ?1)",
        .given = given,
        .n_given = 1,
        .row = take_settings,
        .arg = to};
    to->start = -1;
    to->is_last = 1;
    return syi_reader_ask(stored->reader, &question, err);
}

/* Of two attempts one after the other, on the way from a checkpoint to a step. */
struct change {
    const struct syi_config *before, *after;
    int64_t from, step, at; /* at: where the second begins */
    struct sy_error *err;
};

/* Whether another train.steps alone makes another learning rate for a step on the way. */
static int steps_matter(const struct change *c)
{
    struct syi_schedule s[2];
    char reason[SYI_TERM_REASON];
    struct syi_config *other = syi_config_copy(c->after, NULL);
    if (!other) return 1;
    other->train.steps = c->before->train.steps;
    int differ = syi_schedule_compile_run(&s[0], other, reason) != SY_OK ||
                 syi_schedule_compile_run(&s[1], c->after, reason) != SY_OK;
    for (int64_t i = c->from < 0 ? 0 : c->from; !differ && i < c->step; i++)
        differ = syi_schedule_value(&s[0], i) != syi_schedule_value(&s[1], i);
    syi_free(other);
    return differ;
}

static int refuse_change(void *arg, const char *key, enum syi_option_flags flags, const char *old_text,
                         const char *new_text)
{
    const struct change *c = arg;
    int matters = flags != SYI_OPTION_RUN || !strncmp(key, "action", 6) || !strncmp(key, "[action", 7);
    if (!strcmp(key, "train.steps")) matters = steps_matter(c);
    if (!matters) return SY_OK;
    return syi_error(c->err, SY_EMISMATCH,
                     "%s was %s until step %" PRId64 " and %s after it, and the checkpoint of step %" PRId64
                     " is gone: step %" PRId64 " cannot be done again",
                     key, old_text, c->at, new_text, c->at, c->step);
}

static int read_settings(const struct cli_stored *stored, const struct syi_config *last, int64_t step,
                         struct syi_config *config, int64_t *start, struct sy_error *err)
{
    struct settings to = {.config = config};
    int status = ask_settings(stored, step, &to, err);
    *start = to.start;
    if (!status && to.is_last) *config = *last;
    return status;
}

/* The attempts before, as far as their steps are on the way. */
static int check_way(const struct cli_stored *stored, const struct syi_config *last, struct change *change,
                     int64_t start, struct syi_config *before, struct sy_error *err)
{
    int status = SY_OK;
    while (!status && start > change->from && start > 0) {
        change->at = start;
        status = read_settings(stored, last, change->at, before, &start, err);
        change->before = before;
        if (!status) status = syi_config_compare(before, change->after, refuse_change, change, err);
    }
    return status;
}

int cli_stored_settings(const struct cli_stored *stored, const char *run_dir, int64_t step,
                        struct syi_config *config, struct sy_error *err)
{
    struct syi_config *last = syi_config_copy(config, err),
                      *before = last ? syi_config_copy(config, err) : NULL;
    struct change change = {.after = config, .step = step, .err = err};
    int64_t start;
    int status = before ? SY_OK : SY_ENOMEM;
    if (!status && stored->reader) {
        status = syi_checkpoint_before(run_dir, step - 1, &change.from, err);
        if (!status) status = read_settings(stored, last, step, config, &start, err);
        if (!status) status = check_way(stored, last, &change, start, before, err);
    }
    syi_free(before);
    syi_free(last);
    return status;
}

/* ---- ways back ---- */

static int take_hole(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct syi_holes *holes = arg;
    struct syi_hole hole;
    if (syi_hole_read(row->values[0].text, &hole) || syi_holes_add(holes, hole.step, hole.batches))
        return syi_error(err, SY_EFORMAT,
                         "metrics.db: the event rollback of attempt %" PRId64
                         " does not say which batches were left "
                         "out: steps after it cannot be done again",
                         row->values[1].integer);
    return SY_OK;
}

/* An attempt that a way back began goes on in the same training as the one before it. */
int cli_stored_holes(const struct cli_stored *stored, int64_t step, struct syi_holes *holes,
                     struct sy_error *err)
{
    const struct syi_value given[] = {integer_value(step)};
    const struct syi_question question = {
        .sql =
            "WITH did AS (SELECT max(attempt) AS attempt FROM run WHERE start_step < ?1), "
            "back AS (SELECT attempt, text, rowid AS place FROM event WHERE kind = 'rollback'), "
            "started AS (SELECT max(r.attempt) AS attempt FROM run r, did WHERE r.attempt <= did.attempt AND "
            "r.attempt - 1 NOT IN (SELECT attempt FROM back)) "
            "SELECT b.text, b.attempt FROM back b, did, started WHERE b.attempt >= started.attempt AND "
            "b.attempt < did.attempt ORDER BY b.place",
        .given = given,
        .n_given = 1,
        .row = take_hole,
        .arg = holes};
    *holes = (struct syi_holes){0};
    return stored->reader ? syi_reader_ask(stored->reader, &question, err) : SY_OK;
}
