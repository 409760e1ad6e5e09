/* SPDX-License-Identifier: Apache-2.0 */
/* The msgpack reader and writer of msgpack.h. The reader meets hostile files: every step is bounded by the document's
 * end, the nesting by SYI_MSGPACK_DEPTH. Nodes refer to each other by index, so the array may move while it grows. */
#include "config.h"

#include <string.h>

#include "import/msgpack.h"

/* ---- reader ---- */

struct reader {
    struct syi_msgpack *pack;
    const char *what;     /* file name for messages */
    size_t at, bytes;     /* next byte, all bytes */
    struct sy_error *err; /* borrowed */
};

static int fail(const struct reader *r, const char *why)
{
    return syi_error(r->err, SY_EFORMAT, "%s: malformed msgpack at byte %zu: %s", r->what, r->at, why);
}

/* A big-endian number of n bytes. */
static int read_number(struct reader *r, int n, uint64_t *value)
{
    if (r->bytes - r->at < (size_t)n) return fail(r, "it is cut off");
    *value = 0;
    for (int i = 0; i < n; i++) *value = *value << 8 | r->pack->data[r->at++];
    return SY_OK;
}

/* *at: where the next n bytes are. */
static int take(struct reader *r, uint64_t n, size_t *at)
{
    if (n > r->bytes - r->at) return fail(r, "it is cut off");
    *at = r->at;
    r->at += (size_t)n;
    return SY_OK;
}

/* Copies the next n bytes as a text; *offset: of it in strings. */
static int read_text(struct reader *r, uint64_t n, size_t *offset)
{
    struct syi_msgpack *pack = r->pack;
    size_t at = 0;
    int status = take(r, n, &at);
    if (status) return status;
    for (size_t i = 0; i < n;) {
        int length = pack->data[at + i] ? syi_utf8_length(pack->data + at + i, (size_t)n - i) : 0;
        if (!length) return fail(r, "a string that is no text before it");
        i += (size_t)length;
    }
    status = SYI_GROW(pack->strings, pack->string_capacity, pack->string_bytes + (size_t)n + 1, r->err);
    if (status) return status;
    memcpy(pack->strings + pack->string_bytes, pack->data + at, (size_t)n);
    pack->strings[pack->string_bytes + (size_t)n] = '\0';
    *offset = pack->string_bytes;
    pack->string_bytes += (size_t)n + 1;
    return SY_OK;
}

/* What the first byte of a value says. */
struct head {
    enum syi_msgpack_kind kind;
    int length_bytes; /* of the length or number that follows */
    int is_signed;    /* of a number */
    uint64_t value;   /* length or number, where none follows */
};

static const struct {
    uint8_t kind, length_bytes, is_signed, value;
} heads[32] = {                                              /* 0xc0 ... 0xdf */
               {SYI_MSGPACK_NIL, 0, 0, 0},     {0, 0, 0, 1}, /* never used */
               {SYI_MSGPACK_FALSE, 0, 0, 0},   {SYI_MSGPACK_TRUE, 0, 0, 0},
               {SYI_MSGPACK_BINARY, 1, 0, 0},  {SYI_MSGPACK_BINARY, 2, 0, 0},
               {SYI_MSGPACK_BINARY, 4, 0, 0},  {SYI_MSGPACK_EXT, 1, 0, 0},
               {SYI_MSGPACK_EXT, 2, 0, 0},     {SYI_MSGPACK_EXT, 4, 0, 0},
               {SYI_MSGPACK_FLOAT, 4, 0, 0},   {SYI_MSGPACK_FLOAT, 8, 0, 0},
               {SYI_MSGPACK_INTEGER, 1, 0, 0}, {SYI_MSGPACK_INTEGER, 2, 0, 0},
               {SYI_MSGPACK_INTEGER, 4, 0, 0}, {SYI_MSGPACK_INTEGER, 8, 0, 0},
               {SYI_MSGPACK_INTEGER, 1, 1, 0}, {SYI_MSGPACK_INTEGER, 2, 1, 0},
               {SYI_MSGPACK_INTEGER, 4, 1, 0}, {SYI_MSGPACK_INTEGER, 8, 1, 0},
               {SYI_MSGPACK_EXT, 0, 0, 1},     {SYI_MSGPACK_EXT, 0, 0, 2},
               {SYI_MSGPACK_EXT, 0, 0, 4},     {SYI_MSGPACK_EXT, 0, 0, 8},
               {SYI_MSGPACK_EXT, 0, 0, 16},    {SYI_MSGPACK_STRING, 1, 0, 0},
               {SYI_MSGPACK_STRING, 2, 0, 0},  {SYI_MSGPACK_STRING, 4, 0, 0},
               {SYI_MSGPACK_ARRAY, 2, 0, 0},   {SYI_MSGPACK_ARRAY, 4, 0, 0},
               {SYI_MSGPACK_MAP, 2, 0, 0},     {SYI_MSGPACK_MAP, 4, 0, 0}};

