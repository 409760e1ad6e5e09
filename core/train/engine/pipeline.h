/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a program from the run file to any stage before its memory is planned: record (with gradients
 * and optimizer), then the passes. Used by the engine, which leaves what follows fuse to the session, and by
 * `explain`. */
#ifndef SYI_PIPELINE_H
#define SYI_PIPELINE_H

#include "model/model.h"
#include "passes/passes.h"

enum syi_which {
    SYI_GRAD_FIRST,
    SYI_GRAD_NEXT,
    SYI_UPDATE,
    SYI_EVAL,
    SYI_ENCODE,
    SYI_DECODE_STEP,
    SYI_WEIGHTS, /* only with model.dtype = bfloat16 */
    SYI_WHICH_COUNT
};
const char *syi_which_name(int which); /* "grad_first", ... */

/* *program: as it is after `stage`, which is not SYI_STAGE_PLAN; owned by the caller. params collects the parameters, and the copies of weights; the update program needs a grad program, the
 * weights program all of eval, encode and decode_step that shall run, recorded before it with the same
 * params. */
int syi_pipeline(const struct syi_config *config, const struct syi_mesh *mesh, int which,
                 const struct syi_shape *shape, enum syi_stage stage, struct syi_params *params,
                 struct syi_program **program, struct sy_error *err) SYI_MUST_CHECK;

#endif
