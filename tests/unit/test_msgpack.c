/* SPDX-License-Identifier: Apache-2.0 */
/* The msgpack reader on every type there is and on hostile bytes, and what the writer makes of the same values. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "import/msgpack.h"

#define BYTES(text) text, sizeof(text) - 1

static struct syi_msgpack parse(const char *bytes, size_t n)
{
    struct syi_msgpack pack;
    struct sy_error err = {0};
    cr_assert_eq(syi_msgpack_parse(&pack, "test", bytes, n, &err), SY_OK, "%s", err.text);
    return pack;
}

static void expect_refused(const char *bytes, size_t n, const char *why)
{
    struct syi_msgpack pack;
    struct sy_error err = {0};
    cr_expect_eq(syi_msgpack_parse(&pack, "test", bytes, n, &err), SY_EFORMAT, "accepted: %s", why);
    cr_expect(strncmp(err.text, "test: malformed msgpack at byte ", 32) == 0, "%s", err.text);
    cr_expect(strstr(err.text, why) != NULL, "%s: not %s", err.text, why);
    cr_expect_null(pack.nodes);
}

static void expect_integer(const char *bytes, size_t n, int64_t value)
{
    struct syi_msgpack pack = parse(bytes, n);
    cr_expect_eq(pack.nodes[0].kind, SYI_MSGPACK_INTEGER);
    cr_expect_eq(pack.nodes[0].integer, value, "%lld, not %lld", (long long)pack.nodes[0].integer,
                 (long long)value);
    syi_msgpack_free(&pack);
}

Test(msgpack, integers)
{
    expect_integer(BYTES("\x7f"), 127);
    expect_integer(BYTES("\xe0"), -32);
    expect_integer(BYTES("\xff"), -1);
    expect_integer(BYTES("\xcc\xff"), 255);
    expect_integer(BYTES("\xcd\xff\xfe"), 65534);
    expect_integer(BYTES("\xce\x00\x03\xd1\x00"), 250112);
    expect_integer(BYTES("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"), INT64_MAX);
    expect_integer(BYTES("\xd0\x80"), -128);
    expect_integer(BYTES("\xd0\x7f"), 127);
    expect_integer(BYTES("\xd1\xff\x00"), -256);
    expect_integer(BYTES("\xd2\x80\x00\x00\x00"), INT32_MIN);
    expect_integer(BYTES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), INT64_MIN);
    expect_refused(BYTES("\xcf\x80\x00\x00\x00\x00\x00\x00\x00"), "over int64");
}

Test(msgpack, other_scalars)
{
    struct syi_msgpack pack =
        parse(BYTES("\x95\xc0\xc2\xc3\xca\xbf\x80\x00\x00\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"));
    const struct syi_msgpack_node *node = &pack.nodes[pack.nodes[0].first];
    cr_assert_eq(pack.nodes[0].n_children, 5);
    cr_expect_eq(node->kind, SYI_MSGPACK_NIL);
    node = &pack.nodes[node->next];
    cr_expect_eq(node->kind, SYI_MSGPACK_FALSE);
    node = &pack.nodes[node->next];
    cr_expect_eq(node->kind, SYI_MSGPACK_TRUE);
    node = &pack.nodes[node->next];
    cr_expect(node->kind == SYI_MSGPACK_FLOAT && node->number == -1.0);
    node = &pack.nodes[node->next];
    cr_expect(node->kind == SYI_MSGPACK_FLOAT && node->number == 1.5);
    cr_expect_eq(node->next, SYI_MSGPACK_NONE);
    syi_msgpack_free(&pack);
}

Test(msgpack, maps_strings_and_bytes)
{
    static const char bytes[] = "\x84\xa1"
                                "a\x81\xd9\x02"
                                "bc\xda\x00\x01"
                                "d\xdb\x00\x00\x00\x01"
                                "e\xc4\x03"
                                "xyz\xa1"
                                "f\xc7\x02\xfe"
                                "gh\xa1"
                                "i\xde\x00\x00";
    struct syi_msgpack pack = parse(BYTES(bytes));
    uint32_t a = syi_msgpack_member(&pack, 0, "a"), e = syi_msgpack_member(&pack, 0, "e");
    uint32_t f = syi_msgpack_member(&pack, 0, "f"), i = syi_msgpack_member(&pack, 0, "i");
    cr_assert(a && e && f && i);
    cr_expect_str_eq(syi_msgpack_string(&pack, syi_msgpack_member(&pack, a, "bc")), "d");
    cr_expect(pack.nodes[e].kind == SYI_MSGPACK_BINARY && pack.nodes[e].bytes == 3);
    cr_expect_eq(memcmp(pack.data + pack.nodes[e].at, "xyz", 3), 0);
    cr_expect(pack.nodes[f].kind == SYI_MSGPACK_EXT && pack.nodes[f].type == -2 && pack.nodes[f].bytes == 2);
    cr_expect_eq(memcmp(pack.data + pack.nodes[f].at, "gh", 2), 0);
    cr_expect(pack.nodes[i].kind == SYI_MSGPACK_MAP && pack.nodes[i].n_children == 0);
    cr_expect_eq(syi_msgpack_member(&pack, 0, "z"), SYI_MSGPACK_NONE);
    cr_expect_eq(syi_msgpack_member(&pack, e, "a"), SYI_MSGPACK_NONE);
    syi_msgpack_free(&pack);
}

Test(msgpack, refuses_what_lies)
{
    expect_refused(BYTES(""), "cut off");
    expect_refused(BYTES("\xc1"), "begins no value");
    expect_refused(BYTES("\xcd\x01"), "cut off");
    expect_refused(BYTES("\xa5"
                         "abc"),
                   "cut off");
    expect_refused(BYTES("\xdb\xff\xff\xff\xff"
                         "abc"),
                   "cut off");
    expect_refused(BYTES("\xc6\xff\xff\xff\xff"
                         "abc"),
                   "cut off");
    expect_refused(BYTES("\xc9\xff\xff\xff\xff\x01"
                         "abc"),
                   "cut off");
    expect_refused(BYTES("\xdd\xff\xff\xff\xff\x01"), "cut off");
    expect_refused(BYTES("\xdf\xff\xff\xff\xff\xa1"
                         "a\x01"),
                   "cut off");
    expect_refused(BYTES("\x81\x01\x02"), "a key that is no string");
    expect_refused(BYTES("\xa1\x00"), "no text");
    expect_refused(BYTES("\xa1\xff"), "no text");
    expect_refused(BYTES("\x01\x01"), "goes on after its end");
}

Test(msgpack, depth_is_bounded)
{
    char bytes[100];
    memset(bytes, '\x91', sizeof bytes);
    expect_refused(bytes, sizeof bytes, "nested too deep");
    bytes[SYI_MSGPACK_DEPTH] = '\x01';
    struct syi_msgpack pack = parse(bytes, SYI_MSGPACK_DEPTH + 1);
    cr_expect_eq(pack.n_nodes, SYI_MSGPACK_DEPTH + 1);
    syi_msgpack_free(&pack);
}

static void expect_bytes(struct syi_text *text, const char *bytes, size_t n)
{
    cr_expect(text->length == n && !memcmp(text->data, bytes, n), "other bytes");
    syi_text_free(text);
}

Test(msgpack, writes_the_shortest_form)
{
    struct syi_text text = {0};
    syi_msgpack_put_map(&text, 1);
    syi_msgpack_put_string(&text, "ab");
    syi_msgpack_put_array(&text, 4);
    syi_msgpack_put_integer(&text, 127);
    syi_msgpack_put_integer(&text, -32);
    syi_msgpack_put_integer(&text, 250112);
    syi_msgpack_put_binary(&text, "xyz", 3);
    expect_bytes(&text, BYTES("\x81\xa2"
                              "ab\x94\x7f\xe0\xce\x00\x03\xd1\x00\xc4\x03xyz"));
    syi_msgpack_put_map(&text, 17);
    syi_msgpack_put_array(&text, 70000);
    expect_bytes(&text, BYTES("\xde\x00\x11\xdd\x00\x01\x11\x70"));
    syi_msgpack_put_ext(&text, 1, "abcd", 4);
    syi_msgpack_put_ext(&text, 1, "abc", 3);
    expect_bytes(&text, BYTES("\xd6\x01"
                              "abcd\xc7\x03\x01"
                              "abc"));
}

Test(msgpack, what_is_written_is_read)
{
    static const int64_t values[] = {0,     127,        128,       255, 256, 65535,
                                     65536, UINT32_MAX, INT64_MAX, -1,  -33, INT64_MIN};
    char name[400];
    for (size_t n = 31; n < sizeof name; n += 113) {
        struct syi_text text = {0};
        memset(name, 'n', sizeof name);
        name[n] = '\0';
        syi_msgpack_put_map(&text, 1);
        syi_msgpack_put_string(&text, name);
        syi_msgpack_put_array(&text, SYI_COUNT(values));
        for (size_t i = 0; i < SYI_COUNT(values); i++) syi_msgpack_put_integer(&text, values[i]);
        struct syi_msgpack pack = parse(text.data, text.length);
        uint32_t at = pack.nodes[syi_msgpack_member(&pack, 0, name)].first;
        for (size_t i = 0; i < SYI_COUNT(values); i++, at = pack.nodes[at].next)
            cr_expect_eq(pack.nodes[at].integer, values[i], "%zu", i);
        syi_msgpack_free(&pack);
        syi_text_free(&text);
    }
}
