/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a training step, by the table step_metrics.def: which there are, and how a program leaves one
 * where the host adds it up. */
#ifndef SYI_STEP_VALUES_H
#define SYI_STEP_VALUES_H

#include "program/program.h"

enum syi_step_value {
#define SYI_STEP_VALUE(ID, output, ADDED, OVER) SYI_STEP_##ID,
#include "model/step_metrics.def"
    SYI_STEP_VALUES
};

enum syi_step_added { SYI_ADDED_SUM, SYI_ADDED_MEAN, SYI_ADDED_LAST, SYI_ADDED_HOST };
enum syi_step_over { SYI_OVER_ONE, SYI_OVER_LOSS_NORM, SYI_OVER_LAYERS, SYI_OVERS };

struct syi_step_value_info {
    const char *name;   /* its ID, which checkpoints keep it by */
    const char *output; /* name of the tensor, or NULL */
    enum syi_step_added added;
    enum syi_step_over over;
};
const struct syi_step_value_info *syi_step_value_info(enum syi_step_value value);

/* Makes a temporary, float32 [1], the output of that value: role STEP_OUTPUT. */
void syi_step_output(struct syi_program *program, enum syi_step_value value, int tensor);

#endif
