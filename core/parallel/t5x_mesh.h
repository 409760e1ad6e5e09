/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's mesh (data, model) of a set of devices, as its MoePjitPartitioner and PjitPartitioner make it (T5X
 * partitioning.py, contrib/moe/partitioning.py), and the running mesh (data, expert, model) that does the
 * same. Pure functions; nothing here runs a program. What T5X raises as a ValueError is SY_EINVAL here, an
 * AssertionError (the submesh does not fit the devices) SY_EMISMATCH, a KeyError SY_ENOENT. */
#ifndef SYI_T5X_MESH_H
#define SYI_T5X_MESH_H

#include "base/base.h"

/* T5X's mesh axes as bits of a set; a set of both is the tuple ('data', 'model'). */
enum syi_t5x_axis { SYI_T5X_DATA = 1, SYI_T5X_MODEL = 2 };

enum { SYI_T5X_DIMS = 4, SYI_T5X_SUBMESH = 8, SYI_T5X_DEVICES = 1 << 20 };

enum syi_t5x_platform { SYI_T5X_CPU, SYI_T5X_GPU, SYI_T5X_TPU_V3, SYI_T5X_TPU_V4, SYI_T5X_OTHER };

/* The devices of a job: a grid of (hosts, devices of a host), or of (x, y, z, core) on a TPU. */
struct syi_t5x_devices {
    enum syi_t5x_platform platform; /* v3 stands for v2 as well */
    int rank;                       /* 2 or 4: dims of the grid */
    int64_t grid[SYI_T5X_DIMS];     /* extents of the whole grid */
    int64_t host[SYI_T5X_DIMS];     /* extents of the part on one host */
};

/* How a user asks for model parallelism: exactly one of the two for the MoE partitioner. */
struct syi_model_parallelism {
    int has_partitions, has_submesh;  /* 0: None */
    int64_t num_partitions;           /* size of the model axis */
    int n_submesh;                    /* dims of the submesh */
    int64_t submesh[SYI_T5X_SUBMESH]; /* tile of devices that holds one copy of the model */
};

struct syi_t5x_mesh {
    int64_t size[2]; /* data, model */
    int32_t *device; /* [data][model] ids, owned: syi_t5x_mesh_free */
};

/* Checks extents; refuses more than SYI_T5X_DEVICES devices and host parts that do not tile the grid. */
int syi_t5x_devices_check(const struct syi_t5x_devices *devices, struct sy_error *err) SYI_MUST_CHECK;
int64_t syi_t5x_devices_count(const struct syi_t5x_devices *devices);
int64_t syi_t5x_host_devices(const struct syi_t5x_devices *devices); /* on one host */

/* Whether both mesh axes carry data: there are experts, fewer than devices, and no model parallelism. */
int syi_t5x_two_data_axes(int64_t num_experts, int64_t num_devices, const struct syi_model_parallelism *given,
                          int *two_data_axes, struct sy_error *err) SYI_MUST_CHECK;

/* What a partitioner works with after its constructor. moe: MoePjitPartitioner, else PjitPartitioner (that
 * takes both requests, the submesh counts). */
int syi_t5x_partitioner(int moe, int64_t num_experts, int64_t num_devices,
                        const struct syi_model_parallelism *given, struct syi_model_parallelism *used,
                        int *two_data_axes, struct sy_error *err) SYI_MUST_CHECK;

/* The mesh of a request that syi_t5x_partitioner returned. On success the caller frees it. */
int syi_t5x_mesh_new(struct syi_t5x_mesh *mesh, const struct syi_t5x_devices *devices,
                     const struct syi_model_parallelism *used, struct sy_error *err) SYI_MUST_CHECK;
void syi_t5x_mesh_free(struct syi_t5x_mesh *mesh);

/* Sizes (data, expert, model) of the running mesh that splits as T5X's (data, model) does: experts over T5X's
 * data axis, hence (1, D, M); with two data axes (devices/experts, experts, 1); no experts: (D, 1, M). */
void syi_t5x_running_mesh(const int64_t t5x[2], int64_t num_experts, int two_data_axes, int64_t running[3]);

#endif
