/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rate schedules, in double with libm; formulas are in schedule.h. What uses the rate is the
 * engine's. */
#include "config.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "optim/schedule.h"

static const double pi = 3.14159265358979323846;

/* ---- train.schedule ---- */

/* How far the part after the warm-up has come, 0 to 1. */
static double done(const struct syi_schedule *s, int64_t step)
{
    if (step >= s->steps) return 1;
    return (double)(step - s->warmup_steps) / (double)(s->steps - s->warmup_steps);
}

static double rsqrt(const struct syi_schedule *s, int64_t step)
{
    double peak_at = s->warmup_steps > 1 ? (double)s->warmup_steps : 1;
    double at = (double)step > peak_at ? (double)step : peak_at;
    return fmax(s->low, s->top * sqrt(peak_at / at));
}

static double course(const struct syi_schedule *s, int64_t step)
{
    if (step < s->warmup_steps) return s->top * (double)step / (double)s->warmup_steps;
    switch (s->course) {
    case SYI_SCHEDULE_LINEAR: return s->top + (s->low - s->top) * done(s, step);
    case SYI_SCHEDULE_COSINE: return s->low + (s->top - s->low) * 0.5 * (1 + cos(pi * done(s, step)));
    case SYI_SCHEDULE_RSQRT: return rsqrt(s, step);
    default: return s->top;
    }
}

/* ---- shares of a course ---- */

static double rising(double warmup_steps, double t)
{
    return t < warmup_steps ? t / warmup_steps : 1;
}

/* From `begin` on over so many steps, 0 to 1. */
static double share(double begin, double steps, double t)
{
    if (t < begin) return 0;
    return t - begin < steps ? (t - begin) / steps : 1;
}

static double half_cosine(double p)
{
    return 0.5 * (1 + cos(pi * p));
}

/* ---- T5X's factors ---- */

static double constant(const struct syi_schedule_factor *f, double t)
{
    (void)t;
    return f->of.constant.value;
}

static double linear_warmup(const struct syi_schedule_factor *f, double t)
{
    return rising(f->of.linear_warmup.warmup_steps, t);
}

static double linear_decay(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_linear_decay *a = &f->of.linear_decay;
    return a->value * fmin(rising(a->warmup_steps, t), 1 + a->decay_factor * (a->warmup_steps - t));
}

static double rsqrt_decay(const struct syi_schedule_factor *f, double t)
{
    return 1 / sqrt(fmax(1, fmax(t, f->of.rsqrt_decay.warmup_steps)));
}

static double rsqrt_normalized_decay(const struct syi_schedule_factor *f, double t)
{
    double peak_at = fmax(1, f->of.rsqrt_normalized_decay.warmup_steps);
    return sqrt(peak_at / fmax(t, peak_at));
}

static double decay_every(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_decay_every *a = &f->of.decay_every;
    return pow(a->decay_factor, floor(t / (double)a->steps_per_decay));
}

static double cosine_decay(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_cosine_decay *a = &f->of.cosine_decay;
    return half_cosine(fmod(fmax(0, t - a->warmup_steps) / (double)a->steps_per_cycle, 1));
}

/* ---- optax's ---- */

static double linear(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_linear *a = &f->of.linear;
    return a->init_value +
           (a->end_value - a->init_value) * share(a->transition_begin, a->transition_steps, t);
}

static double polynomial(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_polynomial *a = &f->of.polynomial;
    double left = 1 - share(a->transition_begin, a->transition_steps, t);
    return a->end_value + (a->init_value - a->end_value) * pow(left, a->power);
}

static double exponential(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_exponential *a = &f->of.exponential;
    double times = fmax(0, t - a->transition_begin) / fmax(1, a->transition_steps);
    double value = a->init_value * pow(a->decay_rate, a->staircase ? floor(times) : times);
    if (isnan(a->end_value)) return value;
    return a->decay_rate < 1 ? fmax(value, a->end_value) : fmin(value, a->end_value);
}

