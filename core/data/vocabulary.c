/* SPDX-License-Identifier: Apache-2.0 */
/* The table of vocabularies, what they have in common, and the UTF-8 check. Nothing here knows batches. */
#include "config.h"

#include <string.h>

#include "base/text.h" /* syi_utf8_length */
#include "data/vocabulary.h"

static const struct syi_vocabulary_kind *const kinds[] = {
    [SYI_VOCABULARY_BYTES] = &syi_vocabulary_kind_bytes,
};

int syi_vocabulary_make(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                        struct sy_error *err)
{
    memset(vocabulary, 0, sizeof(*vocabulary));
    int status = kinds[options->kind]->open(vocabulary, options, err);
    if (status) syi_vocabulary_close(vocabulary);
    return status;
}

int syi_vocabulary_open(struct syi_vocabulary *vocabulary, const struct syi_config *config,
                        struct sy_error *err)
{
    int status = syi_vocabulary_make(vocabulary, &config->vocabulary, err);
    int32_t size = status ? 0 : syi_vocabulary_size(vocabulary);
    if (status || config->model.vocab_size >= size) return status;
    syi_vocabulary_close(vocabulary);
    return syi_error(
        err, SY_EINVAL,
        "model.vocab_size = %lld is less than the %d ids of the vocabulary: set it to that or more",
        (long long)config->model.vocab_size, size);
}

void syi_vocabulary_close(struct syi_vocabulary *vocabulary)
{
    if (vocabulary->kind && vocabulary->kind->close) vocabulary->kind->close(vocabulary);
    memset(vocabulary, 0, sizeof(*vocabulary));
}

int32_t syi_vocabulary_size(const struct syi_vocabulary *vocabulary)
{
    return vocabulary->n_base + vocabulary->n_extra;
}

size_t syi_vocabulary_encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                             size_t capacity)
{
    return vocabulary->kind->encode(vocabulary, text, ids, capacity);
}

size_t syi_vocabulary_decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                             char *text, size_t capacity)
{
    return vocabulary->kind->decode(vocabulary, ids, n, text, capacity);
}

int syi_utf8_valid(struct syi_span text)
{
    int length;

    for (size_t i = 0; i < text.bytes; i += (size_t)length) {
        length = syi_utf8_length((const unsigned char *)text.text + i, text.bytes - i);
        if (length == 0) return 0;
    }
    return 1;
}

size_t syi_utf8_drop_invalid(char *text, size_t bytes)
{
    size_t kept = 0, length;

    for (size_t i = 0; i < bytes; i += length ? length : 1) {
        length = (size_t)syi_utf8_length((const unsigned char *)text + i, bytes - i);
        memmove(text + kept, text + i, length);
        kept += length;
    }
    return kept;
}
