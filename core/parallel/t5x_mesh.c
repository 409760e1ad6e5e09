/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's mesh: which request counts, the submesh chosen for it, and the order of devices in it. Knows neither
 * axis rules nor batches. */
#include "config.h"

#include <string.h>

#include "parallel/t5x_mesh.h"

/* ---- devices ---- */

int64_t syi_t5x_devices_count(const struct syi_t5x_devices *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->rank; i++) n *= d->grid[i];
    return n;
}

int64_t syi_t5x_host_devices(const struct syi_t5x_devices *d)
{
    if (d->rank == 2) return d->grid[1];
    int64_t n = 1;
    for (int i = 0; i < d->rank; i++) n *= d->host[i];
    return n;
}

int syi_t5x_devices_check(const struct syi_t5x_devices *d, struct sy_error *err)
{
    int64_t n = 1;
    if (d->rank != 2 && d->rank != 4)
        return syi_error(err, SY_EINVAL, "a grid of devices has 2 dims, or 4 on a TPU, not %d", d->rank);
    for (int i = 0; i < d->rank; i++) {
        if (d->grid[i] < 1 || d->grid[i] > SYI_T5X_DEVICES || (n *= d->grid[i]) > SYI_T5X_DEVICES)
            return syi_error(err, SY_EINVAL, "dim %d of the grid of devices is %lld: 1 to %d devices in all",
                             i, (long long)d->grid[i], (int)SYI_T5X_DEVICES);
        if (d->host[i] < 1 || d->host[i] > d->grid[i] || d->grid[i] % d->host[i])
            return syi_error(err, SY_EMISMATCH, "dim %d: a host's %lld devices do not tile the grid's %lld",
                             i, (long long)d->host[i], (long long)d->grid[i]);
    }
    return SY_OK;
}

/* Ids count the devices of a host first, cores fastest and x next; hosts in the same order. */
static int32_t device_id(const struct syi_t5x_devices *d, const int64_t at[SYI_T5X_DIMS])
{
    int64_t host = 0, local = 0;
    if (d->rank == 2) return (int32_t)(at[0] * d->grid[1] + at[1]);
    for (int i = 2; i >= 0; i--) {
        host = host * (d->grid[i] / d->host[i]) + at[i] / d->host[i];
        local = local * d->host[i] + at[i] % d->host[i];
    }
    host = host * (d->grid[3] / d->host[3]) + at[3] / d->host[3];
    local = local * d->host[3] + at[3] % d->host[3];
    return (int32_t)(host * syi_t5x_host_devices(d) + local);
}

/* ---- requests ---- */

/* Product of a submesh, 1 when it has no dims; stays small: every caller refused large dims before. */
static int64_t submesh_size(const struct syi_model_parallelism *m)
{
    int64_t n = 1;
    for (int i = 0; i < m->n_submesh; i++) {
        if (m->submesh[i] > SYI_T5X_DEVICES || m->submesh[i] < -SYI_T5X_DEVICES) return INT64_MAX;
        n *= m->submesh[i];
        if (n > SYI_T5X_DEVICES || n < -SYI_T5X_DEVICES) return INT64_MAX;
    }
    return n;
}

int syi_t5x_two_data_axes(int64_t num_experts, int64_t num_devices, const struct syi_model_parallelism *given,
                          int *two_data_axes, struct sy_error *err)
{
    *two_data_axes = 0;
    if (given->has_partitions == given->has_submesh)
        return syi_error(err, SY_EINVAL,
                         "exactly one of num_partitions and model_parallel_submesh must be given, not %s",
                         given->has_submesh ? "both" : "none");
    if (num_experts == 0 || num_devices <= num_experts) return SY_OK;
    *two_data_axes = given->has_partitions ? given->num_partitions <= 1 : submesh_size(given) <= 1;
    return SY_OK;
}

/* Python's floor division: a negative number of experts is nonsense that T5X lets through. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

int syi_t5x_partitioner(int moe, int64_t num_experts, int64_t num_devices,
                        const struct syi_model_parallelism *given, struct syi_model_parallelism *used,
                        int *two_data_axes, struct sy_error *err)
{
    int status = SY_OK;
    *used = *given;
    *two_data_axes = 0;
    if (moe) status = syi_t5x_two_data_axes(num_experts, num_devices, given, two_data_axes, err);
    if (status) return status;
    if (*two_data_axes)
        *used = (struct syi_model_parallelism){.has_partitions = 1,
                                               .num_partitions = floor_divide(num_devices, num_experts)};
    int partitions = used->has_partitions && used->num_partitions != 0;
    if (!partitions && !(used->has_submesh && used->n_submesh))
        return syi_error(err, SY_EINVAL,
                         "at least one of num_partitions and model_parallel_submesh must be set");
    return SY_OK;
}

/* ---- the submesh of a number of partitions ---- */

