/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as chains of transforms, as optax composes them: a transform takes the update of one parameter
 * (at first its gradient) and records the elementwise ops that turn it into another, making state tensors as
 * it needs them. So an optimizer costs no backend code, and fuse makes one pass over memory of a whole chain.
 */
#ifndef SYI_OPTIM_H
#define SYI_OPTIM_H

#include "base/run_config.h"
#include "program/program.h"

/* Scalars of the step, inputs of the update program; the host computes them in double (syi_optim_scalars). */
struct syi_optim_inputs {
    int learning_rate; /* "learning_rate" [1] */
    int correction1;   /* "correction1" [1]: 1 / (1 - b1^t), t counts from 1 */
    int correction2;   /* "correction2" [1] */
};

/* One parameter's way through a chain. */
struct syi_optim {
    struct syi_program *p;
    const struct syi_config *config;
    struct syi_optim_inputs in;
    int parameter; /* tensor */
    int ok;        /* [1]: 1 where the step may be written */
    int transform; /* index in the chain: state names are "state/param_states/INDEX/NAME/PARAMETER" */
};

/* Records a transform of `update`; returns the new update. */
typedef int (*syi_transform_fn)(struct syi_optim *o, int update);

struct syi_optimizer {
    const char *name;
    const syi_transform_fn *chain; /* ends with NULL; the last one's result is added to the parameter */
};

/* registry.c: by train.optimizer. */
const struct syi_optimizer *syi_optimizer_find(int optimizer);

/* transforms.c */
int syi_scale_by_adam(struct syi_optim *o, int update);
int syi_add_decayed_weights(struct syi_optim *o, int update);
int syi_scale_by_learning_rate(struct syi_optim *o, int update); /* and turns the sign: towards lower loss */
/* State of the parameter at hand, shaped like it; zero before the first step. */
int syi_optim_state(struct syi_optim *o, const char *name);
/* Writes `value` to persistent tensor `to` if the step is ok, else keeps it. */
void syi_optim_store(struct syi_optim *o, int value, int to);

/* update.c: the program of a step: gradient norm over all parameters, finite check, clipping, the chain, the
 * parameters. Inputs: carry tensors "grad/NAME"; outputs "grad_norm", "ok". */
struct syi_params;
int syi_record_update(const struct syi_config *config, const struct syi_params *params,
                      const uint32_t *leaf_count, struct syi_program **program,
                      struct sy_error *err) SYI_MUST_CHECK;

struct syi_optim_scalars {
    float correction1, correction2;
};
struct syi_optim_scalars syi_optim_scalars(const struct syi_config *config, int64_t step); /* step from 0 */

#endif
