/* SPDX-License-Identifier: Apache-2.0 */
/* The layout cases of kind partitioner: meshes of the devices of CPU, GPU and TPU jobs, and what each host
 * reads of a batch. */
#include "config.h"

#include <string.h>

#include "verify/data_layout.h"
#include "verify/partitioner.h"

/* ---- devices ---- */

static int read_grid(const struct verify_case *c, const char *key, int64_t grid[SYI_T5X_DIMS],
                     struct sy_error *err)
{
    int n = 0;
    uint32_t list;
    int status = verify_member(c, c->config, key, SYI_JSON_ARRAY, &list, err);
    if (!status) status = verify_list_ints(c, list, SYI_T5X_DIMS, grid, &n, err);
    if (!status && n != SYI_T5X_DIMS) status = syi_error(err, SY_EFORMAT, "%s: expected 4 dims", key);
    return status;
}

static int tpu_devices(const struct verify_case *c, struct syi_t5x_devices *d, struct sy_error *err)
{
    const char *kind;
    int status = verify_text(c, "device_kind", &kind, err);
    verify_ignore(c, "global_bounds host_bounds");
    if (!status) status = read_grid(c, "global_bounds", d->grid, err);
    if (!status) status = read_grid(c, "host_bounds", d->host, err);
    if (status) return status;
    d->rank = 4;
    d->platform = !strcmp(kind, "TPU v2") || !strcmp(kind, "TPU v3") ? SYI_T5X_TPU_V3
                  : !strcmp(kind, "TPU v4")                          ? SYI_T5X_TPU_V4
                                                                     : SYI_T5X_OTHER;
    return SY_OK;
}

static int read_devices(const struct verify_case *c, struct syi_t5x_devices *d, struct sy_error *err)
{
    int64_t hosts, all;
    const char *platform;
    memset(d, 0, sizeof *d);
    int status = verify_text(c, "platform", &platform, err);
    if (!status) status = verify_int(c, "num_hosts", 1, SYI_T5X_DEVICES, &hosts, err);
    if (!status) status = verify_int(c, "num_devices", 1, SYI_T5X_DEVICES, &all, err);
    if (status) return status;
    if (!strcmp(platform, "tpu")) {
        status = tpu_devices(c, d, err);
    } else {
        verify_ignore(c, "device_kind");
        d->rank = 2;
        d->platform = !strcmp(platform, "gpu") ? SYI_T5X_GPU : SYI_T5X_CPU;
        d->grid[0] = hosts;
        d->host[0] = 1;
        status = verify_int(c, "devices_per_host", 1, SYI_T5X_DEVICES, &d->grid[1], err);
        d->host[1] = d->grid[1];
    }
    if (!status) status = syi_t5x_devices_check(d, err);
    if (!status &&
        (syi_t5x_devices_count(d) != all || syi_t5x_devices_count(d) / syi_t5x_host_devices(d) != hosts))
        status = syi_error(err, SY_EINVAL, "num_hosts and num_devices do not fit the grid of devices");
    return status;
}

/* ---- answers ---- */

static void put_mesh(struct syi_json_writer *answer, const struct syi_t5x_mesh *mesh, int with_ids)
{
    syi_json_open(answer, '{');
    syi_json_put_key(answer, "axis_names");
    verify_put_mesh_axis(answer, SYI_T5X_DATA | SYI_T5X_MODEL);
    syi_json_put_key(answer, "shape");
    syi_json_open(answer, '[');
    for (int i = 0; i < 2; i++) syi_json_put_integer(answer, mesh->size[i]);
    syi_json_close(answer, ']');
    if (with_ids) syi_json_put_key(answer, "device_ids");
    if (with_ids) syi_json_open(answer, '[');
    for (int64_t i = 0; with_ids && i < mesh->size[0]; i++) {
        syi_json_open(answer, '[');
        for (int64_t j = 0; j < mesh->size[1]; j++)
            syi_json_put_integer(answer, mesh->device[i * mesh->size[1] + j]);
        syi_json_close(answer, ']');
    }
    if (with_ids) syi_json_close(answer, ']');
    syi_json_close(answer, '}');
}

static void put_pair(struct syi_json_writer *answer, const char *key, const int64_t value[2])
{
    syi_json_put_key(answer, key);
    syi_json_open(answer, '{');
    syi_json_put_key_integer(answer, "data", value[0]);
    syi_json_put_key_integer(answer, "model", value[1]);
    syi_json_close(answer, '}');
}

static void put_layout(struct syi_json_writer *answer, const struct syi_data_layout *layout)
{
    syi_json_open(answer, '{');
    syi_json_put_key_integer(answer, "batch_size", layout->batch_size);
    syi_json_put_key_integer(answer, "shard_id", layout->shard_id);
    syi_json_put_key_integer(answer, "num_shards", layout->num_shards);
    syi_json_put_key(answer, "is_first_host_in_replica_set");
    syi_json_put_bool(answer, layout->is_first_host_in_replica_set);
    syi_json_close(answer, '}');
}

/* A partitioner of a row, and what it made. */
struct partitioner {
    const struct syi_t5x_devices *devices;
    struct syi_model_parallelism used;
    int moe, two_data_axes;
    struct syi_t5x_mesh mesh;
};

