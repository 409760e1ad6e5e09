/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms that decide when, and on what, others apply. Source: optax 0.1.2, wrappers.py, transform.py. */
#include "config.h"

#include "optim/optim.h"
#include "program/record.h"

static int masked(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_masked *a = arguments;
    return syi_mask_match(&a->mask, syi_optim_name(o)) ? o->group->inner(o, update) : update;
}

const struct syi_transform syi_transform_row_masked = {.record = masked,
                                                       .state = {{"inner_state", SYI_FIELD_INNER}}};

/* The numbers stay as they are: only T5X's tree of state has this term. */
static int inject_hyperparams(struct syi_optim *o, const void *arguments, int update)
{
    (void)arguments;
    return o->group->inner(o, update);
}

const struct syi_transform syi_transform_row_inject_hyperparams = {
    .record = inject_hyperparams,
    .state = {
        {"count", SYI_FIELD_COUNT}, {"hyperparams", SYI_FIELD_NUMBERS}, {"inner_state", SYI_FIELD_INNER}}};

/* Records what the term holds; its state moves only where flag [1] is 1. */
static int inner_where(struct syi_optim *o, int flag, int update)
{
    struct syi_optim inner = *o;
    inner.ok = syi_map2(o->p, SY_MAP_MUL, o->ok, flag);
    return o->group->inner(&inner, update);
}

/* ---- every k steps ---- */

/* slot 0: whether the sum goes on from earlier steps; slot 1: whether it is passed on. After that it is 0 again: optax
 * keeps it for the next step to clear, which may be left out here. */
static int apply_every(struct syi_optim *o, const void *arguments, int update)
{
    struct syi_program *p = o->p;
    (void)arguments;
    SYI_AT(p);
    int old = syi_optim_state(o, "grad_acc", 0), zero = syi_constant_like(p, 0, update);
    int sum = syi_map2(p, SY_MAP_ADD, update, syi_map3(p, SY_MAP_SELECT, syi_optim_scalar(o, 0), old, zero));
    int passed = syi_optim_scalar(o, 1);
    syi_optim_store(o, syi_map3(p, SY_MAP_SELECT, passed, zero, sum), old);
    return syi_map3(p, SY_MAP_SELECT, passed, sum, zero);
}

static void apply_every_host(const void *arguments, const struct syi_optim_time *time,
                             double value[SYI_HOST_VALUES])
{
    const struct syi_transform_apply_every *a = arguments;
    value[0] = time->step % a->k != 0;
    value[1] = time->step % a->k == a->k - 1;
}

static int64_t apply_every_count(const void *arguments, int64_t step)
{
    const struct syi_transform_apply_every *a = arguments;
    return step % a->k;
}

const struct syi_transform syi_transform_row_apply_every = {
    .record = apply_every,
    .host = apply_every_host,
    .count = apply_every_count,
    .state = {{"count", SYI_FIELD_COUNT}, {"grad_acc", SYI_FIELD_SLOT}}};

/* slot 0: 1 / steps of the mean so far, this one included; slot 1: whether it is complete. The mean of a complete one
 * is 0 again. */
static int multi_steps(struct syi_optim *o, const void *arguments, int update)
{
    struct syi_program *p = o->p;
    (void)arguments;
    SYI_AT(p);
    int old = syi_optim_state(o, "acc_grads", 0), zero = syi_constant_like(p, 0, update);
    int complete = syi_optim_scalar(o, 1);
    int moved = syi_map2(p, SY_MAP_MUL, syi_map2(p, SY_MAP_SUB, update, old), syi_optim_scalar(o, 0));
    int mean = syi_map2(p, SY_MAP_ADD, old, moved);
    int result = inner_where(o, complete, mean);
    syi_optim_store(o, syi_map3(p, SY_MAP_SELECT, complete, zero, mean), old);
    return syi_map3(p, SY_MAP_SELECT, complete, result, zero);
}

static void multi_steps_host(const void *arguments, const struct syi_optim_time *time,
                             double value[SYI_HOST_VALUES])
{
    const struct syi_transform_multi_steps *a = arguments;
    value[0] = 1 / (double)(time->step % a->every_k + 1);
    value[1] = time->step % a->every_k == a->every_k - 1;
}

