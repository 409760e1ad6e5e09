/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the host can live with a plugin, from its descriptor alone, and the copy of its tables in the
 * host's sizes. Refuses; does not load. */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "base/plugin_folders.h"
#include "runtime/plugin.h"

/* ---- checks ---- */

/* Sizes since ABI 0.1: no plugin has less. They stay when the structures grow. */
#define UP_TO(type, field) (offsetof(struct type, field) + sizeof(((struct type *)0)->field))
enum {
    DESC_BYTES_0_1 = UP_TO(sy_backend_desc, collectives),
    DEVICE_BYTES_0_1 = UP_TO(sy_device_table, memory_info),
    COLLECTIVE_BYTES_0_1 = UP_TO(sy_collective_table, abort),
};

const struct syi_library_kind *syi_plugin_kind(void)
{
    static const struct syi_library_kind kind = {
        .what = "backend",
        .prefix = SYI_PLUGIN_PREFIX,
        .symbol = "sy_backend_",
        .advice = "`switchyard backends` lists what there is, ",
        SYI_LIBRARY_VERSIONS(SY_ABI),
        .least_bytes = DESC_BYTES_0_1,
    };
    return &kind;
}

static const char *kernels_fault(const struct sy_backend_desc *desc)
{
    if (!desc->kernels || desc->n_kernels == 0) return "announces kernels but has none";
    for (uint64_t i = 0; i < desc->n_kernels; i++)
        if (!desc->kernels[i].run || !desc->kernels[i].name) return "has a kernel without function or name";
    return NULL;
}

static const char *table_fault(const struct sy_backend_desc *desc)
{
    const char *why = NULL;
    if (!(desc->caps & (SY_CAP_KERNELS | SY_CAP_COLLECTIVES | SY_CAP_DEVICE))) return "offers nothing";
    if (desc->caps & SY_CAP_KERNELS) why = kernels_fault(desc);
    if (!why && desc->caps & SY_CAP_DEVICE && (!desc->device || desc->device->bytes < DEVICE_BYTES_0_1))
        why = "has no device table, or one that is too short";
    if (!why && desc->caps & SY_CAP_COLLECTIVES &&
        (!desc->collectives || desc->collectives->bytes < COLLECTIVE_BYTES_0_1))
        why = "has no collectives table, or one that is too short";
    return why;
}

/* ---- functions a plugin left out ---- */

static int no_probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host;
    *score = 1;
    snprintf(text, text_bytes, "does not say");
    return SY_OK;
}
static int no_open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                   uint32_t *features, char *description, size_t description_bytes)
{
    (void)host, (void)options, (void)context, (void)features, (void)description, (void)description_bytes;
    return SY_EUNSUPPORTED;
}
static void no_close(void *context)
{
    (void)context;
}
static int no_alloc(void *context, uint64_t bytes, void **memory)
{
    (void)context, (void)bytes, (void)memory;
    return SY_EUNSUPPORTED;
}
static void no_free(void *context, void *memory)
{
    (void)context, (void)memory;
}
static int no_copy(void *context, void *to, const void *from, uint64_t bytes)
{
    (void)context, (void)to, (void)from, (void)bytes;
    return SY_EUNSUPPORTED;
}
static int no_sync(void *context)
{
    (void)context;
    return SY_EUNSUPPORTED;
}
static int no_memory_info(void *context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)context, (void)free_bytes, (void)total_bytes;
    return SY_EUNSUPPORTED;
}
static int no_zero(void *context, void *memory, uint64_t bytes)
{
    (void)context, (void)memory, (void)bytes;
    return SY_EUNSUPPORTED;
}
static int no_copy_rows(void *context, void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                        uint64_t row, uint64_t rows)
{
    (void)context, (void)to, (void)to_stride, (void)from, (void)from_stride, (void)row, (void)rows;
    return SY_EUNSUPPORTED;
}
static int no_world(void *context, int *rank, int *ranks)
{
    (void)context, (void)rank, (void)ranks;
    return SY_EUNSUPPORTED;
}
static int no_group_new(void *context, const int *ranks, int n, void **group)
{
    (void)context, (void)ranks, (void)n, (void)group;
    return SY_EUNSUPPORTED;
}
static int no_start(void *context, void *group, const struct sy_collective *call, void **request)
{
    (void)context, (void)group, (void)call, (void)request;
    return SY_EUNSUPPORTED;
}
static int no_wait(void *context, void *request)
{
    (void)context, (void)request;
    return SY_EUNSUPPORTED;
}
static int no_linked(void *context)
{
    (void)context;
    return 0;
}
static int no_id(void *context, void *id)
{
    (void)context, (void)id;
    return SY_EUNSUPPORTED;
}
static int no_link(void *context, const void *id, int rank, int n, void **group)
{
    (void)context, (void)id, (void)rank, (void)n, (void)group;
    return SY_EUNSUPPORTED;
}
static int no_link_start(void *context, void *group, const struct sy_collective *call)
{
    (void)context, (void)group, (void)call;
    return SY_EUNSUPPORTED;
}
static void no_abort(void *context, const char *text)
{
    (void)context, (void)text;
}
static int no_conclude(void *context, int *status, char *text, size_t text_bytes)
{
    (void)context, (void)status, (void)text, (void)text_bytes;
    return SY_EUNSUPPORTED;
}

