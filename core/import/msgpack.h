/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack: a strict reader that turns a whole document into an array of nodes, as json.h does, and a writer that appends
 * to a struct syi_text. Maps have strings as keys. Used for the index of T5X's checkpoints, and for the arrays in it. */
#ifndef SYI_MSGPACK_H
#define SYI_MSGPACK_H

#include "base/text.h"

enum syi_msgpack_kind {
    SYI_MSGPACK_NIL,
    SYI_MSGPACK_FALSE,
    SYI_MSGPACK_TRUE,
    SYI_MSGPACK_INTEGER,
    SYI_MSGPACK_FLOAT,
    SYI_MSGPACK_STRING,
    SYI_MSGPACK_BINARY,
    SYI_MSGPACK_ARRAY,
    SYI_MSGPACK_MAP,
    SYI_MSGPACK_EXT
};

/* Deepest nesting; most values of a document; index "no node" (node 0 is the root). */
enum { SYI_MSGPACK_DEPTH = 64, SYI_MSGPACK_NODES = 1 << 24, SYI_MSGPACK_NONE = 0 };

/* One value. Children of an array or map are chained: first, then next of each. */
struct syi_msgpack_node {
    uint8_t kind;        /* enum syi_msgpack_kind */
    int8_t type;         /* of an EXT */
    uint32_t next;       /* next sibling, or SYI_MSGPACK_NONE */
    uint32_t first;      /* first child, or SYI_MSGPACK_NONE */
    uint32_t n_children; /* of an array or map */
    size_t key;          /* offset of the member's name in strings; 0 (an empty string) outside maps */
    size_t string;       /* offset of a string's text in strings */
    size_t at, bytes;    /* of a BINARY or EXT: its bytes in the document */
    int64_t integer;     /* of an INTEGER */
    double number;       /* of an INTEGER or FLOAT */
};

struct syi_msgpack {
    const unsigned char *data;      /* the document, borrowed */
    struct syi_msgpack_node *nodes; /* node 0 is the root */
    size_t n_nodes, capacity;       /* nodes used, nodes allocated */
    char *strings;                  /* all names and strings, each NUL-terminated */
    size_t string_bytes, string_capacity;
};

/* Parses a whole document, which stays with the caller and must outlive pack; `what` (a file name) opens the message of
 * an error, which gives the byte offset. Refuses, with SY_EFORMAT, what is cut off or goes on after its end, keys that are
 * no strings, strings that are no UTF-8 or hold a NUL, numbers over int64, and nesting or values over the limits above. On
 * success the caller owns pack: syi_msgpack_free. */
int syi_msgpack_parse(struct syi_msgpack *pack, const char *what, const void *data, size_t bytes,
                      struct sy_error *err) SYI_MUST_CHECK;
void syi_msgpack_free(struct syi_msgpack *pack);

/* Index of the member of a map (the first of that name), SYI_MSGPACK_NONE when absent or `map` is no map. */
uint32_t syi_msgpack_member(const struct syi_msgpack *pack, uint32_t map, const char *key);
/* Text of a string node, of a member's name; borrowed from pack. */
const char *syi_msgpack_string(const struct syi_msgpack *pack, uint32_t node);
const char *syi_msgpack_key(const struct syi_msgpack *pack, uint32_t node);

/* The writer: a map or array is followed by as many keys with values, or values, as it was given. Each takes the
 * shortest form there is; sizes are under 4 GiB. */
void syi_msgpack_put_map(struct syi_text *out, size_t n);
void syi_msgpack_put_array(struct syi_text *out, size_t n);
void syi_msgpack_put_string(struct syi_text *out, const char *string); /* a key, too */
void syi_msgpack_put_integer(struct syi_text *out, int64_t value);
void syi_msgpack_put_binary(struct syi_text *out, const void *data, size_t bytes);
void syi_msgpack_put_ext(struct syi_text *out, int type, const void *data, size_t bytes);

#endif
