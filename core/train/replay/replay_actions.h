/* SPDX-License-Identifier: Apache-2.0 */
/* What actions did to the learning rate of a run, on the way to the step that is done again: those that reduce it are asked
 * once more, about the steps that are computed again and the evaluations that the run stored. */
#ifndef SYI_REPLAY_ACTIONS_H
#define SYI_REPLAY_ACTIONS_H

#include "optim/schedule.h"
#include "train/replay/replay.h"
#include "train/trainer/actions.h"
#include "train/trainer/step_sums.h"

struct syi_replay_actions {
    const struct syi_replay_job *job;
    const struct syi_schedule *schedule;
    struct syi_actions actions;
    struct syi_step_sums sums;
    int64_t evaluated; /* step of the last evaluation that they know, -1: none */
    char task[SYI_CONFIG_PARTS][SYI_PART_NAME + 8];
    struct syi_eval_result *result; /* [SYI_CONFIG_PARTS] of these */
};

/* meta: the checkpoint it goes on from, NULL: none, from the seed. close is safe when zeroed. */
int syi_replay_actions_open(struct syi_replay_actions *a, const struct syi_replay_job *job,
                            const struct syi_schedule *schedule, const struct syi_checkpoint_meta *meta,
                            struct sy_error *err) SYI_MUST_CHECK;
void syi_replay_actions_close(struct syi_replay_actions *a);
/* The factor of the learning rates now. */
double syi_replay_actions_factor(const struct syi_replay_actions *a);
/* After the step of this index, then after the evaluation of so many steps, if there was one. SY_EINVAL: one that may have
 * reduced the rate is not stored. */
int syi_replay_actions_step(struct syi_replay_actions *a, int64_t index, const struct syi_batch *batch,
                            const struct syi_step_result *result, struct sy_error *err) SYI_MUST_CHECK;
int syi_replay_actions_evaluation(struct syi_replay_actions *a, int64_t step,
                                  struct sy_error *err) SYI_MUST_CHECK;

#endif
