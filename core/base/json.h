/* SPDX-License-Identifier: Apache-2.0 */
/* JSON (RFC 8259): a strict reader that turns a whole document into an array of nodes, and a writer that
 * appends to a struct syi_text. Used for safetensors headers, meta.json and --json output. */
#ifndef SYI_JSON_H
#define SYI_JSON_H

#include "base/text.h"

enum syi_json_kind {
    SYI_JSON_NULL,
    SYI_JSON_FALSE,
    SYI_JSON_TRUE,
    SYI_JSON_NUMBER,
    SYI_JSON_STRING,
    SYI_JSON_ARRAY,
    SYI_JSON_OBJECT
};

enum { SYI_JSON_DEPTH = 64, SYI_JSON_NONE = 0 }; /* deepest nesting; index "no node" (node 0 is the root) */

/* One value. Children of an array or object are chained: first, then next of each. */
struct syi_json_node {
    uint8_t kind;        /* enum syi_json_kind */
    uint8_t is_integer;  /* a number without point or exponent that fits int64 */
    uint32_t next;       /* next sibling, or SYI_JSON_NONE */
    uint32_t first;      /* first child, or SYI_JSON_NONE */
    uint32_t n_children; /* of an array or object */
    uint32_t key;        /* offset of the member's name in strings; 0 (an empty string) outside objects */
    uint32_t string; /* offset in strings of a string's text, or of a number's as it stands in the document */
    int64_t integer; /* value where is_integer, else 0 */
    double number;   /* value of any number; infinite where it is too large for a double, as 1e400 */
};

struct syi_json {
    struct syi_json_node *nodes; /* node 0 is the root */
    size_t n_nodes, capacity;    /* nodes used, nodes allocated */
    char *strings;               /* all names and strings, unescaped, each NUL-terminated */
    size_t string_bytes;         /* used */
};

/* Parses a whole document; `what` (a file name) opens the message of an error, which gives the byte offset.
 * Refuses what RFC 8259 does not allow, malformed UTF-8, nesting
 * over SYI_JSON_DEPTH and documents of 2 GiB; \u0000 becomes the bytes c0 80. On success the caller owns
 * json: syi_json_free. */
int syi_json_parse(struct syi_json *json, const char *what, const char *text, size_t bytes,
                   struct sy_error *err) SYI_MUST_CHECK;
void syi_json_free(struct syi_json *json);

/* Index of the member of an object (the first of that name), SYI_JSON_NONE when absent or `object` is no
 * object. */
uint32_t syi_json_member(const struct syi_json *json, uint32_t object, const char *key);
/* Text of a string or number node, of a member's name; borrowed from json. */
const char *syi_json_string(const struct syi_json *json, uint32_t node);
const char *syi_json_key(const struct syi_json *json, uint32_t node);

/* The writer puts commas and colons; the caller balances open and close and writes each member's key. */
struct syi_json_writer {
    struct syi_text *out;               /* borrowed */
    int depth;                          /* open arrays and objects */
    uint8_t filled[SYI_JSON_DEPTH + 1]; /* whether a value stands at this depth already */
    uint8_t after_key;                  /* the next value belongs to a key just written */
};
void syi_json_begin(struct syi_json_writer *writer, struct syi_text *out);
void syi_json_open(struct syi_json_writer *writer, char bracket);  /* '{' or '[' */
void syi_json_close(struct syi_json_writer *writer, char bracket); /* '}' or ']' */
void syi_json_put_key(struct syi_json_writer *writer, const char *key);
void syi_json_put_string(struct syi_json_writer *writer,
                         const char *string); /* malformed bytes become U+FFFD */
void syi_json_put_integer(struct syi_json_writer *writer, int64_t value);
void syi_json_put_double(struct syi_json_writer *writer,
                         double value); /* not finite: the string nan, inf, -inf */
void syi_json_put_float(struct syi_json_writer *writer, float value);
void syi_json_put_bool(struct syi_json_writer *writer, int value);
void syi_json_put_null(struct syi_json_writer *writer);
/* A member: its key, then its value. */
void syi_json_put_key_string(struct syi_json_writer *writer, const char *key, const char *value);
void syi_json_put_key_integer(struct syi_json_writer *writer, const char *key, int64_t value);
void syi_json_put_key_double(struct syi_json_writer *writer, const char *key, double value);

#endif
