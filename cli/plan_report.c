/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what a plan says: parameters, arithmetic, traffic of collectives, who holds what. */
#include "config.h"

#include <string.h>

#include "cli/plan_report.h"
#include "program/cost.h"
#include "train/engine/pipeline.h"

static uint64_t bytes_of(const struct syi_program *p, int tensor)
{
    const struct syi_tensor *t = &p->tensor[tensor];
    return (uint64_t)syi_tensor_count(t) * syi_dtype_bytes(t->dtype);
}

/* What reaches a rank from others: all but the piece it has already. A plain all-reduce takes what its two
 * halves take. */
static uint64_t received(const struct syi_program *p, const struct syi_op *op, const struct syi_mesh *mesh)
{
    uint64_t n = (uint64_t)syi_mesh_size(mesh, syi_collective_group(p, op, mesh));
    uint64_t in = bytes_of(p, op->in[0]), out = bytes_of(p, op->out[0]);
    switch (op->op) {
    case SY_OP_ALL_GATHER:
    case SY_OP_GATHER_PIECES: return syi_mul_u64(in, n - 1);
    case SY_OP_REDUCE_SCATTER: return syi_mul_u64(out, n - 1);
    case SY_OP_ALL_REDUCE: return 2 * (out - out / n);
    default: return out - out / n;
    }
}

static void count_program(struct plan_report *r, const struct syi_program *p, uint64_t runs)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct syi_op *op = &p->op[i];
        struct syi_cost cost = syi_op_cost(p, op);
        r->ops++;
        r->flops += (double)runs * cost.flops;
        r->bytes += (double)runs * cost.bytes;
        if (op->queue == 0) continue;
        uint64_t bytes = syi_mul_u64(runs, received(p, op, &r->rank->mesh));
        r->traffic[op->op].calls += runs;
        r->traffic[op->op].bytes = syi_add_u64(r->traffic[op->op].bytes, bytes);
        r->all.calls += runs;
        r->all.bytes = syi_add_u64(r->all.bytes, bytes);
    }
}

/* A rank's shard times the ranks that split it is the parameter: then all shards are alike. */
static int check_shards(const struct plan_report *r, struct sy_error *err)
{
    const struct syi_params *params = syi_engine_params(r->engine);
    for (size_t i = 0; i < params->n; i++) {
        const struct syi_param *param = &params->param[i];
        const struct sy_tensor *local = syi_session_tensor(syi_engine_session(r->engine), param->name);
        for (int d = 0; local && d < param->rank; d++)
            if (local->dim[d] < 1 || param->dim[d] % local->dim[d])
                return syi_error(err, SY_EINTERNAL, "%s: dim %d of %lld is not split evenly", param->name, d,
                                 (long long)param->dim[d]);
    }
    return SY_OK;
}

int plan_report_count(struct plan_report *r, struct sy_error *err)
{
    const struct syi_params *params = syi_engine_params(r->engine);
    for (size_t i = 0; i < params->n; i++) {
        uint64_t n = 1;
        for (int d = 0; d < params->param[i].rank; d++) n *= (uint64_t)params->param[i].dim[d];
        r->parameters += n;
    }
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
        r->recomputed_ops += syi_engine_recomputed(r->engine, which)->ops;
        r->recomputed_flops += (double)runs * syi_engine_recomputed(r->engine, which)->flops;
    }
    return check_shards(r, err);
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
