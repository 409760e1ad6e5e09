/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms that bound and clean updates. Formulas: optax 0.1.2, clipping.py, transform.py. */
#include "config.h"

#include "optim/optim.h"
#include "program/record.h"

/* The order of operands keeps a NaN a NaN. */
static int clip(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_clip *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    int low = syi_constant_like(p, -a->max_delta, update), high = syi_constant_like(p, a->max_delta, update);
    return syi_map2(p, SY_MAP_MIN, high, syi_map2(p, SY_MAP_MAX, low, update));
}

const struct syi_transform syi_transform_row_clip = {.record = clip};

/* ---- over all parameters ---- */

static int global_norm(struct syi_group *group, const void *arguments)
{
    (void)arguments;
    SYI_AT(group->p);
    return syi_norm_of_all(group->p, group->n, group->update, NULL);
}

/* update / norm * max_norm where the norm is not below max_norm */
static int clip_by_global_norm(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_clip_by_global_norm *a = arguments;
    struct syi_program *p = o->p;
    int norm = o->group->shared[o->term];
    SYI_AT(p);
    int below = syi_map2(p, SY_MAP_LESS, norm, syi_constant_like(p, a->max_norm, norm));
    int clipped = syi_map1(p, SY_MAP_MULS, syi_map2(p, SY_MAP_DIV, update, norm), a->max_norm);
    return syi_map3(p, SY_MAP_SELECT, below, update, clipped);
}

const struct syi_transform syi_transform_row_clip_by_global_norm = {.record = clip_by_global_norm,
                                                                    .shared = global_norm};

/* ---- by parameter ---- */

static int clip_by_block_rms(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_clip_by_block_rms *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    int over = syi_map1(p, SY_MAP_MULS, syi_root_mean_square(p, update, ~0u), 1 / a->threshold);
    return syi_map2(p, SY_MAP_DIV, update, syi_at_least(p, over, 1));
}

const struct syi_transform syi_transform_row_clip_by_block_rms = {.record = clip_by_block_rms};

/* The dims that a unit of the output sums over: all of a vector; the first of what is more, after the experts. */
static unsigned unit_dims(const struct syi_optim *o)
{
    if (o->p->status || o->parameter < 0) return 1;
    const struct syi_tensor *t = &o->p->tensor[o->parameter];
    int longer = 0;
    for (int i = 0; i < t->rank; i++) longer += t->dim[i] > 1;
    if (longer < 2) return ~0u;
    if (t->rank == 3 && t->axis[0] == SYI_AXIS_EXPERT) return 2;
    return 1;
}

static int unit_norm(struct syi_program *p, int x, unsigned dims)
{
    return syi_map1(p, SY_MAP_SQRT, syi_sum_over(p, SY_OP_BLOCK_SUMSQ, x, dims), 0);
}

static int adaptive_grad_clip(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_adaptive_grad_clip *a = arguments;
    struct syi_program *p = o->p;
    unsigned dims = unit_dims(o);
    SYI_AT(p);
    int weight = syi_at_least(p, unit_norm(p, o->parameter, dims), a->eps), own = unit_norm(p, update, dims);
    int most = syi_map1(p, SY_MAP_MULS, weight, a->clipping);
    int factor = syi_map2(p, SY_MAP_DIV, most, syi_at_least(p, own, 1e-6));
    int one = syi_constant_like(p, 1, own);
    factor = syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, own, most), one, factor);
    return syi_map2(p, SY_MAP_MUL, update, factor);
}

const struct syi_transform syi_transform_row_adaptive_grad_clip = {.record = adaptive_grad_clip};

/* ---- NaN ---- */

static int zero_nans(struct syi_optim *o, const void *arguments, int update)
{
    struct syi_program *p = o->p;
    (void)arguments;
    SYI_AT(p);
    int number = syi_is_number(p, update), one = syi_constant_like(p, 1, update);
    int nans = syi_total(p, syi_map2(p, SY_MAP_SUB, one, number));
    int found = syi_optim_state_of(o, "found_nan", "", ~0u, 0);
    syi_optim_store(o, syi_map2(p, SY_MAP_LESS, syi_constant_like(p, 0, nans), nans), found);
    return syi_map3(p, SY_MAP_SELECT, number, update, syi_constant_like(p, 0, update));
}

const struct syi_transform syi_transform_row_zero_nans = {.record = zero_nans,
                                                          .state = {{"found_nan", SYI_FIELD_FLAGS}}};
