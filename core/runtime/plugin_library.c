/* SPDX-License-Identifier: Apache-2.0 */
/* What plugins of all kinds have in common: the folders they are looked for in, opening a file, finding its descriptor
 * and checking the head of that. Opened libraries are never closed: what is in them may be named by a log line or a
 * profile until the process ends. */
#include "config.h"

#include <dlfcn.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/threads.h"
#include "runtime/plugin_library.h"

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

int syi_library_open(const struct syi_library_kind *kind, const char *name, const char *path,
                     const void **descriptor, struct sy_error *err)
{
    char symbol[SYI_LIBRARY_NAME + 32], what[SYI_LIBRARY_NAME + 32];
    const char *why = syi_plugin_file_fault(path);
    snprintf(what, sizeof what, "%s %s", kind->what, name);
    void *library = why ? NULL : open_library(what, path);
    if (!library) {
        if (!why) why = dlerror();
        return syi_error(err, SY_EBACKEND,
                         "%s: %s cannot be loaded (this host: ABI %d.%d): %s; rebuild it here", what, path,
                         kind->major, kind->minor, why ? why : "no reason given");
    }
    snprintf(symbol, sizeof(symbol), "%s%s", kind->symbol, name);
    *descriptor = dlsym(library, symbol);
    if (*descriptor) return SY_OK;
    return syi_error(err, SY_EBACKEND,
                     "%s: %s has no symbol %s (this host: ABI %d.%d); it is not a switchyard plugin, or "
                     "was renamed",
                     what, path, symbol, kind->major, kind->minor);
}

/* ---- its descriptor ---- */

static const char *head_fault(const struct syi_library_kind *kind, const struct syi_library_head *head)
{
    if (head->abi_major != kind->major) return "speaks another major version of the ABI";
    if (head->min_host_minor > kind->minor) return "needs a newer host";
    if (head->abi_minor < kind->oldest_minor) return "is from before calls and kernels grew";
    if (head->layout != kind->layout) return "was built with structures of another size";
    if (head->desc_bytes < kind->least_bytes) return "has a descriptor that is too short";
    return NULL;
}

int syi_library_refuse(const struct syi_library_kind *kind, const char *name, const char *path,
                       const void *descriptor, const char *why, struct sy_error *err)
{
    const struct syi_library_head *head = descriptor;
    return syi_error(err, SY_EBACKEND,
                     "%s %s: %s (ABI %d.%d, this host %d.%d) %s; rebuild it against this switchyard, or set "
                     "SWITCHYARD_BACKEND_PATH to a folder with a matching one",
                     kind->what, name, path, head->abi_major, head->abi_minor, kind->major, kind->minor, why);
}

int syi_library_check(const struct syi_library_kind *kind, const char *name, const char *path,
                      const void *descriptor, struct sy_error *err)
{
    const struct syi_library_head *head = descriptor;
    if (head->magic != kind->magic)
        return syi_error(err, SY_EBACKEND,
                         "%s %s: %s is not a switchyard plugin (magic %08x, this host has %08x, ABI %d.%d); "
                         "remove it",
                         kind->what, name, path, head->magic, kind->magic, kind->major, kind->minor);
    const char *why = head_fault(kind, head);
    return why ? syi_library_refuse(kind, name, path, descriptor, why, err) : SY_OK;
}

/* ---- search folders ---- */

void syi_folders_free(struct syi_folders *folders)
{
    for (size_t i = 0; i < folders->n; i++) syi_free(folders->path[i]);
    syi_free(folders->path);
}

/* Takes path (from syi_format: NULL when memory ran out). */
static int add_folder_take(struct syi_folders *folders, char *path, struct sy_error *err)
{
    int status = path ? SYI_GROW(folders->path, folders->capacity, folders->n + 1, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
    if (status == SY_OK)
        folders->path[folders->n++] = path;
    else
        syi_free(path);
    return status;
}

static int add_chosen(struct syi_folders *folders, const char *list, struct sy_error *err)
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
        int (*function)(struct syi_folders *, struct sy_error *);
        void *address;
    } here = {.function = syi_folders_find};
    if (!dladdr(here.address, &info) || !info.dli_fname) return NULL;
    return realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", NULL);
}

/* Beside what holds this function: libswitchyard in LIBDIR, or the program in BINDIR, or (before `make
 * install`) the program in the build folder; so a moved prefix works. Then the folder fixed by configure. */
static int add_usual(struct syi_folders *folders, struct sy_error *err)
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

int syi_folders_find(struct syi_folders *folders, struct sy_error *err)
{
    const char *list = getenv("SWITCHYARD_BACKEND_PATH");
    memset(folders, 0, sizeof(*folders));
    return list && *list ? add_chosen(folders, list, err) : add_usual(folders, err);
}

/* ---- by name ---- */

int syi_library_name_is_plain(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length < SYI_LIBRARY_NAME && name[length] == '\0';
}

static int not_found(const struct syi_library_kind *kind, const char *name, const struct syi_folders *folders,
                     struct sy_error *err)
{
    struct syi_text text = {0};
    for (size_t i = 0; i < folders->n; i++) syi_text_printf(&text, "%s%s", i ? ", " : "", folders->path[i]);
    int status =
        syi_error(err, SY_ENOENT,
                  "%s %s: no %s%s" SYI_LIBRARY_SUFFIX " in %s; %s"
                  "SWITCHYARD_BACKEND_PATH names other folders",
                  kind->what, name, kind->prefix, name, text.data ? text.data : "any folder", kind->advice);
    syi_text_free(&text);
    return status;
}

int syi_library_find(const struct syi_library_kind *kind, const char *name, char **path, struct sy_error *err)
{
    struct syi_folders folders;
    *path = NULL;
    if (!syi_library_name_is_plain(name))
        return syi_error(err, SY_EINVAL, "%s \"%.80s\": a name has lower-case letters, digits and _ only",
                         kind->what, name);
    int status = syi_folders_find(&folders, err);
    for (size_t i = 0; !status && !*path && i < folders.n; i++) {
        *path = syi_format("%s/%s%s" SYI_LIBRARY_SUFFIX, folders.path[i], kind->prefix, name);
        if (!*path) {
            status = syi_error(err, SY_ENOMEM, "out of memory");
        } else if (access(*path, F_OK) != 0) {
            syi_free(*path);
            *path = NULL;
        }
    }
    if (!status && !*path) status = not_found(kind, name, &folders, err);
    syi_folders_free(&folders);
    return status;
}
