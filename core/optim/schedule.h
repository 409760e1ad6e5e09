/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates by the step, from the run file alone: train.lr_factors where it is given, else train.schedule. What
 * depends on the step is compiled once into plain data; its value at a step parses and allocates nothing.
 *
 * train.schedule has a course of two parts, with t the step (from 0, before its update), W = train.warmup_steps,
 * S = train.steps, R = train.learning_rate, F = train.final_learning_rate:
 *
 *   t < W      R t / W                                                    all schedules: up from 0
 *   t >= W     R                                                          constant
 *              R + (F - R) p                                              linear
 *              F + (R - F) (1 + cos(pi p)) / 2                            cosine
 *              max(F, R sqrt(max(W, 1) / max(t, W, 1)))                   rsqrt
 *
 * p = min(1, (t - W) / (S - W)), 1 when S <= W: F would be reached by step S, one past the last. rsqrt is
 * T5X's `constant * linear_warmup * rsqrt_decay` with the constant chosen so that R is the peak.
 *
 * train.lr_factors, as lr_factors of an optimizer, is a product of factors (base/schedules.def) with '*' between them;
 * schedule and final_learning_rate do not count. t is the step less train.lr_step_offset, at least 0; the product is at
 * least train.min_learning_rate. Of T5X (utils.py, create_learning_rate_scheduler), R = value, W = warmup_steps:
 *
 *   constant                 R
 *   linear_warmup            min(1, t / W)
 *   linear_decay             R min(t / W, 1 + decay_factor (W - t))       below 0 at last
 *   rsqrt_decay              1 / sqrt(max(t, W, 1))
 *   rsqrt_normalized_decay   sqrt(max(W, 1) / max(t, W, 1))
 *   decay_every              decay_factor ^ floor(t / steps_per_decay)
 *   cosine_decay             (1 + cos(pi q)) / 2, q the fraction of max(0, t - W) / steps_per_cycle
 *
 * t / W counts as 1 or more when W = 0. Of optax (schedule.py), A = init_value, E = end_value and with the share
 * p = min(1, max(0, t - transition_begin) / N), N = transition_steps or decay_steps; where N is auto, train.steps
 * less transition_begin, and when that is 0 or less p = 1 from transition_begin on, and exponential takes 1 for it:
 *
 *   linear                   A + (E - A) p
 *   polynomial               E + (A - E) (1 - p) ^ power
 *   exponential              A decay_rate ^ x, x = max(0, t - transition_begin) / N, its whole part with staircase;
 *                            at least E, with decay_rate >= 1 at most E; E auto: no bound
 *   piecewise_constant       A times all scales[i] with boundaries[i] <= t
 *   cosine                   A (alpha + (1 - alpha) (1 + cos(pi p)) / 2)
 *
 * and, B = max(W, steps - decay_steps) the begin of its fall, p = min(1, (t - B) / (steps - B)), 1 when steps <= B,
 * F = final_share:
 *
 *   warmup_stable_decay      min(1, t / W) up to B
 *                            1 - (1 - F) p                                shape linear
 *                            F + (1 - F) (1 + cos(pi p)) / 2              cosine
 *                            1 - (1 - F) sqrt(p)                          sqrt */
#ifndef SYI_SCHEDULE_H
#define SYI_SCHEDULE_H

#include "base/schedules.h"

/* A factor with its arguments, none of them auto but an end_value that does not bound. */
struct syi_schedule_factor {
    int kind; /* SYI_SCHEDULE_FACTOR_* */
    union {
#define SY_TERM_BEGIN(name, inner, help) struct syi_schedule_##name name;
#define SY_TERM_END(name)
#define SY_ARGUMENT(name, key, type, value, range, help)
#include "base/schedules.def"
#undef SY_TERM_BEGIN
#undef SY_TERM_END
#undef SY_ARGUMENT
    } of;
};

/* Plain data: nothing to free, may be copied. */
struct syi_schedule {
    int n;               /* factors; 0: a course of train.schedule */
    int64_t step_offset; /* of a product */
    double least;        /* of a product */
    int course;          /* SYI_SCHEDULE_* */
    int64_t warmup_steps, steps;
    double top, low;
    struct syi_schedule_factor factor[SYI_TERMS];
};

/* A product by itself, as a factor of something else: at least 0, the step as it is. What is auto comes from config. On
 * failure SY_EINVAL or SY_ENOMEM and one sentence in reason. */
int syi_schedule_compile(struct syi_schedule *s, const struct syi_config *config, const char *product,
                         char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
/* The same for a product that is a learning rate: with train.lr_step_offset and train.min_learning_rate. */
int syi_schedule_compile_rate(struct syi_schedule *s, const struct syi_config *config, const char *product,
                              char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
/* The learning rate of the run: train.lr_factors or train.schedule. */
int syi_schedule_compile_run(struct syi_schedule *s, const struct syi_config *config,
                             char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
double syi_schedule_value(const struct syi_schedule *s, int64_t step);
int syi_schedule_is_constant(
    const struct syi_schedule *s); /* the same at every step, whatever the numbers are */

/* The learning rate of the run at one step, compiled anew; no number where that fails. */
double syi_schedule_rate(const struct syi_config *config, int64_t step);

#endif
