/* SPDX-License-Identifier: Apache-2.0 */
/* What processes on several hosts must see alike: the run directory, once it is made. For other ranks than processes this is
 * free. */
#ifndef SYI_COMMON_FILES_H
#define SYI_COMMON_FILES_H

#include "train/launch/launch.h"

/* The run directory, in which rank 0 holds the lock, is the same folder on all ranks. */
int syi_common_run_dir(const struct syi_rank *rank, const char *path, struct sy_error *err) SYI_MUST_CHECK;

#endif
