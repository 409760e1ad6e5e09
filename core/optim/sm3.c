/* SPDX-License-Identifier: Apache-2.0 */
/* SM3 (arXiv 1901.11150, optax 0.1.2): AdaGrad whose sums are bounded by one number for each slice of each axis. */
#include "config.h"

#include <stdio.h>

#include "optim/optim.h"
#include "program/record.h"

static int rank_of(const struct syi_optim *o)
{
    return o->p->status || o->parameter < 0 ? 0 : o->p->tensor[o->parameter].rank;
}

/* The accumulator of axis i: as long as that axis. */
static int accumulator(struct syi_optim *o, int i)
{
    char tail[8];
    snprintf(tail, sizeof tail, "/%d", i);
    return syi_optim_state_of(o, "mu", tail, ~(1u << i), 0);
}

/* The least bound of each element: the minimum over the accumulators of the axes. */
static int bound(struct syi_optim *o, const int *axis, int rank)
{
    int least = axis[0];
    if (rank > 1) least = syi_map2(o->p, SY_MAP_ADD, syi_constant_like(o->p, 0, o->parameter), least);
    for (int i = 1; i < rank; i++) least = syi_map2(o->p, SY_MAP_MIN, least, axis[i]);
    return least;
}

static int scale_by_sm3(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_sm3 *a = arguments;
    struct syi_program *p = o->p;
    int axis[SY_MAX_DIMS] = {0}, rank = rank_of(o);
    SYI_AT(p);
    for (int i = 0; i < rank; i++) axis[i] = accumulator(o, i);
    int square = syi_square(p, update), old = bound(o, axis, rank), momentum = syi_optim_state(o, "nu", 0);
    if (a->b2 != 1) {
        square = syi_map1(p, SY_MAP_MULS, square, 1 - a->b2);
        old = syi_map1(p, SY_MAP_MULS, old, a->b2);
    }
    int sum = syi_map2(p, SY_MAP_ADD, square, old);
    int scaled = syi_map2(p, SY_MAP_MUL, update, syi_inverse_root(p, sum, a->eps));
    int moved = syi_moving_mean(p, momentum, scaled, a->b1);
    syi_optim_store(o, moved, momentum);
    for (int i = 0; i < rank; i++)
        syi_optim_store(o, rank == 1 ? sum : syi_max_over(p, sum, ((1u << rank) - 1) & ~(1u << i)), axis[i]);
    return moved;
}

const struct syi_transform syi_transform_row_scale_by_sm3 = {
    .record = scale_by_sm3, .state = {{"mu", SYI_FIELD_AXES}, {"nu", SYI_FIELD_SLOT}}};
