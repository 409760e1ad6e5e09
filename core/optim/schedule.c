/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rate schedules, in double with libm; formulas are in schedule.h. What uses the rate is the
 * engine's. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "optim/schedule.h"

static const double pi = 3.14159265358979323846;

/* How far the part behind the warm-up has come, 0 to 1. */
static double done(const struct syi_config *config, int64_t step)
{
    int64_t from = config->train.warmup_steps, to = config->train.steps;
    if (step >= to) return 1;
    return (double)(step - from) / (double)(to - from);
}

static double rsqrt(const struct syi_config *config, int64_t step)
{
    double peak_at = config->train.warmup_steps > 1 ? (double)config->train.warmup_steps : 1;
    double at = (double)step > peak_at ? (double)step : peak_at;
    return fmax(config->train.final_learning_rate, config->train.learning_rate * sqrt(peak_at / at));
}

/* ---- T5X's factors ---- */

static double constant(const struct syi_config *config, int64_t step)
{
    (void)step;
    return config->train.learning_rate;
}

static double linear_warmup(const struct syi_config *config, int64_t step)
{
    int64_t warmup = config->train.warmup_steps;
    return step < warmup ? (double)step / (double)warmup : 1;
}

static double rsqrt_decay(const struct syi_config *config, int64_t step)
{
    return 1 / sqrt(fmax(1, fmax((double)step, (double)config->train.warmup_steps)));
}

static const struct factor {
    const char *name;
    double (*value)(const struct syi_config *config, int64_t step);
} factors[] = {{"constant", constant}, {"linear_warmup", linear_warmup}, {"rsqrt_decay", rsqrt_decay}};

/* The factor at the start of *text, which moves behind the '*' that ends it, or becomes NULL at the end. NULL
 * for an unknown one, whose name is then the *length bytes at *name. */
static const struct factor *next_factor(const char **text, const char **name, size_t *length)
{
    const char *first = *text + strspn(*text, " \t"), *end = first + strcspn(first, "*");
    *text = *end ? end + 1 : NULL;
    while (end > first && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *name = first;
    *length = (size_t)(end - first);
    for (size_t i = 0; i < SYI_COUNT(factors); i++)
        if (strlen(factors[i].name) == *length && !strncmp(factors[i].name, first, *length))
            return &factors[i];
    return NULL;
}

int syi_schedule_check(const struct syi_config *config, struct sy_error *err)
{
    const char *text = config->train.lr_factors, *name;
    size_t length;
    while (text && *config->train.lr_factors)
        if (!next_factor(&text, &name, &length))
            return syi_error(err, SY_EINVAL,
                             "train.lr_factors: there is no factor \"%.*s\", known are constant, "
                             "linear_warmup and rsqrt_decay, with * between them",
                             (int)length, name);
    return SY_OK;
}

/* Unknown factors, which syi_schedule_check refuses, count 1. */
static double product(const struct syi_config *config, int64_t step)
{
    const char *text = config->train.lr_factors, *name;
    size_t length;
    double rate = 1;
    while (text) {
        const struct factor *factor = next_factor(&text, &name, &length);
        if (factor) rate *= factor->value(config, step);
    }
    return fmax(rate, 1e-8);
}

double syi_schedule_rate(const struct syi_config *config, int64_t step)
{
    if (*config->train.lr_factors) return product(config, step);
    double top = config->train.learning_rate, low = config->train.final_learning_rate;
    if (step < config->train.warmup_steps) return top * (double)step / (double)config->train.warmup_steps;
    switch (config->train.schedule) {
    case SYI_SCHEDULE_LINEAR: return top + (low - top) * done(config, step);
    case SYI_SCHEDULE_COSINE: return low + (top - low) * 0.5 * (1 + cos(pi * done(config, step)));
    case SYI_SCHEDULE_RSQRT: return rsqrt(config, step);
    default: return top;
    }
}
