/* SPDX-License-Identifier: Apache-2.0 */
/* Kind moe_layer: the model's own MoE block on the inputs of a case, with its losses and gradients, and the
 * sizes of groups and buffers that a case derives from its options. */
#include "config.h"

#include <string.h>

#include "model/model.h"
#include "train/engine/expert_metrics.h"
#include "verify/verify.h"

struct layer {
    struct verify_run *run;
    struct syi_config config;
    struct syi_build build;
    struct syi_model model;
    struct syi_groups groups;
    int type, prioritized, training;
    double aux_weight, z_weight;
    float *mask; /* [batch, length] 1 where the input is not all zeros */
    int64_t rows, length, real;
};

static int read_options(struct layer *l, struct sy_error *err)
{
    const struct verify_case *c = l->run->item;
    const char *mode = "";
    int64_t replicas = 1, experts;
    int status = verify_config(c, "", &l->config, err);
    if (!status)
        status = verify_int(c, "num_experts", 1, 1 << 20, &experts, err); /* sizes are divided by it */
    if (!status) status = verify_real(c, "aux_weight", &l->aux_weight, err);
    if (!status) status = verify_real(c, "z_weight", &l->z_weight, err);
    if (!status) status = verify_flag(c, "batch_prioritized_routing", &l->prioritized, err);
    if (!status) status = verify_text(c, "mode", &mode, err);
    if (!status) status = verify_int(c, "batch", 1, 1 << 20, &l->rows, err);
    if (!status) status = verify_int(c, "length", 1, 1 << 20, &l->length, err);
    if (!status && verify_has(c, "num_expert_replicas"))
        status = verify_int(c, "num_expert_replicas", 1, 1 << 20, &replicas, err);
    if (!status) status = verify_only(c, "dtype", "float32", err);
    verify_ignore(c, "num_expert_partitions");
    l->training = !strcmp(mode, "train");
    l->config.moe.replicas = replicas;
    l->type = l->config.moe.router_type;
    return status;
}

/* Padding is what the router's input is all zero at (flaxformer routing.py, Router.__call__). */
static int find_padding(struct layer *l, struct sy_error *err)
{
    const struct verify_tensor *x;
    int64_t dim[3] = {l->rows, l->length, l->config.model.d_model};
    int status = verify_need(l->run->item, "in/x", 'f', 3, dim, &x, err);
    if (status) return status;
    l->mask = syi_alloc((size_t)(l->rows * l->length) * sizeof *l->mask, err);
    if (!l->mask) return SY_ENOMEM;
    for (int64_t i = 0; i < x->n; i++)
        if (x->real[i] != 0) l->mask[i / dim[2]] = 1;
    for (int64_t i = 0; i < l->rows * l->length; i++) l->real += l->mask[i] != 0;
    return SY_OK;
}

static void record(struct layer *l)
{
    struct verify_run *run = l->run;
    struct syi_activations act = syi_expert_activations(&l->config);
    int x = verify_in(run, "in/x", "btd");
    verify_extent(run, 'x', l->config.moe.num_experts);
    verify_in(run, "param/router/router_weights/w/kernel", "de");
    if (l->config.moe.router_use_bias) verify_in(run, "param/router/router_weights/w/bias", "e");
    verify_in(run, act.gated ? "param/expert/wi_0/kernel" : "param/expert/wi/kernel", "xdm");
    if (act.gated) verify_in(run, "param/expert/wi_1/kernel", "xdm");
    verify_in(run, "param/expert/wo/kernel", "xmd");
    int64_t one = 1;
    int norm = syi_tensor_add(run->p, "norm", SYI_INPUT, SY_F32, 1, &one, NULL);
    struct syi_router router = {.type = l->type,
                                .prioritized = l->prioritized,
                                .mask = verify_given(run, "mask", SY_F32, "bt", l->mask),
                                .normalizer = norm};
    l->build = (struct syi_build){.p = run->p,
                                  .config = &l->config,
                                  .model = &l->model,
                                  .shape = {.rows = l->rows},
                                  .training = l->training,
                                  .rng = -1};
    if (run->p->status) return;
    int y = syi_moe(&l->build, "param", x, &router);
    int value = verify_against(run, y, "in/y_cotangent", "btd");
    if (run->p->status) return;
    int balance = syi_role_find(run->p, SYI_ROLE_LAYER_AUXILIARY_LOSS, 0);
    int z = syi_role_find(run->p, SYI_ROLE_LAYER_ROUTER_Z_LOSS, 0);
    value = syi_map2(run->p, SY_MAP_ADD, value, syi_map1(run->p, SY_MAP_MULS, balance, l->aux_weight));
    value = syi_map2(run->p, SY_MAP_ADD, value, syi_map1(run->p, SY_MAP_MULS, z, l->z_weight));
    verify_out(run, y, "out/y");
    verify_out(run, value, "out/value");
    verify_out(run, balance, "out/auxiliary_loss");
    verify_out(run, z, "out/router_z_loss");
    verify_differentiate(run, value);
}

