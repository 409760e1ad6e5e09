/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies from a file of lines, each a word or a character: 0 pads, 1 ends, 2 is unknown, the first line is 3;
 * extra ids after the lines. Words are what blanks separate (space, TAB, line ends), and are joined by a space. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/packed.h"
#include "data/vocabulary.h"

enum { END = 1, UNKNOWN, FIRST, MOST = 1 << 24 };

static const char blanks[] = " \t\n\v\f\r";
static const char unknown_text[] = "\xe2\x81\x87"; /* a double question mark, as SentencePiece has it */

struct plain {
    char *text;             /* the file */
    struct syi_span *token; /* (n) into text, of id FIRST + i */
    int32_t *sorted;        /* (n) tokens in the order of their bytes */
    int32_t n;
    int words;
};

/* K of the word <extra_id_K>; -1: it is another word. */
static int32_t extra_of(struct syi_span word)
{
    static const char prefix[] = "<extra_id_";
    const size_t before = sizeof prefix - 1;
    int32_t k = 0;
    if (word.bytes < before + 2 || word.bytes > before + 9 || memcmp(word.text, prefix, before) ||
        word.text[word.bytes - 1] != '>' || (word.text[before] == '0' && word.bytes > before + 2))
        return -1;
    for (size_t i = before; i < word.bytes - 1; i++) {
        if (word.text[i] < '0' || word.text[i] > '9') return -1;
        k = 10 * k + (word.text[i] - '0');
    }
    return k;
}

/* ---- reading the file ---- */

