/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 reads and all ranks get the bytes. */
#include "config.h"

#include <string.h>

#include "base/packed.h"
#include "train/launch/first_reads.h"

/* ---- the run file ---- */

static int same_path(struct syi_world *world, const char *path, struct sy_error *err)
{
    char first[SYI_CONFIG_STRING], mine[SYI_CONFIG_STRING];
    snprintf(mine, sizeof mine, "%s", path);
    memcpy(first, mine, sizeof first);
    int status = syi_world_share(world, first, sizeof first, err);
    if (status || !strcmp(first, mine)) return status;
    return syi_error(err, SY_EMISMATCH,
                     "rank %d was started with %s where rank 0 has %s: all ranks need the same run file and "
                     "options",
                     world->rank, *mine ? mine : "no run file", *first ? first : "none");
}

int syi_world_load(struct syi_world *world, const char *path, syi_load_fn load, void *arg,
                   struct syi_config *config, struct sy_error *err)
{
    if (world->ranks == 1) return load(arg, path, config, err);
    int status = syi_world_same_program(world, err); /* else the structure could be another one */
    if (!status) status = syi_world_agree(world, same_path(world, path, err), err);
    if (status) return status;
    if (world->rank == 0) status = load(arg, path, config, err);
    status = syi_world_agree(world, status, err);
    return status ? status : syi_world_share(world, config, sizeof *config, err);
}

/* ---- vocabularies ---- */

static int hold(struct syi_world *world, const struct syi_vocabulary_part *part, struct sy_error *err)
{
    char *text = NULL;
    size_t n = 0;
    int64_t bytes = -1; /* it cannot be read */
    if (world->rank == 0 && !syi_packed_read_vocabulary(part, &text, &n, NULL)) bytes = (int64_t)n;
    int status = syi_world_share(world, &bytes, sizeof bytes, err);
    if (!status && bytes >= 0 && !text) {
        text = syi_alloc((size_t)bytes + 1, err);
        if (!text) status = SY_ENOMEM;
    }
    if (!status && bytes >= 0) status = syi_world_share(world, text, (size_t)bytes, err);
    if (!status && bytes >= 0) status = syi_packed_hold_vocabulary(part, text, (size_t)bytes, err);
    syi_free(text);
    return status;
}

int syi_world_hold_vocabularies(struct syi_world *world, const struct syi_config *config,
                                struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->vocabulary.n && !status; i++)
        if (*config->vocabulary.part[i].file) status = hold(world, &config->vocabulary.part[i], err);
    return status;
}
