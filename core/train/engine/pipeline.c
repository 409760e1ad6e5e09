/* SPDX-License-Identifier: Apache-2.0 */
/* Records a program and runs the passes up to a stage. */
#include "config.h"

#include "optim/optim.h"
#include "train/engine/pipeline.h"

static const char *const names[SYI_WHICH_COUNT] = {"grad_first", "grad_next", "update", "update_metrics",
                                                   "eval",       "score",     "encode", "decode_step",
                                                   "exchange",   "weights"};

const char *syi_which_name(enum syi_which which)
{
    return names[which];
}

static int record_update(const struct syi_config *config, const struct syi_shape *shape, int weigh,
                         const struct syi_model *model, struct syi_program **program, struct sy_error *err)
{
    uint32_t leaf_count[SYI_AXIS_COUNT];
    const struct syi_update_options options = {
        .config = config, .model = model, .leaf_count = leaf_count, .carried = 1, .weigh = weigh};
    syi_leaves(config, shape, leaf_count);
    return syi_record_update(&options, program, err);
}

static int record_exchange(const struct syi_config *config, const struct syi_shape *shape,
                           const struct syi_model *model, struct syi_program **program, struct sy_error *err)
{
    struct syi_program *update;
    int status = record_update(config, shape, 0, model, &update, err);
    if (status) return status;
    status = syi_record_exchange(update, program, err);
    syi_program_free(update);
    return status;
}

/* Programs of training, of which a build without it has nothing. */
static int record_training(const struct syi_config *config, enum syi_which which,
                           const struct syi_shape *shape, struct syi_model *model, struct syi_recorded *r,
                           struct sy_error *err)
{
    if (which == SYI_EXCHANGE) return record_exchange(config, shape, model, &r->program, err);
    if (which == SYI_UPDATE || which == SYI_UPDATE_METRICS)
        return record_update(config, shape, which == SYI_UPDATE_METRICS, model, &r->program, err);
    return syi_record_grad(config, shape, which == SYI_GRAD_NEXT, model, r, err);
}

static int record(const struct syi_config *config, enum syi_which which, const struct syi_shape *shape,
                  struct syi_model *model, struct syi_recorded *r, struct sy_error *err)
{
    *r = (struct syi_recorded){0};
    switch (which) {
    case SYI_GRAD_FIRST:
    case SYI_GRAD_NEXT:
    case SYI_UPDATE:
    case SYI_UPDATE_METRICS:
    case SYI_EXCHANGE:
        if (SY_TRAINING) return record_training(config, which, shape, model, r, err);
        return syi_error(err, SY_EUNSUPPORTED, "program %s: this switchyard was built without training",
                         names[which]);
    case SYI_EVAL: return syi_record_eval(config, shape, model, r, err);
    case SYI_SCORE: return syi_record_score(config, shape, model, &r->program, err);
    case SYI_ENCODE: return syi_record_encode(config, shape, model, &r->program, err);
    case SYI_DECODE_STEP: return syi_record_decode_step(config, shape, model, &r->program, err);
    default: return syi_record_weights(config, shape, model, &r->program, err);
    }
}

int syi_pipeline(const struct syi_config *config, const struct syi_mesh *mesh,
                 const struct syi_backend *backend, enum syi_which which, const struct syi_shape *shape,
                 enum syi_stage stage, struct syi_model *model, struct syi_recorded *recorded,
                 struct sy_error *err)
{
    struct syi_config *resolved = syi_config_copy(config, err);
    struct syi_pass_options options = {
        .mesh = mesh, .reproducible = config->reproducible.enabled, .fold = 1, .target = UINT64_MAX};
    if (!resolved) return SY_ENOMEM;
    syi_backend_choose_ops(backend, &options);
    resolved->mesh.expert = mesh->size[1]; /* 0 in a run file: as many as are left */
    int status = record(resolved, which, shape, model, recorded, err);
    syi_free(resolved);
    if (status || !recorded->program) return status;
    status = syi_passes_run(&recorded->program, SYI_STAGE_RECORD, stage, &options, err);
    if (status) {
        syi_program_free(recorded->program);
        recorded->program = NULL;
    }
    return status;
}
