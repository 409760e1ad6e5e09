/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as sequences of numbers, equal where what they stand for is equal: words, code points, and n-grams of them. The
 * metrics that count what an output and its references have in common work on these. */
#ifndef SYI_SYMBOLS_H
#define SYI_SYMBOLS_H

#include "base/text.h"
#include "data/vocabulary.h" /* struct syi_span */

/* What a model wrote and what it should have: any of n >= 1 references. Borrowed. */
struct syi_text_item {
    struct syi_span output;
    const struct syi_span *reference; /* (n) */
    int32_t n;
};

struct syi_word_slot {
    uint32_t round, id; /* in use where round is that of the table */
    size_t at, bytes;   /* in the table's text */
};
/* Byte strings and their numbers 0, 1, ... All zero is an empty one. */
struct syi_words {
    struct syi_word_slot *slot; /* [capacity], a power of two */
    size_t n, capacity;
    uint32_t round;
    char *text;
    size_t bytes, text_capacity;
};

struct syi_symbols {
    int32_t *id;
    size_t n, capacity;
};

/* An item's texts as symbols, and buffers that its metrics share. All zero is an empty one. */
struct syi_texts {
    struct syi_words words;
    struct syi_symbols output, reference; /* of all references one after the other */
    size_t *first;                        /* (n_references + 1) where each begins in it */
    size_t first_capacity;
    int32_t n_references;
    struct syi_symbols output_gram, reference_gram; /* number of the n-gram that begins at each symbol */
    size_t order;                                   /* n */
    int32_t *count; /* (3, distinct n-grams) scratch of syi_texts_matches; also a row of syi_texts_common */
    size_t count_capacity;
    struct syi_text buffer[2]; /* for what rewrites a text before it is cut */
};
void syi_texts_free(struct syi_texts *texts);

/* Appends the symbols of a text. */
typedef int (*syi_cut_fn)(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to,
                          struct sy_error *err);
/* Fills output and reference by `cut`. */
int syi_texts_cut(struct syi_texts *texts, const struct syi_text_item *item, syi_cut_fn cut,
                  struct sy_error *err) SYI_MUST_CHECK;
/* Appends the words of a text: what is between white space (str.split of Python). */
int syi_cut_words(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to,
                  struct sy_error *err) SYI_MUST_CHECK;
/* Appends its code points but for white space. */
int syi_cut_codes(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to,
                  struct sy_error *err) SYI_MUST_CHECK;

/* Symbols of a reference. */
size_t syi_texts_length(const struct syi_texts *texts, int32_t reference);
/* n-grams of a text of so many symbols. */
size_t syi_gram_count(size_t symbols, size_t order);
/* Makes the n-grams of all texts: order 1 first, then each from the one before. */
int syi_texts_grams(struct syi_texts *texts, size_t order, struct sy_error *err) SYI_MUST_CHECK;
/* n-grams of the output that are in references first..end-1, each at most as often as in the one that has it most
 * often. */
int syi_texts_matches(struct syi_texts *texts, int32_t first, int32_t end, int64_t *matches,
                      struct sy_error *err) SYI_MUST_CHECK;
/* Length of the longest common subsequence of the output and a reference. */
int syi_texts_common(struct syi_texts *texts, int32_t reference, int64_t *length,
                     struct sy_error *err) SYI_MUST_CHECK;
/* Harmonic mean of precision matches / output and recall matches / reference; 0 without matches. */
double syi_f_measure(int64_t matches, size_t output, size_t reference);

#endif
