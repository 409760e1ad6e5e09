/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as sequences of numbers: cutting, numbering, n-grams, and what two sequences have in common. */
#include "config.h"

#include <string.h>

#include "text_metrics/symbols.h"
#include "text_metrics/unicode.h"

/* ---- numbers for byte strings ---- */

static void words_clear(struct syi_words *w)
{
    w->n = w->bytes = 0;
    if (++w->round) return;
    memset(w->slot, 0, w->capacity * sizeof *w->slot); /* rounds begin anew */
    w->round = 1;
}

/* FNV-1a, as in data/task.c. */
static uint64_t hash_bytes(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

/* Where the string is, or would be. */
static struct syi_word_slot *words_slot(const struct syi_words *w, struct syi_word_slot *slots,
                                        size_t capacity, const char *text, size_t bytes)
{
    for (size_t i = hash_bytes(text, bytes);; i++) {
        struct syi_word_slot *slot = &slots[i & (capacity - 1)];
        if (slot->round != w->round) return slot;
        if (slot->bytes == bytes && !memcmp(w->text + slot->at, text, bytes)) return slot;
    }
}

static int words_grow(struct syi_words *w, struct sy_error *err)
{
    size_t capacity = w->capacity ? 2 * w->capacity : 64;
    struct syi_word_slot *slots = syi_alloc(capacity * sizeof *slots, err);
    if (!slots) return SY_ENOMEM;
    for (size_t i = 0; i < w->capacity; i++)
        if (w->slot[i].round == w->round)
            *words_slot(w, slots, capacity, w->text + w->slot[i].at, w->slot[i].bytes) = w->slot[i];
    syi_free(w->slot);
    w->slot = slots;
    w->capacity = capacity;
    return SY_OK;
}

/* The number of a string, which is added where it is new. */
static int words_number(struct syi_words *w, const void *text, size_t bytes, int32_t *number,
                        struct sy_error *err)
{
    int status = 2 * (w->n + 1) > w->capacity ? words_grow(w, err) : SY_OK;
    if (!status) status = SYI_GROW(w->text, w->text_capacity, w->bytes + bytes, err);
    if (status) return status;
    struct syi_word_slot *slot = words_slot(w, w->slot, w->capacity, text, bytes);
    if (slot->round != w->round) {
        *slot = (struct syi_word_slot){w->round, (uint32_t)w->n++, w->bytes, bytes};
        memcpy(w->text + w->bytes, text, bytes);
        w->bytes += bytes;
    }
    *number = (int32_t)slot->id;
    return SY_OK;
}

/* ---- cutting ---- */

static int add_symbol(struct syi_symbols *to, int32_t id, struct sy_error *err)
{
    int status = SYI_GROW(to->id, to->capacity, to->n + 1, err);
    if (!status) to->id[to->n++] = id;
    return status;
}

int syi_cut_words(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to, struct sy_error *err)
{
    size_t bytes, begin = 0;
    int32_t id;
    int status = SY_OK;

    for (size_t at = 0; !status && at <= text.bytes; at += bytes) {
        bytes = 1;
        if (at < text.bytes && !syi_code_is_space(syi_code_at(text, at, &bytes))) continue;
        if (at > begin) {
            status = words_number(&texts->words, text.text + begin, at - begin, &id, err);
            if (!status) status = add_symbol(to, id, err);
        }
        begin = at + bytes;
    }
    return status;
}

int syi_cut_codes(struct syi_texts *texts, struct syi_span text, struct syi_symbols *to, struct sy_error *err)
{
    size_t bytes;
    int status = SY_OK;

    (void)texts;
    for (size_t at = 0; !status && at < text.bytes; at += bytes) {
        uint32_t code = syi_code_at(text, at, &bytes);
        if (!syi_code_is_space(code)) status = add_symbol(to, (int32_t)code, err);
    }
    return status;
}

int syi_texts_cut(struct syi_texts *texts, const struct syi_text_item *item, syi_cut_fn cut,
                  struct sy_error *err)
{
    int status = SYI_GROW(texts->first, texts->first_capacity, (size_t)item->n + 1, err);

    words_clear(&texts->words);
    texts->output.n = texts->reference.n = 0;
    texts->n_references = item->n;
    if (!status) status = cut(texts, item->output, &texts->output, err);
    for (int32_t i = 0; !status && i < item->n; i++) {
        texts->first[i] = texts->reference.n;
        status = cut(texts, item->reference[i], &texts->reference, err);
    }
    if (!status) texts->first[item->n] = texts->reference.n;
    return status;
}

void syi_texts_free(struct syi_texts *t)
{
    struct syi_symbols *symbols[] = {&t->output, &t->reference, &t->output_gram, &t->reference_gram};

    for (size_t i = 0; i < SYI_COUNT(symbols); i++) syi_free(symbols[i]->id);
    syi_free(t->words.slot);
    syi_free(t->words.text);
    syi_free(t->first);
    syi_free(t->count);
    syi_text_free(&t->buffer[0]);
    syi_text_free(&t->buffer[1]);
    memset(t, 0, sizeof *t);
}

size_t syi_texts_length(const struct syi_texts *texts, int32_t reference)
{
    return texts->first[reference + 1] - texts->first[reference];
}

/* ---- n-grams ---- */

size_t syi_gram_count(size_t symbols, size_t order)
{
    return symbols < order ? 0 : symbols - order + 1;
}

/* One text: an n-gram is the pair of the one before, which begins at the same symbol, and its last symbol. Order 1 is
 * numbered too, so that numbers are small. */
static int make_grams(struct syi_texts *t, const int32_t *symbol, size_t n, int32_t *gram,
                      struct sy_error *err)
{
    int status = SY_OK;

    for (size_t i = 0; !status && i < syi_gram_count(n, t->order); i++) {
        int32_t pair[2] = {t->order > 1 ? gram[i] : 0, symbol[i + t->order - 1]};
        status = words_number(&t->words, pair, sizeof pair, &gram[i], err);
    }
    return status;
}

int syi_texts_grams(struct syi_texts *t, size_t order, struct sy_error *err)
{
    int status = SYI_GROW(t->output_gram.id, t->output_gram.capacity, t->output.n, err);

    if (!status) status = SYI_GROW(t->reference_gram.id, t->reference_gram.capacity, t->reference.n, err);
    words_clear(&t->words);
    t->order = order;
    if (!status) status = make_grams(t, t->output.id, t->output.n, t->output_gram.id, err);
    for (int32_t i = 0; !status && i < t->n_references; i++)
        status = make_grams(t, t->reference.id + t->first[i], syi_texts_length(t, i),
                            t->reference_gram.id + t->first[i], err);
    return status;
}

int syi_texts_matches(struct syi_texts *t, int32_t first, int32_t end, int64_t *matches, struct sy_error *err)
{
    size_t n = t->words.n;
    int status = SYI_GROW(t->count, t->count_capacity, 3 * n + 1, err);
    int32_t *here = t->count, *there = here + n, *most = there + n;

    if (status) return status;
    memset(here, 0, 3 * n * sizeof *here);
    for (size_t i = 0; i < syi_gram_count(t->output.n, t->order); i++) here[t->output_gram.id[i]]++;
    for (int32_t r = first; r < end; r++) {
        const int32_t *gram = t->reference_gram.id + t->first[r];
        size_t grams = syi_gram_count(syi_texts_length(t, r), t->order);
        for (size_t i = 0; i < grams; i++) {
            int32_t count = ++there[gram[i]];
            if (count > most[gram[i]]) most[gram[i]] = count;
        }
        for (size_t i = 0; i < grams; i++) there[gram[i]] = 0;
    }
    *matches = 0;
    for (size_t i = 0; i < n; i++) *matches += here[i] < most[i] ? here[i] : most[i];
    return SY_OK;
}

/* One row of the table at a time. */
int syi_texts_common(struct syi_texts *t, int32_t reference, int64_t *length, struct sy_error *err)
{
    const int32_t *a = t->output.id, *b = t->reference.id + t->first[reference];
    size_t n = syi_texts_length(t, reference);
    int status = SYI_GROW(t->count, t->count_capacity, n + 1, err);
    int32_t *row = t->count;

    if (status) return status;
    memset(row, 0, (n + 1) * sizeof *row);
    for (size_t i = 0; i < t->output.n; i++) {
        int32_t diagonal = 0;
        for (size_t j = 0; j < n; j++) {
            int32_t above = row[j + 1];
            if (a[i] == b[j])
                row[j + 1] = diagonal + 1;
            else if (row[j] > above)
                row[j + 1] = row[j];
            diagonal = above;
        }
    }
    *length = row[n];
    return SY_OK;
}

double syi_f_measure(int64_t matches, size_t output, size_t reference)
{
    if (!matches) return 0;
    double precision = (double)matches / (double)output, recall = (double)matches / (double)reference;
    return 2 * precision * recall / (precision + recall);
}
