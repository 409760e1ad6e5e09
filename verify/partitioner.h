/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of kind partitioner share. */
#ifndef VERIFY_PARTITIONER_H
#define VERIFY_PARTITIONER_H

#include "verify/logical_rules.h"
#include "verify/rows.h"

void verify_put_mesh_axis(struct syi_json_writer *answer, int mesh);
void verify_put_spec(struct syi_json_writer *answer, const int *spec, int n);
/* num_partitions and model_parallel_submesh of a row; a key that is not there is None. */
int verify_parallelism(const struct verify_case *c, uint32_t row, struct syi_model_parallelism *m,
                       struct sy_error *err) SYI_MUST_CHECK;
/* These, num_experts and num_devices. */
int verify_devices(const struct verify_case *c, uint32_t row, struct syi_model_parallelism *m,
                   int64_t *experts, int64_t *devices, struct sy_error *err) SYI_MUST_CHECK;
int verify_layout(const struct verify_case *c, uint32_t inputs, uint32_t expected,
                  struct verify_report *report, struct sy_error *err) SYI_MUST_CHECK;
int verify_state_axes(const struct verify_case *c, uint32_t inputs, uint32_t expected,
                      struct verify_report *report, struct sy_error *err) SYI_MUST_CHECK;

#endif
