/* SPDX-License-Identifier: Apache-2.0 */
/* The byte vocabulary, seqio's ByteVocabulary: id = byte + 3, 0 pads, 1 ends, 2 is unknown; extra ids after the
 * bytes. */
#include "config.h"

#include "data/vocabulary.h"

enum { END = 1, FIRST = 3, BYTES = 256 };

static size_t encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                     size_t capacity)
{
    size_t n = text.bytes < capacity ? text.bytes : capacity;
    (void)vocabulary;
    for (size_t i = 0; i < n; i++) ids[i] = FIRST + (unsigned char)text.text[i];
    return text.bytes;
}

static size_t decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n, char *text,
                     size_t capacity)
{
    size_t bytes = 0;
    (void)vocabulary;
    for (size_t i = 0; i < n && ids[i] != END && bytes < capacity; i++)
        if (ids[i] >= FIRST && ids[i] < FIRST + BYTES) text[bytes++] = (char)(unsigned char)(ids[i] - FIRST);
    return bytes;
}

int syi_vocabulary_bytes(struct syi_vocabulary *vocabulary, int32_t n_extra, struct sy_error *err)
{
    if (n_extra < 0 || n_extra > 1 << 24)
        return syi_error(err, SY_EINVAL, "byte vocabulary: %d extra ids; 0 to 16777216 are possible",
                         n_extra);
    *vocabulary = (struct syi_vocabulary){.kind = &syi_vocabulary_kind_bytes,
                                          .end = END,
                                          .first = FIRST,
                                          .n_base = FIRST + BYTES,
                                          .n_extra = n_extra};
    return SY_OK;
}

static int make(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                struct sy_error *err)
{
    (void)options;
    return syi_vocabulary_bytes(vocabulary, 0, err);
}

const struct syi_vocabulary_kind syi_vocabulary_kind_bytes = {make, NULL, encode, decode};
