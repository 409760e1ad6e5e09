/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies against seqio's: rows of text to ids and of ids to text. */
#include "config.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "verify/data_case.h"

/* ---- rows ---- */

/* JSON's reader keeps NUL as the bytes c0 80. */
static size_t unescape(const char *text, char *out)
{
    size_t n = 0;
    for (; *text; text++) {
        int nul = (unsigned char)text[0] == 0xc0 && (unsigned char)text[1] == 0x80;
        out[n++] = nul ? '\0' : *text;
        text += nul;
    }
    return n;
}

/* Of any bytes that are UTF-8: the writer has no word for NUL. */
static void put_text(struct syi_json_writer *answer, const char *text, size_t bytes)
{
    syi_text_puts(answer->out, "\"");
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == '"' || text[i] == '\\')
            syi_text_printf(answer->out, "\\u%04x", (unsigned)text[i]);
        else
            syi_text_append(answer->out, text + i, 1);
    syi_text_puts(answer->out, "\"");
}

static int encode_row(const struct syi_vocabulary *v, const struct verify_row *row,
                      struct syi_json_writer *answer, struct sy_error *err)
{
    uint32_t node;
    struct syi_ids ids = {0};
    int status = verify_member(row->item, row->input, "text", SYI_JSON_STRING, &node, err);
    if (status) return status;
    const char *json = syi_json_string(&row->item->json, node);
    char *text = syi_alloc(strlen(json) + 1, err);
    if (!text) return SY_ENOMEM;
    struct syi_span span = {text, unescape(json, text)};
    size_t n;
    status = syi_vocabulary_encode(v, span, NULL, 0, &n, err);
    if (!status) status = SYI_GROW(ids.id, ids.capacity, n + 1, err);
    if (!status) status = syi_vocabulary_encode(v, span, ids.id, n, &n, err);
    if (!status) verify_data_put_ids(answer, ids.id, n);
    syi_ids_free(&ids);
    syi_free(text);
    return status;
}

static int decode_row(const struct syi_vocabulary *v, const struct verify_row *row,
                      struct syi_json_writer *answer, struct sy_error *err)
{
    struct syi_ids ids = {0};
    struct syi_text text = {0};
    int status = verify_data_member_ids(row->item, row->input, "ids", &ids, err);
    if (!status) syi_vocabulary_decode(v, ids.id, ids.n, &text);
    if (!status) status = syi_text_status(&text, err);
    if (!status) put_text(answer, text.data, text.data ? syi_utf8_drop_invalid(text.data, text.length) : 0);
    syi_text_free(&text);
    syi_ids_free(&ids);
    return status;
}

/* seqio has each operation twice, in Python and in TensorFlow; they are one here. */
static int answer_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                      struct sy_error *err)
{
    uint32_t node;
    int status = verify_member(row->item, row->input, "op", SYI_JSON_STRING, &node, err);
    if (status) return status;
    const char *op = syi_json_string(&row->item->json, node);
    if (!strcmp(op, "encode") || !strcmp(op, "encode_tf")) return encode_row(arg, row, answer, err);
    if (!strcmp(op, "decode") || !strcmp(op, "decode_tf")) return decode_row(arg, row, answer, err);
    return syi_error(err, SY_EFORMAT, "op %.60s is none that this program knows", op);
}

/* What the configuration says of the vocabulary, held against the one that is open. */
static int check_config(const struct verify_case *c, const struct syi_vocabulary *v,
                        struct verify_report *report, struct sy_error *err)
{
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"pad_id", SYI_ID_PAD},
                {"eos_id", v->end},
                {"unk_id", v->unknown},
                {"vocab_size", syi_vocabulary_size(v)}};
    for (size_t i = 0; i < SYI_COUNT(keys); i++) {
        int64_t want;
        int status = verify_int(c, keys[i].key, 0, INT32_MAX, &want, err);
        if (status) return status;
        verify_judge(report, keys[i].key, 0, want == keys[i].value ? NULL : "another value than expected");
    }
    return SY_OK;
}

static int check(const struct verify_case *c, struct syi_vocabulary *v, struct verify_report *report,
                 struct sy_error *err)
{
    int status = check_config(c, v, report, err);
    return status ? status : verify_data_rows(c, "text", "op text ids", answer_row, v, report, err);
}

int verify_data_bytes(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    int64_t extra = 0;
    struct syi_vocabulary v;
    int status = verify_int(c, "extra_ids", 0, SYI_MAX_EXTRA_IDS, &extra, err);
    if (!status) status = verify_only(c, "bos_id", "none", err);
    if (!status) status = syi_vocabulary_bytes(&v, (int32_t)extra, err);
    return status ? status : check(c, &v, report, err);
}

/* ---- the model of a case ---- */

/* The case says how many bytes its model has. */
static int find_in(const char *folder, int64_t bytes, char *path, size_t room)
{
    int found = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && !found; entry = readdir(dir)) {
        struct stat info;
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".model")) continue;
        int length = snprintf(path, room, "%s/%s", folder, entry->d_name);
        found = length > 0 && (size_t)length < room && !stat(path, &info) && info.st_size == bytes;
    }
    if (dir) closedir(dir);
    return found;
}

/* In $SWITCHYARD_VERIFY_MODELS, beside the case, or in data/spm beside one of the folders above it. */
static int find_model(const struct verify_case *c, int64_t bytes, char *path, size_t room,
                      struct sy_error *err)
{
    static const char *const places[] = {".", "../data/spm", "../../data/spm", "../../../data/spm"};
    const char *chosen = getenv("SWITCHYARD_VERIFY_MODELS"), *slash = strrchr(c->path, '/');
    char folder[1200];
    if (chosen && *chosen && find_in(chosen, bytes, path, room)) return SY_OK;
    for (size_t i = 0; i < SYI_COUNT(places); i++) {
        snprintf(folder, sizeof folder, "%.*s/%s", slash ? (int)(slash - c->path) : 1, slash ? c->path : ".",
                 places[i]);
        if (find_in(folder, bytes, path, room)) return SY_OK;
    }
    return syi_error(err, SY_EUNSUPPORTED,
                     "no .model file of %lld bytes beside the case, in data/spm of a folder above it, or in "
                     "$SWITCHYARD_VERIFY_MODELS",
                     (long long)bytes);
}

int verify_data_sentencepiece(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    int64_t bytes = 0;
    struct syi_vocabulary v;
    struct syi_vocabulary_part part = {.kind = SYI_VOCABULARY_sentencepiece};
    int status = verify_int(c, "extra_ids", 0, SYI_MAX_EXTRA_IDS, &part.extra_ids, err);
    if (!status) status = verify_int(c, "model_bytes", 1, INT64_MAX, &bytes, err);
    if (!status) status = find_model(c, bytes, part.file, sizeof part.file, err);
    if (!status) {
        status = syi_vocabulary_make(&v, &part, err);
        if (status == SY_EUNSUPPORTED) return VERIFY_NOT_BUILT;
    }
    if (status) return status;
    status = check(c, &v, report, err);
    syi_vocabulary_close(&v);
    return status;
}
