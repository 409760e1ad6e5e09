/* SPDX-License-Identifier: Apache-2.0 */
/* The table of vocabularies and those of a run. Nothing here knows batches. */
#include "config.h"

#include <string.h>

#include "data/vocabulary.h"

#define ADDRESS(X, name, file, help) [SYI_VOCABULARY_##name] = &syi_vocabulary_kind_##name,
static const struct syi_vocabulary_kind *const kinds[] = {SYI_VOCABULARIES(ADDRESS, )};

/* Rows of an embedding are rounded up to a multiple of this at most: so many more are another vocabulary's. */
enum { ROUNDING = 128 };

/* ---- one ---- */

int syi_vocabulary_make(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                        struct sy_error *err)
{
    memset(vocabulary, 0, sizeof(*vocabulary));
    vocabulary->n_extra = (int32_t)options->extra_ids;
    int status = kinds[options->kind]->open(vocabulary, options, err);
    if (status) syi_vocabulary_close(vocabulary);
    vocabulary->special_text = options->special_tokens == SYI_SPECIAL_TOKENS_HUGGINGFACE;
    vocabulary->ascending = vocabulary->special_text && options->kind == SYI_VOCABULARY_bytes;
    return status;
}

void syi_vocabulary_close(struct syi_vocabulary *vocabulary)
{
    if (vocabulary->kind && vocabulary->kind->close) vocabulary->kind->close(vocabulary);
    memset(vocabulary, 0, sizeof(*vocabulary));
}

int syi_vocabulary_encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                          size_t capacity, size_t *n, struct sy_error *err)
{
    return (vocabulary->special_text ? syi_vocabulary_encode_special
                                     : vocabulary->kind->encode)(vocabulary, text, ids, capacity, n, err);
}

void syi_vocabulary_decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                           struct syi_text *text)
{
    size_t end = 0;
    while (end < n && ids[end] != vocabulary->end) end++;
    (vocabulary->special_text ? syi_vocabulary_decode_special : vocabulary->kind->decode)(vocabulary, ids,
                                                                                          end, text);
}

void syi_vocabulary_piece(const struct syi_vocabulary *vocabulary, int32_t id, struct syi_text *text)
{
    int32_t size = syi_vocabulary_size(vocabulary);
    if (id < 0 || id >= size)
        syi_text_puts(text, "<none>");
    else if (id >= vocabulary->n_base)
        syi_text_printf(text, "<extra_id_%d>",
                        vocabulary->ascending ? id - vocabulary->n_base : size - 1 - id);
    else if (id == SYI_ID_PAD)
        syi_text_puts(text, "<pad>");
    else if (id == vocabulary->end)
        syi_text_puts(text, "</s>");
    else if (id == vocabulary->unknown)
        syi_text_puts(text, "<unk>");
    else
        vocabulary->kind->piece(vocabulary, id, text);
}

/* ---- a run's ---- */

int syi_vocabularies_make(struct syi_vocabularies *v, const struct syi_config *config, struct sy_error *err)
{
    const struct syi_vocabulary_part *input = syi_config_vocabulary(config, 0),
                                     *target = syi_config_vocabulary(config, 1);
    memset(v, 0, sizeof *v);
    int status = syi_vocabulary_make(&v->input, input, err);
    if (!status && target == input)
        v->target = v->input;
    else if (!status)
        status = syi_vocabulary_make(&v->target, target, err);
    if (status) syi_vocabularies_close(v);
    return status;
}

static int check_size(const struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *part,
                      int64_t rows, struct sy_error *err)
{
    int32_t size = syi_vocabulary_size(vocabulary);
    const char *name = part->name_of_part, *space = *name ? " " : "";
    if (rows < size)
        return syi_error(
            err, SY_EINVAL,
            "model.vocab_size = %lld is less than the %d ids of the vocabulary%s%s: set it to that or more",
            (long long)rows, size, space, name);
    return SY_OK;
}

/* The larger one of both: a model has one table for them. */
static void warn_of_rows(const struct syi_vocabularies *v, int64_t rows)
{
    int32_t input = syi_vocabulary_size(&v->input), target = syi_vocabulary_size(&v->target);
    int32_t size = input > target ? input : target;
    if (rows >= (int64_t)size + ROUNDING)
        syi_log(
            SY_LOG_WARN,
            "model.vocab_size = %lld, but the vocabulary has %d ids: the other rows are never trained; is it "
            "another model's vocabulary?",
            (long long)rows, size);
}

int syi_vocabularies_open(struct syi_vocabularies *v, const struct syi_config *config, struct sy_error *err)
{
    int status = syi_vocabularies_make(v, config, err);
    if (status) return status;
    status = check_size(&v->input, syi_config_vocabulary(config, 0), config->model.vocab_size, err);
    if (!status)
        status = check_size(&v->target, syi_config_vocabulary(config, 1), config->model.vocab_size, err);
    if (status)
        syi_vocabularies_close(v);
    else
        warn_of_rows(v, config->model.vocab_size);
    return status;
}

void syi_vocabularies_close(struct syi_vocabularies *v)
{
    int shared = v->target.kind == v->input.kind && v->target.data == v->input.data;
    syi_vocabulary_close(&v->input);
    if (!shared) syi_vocabulary_close(&v->target);
    memset(v, 0, sizeof *v);
}