static double piecewise_constant(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_piecewise_constant *a = &f->of.piecewise_constant;
    double value = a->init_value;
    for (int i = 0; i < a->boundaries.n && (double)a->boundaries.values[i] <= t; i++)
        value *= a->scales.values[i];
    return value;
}

static double cosine(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_cosine *a = &f->of.cosine;
    double p = share(a->transition_begin, a->decay_steps, t);
    return a->init_value * ((1 - a->alpha) * half_cosine(p) + a->alpha);
}

/* ---- others ---- */

static double warmup_stable_decay(const struct syi_schedule_factor *f, double t)
{
    const struct syi_schedule_warmup_stable_decay *a = &f->of.warmup_stable_decay;
    double begin = fmax(a->warmup_steps, a->steps - a->decay_steps), low = a->final_share;
    double p = share(begin, a->steps - begin, t);
    if (t < begin) return rising(a->warmup_steps, t);
    switch (a->shape) {
    case SYI_DECAY_COSINE: return low + (1 - low) * half_cosine(p);
    case SYI_DECAY_SQRT: return 1 - (1 - low) * sqrt(p);
    default: return 1 - (1 - low) * p;
    }
}

/* ---- a product ---- */

static double (*const values[SYI_SCHEDULE_FACTOR_count])(const struct syi_schedule_factor *f, double t) = {
#define SY_TERM_BEGIN(name, inner, help) [SYI_SCHEDULE_FACTOR_##name] = name,
#define SY_TERM_END(name)
#define SY_ARGUMENT(name, key, type, value, range, help)
#include "base/schedules.def"
#undef SY_TERM_BEGIN
#undef SY_TERM_END
#undef SY_ARGUMENT
};

double syi_schedule_value(const struct syi_schedule *s, int64_t step)
{
    if (!s->n) return course(s, step);
    double t = step > s->step_offset ? (double)(step - s->step_offset) : 0, value = 1;
    for (int i = 0; i < s->n; i++) value *= values[s->factor[i].kind](&s->factor[i], t);
    return isnan(value) ? value : fmax(value, s->least);
}

int syi_schedule_is_constant(const struct syi_schedule *s)
{
    int constant = s->n || (s->course == SYI_SCHEDULE_CONSTANT && !s->warmup_steps);
    for (int i = 0; i < s->n; i++) constant &= s->factor[i].kind == SYI_SCHEDULE_FACTOR_constant;
    return constant;
}

/* ---- compiling ---- */

static void fill(double *argument, double value)
{
    if (isnan(*argument)) *argument = value;
}

/* What is auto becomes the run's. */
static void fill_autos(struct syi_schedule_factor *f, const struct syi_config *config)
{
    double rate = config->train.learning_rate, warmup = (double)config->train.warmup_steps,
           steps = (double)config->train.steps;
    switch (f->kind) {
    case SYI_SCHEDULE_FACTOR_constant: fill(&f->of.constant.value, rate); break;
    case SYI_SCHEDULE_FACTOR_linear_warmup: fill(&f->of.linear_warmup.warmup_steps, warmup); break;
    case SYI_SCHEDULE_FACTOR_linear_decay:
        fill(&f->of.linear_decay.value, rate);
        fill(&f->of.linear_decay.warmup_steps, warmup);
        break;
    case SYI_SCHEDULE_FACTOR_rsqrt_decay: fill(&f->of.rsqrt_decay.warmup_steps, warmup); break;
    case SYI_SCHEDULE_FACTOR_rsqrt_normalized_decay:
        fill(&f->of.rsqrt_normalized_decay.warmup_steps, warmup);
        break;
    case SYI_SCHEDULE_FACTOR_cosine_decay: fill(&f->of.cosine_decay.warmup_steps, warmup); break;
    case SYI_SCHEDULE_FACTOR_linear:
        fill(&f->of.linear.transition_steps, steps - f->of.linear.transition_begin);
        break;
    case SYI_SCHEDULE_FACTOR_polynomial:
        fill(&f->of.polynomial.transition_steps, steps - f->of.polynomial.transition_begin);
        break;
    case SYI_SCHEDULE_FACTOR_exponential:
        fill(&f->of.exponential.transition_steps, steps - f->of.exponential.transition_begin);
        break;
    case SYI_SCHEDULE_FACTOR_cosine:
        fill(&f->of.cosine.decay_steps, steps - f->of.cosine.transition_begin);
        break;
    case SYI_SCHEDULE_FACTOR_warmup_stable_decay:
        fill(&f->of.warmup_stable_decay.warmup_steps, warmup);
        fill(&f->of.warmup_stable_decay.steps, steps);
        fill(&f->of.warmup_stable_decay.decay_steps, f->of.warmup_stable_decay.steps / 10);
        break;
    default: break;
    }
}

