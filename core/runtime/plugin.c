/* SPDX-License-Identifier: Apache-2.0 */
/* Search folders and dlopen; the checks are in plugin_file.c and plugin_check.c. Opened libraries are never closed:
 * their kernels may be named by a log line or a profile until the process ends. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/plugin.h"
#include "base/threads.h"

#define PREFIX "switchyard-"
#define SUFFIX ".so"

enum { NAME_BYTES = 64 };

/* ---- linked backends ---- */

#ifdef SY_BUILTIN_CPU
extern const struct sy_backend_desc sy_backend_cpu;
#endif
#ifdef SY_BUILTIN_NULL
extern const struct sy_backend_desc sy_backend_null;
#endif

static const struct {
    const char *name;
    const struct sy_backend_desc *desc;
} linked[] = {
#ifdef SY_BUILTIN_CPU
    {"cpu", &sy_backend_cpu},
#endif
#ifdef SY_BUILTIN_NULL
    {"null", &sy_backend_null},
#endif
    {NULL, NULL},
};

/* ---- one file ---- */

/* A library linked with -ffast-math switches denormals off for the thread that loads it. That would change
 * results, so it is undone, aloud. */
static void *open_library(const char *name, const char *path)
{
    fenv_t before;
    uint32_t control = syi_fp_control();
    fegetenv(&before);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (syi_fp_control() != control)
        syi_log(SY_LOG_WARN,
                "backend %s: loading %s changed the floating-point mode (linked with -ffast-math?); undone",
                name, path);
    fesetenv(&before);
    return library;
}

static int load_file(const char *name, const char *path, struct syi_plugin *plugin, struct sy_error *err)
{
    char symbol[NAME_BYTES + 16];
    const char *why = syi_plugin_file_fault(path);
    void *library = why ? NULL : open_library(name, path);
    if (!library) {
        if (!why) why = dlerror();
        return syi_error(err, SY_EBACKEND,
                         "backend %s: %s cannot be loaded (this host: ABI %d.%d): %s; rebuild it here", name,
                         path, SY_ABI_MAJOR, SY_ABI_MINOR, why ? why : "no reason given");
    }
    snprintf(symbol, sizeof(symbol), "sy_backend_%s", name);
    const struct sy_backend_desc *found = dlsym(library, symbol);
    if (!found)
        return syi_error(
            err, SY_EBACKEND,
            "backend %s: %s has no symbol %s (this host: ABI %d.%d); it is not a switchyard plugin, or "
            "was renamed",
            name, path, symbol, SY_ABI_MAJOR, SY_ABI_MINOR);
    return syi_plugin_check(name, path, found, plugin, err);
}

/* ---- search folders ---- */

struct folders {
    char **path; /* owned */
    size_t n, capacity;
    int chosen; /* by the user: a folder that cannot be read is worth a word */
};

static void folders_free(struct folders *folders)
{
    for (size_t i = 0; i < folders->n; i++) syi_free(folders->path[i]);
    syi_free(folders->path);
}

/* Takes path (from syi_format: NULL when memory ran out). */
static int add_folder_take(struct folders *folders, char *path, struct sy_error *err)
{
    int status = path ? SYI_GROW(folders->path, folders->capacity, folders->n + 1, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
    if (status == SY_OK)
        folders->path[folders->n++] = path;
    else
        syi_free(path);
    return status;
}

static int add_chosen(struct folders *folders, const char *list, struct sy_error *err)
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
        int (*function)(const char *, struct syi_plugin *, struct sy_error *);
        void *address;
    } here = {.function = syi_plugin_load};
    if (!dladdr(here.address, &info) || !info.dli_fname) return NULL;
    return realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", NULL);
}

/* Beside what holds this function: libswitchyard in LIBDIR, or the program in BINDIR, or (before `make
 * install`) the program in the build folder; so a moved prefix works. Then the folder fixed by configure. */
static int add_usual(struct folders *folders, struct sy_error *err)
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

static int folders_find(struct folders *folders, struct sy_error *err)
{
    const char *list = getenv("SWITCHYARD_BACKEND_PATH");
    memset(folders, 0, sizeof(*folders));
    return list && *list ? add_chosen(folders, list, err) : add_usual(folders, err);
}

/* ---- by name ---- */

static int name_is_plain(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length < NAME_BYTES && name[length] == '\0';
}

static int not_found(const char *name, const struct folders *folders, struct sy_error *err)
{
    struct syi_text text = {0};
    for (size_t i = 0; i < folders->n; i++) syi_text_printf(&text, "%s%s", i ? ", " : "", folders->path[i]);
    int status =
        syi_error(err, SY_ENOENT,
                  "backend %s: no " PREFIX "%s" SUFFIX " in %s; `switchyard backends` lists what there is, "
                  "SWITCHYARD_BACKEND_PATH names other folders",
                  name, name, text.data ? text.data : "any folder");
    syi_text_free(&text);
    return status;
}

