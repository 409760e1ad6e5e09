/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's logical axis rules: the standard lists, those of MoE models, and how a list is applied to an array.
 */
#include "config.h"

#include <string.h>

#include "verify/logical_rules.h"

enum { D = SYI_T5X_DATA, M = SYI_T5X_MODEL, BOTH = D | M };

static int append(struct syi_logical_rules *rules, const char *axis, int mesh, struct sy_error *err)
{
    if (rules->n == SYI_LOGICAL_RULES)
        return syi_error(err, SY_EINVAL, "more than %d logical axis rules", (int)SYI_LOGICAL_RULES);
    rules->rule[rules->n++] = (struct syi_logical_rule){axis, mesh};
    return SY_OK;
}

static int append_all(struct syi_logical_rules *rules, const struct syi_logical_rule *rule, int n,
                      struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; !status && i < n; i++) status = append(rules, rule[i].axis, rule[i].mesh, err);
    return status;
}

int syi_standard_rules(int64_t activation_dims, int64_t parameter_dims, const struct syi_logical_rules *extra,
                       struct syi_logical_rules *rules, struct sy_error *err)
{
    static const struct syi_logical_rule first[] = {{"batch", D}, {"vocab", M}},
                                         split[] = {{"mlp", M}, {"heads", M}, {"kv", 0}, {"joined_kv", M}},
                                         whole[] = {{"relpos_buckets", 0}, {"abspos_buckets", 0},
                                                    {"length", 0},         {"layers", 0},
                                                    {"stack", 0},          {"mlp_activations", 0}};
    rules->n = 0;
    if (activation_dims < 1 || activation_dims > 2 || parameter_dims < 1 || parameter_dims > 2)
        return syi_error(err, SY_EINVAL,
                         "activations partitioned in %lld dims and parameters in %lld: 1 or 2 each",
                         (long long)activation_dims, (long long)parameter_dims);
    int status = append_all(rules, first, (int)SYI_COUNT(first), err);
    if (!status && activation_dims == 1 && parameter_dims == 1) status = append(rules, "embed", 0, err);
    if (!status) status = append_all(rules, split, (int)SYI_COUNT(split), err);
    if (!status && activation_dims == 2) status = append(rules, "embed", M, err);
    if (!status && parameter_dims == 2) status = append(rules, "embed", D, err);
    if (!status) status = append_all(rules, whole, (int)SYI_COUNT(whole), err);
    if (!status && extra) status = append_all(rules, extra->rule, extra->n, err);
    return status;
}

int syi_moe_rules(int64_t num_experts, int64_t num_devices, const struct syi_model_parallelism *given,
                  int64_t activation_dims, int64_t parameter_dims, const struct syi_logical_rules *extra,
                  struct syi_logical_rules *rules, struct sy_error *err)
{
    static const struct syi_logical_rule moe[] = {
        {"expert", D}, {"expert_mlp", M}, {"expert_group", 0}, {"expert_replicas", 0}, {"unmodeled", 0}};
    int two_data_axes;
    if (parameter_dims == 2)
        return syi_error(err, SY_EINVAL,
                         "parameters partitioned in 2 dims: MoE models have experts on the data axis");
    int status = syi_standard_rules(activation_dims, parameter_dims, NULL, rules, err);
    if (!status) status = append_all(rules, moe, (int)SYI_COUNT(moe), err);
    if (!status && extra) status = append_all(rules, extra->rule, extra->n, err);
    if (!status) status = syi_t5x_two_data_axes(num_experts, num_devices, given, &two_data_axes, err);
    for (int i = 0; !status && two_data_axes && i < rules->n; i++) {
        struct syi_logical_rule *r = &rules->rule[i];
        if (!strcmp(r->axis, "batch"))
            r->mesh = BOTH;
        else if (!strcmp(r->axis, "expert_replicas"))
            r->mesh = M; /* experts are copied along what is now a second data axis */
        else if (r->mesh == M)
            r->mesh = 0;
    }
    return status;
}

int syi_logical_to_mesh_axes(const struct syi_logical_rules *rules, const char *const *axis, int n, int *spec,
                             struct sy_error *err)
{
    int used = 0;
    uint8_t assigned[SYI_LOGICAL_AXES] = {0};
    if (n > SYI_LOGICAL_AXES)
        return syi_error(err, SY_EINVAL, "an array of %d dims: at most %d", n, (int)SYI_LOGICAL_AXES);
    for (int i = 0; i < n; i++) {
        spec[i] = 0;
        for (int j = 0; axis[i] && j < i; j++)
            if (axis[j] && !strcmp(axis[i], axis[j]))
                return syi_error(err, SY_EINVAL, "an array has logical axis %s more than once", axis[i]);
    }
    for (int r = 0; r < rules->n; r++)
        for (int i = 0; i < n; i++) {
            if (!axis[i] || assigned[i] || strcmp(axis[i], rules->rule[r].axis)) continue;
            if (used & rules->rule[r].mesh) continue; /* a later rule of the name may fit */
            spec[i] = rules->rule[r].mesh;
            used |= spec[i];
            assigned[i] = 1;
        }
    return SY_OK;
}

int syi_data_spec(int two_data_axes)
{
    return two_data_axes ? BOTH : D;
}

int syi_override_spec(int mesh, int *none)
{
    *none = mesh == M;
    return mesh == D ? BOTH : mesh == M ? 0 : mesh;
}