static int64_t multi_steps_step(const void *arguments, int64_t step)
{
    const struct syi_transform_multi_steps *a = arguments;
    return step / a->every_k;
}

static int64_t multi_steps_count(const void *arguments, int64_t step)
{
    const struct syi_transform_multi_steps *a = arguments;
    return step % a->every_k;
}

const struct syi_transform syi_transform_row_multi_steps = {
    .record = multi_steps,
    .host = multi_steps_host,
    .inner_step = multi_steps_step,
    .count = multi_steps_count,
    .state = {{"mini_step", SYI_FIELD_COUNT},
              {"gradient_step", SYI_FIELD_INNER_COUNT},
              {"inner_opt_state", SYI_FIELD_INNER},
              {"acc_grads", SYI_FIELD_SLOT}}};

static int maybe_update(struct syi_optim *o, const void *arguments, int update)
{
    (void)arguments;
    SYI_AT(o->p);
    int now = syi_optim_scalar(o, 0);
    return syi_map3(o->p, SY_MAP_SELECT, now, inner_where(o, now, update), update);
}

static void maybe_update_host(const void *arguments, const struct syi_optim_time *time,
                              double value[SYI_HOST_VALUES])
{
    const struct syi_transform_maybe_update *a = arguments;
    value[0] = time->step % a->every == 0;
}

static int64_t maybe_update_step(const void *arguments, int64_t step)
{
    const struct syi_transform_maybe_update *a = arguments;
    return step / a->every;
}

const struct syi_transform syi_transform_row_maybe_update = {
    .record = maybe_update,
    .host = maybe_update_host,
    .inner_step = maybe_update_step,
    .state = {{"inner_state", SYI_FIELD_INNER}, {"step", SYI_FIELD_COUNT}}};

/* ---- only finite updates ---- */

/* 1 where all elements of all updates are finite. */
static int all_finite(struct syi_group *group)
{
    struct syi_program *p = group->p;
    int sum = -1;
    for (int i = 0; i < group->n; i++) {
        int one = syi_constant_like(p, 1, group->update[i]);
        int bad = syi_map2(p, SY_MAP_SUB, one, syi_map1(p, SY_MAP_FINITE, group->update[i], 0));
        int total = syi_total(p, bad);
        sum = sum < 0 ? total : syi_map2(p, SY_MAP_ADD, sum, total);
    }
    return syi_map2(p, SY_MAP_LESS, sum, syi_constant_like(p, 0.5, sum));
}

/* Whether updates are applied: they are finite, or it is one time too many in a row that they are not. */
static int count_errors(struct syi_group *group, const void *arguments)
{
    const struct syi_transform_apply_if_finite *a = arguments;
    struct syi_program *p = group->p;
    SYI_AT(p);
    int finite = all_finite(group), zero = syi_constant_like(p, 0, finite);
    int row = syi_group_state(group, "notfinite_count"), all = syi_group_state(group, "total_notfinite");
    int in_row = syi_map3(p, SY_MAP_SELECT, finite, zero, syi_map1(p, SY_MAP_ADDS, row, 1));
    int bad = syi_map2(p, SY_MAP_SUB, syi_constant_like(p, 1, finite), finite);
    int most = syi_constant_like(p, (double)a->max_consecutive_errors, in_row);
    syi_group_store(group, in_row, row);
    syi_group_store(group, syi_map2(p, SY_MAP_ADD, all, bad), all);
    syi_group_store(group, finite, syi_group_state(group, "last_finite"));
    return syi_map2(p, SY_MAP_MAX, finite, syi_map2(p, SY_MAP_LESS, most, in_row));
}

static int apply_if_finite(struct syi_optim *o, const void *arguments, int update)
{
    struct syi_program *p = o->p;
    int apply = o->group->shared[o->term];
    (void)arguments;
    SYI_AT(p);
    return syi_map3(p, SY_MAP_SELECT, apply, inner_where(o, apply, update), syi_constant_like(p, 0, update));
}

const struct syi_transform syi_transform_row_apply_if_finite = {
    .record = apply_if_finite,
    .shared = count_errors,
    .state = {{"notfinite_count", SYI_FIELD_INTEGER},
              {"last_finite", SYI_FIELD_FLAG},
              {"total_notfinite", SYI_FIELD_INTEGER},
              {"inner_state", SYI_FIELD_INNER}}};
