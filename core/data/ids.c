/* SPDX-License-Identifier: Apache-2.0 */
/* What vocabularies are made of: ids that grow, and the UTF-8 check. */
#include "config.h"

#include <string.h>

#include "data/vocabulary.h"

int syi_ids_append(struct syi_ids *ids, const int32_t *id, size_t n, struct sy_error *err)
{
    int status = SYI_GROW(ids->id, ids->capacity, ids->n + n, err);
    if (status) return status;
    if (n) memcpy(ids->id + ids->n, id, n * sizeof *id);
    ids->n += n;
    return SY_OK;
}

void syi_ids_free(struct syi_ids *ids)
{
    syi_free(ids->id);
    memset(ids, 0, sizeof *ids);
}

int syi_utf8_valid(struct syi_span text)
{
    int length;

    for (size_t i = 0; i < text.bytes; i += (size_t)length) {
        length = syi_utf8_length((const unsigned char *)text.text + i, text.bytes - i);
        if (length == 0) return 0;
    }
    return 1;
}

size_t syi_utf8_drop_invalid(char *text, size_t bytes)
{
    size_t kept = 0, length;

    for (size_t i = 0; i < bytes; i += length ? length : 1) {
        length = (size_t)syi_utf8_length((const unsigned char *)text + i, bytes - i);
        memmove(text + kept, text + i, length);
        kept += length;
    }
    return kept;
}