#define FILL(table, field, stub)                                                                             \
    if (!(table)->field) (table)->field = stub

static void fill_holes(struct syi_plugin *plugin)
{
    struct sy_backend_desc *desc = &plugin->desc;
    struct sy_device_table *device = &plugin->device;
    struct sy_collective_table *collectives = &plugin->collectives;
    struct sy_link_table *links = &plugin->links;

    FILL(desc, version, "unknown");
    FILL(desc, build, "unknown");
    FILL(desc, probe, no_probe);
    FILL(desc, open, no_open);
    FILL(desc, close, no_close);
    FILL(device, alloc, no_alloc);
    FILL(device, free, no_free);
    FILL(device, copy, no_copy);
    FILL(device, sync, no_sync);
    FILL(device, memory_info, no_memory_info);
    FILL(device, copy_async, device->copy);
    FILL(device, zero, no_zero);
    FILL(device, copy_rows, no_copy_rows);
    if (!device->capture_end || !device->replay || !device->graph_free) device->capture_begin = NULL;
    FILL(links, linked, no_linked);
    FILL(links, id_new, no_id);
    FILL(links, group_new, no_link);
    FILL(links, group_free, no_free);
    FILL(links, start, no_link_start);
    FILL(links, wait, no_wait);
    FILL(collectives, world, no_world);
    FILL(collectives, group_new, no_group_new);
    FILL(collectives, group_free, no_free);
    FILL(collectives, start, no_start);
    FILL(collectives, wait, no_wait);
    FILL(collectives, barrier, no_sync);
    FILL(collectives, abort, no_abort);
    FILL(collectives, conclude, no_conclude);
}

static size_t least(uint64_t a, size_t b)
{
    return a < b ? (size_t)a : b;
}

int syi_plugin_check(const char *name, const char *path, const struct sy_backend_desc *found,
                     struct syi_plugin *plugin, struct sy_error *err)
{
    memset(plugin, 0, sizeof(*plugin));
    const char *why = NULL;
    int status = syi_library_check(syi_plugin_kind(), name, path, found, err);
    if (status) return status;
    memcpy(&plugin->desc, found, least(found->desc_bytes, sizeof(plugin->desc)));
    if (!plugin->desc.name || strcmp(plugin->desc.name, name) != 0)
        why = "calls itself by another name than its file";
    if (!why) why = table_fault(&plugin->desc);
    if (why) return syi_library_refuse(syi_plugin_kind(), name, path, found, why, err);
    if (plugin->desc.caps & SY_CAP_DEVICE)
        memcpy(&plugin->device, plugin->desc.device,
               least(plugin->desc.device->bytes, sizeof(plugin->device)));
    if (plugin->desc.caps & SY_CAP_COLLECTIVES)
        memcpy(&plugin->collectives, plugin->desc.collectives,
               least(plugin->desc.collectives->bytes, sizeof(plugin->collectives)));
    if (plugin->desc.caps & SY_CAP_DEVICE && plugin->desc.links) {
        memcpy(&plugin->links, plugin->desc.links, least(plugin->desc.links->bytes, sizeof(plugin->links)));
        plugin->desc.links = &plugin->links;
    } else {
        plugin->desc.links = NULL;
    }
    plugin->desc.device = plugin->desc.caps & SY_CAP_DEVICE ? &plugin->device : NULL;
    plugin->desc.collectives = plugin->desc.caps & SY_CAP_COLLECTIVES ? &plugin->collectives : NULL;
    if (!(plugin->desc.caps & SY_CAP_KERNELS)) plugin->desc.n_kernels = 0;
    fill_holes(plugin);
    plugin->path = syi_strdup(path, err);
    return plugin->path ? SY_OK : SY_ENOMEM;
}

void syi_plugin_free(struct syi_plugin *plugin)
{
    syi_free(plugin->path);
    memset(plugin, 0, sizeof(*plugin));
}
