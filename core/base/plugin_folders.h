/* SPDX-License-Identifier: Apache-2.0 */
/* The folders in which plugins of all kinds are looked for, and how one is loaded. */
#ifndef SYI_PLUGIN_FOLDERS_H
#define SYI_PLUGIN_FOLDERS_H

#include "base/base.h"

#define SYI_PLUGIN_PREFIX "switchyard-" /* of the files of backends and vocabularies */
#define SYI_PLUGIN_SUFFIX ".so"         /* of all */

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
/* The file of the program that runs. */
const char *syi_program_file(void);
/* A file to be found, and what it has to have. */
struct syi_plugin_want {
    const char *what;          /* "backend cpu", opens messages */
    const char *prefix, *name; /* of the file: PREFIX NAME .so */
    const char *advice;        /* what to try where there is none: "try ..., ", or "" */
    int missing;               /* the error of that */
    const char *symbol;        /* of its descriptor */
    int major, minor;          /* ABI of this host */
};
/* *path: the first such file of the folders, owned by the caller. */
int syi_plugin_find(const struct syi_plugin_want *want, char **path, struct sy_error *err) SYI_MUST_CHECK;
/* Loads a file, for good (code of it may be named until the process ends), and finds its descriptor; SY_EBACKEND. */
int syi_plugin_open(const struct syi_plugin_want *want, const char *path, const void **descriptor,
                    struct sy_error *err) SYI_MUST_CHECK;

/* ---- plugin_file.c ---- */

/* Why a file cannot be given to dlopen: cut short, of another machine, no library, open to everybody while this is
 * root; static text. NULL: nothing was found. */
const char *syi_plugin_file_fault(const char *path);

#endif
