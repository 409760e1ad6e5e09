/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a case: to ids and back with the folder's vocabulary. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/import_case.h"

struct texts {
    struct verify_hf *h;
    const struct syi_json *json;
    struct syi_vocabularies vocabularies;
};

static uint32_t member(const struct texts *t, uint32_t object, const char *key)
{
    return syi_json_member(t->json, object, key);
}

/* Of a JSON text: its ids and the end token. */
static int encode(const struct texts *t, uint32_t text, struct syi_ids *ids, struct sy_error *err)
{
    const char *bytes = syi_json_string(t->json, text);
    const struct syi_vocabulary *v = &t->vocabularies.input;
    size_t n;
    int status = syi_vocabulary_encode(v, (struct syi_span){bytes, strlen(bytes)}, NULL, 0, &n, err);
    if (!status) status = SYI_GROW(ids->id, ids->capacity, n + 1, err);
    if (!status)
        status = syi_vocabulary_encode(v, (struct syi_span){bytes, strlen(bytes)}, ids->id, n, &ids->n, err);
    if (!status) ids->id[ids->n++] = v->end;
    return status;
}

static void judge_ids(const struct texts *t, const char *name, const struct syi_ids *got, const int32_t *want,
                      size_t n)
{
    char reason[200] = "";
    size_t first = 0;
    while (first < got->n && first < n && got->id[first] == want[first]) first++;
    if (first < got->n || first < n)
        snprintf(reason, sizeof reason, "id %zu is %d, expected %d (%zu ids, expected %zu)", first,
                 first < got->n ? got->id[first] : -1, first < n ? want[first] : -1, got->n, n);
    verify_judge(t->h->v->report, name, 0, *reason ? reason : NULL);
}

/* What ids say: all of them, for their tokenizers go on after an end token. */
static int judge_text(const struct texts *t, const char *name, const int32_t *ids, size_t n, const char *want,
                      struct sy_error *err)
{
    char reason[200] = "";
    struct syi_text got = {0};
    struct syi_ids plain = {0};
    int status = SYI_GROW(plain.id, plain.capacity, n + 1, err);
    for (size_t i = 0; !status && i < n; i++)
        if (ids[i] != t->vocabularies.input.end) plain.id[plain.n++] = ids[i];
    if (!status) syi_vocabulary_decode(&t->vocabularies.input, plain.id, plain.n, &got);
    if (!status) status = syi_text_status(&got, err);
    if (!status && strcmp(got.data ? got.data : "", want))
        snprintf(reason, sizeof reason, "the text is \"%.60s\", expected \"%.60s\"", got.data ? got.data : "",
                 want);
    if (!status) verify_judge(t->h->v->report, name, 0, *reason ? reason : NULL);
    syi_ids_free(&plain);
    syi_text_free(&got);
    return status;
}

/* {"text", "ids", "decoded"} */
static int check_case(const struct texts *t, uint32_t at, int number, struct sy_error *err)
{
    char name[80];
    int32_t *want;
    size_t n;
    struct syi_ids got = {0};
    uint32_t text = member(t, at, "text"), decoded = member(t, at, "decoded");
    int status = verify_import_ids(t->h->v->item, member(t, at, "ids"), &want, &n, err);
    if (!status && (!text || !decoded)) status = syi_error(err, SY_EFORMAT, "a tokenizer case has no text");
    if (!status) status = encode(t, text, &got, err);
    snprintf(name, sizeof name, "tokenizer_cases/%d/ids", number);
    if (!status) judge_ids(t, name, &got, want, n);
    snprintf(name, sizeof name, "tokenizer_cases/%d/decoded", number);
    if (!status) status = judge_text(t, name, want, n, syi_json_string(t->json, decoded), err);
    syi_ids_free(&got);
    syi_free(want);
    return status;
}

