/* SPDX-License-Identifier: Apache-2.0 */
/* Weight metrics as ops beside the update. Sums and maxima go over blocks first, as those of the gradient norm do, so
 * neither threads nor ranks change a bit of them. */
#include "config.h"

#include "base/text.h"
#include "optim/weight_metrics.h"
#include "program/record.h"

const char *syi_weight_metric_name(enum syi_weight_metric metric)
{
    static const char *const names[SYI_WEIGHT_METRICS] = {
#define SYI_WEIGHT_METRIC_TEXT(NAME, name) [SYI_WEIGHT_##NAME] = #name,
        SYI_WEIGHT_METRIC_MAP(SYI_WEIGHT_METRIC_TEXT)
#undef SYI_WEIGHT_METRIC_TEXT
    };
    return names[metric];
}

uint32_t syi_weight_metric_number(uint32_t param, enum syi_weight_metric metric)
{
    return param * SYI_WEIGHT_METRICS + (uint32_t)metric;
}

void syi_weigh_change(struct syi_program *p, struct syi_weighed *w, int parameter, int value)
{
    SYI_AT(p);
    w->parameter = parameter;
    w->change = syi_map2(p, SY_MAP_SUB, value, parameter);
    w->relative = syi_map2(p, SY_MAP_DIV, w->change, parameter);
}

void syi_weigh_blocks(struct syi_program *p, struct syi_weighed *w)
{
    SYI_AT(p);
    w->blocks[SYI_WEIGHT_UPDATE_RMS] = syi_block_sum(p, SY_OP_BLOCK_SUMSQ, w->change);
    w->blocks[SYI_WEIGHT_RELATIVE_RMS] = syi_block_sum(p, SY_OP_BLOCK_SUMSQ, w->relative);
    w->blocks[SYI_WEIGHT_RMS] = syi_block_sum(p, SY_OP_BLOCK_SUMSQ, w->parameter);
    w->blocks[SYI_WEIGHT_MAX] = syi_block_sum(p, SY_OP_BLOCK_MAX, w->parameter);
}

static int root_mean(struct syi_program *p, const struct syi_weighed *w, int sum)
{
    double n = (double)syi_tensor_count(&p->tensor[w->parameter]);
    return syi_map1(p, SY_MAP_SQRT, syi_map1(p, SY_MAP_MULS, sum, 1 / n), 0);
}

void syi_weigh_outputs(struct syi_program *p, const struct syi_weighed *w, uint32_t id, const char *name,
                       int square)
{
    SYI_AT(p);
    for (int m = 0; m < SYI_WEIGHT_METRICS && !p->status; m++) {
        enum syi_weight_metric metric = (enum syi_weight_metric)m;
        struct syi_text text = {0};
        struct sy_error err = {0};
        int value = metric == SYI_WEIGHT_MAX            ? syi_max_over(p, w->blocks[m], ~0u)
                    : metric == SYI_WEIGHT_GRADIENT_RMS ? root_mean(p, w, square)
                                                        : root_mean(p, w, syi_tree_sum(p, w->blocks[m]));
        syi_role_set(p, value, SYI_ROLE_WEIGHT_METRIC, syi_weight_metric_number(id, metric));
        syi_text_printf(&text, "%s/%s", syi_weight_metric_name(metric), name);
        if (syi_text_status(&text, &err))
            syi_program_fail(p, SY_ENOMEM, "%s", err.text);
        else
            syi_output(p, value, text.data);
        syi_text_free(&text);
    }
}