enum { NEVER_USED = 0xc1 };

/* Its first byte and the length or number after it, which is left in head->value, a signed one with its sign. */
static int read_head(struct reader *r, struct head *head)
{
    uint64_t byte = 0;
    int status = read_number(r, 1, &byte);
    if (status) return status;
    if (byte < 0x80)
        *head = (struct head){SYI_MSGPACK_INTEGER, 0, 0, byte};
    else if (byte < 0x90)
        *head = (struct head){SYI_MSGPACK_MAP, 0, 0, byte & 0xf};
    else if (byte < 0xa0)
        *head = (struct head){SYI_MSGPACK_ARRAY, 0, 0, byte & 0xf};
    else if (byte < 0xc0)
        *head = (struct head){SYI_MSGPACK_STRING, 0, 0, byte & 0x1f};
    else if (byte >= 0xe0)
        *head = (struct head){SYI_MSGPACK_INTEGER, 0, 1, byte | ~UINT64_C(0xff)};
    else
        *head = (struct head){heads[byte - 0xc0].kind, heads[byte - 0xc0].length_bytes,
                              heads[byte - 0xc0].is_signed, heads[byte - 0xc0].value};
    if (byte == NEVER_USED) return fail(r, "the byte before it begins no value");
    if (!head->length_bytes) return SY_OK;
    status = read_number(r, head->length_bytes, &head->value);
    int unused_bits = 64 - 8 * head->length_bytes;
    if (head->is_signed && head->value >> (63 - unused_bits) & 1)
        head->value |= unused_bits ? ~UINT64_C(0) << (64 - unused_bits) : 0;
    return status;
}

