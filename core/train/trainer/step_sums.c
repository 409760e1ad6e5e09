/* SPDX-License-Identifier: Apache-2.0 */
/* Adding the values of steps up for their mean. */
#include "config.h"

#include <string.h>

#include "train/trainer/action_kind.h"
#include "train/trainer/step_sums.h"

_Static_assert(SYI_STEP_VALUES + 2 <= SYI_ACTION_NUMBERS, "a checkpoint keeps all of them");

void syi_step_sums_add(struct syi_step_sums *sums, const struct syi_config *config, int64_t index,
                       const struct syi_batch *batch, const struct syi_step_result *result)
{
    double value[SYI_STEP_VALUES];
    if (config->metrics.every == 1) return;
    if (index % config->metrics.every == 0) *sums = (struct syi_step_sums){0};
    memcpy(value, result->value, sizeof value);
    syi_step_count_batch(batch, value);
    for (int i = 0; i < SYI_STEP_VALUES; i++) sums->value[i] += value[i];
    sums->steps++;
    sums->packed = batch->decoder_segments != NULL;
}

void syi_step_sums_put(const struct syi_step_sums *sums, const struct syi_config *config,
                       struct syi_checkpoint_meta *meta)
{
    meta->sums = (struct syi_action_state){0};
    if (!(sums->steps > 0) || meta->step % config->metrics.every == 0) return;
    syi_state_set(&meta->sums, "steps", sums->steps);
    syi_state_set(&meta->sums, "packed", sums->packed);
    for (int i = 0; i < SYI_STEP_VALUES; i++)
        syi_state_set(&meta->sums, syi_step_value_name((enum syi_step_value)i), sums->value[i]);
}

/* More steps than there can be since a row are of another metrics.every. */
void syi_step_sums_take(struct syi_step_sums *sums, const struct syi_config *config,
                        const struct syi_checkpoint_meta *meta)
{
    *sums = (struct syi_step_sums){0};
    double steps = syi_state_get(&meta->sums, "steps", 0);
    if (!(steps >= 1) || steps > (double)(meta->step % config->metrics.every)) return;
    sums->steps = steps;
    sums->packed = syi_state_get(&meta->sums, "packed", 0) > 0;
    for (int i = 0; i < SYI_STEP_VALUES; i++)
        sums->value[i] = syi_state_get(&meta->sums, syi_step_value_name((enum syi_step_value)i), 0);
}
