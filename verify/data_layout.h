/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's data layout: which part of a batch a host reads, and which host of those that read the same one
 * stands for them. Follows from T5X's mesh alone. */
#ifndef SYI_DATA_LAYOUT_H
#define SYI_DATA_LAYOUT_H

#include "parallel/t5x_mesh.h"

/* A host's part of the mesh: its devices are chunk `id` of `n` along each mesh axis. */
struct syi_t5x_chunks {
    int64_t n[2], id[2]; /* data, model */
};

struct syi_data_layout {
    int64_t batch_size; /* rows of all shards */
    int64_t shard_id, num_shards;
    int is_first_host_in_replica_set; /* of the hosts that read this shard */
};

/* Refuses a mesh in which the host's devices are no rectangle (T5X: a ValueError). */
int syi_t5x_chunks(const struct syi_t5x_mesh *mesh, const struct syi_t5x_devices *devices, int64_t host,
                   struct syi_t5x_chunks *chunks, struct sy_error *err) SYI_MUST_CHECK;

/* batch_size 0: as many rows as the mesh has places for. Shards are counted along the data axis only, even
 * where both axes carry data. */
int syi_data_layout(const struct syi_t5x_mesh *mesh, const struct syi_t5x_chunks *chunks, int two_data_axes,
                    int64_t batch_size, struct syi_data_layout *layout, struct sy_error *err) SYI_MUST_CHECK;

#endif
