/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the stages in order; each checks its own result. */
#include "config.h"

#include "optim/optim.h"
#include "parallel/partition.h"
#include "train/pipeline.h"

static const char *const names[SYI_WHICH_COUNT] = {"grad_first", "grad_next",   "update", "eval",
                                                   "encode",     "decode_step", "weights"};

const char *syi_which_name(int which)
{
    return names[which];
}

static int record_update(const struct syi_config *config, const struct syi_shape *shape,
                         const struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    uint32_t leaf_count[SYI_AXIS_COUNT];
    syi_leaves(config, shape, leaf_count);
    return syi_record_update(config, params, leaf_count, program, err);
}

static int record(const struct syi_config *config, int which, const struct syi_shape *shape,
                  struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    switch (which) {
    case SYI_GRAD_FIRST:
    case SYI_GRAD_NEXT: return syi_record_grad(config, shape, which == SYI_GRAD_NEXT, params, program, err);
    case SYI_UPDATE: return record_update(config, shape, params, program, err);
    case SYI_EVAL: return syi_record_eval(config, shape, params, program, err);
    case SYI_ENCODE: return syi_record_encode(config, shape, params, program, err);
    case SYI_DECODE_STEP: return syi_record_decode_step(config, shape, params, program, err);
    default: return syi_record_weights(config, shape, params, program, err);
    }
}

int syi_pipeline(const struct syi_config *config, const struct syi_mesh *mesh, int which,
                 const struct syi_shape *shape, int stage, struct syi_params *params,
                 struct syi_program **program, struct sy_error *err)
{
    struct syi_program *global, *local;
    struct syi_config resolved = *config;
    resolved.mesh.expert = mesh->size[1]; /* 0 in a run file: as many as are left */
    int status = record(&resolved, which, shape, params, &global, err);
    if (status || stage == SYI_STAGE_RECORD) {
        if (!status) *program = global;
        return status;
    }
    status = syi_partition(global, mesh, &local, err);
    syi_program_free(global);
    if (status) return status;
    if (stage >= SYI_STAGE_FUSE) status = syi_program_fuse(local, err);
    if (status)
        syi_program_free(local);
    else
        *program = local;
    return status;
}
