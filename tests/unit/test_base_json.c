/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader on good and hostile text, the writer, and both together. */
#include "config.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/json.h"

static struct syi_json parse(const char *text)
{
    struct syi_json json;
    struct sy_error err = {0};
    cr_assert_eq(syi_json_parse(&json, "test", text, strlen(text), &err), SY_OK, "%s", err.text);
    return json;
}

static void expect_refused(const char *text, size_t bytes)
{
    struct syi_json json;
    struct sy_error err = {0};
    cr_expect_eq(syi_json_parse(&json, "test", text, bytes, &err), SY_EFORMAT, "accepted: %s", text);
    cr_expect(strncmp(err.text, "test: malformed JSON at byte ", 29) == 0, "%s", err.text);
    cr_expect_null(json.nodes);
}

Test(json, reads_a_document)
{
    struct syi_json json =
        parse(" {\"a\": [1, -2.5e1, true, false, null], \"b\": {\"c\": \"x\\ty\"}, \"e\": {}} ");
    uint32_t a = syi_json_member(&json, 0, "a"), b = syi_json_member(&json, 0, "b");
    cr_assert_eq(json.nodes[0].n_children, 3);
    cr_assert_eq(json.nodes[a].n_children, 5);
    const struct syi_json_node *one = &json.nodes[json.nodes[a].first], *two = &json.nodes[one->next];
    cr_assert(one->is_integer && one->integer == 1 && one->number == 1.0);
    cr_assert(!two->is_integer && two->number == -25.0);
    cr_assert_str_eq(syi_json_string(&json, syi_json_member(&json, b, "c")), "x\ty");
    cr_assert_eq(syi_json_member(&json, 0, "none"), SYI_JSON_NONE);
    cr_assert_eq(syi_json_member(&json, a, "c"), SYI_JSON_NONE);
    syi_json_free(&json);
}

Test(json, unescapes)
{
    struct syi_json json = parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u20AC\\ud83d\\ude00\xc3\xa9\"");
    cr_assert_str_eq(syi_json_string(&json, 0), "\"\\/\b\f\n\r\tA\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9");
    syi_json_free(&json);
}

Test(json, integers_at_the_edge)
{
    struct syi_json json = parse("[9223372036854775807, -9223372036854775808, 9223372036854775808, 1.0, -0]");
    const struct syi_json_node *node = &json.nodes[json.nodes[0].first];
    cr_assert(node->is_integer && node->integer == INT64_MAX);
    node = &json.nodes[node->next];
    cr_assert(node->is_integer && node->integer == INT64_MIN);
    node = &json.nodes[node->next];
    cr_assert(!node->is_integer && node->number == 9223372036854775808.0);
    node = &json.nodes[node->next];
    cr_assert(!node->is_integer && node->number == 1.0);
    node = &json.nodes[node->next];
    cr_assert(node->is_integer && node->integer == 0 && signbit(node->number));
    syi_json_free(&json);
    json = parse("[1e400, -1e400]");
    node = &json.nodes[json.nodes[0].first];
    cr_assert(!node->is_integer && node->number == INFINITY);
    cr_assert(json.nodes[node->next].number == -INFINITY);
    syi_json_free(&json);
}

Test(json, refuses_what_is_not_json)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "[",
                                        "\"",
                                        "{\"a\"",
                                        "{\"a\":",
                                        "{\"a\":1",
                                        "{\"a\":1,}",
                                        "[1,]",
                                        "[1 2]",
                                        "{a:1}",
                                        "{1:2}",
                                        "nul",
                                        "tru",
                                        "True",
                                        "01",
                                        "-",
                                        "+1",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "1e+",
                                        "0x1",
                                        "NaN",
                                        "Infinity",
                                        "1 2",
                                        "[]]",
                                        "'a'",
                                        "\"\\x\"",
                                        "\"\\u12\"",
                                        "\"\\u12g4\"",
                                        "\"\\ud800\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\\udc00\"",
                                        "\"a\nb\"",
                                        "\"\x80\"",
                                        "\"\xc0\xaf\"",
                                        "\"\xed\xa0\x80\"",
                                        "// x\n1",
                                        "\"\\",
                                        "\"\\u",
                                        "[1,,2]",
                                        "{\"a\" 1}"};
    for (size_t i = 0; i < SYI_COUNT(texts); i++) expect_refused(texts[i], strlen(texts[i]));
    expect_refused("1\0", 2);
    expect_refused("\"a\0b\"", 5);
    expect_refused("\0", 1);
}

Test(json, limits_depth)
{
    char text[2 * 65 + 1] = {0};
    struct syi_json json;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    json = parse(text);
    cr_assert_eq(json.n_nodes, 64);
    syi_json_free(&json);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    expect_refused(text, 130);
}

/* Every prefix of a document, and every document with one byte changed, ends in a tree or an error, never in
 * a crash. */
Test(json, survives_damage)
{
    static const char good[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"x\":[1e5,true,null,\"\\u20ac\xc3\xa9\"]}}";
    char text[sizeof(good)];
    struct syi_json json;
    for (size_t n = 0; n + 1 < sizeof(good); n++) expect_refused(good, n);
    for (size_t i = 0; i + 1 < sizeof(good); i++)
        for (int c = 0; c < 256; c++) {
            memcpy(text, good, sizeof(good));
            text[i] = (char)c;
            if (syi_json_parse(&json, "test", text, sizeof(good) - 1, NULL) == SY_OK) syi_json_free(&json);
        }
}

Test(json, writes_and_reads_back)
{
    struct syi_text out = {0};
    struct syi_json_writer writer;
    syi_json_begin(&writer, &out);
    syi_json_open(&writer, '{');
    syi_json_put_key(&writer, "a\"\\\n\x01");
    syi_json_open(&writer, '[');
    syi_json_put_integer(&writer, INT64_MIN);
    syi_json_put_double(&writer, 0.1);
    syi_json_put_float(&writer, 0.1f);
    syi_json_put_double(&writer, NAN);
    syi_json_put_bool(&writer, 1);
    syi_json_put_null(&writer);
    syi_json_open(&writer, '[');
    syi_json_close(&writer, ']');
    syi_json_close(&writer, ']');
    syi_json_put_key(&writer, "b");
    syi_json_put_string(&writer, "\xff\xe2\x82\xac/");
    syi_json_close(&writer, '}');
    cr_assert_eq(syi_text_status(&out, NULL), SY_OK);
    cr_assert_str_eq(out.data, "{\"a\\\"\\\\\\n\\u0001\":[-9223372036854775808,0.1,0.1,\"nan\",true,null,[]],"
                               "\"b\":\"\xef\xbf\xbd\xe2\x82\xac/\"}");
    struct syi_json json = parse(out.data);
    cr_assert_str_eq(syi_json_key(&json, json.nodes[0].first), "a\"\\\n\x01");
    syi_json_free(&json);
    syi_text_free(&out);
}
