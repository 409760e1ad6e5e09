/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece models (.model files, as T5's spiece.model) through the plugin switchyard-sentencepiece.so, which holds
 * the C++ of libsentencepiece: nothing here links it. Decoding follows seqio's SentencePieceVocabulary: ids out of
 * range are unknown. */
#include "config.h"

#include <string.h>

#include "base/packed.h"
#include "base/plugin_folders.h"
#include "data/vocabulary.h"
#include "switchyard/vocabulary.h"

#define NAME "sentencepiece"

struct model {
    const struct sy_vocabulary_desc *desc; /* of the plugin, which stays loaded */
    void *open;                            /* what the plugin made */
};

/* ---- the plugin ---- */

static const struct syi_plugin_want want = {
    .what = "vocabulary " NAME,
    .prefix = SYI_PLUGIN_PREFIX,
    .name = NAME,
    .advice =
        "this build has none: install libsentencepiece-dev and a C++ compiler, then configure and build "
        "again; ",
    .missing = SY_EUNSUPPORTED,
    .symbol = "sy_vocabulary_" NAME,
    .major = SY_VOCABULARY_ABI_MAJOR,
    .minor = SY_VOCABULARY_ABI_MINOR,
};

static int check_abi(const struct sy_vocabulary_desc *desc, const char *path, struct sy_error *err)
{
    if (desc->abi_major == SY_VOCABULARY_ABI_MAJOR && desc->bytes >= sizeof *desc) return SY_OK;
    return syi_error(err, SY_EBACKEND, "%s: %s has ABI %u.%u, this host %d.%d: rebuild it here", want.what,
                     path, (unsigned)desc->abi_major, (unsigned)desc->abi_minor, SY_VOCABULARY_ABI_MAJOR,
                     SY_VOCABULARY_ABI_MINOR);
}

int syi_sentencepiece_load(const struct sy_vocabulary_desc **desc, struct sy_error *err)
{
    const void *found;
    char *path;
    int status = syi_plugin_find(&want, &path, err);
    if (!status) status = syi_plugin_open(&want, path, &found, err);
    if (!status) status = check_abi(*desc = found, path, err);
    syi_free(path);
    return status;
}

/* ---- open and close ---- */

static void close_model(struct syi_vocabulary *vocabulary)
{
    struct model *m = vocabulary->data;
    if (m && m->open) m->desc->close(m->open);
    syi_free(m);
}

static int check_ids(const char *path, const struct sy_vocabulary_ids *ids, struct sy_error *err)
{
    if (ids->pad != SYI_ID_PAD)
        return syi_error(
            err, SY_EINVAL,
            "%s: the model's padding is id %d (-1: none), here it is 0 in all vocabularies: train the "
            "model with --pad_id=0 --eos_id=1 --unk_id=2",
            path, ids->pad);
    if (ids->end < 0)
        return syi_error(err, SY_EINVAL, "%s: the model has no end token: train it with --eos_id=1", path);
    return SY_OK;
}

/* Of ids that are no special ones. */
static int32_t first_plain(const struct sy_vocabulary_ids *ids)
{
    int32_t id = 0;
    while (id == ids->pad || id == ids->end || id == ids->unknown || id == ids->begin) id++;
    return id;
}

static int open_model(struct syi_vocabulary *vocabulary, const struct syi_vocabulary_part *options,
                      struct sy_error *err)
{
    char *file = NULL, why[256] = "";
    size_t bytes = 0;
    struct sy_vocabulary_ids ids;
    struct model *m = syi_alloc(sizeof *m, err);
    if (!m) return SY_ENOMEM;
    vocabulary->kind = &syi_vocabulary_kind_sentencepiece;
    vocabulary->data = m;
    int status = syi_packed_read_vocabulary(options, &file, &bytes, err);
    if (!status) status = syi_sentencepiece_load(&m->desc, err);
    if (!status) m->open = m->desc->open(file, bytes, vocabulary->n_extra, &ids, why, sizeof why);
    if (!status && !m->open)
        status = syi_error(err, SY_EFORMAT, "%s: not a SentencePiece model: %s", options->file, why);
    syi_free(file);
    if (!status) status = check_ids(options->file, &ids, err);
    if (status) return status;
    vocabulary->end = ids.end;
    vocabulary->unknown = ids.unknown;
    vocabulary->first = first_plain(&ids);
    vocabulary->n_base = ids.size - vocabulary->n_extra;
    return SY_OK;
}

/* ---- text and ids ---- */

static int encode(const struct syi_vocabulary *vocabulary, struct syi_span text, int32_t *ids,
                  size_t capacity, size_t *n, struct sy_error *err)
{
    const struct model *m = vocabulary->data;
    int64_t found = m->desc->encode(m->open, text.text, text.bytes, ids, capacity);
    *n = found < 0 ? 0 : (size_t)found;
    return found < 0 ? syi_error(err, SY_ENOMEM, "out of memory: a text of %zu bytes", text.bytes) : SY_OK;
}

static void put(void *arg, const char *text, size_t bytes)
{
    syi_text_append(arg, text, bytes);
}

static void decode(const struct syi_vocabulary *vocabulary, const int32_t *ids, size_t n,
                   struct syi_text *text)
{
    const struct model *m = vocabulary->data;
    int32_t size = syi_vocabulary_size(vocabulary);
    struct syi_ids clean = {0};
    int status = SYI_GROW(clean.id, clean.capacity, n, NULL);
    for (size_t i = 0; !status && i < n; i++)
        clean.id[i] = ids[i] >= 0 && ids[i] < size ? ids[i] : vocabulary->unknown;
    if (status || m->desc->decode(m->open, clean.id, n, put, text)) text->status = SY_ENOMEM;
    syi_ids_free(&clean);
}

static void piece(const struct syi_vocabulary *vocabulary, int32_t id, struct syi_text *text)
{
    const struct model *m = vocabulary->data;
    if (m->desc->piece(m->open, id, put, text)) text->status = SY_ENOMEM;
}

const struct syi_vocabulary_kind syi_vocabulary_kind_sentencepiece = {open_model, close_model, encode, decode,
                                                                      piece};
