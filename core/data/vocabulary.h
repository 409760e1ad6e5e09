/* SPDX-License-Identifier: Apache-2.0 */
/* Text to token ids and back: a table of vocabularies, one file and one row each, chosen by [vocabulary] of the
 * run file. Padding, trimming and the end token of a feature belong to batch.h. */
#ifndef SYI_VOCABULARY_H
#define SYI_VOCABULARY_H

#include "base/run_config.h"

/* Of every vocabulary: batches begin as zeros, a decoder begins with one, and masks and losses take ids over 0 for
 * tokens. All other ids are the vocabulary's own. */
enum { SYI_ID_PAD = 0 };

struct syi_span {
    const char *text; /* borrowed, need not end in NUL */
    size_t bytes;
};

struct syi_vocabulary {
    const struct syi_vocabulary_kind *kind; /* NULL: not open */
    void *data;                             /* what the kind keeps, NULL: nothing */
    int32_t end;                            /* id of the end token */
    int32_t first;                          /* the first id that is no special one */
    int32_t n_base;                         /* ids with a text of their own and the special ones */
    int32_t n_extra;                        /* ids after those, without text (sentinels of span corruption) */
};

/* A row of the table, in the order of SYI_VOCABULARY_MAP. */
struct syi_vocabulary_kind {
    /* Fills *vocabulary, which is zeroed; on failure `close` is called if the kind is set. */
    int (*open)(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                struct sy_error *err);
    void (*close)(struct syi_vocabulary *vocabulary); /* frees data; NULL: there is none */
    /* As syi_vocabulary_encode and syi_vocabulary_decode. */
    size_t (*encode)(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                     size_t capacity);
    size_t (*decode)(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n, char *text,
                     size_t capacity);
};
extern const struct syi_vocabulary_kind syi_vocabulary_kind_bytes; /* vocabulary_bytes.c */

/* The vocabulary of a run; SY_EINVAL where its model has fewer rows than there are ids. Closed by the caller. */
int syi_vocabulary_open(struct syi_vocabulary *vocabulary, const struct syi_config *config,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The same without a model. */
int syi_vocabulary_make(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Also of one that is zeroed: nothing. */
void syi_vocabulary_close(struct syi_vocabulary *vocabulary);
/* A byte vocabulary with n_extra further ids; need not be closed. */
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
