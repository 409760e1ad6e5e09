/* SPDX-License-Identifier: Apache-2.0 */
/* The run that weights are taken from: where it is, and how it differs from this one. */
#ifndef SYI_TRAIN_INIT_SOURCE_H
#define SYI_TRAIN_INIT_SOURCE_H

#include "base/run_config.h"

struct syi_init_source {
    char run_dir[SYI_CONFIG_STRING];
    int64_t step; /* SYI_CHECKPOINT_LATEST, SYI_CHECKPOINT_BEST or a step */
};

/* By train.init_from and train.init_step. SY_ENOENT: there is no run. */
int syi_init_locate(const struct syi_train_part *train, struct syi_init_source *source,
                    struct sy_error *err) SYI_MUST_CHECK;
/* notes gets a line for each key of [model] and [moe] of which the other run has another value, though it makes another
 * model. tokens: weights that belong to tokens are taken: SY_EMISMATCH where the vocabularies differ. */
int syi_init_compare(const struct syi_init_source *source, const struct syi_config *config, int tokens,
                     struct syi_text *notes, struct sy_error *err) SYI_MUST_CHECK;
/* Adds such keys to err, which says that a weight does not fit; nothing where the other run's cannot be read. */
void syi_init_name_differences(const struct syi_init_source *source, const struct syi_config *config,
                               struct sy_error *err);

#endif
