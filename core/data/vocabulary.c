/* SPDX-License-Identifier: Apache-2.0 */
/* The byte vocabulary and the UTF-8 check. Nothing here knows files or batches. */
#include "config.h"

#include <string.h>

#include "base/text.h" /* syi_utf8_length */
#include "data/vocabulary.h"

int syi_vocabulary_bytes(struct syi_vocabulary *vocabulary, int32_t n_extra, struct sy_error *err)
{
    if (n_extra < 0 || n_extra > 1 << 24)
        return syi_error(err, SY_EINVAL, "byte vocabulary: %d extra ids; 0 to 16777216 are possible",
                         n_extra);
    *vocabulary = (struct syi_vocabulary){
        .kind = SYI_VOCABULARY_BYTES, .n_base = SYI_ID_FIRST_BYTE + 256, .n_extra = n_extra};
    return SY_OK;
}

int32_t syi_vocabulary_size(const struct syi_vocabulary *vocabulary)
{
    return vocabulary->n_base + vocabulary->n_extra;
}

static size_t encode_bytes(struct syi_span text, int32_t *ids, size_t capacity)
{
    size_t n = text.bytes < capacity ? text.bytes : capacity;
    for (size_t i = 0; i < n; i++) ids[i] = SYI_ID_FIRST_BYTE + (unsigned char)text.text[i];
    return text.bytes;
}

size_t syi_vocabulary_encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                             size_t capacity)
{
    switch (vocabulary->kind) {
    case SYI_VOCABULARY_BYTES: return encode_bytes(text, ids, capacity);
    }
    return 0;
}

static size_t decode_bytes(const int32_t *ids, size_t n, char *text, size_t capacity)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n && ids[i] != SYI_ID_EOS && bytes < capacity; i++)
        if (ids[i] >= SYI_ID_FIRST_BYTE && ids[i] < SYI_ID_FIRST_BYTE + 256)
            text[bytes++] = (char)(unsigned char)(ids[i] - SYI_ID_FIRST_BYTE);
    return bytes;
}

size_t syi_vocabulary_decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                             char *text, size_t capacity)
{
    switch (vocabulary->kind) {
    case SYI_VOCABULARY_BYTES: return decode_bytes(ids, n, text, capacity);
    }
    return 0;
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
