/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: what they take, what they make of a record's fields, and how many examples a record gives. */
#include "config.h"

#include "data/template.h"
#include "data_support.h"

/* Fields of a line of JSON. */
static struct syi_fields fields_of(const char *line)
{
    struct syi_fields fields = {0};
    struct sy_error err = {0};
    cr_assert(syi_record_jsonl.parse((struct syi_span){line, strlen(line)}, &fields, &err) == SY_OK, "%s",
              err.text);
    return fields;
}

static void expect_filled(const char *template_text, const char *line, size_t k, const char *want)
{
    struct syi_fields fields = fields_of(line);
    struct syi_template form;
    struct syi_text out = {0};
    struct sy_error err = {0};
    size_t n;
    cr_assert(syi_template_parse(&form, template_text, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_template_count(&form, &fields, &n, &err) == SY_OK, "%s", err.text);
    cr_assert(k < n, "%s: %zu examples", template_text, n);
    syi_template_fill(&form, &fields, k, &out);
    cr_assert_str_eq(out.data ? out.data : "", want);
    syi_text_free(&out);
    syi_fields_free(&fields);
}

Test(data_template, fills)
{
    static const char line[] = "{\"input\": \"ein Haus\", \"id\": 7.50, \"\\u00e9 \": \"x\"}";
    expect_filled("translate German to English: {input}", line, 0, "translate German to English: ein Haus");
    expect_filled("{input} = {input}", line, 0, "ein Haus = ein Haus");
    expect_filled("{{{input}}} {{input}}", line, 0, "{ein Haus} {input}");
    expect_filled("}}{{{{{id}", line, 0, "}{{7.50");
    expect_filled("{id}{input}}}", line, 0, "7.50ein Haus}");
    expect_filled("{\xc3\xa9 }", line, 0, "x");
}

/* The bytes of a text are kept whatever they are. */
Test(data_template, any_bytes)
{
    struct syi_record_field field = {{"input", 5}, {"{\0\xff}", 4}, 1};
    struct syi_fields fields = {.field = &field, .n = 1};
    struct syi_template form;
    struct syi_text out = {0};
    cr_assert(syi_template_parse(&form, "<{input}>", NULL) == SY_OK);
    syi_template_fill(&form, &fields, 0, &out);
    cr_assert(out.length == 6 && !memcmp(out.data, "<{\0\xff}>", 6));
    syi_text_free(&out);
}

Test(data_template, refuses)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "no field"},
        {"{{input}}", "no field"},
        {"a}", "byte 2: this brace closes nothing"},
        {"{input}}", "byte 8: this brace closes nothing"},
        {"{", "byte 1: this brace is not closed"},
        {"ab{input", "byte 3: this brace is not closed"},
        {"{in{put}", "byte 1: this brace is not closed"},
        {"{}", "byte 1: a name is missing"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct sy_error err = {0};
        struct syi_template form;
        cr_assert(syi_template_parse(&form, cases[i].text, &err) == SY_EINVAL, "%s", cases[i].text);
        cr_assert(strstr(err.text, cases[i].why), "%s: %s", cases[i].text, err.text);
    }
}

Test(data_template, as_many_parts_as_there_is_room_for)
{
    char text[4 * SYI_TEMPLATE_PARTS + 4] = "";
    struct syi_template form;
    for (int i = 0; i < SYI_TEMPLATE_PARTS; i++) strcat(text, "{a}");
    cr_assert(syi_template_parse(&form, text, NULL) == SY_OK && form.n == SYI_TEMPLATE_PARTS);
    strcat(text, ".");
    cr_assert(syi_template_parse(&form, text, NULL) == SY_EINVAL);
}

Test(data_template, lists_give_several_examples)
{
    static const char line[] = "{\"q\": \"who?\", \"a\": [\"I\", 2, true], \"b\": [\"x\", \"y\", \"z\"]}";
    expect_filled("{q} {a}", line, 0, "who? I");
    expect_filled("{q} {a}", line, 1, "who? 2");
    expect_filled("{b}{q}{a}", line, 2, "zwho?true");
}

/* Time goes with the number of texts, not with its square. */
Test(data_template, long_lists, .timeout = 10)
{
    enum { TEXTS = 200000 };
    struct syi_text line = {0}, out = {0};
    struct syi_template form;
    for (const char *list = "{\"a\":[0"; list; list = *list == '{' ? "],\"b\":[0" : NULL) {
        syi_text_puts(&line, list);
        for (int i = 1; i < TEXTS; i++) syi_text_printf(&line, ",%d", i);
    }
    syi_text_puts(&line, "]}");
    struct syi_fields fields = fields_of(line.data);
    cr_assert(syi_template_parse(&form, "{b}", NULL) == SY_OK);
    for (size_t k = 0; k < TEXTS; k++) {
        out.length = 0;
        syi_template_fill(&form, &fields, k, &out);
    }
    cr_assert_str_eq(out.data, "199999");
    syi_text_free(&line);
    syi_text_free(&out);
    syi_fields_free(&fields);
}

Test(data_template, records_without_the_fields)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"{\"a\": \"x\"}", "no field b; there is only a"},
        {"{}", "there is none"},
        {"{\"a\": null, \"b\": [], \"c\": 1}", "there is only c"},
        {"{\"a\": {\"b\": 1}, \"b\": 1}", "field a is no text"},
        {"{\"a\": [\"x\", []], \"b\": 1}", "field a is no text"},
        {"{\"a\": [1, null, 3], \"b\": [1, 2, null]}", "field a is no text"},
        {"{\"a\": [1, 2], \"b\": [1, 2, 3]}", "2 of field a, but 3 of field b"},
    };
    struct syi_template form;
    cr_assert(syi_template_parse(&form, "{a} {b}", NULL) == SY_OK);
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_fields fields = fields_of(cases[i].line);
        struct sy_error err = {0};
        size_t n;
        cr_assert(syi_template_count(&form, &fields, &n, &err) == SY_EFORMAT, "%s", cases[i].line);
        cr_assert(strstr(err.text, cases[i].why), "%s: %s", cases[i].line, err.text);
        syi_fields_free(&fields);
    }
}

/* What nobody asks for may be anything; a message of many names is no longer than a message is. */
Test(data_template, records_with_much_else)
{
    struct syi_text line = {0};
    struct sy_error err = {0};
    struct syi_template form;
    size_t n;
    expect_filled("{a}", "{\"meta\": {\"x\": [1]}, \"a\": \"1\"}", 0, "1");
    struct syi_fields twice = fields_of("{\"a\": \"first\", \"b\": 1, \"b\": 2, \"a\": \"second\"}");
    cr_assert(syi_template_parse(&form, "{a}", NULL) == SY_OK);
    cr_assert(syi_template_count(&form, &twice, &n, &err) == SY_EFORMAT);
    cr_assert(strstr(err.text, "field a is there twice"), "%s", err.text);
    err = (struct sy_error){0};
    syi_fields_free(&twice);
    expect_filled("{c}", "{\"a\": \"first\", \"c\": 1, \"a\": \"second\"}", 0, "1");
    syi_text_puts(&line, "{");
    for (int i = 0; i < 100; i++) syi_text_printf(&line, "\"%0100d\": 1%s", i, i < 99 ? "," : "}");
    struct syi_fields fields = fields_of(line.data);
    cr_assert(syi_template_parse(&form, "{a}", NULL) == SY_OK);
    cr_assert(syi_template_count(&form, &fields, &n, &err) == SY_EFORMAT);
    cr_assert(strstr(err.text, "000, ..."), "%s", err.text);
    syi_fields_free(&fields);
    syi_text_free(&line);
}
