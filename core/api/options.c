/* SPDX-License-Identifier: Apache-2.0 */
/* What a program gives to open a handle: structures of any version, paths, keys of the run file. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/packed.h"
#include "train/checkpoint/checkpoint.h"
#include "train/launch/run_dir.h"

/* ---- structures ---- */

static int no_bytes(const char *name, struct sy_error *err)
{
    return syi_error(err, SY_EINVAL, "struct %s: set its first field to sizeof(struct %s)", name, name);
}

int syi_api_take(void *to, size_t size, const void *from, const char *name, struct sy_error *err)
{
    size_t bytes;
    memset(to, 0, size);
    if (!from) return SY_OK;
    memcpy(&bytes, from, sizeof bytes);
    if (bytes < sizeof bytes) return no_bytes(name, err);
    for (size_t i = size; i < bytes; i++)
        if (((const char *)from)[i])
            return syi_error(
                err, SY_EUNSUPPORTED,
                "struct %s: the program was compiled for a later switchyard than this one (%s) and sets what it "
                "does not have",
                name, sy_version());
    memcpy(to, from, bytes < size ? bytes : size);
    return SY_OK;
}

int syi_api_give(void *to, const void *from, size_t size, const char *name, struct sy_error *err)
{
    size_t bytes;
    memcpy(&bytes, to, sizeof bytes);
    if (bytes < sizeof bytes) return no_bytes(name, err);
    memset((char *)to + sizeof bytes, 0, bytes - sizeof bytes);
    memcpy((char *)to + sizeof bytes, (const char *)from + sizeof bytes,
           (bytes < size ? bytes : size) - sizeof bytes);
    return SY_OK;
}

/* ---- where ---- */

static int read_checkpoint(const char *text, int64_t *checkpoint, struct sy_error *err)
{
    *checkpoint = SYI_CHECKPOINT_LATEST;
    if (!text || !strcmp(text, "latest") || syi_config_number(text, checkpoint)) return SY_OK;
    *checkpoint = SYI_CHECKPOINT_BEST;
    if (!strcmp(text, "best")) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "checkpoint %.40s: there are \"latest\", \"best\" and the steps of a run", text);
}

int syi_api_find(const char *path, const char *checkpoint, struct syi_api_place *place, struct sy_error *err)
{
    char full[PATH_MAX];
    int64_t step;
    if (!path || !*path) return syi_error(err, SY_EINVAL, "no path: give a run directory");
    if (strlen(path) >= sizeof place->run_dir)
        return syi_error(err, SY_EINVAL, "the path is too long (%zu bytes): %.64s...", strlen(path), path);
    strcpy(place->run_dir, path);
    int status = read_checkpoint(checkpoint, &place->checkpoint, err);
    if (status || access(path, F_OK)) return status;
    if (syi_packed_is(path) || syi_run_dir_exists(path)) return SY_OK; /* whatever its name looks like */
    if (!realpath(path, full) || !syi_checkpoint_split(full, &step) || strlen(full) >= sizeof place->run_dir)
        return SY_OK;
    if (checkpoint)
        return syi_error(err, SY_EINVAL,
                         "%s is the folder of one checkpoint: leave the option checkpoint out", path);
    strcpy(place->run_dir, full);
    place->checkpoint = step;
    return SY_OK;
}

/* ---- what ---- */

int syi_api_read_run(const struct syi_api_place *place, struct syi_config *config, struct syi_mesh_part *mesh,
                     struct sy_error *err)
{
    int status = syi_run_dir_read_config(place->run_dir, config, err);
    if (!status) status = syi_run_dir_use_vocabularies(place->run_dir, config, err);
    if (mesh) *mesh = config->mesh;
    config->mesh.data = config->mesh.expert = config->mesh.model = 0; /* of the ranks it was trained on */
    return status;
}

int syi_api_apply(const struct sy_open_options *options, struct syi_config *config, struct sy_error *err)
{
    char rows[48];
    int status = SY_OK;
    for (size_t i = 0; !status && i < options->n_set; i++)
        status = options->set[i] ? syi_config_set(config, options->set[i], err)
                                 : syi_error(err, SY_EINVAL, "set[%zu] is NULL", i);
    snprintf(rows, sizeof rows, "decode.batch_size=%d", options->max_batch);
    if (!status && options->max_batch) status = syi_config_set(config, rows, err);
    return status ? status : syi_config_validate(config, err);
}

static int check_mesh(const struct syi_mesh_part *mesh, struct sy_error *err)
{
    if (mesh->data <= 1 && mesh->expert <= 1 && mesh->model <= 1) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "mesh.data=%lld, mesh.expert=%lld and mesh.model=%lld are for several ranks, but a handle has one: put 1 for "
        "each into `set` of struct sy_open_options, or use the command switchyard, which starts ranks",
        (long long)mesh->data, (long long)mesh->expert, (long long)mesh->model);
}

int syi_api_launch(const struct sy_open_options *options, const struct syi_config *config, int exact,
                   struct syi_alone *alone, struct sy_error *err)
{
    const char *backend = options->backend ? options->backend : "cpu";
    struct syi_launch launch = {.backend = backend,
                                .comm = "self",
                                .threads = options->threads,
                                .config = config,
                                .exact = exact,
                                .runner = {options->run_tasks, options->run_tasks_arg}};
    if (options->threads < 0)
        return syi_error(err, SY_EINVAL,
                         "threads = %d: give 1 or more, or 0 for cpu.threads of the run, else the CPUs that "
                         "there are",
                         options->threads);
    if (!strcmp(backend, "null"))
        return syi_error(err, SY_EINVAL, "backend null computes nothing: choose another one");
    int status = check_mesh(&config->mesh, err);
    return status ? status : syi_launch_open(&launch, alone, err);
}
