/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups of this process, which containers and batch systems limit. Version 1 and 2, where
 * distributions mount them, below /sys/fs/cgroup. */
#ifndef SYI_CGROUP_H
#define SYI_CGROUP_H

#include "base/base.h"

/* What a group's folder limits something to; 0: nothing. */
typedef uint64_t (*syi_cgroup_fn)(const char *folder, int version);

/* The smallest limit that fn finds from this process's groups up to the mounts; 0: none. controller: "cpu" or
 * "memory". root: "" on a real system (tests give a folder that holds proc/self/cgroup and sys/fs/cgroup). */
uint64_t syi_cgroup_least(const char *root, const char *controller, syi_cgroup_fn fn);
/* First line of FOLDER/NAME, without its end; 0 when there is none. */
int syi_cgroup_line(const char *folder, const char *name, char *line, int bytes);

#endif
