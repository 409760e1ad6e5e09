/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rate schedules, in double with libm; formulas are in schedule.h. What uses the rate is the
 * engine's. */
#include "config.h"

#include <math.h>

#include "optim/schedule.h"

static const double pi = 3.14159265358979323846;

/* How far the part after the warm-up has come, 0 to 1. */
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

static double (*const factors[])(const struct syi_config *config, int64_t step) = {
    [SYI_LR_CONSTANT] = constant,
    [SYI_LR_LINEAR_WARMUP] = linear_warmup,
    [SYI_LR_RSQRT_DECAY] = rsqrt_decay,
};

/* Of a checked configuration: a factor that is not known makes the rate no number. */
static double product(const struct syi_config *config, int64_t step)
{
    const char *text = config->train.lr_factors, *name;
    size_t length;
    double rate = 1;
    while (text) {
        int factor = syi_lr_factor_next(&text, &name, &length);
        rate = factor < 0 ? NAN : rate * factors[factor](config, step);
    }
    return isnan(rate) ? rate : fmax(rate, 1e-8);
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
