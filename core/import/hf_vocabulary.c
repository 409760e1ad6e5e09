/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a folder as [vocabulary]: a SentencePiece model with extra ids, or ByT5's bytes. Folders of version 5
 * have the pieces in tokenizer.json alone; a SentencePiece model is written of them. */
#include "config.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/packed.h"
#include "data/vocabulary.h"
#include "import/hf.h"

enum { EXTRA_IDS = 100, BYTE_IDS = 259, LARGEST_MODEL = 1 << 28 };

/* ---- a ModelProto of SentencePiece ---- */

/* Numbers of its fields, and what stands in them. */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };
enum { TRAINER_UNK = 40, TRAINER_BOS = 41, TRAINER_EOS = 42, TRAINER_PAD = 43, TRAINER_BYTE_FALLBACK = 35 };
enum { NORMALIZER_NAME = 1, NORMALIZER_CHARSMAP = 2 };

static void put_varint(struct syi_text *out, uint64_t value)
{
    for (;; value >>= 7) {
        char byte = (char)(unsigned char)((value & 127) | (value > 127 ? 128 : 0));
        syi_text_append(out, &byte, 1);
        if (value < 128) return;
    }
}

static void put_number(struct syi_text *out, int field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, value);
}

static void put_bytes(struct syi_text *out, int field, const void *bytes, size_t n)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, n);
    syi_text_append(out, bytes, n);
}

static void put_float(struct syi_text *out, int field, float value)
{
    uint32_t bits;
    unsigned char bytes[4];
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(bits >> 8 * i);
    put_varint(out, (uint64_t)field << 3 | 5);
    syi_text_append(out, bytes, sizeof bytes);
}

static void put_piece(struct syi_text *out, const char *text, double score, int type)
{
    struct syi_text piece = {0};
    put_bytes(&piece, PIECE_TEXT, text, strlen(text));
    put_float(&piece, PIECE_SCORE, (float)score);
    put_number(&piece, PIECE_TYPE, (uint64_t)type);
    if (piece.status) out->status = piece.status;
    put_bytes(out, MODEL_PIECE, piece.data, piece.length);
    syi_text_free(&piece);
}

/* ---- tokenizer.json ---- */

struct tokenizer {
    struct syi_json json;
    struct syi_text *out;
    int byte_fallback;
    int64_t n, extra; /* pieces, and how many at their end are extra ids */
    struct sy_error *err;
};

static int refuse(const struct tokenizer *t, const char *why)
{
    return syi_error(
        t->err, SY_EUNSUPPORTED,
        "tokenizer.json: %s: no SentencePiece model can be made of it; put the tokenizer's spiece.model into the "
        "folder, or name another with --set vocabulary.kind and vocabulary.file",
        why);
}

static const char *text_of(const struct tokenizer *t, uint32_t object, const char *key)
{
    uint32_t at = syi_json_member(&t->json, object, key);
    return at != SYI_JSON_NONE && t->json.nodes[at].kind == SYI_JSON_STRING ? syi_json_string(&t->json, at)
                                                                            : "";
}

int syi_hf_is_extra_id(const char *piece)
{
    int number, end = 0;
    if (!strncmp(piece, "\xe2\x96\x81", 3)) piece += 3;
    return sscanf(piece, "<extra_id_%d>%n", &number, &end) == 1 && end && !piece[end];
}

static int type_of(const struct tokenizer *t, const char *piece, int64_t id, int64_t unknown)
{
    unsigned byte;
    int end = 0;
    if (id == unknown) return TYPE_UNKNOWN;
    if (!strcmp(piece, "<pad>") || !strcmp(piece, "</s>") || !strcmp(piece, "<s>")) return TYPE_CONTROL;
    if (t->byte_fallback && sscanf(piece, "<0x%2X>%n", &byte, &end) == 1 && end == 6) return TYPE_BYTE;
    return TYPE_NORMAL;
}

