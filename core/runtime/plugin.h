/* SPDX-License-Identifier: Apache-2.0 */
/* Finding plugins and deciding whether the host can live with one. None of this runs plugin code: only the
 * descriptor, which is data, is read. */
#ifndef SYI_PLUGIN_H
#define SYI_PLUGIN_H

#include "base/base.h"
#include "runtime/plugin_library.h"
#include "switchyard/backend.h"

/* The tables of a plugin in the host's sizes: what an older plugin lacks is zero, and functions it left out
 * return SY_EUNSUPPORTED. */
struct syi_plugin {
    char *path;                             /* owned; "built in" for a linked backend */
    struct sy_backend_desc desc;            /* tables point to the copies below, or are NULL */
    struct sy_device_table device;          /* used when desc.caps has SY_CAP_DEVICE */
    struct sy_collective_table collectives; /* used when desc.caps has SY_CAP_COLLECTIVES */
    struct sy_link_table links;             /* used when desc.links is there */
};

/* ---- plugin.c ---- */

/* Loads and checks backend NAME: a linked one, else the first switchyard-NAME.so of the search folders. A
 * refusal is one line: path, both versions, what to do. plugin is freed by syi_plugin_free, which leaves code
 * and data loaded. */
int syi_plugin_load(const char *name, struct syi_plugin *plugin, struct sy_error *err);
void syi_plugin_free(struct syi_plugin *plugin);

/* Calls fn for every backend there is, linked ones first, then plugins folder by folder in the order of their
 * names. why NULL: plugin is loaded (borrowed); else why says what is wrong with it (hidden, broken, foreign)
 * and plugin is NULL. */
typedef void (*syi_plugin_fn)(void *arg, const char *name, const char *path, const struct syi_plugin *plugin,
                              const char *why);
int syi_plugin_each(syi_plugin_fn fn, void *arg, struct sy_error *err);

/* ---- plugin_check.c ---- */

const struct syi_library_kind *syi_plugin_kind(void); /* of backends */
/* Checks a descriptor and copies it and its tables; path (borrowed) is for messages, and is copied. */
int syi_plugin_check(const char *name, const char *path, const struct sy_backend_desc *found,
                     struct syi_plugin *plugin, struct sy_error *err);

#endif
