/* SPDX-License-Identifier: Apache-2.0 */
/* The byte vocabulary, seqio's ByteVocabulary: id = byte + 3, 0 pads, 1 ends, 2 is unknown; extra ids after the
 * bytes. Special and extra ids have no text. */
#include "config.h"

#include "data/vocabulary.h"

enum { END = 1, UNKNOWN, FIRST, BYTES = 256 };

static int encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                  size_t capacity, size_t *n, struct sy_error *err)
{
    (void)vocabulary, (void)err;
    *n = text.bytes;
    for (size_t i = 0; i < text.bytes && i < capacity; i++) ids[i] = FIRST + (unsigned char)text.text[i];
    return SY_OK;
}

static void decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                   struct syi_text *text)
{
    char bytes[256];
    size_t used = 0;
    (void)vocabulary;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < FIRST || ids[i] >= FIRST + BYTES) continue;
        bytes[used++] = (char)(unsigned char)(ids[i] - FIRST);
        if (used == sizeof bytes) syi_text_append(text, bytes, used), used = 0;
    }
    if (used) syi_text_append(text, bytes, used);
}

static void piece(const struct syi_vocabulary *vocabulary, int32_t id, struct syi_text *text)
{
    char byte = (char)(id - FIRST);
    (void)vocabulary;
    if (byte > ' ' && byte < 127)
        syi_text_append(text, &byte, 1);
    else
        syi_text_printf(text, "<0x%02X>", (unsigned)(unsigned char)byte);
}

int syi_vocabulary_bytes(struct syi_vocabulary *vocabulary, int32_t n_extra, struct sy_error *err)
{
    if (n_extra < 0 || n_extra > SYI_MAX_EXTRA_IDS)
        return syi_error(err, SY_EINVAL, "byte vocabulary: %d extra ids; 0 to %d are possible", n_extra,
                         SYI_MAX_EXTRA_IDS);
    *vocabulary = (struct syi_vocabulary){.kind = &syi_vocabulary_kind_bytes,
                                          .end = END,
                                          .unknown = UNKNOWN,
                                          .first = FIRST,
                                          .n_base = FIRST + BYTES,
                                          .n_extra = n_extra};
    return SY_OK;
}

static int make(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                struct sy_error *err)
{
    return syi_vocabulary_bytes(vocabulary, (int32_t)options->extra_ids, err);
}

const struct syi_vocabulary_kind syi_vocabulary_kind_bytes = {make, NULL, encode, decode, piece};
