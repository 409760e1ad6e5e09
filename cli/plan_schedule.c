/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates at steps that are round numbers, and at the steps of the highest and of the last one. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/plan_schedule.h"
#include "optim/schedule.h"

enum { ROWS = 16, BAR = 40 };     /* most rows; columns of a bar */
enum { LOOKED_AT = 1000 * 1000 }; /* steps that the highest is looked for at, evenly far apart */

struct curve {
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

static int fill(struct curve *c, const struct syi_config *config, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    int status = syi_schedule_compile_run(&c->schedule, config, reason);
    if (status) return syi_error(err, status, "train.lr_factors: %s", reason);
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

static void put_source(const struct syi_config *config, struct syi_text *text)
{
    const char *key = *config->train.lr_factors ? "train.lr_factors" : "train.schedule";
    struct sy_error ignored;
    syi_text_printf(text, "learning rate by %s = ", key);
    if (syi_config_get_text(config, key, text, &ignored)) text->status = SY_ENOMEM;
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

static void print_json(const struct curve *c, struct syi_text *text)
{
    struct syi_json_writer w;
    syi_json_begin(&w, text);
    syi_json_open(&w, '{');
    syi_json_put_key(&w, "schedule");
    syi_json_open(&w, '[');
    for (int i = 0; i < c->n; i++) {
        syi_json_open(&w, '{');
        syi_json_put_key_integer(&w, "step", c->step[i]);
        syi_json_put_key(&w, "learning_rate");
        syi_json_put_double(&w, c->rate[i]);
        syi_json_close(&w, '}');
    }
    syi_json_close(&w, ']');
    syi_json_close(&w, '}');
    syi_text_puts(text, "\n");
}

int plan_print_schedule(const struct syi_config *config, int json, struct sy_error *err)
{
    struct curve c = {.n = 0};
    struct syi_text text = {0};
    int status = fill(&c, config, err);
    if (status) return status;
    if (json) {
        print_json(&c, &text);
    } else {
        put_source(config, &text);
        print_text(&c, &text);
    }
    status = syi_text_status(&text, err);
    if (!status) fputs(text.data, stdout);
    syi_text_free(&text);
    return status;
}
