/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard plan RUNFILE: what a run will need, before it takes any memory. For --devices nothing is
 * started: one rank's programs say it for all, because all ranks have the same. */
#include "config.h"

#include <string.h>

#include "cli/plan_report.h"
#include "cli/plan_schedule.h"
#include "model/model.h"
#include "parallel/t5x_mesh.h"
#include "train/engine/pipeline.h"

/* ---- the mesh ---- */

/* mesh.* as T5X would split --devices: num_partitions devices to a model, experts over the others. */
static int take_t5x_mesh(const struct cli_options *o, struct plan_report *r, struct syi_config *config,
                         struct sy_error *err)
{
    int64_t running[3], experts = config->moe.num_experts;
    struct syi_model_parallelism given = {.has_partitions = 1, .num_partitions = o->partitions}, used;
    if (!o->devices) return syi_error(err, SY_EINVAL, "--partitions divides --devices: give both");
    if (config->mesh.data || config->mesh.expert || config->mesh.model)
        return syi_error(err, SY_EINVAL, "--partitions makes the mesh: leave mesh.* at 0");
    int status = syi_t5x_partitioner(1, experts, o->devices, &given, &used, &r->two_data_axes, err);
    if (status) return status;
    if (o->devices % used.num_partitions)
        return syi_error(err, SY_EINVAL, "%lld partitions do not divide %d devices%s",
                         (long long)used.num_partitions, o->devices,
                         r->two_data_axes ? ": T5X needs a number of experts that does" : "");
    r->t5x[0] = o->devices / used.num_partitions;
    r->t5x[1] = used.num_partitions;
    syi_t5x_running_mesh(r->t5x, experts, r->two_data_axes, running);
    config->mesh.data = running[0];
    config->mesh.expert = running[1];
    config->mesh.model = running[2];
    return SY_OK;
}

/* Ranks along axes whose sums have too few parts, the most of any axis; 0: all have enough. */
static int64_t missing_blocks(const struct syi_config *config, const struct syi_mesh *mesh)
{
    int64_t most = 0;
    for (int which = SYI_GRAD_FIRST; which < SYI_WHICH_COUNT; which++) {
        uint32_t count[SYI_AXIS_COUNT];
        struct syi_shape shape = syi_config_shape(config, which);
        syi_leaves(config, &shape, count);
        for (int axis = 0; axis < SYI_AXIS_COUNT; axis++) {
            int ranks = syi_mesh_size(mesh, mesh->rule[axis]);
            if (count[axis] % (unsigned)ranks && ranks > most) most = ranks;
        }
    }
    return most;
}

/* Sums in as many parts as the mesh needs, where a number of parts can be found at all; else the plan fails
 * with the reason. */
static int fit_blocks(struct syi_config *fit, const struct syi_mesh *mesh)
{
    const int64_t blocks = fit->reproducible.blocks, min_leaf = fit->reproducible.min_leaf,
                  need = missing_blocks(fit, mesh);
    if (!need || (need & (need - 1))) return 0;
    if (fit->reproducible.blocks < need) fit->reproducible.blocks = need;
    while (missing_blocks(fit, mesh) && fit->reproducible.min_leaf > 1) fit->reproducible.min_leaf /= 2;
    if (!missing_blocks(fit, mesh)) return 1;
    fit->reproducible.blocks = blocks;
    fit->reproducible.min_leaf = min_leaf;
    return 0;
}

/* ---- the command ---- */

struct job {
    const struct cli_options *options;
    struct syi_config *config;
    struct plan_report report;
};

static int plan(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct job *job = arg;
    struct plan_report *r = &job->report;
    if (rank->rank) return SY_OK;
    struct syi_config *fit = syi_alloc(sizeof *fit, err);
    if (!fit) return SY_ENOMEM;
    *fit = *job->config;
    fit->reproducible.min_leaf = syi_rank_min_leaf(rank, job->config);
    r->changed = fit_blocks(fit, &rank->mesh);
    r->config = fit;
    r->rank = rank;
    int use =
        SYI_USE_TRAIN | SYI_USE_EVAL | SYI_USE_DECODE | (fit->checkpoint.background ? SYI_USE_SNAPSHOT : 0);
    int status = syi_engine_new(fit, rank, use, 1, &r->engine, err);
    if (!status) status = plan_report_count(r, err);
    if (!status) status = job->options->json ? plan_print_json(r, err) : plan_print_text(r, err);
    plan_report_free(r);
    syi_engine_free(r->engine);
    syi_free(fit);
    return status;
}

/* What this machine can do, for the time of a step; or why that is not asked. */
static int measure_machine(const struct syi_launch *launch, const struct cli_options *o,
                           struct plan_report *r, struct sy_error *err)
{
    if (o->devices)
        r->untimed = "--devices are not here";
    else if (!strcmp(o->backend, "null"))
        r->untimed = "backend null computes nothing";
    else if (strcmp(o->backend, "cpu"))
        r->untimed = "what this backend can do is not measured: switchyard bench times it";
    else if (bench_over_processes(launch))
        r->untimed = "ranks are processes: switchyard bench times it";
    return r->untimed ? SY_OK : bench_machine_quick(launch, &r->machine, err);
}

static int plan_schedule(const struct cli_options *o, const struct syi_config *config)
{
    struct sy_error err = {0};
    if (o->devices || o->partitions || o->ranks || o->threads || o->tensors || strcmp(o->comm, "auto") ||
        strcmp(o->backend, "cpu")) {
        cli_error(
            "plan: --schedule prints the learning rate, which is that of all ranks, and no plan: leave out "
            "--devices, --partitions, --ranks, --threads, --comm, --backend and --tensors");
        return CLI_USAGE;
    }
    return plan_print_schedule(config, o->json, &err) ? cli_fail(&err) : CLI_DONE;
}

int cli_plan(const struct cli_options *given)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct cli_options o = *given;
    struct job job = {.options = given, .config = &config, .report = {.tensors = given->tensors}};
    if (cli_load_config(o.operand[0], &o, &config, &err)) return cli_load_failed(&err);
    if (o.schedule) return plan_schedule(&o, &config);
    cli_log_to_stderr(1);
    if (o.partitions && take_t5x_mesh(&o, &job.report, &config, &err)) return cli_usage(&err);
    if (o.devices && (o.ranks || strcmp(o.comm, "auto"))) {
        cli_error("plan: --devices starts no ranks: leave out --ranks and --comm");
        return CLI_USAGE;
    }
    if (o.devices) o.ranks = o.devices;
    if (o.devices) o.comm = "thread"; /* any communication of that many: none is opened */
    int status = cli_check_launch("plan", &o, &config, 0);
    if (status) return status;
    struct syi_launch launch = cli_launch(&o, &config);
    if (measure_machine(&launch, &o, &job.report, &err)) return cli_fail(&err);
    status =
        o.devices ? syi_launch_plan(&launch, plan, &job, &err) : syi_launch_run(&launch, plan, &job, &err);
    if (status == SY_EMISMATCH) return cli_usage(&err); /* optimizers that contradict each other */
    return status ? cli_fail(&err) : CLI_DONE;
}
