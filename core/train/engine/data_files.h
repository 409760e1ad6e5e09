/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank reads the examples of a dataset whose files and index rank 0 has read: the files by the same paths, once one rank
 * of each node has seen that they are the same, or the node's copies of them (data.stage). */
#ifndef SYI_DATA_FILES_H
#define SYI_DATA_FILES_H

#include "data/staging.h"
#include "train/launch/launch.h"

struct syi_data_files {
    const struct syi_rank *rank; /* borrowed */
    struct syi_staging stage;    /* folder NULL: nothing is copied */
    struct syi_busy busy;
    char report[200]; /* what was copied, over all nodes; "": nothing was to be */
};

/* stage: data.stage, "": nothing is copied. Closed by the caller, after a failure too. */
int syi_data_files_open(struct syi_data_files *files, const struct syi_rank *rank, const char *stage,
                        struct sy_error *err) SYI_MUST_CHECK;
void syi_data_files_close(struct syi_data_files *files); /* also of a zeroed one */
/* `settle` of struct syi_dataset_place with a struct syi_data_files; called by all ranks. SY_EMISMATCH: a host has other
 * contents in these files. */
int syi_data_files_settle(void *files, struct syi_dataset *dataset, struct sy_error *err) SYI_MUST_CHECK;
/* Ranks that are threads of this process, this one included: they share the files that it may have open. */
int syi_data_files_sharers(const struct syi_rank *rank);
/* Once all datasets are settled, by all ranks: the report. */
int syi_data_files_report(struct syi_data_files *files, struct sy_error *err) SYI_MUST_CHECK;

#endif
