/* SPDX-License-Identifier: Apache-2.0 */
/* What a run file can say of the optimizers of optimizers.def. */
#ifndef SYI_OPTIMIZERS_H
#define SYI_OPTIMIZERS_H

#include "base/terms.h"

struct syi_optimizer_info {
    const char *name;
    int transform;    /* SYI_TRANSFORM_*: the ranges of its arguments hold for keys of the same name */
    const char *keys; /* that it takes, "b1=0.9 nesterov": what stands for auto after '=' */
    const char *help;
};

const struct syi_optimizer_info *syi_optimizer_info(int optimizer); /* SYI_OPTIMIZER_*; static */
const struct syi_part_kind *syi_optimizer_kind(void);               /* of [optimizer]; static */
int syi_optimizer_takes(int optimizer, const char *key); /* whether the key means something to it */
/* Beside named optimizers that move parameters the others stay as they are, as under T5X's MultiOptimizer, where
 * optimizer.name was not set: it becomes none. */
void syi_optimizers_settle(struct syi_config *config);
/* Whether optimizer.name was set, to whatever value. */
int syi_optimizer_is_given(const struct syi_config *config);
/* Part i of the configuration with the optimizer's own values in place of "auto". */
struct syi_optimizer_part syi_optimizer_resolve(const struct syi_config *config, int i);
/* Whether a mask takes that name: the first pattern that matches decides, one after '!' excludes; none: no. */
int syi_mask_match(const struct syi_strings *mask, const char *name);

/* The number of the part that updates the parameter: the first named one that matches it, else 0. */
int syi_optimizer_of(const struct syi_config *config, const char *parameter);
/* Adds the terms of the part's key `chain`, in their order. SY_EINVAL and one sentence in reason as syi_terms_read. */
int syi_optimizer_read_chain(const struct syi_optimizer_part *part, struct syi_terms *terms,
                             char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
/* ---- run_config_chains.c: chains that could not make sense. where: the key, for messages ---- */
int syi_chain_check_rates(const struct syi_terms *terms, const char *where,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Where the part has lr_factors: whether the chain has a rate that they are of. */
int syi_chain_check_factors(const struct syi_terms *terms, const char *where,
                            struct sy_error *err) SYI_MUST_CHECK;
/* That what clips each example stands first: its gradients are clipped before the chain. */
int syi_chain_check_examples(const struct syi_terms *terms, const char *where,
                             struct sy_error *err) SYI_MUST_CHECK;
/* That a transform, under the name that the user knows it by, does not divide 0 by 0. */
int syi_transform_check_division(const struct syi_term *term, const char *where, const char *name,
                                 struct sy_error *err) SYI_MUST_CHECK;
/* Of chains whose updates climb, and of actions that reduce a learning rate which none takes. Where memory is short it says
 * nothing. */
void syi_warn_of_chains(const struct syi_config *config);
/* Of a learning rate or a warm-up in [train] that no product of factors takes. Where memory is short it says nothing. */
void syi_warn_of_rates(const struct syi_config *config);

/* What the gradients of one example are clipped to before they are added up (dpsgd); 0: they are not. */
int syi_optimizer_example_clip(const struct syi_optimizer_part *part, double *clip,
                               struct sy_error *err) SYI_MUST_CHECK;

#endif
