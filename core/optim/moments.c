/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms that scale by moments of gradients. Formulas: optax 0.1.2, transform.py. */
#include "config.h"

#include <math.h>

#include "optim/optim.h"
#include "program/record.h"

/* What makes up for means that began at 0: 1 / (1 - b1^t), 1 / (1 - b2^t). */
static void corrections(double b1, double b2, const struct syi_optim_time *time,
                        double value[SYI_HOST_VALUES])
{
    double t = (double)(time->step + 1);
    value[0] = 1 / (1 - pow(b1, t));
    value[1] = 1 / (1 - pow(b2, t));
}

/* x * host value of that slot */
static int corrected(struct syi_optim *o, int x, int slot)
{
    return syi_map2(o->p, SY_MAP_MUL, x, syi_optim_scalar(o, slot));
}

/* mean / (sqrt(square + eps_root) + eps) */
static int divide(struct syi_program *p, int mean, int square, double eps_root, double eps)
{
    if (eps_root != 0) square = syi_map1(p, SY_MAP_ADDS, square, eps_root);
    int root = syi_map1(p, SY_MAP_ADDS, syi_map1(p, SY_MAP_SQRT, square, 0), eps);
    return syi_map2(p, SY_MAP_DIV, mean, root);
}

/* update / sqrt(square + eps) */
static int divide_by_root(struct syi_program *p, int update, int square, double eps)
{
    return syi_map2(p, SY_MAP_MUL, update,
                    syi_map1(p, SY_MAP_RSQRT, syi_map1(p, SY_MAP_ADDS, square, eps), 0));
}

/* ---- the family of Adam ---- */

struct moments {
    int mu, nu;         /* state: mean, second moment */
    int new_mu, new_nu; /* after the step */
};

/* Both moments begin at `initial`. */
static struct moments begin_moments(struct syi_optim *o, double initial)
{
    struct moments m = {.mu = syi_optim_state(o, "mu", initial)};
    m.nu = syi_optim_state(o, "nu", initial);
    return m;
}

static void move_moments(struct syi_program *p, struct moments *m, int update, int square, double b1,
                         double b2)
{
    m->new_mu = syi_moving_mean(p, m->mu, update, b1);
    m->new_nu = syi_moving_mean(p, m->nu, square, b2);
}

#define MOMENTS_STATE                                                                                        \
    {                                                                                                        \
        {"count", SYI_FIELD_COUNT}, {"mu", SYI_FIELD_SLOT},                                                  \
        {                                                                                                    \
            "nu", SYI_FIELD_SLOT                                                                             \
        }                                                                                                    \
    }

static void store_moments(struct syi_optim *o, const struct moments *m)
{
    syi_optim_store(o, m->new_mu, m->mu);
    syi_optim_store(o, m->new_nu, m->nu);
}

/* Both corrected, one divided by the root of the other; the moments are stored. */
static int divide_moments(struct syi_optim *o, const struct moments *m, double eps_root, double eps)
{
    int mean = corrected(o, m->new_mu, 0), square = corrected(o, m->new_nu, 1);
    int result = divide(o->p, mean, square, eps_root, eps);
    store_moments(o, m);
    return result;
}

static int scale_by_adam(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_adam *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    struct moments m = begin_moments(o, 0);
    move_moments(p, &m, update, syi_square(p, update), a->b1, a->b2);
    return divide_moments(o, &m, a->eps_root, a->eps);
}

static void adam_host(const void *arguments, const struct syi_optim_time *time, double value[SYI_HOST_VALUES])
{
    const struct syi_transform_scale_by_adam *a = arguments;
    corrections(a->b1, a->b2, time, value);
}

const struct syi_transform syi_transform_row_scale_by_adam = {
    .record = scale_by_adam, .host = adam_host, .state = MOMENTS_STATE};

/* The surprise is the distance to the mean of before; eps_root stays in the second moment. */
static int scale_by_belief(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_belief *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    struct moments m = begin_moments(o, 0);
    int square = syi_square(p, syi_map2(p, SY_MAP_SUB, update, m.mu));
    m.new_mu = syi_moving_mean(p, m.mu, update, a->b1);
    m.new_nu = syi_map1(p, SY_MAP_ADDS, syi_moving_mean(p, m.nu, square, a->b2), a->eps_root);
    return divide_moments(o, &m, 0, a->eps);
}

static void belief_host(const void *arguments, const struct syi_optim_time *time,
                        double value[SYI_HOST_VALUES])
{
    const struct syi_transform_scale_by_belief *a = arguments;
    corrections(a->b1, a->b2, time, value);
}

const struct syi_transform syi_transform_row_scale_by_belief = {
    .record = scale_by_belief, .host = belief_host, .state = MOMENTS_STATE};

