/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that is there whole or not at all: it is filled beside its place and gets its name by one rename. And a folder for
 * files that are needed for a moment. */
#ifndef SYI_NEW_FOLDER_H
#define SYI_NEW_FOLDER_H

#include "base/base.h"

/* Makes `to`, which must not exist or be an empty folder, and its parents: fill(arg, path, final, err) writes into the
 * folder `path`, which becomes `final`. Where that fails nothing is left of it. */
int syi_new_folder(const char *to,
                   int (*fill)(void *arg, const char *path, const char *final, struct sy_error *err),
                   void *arg, struct sy_error *err) SYI_MUST_CHECK;

/* A new folder below $TMPDIR (/tmp) that only this user may enter. NULL: none can be made there. Owned by the caller:
 * syi_temporary_folder_remove, then syi_free. */
char *syi_temporary_folder(void);
/* With all that is in it; what cannot be removed is logged. NULL: nothing. */
void syi_temporary_folder_remove(const char *path);

#endif
