/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of kind partitioner read of a case and write of an answer alike. */
#include "config.h"

#include <string.h>

#include "verify/partitioner.h"

void verify_put_mesh_axis(struct syi_json_writer *answer, int mesh)
{
    if (!mesh) syi_json_put_null(answer);
    if (mesh == (SYI_T5X_DATA | SYI_T5X_MODEL)) syi_json_open(answer, '[');
    if (mesh & SYI_T5X_DATA) syi_json_put_string(answer, "data");
    if (mesh & SYI_T5X_MODEL) syi_json_put_string(answer, "model");
    if (mesh == (SYI_T5X_DATA | SYI_T5X_MODEL)) syi_json_close(answer, ']');
}

void verify_put_spec(struct syi_json_writer *answer, const int *spec, int n)
{
    syi_json_open(answer, '[');
    for (int i = 0; i < n; i++) verify_put_mesh_axis(answer, spec[i]);
    syi_json_close(answer, ']');
}

int verify_parallelism(const struct verify_case *c, uint32_t row, struct syi_model_parallelism *m,
                       struct sy_error *err)
{
    int none = 0;
    memset(m, 0, sizeof *m);
    int status =
        verify_member_int(c, row, "num_partitions", INT32_MIN, INT32_MAX, &none, &m->num_partitions, err);
    m->has_partitions = !none;
    uint32_t submesh = syi_json_member(&c->json, row, "model_parallel_submesh");
    if (status || submesh == SYI_JSON_NONE || c->json.nodes[submesh].kind == SYI_JSON_NULL) return status;
    m->has_submesh = 1;
    return verify_list_ints(c, submesh, SYI_T5X_SUBMESH, m->submesh, &m->n_submesh, err);
}

int verify_devices(const struct verify_case *c, uint32_t row, struct syi_model_parallelism *m,
                   int64_t *experts, int64_t *devices, struct sy_error *err)
{
    int status = verify_parallelism(c, row, m, err);
    if (!status) status = verify_member_int(c, row, "num_experts", 0, INT32_MAX, NULL, experts, err);
    if (!status) status = verify_member_int(c, row, "num_devices", 1, INT32_MAX, NULL, devices, err);
    return status;
}