static int put_layouts(const struct partitioner *p, const struct verify_row *row,
                       struct syi_json_writer *answer, struct sy_error *err)
{
    uint32_t sizes;
    int64_t host;
    struct syi_t5x_chunks chunks;
    struct sy_error why = {0};
    const struct syi_json_node *node = row->item->json.nodes;
    int status = verify_member(row->item, row->input, "batch_sizes", SYI_JSON_ARRAY, &sizes, err);
    if (!status)
        status =
            verify_member_int(row->item, row->input, "process_index", 0, SYI_T5X_DEVICES, NULL, &host, err);
    if (status) return status;
    int split = syi_t5x_chunks(&p->mesh, p->devices, host, &chunks, &why);
    if (split && !verify_is_answer(split)) return split;
    syi_json_put_key(answer, "local_chunker");
    if (split) {
        verify_put_error(answer, split);
    } else {
        syi_json_open(answer, '{');
        put_pair(answer, "chunk_ids", chunks.id);
        put_pair(answer, "num_chunks", chunks.n);
        syi_json_close(answer, '}');
    }
    syi_json_put_key(answer, "layouts");
    syi_json_open(answer, '[');
    for (uint32_t i = node[sizes].first; i != SYI_JSON_NONE; i = node[i].next) {
        struct syi_data_layout layout;
        if (node[i].kind != SYI_JSON_NULL && (node[i].kind != SYI_JSON_NUMBER || !node[i].is_integer))
            return syi_error(err, SY_EFORMAT, "batch_sizes: expected integers or null");
        int bad = split
                      ? split
                      : syi_data_layout(&p->mesh, &chunks, p->two_data_axes, node[i].integer, &layout, &why);
        if (bad)
            verify_put_error(answer, bad);
        else
            put_layout(answer, &layout);
    }
    syi_json_close(answer, ']');
    return SY_OK;
}

/* What the constructor decided. */
static void put_request(const struct partitioner *p, struct syi_json_writer *answer)
{
    syi_json_put_key(answer, "num_partitions");
    if (p->used.has_partitions)
        syi_json_put_integer(answer, p->used.num_partitions);
    else
        syi_json_put_null(answer);
    syi_json_put_key(answer, "model_parallel_submesh");
    if (p->used.has_submesh) syi_json_open(answer, '[');
    for (int i = 0; i < p->used.n_submesh; i++) syi_json_put_integer(answer, p->used.submesh[i]);
    if (p->used.has_submesh)
        syi_json_close(answer, ']');
    else
        syi_json_put_null(answer);
    if (!p->moe) return;
    syi_json_put_key(answer, "two_data_axes");
    syi_json_put_bool(answer, p->two_data_axes);
}

static int put_partitioner(struct partitioner *p, const struct verify_row *row,
                           struct syi_json_writer *answer, struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    uint32_t expected = syi_json_member(json, row->expected, "mesh");
    int with_ids = syi_json_member(json, expected, "device_ids") != SYI_JSON_NONE;
    int spec = syi_data_spec(p->two_data_axes);
    struct sy_error why = {0};
    syi_json_open(answer, '{');
    put_request(p, answer);
    int status = syi_t5x_mesh_new(&p->mesh, p->devices, &p->used, &why);
    if (status && !verify_is_answer(status)) return syi_error(err, status, "%s", why.text);
    syi_json_put_key(answer, "mesh");
    if (status) {
        verify_put_error(answer, status);
        syi_json_close(answer, '}');
        return SY_OK;
    }
    put_mesh(answer, &p->mesh, with_ids);
    syi_json_put_key(answer, "data_axis");
    verify_put_mesh_axis(answer, spec);
    syi_json_put_key(answer, "data_partition_spec");
    verify_put_spec(answer, &spec, 1);
    if (p->moe) syi_json_put_key(answer, "trainer_data_partition_spec");
    if (p->moe) verify_put_spec(answer, &spec, 1);
    status = put_layouts(p, row, answer, err);
    syi_json_close(answer, '}');
    return status;
}

static int layout_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                      struct sy_error *err)
{
    uint32_t name;
    int64_t experts;
    struct syi_model_parallelism given;
    struct partitioner p = {.devices = arg};
    int status = verify_member(row->item, row->input, "partitioner", SYI_JSON_STRING, &name, err);
    if (!status) status = verify_parallelism(row->item, row->input, &given, err);
    if (!status)
        status = verify_member_int(row->item, row->input, "num_experts", 0, INT32_MAX, NULL, &experts, err);
    if (status) return status;
    const char *partitioner = syi_json_string(&row->item->json, name);
    p.moe = !strcmp(partitioner, "moe");
    if (!p.moe && strcmp(partitioner, "pjit"))
        return syi_error(err, SY_EFORMAT, "partitioner: expected moe or pjit");
    status = syi_t5x_partitioner(p.moe, experts, syi_t5x_devices_count(p.devices), &given, &p.used,
                                 &p.two_data_axes, err);
    if (!status) status = put_partitioner(&p, row, answer, err);
    syi_t5x_mesh_free(&p.mesh);
    return status;
}

int verify_layout(const struct verify_case *c, uint32_t inputs, uint32_t expected,
                  struct verify_report *report, struct sy_error *err)
{
    struct syi_t5x_devices devices;
    int status = read_devices(c, &devices, err);
    return status ? status
                  : verify_rows(c, "layout", inputs, expected,
                                "partitioner num_experts num_partitions model_parallel_submesh process_index "
                                "batch_sizes",
                                layout_row, &devices, report, err);
}
