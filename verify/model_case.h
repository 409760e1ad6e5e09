/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that run a whole model: an engine with the case's configuration and parameters, and batches made of
 * its inputs. Shared by the kinds model, microbatch and train. */
#ifndef VERIFY_MODEL_CASE_H
#define VERIFY_MODEL_CASE_H

#include "train/engine/engine.h"
#include "train/engine/step_metrics.h"
#include "verify/verify.h"

struct verify_model {
    const struct verify_case *item;
    struct syi_config config;
    struct syi_engine *engine;
    struct syi_batch batch; /* arrays borrowed from the case, or owned below */
    int packed;
    int32_t *lengths[2]; /* (batch) owned */
    int64_t rows, input_length, target_length;
};

/* Reads the configuration: all keys that are options, mode, and the batch's dims. */
int verify_model_config(struct verify_model *m, const struct verify_case *c,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Builds the engine for config as it is now and puts the parameters in. */
int verify_model_open(struct verify_model *m, const struct verify_context *context,
                      struct sy_error *err) SYI_MUST_CHECK;
void verify_model_close(struct verify_model *m);
/* The batch of a step: inputs have a leading step axis where steps > 1. */
int verify_model_batch(struct verify_model *m, int64_t step, int64_t steps,
                       struct sy_error *err) SYI_MUST_CHECK;
/* Puts the case's parameters in again. */
int verify_model_params(struct verify_model *m, struct sy_error *err) SYI_MUST_CHECK;
/* Values of a parameter or its gradient: role PARAMETER or GRADIENT. NULL: there is none. */
const float *verify_model_values(const struct verify_model *m, enum syi_role role,
                                 const struct syi_param *param, int64_t *n);
/* The same of a parameter or an optimizer state, by its name in a checkpoint. */
const float *verify_model_state(const struct verify_model *m, const char *name, int64_t *n);
/* Reports gradients as PREFIX/NAME, times scale where the name is an expert's. */
int verify_model_gradients(struct verify_model *m, const char *prefix, double expert_scale,
                           struct verify_report *report, struct sy_error *err) SYI_MUST_CHECK;
/* Reports T5X's metrics as PREFIX/NAME/{total,count|steps,computed}. */
void verify_model_metrics(struct verify_model *m, const char *prefix, const struct syi_step_result *result,
                          struct verify_report *report);

#endif
