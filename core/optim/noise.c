/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms that add normal noise. Formulas: optax 0.1.2, transform.py, privacy.py. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "optim/optim.h"
#include "program/record.h"

/* Sites of noise, one a term and parameter: beyond those that a model's dropouts can have. */
enum { SITE = 0x40000000, SITES_OF_TERM = 1 << 20 };

/* The state of the random numbers of a step, as grad programs have it. */
static int random_state(struct syi_program *p)
{
    int64_t four = 4;
    int there = syi_program_find(p, "rng");
    return there >= 0 ? there
                      : syi_role_set(p, syi_tensor_add(p, "rng", SYI_INPUT, SY_I64, 1, &four, NULL),
                                     SYI_ROLE_RNG, 0);
}

/* Normal numbers shaped like the parameter, times the standard deviation [1]. */
static int noise(struct syi_optim *o, int deviation)
{
    struct syi_program *p = o->p;
    char name[256];
    int normal;
    if (p->status || o->parameter < 0) return -1;
    if (o->group->noise) {
        const struct syi_tensor t = p->tensor[o->parameter];
        snprintf(name, sizeof name, "noise/%s", syi_optim_name(o));
        normal = syi_tensor_add(p, name, SYI_INPUT, SY_F32, t.rank, t.dim, t.axis);
        syi_role_set(p, normal, SYI_ROLE_NOISE, o->id);
    } else {
        normal = syi_normal(p, o->parameter, random_state(p), SITE + o->term * SITES_OF_TERM + (int)o->id);
    }
    return syi_map2(p, SY_MAP_MUL, normal, deviation);
}

static int add_noise(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_add_noise *a = arguments;
    if (a->eta == 0) return update;
    SYI_AT(o->p);
    return syi_map2(o->p, SY_MAP_ADD, update, noise(o, syi_optim_scalar(o, 0)));
}

static void noise_host(const void *arguments, const struct syi_optim_time *time,
                       double value[SYI_HOST_VALUES])
{
    const struct syi_transform_add_noise *a = arguments;
    value[0] = sqrt(a->eta / pow((double)(time->step + 1), a->gamma));
}

const struct syi_transform syi_transform_row_add_noise = {
    .record = add_noise,
    .host = noise_host,
    .state = {{"count", SYI_FIELD_COUNT}, {"rng_key", SYI_FIELD_KEY}}};

/* Examples were clipped when their gradients were added up (model/programs.c). */
static int differentially_private_aggregate(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_differentially_private_aggregate *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    if (a->noise_multiplier > 0) {
        int deviation = syi_constant_like(p, a->l2_norm_clip * a->noise_multiplier, o->ok);
        update = syi_map2(p, SY_MAP_ADD, update, noise(o, deviation));
    }
    return syi_map1(p, SY_MAP_MULS, update, 1 / (double)o->group->rows);
}

const struct syi_transform syi_transform_row_differentially_private_aggregate = {
    .record = differentially_private_aggregate, .state = {{"rng_key", SYI_FIELD_KEY}}};
