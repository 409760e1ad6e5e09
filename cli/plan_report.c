/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what a plan says: parameters, arithmetic, traffic of collectives, who holds what. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/optimizers.h"
#include "cli/plan_report.h"
#include "program/cost.h"
#include "train/engine/pipeline.h"

/* Seconds of an op of each rank at the machine's limits: its arithmetic, or what it reads and writes. */
static double least_seconds(const struct plan_report *r, const struct syi_program *p, const struct syi_op *op,
                            const struct syi_cost *cost)
{
    if (!r->machine.threads) return 0;
    int dtype = cost->product && p->tensor[op->in[0]].dtype == SY_BF16 ? SY_BF16 : SY_F32;
    return r->rank->ranks * fmax(cost->flops / bench_peak(&r->machine, dtype), cost->bytes / r->machine.copy);
}

static void count_program(struct plan_report *r, const struct syi_program *p, uint64_t runs)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct syi_op *op = &p->op[i];
        struct syi_cost cost = syi_op_cost(p, op);
        r->ops += runs;
        r->flops += (double)runs * cost.flops;
        r->bytes += (double)runs * cost.bytes;
        r->seconds += (double)runs * least_seconds(r, p, op, &cost);
        if (op->queue == 0) continue;
        const struct syi_mesh *mesh = &r->rank->mesh;
        uint64_t ranks = (uint64_t)syi_mesh_size(mesh, syi_collective_group(p, op, mesh));
        uint64_t bytes = syi_mul_u64(runs, syi_op_received(p, op, ranks));
        r->traffic[op->op].calls += runs;
        r->traffic[op->op].bytes = syi_add_u64(r->traffic[op->op].bytes, bytes);
        r->all.calls += runs;
        r->all.bytes = syi_add_u64(r->all.bytes, bytes);
    }
}

/* What program update_metrics has more than update, in whose place it runs. */
static void count_weighed(struct plan_report *r)
{
    const struct syi_program *with = syi_engine_program(r->engine, SYI_UPDATE_METRICS),
                             *without = syi_engine_program(r->engine, SYI_UPDATE);
    struct plan_report a = {.rank = r->rank}, b = {.rank = r->rank};
    if (!with) return;
    count_program(&a, with, 1);
    count_program(&b, without, 1);
    r->weighed = 1;
    r->weigh_ops = a.ops - b.ops;
    r->weigh_flops = a.flops - b.flops;
    r->weigh_bytes = a.bytes - b.bytes;
    r->weigh_received = a.all.bytes - b.all.bytes;
}

/* A rank's shard times the ranks that split it is the parameter: then all shards are alike. */
static int check_shards(const struct plan_report *r, struct sy_error *err)
{
    const struct syi_model *model = syi_engine_model(r->engine);
    for (size_t i = 0; i < model->n; i++) {
        const struct syi_param *param = &model->param[i];
        const struct sy_tensor *local =
            syi_session_find_any(syi_engine_session(r->engine), SYI_ROLE_PARAMETER, param->id);
        for (int d = 0; local && d < param->rank; d++)
            if (local->dim[d] < 1 || param->dim[d] % local->dim[d])
                return syi_error(err, SY_EINTERNAL, "%s: dim %d of %lld is not split evenly", param->name, d,
                                 (long long)param->dim[d]);
    }
    return SY_OK;
}

/* Experts that a token goes through, of how many. Where experts choose, each has places for this share of the tokens; a factor
 * of 0: for all. */
static double met_experts(const struct syi_config *config, const struct syi_param *param)
{
    const struct syi_moe_part *moe = &config->moe;
    int decoder = !strncmp(param->name, "decoder/", 8);
    double all = (double)moe->num_experts, met = (double)moe->num_selected_experts;
    if (syi_router_type(config, decoder) == SYI_ROUTER_EXPERTS_CHOOSE_MASKED)
        met = moe->train_capacity_factor > 0 ? moe->train_capacity_factor : all;
    return fmin(met, all);
}

static uint64_t active_elements(const struct syi_config *config, const struct syi_param *param, uint64_t n)
{
    int of_experts = 0;
    for (int d = 0; d < param->rank; d++) of_experts |= param->axis[d] == SYI_AXIS_EXPERT;
    if (!of_experts) return n;
    return (uint64_t)llround((double)n * met_experts(config, param) / (double)config->moe.num_experts);
}

static void count_kinds(struct plan_report *r)
{
    const struct syi_shared *s;
    for (size_t i = 0; (s = syi_session_shared(syi_engine_session(r->engine), i)); i++)
        r->kind_bytes[s->info.kind] += (uint64_t)syi_tensor_count(&s->info) * syi_dtype_bytes(s->info.dtype);
}

/* Elements of all parameters, and of those of each optimizer: expert biases have none. */
static void count_parameters(struct plan_report *r)
{
    const struct syi_model *model = syi_engine_model(r->engine);
    for (size_t i = 0; i < model->n; i++) {
        const struct syi_param *param = &model->param[i];
        struct plan_optimizer *optimizer = &r->optimizer[syi_optimizer_of(r->config, param->name)];
        uint64_t n = 1;
        for (int d = 0; d < param->rank; d++) n *= (uint64_t)param->dim[d];
        r->parameters += n;
        r->active += active_elements(r->config, param, n);
        if (param->init == SYI_INIT_EXPERT_BIAS) continue;
        optimizer->parameters++;
        optimizer->elements += n;
    }
}

int plan_report_count(struct plan_report *r, struct sy_error *err)
{
    int status = syi_chains_make(r->config, &r->chains, err);
    if (status) return status;
    count_parameters(r);
    count_kinds(r);
    count_weighed(r);
    for (int which = SYI_GRAD_FIRST; which <= SYI_UPDATE; which++) {
        const struct syi_program *p = syi_engine_program(r->engine, which);
        uint64_t runs = which == SYI_GRAD_NEXT ? (uint64_t)r->config->train.microbatches - 1 : 1;
        if (!p) continue;
        count_program(r, p, runs);
        if (r->all.bytes > INT64_MAX)
            return syi_error(
                err, SY_EINVAL,
                "a step moves more than 2^63 bytes between ranks: take a smaller model or batch, "
                "or fewer ranks");
        r->recomputed_ops += runs * syi_engine_recomputed(r->engine, which)->ops;
        r->recomputed_flops += (double)runs * syi_engine_recomputed(r->engine, which)->flops;
    }
    return check_shards(r, err);
}

void plan_report_free(struct plan_report *r)
{
    if (r->chains) syi_chains_free(r->chains, r->config->optimizer.n);
    r->chains = NULL;
}

int plan_places(const struct plan_report *r)
{
    return r->rank->mesh.size[0] * r->rank->mesh.size[1];
}

struct plan_place plan_place(const struct plan_report *r, int place)
{
    const struct syi_config *c = r->config;
    const int *size = r->rank->mesh.size;
    int expert = place % size[1];
    int64_t rows = c->data.batch_size / c->train.microbatches / plan_places(r),
            experts = c->moe.num_experts / size[1];
    return (struct plan_place){.first = place * size[2],
                               .n = size[2],
                               .data = place / size[1],
                               .expert = expert,
                               .rows = {place * rows, (place + 1) * rows},
                               .experts = {expert * experts, (expert + 1) * experts}};
}
