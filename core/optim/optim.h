/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as chains of transforms, as optax composes them: a transform takes the update of one parameter
 * (at first its gradient) and records the elementwise ops that turn it into another, making state tensors as
 * it needs them. So an optimizer costs no backend code, and fuse makes one pass over memory of a whole chain.
 */
#ifndef SYI_OPTIM_H
#define SYI_OPTIM_H

#include "base/run_config.h"
#include "program/program.h"

/* One parameter's way through a chain. */
struct syi_optim {
    struct syi_program *p;
    const struct syi_optimizer_part *options; /* of the part that updates it */
    int parameter;                            /* tensor */
    int ok;                                   /* [1]: 1 where the step may be written */
    int transform;                            /* index in the chain */
};

/* Records a transform of `update`; returns the new update. */
typedef int (*syi_transform_fn)(struct syi_optim *o, int update);

struct syi_optimizer {
    const char *name;
    const syi_transform_fn *chain; /* ends with NULL; the last one's result is added to the parameter */
};

/* registry.c: by optimizer.name. */
const struct syi_optimizer *syi_optimizer_find(int optimizer);
/* The part that updates the parameter of that name: the first with a pattern for it, else that without a
 * name. */
const struct syi_optimizer_part *syi_optimizer_of(const struct syi_config *config, const char *parameter);

/* transforms.c */
int syi_scale_by_adam(struct syi_optim *o, int update);
int syi_add_decayed_weights(struct syi_optim *o, int update); /* before the learning rate */
int syi_scale_by_learning_rate(struct syi_optim *o, int update);
int syi_descend(struct syi_optim *o, int update); /* turns the sign: towards lower loss */
/* Scalar [1] that the host sets for each step (syi_optim_scalars): of all optimizers, or the part's own. */
int syi_optim_input(struct syi_program *p, const char *name);
int syi_optim_part_input(struct syi_optim *o, const char *name);
/* "state/param_states/INDEX/NAME/PARAMETER" (optax in T5X), shaped like the parameter; zero at first. */
int syi_optim_state(struct syi_optim *o, const char *name);
int syi_moving_mean(struct syi_program *p, int old, int value, double decay);
/* Writes `value` to persistent tensor `to` if the step is ok, else keeps it. */
void syi_optim_store(struct syi_optim *o, int value, int to);

/* adafactor.c; state is "state/param_states/PARAMETER/SLOT", slots v_row and v_col or v, and m. */
int syi_scale_by_factored_rms(struct syi_optim *o, int update);
int syi_clip_by_rms(struct syi_optim *o, int update);
int syi_scale_by_parameter_rms(struct syi_optim *o, int update);
int syi_add_momentum(struct syi_optim *o, int update);
int syi_decay_weights(struct syi_optim *o, int update); /* called after syi_descend */

/* update.c: the program of a step: gradient norm over all parameters, finite check, clipping, the chain of
 * each parameter's optimizer, the parameters. A pattern of optimizer.*.parameters that no parameter has is
 * refused. By role: GRADIENT, DIRECTION of expert biases and OPTIM_SCALAR come in; the values GRAD_NORM and
 * OK of the step come out. */
struct syi_model;
int syi_record_update(const struct syi_config *config, const struct syi_model *model,
                      const uint32_t *leaf_count, struct syi_program **program,
                      struct sy_error *err) SYI_MUST_CHECK;

/* What the gradient of a parameter is multiplied by before anything else: 1, or as MoeTrainer (T5X,
 * contrib/moe/trainer.py) the number of experts for expert weights. */
double syi_gradient_scale(const struct syi_config *config, const char *name);

/* What the host sets for each step: the learning rate, then for each part of [optimizer] its own values. A
 * program has inputs for those that its chains ask for. */
enum { SYI_OPTIM_PART_SCALARS = 4, SYI_OPTIM_SCALARS = 1 + SYI_OPTIM_PART_SCALARS * SYI_CONFIG_PARTS };
enum { SYI_OPTIM_SCALAR_NAME = SYI_PART_NAME + 16 };
/* Values of the step (from 0), each computed in double; returns how many there are. */
int syi_optim_scalars(const struct syi_config *config, int64_t step, double learning_rate,
                      float value[SYI_OPTIM_SCALARS]);
/* The input of value i: "learning_rate", "correction1", and "PART/correction1" of a part with a name. */
void syi_optim_scalar_name(const struct syi_config *config, int i, char name[SYI_OPTIM_SCALAR_NAME]);

#endif