/* T5X's table for a number of partitions on a TPU; NULL where it has none. */
static const int64_t *default_submesh(const struct syi_t5x_devices *d, int64_t partitions)
{
    static const int64_t v3[5][4] = {{1, 1, 1, 1}, {1, 1, 1, 2}, {2, 1, 1, 2}, {2, 2, 1, 2}, {4, 2, 1, 2}};
    static const int64_t v4[5][4] = {{1, 1, 1, 1}, {1, 2, 1, 1}, {2, 2, 1, 1}, {4, 2, 1, 1}, {4, 4, 1, 1}};
    static const int64_t x4[4] = {4, 1, 1, 1}, x8[4] = {8, 2, 1, 1}, z8[4] = {1, 1, 8, 1},
                         z16[4] = {1, 1, 16, 1};
    int at = 0;
    while (at < 5 && (int64_t)1 << at != partitions) at++;
    if (at == 5 || d->rank != 4) return NULL;
    if (d->platform == SYI_T5X_TPU_V3) return v3[at];
    if (d->platform != SYI_T5X_TPU_V4 || d->grid[3] != 1) return NULL;
    if (partitions == 4 && d->grid[0] >= 4) return x4;
    if (partitions == 8 && d->grid[2] >= 8) return z8;
    if (partitions == 16 && d->grid[2] >= 16) return z16;
    return partitions == 16 && d->grid[0] >= 8 ? x8 : v4[at];
}

/* ---- the order of devices ---- */

/* Each dim of the grid as four digits, major to minor: hosts and devices of the data axis, hosts and devices
 * of the model axis. The mesh counts them digit by digit: the same digit of every dim together. */
struct tiling {
    int dim[SYI_T5X_DIMS]; /* dim of the grid that stands at this place */
    int64_t digit[SYI_T5X_DIMS][4];
};

static int too_wide(struct sy_error *err)
{
    return syi_error(err, SY_EINVAL, "the model-parallel submesh does not divide the number of devices");
}

/* The submesh must tile the grid; dims that one of them lacks are not compared, as in T5X. */
static int check_submesh(const struct syi_t5x_devices *d, const struct syi_model_parallelism *m,
                         struct sy_error *err)
{
    int n = m->n_submesh < d->rank ? m->n_submesh : d->rank;
    for (int i = 0; i < m->n_submesh; i++)
        if (m->submesh[i] < 1)
            return syi_error(err, SY_EINVAL, "dim %d of the model-parallel submesh is %lld: at least 1", i,
                             (long long)m->submesh[i]);
    for (int i = 0; i < n; i++)
        if (d->grid[i] % m->submesh[i])
            return syi_error(err, SY_EMISMATCH,
                             "dim %d of the model-parallel submesh is %lld, which does not divide the %lld "
                             "devices there",
                             i, (long long)m->submesh[i], (long long)d->grid[i]);
    if (n != d->rank || (d->rank == 4 && m->n_submesh != 4))
        return syi_error(err, SY_EINVAL, "a model-parallel submesh of %d dims on devices in %d", m->n_submesh,
                         d->rank);
    int64_t size = submesh_size(m);
    return syi_t5x_devices_count(d) % size ? too_wide(err) : SY_OK;
}

/* A TPU's planes whose devices are put in Z-major order, which makes a host's part contiguous without tiling:
 * sets tiles' dims, returns whether it did. */
static int z_major(const struct syi_t5x_devices *d, const int64_t *m, struct tiling *t)
{
    int whole[3], many[3];
    if (d->rank != 4) return 0;
    for (int i = 0; i < 3; i++) {
        many[i] = d->grid[i] > 1;
        whole[i] = m[i] == d->grid[i] && many[i];
    }
    int other = -1; /* the dim that changes places with z */
    if ((whole[0] && m[1] == 1 && m[2] == 1) || (m[0] == 1 && whole[1] && whole[2])) other = 1;
    if ((whole[1] && m[0] == 1 && m[2] == 1) || (m[1] == 1 && whole[0] && whole[2])) other = 0;
    if (other < 0) return 0;
    t->dim[other] = 2;
    t->dim[2] = other;
    return 1;
}

