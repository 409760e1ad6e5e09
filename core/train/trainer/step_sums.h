/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps since the last multiple of metrics.every add up to, so that a row of metrics tells of those too that have
 * none. Checkpoints keep it: the rows of a run that went on are those of one that did not stop. */
#ifndef SYI_STEP_SUMS_H
#define SYI_STEP_SUMS_H

#include "train/checkpoint/checkpoint.h"
#include "train/engine/step_metrics.h"

/* One more, the step of this index, which begins anew where a row came before it. Nothing with metrics.every = 1. */
void syi_step_sums_add(struct syi_step_sums *sums, const struct syi_config *config, int64_t index,
                       const struct syi_batch *batch, const struct syi_step_result *result);
/* Into a checkpoint, where no row was just written, and out of one, also of another metrics.every; one made before there was
 * this has none. */
void syi_step_sums_put(const struct syi_step_sums *sums, const struct syi_config *config,
                       struct syi_checkpoint_meta *meta);
void syi_step_sums_take(struct syi_step_sums *sums, const struct syi_config *config,
                        const struct syi_checkpoint_meta *meta);

#endif