/* The text and score of a piece, ["the", -2.5]; NULL: it is none. */
static const char *piece_of(const struct tokenizer *t, uint32_t at, double *score)
{
    const struct syi_json_node *node = t->json.nodes;
    if (node[at].kind != SYI_JSON_ARRAY || node[at].n_children != 2) return NULL;
    uint32_t text = node[at].first, number = node[text].next;
    if (node[text].kind != SYI_JSON_STRING || node[number].kind != SYI_JSON_NUMBER ||
        !isfinite(node[number].number))
        return NULL;
    *score = node[number].number;
    return syi_json_string(&t->json, text);
}

/* Extra ids at the end are left to vocabulary.extra_ids. */
static int count_pieces(struct tokenizer *t, uint32_t list)
{
    double score;
    for (uint32_t at = t->json.nodes[list].first; at != SYI_JSON_NONE; at = t->json.nodes[at].next, t->n++) {
        const char *piece = piece_of(t, at, &score);
        if (!piece) return refuse(t, "a piece is no pair of text and score");
        t->extra = syi_hf_is_extra_id(piece) ? t->extra + 1 : 0;
    }
    return SY_OK;
}

static int put_pieces(struct tokenizer *t, uint32_t model)
{
    static const char *const wanted[] = {"<pad>", "</s>"}; /* ids 0 and 1 */
    uint32_t list = syi_json_member(&t->json, model, "vocab"),
             unknown = syi_json_member(&t->json, model, "unk_id");
    if (list == SYI_JSON_NONE || t->json.nodes[list].kind != SYI_JSON_ARRAY)
        return refuse(t, "it has no pieces");
    if (unknown == SYI_JSON_NONE || !t->json.nodes[unknown].is_integer)
        return refuse(t, "no piece is unknown");
    int status = count_pieces(t, list);
    int64_t id = 0;
    for (uint32_t at = t->json.nodes[list].first; !status && id < t->n - t->extra;
         at = t->json.nodes[at].next, id++) {
        double score = 0;
        const char *piece = piece_of(t, at, &score);
        if (id < 2 && strcmp(piece, wanted[id])) return refuse(t, "its first ids are not <pad> and </s>");
        put_piece(t->out, piece, score, type_of(t, piece, id, t->json.nodes[unknown].integer));
    }
    return status;
}

/* Value of a letter of base64; -1: none. */
static int digit(char c)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

static int put_charsmap(struct syi_text *out, const char *base64)
{
    size_t n = strcspn(base64, "="), pad = strspn(base64 + n, "=");
    uint32_t bits = 0;
    if (base64[n + pad] || (n + pad) % 4 || pad > 2) return 0;
    for (size_t i = 0; i < n; i++) {
        int value = digit(base64[i]);
        if (value < 0) return 0;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4) {
            char byte = (char)(unsigned char)(bits >> (6 - 2 * (i % 4)));
            syi_text_append(out, &byte, 1);
        }
    }
    return 1;
}

/* The character map of the normalizer, alone or in a sequence; all others take blanks together, as SentencePiece does. */
static const char *charsmap_of(const struct tokenizer *t)
{
    const struct syi_json_node *node = t->json.nodes;
    uint32_t normalizer = syi_json_member(&t->json, 0, "normalizer"), list;
    if (normalizer == SYI_JSON_NONE || node[normalizer].kind != SYI_JSON_OBJECT) return "";
    if (!strcmp(text_of(t, normalizer, "type"), "Precompiled"))
        return text_of(t, normalizer, "precompiled_charsmap");
    list = syi_json_member(&t->json, normalizer, "normalizers");
    for (uint32_t at = list ? node[list].first : SYI_JSON_NONE; at != SYI_JSON_NONE; at = node[at].next)
        if (!strcmp(text_of(t, at, "type"), "Precompiled")) return text_of(t, at, "precompiled_charsmap");
    return "";
}

