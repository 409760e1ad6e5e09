/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a vocabulary that lies in a plugin, switchyard-NAME.so: one symbol,
 *
 *     const struct sy_vocabulary_desc sy_vocabulary_NAME;
 *
 * C and C++. The host reads abi_major first and refuses another one than its own; fields are added at the end under a
 * higher abi_minor. No function throws, ends the process or prints; all may be called by several threads at once. */
#ifndef SWITCHYARD_VOCABULARY_H
#define SWITCHYARD_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SY_VOCABULARY_ABI_MAJOR = 1, SY_VOCABULARY_ABI_MINOR = 0 };

/* Ids of an open vocabulary; -1: it has none. */
struct sy_vocabulary_ids {
    int32_t size; /* all ids, 0..size-1, the extra ones included */
    int32_t pad, end, unknown, begin;
};

/* Takes text that a function gives; borrowed until it returns. */
typedef void (*sy_vocabulary_put)(void *arg, const char *text, size_t bytes);

struct sy_vocabulary_desc {
    uint32_t abi_major, abi_minor;
    size_t bytes;        /* sizeof(struct sy_vocabulary_desc) */
    const char *version; /* of the library that it uses; borrowed, static */
    /* Makes a vocabulary of the bytes of its file, with n_extra ids after the file's: the last is <extra_id_0>, the
     * one before it <extra_id_1>. NULL: `why` (why_bytes, NUL-terminated) says why in one line. */
    void *(*open)(const char *file, size_t bytes, int32_t n_extra, struct sy_vocabulary_ids *ids, char *why,
                  size_t why_bytes);
    void (*close)(void *vocabulary);
    /* Returns how many ids the text has and writes the first `capacity` of them; -1: memory ran out. */
    int64_t (*encode)(const void *vocabulary, const char *text, size_t bytes, int32_t *ids, size_t capacity);
    /* Gives the text of n ids, each in 0..size-1. Returns 0, or -1: memory ran out. */
    int (*decode)(const void *vocabulary, const int32_t *ids, size_t n, sy_vocabulary_put put, void *arg);
    /* Gives what stands for one id in the file. The same. */
    int (*piece)(const void *vocabulary, int32_t id, sy_vocabulary_put put, void *arg);
};

#ifdef __cplusplus
}
#endif

#endif
