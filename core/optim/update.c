/* SPDX-License-Identifier: Apache-2.0 */
/* The update program. The gradient norm is that of the logical tensors: block sums gather in logical order
 * and are summed by one tree, so no split changes a bit. Every write is a select on `ok`: a step whose norm
 * is not finite changes nothing, unless it is looked at after the update only (train.nan_check). */
#include "config.h"

#include <string.h>

#include "base/compat.h"
#include "model/model.h"
#include "optim/optim.h"
#include "optim/weight_copies.h"
#include "optim/weight_metrics.h"
#include "program/record.h"

/* A parameter, what moves it and, with metrics, what becomes of it. */
struct target {
    const struct syi_param *param;
    int parameter; /* tensor */
    int gradient;  /* tensor; of an expert bias where it goes */
    double scale;  /* of the gradient */
    int square;    /* [1]: of the gradient, summed */
    struct syi_weighed weighed;
};

struct update {
    struct syi_program *p;
    const struct syi_update_options *options;
    struct syi_chain *chains; /* [parts] */
    struct target *target;    /* [n] in the order of the parameters' names */
    size_t n;
    struct syi_weight_copies copies;
    int clip; /* [1]: factor on every gradient; -1: none */
    int ok;   /* [1]: 0 where nothing may be written */
};

double syi_gradient_scale(const struct syi_config *config, const char *name)
{
    int64_t experts = config->moe.num_experts;
    int scaled = experts > 0 && config->moe.scale_expert_gradients;
    return scaled && syi_pattern_match(config->moe.sharded_match_fn, name) ? (double)experts : 1;
}

static int is_bias(const struct target *t)
{
    return t->param->init == SYI_INIT_EXPERT_BIAS;
}

static struct target target_of(struct update *u, const struct syi_param *param)
{
    struct target t = {.param = param, .scale = syi_gradient_scale(u->options->config, param->name)};
    char name[SYI_GRADIENT_NAME];
    t.parameter = syi_tensor_add(u->p, param->name, SYI_PARAM, SY_F32, param->rank, param->dim, param->axis);
    syi_role_set(u->p, t.parameter, SYI_ROLE_PARAMETER, param->id);
    if (is_bias(&t))
        snprintf(name, sizeof name, "direction/%s", param->name);
    else
        syi_gradient_name(name, param);
    t.gradient = syi_tensor_add(u->p, name, is_bias(&t) ? SYI_INPUT : SYI_CARRY,
                                is_bias(&t) ? SY_F32 : syi_gradient_dtype(u->options->config, param),
                                param->rank, param->dim, param->axis);
    syi_role_set(u->p, t.gradient, is_bias(&t) ? SYI_ROLE_DIRECTION : SYI_ROLE_GRADIENT, param->id);
    return t;
}

/* Sums of the squares of a gradient's blocks. */
static int blocks_of(struct update *u, const struct target *t)
{
    return u->options->carried ? syi_gradient_blocks(u->p, t->param)
                               : syi_block_sum(u->p, SY_OP_BLOCK_SUMSQ, t->gradient);
}

/* norm = sqrt(sum over parameters, in the order of their names, of scale^2 * sum of squares) */
static int global_norm(struct update *u)
{
    struct sy_error err = {0};
    int n = 0, norm = -1, *square = syi_alloc(u->n * sizeof *square, &err);
    double *scale = syi_alloc(u->n * sizeof *scale, &err);
    for (size_t i = 0; square && scale && i < u->n; i++) {
        if (is_bias(&u->target[i])) continue;
        square[n] = blocks_of(u, &u->target[i]);
        scale[n++] = u->target[i].scale;
    }
    if (square && scale)
        norm = syi_norm_of_blocks(u->p, n, square, scale);
    else
        syi_program_fail(u->p, SY_ENOMEM, "%s", err.text);
    for (size_t i = u->n; norm >= 0 && i-- > 0;)
        if (!is_bias(&u->target[i])) u->target[i].square = square[--n];
    syi_free(square);
    syi_free(scale);
    return norm;
}

