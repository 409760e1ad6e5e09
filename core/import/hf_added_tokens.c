/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that somebody added to a tokenizer, as with add_tokens(): its pieces do not have them, so texts get other ids for them
 * here, which a line says. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "import/hf.h"

enum { NAMED = 5 };

struct added {
    const struct syi_json *json;
    int64_t last; /* ids over it are neither pieces nor extra ids */
    int64_t n;    /* found so far */
    struct syi_text names;
};

typedef void (*token_fn)(struct added *added, int64_t id, const char *text);

static void look_at_extra(struct added *added, int64_t id, const char *text)
{
    if (syi_hf_is_extra_id(text) && id > added->last) added->last = id;
}

static void note_added(struct added *added, int64_t id, const char *text)
{
    struct syi_json_writer writer;
    if (id <= added->last || added->n++ >= NAMED) return;
    if (added->n > 1) syi_text_puts(&added->names, ", ");
    syi_json_begin(&writer, &added->names);
    syi_json_put_string(&writer, text);
    syi_text_printf(&added->names, " (id %" PRId64 ")", id);
}

/* The tokens of a list of {"id": 7, "content": "x"}, of an object {"7": {"content": "x"}}, or of {"x": 7}. */
static void each_token(struct added *added, uint32_t list, token_fn fn)
{
    const struct syi_json *json = added->json;
    for (uint32_t at = json->nodes[list].first; at != SYI_JSON_NONE; at = json->nodes[at].next) {
        const struct syi_json_node *text = syi_hf_member(json, at, "content"),
                                   *id = syi_hf_member(json, at, "id");
        const char *key = syi_json_key(json, at);
        if (json->nodes[at].kind == SYI_JSON_NUMBER)
            fn(added, json->nodes[at].integer, key);
        else if (text && text->kind == SYI_JSON_STRING)
            fn(added, id ? id->integer : strtoll(key, NULL, 10), json->strings + text->string);
    }
}

/* key NULL: the file is the list. Returns whether there is one. */
static int find_added(struct added *added, const struct syi_json *json, const char *key)
{
    enum { CONTROL = 3 }; /* <pad>, </s>, <unk> */
    uint32_t list = key ? syi_json_member(json, 0, key) : 0, model = syi_json_member(json, 0, "model");
    const struct syi_json_node *pieces = model == SYI_JSON_NONE ? NULL : syi_hf_member(json, model, "vocab");
    if (key && list == SYI_JSON_NONE) return 0;
    added->json = json;
    added->last = (pieces && pieces->n_children > CONTROL ? pieces->n_children : CONTROL) - INT64_C(1);
    each_token(added, list, look_at_extra);
    each_token(added, list, note_added);
    return 1;
}

int syi_hf_added_tokens(struct syi_import *import, struct sy_error *err)
{
    static const struct {
        const char *file, *key;
    } place[] = {{"tokenizer.json", "added_tokens"},
                 {"tokenizer_config.json", "added_tokens_decoder"},
                 {"added_tokens.json", NULL}};
    struct added added = {.n = 0};
    int status = SY_OK, found = 0;
    for (size_t i = 0; i < SYI_COUNT(place) && !status && !found; i++) {
        struct syi_json json = {0};
        int there;
        status = syi_hf_json(import->folder, place[i].file, &json, &there, err);
        if (!status && there) found = find_added(&added, &json, place[i].key);
        syi_json_free(&json);
    }
    if (!status && added.n)
        syi_text_printf(
            &import->unused,
            "%" PRId64
            " tokens that were added to the tokenizer are not imported, texts that have them get other "
            "ids: %s%s\n",
            added.n, added.names.data ? added.names.data : "", added.n > NAMED ? ", ..." : "");
    if (!status) status = syi_text_status(&added.names, err);
    syi_text_free(&added.names);
    return status;
}
