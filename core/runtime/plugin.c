/* SPDX-License-Identifier: Apache-2.0 */
/* Backends by name: those that are linked, and the plugins of the folders of base/plugin_folders.h. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/plugin_folders.h"
#include "base/text.h"
#include "base/vocabularies.h"
#include "runtime/plugin.h"

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

/* ---- by name ---- */

static int load_file(const char *name, const char *path, struct syi_plugin *plugin, struct sy_error *err)
{
    const void *found;
    int status = syi_library_open(syi_plugin_kind(), name, path, &found, err);
    return status ? status : syi_plugin_check(name, path, found, plugin, err);
}

int syi_plugin_load(const char *name, struct syi_plugin *plugin, struct sy_error *err)
{
    char *path;
    memset(plugin, 0, sizeof(*plugin));
    for (size_t i = 0; linked[i].name; i++)
        if (strcmp(linked[i].name, name) == 0)
            return syi_plugin_check(name, "built in", linked[i].desc, plugin, err);
    int status = syi_library_find(syi_plugin_kind(), name, &path, err);
    if (!status) status = load_file(name, path, plugin, err);
    syi_free(path);
    return status;
}

/* ---- all of them ---- */

struct seen {
    char *name; /* owned */
    struct stat file;
};

struct walk {
    syi_plugin_fn fn;
    void *arg;
    struct seen *seen; /* names met so far */
    size_t n, capacity;
    int status; /* of the walk: what goes wrong ends it, so that nothing is left out of a list without a word */
    struct sy_error *err;
};

static void stop(struct walk *walk)
{
    if (!walk->status)
        walk->status = syi_error(walk->err, SY_ENOMEM, "out of memory while backends are listed");
}

/* Who had the name before, NULL: nobody, and now it is file's. */
static const struct seen *met(struct walk *walk, const char *name, const struct stat *file)
{
    for (size_t i = 0; i < walk->n; i++)
        if (strcmp(walk->seen[i].name, name) == 0) return &walk->seen[i];
    char *copy = syi_strdup(name, NULL);
    if (copy && SYI_GROW(walk->seen, walk->capacity, walk->n + 1, NULL) == SY_OK) {
        walk->seen[walk->n++] = (struct seen){copy, *file};
    } else {
        syi_free(copy);
        stop(walk);
    }
    return NULL;
}

/* One folder may be found by several paths; its files are then the same and reported once. */
static void report_file(struct walk *walk, const char *name, const char *path)
{
    struct syi_plugin plugin = {0};
    struct sy_error why = {0};
    struct stat file = {0};
    int there = !stat(path, &file);
    const struct seen *before = met(walk, name, &file);
    if (before && there && before->file.st_dev == file.st_dev && before->file.st_ino == file.st_ino) return;
    if (before)
        syi_error(&why, SY_EEXIST, "hidden: a backend of this name comes before it");
    else if (!syi_library_name_is_plain(name))
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
           syi_ends_with(entry->d_name, SYI_PLUGIN_SUFFIX) &&
           !is_vocabulary(entry->d_name + sizeof(SYI_PLUGIN_PREFIX) - 1, length - around);
}

static void report_folder(struct walk *walk, const char *folder, int chosen)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_plugin, alphasort);
    if (n < 0) {
        struct sy_error why = {0};
        if (errno == ENOMEM) stop(walk);
        syi_error_system(&why, "SWITCHYARD_BACKEND_PATH: folder %s cannot be read", folder);
        if (chosen && !walk->status) walk->fn(walk->arg, "-", folder, NULL, why.text);
        return;
    }
    for (int i = 0; i < n; i++) {
        size_t length = strlen(entries[i]->d_name) - (sizeof(SYI_PLUGIN_PREFIX SYI_PLUGIN_SUFFIX) - 1);
        char *name = syi_format("%.*s", (int)length, entries[i]->d_name + sizeof(SYI_PLUGIN_PREFIX) - 1);
        char *path = syi_format("%s/%s", folder, entries[i]->d_name);
        if (!name || !path)
            stop(walk);
        else if (!walk->status)
            report_file(walk, name, path);
        syi_free(name);
        syi_free(path);
        free(entries[i]);
    }
    free(entries);
}

int syi_plugin_each(syi_plugin_fn fn, void *arg, struct sy_error *err)
{
    struct walk walk = {.fn = fn, .arg = arg, .err = err};
    struct syi_plugin_folders folders;
    walk.status = syi_plugin_folders_find(&folders, err);
    for (size_t i = 0; !walk.status && linked[i].name; i++) {
        struct syi_plugin plugin = {0};
        struct sy_error why = {0};
        met(&walk, linked[i].name, &(struct stat){0});
        syi_plugin_check(linked[i].name, "built in", linked[i].desc, &plugin, &why);
        fn(arg, linked[i].name, "built in", why.code ? NULL : &plugin, why.code ? why.text : NULL);
        syi_plugin_free(&plugin);
    }
    for (size_t i = 0; !walk.status && i < folders.n; i++)
        report_folder(&walk, folders.path[i], folders.chosen);
    for (size_t i = 0; i < walk.n; i++) syi_free(walk.seen[i].name);
    syi_free(walk.seen);
    syi_plugin_folders_free(&folders);
    return walk.status;
}