int syi_plugin_load(const char *name, struct syi_plugin *plugin, struct sy_error *err)
{
    struct folders folders;
    memset(plugin, 0, sizeof(*plugin));
    if (!name_is_plain(name))
        return syi_error(err, SY_EINVAL,
                         "backend \"%.80s\": a name has lower-case letters, digits and _ only", name);
    for (size_t i = 0; linked[i].name; i++)
        if (strcmp(linked[i].name, name) == 0)
            return syi_plugin_check(name, "built in", linked[i].desc, plugin, err);
    int status = folders_find(&folders, err), found = 0;
    for (size_t i = 0; status == SY_OK && !found && i < folders.n; i++) {
        char *path = syi_format("%s/" PREFIX "%s" SUFFIX, folders.path[i], name);
        if (!path) {
            status = syi_error(err, SY_ENOMEM, "out of memory");
        } else if (access(path, F_OK) == 0) {
            found = 1;
            status = load_file(name, path, plugin, err);
        }
        syi_free(path);
    }
    if (status == SY_OK && !found) status = not_found(name, &folders, err);
    folders_free(&folders);
    return status;
}

/* ---- all of them ---- */

struct walk {
    syi_plugin_fn fn;
    void *arg;
    char **seen; /* names met so far, owned */
    size_t n, capacity;
};

/* Whether the name was met before; else remembers it. */
static int met(struct walk *walk, const char *name)
{
    for (size_t i = 0; i < walk->n; i++)
        if (strcmp(walk->seen[i], name) == 0) return 1;
    char *copy = syi_strdup(name, NULL);
    if (copy && SYI_GROW(walk->seen, walk->capacity, walk->n + 1, NULL) == SY_OK)
        walk->seen[walk->n++] = copy;
    else
        syi_free(copy);
    return 0;
}

static void report_file(struct walk *walk, const char *name, const char *path)
{
    struct syi_plugin plugin = {0};
    struct sy_error why = {0};
    if (met(walk, name))
        syi_error(&why, SY_EEXIST, "hidden: a backend of this name comes before it");
    else if (!name_is_plain(name))
        syi_error(&why, SY_EBACKEND, "backend %s: %s: a name has lower-case letters, digits and _ only", name,
                  path);
    else
        load_file(name, path, &plugin, &why);
    walk->fn(walk->arg, name, path, why.code ? NULL : &plugin, why.code ? why.text : NULL);
    syi_plugin_free(&plugin);
}

static int is_plugin(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), around = sizeof(PREFIX SUFFIX) - 1;
    return length > around && strncmp(entry->d_name, PREFIX, sizeof(PREFIX) - 1) == 0 &&
           strcmp(entry->d_name + length - (sizeof(SUFFIX) - 1), SUFFIX) == 0;
}

static void report_folder(struct walk *walk, const char *folder, int chosen)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_plugin, alphasort);
    if (n < 0) {
        struct sy_error why = {0};
        syi_error_system(&why, "SWITCHYARD_BACKEND_PATH: folder %s cannot be read", folder);
        if (chosen) walk->fn(walk->arg, "-", folder, NULL, why.text);
        return;
    }
    for (int i = 0; i < n; i++) {
        size_t length = strlen(entries[i]->d_name) - (sizeof(PREFIX SUFFIX) - 1);
        char *name = syi_format("%.*s", (int)length, entries[i]->d_name + sizeof(PREFIX) - 1);
        char *path = syi_format("%s/%s", folder, entries[i]->d_name);
        if (name && path) report_file(walk, name, path);
        syi_free(name);
        syi_free(path);
        free(entries[i]);
    }
    free(entries);
}

int syi_plugin_each(syi_plugin_fn fn, void *arg, struct sy_error *err)
{
    struct walk walk = {.fn = fn, .arg = arg};
    struct folders folders;
    int status = folders_find(&folders, err);
    for (size_t i = 0; status == SY_OK && linked[i].name; i++) {
        struct syi_plugin plugin = {0};
        struct sy_error why = {0};
        met(&walk, linked[i].name);
        syi_plugin_check(linked[i].name, "built in", linked[i].desc, &plugin, &why);
        fn(arg, linked[i].name, "built in", why.code ? NULL : &plugin, why.code ? why.text : NULL);
        syi_plugin_free(&plugin);
    }
    for (size_t i = 0; status == SY_OK && i < folders.n; i++)
        report_folder(&walk, folders.path[i], folders.chosen);
    for (size_t i = 0; i < walk.n; i++) syi_free(walk.seen[i]);
    syi_free(walk.seen);
    folders_free(&folders);
    return status;
}
