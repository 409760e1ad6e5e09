/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a run over its steps, as `plan --schedule` prints it. */
#ifndef CLI_PLAN_SCHEDULE_H
#define CLI_PLAN_SCHEDULE_H

#include "base/run_config.h"

int plan_print_schedule(const struct syi_config *config, int json, struct sy_error *err) SYI_MUST_CHECK;

#endif
