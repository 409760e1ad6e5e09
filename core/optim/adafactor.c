/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor (arXiv 1804.04235) as T5X has it (adafactor.py): scaling by factored second moments, a bound on the root
 * mean square of an update, the learning rate relative to the parameter's size, momentum of the finished step, decay of
 * weights. Bounds and sizes are those of whole parameters, or of each expert by itself where factors.c says so. State is
 * "state/param_states/PARAMETER/SLOT", slots v_row and v_col or v, and m. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/factors.h"
#include "optim/optim.h"
#include "program/record.h"

typedef const struct syi_transform_adafactor options;

enum { DECAY_RATE, MIXING_RATE, LEARNING_RATE, WEIGHT_DECAY }; /* host values */

static void adafactor_host(const void *arguments, const struct syi_optim_time *time,
                           double value[SYI_HOST_VALUES])
{
    options *a = arguments;
    double since = fmax(1, (double)(time->step + 1) - (double)a->step_offset),
           mixing = pow(since, -a->decay_rate);
    double rate = a->weight_decay_rate, exponent = a->weight_decay_rate_lr_exponent;
    value[DECAY_RATE] = 1 - mixing;
    value[MIXING_RATE] = mixing;
    value[LEARNING_RATE] = time->rate;
    value[WEIGHT_DECAY] = exponent > 0 ? (rate > 0 ? rate : 1) * pow(time->rate, exponent) : rate;
}

/* ---- the gradients together ---- */

static int clips_all(const void *arguments)
{
    return ((options *)arguments)->global_norm_clip_threshold > 0;
}

/* threshold * min(1 / threshold, 1 / norm) */
static int clip_all(struct syi_group *group, const void *arguments)
{
    double threshold = ((options *)arguments)->global_norm_clip_threshold;
    struct syi_program *p = group->p;
    SYI_AT(p);
    int norm = syi_norm_of_all(p, group->n, group->update, NULL);
    int inverse = syi_map2(p, SY_MAP_DIV, syi_constant_like(p, 1, norm), norm);
    return syi_map1(p, SY_MAP_MULS, syi_at_most(p, inverse, 1 / threshold), threshold);
}

/* ---- state ---- */

/* A slot shaped like the parameter with the dims of `means` 1 long. */
static int slot(struct syi_optim *o, const char *name, unsigned means)
{
    char tail[16];
    struct syi_optim here = *o;
    here.path[0] = 0; /* no chain in T5X's tree */
    snprintf(tail, sizeof tail, "/%s", name);
    return syi_optim_state_of(&here, "", tail, means, 0);
}

static void store(struct syi_optim *o, options *a, int value, int to)
{
    if (a->skip_nan_updates) value = syi_map3(o->p, SY_MAP_SELECT, syi_is_number(o->p, value), value, to);
    syi_optim_store(o, value, to);
}

/* decay * v + (1 - decay) * value, stored in the slot of that name; returns the new v. */
static int second_moment(struct syi_optim *o, options *a, const char *name, unsigned means, int value)
{
    struct syi_program *p = o->p;
    int v = slot(o, name, means);
    int kept = syi_map2(p, SY_MAP_MUL, v, syi_optim_scalar(o, DECAY_RATE));
    int mixed = syi_map2(p, SY_MAP_MUL, value, syi_optim_scalar(o, MIXING_RATE));
    int moved = syi_map2(p, SY_MAP_ADD, kept, mixed);
    store(o, a, moved, v);
    return moved;
}

/* ---- the steps of the transform ---- */

/* An update before it is finished: `whole` times `factor`, a tensor of fewer elements. Factors are multiplied with each other
 * first, so that a pass over the weights multiplies by one of them. */
struct scaled {
    int whole, factor; /* tensors; factor -1: none */
};

static int times(struct syi_program *p, int a, int b)
{
    return a < 0 ? b : b < 0 ? a : syi_map2(p, SY_MAP_MUL, a, b);
}

static struct scaled scale_by_second_moments(struct syi_optim *o, options *a, const struct syi_factors *f,
                                             int update)
{
    struct syi_program *p = o->p;
    SYI_AT(p);
    int square = syi_map1(p, SY_MAP_ADDS, syi_square(p, update), a->epsilon1);
    if (!f->row && !f->column) {
        int v = second_moment(o, a, "v", 0, square);
        return (struct scaled){times(p, update, syi_map1(p, SY_MAP_RSQRT, v, 0)), -1};
    }
    int row = second_moment(o, a, "v_row", f->column, syi_mean_over(p, SY_OP_BLOCK_SUM, square, f->column));
    int column = second_moment(o, a, "v_col", f->row, syi_mean_over(p, SY_OP_BLOCK_SUM, square, f->row));
    int share = syi_map2(p, SY_MAP_DIV, row, syi_mean_over(p, SY_OP_BLOCK_SUM, row, f->row));
    int whole = times(p, update, syi_map1(p, SY_MAP_RSQRT, column, 0));
    return (struct scaled){whole, syi_map1(p, SY_MAP_RSQRT, share, 0)};
}

