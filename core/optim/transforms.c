/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of momentum, weights and rates. Formulas: optax 0.1.2, transform.py. */
#include "config.h"

#include <math.h>

#include "optim/optim.h"
#include "program/record.h"

/* ---- momentum ---- */

static int trace(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_trace *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    int old = syi_optim_state(o, "trace", 0);
    int sum = syi_map2(p, SY_MAP_ADD, update, syi_map1(p, SY_MAP_MULS, old, a->decay));
    syi_optim_store(o, sum, old);
    if (!a->nesterov) return sum;
    return syi_map2(p, SY_MAP_ADD, update, syi_map1(p, SY_MAP_MULS, sum, a->decay));
}

const struct syi_transform syi_transform_row_trace = {.record = trace, .state = {{"trace", SYI_FIELD_SLOT}}};

static int ema(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_ema *a = arguments;
    SYI_AT(o->p);
    int old = syi_optim_state(o, "ema", 0);
    int mean = syi_moving_mean(o->p, old, update, a->decay);
    syi_optim_store(o, mean, old);
    return a->debias ? syi_map2(o->p, SY_MAP_MUL, mean, syi_optim_scalar(o, 0)) : mean;
}

static void ema_host(const void *arguments, const struct syi_optim_time *time, double value[SYI_HOST_VALUES])
{
    const struct syi_transform_ema *a = arguments;
    value[0] = 1 / (1 - pow(a->decay, (double)(time->step + 1)));
}

const struct syi_transform syi_transform_row_ema = {
    .record = ema, .host = ema_host, .state = {{"count", SYI_FIELD_COUNT}, {"ema", SYI_FIELD_SLOT}}};

/* ---- weights ---- */

static int add_decayed_weights(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_add_decayed_weights *a = arguments;
    if (a->weight_decay == 0 || !syi_mask_match(&a->mask, syi_optim_name(o))) return update;
    SYI_AT(o->p);
    return syi_map2(o->p, SY_MAP_ADD, update, syi_map1(o->p, SY_MAP_MULS, o->parameter, a->weight_decay));
}

const struct syi_transform syi_transform_row_add_decayed_weights = {.record = add_decayed_weights};

/* 1 where a norm is 0. */
static int scale_by_trust_ratio(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_trust_ratio *a = arguments;
    struct syi_program *p = o->p;
    if (!syi_mask_match(&a->mask, syi_optim_name(o))) return update;
    SYI_AT(p);
    int weight = syi_tensor_norm(p, o->parameter), own = syi_tensor_norm(p, update);
    if (a->min_norm > 0)
        weight = syi_at_least(p, weight, a->min_norm), own = syi_at_least(p, own, a->min_norm);
    int zero = syi_constant_like(p, 0, own), one = syi_constant_like(p, 1, own);
    int ratio = syi_map2(p, SY_MAP_DIV, syi_map1(p, SY_MAP_MULS, weight, a->trust_coefficient),
                         syi_map1(p, SY_MAP_ADDS, own, a->eps));
    ratio = syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, zero, weight), ratio, one);
    ratio = syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, zero, own), ratio, one);
    return syi_map2(p, SY_MAP_MUL, update, ratio);
}

const struct syi_transform syi_transform_row_scale_by_trust_ratio = {.record = scale_by_trust_ratio};

/* With m = 1 / sqrt(1 + rate^2): -rate m update + (m - 1) parameter. */
static int scale_by_fromage(struct syi_optim *o, const void *arguments, int update)
{
    struct syi_program *p = o->p;
    (void)arguments;
    SYI_AT(p);
    return syi_map2(p, SY_MAP_ADD, syi_map2(p, SY_MAP_MUL, update, syi_optim_scalar(o, 0)),
                    syi_map2(p, SY_MAP_MUL, o->parameter, syi_optim_scalar(o, 1)));
}

static void fromage_host(const void *arguments, const struct syi_optim_time *time,
                         double value[SYI_HOST_VALUES])
{
    double m = 1 / sqrt(1 + time->rate * time->rate);
    (void)arguments;
    value[0] = -time->rate * m;
    value[1] = m - 1;
}

const struct syi_transform syi_transform_row_scale_by_fromage = {.record = scale_by_fromage,
                                                                 .host = fromage_host};

/* ---- rates ---- */

static int identity(struct syi_optim *o, const void *arguments, int update)
{
    (void)o;
    (void)arguments;
    return update;
}

const struct syi_transform syi_transform_row_identity = {.record = identity};

static int scale(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale *a = arguments;
    SYI_AT(o->p);
    return syi_map1(o->p, SY_MAP_MULS, update, a->step_size);
}

const struct syi_transform syi_transform_row_scale = {.record = scale};

static int scale_by_learning_rate(struct syi_optim *o, const void *arguments, int update)
{
    (void)arguments;
    SYI_AT(o->p);
    return syi_map1(o->p, SY_MAP_NEG, syi_map2(o->p, SY_MAP_MUL, update, syi_optim_scalar(o, 0)), 0);
}

static void rate_host(const void *arguments, const struct syi_optim_time *time, double value[SYI_HOST_VALUES])
{
    (void)arguments;
    value[0] = time->rate;
}

const struct syi_transform syi_transform_row_scale_by_learning_rate = {
    .record = scale_by_learning_rate, .host = rate_host, .state = {{"count", SYI_FIELD_RATE_COUNT}}};

static int scale_by_schedule(struct syi_optim *o, const void *arguments, int update)
{
    (void)arguments;
    SYI_AT(o->p);
    return syi_map2(o->p, SY_MAP_MUL, update, syi_optim_scalar(o, 0));
}

static void schedule_host(const void *arguments, const struct syi_optim_time *time,
                          double value[SYI_HOST_VALUES])
{
    const struct syi_transform_scale_by_schedule *a = arguments;
    value[0] = a->sign * syi_schedule_value(time->schedule, time->step);
}

const struct syi_transform syi_transform_row_scale_by_schedule = {
    .record = scale_by_schedule, .host = schedule_host, .state = {{"count", SYI_FIELD_COUNT}}};
