/* SPDX-License-Identifier: Apache-2.0 */
/* What plugins with a head have in common: their names, and checking the head. Folders, loading and the symbol of the
 * descriptor: base/plugin_folders.h. */
#include "config.h"

#include <string.h>

#include "base/plugin_folders.h"
#include "runtime/plugin_library.h"

/* ---- by name ---- */

/* A file of a kind, and room for its texts. */
struct wanted {
    char what[SYI_LIBRARY_NAME + 32], symbol[SYI_LIBRARY_NAME + 32];
    struct syi_plugin_want want;
};

static const struct syi_plugin_want *want(struct wanted *wanted, const struct syi_library_kind *kind,
                                          const char *name)
{
    snprintf(wanted->what, sizeof wanted->what, "%s %s", kind->what, name);
    snprintf(wanted->symbol, sizeof wanted->symbol, "%s%s", kind->symbol, name);
    wanted->want = (struct syi_plugin_want){.what = wanted->what,
                                            .prefix = kind->prefix,
                                            .name = name,
                                            .advice = kind->advice,
                                            .missing = SY_ENOENT,
                                            .symbol = wanted->symbol,
                                            .major = kind->major,
                                            .minor = kind->minor};
    return &wanted->want;
}

int syi_library_name_is_plain(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length < SYI_LIBRARY_NAME && name[length] == '\0';
}

int syi_library_find(const struct syi_library_kind *kind, const char *name, char **path, struct sy_error *err)
{
    struct wanted wanted;
    *path = NULL;
    if (!syi_library_name_is_plain(name))
        return syi_error(err, SY_EINVAL, "%s \"%.80s\": a name has lower-case letters, digits and _ only",
                         kind->what, name);
    return syi_plugin_find(want(&wanted, kind, name), path, err);
}

int syi_library_open(const struct syi_library_kind *kind, const char *name, const char *path,
                     const void **descriptor, struct sy_error *err)
{
    struct wanted wanted;
    return syi_plugin_open(want(&wanted, kind, name), path, descriptor, err);
}

/* ---- its descriptor ---- */

static const char *head_fault(const struct syi_library_kind *kind, const struct syi_library_head *head)
{
    if (head->abi_major != kind->major) return "speaks another major version of the ABI";
    if (head->min_host_minor > kind->minor) return "needs a newer host";
    if (head->abi_minor < kind->oldest_minor) return "is from before calls and kernels changed";
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