/* clip / norm where norm > clip, else 1 (optax.clip_by_global_norm); -1: nothing is clipped. */
static int clip_factor(struct update *u, int norm)
{
    struct syi_program *p = u->p;
    double clip = u->options->config->train.clip_norm;
    if (clip == 0) return -1;
    int one = syi_constant_like(p, 1, norm), limit = syi_map1(p, SY_MAP_MULS, one, clip);
    return syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, limit, norm),
                    syi_map2(p, SY_MAP_DIV, limit, norm), one);
}

/* ---- the parameters of a part ---- */

struct part {
    struct update *u;
    struct syi_group group;
    int *tensor, *update; /* [n] as the group has them */
    uint32_t *id;         /* [n] */
    double *scale;        /* [n] of gradients */
    struct target **of;   /* [n] */
};

static void free_part(struct part *part)
{
    syi_free(part->tensor);
    syi_free(part->update);
    syi_free(part->id);
    syi_free(part->scale);
    syi_free(part->of);
}

/* Those of the model that part number `i` updates. */
static int collect(struct update *u, int i, struct part *part, struct sy_error *err)
{
    const struct syi_config *config = u->options->config;
    *part = (struct part){.u = u,
                          .group = {.p = u->p,
                                    .chain = &u->chains[i],
                                    .part = i,
                                    .ok = u->ok,
                                    .rows = config->data.batch_size,
                                    .noise = u->options->noise}};
    part->tensor = syi_alloc(u->n * sizeof *part->tensor, err);
    part->update = syi_alloc(u->n * sizeof *part->update, err);
    part->id = syi_alloc(u->n * sizeof *part->id, err);
    part->scale = syi_alloc(u->n * sizeof *part->scale, err);
    part->of = syi_alloc(u->n * sizeof(struct target *), err);
    if (!part->tensor || !part->update || !part->id || !part->scale || !part->of) return SY_ENOMEM;
    for (size_t k = 0; k < u->n; k++) {
        struct target *t = &u->target[k];
        if (is_bias(t) || syi_optimizer_of(config, t->param->name) != i) continue;
        part->tensor[part->group.n] = t->parameter;
        part->update[part->group.n] = t->gradient;
        part->id[part->group.n] = t->param->id;
        part->of[part->group.n] = t;
        part->scale[part->group.n++] = t->scale;
    }
    part->group.tensor = part->tensor;
    part->group.update = part->update;
    part->group.id = part->id;
    return SY_OK;
}

/* What a chain begins with: the gradient in float32, scaled and clipped. One in bfloat16 is widened by the first map that
 * reads it. */
static int enter(void *arg, int i)
{
    struct part *part = arg;
    struct syi_program *p = part->group.p;
    int value = part->update[i];
    if (part->scale[i] != 1) value = syi_as(p, syi_map1(p, SY_MAP_MULS, value, part->scale[i]), SY_F32);
    return part->u->clip < 0 ? syi_cast(p, value, SY_F32) : syi_map2(p, SY_MAP_MUL, value, part->u->clip);
}

/* Puts the new weights in the place of the old, or keeps these (value -1). */
static void put(struct update *u, struct target *t, int value)
{
    if (u->options->weigh)
        syi_weigh_change(u->p, &t->weighed, t->parameter, value < 0 ? t->parameter : value);
    if (value >= 0) syi_store(u->p, value, t->parameter);
    if (value >= 0) syi_weight_copies_follow(&u->copies, u->p, t->param->id);
    if (u->options->weigh) syi_weigh_blocks(u->p, &t->weighed);
}

static void leave(void *arg, int i, int update)
{
    struct part *part = arg;
    struct syi_program *p = part->group.p;
    SYI_AT(p);
    int moved = syi_map2(p, SY_MAP_ADD, part->tensor[i], update);
    put(part->u, part->of[i], syi_map3(p, SY_MAP_SELECT, part->group.ok, moved, part->tensor[i]));
}

static int moves_part(const struct update *u, int i)
{
    return i >= 0 && u->chains[i].options->name != SYI_OPTIMIZER_NONE;
}

static int update_part(struct update *u, int i, struct sy_error *err)
{
    struct part part;
    int status = collect(u, i, &part, err), moves = moves_part(u, i);
    if (!status && part.group.n && moves) syi_record_chain(&part.group, enter, leave, &part);
    for (int k = 0; !status && !moves && k < part.group.n; k++) put(u, part.of[k], -1);
    free_part(&part);
    return status;
}

