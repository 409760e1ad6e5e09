/* SPDX-License-Identifier: Apache-2.0 */
/* The running mesh (data, expert, model) and the rules from logical axes to mesh axes. Rank = (data x E +
 * expert) x M + model. A split of a dim over several mesh axes is major to minor in that order. */
#ifndef SYI_MESH_H
#define SYI_MESH_H

#include "program/program.h"

enum syi_mesh_axis { SYI_MESH_DATA = 1, SYI_MESH_EXPERT = 2, SYI_MESH_MODEL = 4, SYI_MESH_ALL = 7 };

struct syi_mesh {
    int size[3];                  /* data, expert, model */
    uint8_t rule[SYI_AXIS_COUNT]; /* mesh axes that split a logical axis */
    int zero;                     /* ZeRO stage, 0 to 3 (core/passes/zero.c); syi_mesh_new sets 0 */
};

/* Sizes of 0 follow from the number of ranks, data first. Refuses what does not multiply to `ranks`, an
 * expert axis without experts or that does not divide them. Rules are the standard ones: batch, group: data
 * and expert; expert: expert; expert_group: data; joined_kv, mlp, expert_mlp, vocab: model. */
int syi_mesh_new(struct syi_mesh *mesh, int ranks, int data, int expert, int model, int num_experts,
                 struct sy_error *err) SYI_MUST_CHECK;
int syi_mesh_ranks(const struct syi_mesh *mesh);
int syi_mesh_size(const struct syi_mesh *mesh, int axes); /* product of the sizes of a set of mesh axes */
/* Position of a rank along a set of mesh axes, major to minor: which piece of a dim split by them it holds.
 */
int syi_mesh_index(const struct syi_mesh *mesh, int axes, int rank);
/* Whether the rank is the first of those that hold the same block of a local tensor: the one at the origin of the mesh axes
 * that do not split it. */
int syi_mesh_is_first(const struct syi_mesh *mesh, const struct syi_tensor *tensor, int rank);
/* Ranks that differ from `rank` in `axes` only, ascending by syi_mesh_index; returns how many. */
int syi_mesh_group(const struct syi_mesh *mesh, int axes, int rank, int *ranks);
/* "de" for data and expert: the letters explain prints. */
const char *syi_mesh_letters(int axes);
/* The mesh axes that split each dim of tensor t under the rules alone, ZeRO left out. */
void syi_mesh_spec(const struct syi_mesh *mesh, const struct syi_tensor *t, uint8_t split[SY_MAX_DIMS]);

#endif
