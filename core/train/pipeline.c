/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the stages in order; each checks its result. */
#include "config.h"

#include "optim/optim.h"
#include "parallel/partition.h"
#include "train/pipeline.h"

static const char *const names[SYI_WHICH_COUNT] = {"grad_first", "grad_next", "update",
                                                   "eval",       "encode",    "decode_step"};

const char *syi_which_name(int which)
{
    return names[which];
}

/* The leaves of a shape, as a recording of it has them. */
static int record_update(const struct syi_config *config, const struct syi_shape *shape,
                         const struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b = {.config = config, .shape = *shape};
    int status = syi_program_new("leaves", &b.p, err);
    if (status) return status;
    syi_build_leaves(&b);
    status = syi_record_update(config, params, b.p->leaf_count, program, err);
    syi_program_free(b.p);
    return status;
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
    default: return syi_record_decode_step(config, shape, params, program, err);
    }
}

int syi_pipeline(const struct syi_config *config, const struct syi_mesh *mesh, int which,
                 const struct syi_shape *shape, int stage, struct syi_params *params,
                 struct syi_program **program, struct sy_error *err)
{
    struct syi_program *global, *local;
    int status = record(config, which, shape, params, &global, err);
    if (status || stage == SYI_STAGE_RECORD) {
        if (!status) *program = global;
        return status;
    }
    status = syi_partition(global, mesh, &local, err);
    syi_program_free(global);
    if (status) return status;
    if (stage >= SYI_STAGE_FUSE) {
        status = syi_program_fuse(local, err);
        if (!status) status = syi_program_check(local, "fuse", err);
    }
    if (status)
        syi_program_free(local);
    else
        *program = local;
    return status;
}
