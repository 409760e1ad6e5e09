/* SPDX-License-Identifier: Apache-2.0 */
/* The update program. The gradient norm is that of the logical tensors: block sums gather in logical order
 * and are summed by one tree, so no split changes a bit. Every write is a select on `ok`: a step whose norm
 * is not finite changes nothing, unless it is looked at after the update only (train.nan_check). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/compat.h"
#include "model/model.h"
#include "optim/optim.h"
#include "program/record.h"

/* A parameter and what moves it. */
struct target {
    const struct syi_param *param;
    int parameter; /* tensor */
    int gradient;  /* tensor; of an expert bias where it goes */
    double scale;  /* of the gradient */
};

struct update {
    struct syi_program *p;
    const struct syi_config *config;
    struct target *target; /* [n] in the order of the parameters' names */
    size_t n;
    int clip; /* [1]: factor on every gradient */
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
    struct target t = {.param = param, .scale = syi_gradient_scale(u->config, param->name)};
    char name[SYI_GRADIENT_NAME];
    t.parameter = syi_tensor_add(u->p, param->name, SYI_PARAM, SY_F32, param->rank, param->dim, param->axis);
    syi_role_set(u->p, t.parameter, SYI_ROLE_PARAMETER, param->id);
    if (is_bias(&t))
        snprintf(name, sizeof name, "direction/%s", param->name);
    else
        syi_gradient_name(name, param);
    t.gradient = syi_tensor_add(u->p, name, is_bias(&t) ? SYI_INPUT : SYI_CARRY, SY_F32, param->rank,
                                param->dim, param->axis);
    syi_role_set(u->p, t.gradient, is_bias(&t) ? SYI_ROLE_DIRECTION : SYI_ROLE_GRADIENT, param->id);
    return t;
}

/* norm = sqrt(sum over parameters, in the order of their names, of scale^2 * sum of squares). First all block
 * sums, so that what ranks gather of them travels together. */
static int global_norm(struct update *u)
{
    struct syi_program *p = u->p;
    struct sy_error err = {0};
    int sum = -1, *blocks = syi_alloc(u->n * sizeof *blocks, &err);
    if (!blocks) return syi_program_fail(p, SY_ENOMEM, "%s", err.text);
    for (size_t i = 0; i < u->n; i++)
        if (!is_bias(&u->target[i])) blocks[i] = syi_block_sum(p, SY_OP_BLOCK_SUMSQ, u->target[i].gradient);
    for (size_t i = 0; i < u->n; i++) {
        if (is_bias(&u->target[i])) continue;
        double scale = u->target[i].scale;
        int square = syi_tree_sum(p, blocks[i]);
        if (scale != 1) square = syi_map1(p, SY_MAP_MULS, square, scale * scale);
        sum = sum < 0 ? square : syi_map2(p, SY_MAP_ADD, sum, square);
    }
    syi_free(blocks);
    return syi_map1(p, SY_MAP_SQRT, sum, 0);
}

/* clip / norm where norm > clip, else 1 (optax.clip_by_global_norm). */
static int clip_factor(struct update *u, int norm)
{
    struct syi_program *p = u->p;
    double clip = u->config->train.clip_norm;
    int one = syi_constant_like(p, 1, norm);
    if (clip == 0) return one;
    int limit = syi_map1(p, SY_MAP_MULS, one, clip);
    return syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, limit, norm),
                    syi_map2(p, SY_MAP_DIV, limit, norm), one);
}

static void update_parameter(struct update *u, const struct target *t, struct syi_optim *o)
{
    struct syi_program *p = u->p;
    int value = t->gradient;
    if (t->scale != 1) value = syi_map1(p, SY_MAP_MULS, value, t->scale);
    value = syi_map2(p, SY_MAP_MUL, value, u->clip);
    const syi_transform_fn *chain = syi_optimizer_find(o->options->name)->chain;
    for (; chain[o->transform]; o->transform++) value = chain[o->transform](o, value);
    SYI_AT(p);
    syi_optim_store(o, syi_map2(p, SY_MAP_ADD, t->parameter, value), t->parameter);
}

/* bias + rate * direction, which the host sets to -1, 0 or 1 for each expert (arXiv 2408.15664). */
static void update_expert_bias(struct update *u, const struct target *t, struct syi_optim *o)
{
    int moved = syi_map1(u->p, SY_MAP_MULS, t->gradient, u->config->moe.expert_bias_update_rate);
    syi_optim_store(o, syi_map2(u->p, SY_MAP_ADD, t->parameter, moved), t->parameter);
}

