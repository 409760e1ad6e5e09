/* SPDX-License-Identifier: Apache-2.0 */
/* What transforms make besides ops: inputs that the host sets, and state. Both are named after the place of a term in
 * T5X's tree. */
#include "config.h"

#include <stdio.h>

#include "optim/optim.h"
#include "program/record.h"

/* ---- inputs ---- */

uint32_t syi_optim_scalar_number(int part, int term, int slot)
{
    return (uint32_t)((part * SYI_TERMS + term) * SYI_HOST_VALUES + slot);
}

int syi_group_scalar(struct syi_group *group, int term, int slot)
{
    const char *part = group->chain->options->name_of_part;
    uint32_t number = syi_optim_scalar_number(group->part, term, slot);
    int64_t one = 1;
    char name[SYI_PART_NAME + 96];
    snprintf(name, sizeof name, "optimizer%s%s/%d/%s/%d", *part ? "." : "", part, term,
             group->chain->terms.term[term].kind->name, slot);
    int there = syi_program_find(group->p, name); /* an index: each parameter asks */
    if (there >= 0) return there;
    int tensor = syi_tensor_add(group->p, name, SYI_INPUT, SY_F32, 1, &one, NULL);
    return syi_role_set(group->p, tensor, SYI_ROLE_OPTIM_SCALAR, number);
}

int syi_optim_scalar(struct syi_optim *o, int slot)
{
    return syi_group_scalar(o->group, o->term, slot);
}

/* ---- state ---- */

const char *syi_optim_name(const struct syi_optim *o)
{
    if (o->p->status || o->parameter < 0) return "";
    return syi_program_name(o->p, o->p->tensor[o->parameter].name);
}

static int add_state(struct syi_program *p, const char *name, const struct syi_tensor *like, double initial)
{
    int state =
        syi_tensor_add(p, name, SYI_STATE, (enum sy_dtype)like->dtype, like->rank, like->dim, like->axis);
    if (state >= 0) p->tensor[state].initial = (float)initial;
    return state;
}

int syi_optim_state_of(struct syi_optim *o, const char *name, const char *tail, unsigned ones, double initial)
{
    char full[SYI_TERM_PATH + 256];
    if (o->p->status || o->parameter < 0) return -1;
    struct syi_tensor t = o->p->tensor[o->parameter];
    for (int i = 0; i < t.rank; i++)
        if (ones >> i & 1) t.dim[i] = 1, t.axis[i] = SYI_AXIS_NONE;
    snprintf(full, sizeof full, "state/param_states/%s%s%s%s%s%s", o->path, *o->path ? "/" : "", name,
             *name ? "/" : "", syi_program_name(o->p, t.name), tail);
    return add_state(o->p, full, &t, initial);
}

int syi_optim_state(struct syi_optim *o, const char *name, double initial)
{
    return syi_optim_state_of(o, name, "", 0, initial);
}

/* Parts beside each other keep apart in T5X's tree by the parameters, so a value of a whole part says which. */
int syi_group_state(struct syi_group *group, const char *name)
{
    const char *part = group->chain->options->name_of_part;
    const struct syi_tensor scalar = {.dtype = SY_F32, .rank = 1, .dim = {1}};
    char full[SYI_TERM_PATH + 256];
    snprintf(full, sizeof full, "state/param_states/%s%s%s%s%s", group->path, *group->path ? "/" : "", name,
             *part ? "/" : "", part);
    return add_state(group->p, full, &scalar, 0);
}

void syi_optim_store(struct syi_optim *o, int value, int to)
{
    syi_store_where(o->p, o->ok, value, to);
}

void syi_group_store(struct syi_group *group, int value, int to)
{
    syi_store_where(group->p, group->ok, value, to);
}
