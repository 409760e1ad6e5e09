/* SPDX-License-Identifier: Apache-2.0 */
/* Finds names in a list without walking through it. The owner keeps the names and numbers them; an index
 * keeps hashes and numbers. A search compares hashes, and names only where these are equal. */
#ifndef SYI_INDEX_H
#define SYI_INDEX_H

#include "base/base.h"

struct syi_index_slot {
    uint32_t hash, id; /* id of the owner plus 1; 0: empty */
};

/* All zero is an empty one. */
struct syi_index {
    struct syi_index_slot *slot; /* [capacity], a power of two */
    size_t n, capacity;
};

/* The owner's name number `id`. */
typedef const char *(*syi_index_name_fn)(const void *owner, uint32_t id);

/* The number of a name, or -1. */
int64_t syi_index_find(const struct syi_index *index, syi_index_name_fn name_of, const void *owner,
                       const char *name);
/* Adds a name that is not there yet. On failure nothing changes. */
int syi_index_add(struct syi_index *index, const char *name, uint32_t id,
                  struct sy_error *err) SYI_MUST_CHECK;
int syi_index_copy(const struct syi_index *from, struct syi_index *to, struct sy_error *err) SYI_MUST_CHECK;
void syi_index_free(struct syi_index *index); /* empty afterwards */

#endif
