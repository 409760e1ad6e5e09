/* SPDX-License-Identifier: Apache-2.0 */
/* Text to token ids and back: a table of vocabularies, one file each (vocabulary_*.c) and one row of
 * base/vocabularies.h, chosen by [vocabulary] of the run file. Layouts and what is decoded follow seqio's vocabularies
 * (ByteVocabulary, SentencePieceVocabulary). Padding, trimming and the end token of a feature: preprocess.h. */
#ifndef SYI_VOCABULARY_H
#define SYI_VOCABULARY_H

#include "base/run_config.h"

/* Of every vocabulary: batches begin as zeros, a decoder begins with one, and masks and losses take ids over 0 for
 * tokens. All other ids are the vocabulary's own. */
enum { SYI_ID_PAD = 0, SYI_MAX_EXTRA_IDS = 1 << 24 };

struct syi_span {
    const char *text; /* borrowed, need not end in NUL */
    size_t bytes;
};

/* Ids that grow. Start from {0}. */
struct syi_ids {
    int32_t *id; /* (n) */
    size_t n, capacity;
};
/* ---- ids.c ---- */

int syi_ids_append(struct syi_ids *ids, const int32_t *id, size_t n, struct sy_error *err) SYI_MUST_CHECK;
void syi_ids_free(struct syi_ids *ids); /* back to empty */

/* Whether the text is valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
int syi_utf8_valid(struct syi_span text);
/* Removes in place every byte that is no part of a valid sequence; returns the bytes left. */
size_t syi_utf8_drop_invalid(char *text, size_t bytes);

/* ---- vocabulary.c ---- */

struct syi_vocabulary {
    const struct syi_vocabulary_kind *kind; /* NULL: not open */
    void *data;                             /* what the kind keeps, NULL: nothing */
    int32_t end;                            /* id of the end token */
    int32_t unknown;                        /* id of what has no other */
    int32_t first;                          /* the first id that is no special one */
    int32_t n_base;                         /* ids with a text of their own and the special ones */
    int32_t n_extra;                        /* ids after those: sentinels of span corruption */
    int special_text;                       /* 1: special tokens stand in texts, see vocabulary_special.c */
    int ascending; /* 1: the text <extra_id_0> there is the first of the extra ids, not the last */
};

/* What a kind does. Thread-safe once it is open. */
struct syi_vocabulary_kind {
    /* Fills *vocabulary, which is zeroed but for n_extra, reading options->file; on failure `close` is called if the
     * kind is set. */
    int (*open)(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                struct sy_error *err);
    void (*close)(struct syi_vocabulary *vocabulary); /* frees data; NULL: there is none */
    /* As syi_vocabulary_encode. */
    int (*encode)(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                  size_t capacity, size_t *n, struct sy_error *err);
    /* As syi_vocabulary_decode, of ids in 0..size-1 without an end token, each id's special text included. */
    void (*decode)(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                   struct syi_text *text);
    /* As syi_vocabulary_piece, for ids that are neither special nor extra. */
    void (*piece)(const struct syi_vocabulary *vocabulary, int32_t id, struct syi_text *text);
};

#define SYI_DECLARE(X, name, file, help) extern const struct syi_vocabulary_kind syi_vocabulary_kind_##name;
SYI_VOCABULARIES(SYI_DECLARE, )
#undef SYI_DECLARE

/* [vocabulary] alone, for a vocabulary without a model. Closed by the caller. */
int syi_vocabulary_make(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Also of one that is zeroed: nothing. */
void syi_vocabulary_close(struct syi_vocabulary *vocabulary);
/* A byte vocabulary with n_extra further ids; need not be closed. */
int syi_vocabulary_bytes(struct syi_vocabulary *vocabulary, int32_t n_extra,
                         struct sy_error *err) SYI_MUST_CHECK;
/* All ids. A model's embedding may have more rows (rounded up); those ids have no text. */
static inline int32_t syi_vocabulary_size(const struct syi_vocabulary *vocabulary)
{
    return vocabulary->n_base + vocabulary->n_extra;
}
/* Sentinel k = 0, 1, ...: the last id, the one before it and so on (seqio's <extra_id_k>); -1: there are not so many. */
static inline int32_t syi_vocabulary_sentinel(const struct syi_vocabulary *vocabulary, int32_t k)
{
    return k >= 0 && k < vocabulary->n_extra ? syi_vocabulary_size(vocabulary) - 1 - k : -1;
}
/* *n: how many ids the text has; the first `capacity` of them are written (ids may be NULL with capacity 0). No end
 * token is added. Any bytes are text: what is no UTF-8, or NUL, is unknown where it has no id. Fails only where
 * memory is short; bytes, words and characters do not allocate. */
int syi_vocabulary_encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                          size_t capacity, size_t *n, struct sy_error *err) SYI_MUST_CHECK;
/* Appends the text of ids up to the first end token. Ids that have none (padding; of bytes, all special and
 * extra ones and those out of range) are left out, others out of range are unknown. Bytes come out as they are:
 * what a model says need not be UTF-8 (syi_utf8_drop_invalid gives seqio's string). Memory running out is seen by
 * syi_text_status. */
void syi_vocabulary_decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                           struct syi_text *text);
/* Appends what to show for one id: its own text, <pad>, </s>, <unk>, <extra_id_K>; <0xNN> for a byte that is no
 * printable ASCII, <none> for ids that there are not. */
void syi_vocabulary_piece(const struct syi_vocabulary *vocabulary, int32_t id, struct syi_text *text);

/* ---- vocabulary_special.c: the two above for special_text ---- */

int syi_vocabulary_encode_special(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                                  size_t capacity, size_t *n, struct sy_error *err) SYI_MUST_CHECK;
void syi_vocabulary_decode_special(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                                   struct syi_text *text);

/* ---- vocabulary_sentencepiece.c ---- */

/* *desc: of the plugin, loaded for good (switchyard/vocabulary.h). SY_EUNSUPPORTED: there is none. */
struct sy_vocabulary_desc;
int syi_sentencepiece_load(const struct sy_vocabulary_desc **desc, struct sy_error *err) SYI_MUST_CHECK;

/* Those of a run's inputs and targets. */
struct syi_vocabularies {
    struct syi_vocabulary input, target; /* the same one (equal, data shared) unless targets have their own */
};
/* Of a run; SY_EINVAL where its model has fewer rows than there are ids. Closed by the caller. */
int syi_vocabularies_open(struct syi_vocabularies *vocabularies, const struct syi_config *config,
                          struct sy_error *err) SYI_MUST_CHECK;
/* The same without a look at the model. */
int syi_vocabularies_make(struct syi_vocabularies *vocabularies, const struct syi_config *config,
                          struct sy_error *err) SYI_MUST_CHECK;
void syi_vocabularies_close(struct syi_vocabularies *vocabularies); /* also of zeroed ones */

#endif
