/* SPDX-License-Identifier: Apache-2.0 */
/* The lock file of a run directory: one writer, over processes and hosts. */
#ifndef SYI_RUN_LOCK_H
#define SYI_RUN_LOCK_H

#include "base/base.h"

/* Takes PATH/lock for this process. A lock whose process on this host is dead is taken over: one line about
 * it in taken_over, which is empty otherwise. SY_EBUSY names the owner. */
int syi_run_lock_take(const char *path, char *taken_over, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Removes the lock, if it still is this process's. */
void syi_run_lock_release(const char *path);

#endif