static int compare_spans(struct syi_span a, struct syi_span b)
{
    size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;
    int order = n ? memcmp(a.text, b.text, n) : 0;
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int is_blank(char c)
{
    return c && strchr(blanks, c) != NULL;
}

static int has_blank(struct syi_span span)
{
    for (size_t i = 0; i < span.bytes; i++)
        if (is_blank(span.text[i])) return 1;
    return 0;
}

static int is_special(struct syi_span span)
{
    static const char *const names[] = {"<pad>", "</s>", "<unk>"};
    for (size_t i = 0; i < SYI_COUNT(names); i++)
        if (!compare_spans(span, (struct syi_span){names[i], strlen(names[i])})) return 1;
    return extra_of(span) >= 0;
}

/* NULL: the line can be a token. */
static const char *fault_of(struct syi_span line, int words)
{
    if (!line.bytes) return "an empty line; each line is a token";
    if (memchr(line.text, '\0', line.bytes)) return "a NUL byte; is this a text file?";
    if (!syi_utf8_valid(line)) return "not valid UTF-8; convert the file";
    if (!words && (size_t)syi_utf8_length((const unsigned char *)line.text, line.bytes) != line.bytes)
        return "more than one character; lines of words need kind = \"words\"";
    if (words && has_blank(line))
        return "a blank inside a word; text is cut at blanks, so it would never occur";
    if (words && is_special(line))
        return "a special token; those are there without the file: remove the line";
    return NULL;
}

static int add_lines(struct plain *p, const char *path, size_t bytes, struct sy_error *err)
{
    size_t start = syi_utf8_mark(p->text, bytes), capacity = 0, next;
    for (; start < bytes; start = next) {
        const char *found = memchr(p->text + start, '\n', bytes - start);
        size_t end = found ? (size_t)(found - p->text) : bytes;
        next = end + 1;
        if (end > start && p->text[end - 1] == '\r') end--;
        struct syi_span line = {p->text + start, end - start};
        const char *fault = fault_of(line, p->words);
        if (fault) return syi_error(err, SY_EFORMAT, "%s:%d: %s", path, p->n + 1, fault);
        if (p->n == MOST) return syi_error(err, SY_EFORMAT, "%s: over %d lines", path, MOST);
        int status = SYI_GROW(p->token, capacity, (size_t)p->n + 1, err);
        if (status) return status;
        p->token[p->n++] = line;
    }
    if (!p->n) return syi_error(err, SY_EFORMAT, "%s:1: the file is empty; each line is a token", path);
    return SY_OK;
}

struct place {
    struct syi_span token;
    int32_t i;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *p = a, *q = b;
    int order = compare_spans(p->token, q->token);
    return order ? order : (p->i > q->i) - (p->i < q->i);
}

static int sort_tokens(struct plain *p, const char *path, struct sy_error *err)
{
    int status = SY_OK;
    size_t n = (size_t)p->n;
    struct place *place = syi_alloc(n * sizeof *place, err);
    p->sorted = syi_alloc(n * sizeof *p->sorted, err);
    if (!place || !p->sorted) status = SY_ENOMEM;
    for (size_t i = 0; !status && i < n; i++) place[i] = (struct place){p->token[i], (int32_t)i};
    if (!status) qsort(place, n, sizeof *place, compare_places);
    for (size_t i = 0; !status && i < n; i++) {
        p->sorted[i] = place[i].i;
        if (i && !compare_spans(place[i - 1].token, place[i].token))
            status = syi_error(err, SY_EFORMAT, "%s:%d: the same token as in line %d", path, place[i].i + 1,
                               place[i - 1].i + 1);
    }
    syi_free(place);
    return status;
}

static void close_plain(struct syi_vocabulary *vocabulary)
{
    struct plain *p = vocabulary->data;
    if (!p) return;
    syi_free(p->sorted);
    syi_free(p->token);
    syi_free(p->text);
    syi_free(p);
}

static int open_plain(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options, int words,
                      const struct syi_vocabulary_kind *kind, struct sy_error *err)
{
    size_t bytes;
    struct plain *p = syi_alloc(sizeof *p, err);
    if (!p) return SY_ENOMEM;
    *vocabulary = (struct syi_vocabulary){.kind = kind,
                                          .data = p,
                                          .end = END,
                                          .unknown = UNKNOWN,
                                          .first = FIRST,
                                          .n_extra = vocabulary->n_extra};
    p->words = words;
    int status = syi_packed_read_vocabulary(options, &p->text, &bytes, err);
    if (!status) status = add_lines(p, options->file, bytes, err);
    if (!status) status = sort_tokens(p, options->file, err);
    vocabulary->n_base = FIRST + p->n;
    return status;
}

/* ---- text to ids ---- */

static int32_t find(const struct plain *p, struct syi_span token)
{
    int32_t low = 0, high = p->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = compare_spans(p->token[p->sorted[middle]], token);
        if (!order) return FIRST + p->sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return UNKNOWN;
}

static int encode_words(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                        size_t capacity, size_t *n, struct sy_error *err)
{
    size_t i = 0;
    (void)err;
    for (*n = 0;;) {
        while (i < text.bytes && is_blank(text.text[i])) i++;
        if (i == text.bytes) return SY_OK;
        struct syi_span word = {text.text + i, 0};
        while (i < text.bytes && !is_blank(text.text[i])) i++;
        word.bytes = (size_t)(text.text + i - word.text);
        int32_t id = syi_vocabulary_sentinel(vocabulary, extra_of(word));
        if (*n < capacity) ids[*n] = id >= 0 ? id : find(vocabulary->data, word);
        ++*n;
    }
}

/* A byte that begins no character is one unknown. */
static int encode_characters(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                             size_t capacity, size_t *n, struct sy_error *err)
{
    size_t length;
    (void)err;
    *n = 0;
    for (size_t i = 0; i < text.bytes; i += length, ++*n) {
        length = (size_t)syi_utf8_length((const unsigned char *)text.text + i, text.bytes - i);
        int known = length > 0;
        if (!known) length = 1;
        if (*n < capacity)
            ids[*n] = known ? find(vocabulary->data, (struct syi_span){text.text + i, length}) : UNKNOWN;
    }
    return SY_OK;
}

/* ---- ids to text ---- */

static void piece(const struct syi_vocabulary *vocabulary, int32_t id, struct syi_text *text)
{
    const struct plain *p = vocabulary->data;
    syi_text_append(text, p->token[id - FIRST].text, p->token[id - FIRST].bytes);
}

static void decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                   struct syi_text *text)
{
    const struct plain *p = vocabulary->data;
    int32_t size = syi_vocabulary_size(vocabulary);
    for (size_t i = 0, written = 0; i < n; i++) {
        if (ids[i] == SYI_ID_PAD) continue;
        if (p->words && written++) syi_text_puts(text, " ");
        if (ids[i] < FIRST || ids[i] >= size)
            syi_text_puts(text, unknown_text);
        else if (ids[i] >= vocabulary->n_base)
            syi_text_printf(text, "<extra_id_%d>", size - 1 - ids[i]);
        else
            piece(vocabulary, ids[i], text);
    }
}

static int open_words(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                      struct sy_error *err)
{
    return open_plain(vocabulary, options, 1, &syi_vocabulary_kind_words, err);
}

static int open_characters(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                           struct sy_error *err)
{
    return open_plain(vocabulary, options, 0, &syi_vocabulary_kind_characters, err);
}

const struct syi_vocabulary_kind syi_vocabulary_kind_words = {open_words, close_plain, encode_words, decode,
                                                              piece};
const struct syi_vocabulary_kind syi_vocabulary_kind_characters = {open_characters, close_plain,
                                                                   encode_characters, decode, piece};
