/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank has read becomes that of all: the files and the index of a dataset, the texts of a task. How bytes get there
 * is the caller's business, so nothing here knows communication. */
#ifndef SYI_SHARE_H
#define SYI_SHARE_H

#include "base/base.h"

struct syi_dataset;
struct syi_task;

struct syi_share {
    int first; /* 1: this rank has read */
    /* The first rank's bytes on all ranks, which call it together. */
    int (*bytes)(void *arg, void *data, size_t bytes, struct sy_error *err);
    void *arg;
    /* Calls fn(fn_arg), which reads on the first rank, however long that takes; the others wait in `bytes`. */
    int (*work)(void *arg, syi_work_fn fn, void *fn_arg, struct sy_error *err);
};
/* The first rank's reading. share NULL: this rank is alone. */
int syi_share_work(const struct syi_share *share, syi_work_fn fn, void *arg,
                   struct sy_error *err) SYI_MUST_CHECK;

/* All but `form` and descriptors. An index of up to SYI_DATASET_SMALL bytes is in the memory of every rank after it; of a
 * larger one the file's name is known. */
int syi_dataset_share(struct syi_dataset *dataset, const struct syi_share *share,
                      struct sy_error *err) SYI_MUST_CHECK;
/* All of it. */
int syi_task_share(struct syi_task *task, const struct syi_share *share, struct sy_error *err) SYI_MUST_CHECK;

#endif
