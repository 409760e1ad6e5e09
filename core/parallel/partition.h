/* SPDX-License-Identifier: Apache-2.0 */
/* The partition pass: global program x mesh -> local program of one rank with collectives. All ranks get the
 * same program; what differs (the global index of a shard's first element) is bound later. */
#ifndef SYI_PARTITION_H
#define SYI_PARTITION_H

#include "parallel/mesh.h"

/* Makes a new program: local extents, split set on every tensor, collective ops where what an op yields is
 * not what its output declares or an input is not laid out as the op demands. Refuses with one error what
 * leaves or extents do not allow. */
int syi_partition(const struct syi_program *global, const struct syi_mesh *mesh, struct syi_program **local,
                  struct sy_error *err) SYI_MUST_CHECK;

#endif