static int scale_by_yogi(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_yogi *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    struct moments m = begin_moments(o, a->initial_accumulator_value);
    int square = syi_square(p, update);
    int way = syi_sign(p, syi_map2(p, SY_MAP_SUB, m.nu, square));
    int moved = syi_map1(p, SY_MAP_MULS, syi_map2(p, SY_MAP_MUL, way, square), 1 - a->b2);
    m.new_mu = syi_moving_mean(p, m.mu, update, a->b1);
    m.new_nu = syi_map2(p, SY_MAP_SUB, m.nu, moved);
    return divide_moments(o, &m, a->eps_root, a->eps);
}

static void yogi_host(const void *arguments, const struct syi_optim_time *time, double value[SYI_HOST_VALUES])
{
    const struct syi_transform_scale_by_yogi *a = arguments;
    corrections(a->b1, a->b2, time, value);
}

const struct syi_transform syi_transform_row_scale_by_yogi = {
    .record = scale_by_yogi, .host = yogi_host, .state = MOMENTS_STATE};

/* Slot 2 is the rectification, slot 3 whether there is one: else the mean is the update. */
static int scale_by_radam(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_radam *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    struct moments m = begin_moments(o, 0);
    move_moments(p, &m, update, syi_square(p, update), a->b1, a->b2);
    int mean = corrected(o, m.new_mu, 0), rectified = corrected(o, mean, 2);
    int scaled = divide(p, rectified, corrected(o, m.new_nu, 1), a->eps_root, a->eps);
    store_moments(o, &m);
    return syi_map3(p, SY_MAP_SELECT, syi_optim_scalar(o, 3), scaled, mean);
}

static void radam_host(const void *arguments, const struct syi_optim_time *time,
                       double value[SYI_HOST_VALUES])
{
    const struct syi_transform_scale_by_radam *a = arguments;
    double t = (double)(time->step + 1), power = pow(a->b2, t);
    double most = 2 / (1 - a->b2) - 1, length = most - 2 * t * power / (1 - power);
    corrections(a->b1, a->b2, time, value);
    int rectified = length >= a->threshold && length > 4; /* of 4, where b2 = 0.6, it would be 0 / 0 */
    value[3] = rectified;
    value[2] = rectified ? sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) : 1;
}

const struct syi_transform syi_transform_row_scale_by_radam = {
    .record = scale_by_radam, .host = radam_host, .state = MOMENTS_STATE};

/* ---- the families of RMSProp and AdaGrad ---- */

static int scale_by_rms(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_rms *a = arguments;
    SYI_AT(o->p);
    int nu = syi_optim_state(o, "nu", a->initial_scale);
    int new_nu = syi_moving_mean(o->p, nu, syi_square(o->p, update), a->decay);
    int result = divide_by_root(o->p, update, new_nu, a->eps);
    syi_optim_store(o, new_nu, nu);
    return result;
}

const struct syi_transform syi_transform_row_scale_by_rms = {.record = scale_by_rms,
                                                             .state = {{"nu", SYI_FIELD_SLOT}}};

static int scale_by_stddev(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_stddev *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    struct moments m = {.mu = syi_optim_state(o, "mu", 0), .nu = syi_optim_state(o, "nu", a->initial_scale)};
    m.new_mu = syi_moving_mean(p, m.mu, update, a->decay);
    m.new_nu = syi_moving_mean(p, m.nu, syi_square(p, update), a->decay);
    int variance = syi_map2(p, SY_MAP_SUB, m.new_nu, syi_square(p, m.new_mu));
    int result = divide_by_root(p, update, variance, a->eps);
    store_moments(o, &m);
    return result;
}

const struct syi_transform syi_transform_row_scale_by_stddev = {
    .record = scale_by_stddev, .state = {{"mu", SYI_FIELD_SLOT}, {"nu", SYI_FIELD_SLOT}}};

static int scale_by_rss(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_rss *a = arguments;
    struct syi_program *p = o->p;
    SYI_AT(p);
    int sum = syi_optim_state(o, "sum_of_squares", a->initial_accumulator_value);
    int new_sum = syi_map2(p, SY_MAP_ADD, syi_square(p, update), sum);
    int result = syi_map2(p, SY_MAP_MUL, update, syi_inverse_root(p, new_sum, a->eps));
    syi_optim_store(o, new_sum, sum);
    return result;
}

const struct syi_transform syi_transform_row_scale_by_rss = {.record = scale_by_rss,
                                                             .state = {{"sum_of_squares", SYI_FIELD_SLOT}}};

/* ---- Lion ---- */

static int scale_by_lion(struct syi_optim *o, const void *arguments, int update)
{
    const struct syi_transform_scale_by_lion *a = arguments;
    SYI_AT(o->p);
    int mu = syi_optim_state(o, "mu", 0);
    int result = syi_sign(o->p, syi_moving_mean(o->p, mu, update, a->b1));
    syi_optim_store(o, syi_moving_mean(o->p, mu, update, a->b2), mu);
    return result;
}

const struct syi_transform syi_transform_row_scale_by_lion = {
    .record = scale_by_lion, .state = {{"count", SYI_FIELD_COUNT}, {"mu", SYI_FIELD_SLOT}}};
