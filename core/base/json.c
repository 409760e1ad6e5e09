/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader and writer of json.h. The reader meets hostile files: every step is bounded by the text's
 * end, the nesting by SYI_JSON_DEPTH. Nodes refer to each other by index, so the array may move while it
 * grows. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* ---- reader ---- */

struct reader {
    struct syi_json *json;
    const char *what;     /* file name for messages */
    const char *text;     /* NUL after the end */
    size_t at, bytes;     /* next byte, all bytes */
    int depth;            /* open arrays and objects */
    struct sy_error *err; /* borrowed */
};

static int fail(struct reader *r, const char *why)
{
    return syi_error(r->err, SY_EFORMAT, "%s: malformed JSON at byte %zu: %s", r->what, r->at, why);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->bytes && strchr(" \t\n\r", r->text[r->at]) && r->text[r->at]) r->at++;
}

static int peek(const struct reader *r)
{
    return r->at < r->bytes ? (unsigned char)r->text[r->at] : -1;
}

/* Four hexadecimal digits, or -1. */
static int32_t read_hex4(struct reader *r)
{
    int32_t value = 0;
    if (r->bytes - r->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *hit;
        int c = (unsigned char)r->text[r->at + (size_t)i];
        hit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!hit) return -1;
        value = value * 16 + (int32_t)(hit - digits);
    }
    r->at += 4;
    return value;
}

/* After "\u": one code point from one escape or a surrogate pair. */
static int read_unicode(struct reader *r, char **out)
{
    int32_t code = read_hex4(r);
    if (code < 0) return fail(r, "\\u needs four hexadecimal digits");
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->bytes - r->at < 6 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u')
            return fail(r, "half a surrogate pair");
        r->at += 2;
        int32_t low = read_hex4(r);
        if (low < 0xdc00 || low > 0xdfff) return fail(r, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0) { /* strings end at a NUL, so it becomes two bytes that UTF-8 does not use */
        memcpy(*out, "\xc0\x80", 2);
        *out += 2;
        return SY_OK;
    }
    int length = syi_utf8_encode((uint32_t)code, *out);
    if (length == 0) return fail(r, "half a surrogate pair");
    *out += length;
    return SY_OK;
}

static int read_escape(struct reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek(r);
    r->at++;
    if (c == 'u') return read_unicode(r, out);
    const char *hit = c > 0 ? strchr(from, c) : NULL;
    if (!hit) return fail(r, "unknown escape in a string");
    *(*out)++ = to[hit - from];
    return SY_OK;
}

/* After the opening quote. An unescaped string is never longer than its source, nor a number with the NUL after it than the
 * source with what must follow it; so `strings`, as large as the document, holds them all. */
static int read_string(struct reader *r, uint32_t *offset)
{
    char *start = r->json->strings + r->json->string_bytes, *out = start;
    for (;;) {
        int c = peek(r);
        if (c < 0) return fail(r, "the string does not end");
        if (c < 0x20) return fail(r, "control character in a string");
        if (c == '"') break;
        if (c == '\\') {
            r->at++;
            int status = read_escape(r, &out);
            if (status != SY_OK) return status;
            continue;
        }
        int length = syi_utf8_length((const unsigned char *)r->text + r->at, r->bytes - r->at);
        if (length == 0) return fail(r, "malformed UTF-8 in a string");
        memcpy(out, r->text + r->at, (size_t)length);
        out += length;
        r->at += (size_t)length;
    }
    r->at++;
    *out++ = 0;
    *offset = (uint32_t)r->json->string_bytes;
    r->json->string_bytes += (size_t)(out - start);
    return SY_OK;
}

static size_t skip_digits(struct reader *r)
{
    size_t start = r->at;
    while (peek(r) >= '0' && peek(r) <= '9') r->at++;
    return r->at - start;
}

static int read_number(struct reader *r, struct syi_json_node *node)
{
    const char *start = r->text + r->at, *end;
    int whole = 1;
    if (peek(r) == '-') r->at++;
    int zero = peek(r) == '0';
    size_t digits = skip_digits(r);
    if (digits == 0 || (zero && digits > 1)) return fail(r, "malformed number");
    if (peek(r) == '.') {
        whole = 0;
        r->at++;
        if (skip_digits(r) == 0) return fail(r, "a digit must follow the decimal point");
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        whole = 0;
        r->at++;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        if (skip_digits(r) == 0) return fail(r, "a digit must follow the exponent sign");
    }
    node->kind = SYI_JSON_NUMBER;
    size_t length = (size_t)(r->text + r->at - start);
    node->string = (uint32_t)r->json->string_bytes;
    memcpy(r->json->strings + node->string, start, length); /* zeroed memory: the NUL is there */
    r->json->string_bytes += length + 1;
    node->number = syi_parse_double(start, &end);
    if (whole) {
        errno = 0;
        int64_t value = strtoll(start, NULL, 10);
        node->is_integer = errno == 0;
        node->integer = errno == 0 ? value : 0;
    }
    return SY_OK;
}

