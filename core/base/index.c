/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table with open addressing, at most half full. */
#include "config.h"

#include <string.h>

#include "base/index.h"

/* FNV-1a. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

/* Where a name of this hash goes. */
static struct syi_index_slot *empty_slot(const struct syi_index *index, uint32_t hash)
{
    size_t at = hash & (index->capacity - 1);
    while (index->slot[at].id) at = (at + 1) & (index->capacity - 1);
    return &index->slot[at];
}

int64_t syi_index_find(const struct syi_index *index, syi_index_name_fn name_of, const void *owner,
                       const char *name)
{
    if (!index->capacity) return -1;
    uint32_t hash = hash_of(name);
    for (size_t at = hash;; at++) {
        const struct syi_index_slot *slot = &index->slot[at & (index->capacity - 1)];
        if (!slot->id) return -1;
        if (slot->hash == hash && !strcmp(name_of(owner, slot->id - 1), name)) return slot->id - 1;
    }
}

static int grow(struct syi_index *index, struct sy_error *err)
{
    struct syi_index larger = {.capacity = index->capacity ? 2 * index->capacity : 64, .n = index->n};
    larger.slot = syi_alloc(larger.capacity * sizeof *larger.slot, err);
    if (!larger.slot) return SY_ENOMEM;
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slot[i].id) *empty_slot(&larger, index->slot[i].hash) = index->slot[i];
    syi_free(index->slot);
    *index = larger;
    return SY_OK;
}

int syi_index_add(struct syi_index *index, const char *name, uint32_t id, struct sy_error *err)
{
    int status = 2 * (index->n + 1) > index->capacity ? grow(index, err) : SY_OK;
    if (status) return status;
    uint32_t hash = hash_of(name);
    *empty_slot(index, hash) = (struct syi_index_slot){hash, id + 1};
    index->n++;
    return SY_OK;
}

int syi_index_copy(const struct syi_index *from, struct syi_index *to, struct sy_error *err)
{
    *to = *from;
    if (!from->capacity) return SY_OK;
    to->slot = syi_alloc(from->capacity * sizeof *to->slot, err);
    if (to->slot) memcpy(to->slot, from->slot, from->capacity * sizeof *to->slot);
    return to->slot ? SY_OK : SY_ENOMEM;
}

void syi_index_free(struct syi_index *index)
{
    syi_free(index->slot);
    memset(index, 0, sizeof *index);
}