static double float_of(const struct head *head)
{
    if (head->length_bytes == 4) {
        uint32_t bits = (uint32_t)head->value;
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    double value;
    memcpy(&value, &head->value, sizeof value);
    return value;
}

static int read_key(struct reader *r, size_t *key)
{
    struct head head = {0};
    int status = read_head(r, &head);
    if (status) return status;
    if (head.kind != SYI_MSGPACK_STRING) return fail(r, "a key that is no string before it");
    return read_text(r, head.value, key);
}

static int read_value(struct reader *r, int depth, size_t key, uint32_t *index);

/* As many values as head says, and before each its key if it is of a map. */
static int read_children(struct reader *r, int depth, const struct head *head, uint32_t parent)
{
    uint32_t last = SYI_MSGPACK_NONE;
    int is_map = head->kind == SYI_MSGPACK_MAP;
    if (depth == SYI_MSGPACK_DEPTH) return fail(r, "it is nested too deep");
    if (head->value > (r->bytes - r->at) / (is_map ? 2 : 1)) return fail(r, "it is cut off");
    for (uint64_t i = 0; i < head->value; i++) {
        size_t key = 0;
        uint32_t child = 0;
        int status = is_map ? read_key(r, &key) : SY_OK;
        if (!status) status = read_value(r, depth + 1, key, &child);
        if (status) return status;
        *(last ? &r->pack->nodes[last].next : &r->pack->nodes[parent].first) = child;
        last = child;
    }
    r->pack->nodes[parent].n_children = (uint32_t)head->value;
    return SY_OK;
}

static int read_ext(struct reader *r, uint64_t bytes, struct syi_msgpack_node *node)
{
    uint64_t type = 0;
    int status = read_number(r, 1, &type);
    node->type = (int8_t)type;
    node->bytes = (size_t)bytes;
    return status ? status : take(r, bytes, &node->at);
}

static int add_node(struct reader *r, uint32_t *index)
{
    struct syi_msgpack *pack = r->pack;
    if (pack->n_nodes == SYI_MSGPACK_NODES) return fail(r, "there are too many values");
    int status = SYI_GROW(pack->nodes, pack->capacity, pack->n_nodes + 1, r->err);
    if (!status) *index = (uint32_t)pack->n_nodes++;
    return status;
}

static int read_value(struct reader *r, int depth, size_t key, uint32_t *index)
{
    struct head head = {0};
    int status = read_head(r, &head);
    if (!status) status = add_node(r, index);
    if (status) return status;
    struct syi_msgpack_node node = {.kind = (uint8_t)head.kind, .key = key};
    switch (head.kind) {
    case SYI_MSGPACK_INTEGER:
        if (!head.is_signed && head.value > INT64_MAX) return fail(r, "a number over int64 before it");
        node.integer = (int64_t)head.value;
        node.number = (double)node.integer;
        break;
    case SYI_MSGPACK_FLOAT: node.number = float_of(&head); break;
    case SYI_MSGPACK_STRING: status = read_text(r, head.value, &node.string); break;
    case SYI_MSGPACK_BINARY:
        node.bytes = (size_t)head.value;
        status = take(r, head.value, &node.at);
        break;
    case SYI_MSGPACK_EXT: status = read_ext(r, head.value, &node); break;
    default: break;
    }
    r->pack->nodes[*index] = node;
    if (status || (head.kind != SYI_MSGPACK_ARRAY && head.kind != SYI_MSGPACK_MAP)) return status;
    return read_children(r, depth, &head, *index);
}

int syi_msgpack_parse(struct syi_msgpack *pack, const char *what, const void *data, size_t bytes,
                      struct sy_error *err)
{
    struct reader r = {.pack = pack, .what = what, .bytes = bytes, .err = err};
    uint32_t root;
    memset(pack, 0, sizeof *pack);
    pack->data = data;
    int status = SYI_GROW(pack->strings, pack->string_capacity, 1, err);
    pack->string_bytes = 1; /* offset 0: the empty string */
    if (!status) status = read_value(&r, 0, 0, &root);
    if (!status && r.at != bytes) status = fail(&r, "it goes on after its end");
    if (status) syi_msgpack_free(pack);
    return status;
}

void syi_msgpack_free(struct syi_msgpack *pack)
{
    syi_free(pack->nodes);
    syi_free(pack->strings);
    memset(pack, 0, sizeof *pack);
}

uint32_t syi_msgpack_member(const struct syi_msgpack *pack, uint32_t map, const char *key)
{
    if (pack->nodes[map].kind != SYI_MSGPACK_MAP) return SYI_MSGPACK_NONE;
    uint32_t child = pack->nodes[map].first;
    while (child && strcmp(syi_msgpack_key(pack, child), key)) child = pack->nodes[child].next;
    return child;
}

const char *syi_msgpack_string(const struct syi_msgpack *pack, uint32_t node)
{
    return pack->strings + pack->nodes[node].string;
}

const char *syi_msgpack_key(const struct syi_msgpack *pack, uint32_t node)
{
    return pack->strings + pack->nodes[node].key;
}

/* ---- writer ---- */

static void put_byte(struct syi_text *out, unsigned byte)
{
    unsigned char one = (unsigned char)byte;
    syi_text_append(out, &one, 1);
}

/* A byte, then a big-endian number of n bytes. */
static void put_sized(struct syi_text *out, unsigned byte, uint64_t value, int n)
{
    put_byte(out, byte);
    while (n--) put_byte(out, (unsigned)(value >> 8 * n & 0xff));
}

/* `one` begins a length of one byte, one + 1 one of two, one + 2 one of four. */
static void put_length(struct syi_text *out, unsigned one, uint64_t length)
{
    int size = length > 0xffff ? 2 : length > 0xff;
    put_sized(out, one + (unsigned)size, length, 1 << size);
}

void syi_msgpack_put_map(struct syi_text *out, size_t n)
{
    if (n < 16)
        put_byte(out, 0x80 | (unsigned)n);
    else
        put_sized(out, n > 0xffff ? 0xdf : 0xde, n, n > 0xffff ? 4 : 2);
}

void syi_msgpack_put_array(struct syi_text *out, size_t n)
{
    if (n < 16)
        put_byte(out, 0x90 | (unsigned)n);
    else
        put_sized(out, n > 0xffff ? 0xdd : 0xdc, n, n > 0xffff ? 4 : 2);
}

void syi_msgpack_put_string(struct syi_text *out, const char *string)
{
    size_t n = strlen(string);
    if (n < 32)
        put_byte(out, 0xa0 | (unsigned)n);
    else
        put_length(out, 0xd9, n);
    syi_text_append(out, string, n);
}

void syi_msgpack_put_integer(struct syi_text *out, int64_t value)
{
    if (value >= -32 && value < 128)
        put_byte(out, (unsigned)value & 0xff);
    else if (value < 0)
        put_sized(out, 0xd3, (uint64_t)value, 8);
    else if (value > UINT32_MAX)
        put_sized(out, 0xcf, (uint64_t)value, 8);
    else
        put_length(out, 0xcc, (uint64_t)value);
}

void syi_msgpack_put_binary(struct syi_text *out, const void *data, size_t bytes)
{
    put_length(out, 0xc4, bytes);
    syi_text_append(out, data, bytes);
}

void syi_msgpack_put_ext(struct syi_text *out, int type, const void *data, size_t bytes)
{
    static const unsigned char fixed[17] = {[1] = 0xd4, [2] = 0xd5, [4] = 0xd6, [8] = 0xd7, [16] = 0xd8};
    if (bytes < SYI_COUNT(fixed) && fixed[bytes])
        put_byte(out, fixed[bytes]);
    else
        put_length(out, 0xc7, bytes);
    put_byte(out, (unsigned)type & 0xff);
    syi_text_append(out, data, bytes);
}