static int read_word(struct reader *r, struct syi_json_node *node)
{
    static const struct {
        const char *word;
        uint8_t kind; /* enum syi_json_kind */
    } words[] = {{"null", SYI_JSON_NULL}, {"false", SYI_JSON_FALSE}, {"true", SYI_JSON_TRUE}};
    for (size_t i = 0; i < SYI_COUNT(words); i++) {
        size_t length = strlen(words[i].word);
        if (r->bytes - r->at < length || memcmp(r->text + r->at, words[i].word, length) != 0) continue;
        r->at += length;
        node->kind = words[i].kind;
        return SY_OK;
    }
    return fail(r, peek(r) < 0 ? "the document ends too early" : "no value begins with this character");
}

static int read_value(struct reader *r, uint32_t key, uint32_t *index);

static int read_key(struct reader *r, uint32_t *key)
{
    skip_space(r);
    if (peek(r) != '"') return fail(r, "a member's name in double quotes was expected");
    r->at++;
    int status = read_string(r, key);
    if (status != SY_OK) return status;
    skip_space(r);
    if (peek(r) != ':') return fail(r, "':' was expected");
    r->at++;
    return SY_OK;
}

/* After '[' or '{' of node `parent`. */
static int read_children(struct reader *r, uint32_t parent, int closing)
{
    uint32_t last = SYI_JSON_NONE, child = SYI_JSON_NONE, key = 0;
    skip_space(r);
    if (peek(r) == closing) {
        r->at++;
        return SY_OK;
    }
    for (;;) {
        int status = closing == '}' ? read_key(r, &key) : SY_OK;
        if (status == SY_OK) status = read_value(r, key, &child);
        if (status != SY_OK) return status;
        if (last == SYI_JSON_NONE)
            r->json->nodes[parent].first = child;
        else
            r->json->nodes[last].next = child;
        r->json->nodes[parent].n_children++;
        last = child;
        skip_space(r);
        int c = peek(r);
        if (c != ',' && c != closing)
            return fail(r, closing == '}' ? "',' or '}' was expected" : "',' or ']' was expected");
        r->at++;
        if (c == closing) return SY_OK;
    }
}

static int read_container(struct reader *r, uint32_t index, char opening)
{
    if (r->depth == SYI_JSON_DEPTH) return fail(r, "nested too deep (64 levels are accepted)");
    r->json->nodes[index].kind = opening == '{' ? SYI_JSON_OBJECT : SYI_JSON_ARRAY;
    r->at++;
    r->depth++;
    int status = read_children(r, index, opening == '{' ? '}' : ']');
    r->depth--;
    return status;
}

static int read_value(struct reader *r, uint32_t key, uint32_t *index)
{
    struct syi_json *json = r->json;
    int status = SYI_GROW(json->nodes, json->capacity, json->n_nodes + 1, r->err);
    if (status != SY_OK) return status;
    *index = (uint32_t)json->n_nodes++;
    struct syi_json_node *node = &json->nodes[*index]; /* moves when children are read: not used after that */
    node->key = key;
    skip_space(r);
    int c = peek(r);
    if (c == '{' || c == '[') return read_container(r, *index, (char)c);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r, node);
    if (c != '"') return read_word(r, node);
    r->at++;
    node->kind = SYI_JSON_STRING;
    return read_string(r, &node->string);
}

int syi_json_parse(struct syi_json *json, const char *what, const char *text, size_t bytes,
                   struct sy_error *err)
{
    struct reader r = {.json = json, .what = what, .bytes = bytes, .err = err};
    uint32_t root;
    memset(json, 0, sizeof(*json));
    if (bytes >= INT32_MAX)
        return syi_error(err, SY_EFORMAT, "%s: JSON of %zu bytes is too large", what, bytes);
    char *copy = syi_alloc(bytes + 1, err); /* with a NUL after it, for the number parsers */
    json->strings = syi_alloc(bytes + 2, err);
    int status = copy && json->strings ? SY_OK : SY_ENOMEM;
    if (status == SY_OK) {
        if (bytes) memcpy(copy, text, bytes);
        r.text = copy;
        json->string_bytes = 1; /* offset 0 is the empty string */
        status = read_value(&r, 0, &root);
    }
    if (status == SY_OK) {
        skip_space(&r);
        if (r.at < bytes) status = fail(&r, "something follows the document's end");
    }
    syi_free(copy);
    if (status != SY_OK) syi_json_free(json);
    return status;
}

