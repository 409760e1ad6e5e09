/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name: each writes down its chain, as the sources of optimizers.def compose it. Places in a chain are
 * those of optax, since state is named after them. */
#include "config.h"

#include <string.h>

#include "optim/optim.h"

/* Adds a transform with its defaults; a pointer to its arguments. A chain of ours has room. */
#define ADD(terms, name) ((struct syi_transform_##name *)add(terms, SYI_TRANSFORM_##name))

static void *add(struct syi_terms *terms, int transform)
{
    size_t n;
    return syi_terms_add(terms, &syi_transform_kinds(&n)[transform]);
}

typedef const struct syi_optimizer_part part;

/* ---- pieces ---- */

static void add_rate(struct syi_terms *t)
{
    ADD(t, scale_by_learning_rate);
}

static void add_adam(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_adam *a = ADD(t, scale_by_adam);
    a->b1 = o->b1;
    a->b2 = o->b2;
    a->eps = o->eps;
    a->eps_root = o->eps_root;
}

static void add_decay(struct syi_terms *t, part *o)
{
    struct syi_transform_add_decayed_weights *a = ADD(t, add_decayed_weights);
    a->weight_decay = o->weight_decay;
    a->mask = o->weight_decay_mask;
}

/* The momentum, or what stands in its place in the chain. */
static void add_momentum(struct syi_terms *t, part *o)
{
    if (o->momentum == 0) {
        ADD(t, identity);
        return;
    }
    struct syi_transform_trace *a = ADD(t, trace);
    a->decay = o->momentum;
    a->nesterov = o->nesterov;
}

/* ---- the optimizers ---- */

static void adamw(struct syi_terms *t, part *o)
{
    add_adam(t, o);
    add_decay(t, o);
    add_rate(t);
}

static void adam(struct syi_terms *t, part *o)
{
    add_adam(t, o);
    add_rate(t);
}

static void adabelief(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_belief *a = ADD(t, scale_by_belief);
    a->b1 = o->b1;
    a->b2 = o->b2;
    a->eps = o->eps;
    a->eps_root = o->eps_root;
    add_rate(t);
}

static void adagrad(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_rss *a = ADD(t, scale_by_rss);
    a->initial_accumulator_value = o->initial_accumulator_value;
    a->eps = o->eps;
    add_rate(t);
}

static void dpsgd(struct syi_terms *t, part *o)
{
    struct syi_transform_differentially_private_aggregate *a = ADD(t, differentially_private_aggregate);
    a->l2_norm_clip = o->l2_norm_clip;
    a->noise_multiplier = o->noise_multiplier;
    add_momentum(t, o);
    add_rate(t);
}

static void fromage(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_trust_ratio *a = ADD(t, scale_by_trust_ratio);
    a->min_norm = o->min_norm;
    ADD(t, scale_by_fromage);
}

static void lamb(struct syi_terms *t, part *o)
{
    add_adam(t, o);
    add_decay(t, o);
    struct syi_transform_scale_by_trust_ratio *a = ADD(t, scale_by_trust_ratio);
    a->mask = o->trust_ratio_mask;
    add_rate(t);
}

static void lars(struct syi_terms *t, part *o)
{
    add_decay(t, o);
    struct syi_transform_scale_by_trust_ratio *a = ADD(t, scale_by_trust_ratio);
    a->trust_coefficient = o->trust_coefficient;
    a->eps = o->eps;
    a->mask = o->trust_ratio_mask;
    add_rate(t);
    add_momentum(t, o);
}

static void lion(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_lion *a = ADD(t, scale_by_lion);
    a->b1 = o->b1;
    a->b2 = o->b2;
    add_decay(t, o);
    add_rate(t);
}

static void muon(struct syi_terms *t, part *o)
{
    struct syi_transform_orthogonalize *a = ADD(t, orthogonalize);
    a->beta = o->momentum;
    a->steps = (int64_t)o->newton_schulz_steps;
    a->b1 = o->b1;
    a->b2 = o->b2;
    a->eps = o->eps;
    add_decay(t, o);
    add_rate(t);
}

