/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 reads for all processes: the run file and the files of vocabularies. The others open neither, so thousands
 * of ranks do not meet at one file, and their hosts need not have it. */
#ifndef SYI_FIRST_READS_H
#define SYI_FIRST_READS_H

#include "train/launch/world.h"

/* Rank 0's configuration on all ranks: load(arg, path, config, err) runs there alone. path: as this process was given it,
 * "": none; that of another rank must be the same. */
typedef int (*syi_load_fn)(void *arg, const char *path, struct syi_config *config, struct sy_error *err);
int syi_world_load(struct syi_world *world, const char *path, syi_load_fn load, void *arg,
                   struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* Holds the files of all vocabularies (base/held_files.h), read once. One that cannot be read is left to whoever opens it,
 * who says why. */
int syi_world_hold_vocabularies(struct syi_world *world, const struct syi_config *config,
                                struct sy_error *err) SYI_MUST_CHECK;

#endif
