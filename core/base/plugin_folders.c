/* SPDX-License-Identifier: Apache-2.0 */
/* Where plugins lie, dlopen, and the symbol of a descriptor. What is in a descriptor is its host's business:
 * runtime/plugin_library.c for backends and actions, data/vocabulary_sentencepiece.c for a vocabulary. */
#include "config.h"

#include <dlfcn.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/plugin_folders.h"
#include "base/text.h"
#include "base/threads.h"

/* ---- one file ---- */

/* A library linked with -ffast-math switches denormals off for the thread that loads it. That would change
 * results, so it is undone, aloud. */
static void *open_library(const char *what, const char *path)
{
    fenv_t before;
    uint32_t control = syi_fp_control();
    fegetenv(&before);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (syi_fp_control() != control)
        syi_log(SY_LOG_WARN,
                "%s: loading %s changed the floating-point mode (linked with -ffast-math?); undone", what,
                path);
    fesetenv(&before);
    return library;
}

int syi_plugin_open(const struct syi_plugin_want *want, const char *path, const void **descriptor,
                    struct sy_error *err)
{
    const char *why = syi_plugin_file_fault(path);
    void *library = why ? NULL : open_library(want->what, path);
    const char *advice = why ? "" : "; rebuild it here"; /* what the file itself shows says what to do */
    if (!library) {
        if (!why) why = dlerror();
        return syi_error(err, SY_EBACKEND, "%s: %s cannot be loaded (this host: ABI %d.%d): %s%s", want->what,
                         path, want->major, want->minor, why ? why : "no reason given", advice);
    }
    *descriptor = dlsym(library, want->symbol);
    if (*descriptor) return SY_OK;
    return syi_error(err, SY_EBACKEND,
                     "%s: %s has no symbol %s (this host: ABI %d.%d); it is not a switchyard plugin, or "
                     "was renamed",
                     want->what, path, want->symbol, want->major, want->minor);
}

/* ---- folders ---- */

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

/* Without /proc the name that it was started by, which is a path, whatever was typed. */
const char *syi_program_file(void)
{
    static const char exe[] = "/proc/self/exe";
    return access(exe, F_OK) ? (const char *)getauxval(AT_EXECFN) : exe;
}

/* The file that holds this function, owned by the caller, or NULL. For the program itself dladdr gives what
 * was typed, or what another program calls it, which says nothing where it is no path: the kernel knows. */
static char *own_file(void)
{
    Dl_info info;
    union { /* ISO C has no cast from a function to dladdr's void pointer */
        int (*function)(struct syi_plugin_folders *, struct sy_error *);
        void *address;
    } here = {.function = syi_plugin_folders_find};
    if (!dladdr(here.address, &info) || !info.dli_fname) return NULL;
    char *file = strchr(info.dli_fname, '/') ? realpath(info.dli_fname, NULL) : NULL;
    return file ? file : realpath(syi_program_file(), NULL);
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

/* ---- by name ---- */

static int first_file(const struct syi_plugin_folders *folders, const struct syi_plugin_want *want,
                      char **path, struct sy_error *err)
{
    for (size_t i = 0; i < folders->n; i++) {
        *path = syi_format("%s/%s%s" SYI_PLUGIN_SUFFIX, folders->path[i], want->prefix, want->name);
        if (!*path) return syi_error(err, SY_ENOMEM, "out of memory");
        if (access(*path, F_OK) == 0) return SY_OK;
        syi_free(*path);
        *path = NULL;
    }
    return SY_OK;
}

static int not_found(const struct syi_plugin_folders *folders, const struct syi_plugin_want *want,
                     struct sy_error *err)
{
    const char *named = folders->chosen ? "names these folders, and no others are searched: add that of the "
                                          "plugins which came with switchyard"
                                        : "names other folders";
    struct syi_text text = {0};
    for (size_t i = 0; i < folders->n; i++) syi_text_printf(&text, "%s%s", i ? ", " : "", folders->path[i]);
    int status = syi_error(
        err, want->missing, "%s: no %s%s" SYI_PLUGIN_SUFFIX " in %s; %sSWITCHYARD_BACKEND_PATH %s",
        want->what, want->prefix, want->name, text.data ? text.data : "any folder", want->advice, named);
    syi_text_free(&text);
    return status;
}

int syi_plugin_find(const struct syi_plugin_want *want, char **path, struct sy_error *err)
{
    struct syi_plugin_folders folders;
    *path = NULL;
    int status = syi_plugin_folders_find(&folders, err);
    if (!status) status = first_file(&folders, want, path, err);
    if (!status && !*path) status = not_found(&folders, want, err);
    syi_plugin_folders_free(&folders);
    return status;
}
