/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates at steps that are round numbers, and at the steps of the highest and of the last one: that of
 * [optimizer], and those that named optimizers have of their own. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/plan_schedule.h"
#include "optim/schedule.h"

enum { ROWS = 16, BAR = 40 };     /* most rows; columns of a bar */
enum { LOOKED_AT = 1000 * 1000 }; /* steps that the highest is looked for at, evenly far apart */

struct curve {
    char key[SYI_KEY]; /* that it comes from */
    struct syi_schedule schedule;
    int64_t step[ROWS];
    double rate[ROWS];
    int n;
    double highest;
};

/* The round number, 1, 2 or 5 with noughts, that gives at most so many steps from 0 to `last`. */
static int64_t distance(int64_t last, int64_t most)
{
    static const int64_t factor[] = {1, 2, 5};
    for (int64_t ten = 1;; ten *= 10)
        for (int i = 0; i < 3; i++)
            if (last / (factor[i] * ten) < most) return factor[i] * ten;
}

static int64_t find_highest(const struct syi_schedule *s, int64_t last)
{
    int64_t best = 0, apart = last / LOOKED_AT + 1;
    for (int64_t step = 0; step <= last; step += apart)
        if (syi_schedule_value(s, step) > syi_schedule_value(s, best)) best = step;
    return best;
}

static void add(struct curve *c, int64_t step)
{
    if (c->n && c->step[c->n - 1] == step) return;
    c->step[c->n] = step;
    c->rate[c->n++] = syi_schedule_value(&c->schedule, step);
}

/* The key that the rate of the part comes from: its own, else that of the run. */
static void find_key(const struct syi_config *config, int part, char key[SYI_KEY])
{
    const struct syi_optimizer_part *p = &config->optimizer.part[part];
    const char *name = p->name_of_part;
    if (*p->lr_factors)
        snprintf(key, SYI_KEY, "optimizer%s%s.lr_factors", *name ? "." : "", name);
    else
        snprintf(key, SYI_KEY, "train.%s", *config->train.lr_factors ? "lr_factors" : "schedule");
}

static int fill(struct curve *c, const struct syi_config *config, int part, struct sy_error *err)
{
    const char *own = config->optimizer.part[part].lr_factors;
    char reason[SYI_TERM_REASON];
    find_key(config, part, c->key);
    int status = *own ? syi_schedule_compile_rate(&c->schedule, config, own, reason)
                      : syi_schedule_compile_run(&c->schedule, config, reason);
    if (status) return syi_error(err, status, "%s: %s", c->key, reason);
    int64_t last = config->train.steps > 1 ? config->train.steps - 1 : 0;
    int64_t highest = find_highest(&c->schedule, last), apart = distance(last, ROWS - 2);
    for (int64_t step = 0; step <= last; step += apart) {
        add(c, step);
        if (highest > step && highest < step + apart) add(c, highest);
    }
    add(c, last);
    c->highest = syi_schedule_value(&c->schedule, highest);
    return SY_OK;
}

/* Whether the part's rate is not printed with those before it. */
static int is_new(const struct syi_config *config, int part)
{
    const struct syi_optimizer_part *p = config->optimizer.part;
    if (part == 0 || *p[part].lr_factors) return 1;
    if (p[part].name == SYI_OPTIMIZER_NONE) return 0;
    for (int i = 0; i < part; i++)
        if (!*p[i].lr_factors && (i == 0 || p[i].name != SYI_OPTIMIZER_NONE)) return 0;
    return 1;
}

static void put_source(const struct curve *c, const struct syi_config *config, struct syi_text *text)
{
    struct sy_error ignored;
    syi_text_printf(text, "learning rate by %s = ", c->key);
    if (syi_config_get_text(config, c->key, text, &ignored)) text->status = SY_ENOMEM;
    syi_text_printf(text, ", train.steps = %" PRId64 "\n", config->train.steps);
}

static void print_text(const struct curve *c, struct syi_text *text)
{
    static const char bar[BAR + 1] = "########################################";
    syi_text_printf(text, "%14s  %-13s\n", "step", "learning rate");
    for (int i = 0; i < c->n; i++) {
        int length = c->highest > 0 ? (int)(c->rate[i] / c->highest * BAR + 0.5) : 0;
        syi_text_printf(text, "%14" PRId64 "  %-*.7g", c->step[i], length ? 15 : 0, c->rate[i]);
        syi_text_printf(text, "%.*s\n", length, bar);
    }
}

static void put_rates(const struct curve *c, struct syi_json_writer *w)
{
    syi_json_put_key(w, "schedule");
    syi_json_open(w, '[');
    for (int i = 0; i < c->n; i++) {
        syi_json_open(w, '{');
        syi_json_put_key_integer(w, "step", c->step[i]);
        syi_json_put_key_double(w, "learning_rate", c->rate[i]);
        syi_json_close(w, '}');
    }
    syi_json_close(w, ']');
}

static int print_all(const struct syi_config *config, struct syi_text *text, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->optimizer.n && !status; i++) {
        struct curve c = {.n = 0};
        if (!is_new(config, i)) continue;
        status = fill(&c, config, i, err);
        if (i) syi_text_puts(text, "\n");
        put_source(&c, config, text);
        print_text(&c, text);
    }
    return status;
}

/* The rate of [optimizer], and an array of the others by the keys that they come from. */
static int print_json(const struct syi_config *config, struct syi_text *text, struct sy_error *err)
{
    struct syi_json_writer w;
    int status = SY_OK;
    syi_json_begin(&w, text);
    syi_json_open(&w, '{');
    for (int i = 0; i < config->optimizer.n && !status; i++) {
        struct curve c = {.n = 0};
        if (i == 1) syi_json_put_key(&w, "others");
        if (i == 1) syi_json_open(&w, '[');
        if (!is_new(config, i)) continue;
        status = fill(&c, config, i, err);
        if (i) syi_json_open(&w, '{');
        if (i) syi_json_put_key_string(&w, "key", c.key);
        put_rates(&c, &w);
        if (i) syi_json_close(&w, '}');
    }
    if (config->optimizer.n > 1) syi_json_close(&w, ']');
    syi_json_close(&w, '}');
    syi_text_puts(text, "\n");
    return status;
}

int plan_print_schedule(const struct syi_config *config, int json, struct sy_error *err)
{
    struct syi_text text = {0};
    int status = json ? print_json(config, &text, err) : print_all(config, &text, err);
    if (!status) status = syi_text_status(&text, err);
    if (!status) fputs(text.data, stdout);
    syi_text_free(&text);
    return status;
}
