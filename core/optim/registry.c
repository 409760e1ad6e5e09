/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name, each a chain of transforms, and which part of [optimizer] has a parameter. */
#include "config.h"

#include "optim/optim.h"

static const syi_transform_fn adamw[] = {syi_scale_by_adam, syi_add_decayed_weights,
                                         syi_scale_by_learning_rate, syi_descend, NULL};
static const syi_transform_fn adafactor[] = {
    syi_scale_by_factored_rms, syi_clip_by_rms, syi_scale_by_learning_rate, syi_scale_by_parameter_rms,
    syi_add_momentum,          syi_descend,     syi_decay_weights,          NULL};

static const struct syi_optimizer optimizers[] = {
    [SYI_OPTIMIZER_ADAMW] = {"adamw", adamw},
    [SYI_OPTIMIZER_ADAFACTOR] = {"adafactor", adafactor},
};

const struct syi_optimizer *syi_optimizer_find(int optimizer)
{
    return &optimizers[optimizer];
}

const struct syi_optimizer_part *syi_optimizer_of(const struct syi_config *config, const char *parameter)
{
    for (int i = 1; i < config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &config->optimizer.part[i];
        for (int k = 0; k < part->parameters.n; k++)
            if (syi_pattern_match(syi_strings_at(&part->parameters, k), parameter)) return part;
    }
    return &config->optimizer.part[0];
}
