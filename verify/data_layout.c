/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a mesh on one host, and the data it reads. */
#include "config.h"

#include "verify/data_layout.h"

int syi_t5x_chunks(const struct syi_t5x_mesh *mesh, const struct syi_t5x_devices *devices, int64_t host,
                   struct syi_t5x_chunks *chunks, struct sy_error *err)
{
    int64_t first[2] = {0, 0}, last[2] = {-1, -1}, mine = 0, per_host = syi_t5x_host_devices(devices);
    for (int64_t k = 0; k < mesh->size[0] * mesh->size[1]; k++) {
        const int64_t at[2] = {k / mesh->size[1], k % mesh->size[1]};
        if (mesh->device[k] / per_host != host) continue;
        for (int i = 0; i < 2; i++) {
            if (!mine || at[i] < first[i]) first[i] = at[i];
            if (at[i] > last[i]) last[i] = at[i];
        }
        mine++;
    }
    int64_t extent[2] = {last[0] - first[0] + 1, last[1] - first[1] + 1};
    if (!mine) return syi_error(err, SY_EINVAL, "host %lld has no devices", (long long)host);
    if (extent[0] * extent[1] != mine)
        return syi_error(err, SY_EINVAL, "the devices of host %lld are no rectangle of the mesh",
                         (long long)host);
    for (int i = 0; i < 2; i++) {
        chunks->n[i] = mesh->size[i] / extent[i];
        chunks->id[i] = first[i] / extent[i];
    }
    return SY_OK;
}

int syi_data_layout(const struct syi_t5x_mesh *mesh, const struct syi_t5x_chunks *chunks, int two_data_axes,
                    int64_t batch_size, struct syi_data_layout *layout, struct sy_error *err)
{
    int64_t places = mesh->size[0] * (two_data_axes ? mesh->size[1] : 1);
    if (!batch_size) batch_size = places;
    if (batch_size % places)
        return syi_error(err, SY_EINVAL, "a batch of %lld rows does not divide among the mesh's %lld places",
                         (long long)batch_size, (long long)places);
    if (batch_size % chunks->n[0])
        return syi_error(err, SY_EINVAL, "a batch of %lld rows does not divide among %lld shards",
                         (long long)batch_size, (long long)chunks->n[0]);
    *layout = (struct syi_data_layout){batch_size, chunks->id[0], chunks->n[0], chunks->id[1] == 0};
    return SY_OK;
}
