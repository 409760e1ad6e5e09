/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms optimizers are made of. Formulas: optax 0.1.2 transform.py; eps outside the root. */
#include "config.h"

#include "optim/optim.h"
#include "program/record.h"

int syi_optim_input(struct syi_program *p, const char *name)
{
    int64_t one = 1;
    int there = syi_program_find(p, name);
    return there >= 0 ? there : syi_tensor_add(p, name, SYI_INPUT, SY_F32, 1, &one, NULL);
}

int syi_optim_part_input(struct syi_optim *o, const char *name)
{
    char full[SYI_OPTIM_SCALAR_NAME];
    const char *part = o->options->name_of_part;
    snprintf(full, sizeof full, "%s%s%s", part, *part ? "/" : "", name);
    return syi_optim_input(o->p, full);
}

int syi_optim_state(struct syi_optim *o, const char *name)
{
    char full[256];
    if (o->p->status || o->parameter < 0) return -1;
    struct syi_tensor t = o->p->tensor[o->parameter];
    snprintf(full, sizeof full, "state/param_states/%d/%s/%s", o->transform, name,
             syi_program_name(o->p, t.name));
    return syi_tensor_add(o->p, full, SYI_STATE, t.dtype, t.rank, t.dim, t.axis);
}

void syi_optim_store(struct syi_optim *o, int value, int to)
{
    syi_store(o->p, syi_map3(o->p, SY_MAP_SELECT, o->ok, value, to), to);
}

/* decay * old + (1 - decay) * value */
int syi_moving_mean(struct syi_program *p, int old, int value, double decay)
{
    return syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, value, 1 - decay),
                    syi_map1(p, SY_MAP_MULS, old, decay));
}

int syi_scale_by_adam(struct syi_optim *o, int update)
{
    struct syi_program *p = o->p;
    SYI_AT(p);
    int mu = syi_optim_state(o, "mu"), nu = syi_optim_state(o, "nu");
    int square = syi_map2(p, SY_MAP_MUL, update, update);
    int new_mu = syi_moving_mean(p, mu, update, o->options->b1);
    int new_nu = syi_moving_mean(p, nu, square, o->options->b2);
    int mean = syi_map2(p, SY_MAP_MUL, new_mu, syi_optim_part_input(o, "correction1"));
    int root =
        syi_map1(p, SY_MAP_SQRT, syi_map2(p, SY_MAP_MUL, new_nu, syi_optim_part_input(o, "correction2")), 0);
    int result = syi_map2(p, SY_MAP_DIV, mean, syi_map1(p, SY_MAP_ADDS, root, o->options->eps));
    syi_optim_store(o, new_mu, mu);
    syi_optim_store(o, new_nu, nu);
    return result;
}

int syi_add_decayed_weights(struct syi_optim *o, int update)
{
    if (o->options->weight_decay == 0) return update;
    SYI_AT(o->p);
    return syi_map2(o->p, SY_MAP_ADD, update,
                    syi_map1(o->p, SY_MAP_MULS, o->parameter, o->options->weight_decay));
}

int syi_scale_by_learning_rate(struct syi_optim *o, int update)
{
    SYI_AT(o->p);
    return syi_map2(o->p, SY_MAP_MUL, update, syi_optim_input(o->p, "learning_rate"));
}

int syi_descend(struct syi_optim *o, int update)
{
    SYI_AT(o->p);
    return syi_map1(o->p, SY_MAP_NEG, update, 0);
}
