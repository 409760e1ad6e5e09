/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a dataset's files on the node's own disk (data.stage): one process of the node makes those that are missing, and all
 * its ranks read there. What a dataset is, its sizes and hashes, stays that of the originals. */
#ifndef SYI_STAGING_H
#define SYI_STAGING_H

#include "data/dataset.h"

struct syi_staging {
    char *folder; /* without variables, owned */
    /* What syi_staging_copy has done so far. */
    int64_t files, bytes; /* copied */
    int64_t there;        /* files that were there already */
    double seconds;
    /* Called now and then, or NULL. */
    int (*poll)(void *arg, struct sy_error *err);
    void *arg;
};

/* text: of data.stage; $NAME and ${NAME} in it are variables of the environment. SY_EINVAL: one of them is not set or empty.
 * Closed by the caller, after a failure too. */
int syi_staging_open(struct syi_staging *stage, const char *text, struct sy_error *err) SYI_MUST_CHECK;
void syi_staging_close(struct syi_staging *stage); /* also of a zeroed one */
/* Copies the files of the dataset, its index file among them, that are not in the folder: each by another name that then
 * becomes NAME-HASH-BYTES-MODIFIED, so a copy is whole, and one of what a file was before has another name. SY_EIO: there is
 * not room for all; SY_EINVAL: the pattern of the originals finds the copies, too; nothing is copied then. */
int syi_staging_copy(struct syi_staging *stage, const struct syi_dataset *dataset,
                     struct sy_error *err) SYI_MUST_CHECK;
/* From here on the dataset is read from the copies, which are there. */
int syi_staging_use(const struct syi_staging *stage, struct syi_dataset *dataset,
                    struct sy_error *err) SYI_MUST_CHECK;

#endif
