/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the run directory on all nodes: a host may have a folder of its own where all need one. */
#include "config.h"

#include <string.h>

#include "train/launch/common_files.h"

/* The lock names host, process and time: no other folder has the same. */
int syi_common_run_dir(const struct syi_rank *rank, const char *path, struct sy_error *err)
{
    size_t bytes;
    if (rank->ranks == 1 || strcmp(rank->comm_name, "mpi") != 0) return SY_OK;
    char *file = syi_format("%s/lock", path), *text = NULL;
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    /* A lock that is not there is another one. */
    struct syi_file_id id = {0}, first;
    if (!rank->node.place && !syi_file_read(file, &text, &bytes, NULL)) id = syi_file_identify(text, bytes);
    syi_free(text);
    syi_free(file);
    first = id;
    int status = syi_comm_share(rank->comm, &first, sizeof first, err);
    if (status || rank->node.place || !strcmp(id.sha256, first.sha256)) return status;
    return syi_error(err, SY_EMISMATCH,
                     "rank %d does not see the run directory %s that rank 0 made: --run-dir has to be on a "
                     "file system that all hosts share, by the same path",
                     rank->rank, path);
}