/* The sizes a case derives are results too. */
static void judge_sizes(struct layer *l, struct verify_report *report, struct sy_error *err)
{
    const struct {
        const char *key;
        int64_t got;
    } sizes[] = {{"derived_num_groups", l->groups.count},
                 {"derived_tokens_per_group", l->groups.tokens},
                 {"derived_expert_capacity", l->groups.slots / l->groups.count / l->config.moe.num_experts},
                 {"derived_padded_batch", l->groups.rows},
                 {"derived_padded_length", l->groups.length}};
    for (size_t i = 0; i < SYI_COUNT(sizes); i++) {
        int64_t want;
        if (!verify_has(l->run->item, sizes[i].key)) continue;
        if (verify_int(l->run->item, sizes[i].key, 0, INT64_MAX, &want, err)) continue;
        char reason[120];
        snprintf(reason, sizeof reason, "%lld instead of %lld", (long long)sizes[i].got, (long long)want);
        verify_judge(report, sizes[i].key, want != sizes[i].got, want == sizes[i].got ? NULL : reason);
    }
}

static void judge_metrics(struct layer *l, struct verify_report *report)
{
    struct syi_expert_counts counts = {.slots = l->groups.slots,
                                       .tokens = l->groups.count * l->groups.tokens,
                                       .real = l->real,
                                       .choices = l->config.moe.num_selected_experts};
    struct syi_expert_metrics m;
    const int64_t *kept = verify_got(l->run, "experts/param/kept", NULL);
    const int64_t *tokens = verify_got(l->run, "experts/param/tokens", NULL);
    const float *confidence = verify_got(l->run, "experts/param/confidence", NULL);
    if (!kept || !tokens || !confidence) return;
    for (int64_t e = 0; e < l->config.moe.num_experts; e++) counts.kept += kept[e];
    counts.served = *tokens;
    counts.confidence = (double)*confidence;
    m = syi_expert_metrics(&l->config, l->type, &counts);
    verify_floats(report, "out/fraction_tokens_left_behind", &m.left_behind, 1);
    verify_floats(report, "out/expert_usage", &m.usage, 1);
    verify_floats(report, "out/router_confidence", &m.confidence, 1);
}

int verify_moe_layer(struct verify_context *context, const struct verify_case *c,
                     struct verify_report *report, struct sy_error *err)
{
    struct verify_run run;
    struct layer *l = syi_alloc(sizeof *l, err);
    if (!l) return SY_ENOMEM;
    l->run = &run;
    int status = verify_run_begin(&run, context, c, err);
    if (!status) status = read_options(l, err);
    if (!status) status = find_padding(l, err);
    l->build.config = &l->config;
    l->build.training = l->training;
    if (!status) status = syi_groups(&l->build, l->type, l->rows, l->length, &l->groups, err);
    if (!status) record(l);
    if (!status) status = verify_run_execute(&run, err);
    if (!status) {
        verify_run_report(&run, report);
        judge_sizes(l, report, err);
        judge_metrics(l, report);
    }
    verify_run_end(&run);
    syi_model_free(&l->model);
    syi_free(l->mask);
    syi_free(l);
    return status;
}
