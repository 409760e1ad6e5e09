/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a step in the programs that yield them. */
#include "config.h"

#include "model/step_values.h"
#include "program/record.h"

static const struct syi_step_value_info values[SYI_STEP_VALUES] = {
#define SYI_STEP_VALUE(ID, output, ADDED, OVER) {#ID, output, SYI_ADDED_##ADDED, SYI_OVER_##OVER},
#include "model/step_metrics.def"
};

const struct syi_step_value_info *syi_step_value_info(enum syi_step_value value)
{
    return &values[value];
}

void syi_step_output(struct syi_program *program, enum syi_step_value value, int tensor)
{
    const char *name = values[value].output;
    if (!name)
        syi_program_fail(program, SY_EINTERNAL, "step value %d is no output", (int)value);
    else
        syi_output(program, syi_role_set(program, tensor, SYI_ROLE_STEP_OUTPUT, (uint32_t)value), name);
}
