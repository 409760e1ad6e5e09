/* SPDX-License-Identifier: Apache-2.0 */
/* Text to token ids and back. One kind today: bytes (id = byte + 3; 0 pads, 1 ends, 2 is unknown; extra ids
 * behind the bytes, as seqio's ByteVocabulary has them). Padding, trimming and the end token of a feature
 * belong to batch.h. */
#ifndef SYI_VOCABULARY_H
#define SYI_VOCABULARY_H

#include "base/base.h"

enum { SYI_ID_PAD = 0, SYI_ID_EOS = 1, SYI_ID_UNKNOWN = 2, SYI_ID_FIRST_BYTE = 3 };

struct syi_span {
    const char *text; /* borrowed, need not end in NUL */
    size_t bytes;
};

enum syi_vocabulary_kind { SYI_VOCABULARY_BYTES };

struct syi_vocabulary {
    enum syi_vocabulary_kind kind;
    int32_t n_base;  /* ids with a text of their own and the special ones: 259 for bytes */
    int32_t n_extra; /* ids behind those, without text (sentinels of span corruption) */
};

/* A byte vocabulary with n_extra further ids. */
int syi_vocabulary_bytes(struct syi_vocabulary *vocabulary, int32_t n_extra,
                         struct sy_error *err) SYI_MUST_CHECK;
/* All ids: n_base + n_extra. A model's embedding may have more rows (rounded up); those ids have no text. */
int32_t syi_vocabulary_size(const struct syi_vocabulary *vocabulary);
/* Returns how many ids the text has and writes the first `capacity` of them (ids may be NULL with capacity
 * 0). No end token is added. Does not allocate. */
size_t syi_vocabulary_encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                             size_t capacity);
/* The text of ids up to the first end token; special, extra and out-of-range ids have none. Returns the bytes
 * written, never more than `capacity`; no NUL is added. Bytes come out as they are: what a model says need
 * not be UTF-8 (syi_utf8_drop_invalid gives seqio's string). */
size_t syi_vocabulary_decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                             char *text, size_t capacity);

/* Whether the text is valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
int syi_utf8_valid(struct syi_span text);
/* Removes in place every byte that is no part of a valid sequence; returns the bytes left. */
size_t syi_utf8_drop_invalid(char *text, size_t bytes);

#endif
