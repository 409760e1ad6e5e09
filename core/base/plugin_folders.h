/* SPDX-License-Identifier: Apache-2.0 */
/* The folders in which plugins (switchyard-NAME.so) are looked for, and how one is loaded. */
#ifndef SYI_PLUGIN_FOLDERS_H
#define SYI_PLUGIN_FOLDERS_H

#include "base/base.h"

#define SYI_PLUGIN_PREFIX "switchyard-"
#define SYI_PLUGIN_SUFFIX ".so"

/* ---- plugin_folders.c ---- */

struct syi_plugin_folders {
    char **path; /* [n] owned, in the order they are searched */
    size_t n, capacity;
    int chosen; /* by the user: a folder that cannot be read is worth a word */
};

/* Those of $SWITCHYARD_BACKEND_PATH, which are absolute, or else the usual ones. Freed by syi_plugin_folders_free,
 * after a failure too. */
int syi_plugin_folders_find(struct syi_plugin_folders *folders, struct sy_error *err) SYI_MUST_CHECK;
void syi_plugin_folders_free(struct syi_plugin_folders *folders);
/* *path: the first file of plugin NAME, owned by the caller; NULL with SY_OK: there is none. */
int syi_plugin_folders_file(const struct syi_plugin_folders *folders, const char *name, char **path,
                            struct sy_error *err) SYI_MUST_CHECK;
/* NULL: *why says what is wrong with the file, until the next call. Never closed: code of it may be named until the
 * process ends. */
void *syi_plugin_open_library(const char *name, const char *path, const char **why);

/* ---- plugin_file.c ---- */

/* Why a file cannot be given to dlopen: cut short, of another machine, no library, open to everybody while this is
 * root; static text. NULL: nothing was found. */
const char *syi_plugin_file_fault(const char *path);

#endif
