/* SPDX-License-Identifier: Apache-2.0 */
/* The msgpack reader on any bytes: what it takes is a sound tree inside the input, and written again it is the same
 * document. */
#include "config.h"

#include <string.h>

#include "fuzz.h"
#include "import/msgpack.h"

/* Writes node `at`; returns the nodes seen. Floats stand for themselves as integers. */
static size_t write_node(const struct syi_msgpack *pack, size_t size, uint32_t at, struct syi_text *out)
{
    FUZZ_REQUIRE(at < pack->n_nodes);
    const struct syi_msgpack_node *node = &pack->nodes[at];
    size_t seen = 1, children = 0;
    FUZZ_REQUIRE(node->string < pack->string_bytes && node->key < pack->string_bytes);
    FUZZ_REQUIRE(node->at <= size && node->bytes <= size - node->at);
    switch (node->kind) {
    case SYI_MSGPACK_INTEGER: syi_msgpack_put_integer(out, node->integer); return seen;
    case SYI_MSGPACK_STRING: syi_msgpack_put_string(out, syi_msgpack_string(pack, at)); return seen;
    case SYI_MSGPACK_BINARY: syi_msgpack_put_binary(out, pack->data + node->at, node->bytes); return seen;
    case SYI_MSGPACK_EXT:
        syi_msgpack_put_ext(out, node->type, pack->data + node->at, node->bytes);
        return seen;
    case SYI_MSGPACK_MAP: syi_msgpack_put_map(out, node->n_children); break;
    case SYI_MSGPACK_ARRAY: syi_msgpack_put_array(out, node->n_children); break;
    default: syi_msgpack_put_integer(out, node->kind); return seen;
    }
    for (uint32_t child = node->first; child; child = pack->nodes[child].next, children++) {
        if (node->kind == SYI_MSGPACK_MAP) {
            syi_msgpack_put_string(out, syi_msgpack_key(pack, child));
            FUZZ_REQUIRE(syi_msgpack_member(pack, at, syi_msgpack_key(pack, child)) <= child);
        }
        seen += write_node(pack, size, child, out);
    }
    FUZZ_REQUIRE(children == node->n_children);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct syi_msgpack pack, again;
    struct syi_text first = {0}, second = {0};
    struct sy_error err = {0};
    if (syi_msgpack_parse(&pack, "input", data, size, &err)) {
        FUZZ_REQUIRE(err.code == SY_EFORMAT && err.text[0]);
        return 0;
    }
    FUZZ_REQUIRE(write_node(&pack, size, 0, &first) == pack.n_nodes);
    FUZZ_REQUIRE(syi_msgpack_parse(&again, "output", first.data, first.length, &err) == SY_OK);
    FUZZ_REQUIRE(write_node(&again, first.length, 0, &second) == again.n_nodes);
    FUZZ_REQUIRE(first.length == second.length && !memcmp(first.data, second.data, first.length));
    syi_text_free(&first);
    syi_text_free(&second);
    syi_msgpack_free(&pack);
    syi_msgpack_free(&again);
    return 0;
}
