/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory of an import. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "import/import.h"
#include "base/new_folder.h"
#include "base/optimizers.h"
#include "base/packed.h"
#include "train/checkpoint/checkpoint.h"
#include "train/launch/run_dir.h"

/* ---- the checkpoint ---- */

/* A list of the tensors whose names begin with `prefix`, parameters as float32. Freed by the caller: names are borrowed. */
static int list_tensors(const struct syi_import *import, const char *prefix, int widened,
                        struct syi_checkpoint_list *list, struct sy_error *err)
{
    struct syi_safetensors_tensor *to = syi_alloc(import->n * sizeof *to, err);
    list->list = to;
    for (size_t i = 0; to && i < import->n; i++) {
        const struct syi_import_tensor *from = &import->tensors[i];
        if (strncmp(from->name, prefix, strlen(prefix))) continue;
        to[list->n].name = from->name;
        to[list->n].dtype = widened ? SYI_SAFETENSORS_F32 : from->dtype;
        to[list->n].rank = from->rank;
        memcpy(to[list->n].dims, from->dims, sizeof from->dims);
        list->n++;
    }
    return to ? SY_OK : SY_ENOMEM;
}

/* Values that are not finite are taken as they are; of the first tensor with some that is said. data: a parameter as float32.
 * Returns whether it has some. */
static int look_at(const struct syi_import_tensor *from, const float *data, uint64_t elements, int quiet)
{
    uint64_t odd = 0;
    for (uint64_t i = 0; i < elements; i++)
        if (!isfinite(data[i])) odd++;
    if (odd && !quiet)
        syi_log(SY_LOG_WARN,
                "%llu of %llu values of %s are not finite: what the model answers may not be, too",
                (unsigned long long)odd, (unsigned long long)elements, from->origin);
    return odd != 0;
}

/* One tensor at a time. A format may hold what several are cut from until the last of them is read (t5x.c). */
static int fill(void *arg, const struct syi_safetensors *file, struct sy_error *err)
{
    struct syi_import *import = arg;
    int status = SY_OK, odd = 0;
    for (size_t i = 0; i < file->n_tensors && !status; i++) {
        const struct syi_safetensors_tensor *to = &file->tensors[i];
        const struct syi_import_tensor *from = syi_import_find(import, to->name);
        void *data = syi_alloc((size_t)to->bytes, err);
        if (!data) return SY_ENOMEM;
        status = from->dtype == to->dtype ? import->format->read(import, from, data, err)
                                          : syi_import_read(import, from, data, err);
        if (!status && !strncmp(to->name, "target/", 7)) odd |= look_at(from, data, to->bytes / 4, odd);
        if (!status) status = syi_safetensors_write(file, to, 0, data, (size_t)to->bytes, err);
        syi_free(data);
    }
    return status;
}

static int write_checkpoint(struct syi_import *import, const char *path, struct sy_error *err)
{
    struct syi_checkpoint_meta meta = {
        .step = import->step, .best_metric = NAN, .best_step = -1, .evaluated = -1};
    struct syi_checkpoint_list params = {0}, state = {0};
    int status = list_tensors(import, "target/", 1, &params, err);
    if (!status) status = list_tensors(import, "state/", 0, &state, err);
    if (!status) status = syi_checkpoint_write(path, &meta, &params, &state, fill, import, err);
    syi_free((void *)(uintptr_t)params.list);
    syi_free((void *)(uintptr_t)state.list);
    return status;
}

/* ---- the folder ---- */

/* run.conf names the copies, by their places in the finished run: the folder that they came from need not stay. */
static int name_vocabularies(struct syi_import *import, const char *final, struct sy_error *err)
{
    for (int i = 0; i < import->config.vocabulary.n; i++) {
        struct syi_vocabulary_part *part = &import->config.vocabulary.part[i];
        char name[SYI_PACKED_NAME];
        if (!*part->file) continue;
        syi_packed_vocabulary_name(part, name);
        int length = snprintf(part->file, sizeof part->file, "%s/%s", final, name);
        if (length < 0 || (size_t)length >= sizeof part->file)
            return syi_error(err, SY_EINVAL, "the run directory's name is too long: %.64s...", final);
    }
    return SY_OK;
}

static int log_import(const struct syi_import *import, struct syi_run_dir *dir, struct sy_error *err)
{
    char *line = syi_format("imported from %s (format %s), step %lld", import->folder, import->format->name,
                            (long long)import->step);
    if (!line) return syi_error(err, SY_ENOMEM, "out of memory");
    syi_run_dir_log(dir, line);
    syi_free(line);
    return SY_OK;
}

static int fill_folder(void *arg, const char *path, const char *final, struct sy_error *err)
{
    struct syi_import *import = arg;
    struct syi_run_dir dir;
    int status = syi_run_dir_open(path, NULL, &dir, err);
    if (status) return status;
    status = log_import(import, &dir, err);
    if (!status) status = syi_run_dir_keep_vocabularies(&dir, &import->config, err);
    if (!status) status = name_vocabularies(import, final, err);
    if (!status) status = write_checkpoint(import, path, err);
    /* once it is written, a value that follows from others looks like one that was given */
    syi_optimizers_settle(&import->config);
    if (!status) status = syi_run_dir_write_config(&dir, &import->config, err);
    if (!status) status = syi_run_dir_status(&dir, "done", err);
    syi_run_dir_close(&dir);
    return status;
}

int syi_import_write(struct syi_import *import, const char *to, struct sy_error *err)
{
    int status = syi_import_check(import, err);
    return status ? status : syi_new_folder(to, fill_folder, import, err);
}
