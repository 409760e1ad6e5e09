/* SPDX-License-Identifier: Apache-2.0 */
/* Between a session's tensors and a safetensors file: names, extents, and which rank writes which block. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint_parts.h"

static const enum syi_safetensors_dtype file_dtype[SY_DTYPE_COUNT] = {[SY_F32] = SYI_SAFETENSORS_F32,
                                                                      [SY_BF16] = SYI_SAFETENSORS_BF16,
                                                                      [SY_F64] = SYI_SAFETENSORS_F64,
                                                                      [SY_I32] = SYI_SAFETENSORS_I32,
                                                                      [SY_I64] = SYI_SAFETENSORS_I64};

/* Parameters lie below target/, as in T5X's state_dict; state tensors have their full names already. */
static char *file_name(const struct syi_shared *shared)
{
    return syi_format("%s%s", shared->info.kind == SYI_PARAM ? "target/" : "", shared->name);
}

int syi_checkpoint_tensors(const struct syi_session *session, int kind,
                           struct syi_checkpoint_tensors *tensors, struct sy_error *err)
{
    const struct syi_shared *shared;
    size_t n = 0;
    memset(tensors, 0, sizeof *tensors);
    for (size_t i = 0; (shared = syi_session_shared(session, i)); i++) n += shared->info.kind == kind;
    tensors->mesh = syi_session_mesh(session);
    tensors->list = syi_alloc(n * sizeof *tensors->list, err);
    tensors->shared = syi_alloc(n * sizeof *tensors->shared, err);
    if (!tensors->list || !tensors->shared) return SY_ENOMEM;
    for (size_t i = 0; (shared = syi_session_shared(session, i)); i++) {
        if (shared->info.kind != kind) continue;
        struct syi_safetensors_tensor *tensor = &tensors->list[tensors->n];
        tensor->name = file_name(shared);
        if (!tensor->name) return syi_error(err, SY_ENOMEM, "out of memory");
        tensor->dtype = file_dtype[shared->info.dtype];
        tensor->rank = shared->info.rank;
        memcpy(tensor->dims, shared->global, (size_t)tensor->rank * sizeof tensor->dims[0]);
        tensors->shared[tensors->n++] = shared;
    }
    return SY_OK;
}

void syi_checkpoint_tensors_free(struct syi_checkpoint_tensors *tensors)
{
    for (size_t i = 0; i < tensors->n; i++) syi_free((char *)(uintptr_t)tensors->list[i].name);
    syi_free(tensors->list);
    syi_free(tensors->shared);
    memset(tensors, 0, sizeof *tensors);
}

/* Of the ranks that hold the same block, the one at the origin of the mesh axes that do not split the tensor.
 */
static int is_writer(const struct syi_mesh *mesh, const struct syi_tensor *info, int rank)
{
    int axes = 0;
    for (int d = 0; d < info->rank; d++) axes |= info->split[d];
    return syi_mesh_index(mesh, SYI_MESH_ALL & ~axes, rank) == 0;
}

int syi_checkpoint_tensors_write(const struct syi_checkpoint_tensors *tensors, int rank,
                                 const struct syi_safetensors *file, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < tensors->n && !status; i++) {
        const struct syi_shared *shared = tensors->shared[i];
        if (!is_writer(tensors->mesh, &shared->info, rank)) continue;
        status =
            syi_safetensors_write_block(file, syi_safetensors_find(file, tensors->list[i].name),
                                        shared->tensor.first, shared->tensor.dim, shared->tensor.data, err);
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

static int same(const struct syi_safetensors_tensor *a, const struct syi_safetensors_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]);
}

/* there, wanted: of one name; NULL where it is missing. */
static int refuse(const struct syi_safetensors *file, const struct syi_safetensors_tensor *there,
                  const struct syi_safetensors_tensor *wanted, struct sy_error *err)
{
    char has[256], wants[256];
    if (!there)
        return syi_error(err, SY_EMISMATCH,
                         "checkpoint of another model: it lacks %s, which the run file's model has (%s)",
                         wanted->name, file->path);
    if (!wanted)
        return syi_error(err, SY_EMISMATCH,
                         "checkpoint of another model: it has %s, which the run file's model lacks (%s)",
                         there->name, file->path);
    describe(there, has, sizeof has);
    describe(wanted, wants, sizeof wants);
    return syi_error(err, SY_EMISMATCH,
                     "checkpoint of another model: %s has shape %s, the run file's model wants %s (%s)",
                     there->name, has, wants, file->path);
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
        if (order < 0) return refuse(file, NULL, wanted, err);
        if (order > 0) return refuse(file, there, NULL, err);
        if (!same(there, wanted)) return refuse(file, there, wanted, err);
        i++, j++;
    }
    return SY_OK;
}

int syi_checkpoint_tensors_read(const struct syi_checkpoint_tensors *tensors,
                                const struct syi_safetensors *file, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < tensors->n && !status; i++) {
        const struct sy_tensor *local = &tensors->shared[i]->tensor;
        status = syi_safetensors_read_block(file, syi_safetensors_find(file, tensors->list[i].name),
                                            local->first, local->dim, local->data, err);
    }
    return status;
}