void syi_json_free(struct syi_json *json)
{
    syi_free(json->nodes);
    syi_free(json->strings);
    memset(json, 0, sizeof(*json));
}

uint32_t syi_json_member(const struct syi_json *json, uint32_t object, const char *key)
{
    if (json->nodes[object].kind != SYI_JSON_OBJECT) return SYI_JSON_NONE;
    uint32_t child = json->nodes[object].first;
    while (child != SYI_JSON_NONE && strcmp(syi_json_key(json, child), key) != 0)
        child = json->nodes[child].next;
    return child;
}

const char *syi_json_string(const struct syi_json *json, uint32_t node)
{
    return json->strings + json->nodes[node].string;
}

const char *syi_json_key(const struct syi_json *json, uint32_t node)
{
    return json->strings + json->nodes[node].key;
}

/* ---- writer ---- */

void syi_json_begin(struct syi_json_writer *writer, struct syi_text *out)
{
    memset(writer, 0, sizeof(*writer));
    writer->out = out;
}

/* Before each value and each key: the comma that separates it from the one before. */
static void separate(struct syi_json_writer *writer)
{
    if (!writer->after_key && writer->filled[writer->depth]) syi_text_puts(writer->out, ",");
    writer->filled[writer->depth] = 1;
    writer->after_key = 0;
}

void syi_json_open(struct syi_json_writer *writer, char bracket)
{
    separate(writer);
    syi_text_append(writer->out, &bracket, 1);
    if (writer->depth < SYI_JSON_DEPTH) writer->depth++;
    writer->filled[writer->depth] = 0;
}

void syi_json_close(struct syi_json_writer *writer, char bracket)
{
    syi_text_append(writer->out, &bracket, 1);
    if (writer->depth > 0) writer->depth--;
}

static void put_escaped(struct syi_text *out, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit)
        syi_text_printf(out, "\\%c", to[hit - from]);
    else
        syi_text_printf(out, "\\u%04x", c);
}

static void put_quoted(struct syi_text *out, const char *string)
{
    const unsigned char *at = (const unsigned char *)string, *end = at + strlen(string);
    syi_text_puts(out, "\"");
    while (at < end) {
        if (*at < 0x20 || *at == '"' || *at == '\\')
            put_escaped(out, *at++);
        else
            at += syi_text_put_character(out, at, (size_t)(end - at));
    }
    syi_text_puts(out, "\"");
}

void syi_json_put_key(struct syi_json_writer *writer, const char *key)
{
    separate(writer);
    put_quoted(writer->out, key);
    syi_text_puts(writer->out, ":");
    writer->after_key = 1;
}

void syi_json_put_string(struct syi_json_writer *writer, const char *string)
{
    separate(writer);
    put_quoted(writer->out, string);
}

void syi_json_put_integer(struct syi_json_writer *writer, int64_t value)
{
    separate(writer);
    syi_text_printf(writer->out, "%" PRId64, value);
}

static void put_number(struct syi_json_writer *writer, const char *text, int finite)
{
    separate(writer);
    if (finite)
        syi_text_puts(writer->out, text);
    else
        put_quoted(writer->out, text);
}

void syi_json_put_double(struct syi_json_writer *writer, double value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    put_number(writer, text, isfinite(value));
}

void syi_json_put_float(struct syi_json_writer *writer, float value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_float(text, value);
    put_number(writer, text, isfinite(value));
}

void syi_json_put_bool(struct syi_json_writer *writer, int value)
{
    separate(writer);
    syi_text_puts(writer->out, value ? "true" : "false");
}

void syi_json_put_null(struct syi_json_writer *writer)
{
    separate(writer);
    syi_text_puts(writer->out, "null");
}

void syi_json_put_key_string(struct syi_json_writer *writer, const char *key, const char *value)
{
    syi_json_put_key(writer, key);
    syi_json_put_string(writer, value);
}

void syi_json_put_key_integer(struct syi_json_writer *writer, const char *key, int64_t value)
{
    syi_json_put_key(writer, key);
    syi_json_put_integer(writer, value);
}

void syi_json_put_key_double(struct syi_json_writer *writer, const char *key, double value)
{
    syi_json_put_key(writer, key);
    syi_json_put_double(writer, value);
}
