/* SPDX-License-Identifier: Apache-2.0 */
/* The list of held files: as many as a run has vocabularies. */
#include "config.h"

#include <string.h>

#include "base/held_files.h"

struct held {
    struct held *next;
    char *name, *text;
    size_t bytes;
};
static struct held *first;

static void free_one(struct held *h)
{
    syi_free(h->name);
    syi_free(h->text);
    syi_free(h);
}

int syi_held_find(const char *name, const char **text, size_t *bytes)
{
    const struct held *h = first;
    while (h && strcmp(h->name, name)) h = h->next;
    if (!h) return 0;
    *text = h->text;
    *bytes = h->bytes;
    return 1;
}

int syi_held_add(const char *name, const char *text, size_t bytes, struct sy_error *err)
{
    const char *held;
    size_t n;
    if (syi_held_find(name, &held, &n)) return SY_OK;
    struct held *h = syi_alloc(sizeof *h, err);
    if (!h) return SY_ENOMEM;
    h->name = syi_strdup(name, err);
    h->text = syi_alloc(bytes + 1, err);
    if (!h->name || !h->text) {
        free_one(h);
        return SY_ENOMEM;
    }
    memcpy(h->text, text, bytes);
    h->bytes = bytes;
    h->next = first;
    first = h;
    return SY_OK;
}

void syi_held_free(void)
{
    while (first) {
        struct held *h = first;
        first = h->next;
        free_one(h);
    }
}
