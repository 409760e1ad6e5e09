/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard plan RUNFILE: what a run will need, before it takes any memory. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "program/cost.h"
#include "train/engine.h"
#include "train/pipeline.h"

static const char *const segment_names[SYI_SEGMENT_COUNT] = {"persist", "io", "carry", "scratch"};

static double mebibytes(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

/* Ops of the programs of a step, what they cost, and bytes that collectives move into a rank. */
struct totals {
    uint64_t ops, collectives, received;
    double flops, bytes; /* all slots and positions filled, every microbatch */
};

static struct totals count(const struct syi_engine *engine, int64_t microbatches)
{
    struct totals t = {0};
    const struct syi_program *p;
    for (int which = SYI_GRAD_FIRST; which <= SYI_UPDATE; which++) {
        if (!(p = syi_engine_program(engine, which))) continue;
        double runs = which == SYI_GRAD_NEXT ? (double)(microbatches - 1) : 1;
        for (size_t i = 0; i < p->n_ops; i++) {
            struct syi_cost cost = syi_op_cost(p, &p->op[i]);
            t.ops++;
            t.flops += runs * cost.flops;
            t.bytes += runs * cost.bytes;
            if (p->op[i].queue == 0) continue;
            const struct syi_tensor *out = &p->tensor[p->op[i].out[0]];
            t.collectives++;
            t.received += (uint64_t)syi_tensor_count(out) * syi_dtype_bytes(out->dtype);
        }
    }
    return t;
}

static void print_specs(struct syi_session *session)
{
    const struct syi_shared *s;
    for (size_t i = 0; (s = syi_session_shared(session, i)); i++) {
        if (s->info.kind != SYI_PARAM) continue;
        printf("  %-64s [", s->name);
        for (int d = 0; d < s->info.rank; d++)
            printf("%s%lld%s%s", d ? ", " : "", (long long)s->global[d], s->info.split[d] ? "/" : "",
                   syi_mesh_letters(s->info.split[d]));
        printf("] (");
        for (int d = 0; d < s->info.rank; d++) printf("%s%s", d ? ", " : "", syi_axis_name(s->info.axis[d]));
        printf(")\n");
    }
}

static int plan(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct syi_config *config = arg;
    struct syi_engine *engine;
    char text[256];
    if (rank->rank) return SY_OK;
    int status = syi_engine_new(config, rank, SYI_USE_TRAIN | SYI_USE_EVAL | SYI_USE_DECODE, 1, &engine, err);
    if (status) return status;
    const struct syi_plan *p = syi_session_plan(syi_engine_session(engine));
    uint64_t sum = 0, parameters = 0;
    const struct syi_params *params = syi_engine_params(engine);
    for (size_t i = 0; i < params->n; i++) {
        uint64_t n = 1;
        for (int d = 0; d < params->param[i].rank; d++) n *= (uint64_t)params->param[i].dim[d];
        parameters += n;
    }
    syi_rank_describe(rank, text, sizeof text);
    printf("%s\n%llu parameters in %zu tensors\n", text, (unsigned long long)parameters, params->n);
    print_specs(syi_engine_session(engine));
    printf("memory of a rank:\n");
    for (int i = 0; i < SYI_SEGMENT_COUNT; i++) {
        printf("  %-8s %15llu bytes  %9.1f MiB\n", segment_names[i], (unsigned long long)p->bytes[i],
               mebibytes(p->bytes[i]));
        sum += p->bytes[i];
    }
    printf("  %-8s %15llu bytes  %9.1f MiB\n", "all", (unsigned long long)sum, mebibytes(sum));
    struct totals t = count(engine, config->train.microbatches);
    printf("a step at the longest bucket: %llu ops, %llu collectives, %.1f MiB received\n",
           (unsigned long long)t.ops, (unsigned long long)t.collectives, mebibytes(t.received));
    printf("its arithmetic: %.4g GFLOP, %.1f MiB read and written\n", t.flops * 1e-9, t.bytes / 1048576);
    syi_engine_free(engine);
    return SY_OK;
}

static int run(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    if (cli_load_config(o->operand[0], o, &config, &err)) return cli_usage(&err);
    int status = cli_check_launch("plan", o, &config, 0);
    if (status) return status;
    struct syi_launch launch = cli_launch(o, &config);
    return syi_launch_run(&launch, plan, &config, &err) ? cli_fail(&err) : CLI_DONE;
}

const struct cli_cmd cli_plan = {
    "plan",
    "RUNFILE",
    "backend comm ranks threads set",
    "Prints mesh, parameter specs and memory of a run, to the byte, without taking it.",
    NULL,
    run};
