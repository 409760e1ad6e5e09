/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines: each line is an object whose members are the fields. */
#include "config.h"

#include <string.h>

#include "base/json.h"
#include "data/record.h"

/* A member, or an element of its list, of which the text is in `decoded` where it was in the document's strings. */
static int add_value(struct syi_span name, const struct syi_json_node *node, struct syi_fields *fields,
                     struct sy_error *err)
{
    const char *text = NULL;
    switch (node->kind) {
    case SYI_JSON_NULL: return SY_OK;
    case SYI_JSON_FALSE: text = "false"; break;
    case SYI_JSON_TRUE: text = "true"; break;
    case SYI_JSON_NUMBER:
    case SYI_JSON_STRING: text = fields->decoded.data + node->string; break;
    default: break; /* no text */
    }
    return syi_fields_add(fields, name, (struct syi_span){text, text ? strlen(text) : 0}, err);
}

/* A null of a list keeps its place: without it what comes after would belong to other texts of the list beside it. */
static int add_member(const struct syi_json *json, uint32_t member, struct syi_fields *fields,
                      struct sy_error *err)
{
    const struct syi_json_node *node = &json->nodes[member];
    const char *key = fields->decoded.data + node->key;
    struct syi_span name = {key, strlen(key)};
    int status = SY_OK;
    if (node->kind != SYI_JSON_ARRAY) return add_value(name, node, fields, err);
    for (uint32_t i = node->first; i != SYI_JSON_NONE && !status; i = json->nodes[i].next)
        status = json->nodes[i].kind == SYI_JSON_NULL
                     ? syi_fields_add(fields, name, (struct syi_span){NULL, 0}, err)
                     : add_value(name, &json->nodes[i], fields, err);
    return status;
}

/* What the reader of JSON makes of \u0000, for its strings end at a NUL. */
static int has_nul(const struct syi_json *json)
{
    for (size_t i = 1; i < json->string_bytes; i++)
        if (json->strings[i - 1] == '\xc0' && json->strings[i] == '\x80') return 1;
    return 0;
}

static int add_members(const struct syi_json *json, struct syi_fields *fields, struct sy_error *err)
{
    if (json->nodes[0].kind != SYI_JSON_OBJECT)
        return syi_error(err, SY_EFORMAT, "JSON, but no object; %s", syi_record_jsonl.holds);
    if (has_nul(json)) return syi_error(err, SY_EFORMAT, "a NUL character, which no text has");
    syi_text_append(&fields->decoded, json->strings, json->string_bytes);
    int status = syi_text_status(&fields->decoded, err);
    for (uint32_t i = json->nodes[0].first; i != SYI_JSON_NONE && !status; i = json->nodes[i].next)
        status = add_member(json, i, fields, err);
    return status;
}

static int parse_jsonl(struct syi_span record, struct syi_fields *fields, struct sy_error *err)
{
    struct syi_json json;
    fields->n = 0;
    fields->decoded.length = 0;
    int status = syi_json_parse(&json, "this line", record.text, record.bytes, err);
    if (status) return status;
    status = add_members(&json, fields, err);
    syi_json_free(&json);
    return status;
}

const struct syi_record_format syi_record_jsonl = {
    .name = "jsonl",
    .holds = "each line is a JSON object, {\"input\": \"...\", \"target\": \"...\"}",
    .cut = syi_cut_line,
    .parse = parse_jsonl,
};
