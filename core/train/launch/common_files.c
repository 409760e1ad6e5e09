/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what each process reads: hosts may have files of the same name that differ, or a folder of their
 * own where all need one. */
#include "config.h"

#include <string.h>

#include "train/launch/common_files.h"

static int is_free(const struct syi_rank *rank)
{
    return rank->ranks == 1 || strcmp(rank->comm_name, "mpi") != 0;
}

static int same_file(const struct syi_rank *rank, const char *path, const struct syi_file_id *id,
                     struct sy_error *err)
{
    int odd, status = syi_comm_same(rank->comm, id->sha256, sizeof id->sha256, &odd, err);
    if (status || odd < 0) return status;
    return syi_error(
        err, SY_EMISMATCH,
        "rank %d reads another %s than rank 0: all hosts need the same file, best on a file system "
        "that they share",
        odd, path);
}

int syi_common_data(const struct syi_rank *rank, const char *path, const struct syi_file_id *id,
                    struct sy_error *err)
{
    return is_free(rank) ? SY_OK : same_file(rank, path, id, err);
}

int syi_common_vocabularies(const struct syi_rank *rank, const struct syi_config *config,
                            struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->vocabulary.n && !status && !is_free(rank); i++) {
        const char *path = config->vocabulary.part[i].file;
        char *text = NULL;
        size_t bytes;
        struct syi_file_id id = {0};
        if (!*path) continue;
        /* A file that is not there is another one; whoever opens it says why. */
        if (!syi_file_read(path, &text, &bytes, NULL)) id = syi_file_identify(text, bytes);
        syi_free(text);
        status = same_file(rank, path, &id, err);
    }
    return status;
}

/* The lock names host, process and time: no other folder has the same. */
int syi_common_run_dir(const struct syi_rank *rank, const char *path, struct sy_error *err)
{
    size_t bytes;
    int odd;
    if (is_free(rank)) return SY_OK;
    char *file = syi_format("%s/lock", path), *text = NULL;
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    /* A lock that is not there is another one. */
    struct syi_file_id id = {0};
    if (!syi_file_read(file, &text, &bytes, NULL)) id = syi_file_identify(text, bytes);
    int status = syi_comm_same(rank->comm, id.sha256, sizeof id.sha256, &odd, err);
    syi_free(text);
    syi_free(file);
    if (status || odd < 0) return status;
    return syi_error(err, SY_EMISMATCH,
                     "rank %d does not see the run directory %s that rank 0 made: --run-dir has to be on a "
                     "file system that all hosts share, by the same path",
                     odd, path);
}
