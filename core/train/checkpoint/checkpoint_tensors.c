/* SPDX-License-Identifier: Apache-2.0 */
/* Between a session's tensors and a safetensors file: names, extents, and which rank writes which block. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "train/checkpoint/checkpoint_parts.h"

/* A session's tensors before they are in the order of their names. */
struct entry {
    struct syi_safetensors_tensor tensor; /* its name is owned */
    struct syi_checkpoint_source source;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor.name, ((const struct entry *)b)->tensor.name);
}

static int by_tensor(const void *name, const void *leaf)
{
    const char *tensor = ((const struct syi_checkpoint_leaf *)leaf)->tensor;
    return tensor ? strcmp(name, tensor) : -1;
}

static const struct syi_checkpoint_leaf *leaf_of(const struct syi_checkpoint_leaves *leaves,
                                                 const char *tensor)
{
    return leaves ? bsearch(tensor, leaves->leaf, leaves->n, sizeof *leaves->leaf, by_tensor) : NULL;
}

/* Parameters lie below target/, as in T5X's state_dict; state tensors have their full names already, unless a leaf gives
 * them another. */
static int describe_shared(struct entry *entry, const struct syi_shared *shared,
                           const struct syi_checkpoint_leaves *leaves, struct sy_error *err)
{
    const struct syi_checkpoint_leaf *leaf = leaf_of(leaves, shared->name);
    const char *name = leaf ? leaf->name : shared->name;
    entry->source.shared = shared;
    entry->tensor.dtype = syi_safetensors_dtype_of((enum sy_dtype)shared->info.dtype);
    entry->tensor.rank = leaf && leaf->is_scalar ? 0 : shared->info.rank;
    memcpy(entry->tensor.dims, shared->global, (size_t)entry->tensor.rank * sizeof entry->tensor.dims[0]);
    entry->tensor.name = syi_format("%s%s", shared->info.kind == SYI_PARAM ? "target/" : "", name);
    return entry->tensor.name ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
}

static int describe_leaf(struct entry *entry, const struct syi_checkpoint_leaf *leaf, struct sy_error *err)
{
    entry->tensor = leaf->described;
    entry->source.data = leaf->data;
    entry->tensor.name = syi_strdup(leaf->name, err);
    return entry->tensor.name ? SY_OK : SY_ENOMEM;
}

/* entry: room for all; *n counts those that are made, also on failure. */
static int collect(const struct syi_session *session, enum syi_kind kind,
                   const struct syi_checkpoint_leaves *leaves, struct entry *entry, size_t *n,
                   struct sy_error *err)
{
    const struct syi_shared *shared;
    int status = SY_OK;
    for (size_t i = 0; (shared = syi_session_shared(session, i)) && !status; i++) {
        if (shared->info.kind != kind) continue;
        status = describe_shared(&entry[*n], shared, leaves, err);
        *n += !status;
    }
    for (size_t i = 0; leaves && i < leaves->n && !status; i++) {
        if (leaves->leaf[i].tensor) continue;
        status = describe_leaf(&entry[*n], &leaves->leaf[i], err);
        *n += !status;
    }
    if (!status) qsort(entry, *n, sizeof *entry, by_name);
    return status;
}

int syi_checkpoint_tensors(const struct syi_session *session, enum syi_kind kind,
                           const struct syi_checkpoint_leaves *leaves, struct syi_checkpoint_tensors *tensors,
                           struct sy_error *err)
{
    const struct syi_shared *shared;
    size_t room = leaves ? leaves->n : 0;
    memset(tensors, 0, sizeof *tensors);
    for (size_t i = 0; (shared = syi_session_shared(session, i)); i++) room += shared->info.kind == kind;
    tensors->mesh = syi_session_mesh(session);
    tensors->session = session;
    tensors->list = syi_alloc(room * sizeof *tensors->list, err);
    tensors->source = syi_alloc(room * sizeof *tensors->source, err);
    struct entry *entry = syi_alloc(room * sizeof *entry, err);
    int status = SY_ENOMEM;
    if (tensors->list && tensors->source && entry)
        status = collect(session, kind, leaves, entry, &tensors->n, err);
    for (size_t i = 0; i < tensors->n; i++) {
        tensors->list[i] = entry[i].tensor;
        tensors->source[i] = entry[i].source;
    }
    syi_free(entry);
    return status;
}

void syi_checkpoint_tensors_free(struct syi_checkpoint_tensors *tensors)
{
    for (size_t i = 0; i < tensors->n; i++) syi_free((char *)(uintptr_t)tensors->list[i].name);
    syi_free(tensors->list);
    syi_free(tensors->source);
    memset(tensors, 0, sizeof *tensors);
}

static int writes(const struct syi_checkpoint_tensors *tensors, size_t i, int rank)
{
    const struct syi_shared *shared = tensors->source[i].shared;
    return shared ? syi_mesh_is_first(tensors->mesh, &shared->info, rank) : rank == 0;
}

int syi_checkpoint_tensors_any(const struct syi_checkpoint_tensors *tensors, int rank)
{
    for (size_t i = 0; i < tensors->n; i++)
        if (writes(tensors, i, rank)) return 1;
    return 0;
}