static int put_settings(struct tokenizer *t, int64_t unknown)
{
    struct syi_text trainer = {0}, normalizer = {0}, map = {0};
    const char *charsmap = charsmap_of(t);
    put_number(&trainer, TRAINER_BYTE_FALLBACK, (uint64_t)t->byte_fallback);
    put_number(&trainer, TRAINER_UNK, (uint64_t)unknown);
    put_number(&trainer, TRAINER_BOS, UINT64_MAX); /* -1: none */
    put_number(&trainer, TRAINER_EOS, 1);
    put_number(&trainer, TRAINER_PAD, 0);
    int known = put_charsmap(&map, charsmap);
    const char *name = *charsmap ? "precompiled" : "identity";
    put_bytes(&normalizer, NORMALIZER_NAME, name, strlen(name));
    put_bytes(&normalizer, NORMALIZER_CHARSMAP, map.data ? map.data : "", map.length);
    put_bytes(t->out, MODEL_TRAINER, trainer.data, trainer.length);
    put_bytes(t->out, MODEL_NORMALIZER, normalizer.data, normalizer.length);
    int status = trainer.status ? trainer.status : normalizer.status ? normalizer.status : map.status;
    if (status) t->out->status = status;
    syi_text_free(&trainer);
    syi_text_free(&normalizer);
    syi_text_free(&map);
    return known ? SY_OK : refuse(t, "its character map is no base64");
}

static int convert(struct tokenizer *t)
{
    uint32_t model = syi_json_member(&t->json, 0, "model");
    uint32_t fallback = model ? syi_json_member(&t->json, model, "byte_fallback") : SYI_JSON_NONE;
    if (model == SYI_JSON_NONE || t->json.nodes[model].kind != SYI_JSON_OBJECT ||
        strcmp(text_of(t, model, "type"), "Unigram"))
        return refuse(t, "its model is not a unigram one");
    t->byte_fallback = fallback != SYI_JSON_NONE && t->json.nodes[fallback].kind == SYI_JSON_TRUE;
    int status = put_pieces(t, model);
    uint32_t unknown = syi_json_member(&t->json, model, "unk_id");
    return status ? status : put_settings(t, t->json.nodes[unknown].integer);
}

/* ---- what is done to texts there and not here ---- */

/* A text that a member has, as {"Regex": " {2,}"}; "": it has none. */
static const char *pattern_of(const struct tokenizer *t, uint32_t step)
{
    uint32_t pattern = syi_json_member(&t->json, step, "pattern");
    return pattern == SYI_JSON_NONE ? "" : text_of(t, pattern, "Regex");
}

/* Whether SentencePiece does it, too: the character map, blanks taken together, and one before each text. */
static int is_done_here(const struct tokenizer *t, uint32_t step)
{
    const char *type = text_of(t, step, "type"), *scheme = text_of(t, step, "prepend_scheme");
    uint32_t prefix = syi_json_member(&t->json, step, "add_prefix_space");
    if (!strcmp(type, "Metaspace"))
        return (!*scheme || !strcmp(scheme, "always")) &&
               (prefix == SYI_JSON_NONE || t->json.nodes[prefix].kind != SYI_JSON_FALSE);
    if (!strcmp(type, "Replace")) return !strcmp(pattern_of(t, step), " {2,}");
    return !strcmp(type, "Precompiled") || !strcmp(type, "Strip") || !strcmp(type, "WhitespaceSplit");
}

/* A step, or a sequence of them, whose member `list` has them. */
static void note_steps(const struct tokenizer *t, const char *what, const char *list, uint32_t step,
                       struct syi_text *lines)
{
    struct syi_json_writer line;
    uint32_t steps;
    if (step == SYI_JSON_NONE || t->json.nodes[step].kind != SYI_JSON_OBJECT) return;
    steps = syi_json_member(&t->json, step, list);
    if (steps != SYI_JSON_NONE) {
        for (uint32_t at = t->json.nodes[steps].first; at != SYI_JSON_NONE; at = t->json.nodes[at].next)
            note_steps(t, what, list, at, lines);
        return;
    }
    if (is_done_here(t, step)) return;
    syi_text_printf(lines, "tokenizer.json: the %s ", what);
    syi_json_begin(&line, lines);
    syi_json_put_string(&line, text_of(t, step, "type"));
    syi_text_puts(lines, " is not taken over: texts that it changes get other ids\n");
}

