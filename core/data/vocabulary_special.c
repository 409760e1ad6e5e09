/* SPDX-License-Identifier: Apache-2.0 */
/* Special tokens in texts as the tokenizers of Hugging Face transformers have them: a text is cut at <pad>, </s>, <unk>
 * and <extra_id_N>, each of which becomes its id, and what is between is encoded by itself. Ids of special tokens have no
 * text. ByT5's tokenizer takes the blanks around the first three off. */
#include "config.h"

#include <string.h>

#include "data/vocabulary.h"

struct token {
    int32_t id;
    size_t begin, length;
    int blanks; /* 1: blanks around it are no text */
};

/* Of <extra_id_N>. */
static int32_t extra_id(const struct syi_vocabulary *v, int32_t number)
{
    return v->ascending ? v->n_base + number : syi_vocabulary_sentinel(v, number);
}

/* "<extra_id_12>" at the start of text. */
static size_t match_extra(const struct syi_vocabulary *v, const char *text, size_t bytes, int32_t *id)
{
    static const char begin[] = "<extra_id_";
    size_t at = sizeof begin - 1, digits = 0;
    int32_t number = 0;
    if (bytes < at || memcmp(text, begin, at)) return 0;
    for (; at < bytes && text[at] >= '0' && text[at] <= '9' && digits < 8; at++, digits++)
        number = 10 * number + (text[at] - '0');
    if (!digits || (digits > 1 && text[sizeof begin - 1] == '0')) return 0;
    if (at == bytes || text[at] != '>' || number >= v->n_extra) return 0;
    *id = extra_id(v, number);
    return at + 1;
}

static int match(const struct syi_vocabulary *v, const char *text, size_t bytes, struct token *token)
{
    const struct {
        const char *text;
        int32_t id;
    } words[] = {{"<pad>", SYI_ID_PAD}, {"</s>", v->end}, {"<unk>", v->unknown}};
    for (size_t i = 0; i < SYI_COUNT(words); i++) {
        token->length = strlen(words[i].text);
        if (bytes < token->length || memcmp(text, words[i].text, token->length)) continue;
        token->id = words[i].id;
        token->blanks = v->ascending;
        return 1;
    }
    token->blanks = 0;
    token->length = match_extra(v, text, bytes, &token->id);
    return token->length != 0;
}

/* The first token from `at` on; 0: none. */
static int find(const struct syi_vocabulary *v, struct syi_span text, size_t at, struct token *token)
{
    const char *found;
    for (; at < text.bytes && (found = memchr(text.text + at, '<', text.bytes - at)); at++) {
        at = (size_t)(found - text.text);
        token->begin = at;
        if (match(v, found, text.bytes - at, token)) return 1;
    }
    return 0;
}

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The text between two tokens, either of which may be none. */
static struct syi_span between(struct syi_span text, size_t from, size_t to, int blanks_before,
                               int blanks_after)
{
    while (blanks_before && from < to && is_blank(text.text[from])) from++;
    while (blanks_after && to > from && is_blank(text.text[to - 1])) to--;
    return (struct syi_span){text.text + from, to - from};
}

int syi_vocabulary_encode_special(const struct syi_vocabulary *v, struct syi_span text, int32_t *ids,
                                  size_t capacity, size_t *n, struct sy_error *err)
{
    size_t at = 0;
    int blanks = 0, more = 1;
    for (*n = 0; more;) {
        struct token token = {.begin = text.bytes};
        size_t room = *n < capacity ? capacity - *n : 0, found = 0;
        more = find(v, text, at, &token);
        if (!more) token = (struct token){.begin = text.bytes};
        struct syi_span piece = between(text, at, token.begin, blanks, token.blanks);
        int status =
            piece.bytes ? v->kind->encode(v, piece, room ? ids + *n : NULL, room, &found, err) : SY_OK;
        if (status) return status;
        *n += found;
        if (!more) break;
        if (*n < capacity) ids[*n] = token.id;
        ++*n;
        at = token.begin + token.length;
        blanks = token.blanks;
    }
    return SY_OK;
}

/* SentencePiece takes every blank at the beginning of a text off, these tokenizers one: the ids are decoded after
 * another one, whose text is cut off again. */
static void decode_after(const struct syi_vocabulary *v, struct syi_ids *ids, struct syi_text *text)
{
    struct syi_text before = {0}, all = {0};
    ids->id[0] = v->unknown;
    v->kind->decode(v, ids->id, 1, &before);
    v->kind->decode(v, ids->id, ids->n, &all);
    size_t at = before.length < all.length ? before.length : all.length;
    if (at < all.length && all.data[at] == ' ') at++;
    if (all.length) syi_text_append(text, all.data + at, all.length - at);
    if (before.status || all.status) text->status = SY_ENOMEM;
    syi_text_free(&before);
    syi_text_free(&all);
}

void syi_vocabulary_decode_special(const struct syi_vocabulary *v, const int32_t *ids, size_t n,
                                   struct syi_text *text)
{
    struct syi_ids plain = {.n = 1}; /* the first is decode_after's */
    int status = SYI_GROW(plain.id, plain.capacity, n + 1, NULL);
    for (size_t i = 0; !status && i < n; i++)
        if (ids[i] != SYI_ID_PAD && ids[i] != v->unknown && ids[i] >= 0 && ids[i] < v->n_base)
            plain.id[plain.n++] = ids[i];
    if (status)
        text->status = status;
    else if (v->kind == &syi_vocabulary_kind_sentencepiece)
        decode_after(v, &plain, text);
    else
        v->kind->decode(v, plain.id + 1, plain.n - 1, text);
    syi_ids_free(&plain);
}
