/* SPDX-License-Identifier: Apache-2.0 */
/* Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the momentum of a matrix is replaced by the nearest
 * semi-orthogonal matrix, by Newton-Schulz iterations x <- a x + (b g + c g g) x with g = x x^T (or x^T x, whichever is
 * smaller). Updates are scaled by 0.2 sqrt(larger dim), so that their root mean square is that of Adam's (arXiv
 * 2502.16982) and one learning rate fits both. Embeddings, tables, routers, stacks of experts and vectors go as under
 * Adam. */
#include "config.h"

#include <math.h>

#include "optim/optim.h"
#include "program/record.h"

static const double a = 3.4445, b = -4.7750, c = 2.0315;

/* Whether the parameter is a matrix between two layers. */
static int is_matrix(const struct syi_optim *o)
{
    if (o->p->status || o->parameter < 0) return 0;
    const struct syi_tensor *t = &o->p->tensor[o->parameter];
    for (int i = 0; i < t->rank; i++)
        if (t->axis[i] == SYI_AXIS_VOCAB || t->axis[i] == SYI_AXIS_BUCKETS || t->axis[i] == SYI_AXIS_ROUTER ||
            t->axis[i] == SYI_AXIS_EXPERT)
            return 0;
    return t->rank == 2 && t->dim[0] > 1 && t->dim[1] > 1;
}

/* The small products are whole on every rank: both of their dims are of one axis. */
static int whole(struct syi_program *p, int x)
{
    for (int i = 0; x >= 0 && i < p->tensor[x].rank; i++) p->tensor[x].axis[i] = SYI_AXIS_NONE;
    return x;
}

/* b g + c g g of a symmetric g [n, n]. */
static int polynomial(struct syi_program *p, int g)
{
    int lifted = SYI_RECORD(p, SY_OP_EXPAND_DIMS, NULL, g),
        square = whole(p, syi_matmul_tn(p, lifted, lifted));
    return syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, g, b), syi_map1(p, SY_MAP_MULS, square, c));
}

/* x [rows, columns] with at least as many columns as rows. */
static int iterate_wide(struct syi_program *p, int x)
{
    int lifted = SYI_RECORD(p, SY_OP_EXPAND_DIMS, NULL, x);
    int g = whole(p, SYI_RECORD(p, SY_OP_SQUEEZE, NULL, whole(p, syi_matmul_nt(p, lifted, x))));
    int turned = syi_matmul_tn(p, SYI_RECORD(p, SY_OP_EXPAND_DIMS, NULL, polynomial(p, g)), lifted);
    return syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, x, a), turned);
}

/* x [rows, columns] with more rows. */
static int iterate_tall(struct syi_program *p, int x)
{
    int lifted = SYI_RECORD(p, SY_OP_EXPAND_DIMS, NULL, x), g = whole(p, syi_matmul_tn(p, lifted, lifted));
    int turned = SYI_RECORD(p, SY_OP_SQUEEZE, NULL, syi_matmul(p, lifted, polynomial(p, g)));
    return syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, x, a), turned);
}

static int nearest_orthogonal(struct syi_program *p, int x, int64_t steps)
{
    if (p->status || x < 0) return -1;
    int64_t rows = p->tensor[x].dim[0], columns = p->tensor[x].dim[1];
    int norm = syi_map1(p, SY_MAP_ADDS, syi_tensor_norm(p, x), 1e-7);
    x = syi_map2(p, SY_MAP_DIV, x, norm);
    for (int64_t i = 0; i < steps; i++) x = rows <= columns ? iterate_wide(p, x) : iterate_tall(p, x);
    return syi_map1(p, SY_MAP_MULS, x, 0.2 * sqrt((double)(rows > columns ? rows : columns)));
}

static int orthogonalize(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_orthogonalize *options = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    if (!is_matrix(o)) {
        const struct syi_transform_scale_by_adam adam = {
            .b1 = options->b1, .b2 = options->b2, .eps = options->eps};
        return syi_transform_row_scale_by_adam.record(o, &adam, update);
    }
    int old = syi_optim_state(o, "momentum", 0), moved = syi_moving_mean(p, old, update, options->beta);
    syi_optim_store(o, moved, old);
    if (options->nesterov) moved = syi_moving_mean(p, moved, update, options->beta);
    return nearest_orthogonal(p, moved, options->steps);
}

/* Those of Adam, for what goes as under it. */
static void orthogonalize_host(const void *arguments, const struct syi_optim_time *time,
                               double value[SYI_HOST_VALUES])
{
    const struct syi_transform_orthogonalize *options = arguments;
    const struct syi_transform_scale_by_adam adam = {.b1 = options->b1, .b2 = options->b2};
    syi_transform_row_scale_by_adam.host(&adam, time, value);
}

const struct syi_transform syi_transform_row_orthogonalize = {.record = orthogonalize,
                                                              .host = orthogonalize_host,
                                                              .state = {{"count", SYI_FIELD_COUNT},
                                                                        {"momentum", SYI_FIELD_SLOT},
                                                                        {"mu", SYI_FIELD_SLOT},
                                                                        {"nu", SYI_FIELD_SLOT}}};
