/* SPDX-License-Identifier: Apache-2.0 */
/* Where plugins lie, and dlopen. What a library has to have is its host's business: runtime/plugin.c for backends,
 * data/vocabulary_sentencepiece.c for a vocabulary. */
#include "config.h"

#include <dlfcn.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin_folders.h"
#include "base/threads.h"

/* A library linked with -ffast-math switches denormals off for the thread that loads it. That would change
 * results, so it is undone, aloud. */
void *syi_plugin_open_library(const char *name, const char *path, const char **why)
{
    fenv_t before;
    *why = syi_plugin_file_fault(path);
    if (*why) return NULL;
    uint32_t control = syi_fp_control();
    fegetenv(&before);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) *why = dlerror();
    if (!library && !*why) *why = "no reason given";
    if (syi_fp_control() != control)
        syi_log(SY_LOG_WARN,
                "backend %s: loading %s changed the floating-point mode (linked with -ffast-math?); undone",
                name, path);
    fesetenv(&before);
    return library;
}

void syi_plugin_folders_free(struct syi_plugin_folders *folders)
{
    for (size_t i = 0; i < folders->n; i++) syi_free(folders->path[i]);
    syi_free(folders->path);
}

/* Takes path (from syi_format: NULL when memory ran out). */
static int add_folder_take(struct syi_plugin_folders *folders, char *path, struct sy_error *err)
{
    int status = path ? SYI_GROW(folders->path, folders->capacity, folders->n + 1, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
    if (status == SY_OK)
        folders->path[folders->n++] = path;
    else
        syi_free(path);
    return status;
}

static int add_chosen(struct syi_plugin_folders *folders, const char *list, struct sy_error *err)
{
    folders->chosen = 1;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ":");
        if (length && *at != '/')
            return syi_error(
                err, SY_EINVAL,
                "SWITCHYARD_BACKEND_PATH: folder %.*s is relative; plugins are never taken from the current "
                "folder, write the path in full",
                (int)length, at);
        if (length) {
            int status = add_folder_take(folders, syi_format("%.*s", (int)length, at), err);
            if (status != SY_OK) return status;
        }
        at += length + (at[length] == ':');
    }
    return SY_OK;
}

/* The file that holds this function, owned by the caller, or NULL. For the program itself dladdr gives what
 * was typed, which says nothing when the shell found it in PATH: the kernel knows. */
static char *own_file(void)
{
    Dl_info info;
    union { /* ISO C has no cast from a function to dladdr's void pointer */
        int (*function)(struct syi_plugin_folders *, struct sy_error *);
        void *address;
    } here = {.function = syi_plugin_folders_find};
    if (!dladdr(here.address, &info) || !info.dli_fname) return NULL;
    return realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", NULL);
}

/* Beside what holds this function: libswitchyard in LIBDIR, or the program in BINDIR, or (before `make
 * install`) the program in the build folder; so a moved prefix works. Then the folder fixed by configure. */
static int add_usual(struct syi_plugin_folders *folders, struct sy_error *err)
{
    int status = SY_OK;
    char *file = own_file(), *slash = file ? strrchr(file, '/') : NULL;
    if (slash) {
        *slash = '\0';
        status = add_folder_take(folders, syi_format("%s/switchyard", file), err);
#ifdef SYI_PKGLIBDIR_FROM_BIN
        if (status == SY_OK)
            status = add_folder_take(folders, syi_format("%s/" SYI_PKGLIBDIR_FROM_BIN, file), err);
#endif
        if (status == SY_OK) status = add_folder_take(folders, syi_format("%s/.libs", file), err);
    }
    free(file);
#ifdef SYI_PKGLIBDIR
    if (status == SY_OK) status = add_folder_take(folders, syi_format("%s", SYI_PKGLIBDIR), err);
#endif
    return status;
}

int syi_plugin_folders_find(struct syi_plugin_folders *folders, struct sy_error *err)
{
    const char *list = getenv("SWITCHYARD_BACKEND_PATH");
    memset(folders, 0, sizeof(*folders));
    return list && *list ? add_chosen(folders, list, err) : add_usual(folders, err);
}

int syi_plugin_folders_file(const struct syi_plugin_folders *folders, const char *name, char **path,
                            struct sy_error *err)
{
    *path = NULL;
    for (size_t i = 0; i < folders->n; i++) {
        *path = syi_format("%s/" SYI_PLUGIN_PREFIX "%s" SYI_PLUGIN_SUFFIX, folders->path[i], name);
        if (!*path) return syi_error(err, SY_ENOMEM, "out of memory");
        if (access(*path, F_OK) == 0) return SY_OK;
        syi_free(*path);
        *path = NULL;
    }
    return SY_OK;
}
