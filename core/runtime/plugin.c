/* SPDX-License-Identifier: Apache-2.0 */
/* Backends by name, and all of them. Folders and dlopen: base/plugin_folders.h; the checks: plugin_check.c. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin_folders.h"
#include "base/vocabularies.h"
#include "base/text.h"
#include "runtime/plugin.h"

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

static int load_file(const char *name, const char *path, struct syi_plugin *plugin, struct sy_error *err)
{
    char symbol[NAME_BYTES + 16];
    const char *why;
    void *library = syi_plugin_open_library(name, path, &why);
    if (!library)
        return syi_error(err, SY_EBACKEND,
                         "backend %s: %s cannot be loaded (this host: ABI %d.%d): %s; rebuild it here", name,
                         path, SY_ABI_MAJOR, SY_ABI_MINOR, why);
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

/* ---- by name ---- */

static int name_is_plain(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length < NAME_BYTES && name[length] == '\0';
}

static int not_found(const char *name, const struct syi_plugin_folders *folders, struct sy_error *err)
{
    struct syi_text text = {0};
    for (size_t i = 0; i < folders->n; i++) syi_text_printf(&text, "%s%s", i ? ", " : "", folders->path[i]);
    int status = syi_error(err, SY_ENOENT,
                           "backend %s: no " SYI_PLUGIN_PREFIX "%s" SYI_PLUGIN_SUFFIX
                           " in %s; `switchyard backends` lists what there is, "
                           "SWITCHYARD_BACKEND_PATH names other folders",
                           name, name, text.data ? text.data : "any folder");
    syi_text_free(&text);
    return status;
}

int syi_plugin_load(const char *name, struct syi_plugin *plugin, struct sy_error *err)
{
    struct syi_plugin_folders folders;
    memset(plugin, 0, sizeof(*plugin));
    if (!name_is_plain(name))
        return syi_error(err, SY_EINVAL,
                         "backend \"%.80s\": a name has lower-case letters, digits and _ only", name);
    for (size_t i = 0; linked[i].name; i++)
        if (strcmp(linked[i].name, name) == 0)
            return syi_plugin_check(name, "built in", linked[i].desc, plugin, err);
    char *path = NULL;
    int status = syi_plugin_folders_find(&folders, err);
    if (status == SY_OK) status = syi_plugin_folders_file(&folders, name, &path, err);
    if (status == SY_OK) status = path ? load_file(name, path, plugin, err) : not_found(name, &folders, err);
    syi_free(path);
    syi_plugin_folders_free(&folders);
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

/* A plugin that is named after a vocabulary holds that (data/vocabulary.h). */
static int is_vocabulary(const char *name, size_t length)
{
#define SAME_NAME(constant, text) || (length == sizeof(text) - 1 && !strncmp(name, text, length))
    return 0 SYI_VOCABULARY_MAP(SAME_NAME);
#undef SAME_NAME
}

static int is_plugin(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), around = sizeof(SYI_PLUGIN_PREFIX SYI_PLUGIN_SUFFIX) - 1;
    return length > around && strncmp(entry->d_name, SYI_PLUGIN_PREFIX, sizeof(SYI_PLUGIN_PREFIX) - 1) == 0 &&
           strcmp(entry->d_name + length - (sizeof(SYI_PLUGIN_SUFFIX) - 1), SYI_PLUGIN_SUFFIX) == 0 &&
           !is_vocabulary(entry->d_name + sizeof(SYI_PLUGIN_PREFIX) - 1, length - around);
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
        size_t length = strlen(entries[i]->d_name) - (sizeof(SYI_PLUGIN_PREFIX SYI_PLUGIN_SUFFIX) - 1);
        char *name = syi_format("%.*s", (int)length, entries[i]->d_name + sizeof(SYI_PLUGIN_PREFIX) - 1);
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
    struct syi_plugin_folders folders;
    int status = syi_plugin_folders_find(&folders, err);
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
    syi_plugin_folders_free(&folders);
    return status;
}
