/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's rules from logical axis names to its mesh axes, and the partition specs that follow. The rules of the
 * running mesh are in parallel/mesh.h. */
#ifndef SYI_LOGICAL_RULES_H
#define SYI_LOGICAL_RULES_H

#include "parallel/t5x_mesh.h"

enum { SYI_LOGICAL_RULES = 64, SYI_LOGICAL_AXES = 64 }; /* most rules of a list, most axes of an array */

struct syi_logical_rule {
    const char *axis; /* borrowed */
    int mesh;         /* set of enum syi_t5x_axis; 0: None */
};

/* In the order of their priority. */
struct syi_logical_rules {
    int n;
    struct syi_logical_rule rule[SYI_LOGICAL_RULES];
};

/* The standard rules; dims 2 of activations or parameters split embed as well. extra (may be NULL) follows
 * them. */
int syi_standard_rules(int64_t activation_dims, int64_t parameter_dims, const struct syi_logical_rules *extra,
                       struct syi_logical_rules *rules, struct sy_error *err) SYI_MUST_CHECK;
/* Those of MoE models: with two data axes batch goes to both, and what goes to model alone to none. */
int syi_moe_rules(int64_t num_experts, int64_t num_devices, const struct syi_model_parallelism *given,
                  int64_t activation_dims, int64_t parameter_dims, const struct syi_logical_rules *extra,
                  struct syi_logical_rules *rules, struct sy_error *err) SYI_MUST_CHECK;

/* Mesh axes of each dim of an array (spec[n], sets): rules in their order, a mesh axis used once. Names of no
 * rule and NULL (None) get none; a name twice is refused. */
int syi_logical_to_mesh_axes(const struct syi_logical_rules *rules, const char *const *axis, int n, int *spec,
                             struct sy_error *err) SYI_MUST_CHECK;

/* Mesh axes that a batch is split over. */
int syi_data_spec(int two_data_axes);
/* A raw spec of one axis as it counts with two data axes: data becomes both, model none (*none = 1: no spec
 * at all); everything else stays. */
int syi_override_spec(int mesh, int *none);

#endif