/* bias + rate * direction, which the host sets to -1, 0 or 1 for each expert (arXiv 2408.15664). */
static void update_expert_bias(struct update *u, const struct target *t)
{
    struct syi_program *p = u->p;
    SYI_AT(p);
    int moved = syi_map1(p, SY_MAP_MULS, t->gradient, u->options->config->moe.expert_bias_update_rate);
    moved = syi_map2(p, SY_MAP_ADD, t->parameter, moved);
    syi_store_where(p, u->ok, moved, t->parameter);
}

static void record_metrics(struct update *u)
{
    for (size_t i = 0; i < u->n; i++) {
        const struct target *t = &u->target[i];
        if (is_bias(t)) continue;
        u->p->layer = syi_program_intern(u->p, t->param->name);
        syi_weigh_outputs(u->p, &t->weighed, t->param->id, t->param->name, t->square);
    }
}

/* ---- the program ---- */

static int record(struct update *u, struct sy_error *err)
{
    struct syi_program *p = u->p;
    const struct syi_config *config = u->options->config;
    int status = SY_OK;
    p->layer = syi_program_intern(p, "global_norm");
    SYI_AT(p);
    int norm = global_norm(u);
    int finite = syi_map1(p, SY_MAP_FINITE, norm, 0);
    u->ok = syi_compat(config, config->train.nan_check) ? syi_constant_like(p, 1, norm) : finite;
    u->clip = clip_factor(u, norm);
    syi_step_output(p, SYI_STEP_GRAD_NORM, norm);
    syi_step_output(p, SYI_STEP_OK, finite);
    for (int i = 0; i < config->optimizer.n && !status; i++) status = update_part(u, i, err);
    for (size_t i = 0; i < u->n; i++) {
        const char *name = u->target[i].param->name;
        if (!is_bias(&u->target[i]) || !moves_part(u, syi_optimizer_of(config, name))) continue;
        p->layer = syi_program_intern(p, name);
        update_expert_bias(u, &u->target[i]);
    }
    if (u->options->weigh && !status) record_metrics(u);
    return status;
}

/* Which copies follow which parameters. */
static int await_copies(struct update *u, struct sy_error *err)
{
    const struct syi_config *config = u->options->config;
    uint8_t *moved = syi_alloc(u->n + 1, err);
    if (!moved) return SY_ENOMEM;
    for (size_t i = 0; i < u->n; i++) {
        const struct syi_param *param = u->target[i].param;
        moved[param->id] = (uint8_t)moves_part(u, syi_optimizer_of(config, param->name));
    }
    int status = syi_weight_copies_new(&u->copies, u->options->model, u->p, moved, err);
    syi_free(moved);
    return status;
}

/* Tensors of the parameters and of what comes in, then the program. */
static int fill(struct update *u, struct sy_error *err)
{
    const struct syi_model *model = u->options->model;
    memcpy(u->p->leaf_count, u->options->leaf_count, sizeof u->p->leaf_count);
    u->target = syi_alloc(u->n * sizeof *u->target, err);
    int status = u->target ? syi_chains_make(u->options->config, &u->chains, err) : SY_ENOMEM;
    if (status) return status;
    for (size_t i = 0; i < u->n; i++) u->target[i] = target_of(u, &model->param[i]);
    status = await_copies(u, err);
    if (!status) status = record(u, err);
    if (!status) status = syi_program_status(u->p, err);
    return status ? status : syi_program_check(u->p, "record", err);
}

int syi_record_update(const struct syi_update_options *options, struct syi_program **program,
                      struct sy_error *err)
{
    struct update u = {.options = options, .n = options->model->n};
    int status = syi_check_overlaps(options->config, options->model, err);
    if (!status) status = syi_program_new(options->weigh ? "update_metrics" : "update", &u.p, err);
    if (status) return status;
    status = fill(&u, err);
    syi_weight_copies_free(&u.copies);
    syi_free(u.target);
    syi_chains_free(u.chains, options->config->optimizer.n);
    if (status)
        syi_program_free(u.p);
    else
        *program = u.p;
    return status;
}
