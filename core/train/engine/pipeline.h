/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a program from the run file to any stage before its memory is planned: record (with gradients
 * and optimizer), then the passes. Used by the engine, which leaves what follows fuse to the session, and by
 * `explain`. */
#ifndef SYI_PIPELINE_H
#define SYI_PIPELINE_H

#include "model/model.h"
#include "passes/passes.h"
#include "runtime/backend.h"

enum syi_which {
    SYI_GRAD_FIRST,
    SYI_GRAD_NEXT,
    SYI_UPDATE,
    SYI_UPDATE_METRICS, /* the same, and metrics of the weights: only with metrics.weights_every */
    SYI_EVAL,
    SYI_SCORE,
    SYI_ENCODE,
    SYI_DECODE_STEP,
    SYI_EXCHANGE, /* only where an optimizer keeps averages */
    SYI_WEIGHTS,  /* only with model.dtype = bfloat16 */
    SYI_WHICH_COUNT
};
const char *syi_which_name(enum syi_which which); /* "grad_first", ... */

/* recorded->program: as it is after `stage`, which is not SYI_STAGE_PLAN; owned by the caller; NULL for an exchange program
 * where there is none. backend: the fold pass makes ops that it has; NULL: any. model collects what programs show of it; the update program needs a grad program, the weights program all of eval, score,
 * encode and decode_step that shall run, recorded before it with the same model. */
int syi_pipeline(const struct syi_config *config, const struct syi_mesh *mesh,
                 const struct syi_backend *backend, enum syi_which which, const struct syi_shape *shape,
                 enum syi_stage stage, struct syi_model *model, struct syi_recorded *recorded,
                 struct sy_error *err) SYI_MUST_CHECK;

#endif
