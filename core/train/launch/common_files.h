/* SPDX-License-Identifier: Apache-2.0 */
/* What processes on several hosts must see alike: the files of examples, compared before memory is taken, and the
 * run directory, once it is made. For other ranks than processes these are free. */
#ifndef SYI_COMMON_FILES_H
#define SYI_COMMON_FILES_H

#include "train/launch/launch.h"

/* The data at `path`, identified by id, have the same contents on all ranks. */
int syi_common_data(const struct syi_rank *rank, const char *path, const struct syi_file_id *id,
                    struct sy_error *err) SYI_MUST_CHECK;
/* So have the files of the vocabularies. */
int syi_common_vocabularies(const struct syi_rank *rank, const struct syi_config *config,
                            struct sy_error *err) SYI_MUST_CHECK;
/* The run directory, in which rank 0 holds the lock, is the same folder on all ranks. */
int syi_common_run_dir(const struct syi_rank *rank, const char *path, struct sy_error *err) SYI_MUST_CHECK;

#endif