int syi_checkpoint_tensors_write(const struct syi_checkpoint_tensors *tensors, int rank, int snapshot,
                                 const struct syi_safetensors *file, struct sy_error *err)
{
    static const int64_t nowhere[SY_MAX_DIMS];
    uint64_t written = 0; /* of the data section, without holes */
    int status = SY_OK;
    for (size_t i = 0; i < tensors->n && !status; i++) {
        const struct syi_shared *shared = tensors->source[i].shared;
        const struct syi_safetensors_tensor *there = syi_safetensors_find(file, tensors->list[i].name);
        if (!writes(tensors, i, rank)) continue;
        const void *data = tensors->source[i].data;
        if (shared) data = snapshot ? syi_session_snapshot_of(tensors->session, shared) : shared->tensor.data;
        status = shared ? syi_safetensors_write_block(file, there, shared->tensor.first, shared->tensor.dim,
                                                      data, err)
                        : syi_safetensors_write_block(file, there, nowhere, tensors->list[i].dims, data, err);
        if (!status && there->offset == written) written += there->bytes;
        syi_safetensors_wrote(file, written);
    }
    return status;
}

/* ---- comparing ---- */

/* "F32 [128,256]" */
static void describe(const struct syi_safetensors_tensor *tensor, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s [", syi_safetensors_dtype_name(tensor->dtype));
    for (int d = 0; d < tensor->rank && used < bytes; d++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%lld", d ? "," : "", (long long)tensor->dims[d]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
}

/* A parameter that is stored as bfloat16 is one of float32 that was rounded. */
static int fits(const struct syi_safetensors_tensor *there, const struct syi_safetensors_tensor *wanted,
                const struct syi_shared *shared)
{
    int narrow = shared && shared->info.kind == SYI_PARAM && wanted->dtype == SYI_SAFETENSORS_F32 &&
                 there->dtype == SYI_SAFETENSORS_BF16;
    return (there->dtype == wanted->dtype || narrow) && there->rank == wanted->rank &&
           !memcmp(there->dims, wanted->dims, (size_t)there->rank * sizeof there->dims[0]);
}

/* there, wanted: of that name; NULL where it is missing. State that does not fit is that of an optimizer with other keys. */
static int refuse(const struct syi_safetensors *file, const char *name,
                  const struct syi_safetensors_tensor *there, const struct syi_safetensors_tensor *wanted,
                  struct sy_error *err)
{
    const char *what = strncmp(name, "state/", 6) ? "model" : "optimizer";
    char has[256], wants[256];
    if (!there)
        return syi_error(err, SY_EMISMATCH,
                         "checkpoint of another %s: it lacks %s, which the run file's %s has (%s)", what,
                         name, what, file->path);
    if (!wanted)
        return syi_error(err, SY_EMISMATCH,
                         "checkpoint of another %s: it has %s, which the run file's %s lacks (%s)", what,
                         name, what, file->path);
    describe(there, has, sizeof has);
    describe(wanted, wants, sizeof wants);
    return syi_error(err, SY_EMISMATCH,
                     "checkpoint of another %s: %s has shape %s, the run file's %s wants %s (%s)", what, name,
                     has, what, wants, file->path);
}

/* Both lists are in the order of their names, so the first that differs is met first. */
int syi_checkpoint_tensors_compare(const struct syi_checkpoint_tensors *tensors,
                                   const struct syi_safetensors *file, struct sy_error *err)
{
    size_t i = 0, j = 0;
    while (i < tensors->n || j < file->n_tensors) {
        const struct syi_safetensors_tensor *wanted = i < tensors->n ? &tensors->list[i] : NULL;
        const struct syi_safetensors_tensor *there = j < file->n_tensors ? &file->tensors[j] : NULL;
        int order = !wanted ? 1 : !there ? -1 : strcmp(wanted->name, there->name);
        if (order < 0) return refuse(file, wanted->name, NULL, wanted, err);
        if (order > 0) return refuse(file, there->name, there, NULL, err);
        if (!fits(there, wanted, tensors->source[i].shared))
            return refuse(file, there->name, there, wanted, err);
        i++, j++;
    }
    return SY_OK;
}

int syi_checkpoint_tensor_read(const struct syi_safetensors *file, const struct syi_safetensors_tensor *there,
                               const struct syi_shared *shared, struct sy_error *err)
{
    const struct sy_tensor *local = &shared->tensor;
    int is_wide = there->dtype == syi_safetensors_dtype_of((enum sy_dtype)shared->info.dtype);
    size_t n = (size_t)syi_tensor_count(&shared->info);
    void *to = is_wide ? local->data : (uint16_t *)local->data + n;
    int status = syi_safetensors_read_block(file, there, local->first, local->dim, to, err);
    if (!status && !is_wide) syi_bf16_widen(local->data, n);
    return status;
}

int syi_checkpoint_tensors_read(const struct syi_checkpoint_tensors *tensors,
                                const struct syi_safetensors *file, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < tensors->n && !status; i++)
        if (tensors->source[i].shared)
            status = syi_checkpoint_tensor_read(file, syi_safetensors_find(file, tensors->list[i].name),
                                                tensors->source[i].shared, err);
    return status;
}
