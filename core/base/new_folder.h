/* SPDX-License-Identifier: Apache-2.0 */
/* A folder or file that is there whole or not at all: it is filled beside its place and gets its name at once. And a folder
 * for files that are needed for a moment. */
#ifndef SYI_NEW_FOLDER_H
#define SYI_NEW_FOLDER_H

#include "base/base.h"

/* Makes `path`, which becomes `final`: writes into a folder that is there, or writes the file. */
typedef int (*syi_new_fn)(void *arg, const char *path, const char *final, struct sy_error *err);

/* Makes `to`, which must not exist or be an empty folder, and its parents, in the folder `to`.tmp. Where that fails, by
 * syi_interrupt too, nothing is left of it; what a process of this host that was killed left there is removed first, and
 * all else that is in the way refused. */
int syi_new_folder(const char *to, syi_new_fn fill, void *arg, struct sy_error *err) SYI_MUST_CHECK;
/* The same of a file that must not exist, in a folder that does. */
int syi_new_file(const char *to, syi_new_fn fill, void *arg, struct sy_error *err) SYI_MUST_CHECK;
int syi_new_file_check(const char *to,
                       struct sy_error *err) SYI_MUST_CHECK; /* whether it exists, before much work */

/* A new folder below $TMPDIR (/tmp) that only this user may enter. NULL: none can be made there. Owned by the caller:
 * syi_temporary_folder_remove, then syi_free. */
char *syi_temporary_folder(void);
/* With all that is in it; what cannot be removed is logged. NULL: nothing. */
void syi_temporary_folder_remove(const char *path);

#endif