static int digits_by_host(int64_t g, int64_t m, int64_t host, int64_t digit[4], struct sy_error *err)
{
    int64_t d = g / m;
    if (m >= host ? m % host : host % m)
        return syi_error(err, SY_EMISMATCH,
                         "to tile the mesh by hosts, %lld devices of the submesh must be a factor or a "
                         "multiple of a host's %lld",
                         (long long)m, (long long)host);
    const int64_t wide[4] = {d, 1, m / host, host},
                  narrow[4] = {m < host ? d / (host / m) : d, m < host ? host / m : 1, 1, m};
    memcpy(digit, m >= host ? wide : narrow, sizeof wide);
    return SY_OK;
}

static int tile(const struct syi_t5x_devices *d, const int64_t *m, struct tiling *t, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < d->rank; i++) t->dim[i] = i;
    int plain = z_major(d, m, t);
    if (plain && m[3] != d->grid[3])
        return syi_error(err, SY_EMISMATCH, "the submesh has %lld of a chip's %lld cores: take all",
                         (long long)m[3], (long long)d->grid[3]);
    for (int i = 0; !status && i < d->rank; i++) {
        int dim = t->dim[i];
        if (plain)
            memcpy(t->digit[i], (int64_t[4]){d->grid[dim] / m[dim], 1, 1, m[dim]}, sizeof t->digit[i]);
        else /* outside TPUs T5X takes the whole grid for one host's */
            status = digits_by_host(d->grid[dim], m[dim], d->rank == 2 ? d->grid[dim] : d->host[dim],
                                    t->digit[i], err);
    }
    return status;
}

/* Device of flat position k of the mesh. */
static int32_t device_at(const struct syi_t5x_devices *d, const struct tiling *t, int64_t k)
{
    int64_t at[SYI_T5X_DIMS] = {0}, weight[SYI_T5X_DIMS] = {1, 1, 1, 1};
    for (int digit = 3; digit >= 0; digit--)
        for (int i = d->rank - 1; i >= 0; i--) {
            at[t->dim[i]] += k % t->digit[i][digit] * weight[i];
            k /= t->digit[i][digit];
            weight[i] *= t->digit[i][digit];
        }
    return device_id(d, at);
}

/* ---- the mesh ---- */

int syi_t5x_mesh_new(struct syi_t5x_mesh *mesh, const struct syi_t5x_devices *d,
                     const struct syi_model_parallelism *used, struct sy_error *err)
{
    struct tiling t = {0};
    struct syi_model_parallelism m = *used;
    int64_t n = syi_t5x_devices_count(d);
    memset(mesh, 0, sizeof *mesh);
    if (!(m.has_submesh && m.n_submesh) && d->rank == 2) { /* one row a host, whatever was asked for */
        m.n_submesh = 2;
        m.submesh[0] = 1;
        m.submesh[1] = d->grid[1];
    } else if (!(m.has_submesh && m.n_submesh)) {
        const int64_t *submesh = default_submesh(d, m.num_partitions);
        if (!submesh)
            return syi_error(err, SY_EINVAL,
                             "there is no default mesh for %lld partitions of these devices: give "
                             "model_parallel_submesh",
                             (long long)m.num_partitions);
        m.n_submesh = 4;
        memcpy(m.submesh, submesh, 4 * sizeof *submesh);
    }
    int status = check_submesh(d, &m, err);
    if (!status) status = tile(d, m.submesh, &t, err);
    if (status) return status;
    mesh->device = syi_alloc((size_t)n * sizeof *mesh->device, err);
    if (!mesh->device) return SY_ENOMEM;
    for (int64_t k = 0; k < n; k++) mesh->device[k] = device_at(d, &t, k);
    mesh->size[1] = submesh_size(&m);
    mesh->size[0] = n / mesh->size[1];
    return SY_OK;
}

void syi_t5x_mesh_free(struct syi_t5x_mesh *mesh)
{
    syi_free(mesh->device);
    memset(mesh, 0, sizeof *mesh);
}

void syi_t5x_running_mesh(const int64_t t5x[2], int64_t num_experts, int two_data_axes, int64_t running[3])
{
    running[0] = num_experts ? 1 : t5x[0];
    running[1] = num_experts ? t5x[0] : 1;
    running[2] = t5x[1];
    if (!num_experts || !two_data_axes) return;
    running[0] = t5x[1]; /* the model axis carries data: experts are copied along it */
    running[2] = 1;
}