/* What the update is divided by, -1: nothing. */
static int clip(struct syi_optim *o, options *a, const struct syi_factors *f, const struct scaled *update)
{
    struct syi_program *p = o->p;
    if (a->clipping_threshold == 0) return -1;
    SYI_AT(p);
    int mean = syi_root_mean_square(p, times(p, update->whole, update->factor), ~f->batch);
    return syi_at_least(p, syi_map1(p, SY_MAP_MULS, mean, 1 / a->clipping_threshold), 1);
}

static int scales(const struct syi_optim *o, options *a)
{
    const char *says = syi_rule_of(&a->parameter_scale_rules, syi_optim_name(o));
    return says ? !strcmp(says, "true") : a->multiply_by_parameter_scale;
}

/* What the update is multiplied by, -1: nothing. */
static int parameter_scale(struct syi_optim *o, options *a, const struct syi_factors *f)
{
    struct syi_program *p = o->p;
    if (!scales(o, a)) return -1;
    SYI_AT(p);
    int size = syi_at_least(p, syi_root_mean_square(p, o->parameter, ~f->batch), a->epsilon2);
    return a->max_parameter_scale > 0 ? syi_at_most(p, size, a->max_parameter_scale) : size;
}

/* The momentum in bfloat16: what is left of it is rounded again before the update is added, as jax does. */
static int add_bf16_momentum(struct syi_optim *o, options *a, int update)
{
    struct syi_program *p = o->p;
    int m = syi_as(p, slot(o, "m", 0), SY_BF16), old = syi_cast(p, m, SY_F32);
    int kept = syi_cast(p, syi_cast(p, syi_map1(p, SY_MAP_MULS, old, a->beta1), SY_BF16), SY_F32);
    int moved = syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, update, 1 - a->beta1), kept), stored = moved;
    if (a->skip_nan_updates) stored = syi_map3(p, SY_MAP_SELECT, syi_is_number(p, moved), moved, old);
    syi_optim_store(o, syi_cast(p, stored, SY_BF16), m);
    return moved;
}

static int add_momentum(struct syi_optim *o, options *a, int update)
{
    if (a->beta1 < 0) return update;
    SYI_AT(o->p);
    if (a->dtype_momentum == SYI_DTYPE_BFLOAT16) return add_bf16_momentum(o, a, update);
    int m = slot(o, "m", 0), moved = syi_moving_mean(o->p, m, update, a->beta1);
    store(o, a, moved, m);
    return moved;
}

static int decay_weights(struct syi_optim *o, options *a, int update)
{
    struct syi_program *p = o->p;
    int decay;
    SYI_AT(p);
    if (a->weight_decay_rate_lr_exponent > 0)
        decay = syi_map1(p, SY_MAP_NEG,
                         syi_map2(p, SY_MAP_MUL, o->parameter, syi_optim_scalar(o, WEIGHT_DECAY)), 0);
    else if (a->weight_decay_rate > 0)
        decay = syi_map1(p, SY_MAP_MULS, o->parameter, -a->weight_decay_rate);
    else
        return update;
    return syi_map2(p, SY_MAP_ADD, update, decay);
}

static int adafactor(struct syi_optim *o, const void *arguments, int update)
{
    options *a = arguments;
    struct syi_program *p = o->p;
    struct syi_factors f = syi_factors_of(o, a);
    if (clips_all(a)) update = syi_map2(p, SY_MAP_MUL, update, o->group->shared[o->term]);
    struct scaled scaled = scale_by_second_moments(o, a, &f, update);
    int over = clip(o, a, &f, &scaled), scale = parameter_scale(o, a, &f);
    int rate = times(p, scale, syi_optim_scalar(o, LEARNING_RATE));
    if (over >= 0) rate = syi_map2(p, SY_MAP_DIV, rate, over);
    update = times(p, scaled.whole, times(p, scaled.factor, rate));
    update = syi_map1(p, SY_MAP_NEG, add_momentum(o, a, update), 0);
    update = decay_weights(o, a, update);
    if (!a->skip_nan_updates) return update;
    return syi_map3(p, SY_MAP_SELECT, syi_is_number(p, update), update, syi_constant_like(p, 0, update));
}

const struct syi_transform syi_transform_row_adafactor = {
    .record = adafactor, .host = adafactor_host, .shared = clip_all, .shares = clips_all};
