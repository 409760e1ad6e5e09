/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a checkpoint without a model: its files and what meta.json says of them. */
#include "config.h"

#include <string.h>
#include <sys/stat.h>

#include "train/checkpoint/checkpoint_parts.h"

/* Whether path is the folder of a checkpoint itself. */
static int is_checkpoint(const char *path)
{
    struct stat info;
    char *meta = syi_format("%s/meta.json", path);
    int there = meta && !stat(meta, &info);
    syi_free(meta);
    return there;
}

static int find_folder(const char *path, int is_itself, int64_t step, struct syi_checkpoint_view *view,
                       struct sy_error *err)
{
    int status = SY_OK;
    view->step = -1;
    if (is_itself) {
        view->folder = syi_strdup(path, err);
        return view->folder ? SY_OK : SY_ENOMEM;
    }
    if (step == SYI_CHECKPOINT_BEST) status = syi_checkpoint_find_best(path, &step, err);
    if (step == SYI_CHECKPOINT_LATEST) status = syi_checkpoint_latest(path, &step, err);
    view->step = step;
    return status ? status : syi_checkpoint_find(path, step, &view->folder, err);
}

int syi_checkpoint_view_open(const char *path, int64_t step, struct syi_checkpoint_view *view,
                             struct sy_error *err)
{
    memset(view, 0, sizeof *view);
    for (int i = 0; i < SYI_CHECKPOINT_FILES; i++) view->file[i].fd = -1;
    const int is_itself = is_checkpoint(path);
    int status = find_folder(path, is_itself, step, view, err);
    if (!status) status = syi_checkpoint_meta_read(view->folder, &view->meta, err);
    if (!status && is_itself && step != SYI_CHECKPOINT_LATEST && step != view->meta.step)
        status =
            syi_error(err, SY_EINVAL,
                      "%s is the checkpoint of step %lld, and another one is asked for: leave that out, or "
                      "name the run directory",
                      path, (long long)view->meta.step);
    for (int i = 0; i < SYI_CHECKPOINT_FILES && !status; i++) {
        char *file = syi_format("%s/%s", view->folder, syi_checkpoint_file[i].name);
        status = file ? syi_safetensors_open(&view->file[i], file, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(file);
    }
    return status;
}

void syi_checkpoint_view_close(struct syi_checkpoint_view *view)
{
    for (int i = 0; i < SYI_CHECKPOINT_FILES; i++) syi_safetensors_close(&view->file[i]);
    syi_free(view->folder);
    view->folder = NULL;
}

int syi_checkpoint_view_take(const char *path, int64_t step, int n_files, struct syi_checkpoint_view *view,
                             struct sy_error *err)
{
    int status = syi_checkpoint_view_open(path, step, view, err);
    if (!status && view->step >= 0)
        status = syi_checkpoint_check_step(view->folder, view->step, &view->meta, err);
    for (int i = 0; i < n_files && !status; i++) status = syi_checkpoint_view_check(view, i, err);
    return status;
}

int syi_checkpoint_view_check(const struct syi_checkpoint_view *view, int i, struct sy_error *err)
{
    return syi_checkpoint_check_file(view->folder, &view->file[i], i, &view->meta, err);
}