static int check_cases(const struct texts *t, struct sy_error *err)
{
    uint32_t list = member(t, t->h->v->item->config, "tokenizer_cases");
    int status = SY_OK, number = 0;
    verify_ignore(t->h->v->item, "tokenizer_cases");
    for (uint32_t at = list ? t->json->nodes[list].first : SYI_JSON_NONE; at != SYI_JSON_NONE && !status;
         at = t->json->nodes[at].next)
        status = check_case(t, at, number++, err);
    return status;
}

/* Texts of the batch, a row each: ids [rows, length], of which as many are real as `lengths` says. */
static int check_rows(const struct texts *t, uint32_t list, const char *what, const int32_t *ids,
                      int64_t length, const int32_t *lengths, struct sy_error *err)
{
    int64_t row = 0;
    int status = SY_OK;
    for (uint32_t at = list ? t->json->nodes[list].first : SYI_JSON_NONE;
         at != SYI_JSON_NONE && !status && row < t->h->rows; at = t->json->nodes[at].next, row++) {
        char name[80];
        struct syi_ids got = {0};
        snprintf(name, sizeof name, "%s/%lld", what, (long long)row);
        status = encode(t, at, &got, err);
        if (!status) judge_ids(t, name, &got, ids + row * length, (size_t)lengths[row]);
        syi_ids_free(&got);
    }
    return status;
}

static int check_batch(const struct texts *t, struct sy_error *err)
{
    const struct verify_hf *h = t->h;
    uint32_t root = h->v->item->config, texts = member(t, root, "texts");
    uint32_t inputs = texts ? member(t, texts, "inputs") : member(t, root, "inputs");
    uint32_t targets = texts ? member(t, texts, "targets") : SYI_JSON_NONE;
    verify_ignore(h->v->item, "texts inputs input_ids");
    int status = check_rows(t, inputs, "inputs", h->input_ids, h->input_length, h->lengths[0], err);
    return status ? status
                  : check_rows(t, targets, "targets", h->targets, h->target_length, h->lengths[1], err);
}

/* "texts" of a run of generate(): of its ids, which the decoder was compared with. */
static int check_outputs(const struct texts *t, uint32_t run, struct sy_error *err)
{
    uint32_t texts = member(t, run, "texts"), ids = member(t, run, "ids");
    if (!texts || !ids) return SY_OK;
    uint32_t text = t->json->nodes[texts].first, row = t->json->nodes[ids].first;
    int status = SY_OK;
    for (int i = 0; text != SYI_JSON_NONE && row != SYI_JSON_NONE && !status;
         i++, text = t->json->nodes[text].next, row = t->json->nodes[row].next) {
        char name[160];
        int32_t *list;
        size_t n;
        snprintf(name, sizeof name, "generate/%s/texts/%d", syi_json_key(t->json, run), i);
        status = verify_import_ids(t->h->v->item, row, &list, &n, err);
        if (!status) status = judge_text(t, name, list, n, syi_json_string(t->json, text), err);
        syi_free(list);
    }
    return status;
}

int verify_hf_texts(struct verify_hf *h, struct sy_error *err)
{
    struct texts t = {.h = h, .json = &h->v->item->json};
    uint32_t root = h->v->item->config, all = member(&t, root, "generate");
    if (!verify_has(h->v->item, "texts") && !verify_has(h->v->item, "inputs")) return SY_OK;
    int status = syi_vocabularies_open(&t.vocabularies, &h->v->config, err);
    if (status == SY_EUNSUPPORTED) return VERIFY_NOT_BUILT; /* the plugin of SentencePiece */
    if (status) return status;
    status = check_cases(&t, err);
    if (!status) status = check_batch(&t, err);
    for (uint32_t run = all ? t.json->nodes[all].first : SYI_JSON_NONE; run != SYI_JSON_NONE && !status;
         run = t.json->nodes[run].next)
        status = check_outputs(&t, run, err);
    syi_vocabularies_close(&t.vocabularies);
    return status;
}