static void note_all_steps(const struct tokenizer *t, struct syi_text *lines)
{
    note_steps(t, "normalizer", "normalizers", syi_json_member(&t->json, 0, "normalizer"), lines);
    note_steps(t, "pre_tokenizer", "pretokenizers", syi_json_member(&t->json, 0, "pre_tokenizer"), lines);
}

/* ---- which one ---- */

static int has_file(const char *folder, const char *name)
{
    char *path = syi_format("%s/%s", folder, name);
    int there = path && !access(path, F_OK);
    syi_free(path);
    return there;
}

/* How many of a list of special tokens are extra ids. */
static int64_t count_extra(const struct syi_json *json, const char *key)
{
    int64_t n = 0;
    uint32_t list = syi_json_member(json, 0, key);
    if (list == SYI_JSON_NONE || json->nodes[list].kind != SYI_JSON_ARRAY) return 0;
    for (uint32_t at = json->nodes[list].first; at != SYI_JSON_NONE; at = json->nodes[at].next)
        n += json->nodes[at].kind == SYI_JSON_STRING && syi_hf_is_extra_id(syi_json_string(json, at));
    return n;
}

struct kind {
    int bytes;
    int64_t extra; /* -1: not known */
};

/* tokenizer_config.json, whose extra_ids is 0 where the list has them; older folders have it not. */
static int read_kind(const struct syi_import *import, struct kind *kind, struct sy_error *err)
{
    static const char *const files[] = {"tokenizer_config.json", "config.json"};
    int status = SY_OK;
    kind->extra = -1;
    for (size_t i = 0; i < SYI_COUNT(files) && !status; i++) {
        struct syi_json json = {0};
        const char *class = "";
        int there;
        status = syi_hf_json(import->folder, files[i], &json, &there, err);
        if (!status && there) status = syi_hf_text(&json, 0, files[i], "tokenizer_class", &class, err);
        kind->bytes |= !strcmp(class, "ByT5Tokenizer");
        if (!status && there && !i)
            status = syi_hf_integer(&json, 0, files[i], "extra_ids", &kind->extra, err);
        if (!status && there && !i) {
            int64_t listed =
                count_extra(&json, "extra_special_tokens") + count_extra(&json, "additional_special_tokens");
            if (listed > kind->extra) kind->extra = listed;
        }
        syi_json_free(&json);
    }
    return status;
}

static int set_kind(struct syi_import *import, const char *name, int64_t extra, struct sy_error *err)
{
    struct syi_config *c = &import->config;
    int status = syi_hf_set(c, "the tokenizer", err, "vocabulary.kind=%s", name);
    if (!status) status = syi_hf_set(c, "the tokenizer", err, "vocabulary.extra_ids=%lld", (long long)extra);
    return status ? status : syi_hf_set(c, "the tokenizer", err, "vocabulary.special_tokens=huggingface");
}

static int set_file(struct syi_import *import, const char *name, int64_t extra, struct sy_error *err)
{
    int status = set_kind(import, "sentencepiece", extra, err);
    return status ? status
                  : syi_hf_set(&import->config, name, err, "vocabulary.file=%s/%s", import->folder, name);
}

