/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of tensors that no session holds, by one process: those of another program. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint_parts.h"

static int write_file(const char *folder, const char *name, const struct syi_checkpoint_list *list,
                      syi_checkpoint_fill_fn fill, void *arg, char data[65], char header[65],
                      struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    struct syi_safetensors file = {.fd = -1};
    char *path = syi_format("%s/%s", folder, name);
    int status = path ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status)
        status = syi_safetensors_plan(&file, list->list, list->n, metadata, SYI_COUNT(metadata), err);
    if (!status) status = syi_safetensors_create(&file, path, err);
    if (!status) status = fill(arg, &file, err);
    if (!status) status = syi_safetensors_finish(&file, err);
    syi_safetensors_close(&file);
    if (!status) status = syi_checkpoint_hash(path, data, header, err);
    syi_free(path);
    return status;
}

int syi_checkpoint_write(const char *run_dir, struct syi_checkpoint_meta *meta,
                         const struct syi_checkpoint_list *params, const struct syi_checkpoint_list *state,
                         syi_checkpoint_fill_fn fill, void *arg, struct sy_error *err)
{
    static const struct syi_checkpoint_saving saving = {0};
    char *folder = syi_checkpoint_path(run_dir, meta->step, ".tmp", err);
    int made = 0, status = folder ? syi_checkpoint_begin(run_dir, meta->step, err) : SY_ENOMEM;
    made = !status;
    if (!status)
        status = write_file(folder, "params.safetensors", params, fill, arg, meta->params_sha256,
                            meta->params_header_sha256, err);
    if (!status)
        status = write_file(folder, "state.safetensors", state, fill, arg, meta->state_sha256,
                            meta->state_header_sha256, err);
    if (!status) status = syi_checkpoint_meta_write(folder, meta, err);
    if (!status) status = syi_checkpoint_commit(run_dir, meta->step, meta->best_step, &saving, err);
    if (status && made) syi_checkpoint_discard(run_dir, meta->step);
    syi_free(folder);
    return status;
}