/* Factors that grow pass what a float32 holds at some step. */
static int check_last(const struct syi_schedule *s, const struct syi_config *config,
                      char reason[SYI_TERM_REASON])
{
    double last = syi_schedule_value(s, config->train.steps);
    if (last <= (double)FLT_MAX) return SY_OK;
    snprintf(reason, SYI_TERM_REASON,
             "the product is %g at step %" PRId64 ", more than a float32 holds: take a lower rate of growth",
             last, config->train.steps);
    return SY_EINVAL;
}

static void take_factors(struct syi_schedule *s, const struct syi_config *config,
                         const struct syi_terms *terms)
{
    size_t n;
    const struct syi_term_kind *kinds = syi_schedule_kinds(&n);
    for (int i = 0; i < terms->n; i++) {
        struct syi_schedule_factor *f = &s->factor[s->n++];
        f->kind = (int)(terms->term[i].kind - kinds);
        memcpy(&f->of, terms->term[i].values, terms->term[i].kind->bytes);
        fill_autos(f, config);
    }
}

static int compile(struct syi_schedule *s, const struct syi_config *config, const char *product,
                   char reason[SYI_TERM_REASON])
{
    struct syi_terms *terms = syi_alloc(sizeof *terms, NULL);
    if (!terms) {
        snprintf(reason, SYI_TERM_REASON, "out of memory");
        return SY_ENOMEM;
    }
    int status = syi_schedule_read(terms, product, reason);
    if (!status) take_factors(s, config, terms);
    if (!status) status = check_last(s, config, reason);
    syi_free(terms);
    return status;
}

int syi_schedule_compile(struct syi_schedule *s, const struct syi_config *config, const char *product,
                         char reason[SYI_TERM_REASON])
{
    memset(s, 0, sizeof *s);
    return compile(s, config, product, reason);
}

int syi_schedule_compile_rate(struct syi_schedule *s, const struct syi_config *config, const char *product,
                              char reason[SYI_TERM_REASON])
{
    memset(s, 0, sizeof *s);
    s->step_offset = config->train.lr_step_offset;
    s->least = config->train.min_learning_rate;
    return compile(s, config, product, reason);
}

int syi_schedule_compile_run(struct syi_schedule *s, const struct syi_config *config,
                             char reason[SYI_TERM_REASON])
{
    if (*config->train.lr_factors)
        return syi_schedule_compile_rate(s, config, config->train.lr_factors, reason);
    memset(s, 0, sizeof *s);
    s->course = config->train.schedule;
    s->warmup_steps = config->train.warmup_steps;
    s->steps = config->train.steps;
    s->top = config->train.learning_rate;
    s->low = config->train.final_learning_rate;
    return SY_OK;
}

double syi_schedule_rate(const struct syi_config *config, int64_t step)
{
    char reason[SYI_TERM_REASON];
    struct syi_schedule s;
    return syi_schedule_compile_run(&s, config, reason) ? NAN : syi_schedule_value(&s, step);
}