/* What is made of it is held as the contents of the vocabulary's file, which is so the model for all who read it. */
static int take_tokenizer_json(struct syi_import *import, struct sy_error *err)
{
    static const char file[] = "tokenizer.json";
    struct syi_text model = {0};
    struct tokenizer t = {.out = &model, .err = err};
    int there, status = syi_hf_json(import->folder, file, &t.json, &there, err);
    if (!status) status = convert(&t);
    if (!status) note_all_steps(&t, &import->unused);
    if (!status) status = syi_text_status(&model, err);
    if (!status) status = set_file(import, file, t.extra, err);
    if (!status)
        status =
            syi_packed_hold_vocabulary(&import->config.vocabulary.part[0], model.data, model.length, err);
    syi_text_free(&model);
    syi_json_free(&t.json);
    return status;
}

/* It is held as well: somebody else's folder may have anything under that name, and so it is looked at once. */
static int take_sentencepiece(struct syi_import *import, const char *file, int64_t extra,
                              struct sy_error *err)
{
    char *path = syi_format("%s/%s", import->folder, file), *model = NULL;
    size_t bytes = 0;
    int status = path ? syi_file_read_regular(path, LARGEST_MODEL, &model, &bytes, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = set_file(import, file, extra, err);
    if (!status) status = syi_packed_hold_vocabulary(&import->config.vocabulary.part[0], model, bytes, err);
    syi_free(model);
    syi_free(path);
    return status;
}

/* Tokenizers have 100 extra ids where nothing is said, models of which somebody took the last rows have none. A model that cannot
 * be opened here is for whoever needs it to say. */
static int fit_extra_ids(struct syi_import *import, struct sy_error *err)
{
    struct syi_vocabulary vocabulary = {0};
    struct sy_error why = {0};
    struct syi_config *c = &import->config;
    int status = syi_vocabulary_make(&vocabulary, &c->vocabulary.part[0], &why);
    int fits = status || syi_vocabulary_size(&vocabulary) <= c->model.vocab_size;
    syi_vocabulary_close(&vocabulary);
    if (status == SY_ENOMEM) return syi_error(err, status, "%s", why.text);
    if (fits || !c->vocabulary.part[0].extra_ids) return SY_OK;
    syi_text_printf(&import->unused,
                    "vocabulary.extra_ids is 0: the model has no rows for %lld more ids than pieces\n",
                    (long long)c->vocabulary.part[0].extra_ids);
    return syi_hf_set(c, "the tokenizer", err, "vocabulary.extra_ids=0");
}

int syi_hf_vocabulary(struct syi_import *import, struct sy_error *err)
{
    static const char file[] = "spiece.model";
    struct syi_hf *hf = import->state;
    struct kind kind = {0};
    /* chosen by the run file or --set: what stands in the folder is not needed */
    const int other = import->config.vocabulary.part[0].kind != SYI_VOCABULARY_bytes;
    int status = read_kind(import, &kind, err);
    if (status) return status;
    int multilingual =
        hf->family == SYI_HF_MT5 || hf->family == SYI_HF_UMT5; /* their models have the extra ids */
    if (kind.extra < 0) kind.extra = multilingual ? 0 : EXTRA_IDS;
    if (kind.bytes) {
        int64_t room = import->config.model.vocab_size - BYTE_IDS;
        status = syi_hf_set(&import->config, "the tokenizer", err, "vocabulary.file=");
        if (status) return status;
        return set_kind(import, "bytes", kind.extra < room ? kind.extra : room > 0 ? room : 0, err);
    }
    if (has_file(import->folder, file)) {
        status = take_sentencepiece(import, file, kind.extra, err);
        return status ? status : fit_extra_ids(import, err);
    }
    if (has_file(import->folder, "tokenizer.json")) {
        struct sy_error why = {0};
        status = take_tokenizer_json(import, &why);
        if (status != SY_EUNSUPPORTED || !other)
            return status ? syi_error(err, status, "%s", why.text) : SY_OK;
        syi_text_puts(&import->unused,
                      "tokenizer.json is not taken over: [vocabulary] is what a run file or --set says\n");
        return SY_OK;
    }
    syi_text_printf(
        &import->unused,
        "there is no tokenizer in %s: [vocabulary] is what a run file or --set says, or that of bytes\n",
        import->folder);
    return SY_OK;
}
