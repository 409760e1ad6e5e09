/* SPDX-License-Identifier: Apache-2.0 */
/* The running mesh: sizes from what the user gave, ranks and groups, the standard rules. Pure functions. */
#include "config.h"

#include <string.h>

#include "parallel/mesh.h"

static const int axis_bit[3] = {SYI_MESH_DATA, SYI_MESH_EXPERT, SYI_MESH_MODEL};

static void standard_rules(struct syi_mesh *mesh)
{
    memset(mesh->rule, 0, sizeof mesh->rule);
    mesh->rule[SYI_AXIS_BATCH] = mesh->rule[SYI_AXIS_GROUP] = SYI_MESH_DATA | SYI_MESH_EXPERT;
    mesh->rule[SYI_AXIS_EXPERT] = SYI_MESH_EXPERT;
    mesh->rule[SYI_AXIS_EXPERT_GROUP] = SYI_MESH_DATA;
    mesh->rule[SYI_AXIS_HEADS] = mesh->rule[SYI_AXIS_MLP] = mesh->rule[SYI_AXIS_EXPERT_MLP] = SYI_MESH_MODEL;
    mesh->rule[SYI_AXIS_VOCAB] = SYI_MESH_MODEL;
}

/* Names the nearest sizes that do. */
static int refuse_expert(int ranks, int data, int expert, int model, int given, int num_experts,
                         struct sy_error *err)
{
    int fits = expert, rest = ranks / model;
    while (num_experts % fits || rest % fits) fits--;
    if (given)
        return syi_error(
            err, SY_EINVAL,
            "mesh.expert=%d does not divide moe.num_experts=%d: take mesh.expert=%d, mesh.data=%d", expert,
            num_experts, fits, rest / fits);
    return syi_error(
        err, SY_EINVAL,
        "mesh.data=%d makes mesh.expert=%d of %d ranks, which does not divide moe.num_experts=%d: "
        "leave mesh.data out, or take mesh.data=%d",
        data, expert, ranks, num_experts, rest / fits);
}

int syi_mesh_new(struct syi_mesh *mesh, int ranks, int data, int expert, int model, int num_experts,
                 struct sy_error *err)
{
    const int given = expert;
    if (model == 0) model = 1;
    int64_t rest = (int64_t)(data ? data : 1) * model;
    if (expert == 0) expert = data && num_experts > 0 && ranks % rest == 0 ? (int)(ranks / rest) : 1;
    if (data == 0) data = (int)(ranks / ((int64_t)expert * model));
    if (ranks < 1 || data < 1 || (int64_t)data * expert * model != ranks)
        return syi_error(
            err, SY_EINVAL,
            "mesh data=%d expert=%d model=%d does not make %d ranks: change mesh.* or the number of ranks",
            data, expert, model, ranks);
    if (expert > 1 && num_experts % expert)
        return refuse_expert(ranks, data, expert, model, given, num_experts, err);
    mesh->size[0] = data;
    mesh->size[1] = expert;
    mesh->size[2] = model;
    mesh->zero = 0;
    standard_rules(mesh);
    return SY_OK;
}

int syi_mesh_size(const struct syi_mesh *mesh, int axes)
{
    int n = 1;
    for (int i = 0; i < 3; i++)
        if (axes & axis_bit[i]) n *= mesh->size[i];
    return n;
}

int syi_mesh_ranks(const struct syi_mesh *mesh)
{
    return syi_mesh_size(mesh, SYI_MESH_ALL);
}

static void coordinates(const struct syi_mesh *mesh, int rank, int at[3])
{
    for (int i = 2; i >= 0; i--) {
        at[i] = rank % mesh->size[i];
        rank /= mesh->size[i];
    }
}

int syi_mesh_index(const struct syi_mesh *mesh, int axes, int rank)
{
    int at[3], index = 0;
    coordinates(mesh, rank, at);
    for (int i = 0; i < 3; i++)
        if (axes & axis_bit[i]) index = index * mesh->size[i] + at[i];
    return index;
}

int syi_mesh_is_first(const struct syi_mesh *mesh, const struct syi_tensor *tensor, int rank)
{
    int axes = 0;
    for (int d = 0; d < tensor->rank; d++) axes |= tensor->split[d];
    return syi_mesh_index(mesh, SYI_MESH_ALL & ~axes, rank) == 0;
}

int syi_mesh_group(const struct syi_mesh *mesh, int axes, int rank, int *ranks)
{
    int n = 0, rest = SYI_MESH_ALL & ~axes, mine = syi_mesh_index(mesh, rest, rank);
    for (int other = 0; other < syi_mesh_ranks(mesh); other++)
        if (syi_mesh_index(mesh, rest, other) == mine) ranks[n++] = other;
    return n;
}

const char *syi_mesh_letters(int axes)
{
    return syi_split_letters(axes);
}

void syi_mesh_spec(const struct syi_mesh *mesh, const struct syi_tensor *t, uint8_t split[SY_MAX_DIMS])
{
    int used = 0;
    for (int i = 0; i < SY_MAX_DIMS; i++) {
        split[i] = 0;
        if (i >= t->rank) continue;
        for (int a = 0; a < 3;
             a++) /* a mesh axis of size 1 splits nothing; one axis splits one dim of a tensor */
            if ((mesh->rule[t->axis[i]] & axis_bit[a]) && mesh->size[a] > 1 && !(used & axis_bit[a]))
                split[i] |= (uint8_t)axis_bit[a];
        used |= split[i];
    }
}
