/* SPDX-License-Identifier: Apache-2.0 */
/* What backends and actions have in common as plugins: their names and the head of their descriptors, on top of
 * base/plugin_folders.h. None of this runs code of a plugin but what its library runs when it is loaded. */
#ifndef SYI_PLUGIN_LIBRARY_H
#define SYI_PLUGIN_LIBRARY_H

#include "base/base.h"

enum { SYI_LIBRARY_NAME = 64 }; /* bytes of a name with its NUL */

/* What every descriptor begins with, in every version. */
struct syi_library_head {
    uint32_t magic;
    uint16_t abi_major, abi_minor;
    uint16_t min_host_minor, reserved16;
    uint32_t desc_bytes;
    uint32_t layout;
};

struct syi_library_kind {
    const char *what;   /* "backend", opens messages */
    const char *prefix; /* of the file: PREFIX NAME .so */
    const char *symbol; /* of the descriptor, before NAME */
    const char *advice; /* of a file that is not there: "try ..., ", or "" */
    uint32_t magic, layout;
    int major, minor, oldest_minor; /* of this host; the oldest plugins that it takes */
    size_t least_bytes;             /* of a descriptor: that of the first version */
};
/* What switchyard/backend.h (SY_ABI) or switchyard/action.h (SY_ACTION) says of its versions. */
#define SYI_LIBRARY_VERSIONS(prefix)                                                                         \
    .magic = prefix##_MAGIC, .layout = prefix##_LAYOUT, .major = prefix##_MAJOR, .minor = prefix##_MINOR,    \
    .oldest_minor = prefix##_OLDEST_MINOR

int syi_library_name_is_plain(const char *name);
/* *path, owned by the caller, of the first file of that name; SY_EINVAL, SY_ENOENT. */
int syi_library_find(const struct syi_library_kind *kind, const char *name, char **path,
                     struct sy_error *err) SYI_MUST_CHECK;
/* Loads a file, for good, and finds its descriptor. */
int syi_library_open(const struct syi_library_kind *kind, const char *name, const char *path,
                     const void **descriptor, struct sy_error *err) SYI_MUST_CHECK;
/* Whether the host can live with the head of a descriptor. */
int syi_library_check(const struct syi_library_kind *kind, const char *name, const char *path,
                      const void *descriptor, struct sy_error *err) SYI_MUST_CHECK;
/* The error of a descriptor that it cannot live with, SY_EBACKEND. */
int syi_library_refuse(const struct syi_library_kind *kind, const char *name, const char *path,
                       const void *descriptor, const char *why, struct sy_error *err);

#endif
