/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader on any bytes: what it takes is a sound tree, and written again it is the same document. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"

/* Writes node `at`; every index must lie inside the array, every text inside the strings. Returns the nodes
 * seen. */
static size_t write_node(const struct syi_json *json, uint32_t at, struct syi_json_writer *writer)
{
    FUZZ_REQUIRE(at < json->n_nodes);
    const struct syi_json_node *node = &json->nodes[at];
    size_t seen = 1, children = 0;
    FUZZ_REQUIRE(node->string < json->string_bytes && node->key < json->string_bytes);
    switch (node->kind) {
    case SYI_JSON_NULL: syi_json_put_null(writer); return seen;
    case SYI_JSON_FALSE:
    case SYI_JSON_TRUE: syi_json_put_bool(writer, node->kind == SYI_JSON_TRUE); return seen;
    case SYI_JSON_STRING: syi_json_put_string(writer, syi_json_string(json, at)); return seen;
    case SYI_JSON_NUMBER:
        if (node->is_integer && !signbit(node->number) == (node->integer >= 0)) /* not -0 */
            syi_json_put_integer(writer, node->integer);
        else
            syi_json_put_double(writer, node->number);
        return seen;
    }
    int object = node->kind == SYI_JSON_OBJECT;
    syi_json_open(writer, object ? '{' : '[');
    for (uint32_t child = node->first; child != SYI_JSON_NONE; child = json->nodes[child].next, children++) {
        if (object) syi_json_put_key(writer, syi_json_key(json, child));
        if (object) FUZZ_REQUIRE(syi_json_member(json, at, syi_json_key(json, child)) <= child);
        seen += write_node(json, child, writer);
    }
    syi_json_close(writer, object ? '}' : ']');
    FUZZ_REQUIRE(children == node->n_children);
    return seen;
}

static struct syi_text write_document(const struct syi_json *json)
{
    struct syi_text text = {0};
    struct syi_json_writer writer;
    syi_json_begin(&writer, &text);
    FUZZ_REQUIRE(write_node(json, 0, &writer) == json->n_nodes);
    FUZZ_REQUIRE(syi_text_status(&text, NULL) == SY_OK);
    return text;
}

/* The writer replaces what is no UTF-8: there is none in what was read but the two bytes that stand for
 * \u0000. */
static int has_nul(const struct syi_json *json)
{
    for (size_t i = 0; i + 1 < json->string_bytes; i++)
        if (!memcmp(json->strings + i, "\xc0\x80", 2)) return 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct syi_json json, again;
    struct sy_error err = {0};
    if (syi_json_parse(&json, "input", (const char *)data, size, &err)) {
        FUZZ_REQUIRE(err.code == SY_EFORMAT && err.text[0]);
        return 0;
    }
    struct syi_text first = write_document(&json);
    if (!has_nul(&json)) {
        FUZZ_REQUIRE(syi_json_parse(&again, "output", first.data, first.length, &err) == SY_OK);
        FUZZ_REQUIRE(again.n_nodes == json.n_nodes);
        struct syi_text second = write_document(&again);
        FUZZ_REQUIRE(first.length == second.length && !memcmp(first.data, second.data, first.length));
        syi_text_free(&second);
        syi_json_free(&again);
    }
    syi_text_free(&first);
    syi_json_free(&json);
    return 0;
}
