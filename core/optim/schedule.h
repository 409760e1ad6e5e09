/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a step, from the run file alone: train.lr_factors where it is given, else
 * train.schedule. A schedule's course has two parts, with t the step (from 0,
 * before its update), W = train.warmup_steps, S = train.steps, R = train.learning_rate, F =
 * train.final_learning_rate:
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
 * lr_factors (T5X utils.py, create_learning_rate_scheduler) is a product of factors with '*' between them, at
 * least 1e-8; schedule and final_learning_rate do not count:
 *
 *   constant         R
 *   linear_warmup    min(1, t / W), 1 when W = 0
 *   rsqrt_decay      1 / sqrt(max(t, W, 1)) */
#ifndef SYI_SCHEDULE_H
#define SYI_SCHEDULE_H

#include "base/run_config.h"

double syi_schedule_rate(const struct syi_config *config, int64_t step);

#endif