static void noisy_sgd(struct syi_terms *t, part *o)
{
    add_rate(t);
    struct syi_transform_add_noise *a = ADD(t, add_noise);
    a->eta = o->eta;
    a->gamma = o->gamma;
}

static void radam(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_radam *a = ADD(t, scale_by_radam);
    a->b1 = o->b1;
    a->b2 = o->b2;
    a->eps = o->eps;
    a->eps_root = o->eps_root;
    a->threshold = o->threshold;
    add_rate(t);
}

/* The momentum comes after the rate: it is in units of the weights. */
static void rmsprop(struct syi_terms *t, part *o)
{
    if (o->centered) {
        struct syi_transform_scale_by_stddev *a = ADD(t, scale_by_stddev);
        *a = (struct syi_transform_scale_by_stddev){
            .decay = o->decay, .eps = o->eps, .initial_scale = o->initial_scale};
    } else {
        struct syi_transform_scale_by_rms *a = ADD(t, scale_by_rms);
        *a = (struct syi_transform_scale_by_rms){
            .decay = o->decay, .eps = o->eps, .initial_scale = o->initial_scale};
    }
    add_rate(t);
    add_momentum(t, o);
}

/* The rate's schedule may warm up; the interpolation takes the place of the momentum. */
static void schedule_free(struct syi_terms *t, part *o)
{
    int holder = t->n;
    struct syi_transform_schedule_free *a = ADD(t, schedule_free);
    a->b1 = o->b1;
    a->weight_lr_power = o->weight_lr_power;
    struct syi_transform_scale_by_adam *adam = ADD(t, scale_by_adam);
    adam->b1 = 0;
    adam->b2 = o->b2;
    adam->eps = o->eps;
    add_decay(t, o);
    add_rate(t);
    t->term[holder].end = t->n;
}

static void sgd(struct syi_terms *t, part *o)
{
    add_momentum(t, o);
    add_rate(t);
}

static void sm3(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_sm3 *a = ADD(t, scale_by_sm3);
    a->b1 = o->b1;
    a->b2 = o->b2;
    a->eps = o->eps;
    add_rate(t);
}

static void yogi(struct syi_terms *t, part *o)
{
    struct syi_transform_scale_by_yogi *a = ADD(t, scale_by_yogi);
    a->b1 = o->b1;
    a->b2 = o->b2;
    a->eps = o->eps;
    add_rate(t);
}

static void adafactor(struct syi_terms *t, part *o)
{
    struct syi_transform_adafactor *a = ADD(t, adafactor);
#define TAKE(key) a->key = o->key;
    TAKE(factored)
    TAKE(min_dim_size_to_factor)
    TAKE(logical_factor_rules)
    TAKE(factor_map)
    TAKE(decay_rate)
    TAKE(step_offset)
    TAKE(clipping_threshold)
    TAKE(global_norm_clip_threshold)
    TAKE(epsilon1)
    TAKE(epsilon2)
    TAKE(multiply_by_parameter_scale)
    TAKE(parameter_scale_rules)
    TAKE(max_parameter_scale)
    TAKE(beta1)
    TAKE(dtype_momentum)
    TAKE(weight_decay_rate)
    TAKE(weight_decay_rate_lr_exponent)
    TAKE(skip_nan_updates)
#undef TAKE
}

void syi_optimizer_chain(const struct syi_optimizer_part *resolved, struct syi_terms *terms)
{
    static void (*const chain[])(struct syi_terms *, part *) = {
#define SY_OPTIMIZER(NAME, name, transform, keys, help) [SYI_OPTIMIZER_##NAME] = name,
#include "base/optimizers.def"
#undef SY_OPTIMIZER
    };
    if ((size_t)resolved->name < SYI_COUNT(chain) && chain[resolved->name])
        chain[resolved->name](terms, resolved);
}
