/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviours in which T5X and flaxformer do what switchyard does otherwise: one key each, whose value auto
 * follows run.compat. */
#ifndef SYI_COMPAT_H
#define SYI_COMPAT_H

#include "base/run_config.h"

struct syi_compat_row {
    const char *key;        /* "model.masked_row" */
    const char *switchyard; /* what the value of run.compat = none does */
    const char *t5x;        /* what that of run.compat = t5x does, with its source */
};
/* One row a key, in the order of options.def; static. */
const struct syi_compat_row *syi_compat_table(size_t *n);

/* Whether a key of the table asks for T5X's behaviour: its value is T5X's, or auto under run.compat = t5x. */
int syi_compat(const struct syi_config *config, int value);
/* moe.train_capacity_factor or moe.eval_capacity_factor with its default resolved; 0 with moe.expert_capacity. */
double syi_capacity_factor(const struct syi_config *config, int training);

#endif
