/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of tensors that no session holds, by one process: those of another program. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint_parts.h"

static int write_file(const char *folder, int i, const struct syi_checkpoint_list *list,
                      syi_checkpoint_fill_fn fill, void *arg, struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    struct syi_safetensors file = {.fd = -1};
    char *path = syi_format("%s/%s", folder, syi_checkpoint_file[i].name);
    int status = path ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status)
        status = syi_safetensors_plan(&file, list->list, list->n, metadata, SYI_COUNT(metadata), err);
    if (!status) status = syi_safetensors_create(&file, path, err);
    if (!status) status = fill(arg, &file, err);
    if (!status) status = syi_safetensors_finish(&file, err);
    syi_safetensors_close(&file);
    syi_free(path);
    return status;
}

int syi_checkpoint_write(const char *run_dir, struct syi_checkpoint_meta *meta,
                         const struct syi_checkpoint_list *params, const struct syi_checkpoint_list *state,
                         syi_checkpoint_fill_fn fill, void *arg, struct sy_error *err)
{
    static const struct syi_checkpoint_saving saving = {0};
    const struct syi_checkpoint_list *const lists[SYI_CHECKPOINT_FILES] = {params, state};
    struct syi_checkpoint_sums sums = {0};
    char *folder = syi_checkpoint_path(run_dir, meta->step, ".tmp", err);
    int status = folder ? syi_checkpoint_begin(run_dir, meta->step, err) : SY_ENOMEM, made = !status;
    for (int i = 0; i < SYI_CHECKPOINT_FILES && !status; i++) {
        status = write_file(folder, i, lists[i], fill, arg, err);
        if (!status) status = syi_checkpoint_hash(folder, i, NULL, meta, &sums, err);
    }
    if (!status) status = syi_checkpoint_meta_write(folder, meta, &sums, err);
    if (!status) status = syi_checkpoint_commit(run_dir, meta->step, meta->best_step, &saving, err);
    if (status && made) syi_checkpoint_discard(run_dir, meta->step);
    syi_checkpoint_sums_free(&sums);
    syi_free(folder);
    return status;
}
