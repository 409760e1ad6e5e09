/* SPDX-License-Identifier: Apache-2.0 */
/* The list of passes: what runs after what. */
#include "config.h"

#include "passes/passes.h"

static int run_partition(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    struct syi_program *local;
    int status = syi_partition(*program, options->mesh, &local, err);
    if (status) return status;
    syi_program_free(*program);
    *program = local;
    return SY_OK;
}

static int run_fuse(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    (void)options;
    return syi_program_fuse(*program, err);
}

static int run_fold(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    if (!options->fold) return SY_OK;
    int status = syi_fold_maps(*program, options->add_rms_norm, err);
    if (!status && options->lay_out_both) status = syi_fold_copies(*program, err);
    if (!SY_TRAINING || !options->map_sums || status) return status; /* sums are of updates */
    return syi_fold(*program, err);
}

static int run_hoist(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    (void)options;
    return SY_TRAINING ? syi_hoist(*program, err) : SY_OK; /* gradients are of training */
}

static int run_recompute(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    options->recomputed = (struct syi_recomputed){0};
    if (!SY_TRAINING || options->target == UINT64_MAX)
        return SY_OK; /* what gradients need is computed again */
    return syi_program_recompute(*program, options->target, &options->recomputed, err);
}

static int run_join(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    return syi_join(*program, options->mesh, err);
}

static int run_lower(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err)
{
    return syi_lower(*program, options->mesh, options->reproducible, err);
}

static const struct {
    const char *name;
    int (*run)(struct syi_program **program, struct syi_pass_options *options, struct sy_error *err);
} passes[SYI_STAGE_COUNT] = {
    [SYI_STAGE_RECORD] = {"record", NULL}, /* core/model and core/optim */
    [SYI_STAGE_PARTITION] = {"partition", run_partition},
    [SYI_STAGE_FUSE] = {"fuse", run_fuse},
    [SYI_STAGE_FOLD] = {"fold", run_fold},
    [SYI_STAGE_HOIST] = {"hoist", run_hoist},
    [SYI_STAGE_RECOMPUTE] = {"recompute", run_recompute},
    [SYI_STAGE_JOIN] = {"join", run_join},
    [SYI_STAGE_LOWER] = {"lower", run_lower},
    [SYI_STAGE_PLAN] = {"plan", NULL}, /* all programs of a session: core/runtime/budget.c */
};

const char *syi_stage_name(enum syi_stage stage)
{
    return passes[stage].name;
}

int syi_passes_run(struct syi_program **program, enum syi_stage from, enum syi_stage to,
                   struct syi_pass_options *options, struct sy_error *err)
{
    int status = SY_OK;
    for (int stage = (int)from + 1; !status && stage <= (int)to; stage++)
        status = passes[stage].run(program, options, err);
    return status;
}
