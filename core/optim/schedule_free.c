/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule-free learning (Defazio et al. 2024, arXiv 2405.15682; optax.contrib.schedule_free): an optimizer moves the
 * iterate z, the average x of the iterates is what is evaluated and saved, and gradients are taken in between, at the
 * parameters y = b1 x + (1 - b1) z. Weights of the average are (largest rate so far) ^ weight_lr_power. */
#include "config.h"

#include <string.h>

#include "optim/optim.h"
#include "program/record.h"

enum { RATE };

static void rate_host(const void *arguments, const struct syi_optim_time *time, double value[SYI_HOST_VALUES])
{
    (void)arguments;
    value[RATE] = time->rate;
}

/* x ^ power of x >= 0, 0 of 0. */
static int power_of(struct syi_program *p, int x, double power)
{
    if (power == 2) return syi_square(p, x);
    if (power == 1) return x;
    int zero = syi_constant_like(p, 0, x);
    int value = syi_map1(p, SY_MAP_EXP, syi_map1(p, SY_MAP_MULS, syi_map1(p, SY_MAP_LOG, x, 0), power), 0);
    return syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, zero, x), value, zero);
}

/* Share of the new iterate in the average: its weight over the sum of all; 0 while all weights are 0. */
static int share(struct syi_group *group, const void *arguments)
{
    const struct syi_transform_schedule_free *a = arguments;
    struct syi_program *p = group->p;
    SYI_AT(p);
    int old_rate = syi_group_state(group, "max_lr"), old_sum = syi_group_state(group, "weight_sum");
    int rate = syi_map2(p, SY_MAP_MAX, syi_group_scalar(group, group->term, RATE), old_rate);
    int weight = power_of(p, rate, a->weight_lr_power), sum = syi_map2(p, SY_MAP_ADD, old_sum, weight);
    int zero = syi_constant_like(p, 0, sum);
    syi_group_store(group, rate, old_rate);
    syi_group_store(group, sum, old_sum);
    return syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, zero, sum),
                    syi_map2(p, SY_MAP_DIV, weight, sum), zero);
}

/* from + factor * (to - from) */
static int between(struct syi_program *p, int from, int to, int factor)
{
    return syi_map2(p, SY_MAP_ADD, from, syi_map2(p, SY_MAP_MUL, syi_map2(p, SY_MAP_SUB, to, from), factor));
}

static int schedule_free(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_schedule_free *a = arguments;
    struct syi_program *p = o->p;
    int moved = o->group->inner(o, update);
    SYI_AT(p);
    int z = syi_optim_state(o, "z", 0), x = syi_optim_state(o, "x", 0);
    syi_role_set(p, z, SYI_ROLE_ITERATE, o->id);
    syi_role_set(p, x, SYI_ROLE_AVERAGE, o->id);
    int new_z = syi_map2(p, SY_MAP_ADD, z, moved), new_x = between(p, x, new_z, o->group->shared[o->term]);
    int new_y = between(p, new_z, new_x, syi_constant_like(p, a->b1, o->ok));
    syi_optim_store(o, new_z, z);
    syi_optim_store(o, new_x, x);
    return syi_map2(p, SY_MAP_SUB, new_y, o->parameter);
}

const struct syi_transform syi_transform_row_schedule_free = {
    .record = schedule_free,
    .host = rate_host,
    .shared = share,
    .state = {{"weight_sum", SYI_FIELD_REAL},
              {"max_lr", SYI_FIELD_REAL},
              {"base_optimizer_state", SYI_FIELD_INNER},
              {"z", SYI_FIELD_SLOT},
              {"x", SYI_FIELD_SLOT}}};

/* ---- where parameters and averages change places ---- */

/* The same tensor in the program. */
static int twin(struct syi_program *p, const struct syi_program *update, size_t i)
{
    const struct syi_tensor *t = &update->tensor[i];
    int tensor = syi_tensor_add(p, syi_program_name(update, t->name), (enum syi_kind)t->kind,
                                (enum sy_dtype)t->dtype, t->rank, t->dim, t->axis);
    return syi_role_set(p, tensor, (enum syi_role)t->role, t->of);
}

static int record_exchange(const struct syi_program *update, const int *average, struct syi_program *p)
{
    memcpy(p->leaf_count, update->leaf_count, sizeof p->leaf_count);
    for (size_t i = 0; i < update->n_tensors; i++) {
        const struct syi_tensor *t = &update->tensor[i];
        if (t->role != SYI_ROLE_PARAMETER || average[t->of] < 0) continue;
        p->layer = syi_program_intern(p, syi_program_name(update, t->name));
        SYI_AT(p);
        int y = twin(p, update, i), x = twin(p, update, (size_t)average[t->of]);
        int old_y = syi_map1(p, SY_MAP_COPY, y, 0), old_x = syi_map1(p, SY_MAP_COPY, x, 0);
        syi_store(p, old_x, y);
        syi_store(p, old_y, x);
    }
    return p->status;
}

int syi_record_exchange(const struct syi_program *update, struct syi_program **program, struct sy_error *err)
{
    struct syi_program *p = NULL;
    int *average = syi_alloc(update->n_tensors * sizeof *average, err), status = average ? SY_OK : SY_ENOMEM;
    *program = NULL;
    if (!status) syi_role_list(update, SYI_ROLE_AVERAGE, average, update->n_tensors);
    if (!status) status = syi_program_new("exchange", &p, err);
    if (!status && record_exchange(update, average, p)) status = syi_program_status(p, err);
    syi_free(average);
    if (!status && p->n_ops) status = syi_program_check(p, "record", err);
    if (status || !p->n_ops)
        syi_program_free(p);
    else
        *program = p;
    return status;
}