/* The inputs that the host sets for each step, by their numbers. */
static void mark_scalars(struct update *u)
{
    float value[SYI_OPTIM_SCALARS];
    int n = syi_optim_scalars(u->config, 0, 0, value);
    for (int i = 0; i < n; i++) {
        char name[SYI_OPTIM_SCALAR_NAME];
        syi_optim_scalar_name(u->config, i, name);
        syi_role_set(u->p, syi_program_find(u->p, name), SYI_ROLE_OPTIM_SCALAR, (uint32_t)i);
    }
}

static int matches_any(const struct syi_model *model, const char *pattern)
{
    for (size_t i = 0; i < model->n; i++)
        if (model->param[i].init != SYI_INIT_EXPERT_BIAS && syi_pattern_match(pattern, model->param[i].name))
            return 1;
    return 0;
}

static int check_patterns(const struct syi_config *config, const struct syi_model *model,
                          struct sy_error *err)
{
    for (int i = 1; i < config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &config->optimizer.part[i];
        for (int k = 0; k < part->parameters.n; k++) {
            const char *pattern = syi_strings_at(&part->parameters, k);
            if (!matches_any(model, pattern))
                return syi_error(err, SY_EINVAL,
                                 "optimizer.%s.parameters: \"%.200s\" matches no parameter of the model: "
                                 "`switchyard plan` prints their names",
                                 part->name_of_part, pattern);
        }
    }
    return SY_OK;
}

static void record(struct update *u)
{
    struct syi_program *p = u->p;
    p->layer = syi_program_intern(p, "global_norm");
    SYI_AT(p);
    int norm = global_norm(u);
    int finite = syi_map1(p, SY_MAP_FINITE, norm, 0);
    u->ok = syi_compat(u->config, u->config->train.nan_check) ? syi_constant_like(p, 1, norm) : finite;
    u->clip = clip_factor(u, norm);
    syi_step_output(p, SYI_STEP_GRAD_NORM, norm);
    syi_step_output(p, SYI_STEP_OK, finite);
    for (size_t i = 0; i < u->n; i++) {
        const struct target *t = &u->target[i];
        struct syi_optim o = {.p = p,
                              .options = syi_optimizer_of(u->config, t->param->name),
                              .parameter = t->parameter,
                              .ok = u->ok};
        p->layer = syi_program_intern(p, t->param->name);
        SYI_AT(p);
        (is_bias(t) ? update_expert_bias : update_parameter)(u, t, &o);
    }
    mark_scalars(u);
}

int syi_record_update(const struct syi_config *config, const struct syi_model *model,
                      const uint32_t *leaf_count, struct syi_program **program, struct sy_error *err)
{
    struct update u = {.config = config, .n = model->n};
    int status = check_patterns(config, model, err);
    if (!status) status = syi_program_new("update", &u.p, err);
    if (status) return status;
    memcpy(u.p->leaf_count, leaf_count, sizeof u.p->leaf_count);
    u.target = syi_alloc(u.n * sizeof *u.target, err);
    if (!u.target) status = SY_ENOMEM;
    for (size_t i = 0; !status && i < u.n; i++) u.target[i] = target_of(&u, &model->param[i]);
    if (!status) record(&u);
    if (!status) status = syi_program_status(u.p, err);
    if (!status) status = syi_program_check(u.p, "record", err);
    syi_free(u.target);
    if (status)
        syi_program_free(u.p);
    else
        *program = u.p;
    return status;
}

/* ---- what the host sets ---- */

static void part_scalars(const struct syi_optimizer_part *part, double t, float value[SYI_OPTIM_PART_SCALARS])
{
    double since = fmax(1, t - (double)part->step_offset), mixing = pow(since, -part->decay_rate);
    value[0] = (float)(1 / (1 - pow(part->b1, t)));
    value[1] = (float)(1 / (1 - pow(part->b2, t)));
    value[2] = (float)(1 - mixing);
    value[3] = (float)mixing;
}

int syi_optim_scalars(const struct syi_config *config, int64_t step, double learning_rate,
                      float value[SYI_OPTIM_SCALARS])
{
    int n = 1;
    value[0] = (float)learning_rate;
    for (int i = 0; i < config->optimizer.n; i++, n += SYI_OPTIM_PART_SCALARS)
        part_scalars(&config->optimizer.part[i], (double)(step + 1), value + n);
    return n;
}

void syi_optim_scalar_name(const struct syi_config *config, int i, char name[SYI_OPTIM_SCALAR_NAME])
{
    static const char *const own[SYI_OPTIM_PART_SCALARS] = {"correction1", "correction2", "decay_rate",
                                                            "mixing_rate"};
    const char *part = i ? config->optimizer.part[(i - 1) / SYI_OPTIM_PART_SCALARS].name_of_part : "";
    snprintf(name, SYI_OPTIM_SCALAR_NAME, "%s%s%s", part, *part ? "/" : "",
             i ? own[(i - 1) % SYI_OPTIM_PART_SCALARS] : "learning_rate");
}
