/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of weights that program update_metrics leaves: when it runs, and reading them. */
#include "config.h"

#include <math.h>

#include "train/engine/engine_internal.h"

int syi_engine_weighs(const struct syi_engine *e, int64_t step)
{
    return e->weighing >= 0 && (step + 1) % e->config.metrics.weights_every == 0;
}

int syi_engine_find_weights(struct syi_engine *e, struct sy_error *err)
{
    if (e->weighing < 0) return SY_OK;
    e->weight = syi_alloc(e->model.n * SYI_WEIGHT_METRICS * sizeof *e->weight, err);
    if (!e->weight) return SY_ENOMEM;
    for (size_t i = 0; i < e->model.n; i++)
        for (int m = 0; m < SYI_WEIGHT_METRICS; m++) {
            uint32_t of = syi_weight_metric_number(e->model.param[i].id, (enum syi_weight_metric)m);
            e->weight[i * SYI_WEIGHT_METRICS + (size_t)m] =
                syi_session_find(e->session, e->weighing, SYI_ROLE_WEIGHT_METRIC, of);
        }
    return SY_OK;
}

int syi_engine_weight_metrics(const struct syi_engine *e, size_t param, double value[SYI_WEIGHT_METRICS])
{
    const struct sy_tensor **from = e->weight ? e->weight + param * SYI_WEIGHT_METRICS : NULL;
    if (!from || !from[0]) return 0;
    for (int m = 0; m < SYI_WEIGHT_METRICS; m++) value[m] = (double)*(const float *)from[m]->data;
    return 1;
}

/* What is no number in a tensor is none in the total. */
void syi_engine_weight_totals(const struct syi_engine *e, double value[SYI_WEIGHT_METRICS])
{
    double n = 0, most = 0;
    for (int m = 0; m < SYI_WEIGHT_METRICS; m++) value[m] = 0;
    for (size_t i = 0; i < e->model.n; i++) {
        double own[SYI_WEIGHT_METRICS], elements = 1;
        if (!syi_engine_weight_metrics(e, i, own)) continue;
        for (int d = 0; d < e->model.param[i].rank; d++) elements *= (double)e->model.param[i].dim[d];
        for (int m = 0; m < SYI_WEIGHT_METRICS; m++) value[m] += elements * own[m] * own[m];
        if (isnan(own[SYI_WEIGHT_MAX]) || own[SYI_WEIGHT_MAX] > most) most = own[SYI_WEIGHT_MAX];
        n += elements;
    }
    for (int m = 0; m < SYI_WEIGHT_METRICS; m++) value[m] = n > 0 ? sqrt(value[m] / n) : 0;
    value[SYI_WEIGHT_MAX] = most;
}
