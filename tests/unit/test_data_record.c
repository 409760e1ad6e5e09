/* SPDX-License-Identifier: Apache-2.0 */
/* Records of files: the same ones however a file is read, and the same one at its offset; what each format takes. */
#include "config.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/run_config.h"
#include "base/text.h"
#include "data/record.h"
#include "data_support.h"

/* Records as lines `offset line [text]`, the first bad one, the status and the message that ended them, and the identity of
 * the file. */
struct seen {
    struct syi_text text;
    const char *bad; /* NULL: none */
    int bad_line;
    struct syi_file_id id;
    size_t n;
    char line_end;
    int status;
    struct sy_error err;
};

static struct seen scan_file(const char *path, int format, size_t piece)
{
    struct seen seen = {0};
    struct syi_scan scan;
    struct syi_record record;
    seen.status = syi_scan_open(&scan, path, syi_record_format(format), &seen.err);
    if (piece) scan.piece = piece;
    while (!seen.status && !(seen.status = syi_scan_next(&scan, &record, &seen.err))) {
        syi_text_printf(&seen.text, "%d %d [", (int)record.offset, (int)record.line);
        syi_text_append(&seen.text, record.text.text, record.text.bytes);
        syi_text_puts(&seen.text, "]\n");
        seen.n++;
        if (!record.bad || seen.bad) continue;
        seen.bad = record.bad;
        seen.bad_line = (int)record.line;
    }
    if (seen.status == SY_ENOENT) cr_assert(syi_scan_next(&scan, &record, &seen.err) == SY_ENOENT);
    seen.id = scan.id;
    seen.line_end = scan.line_end;
    syi_scan_close(&scan);
    return seen;
}

static struct seen scan_text(const char *text, size_t bytes, int format, size_t piece)
{
    const char *path = write_fresh("records", text, bytes);
    struct seen seen = scan_file(path, format, piece);
    remove_path(path);
    return seen;
}

static void expect_records(int format, const char *text, size_t bytes, const char *want)
{
    struct seen seen = scan_text(text, bytes, format, 0);
    cr_assert(seen.status == SY_ENOENT && !seen.err.text[0], "%s", seen.err.text);
    cr_assert_str_eq(seen.text.data ? seen.text.data : "", want);
    syi_text_free(&seen.text);
}
#define EXPECT(format, text, want) expect_records(format, text, sizeof(text) - 1, want)

Test(data_record, lines)
{
    EXPECT(SYI_FORMAT_TSV, "a\tb\nc\td\n", "0 1 [a\tb]\n4 2 [c\td]\n");
    EXPECT(SYI_FORMAT_TSV, "a\tb\r\nc\td", "0 1 [a\tb]\n5 2 [c\td]\n");
    EXPECT(SYI_FORMAT_TSV, "a\tb\r\nc\td\r", "0 1 [a\tb]\n5 2 [c\td]\n");
    EXPECT(SYI_FORMAT_TSV, "a\tb\rc\td\r", "0 1 [a\tb]\n4 2 [c\td]\n");
    EXPECT(SYI_FORMAT_TSV,
           "\xef\xbb\xbf"
           "a\tb\rc\td",
           "3 1 [a\tb]\n7 2 [c\td]\n");
    EXPECT(SYI_FORMAT_TSV, "a\n\n\nb", "0 1 [a]\n2 2 []\n3 3 []\n4 4 [b]\n");
    EXPECT(SYI_FORMAT_JSONL, "\n\r\n{}\n\n[]\n\n", "3 3 [{}]\n7 5 [[]]\n");
    EXPECT(SYI_FORMAT_JSONL, "\r\r{}\r\r[]", "2 3 [{}]\n6 5 [[]]\n");
    EXPECT(SYI_FORMAT_TEXT, "one  line\n \n\nother\n", "0 1 [one  line]\n10 2 [ ]\n13 4 [other]\n");
    EXPECT(SYI_FORMAT_TEXT, "a\n\r", "0 1 [a]\n");
}

Test(data_record, documents)
{
    EXPECT(SYI_FORMAT_DOCUMENTS, "a\nb\n\nc\n", "0 1 [a\nb]\n5 4 [c]\n");
    EXPECT(SYI_FORMAT_DOCUMENTS, "\n\na\n\n\n\nb", "2 3 [a]\n7 7 [b]\n");
    EXPECT(SYI_FORMAT_DOCUMENTS, "a\r\nb\r\n\r\nc\r\n\r\n", "0 1 [a\r\nb]\n8 4 [c]\n");
    EXPECT(SYI_FORMAT_DOCUMENTS, "a\rb\r\rc\r", "0 1 [a\rb]\n5 4 [c]\n");
    EXPECT(SYI_FORMAT_DOCUMENTS,
           "\xef\xbb\xbf"
           "a\n \nb\n\r",
           "3 1 [a\n \nb]\n");
}

Test(data_record, files_without_records)
{
    static const char *const texts[] = {"", "\xef\xbb\xbf", "\n", "\r", "\r\n\r\n", "\xef\xbb\xbf\n\r"};
    for (size_t i = 0; i < SYI_COUNT(texts); i++)
        for (int format = SYI_FORMAT_TSV; format <= SYI_FORMAT_DOCUMENTS; format++)
            if (i < 2 || format != SYI_FORMAT_TSV) expect_records(format, texts[i], strlen(texts[i]), "");
}

/* A mark is one only at the beginning, and only when it is whole. */
Test(data_record, what_is_no_mark)
{
    EXPECT(SYI_FORMAT_TEXT, "\xef\xbb", "0 1 [\xef\xbb]\n");
    EXPECT(SYI_FORMAT_TEXT, "\xef\xbb\nb", "0 1 [\xef\xbb]\n3 2 [b]\n");
    EXPECT(SYI_FORMAT_TEXT, "\xef\xbb\xbf\xef\xbb\xbf", "3 1 [\xef\xbb\xbf]\n");
    EXPECT(SYI_FORMAT_TEXT, "\n\xef\xbb\xbf", "1 2 [\xef\xbb\xbf]\n");
}

/* ---- properties, over files of odd pieces ---- */

/* File `number`: its beginning decides on which line ends; what is in it meets each limit. */
static struct syi_text odd_file(unsigned number)
{
    static const char *const pieces[] = {"\n",         "\n",       "\n\n",         "\r\n", "\r",
                                         "\r\n\r\n",   "a",        "b c",          "\t",   " ",
                                         "{\"a\": 1}", "\xc3\xa9", "\xe2\x82\xac", "\xff", "\xef\xbb\xbf"};
    struct syi_text text = {0};
    uint32_t state = number * 2654435761u + 1;
    size_t n = number % 40;
    int only_cr = number % 5 == 0;
    if (number % 3 == 0) syi_text_puts(&text, "\xef\xbb\xbf");
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        unsigned what = state >> 24;
        if (what < 8) { /* as long as a document may be, and a little less or more */
            size_t length = SYI_DOCUMENT_BYTES - 3 + what;
            const char *fill = what & 1 ? "\xc3\xa9\xe2\x82\xac" : "word ";
            for (size_t k = 0; k < length; k++) syi_text_append(&text, fill + k % 5, 1);
        } else {
            syi_text_puts(&text, pieces[what % SYI_COUNT(pieces)]);
        }
        if (what % 7 == 0) syi_text_append(&text, "\0", 1);
    }
    for (size_t i = 0; only_cr && i < text.length; i++)
        if (text.data[i] == '\n') text.data[i] = '\r';
    /* with line feeds there, one elsewhere is refused */
    for (size_t i = 0; text.length && memchr(text.data, '\n', text.length) && i + 1 < text.length; i++)
        if (text.data[i] == '\r' && text.data[i + 1] != '\n') text.data[i] = 'r';
    return text;
}

Test(data_record, any_pieces_give_the_same_records)
{
    static const size_t pieces[] = {1, 2, 3, 7, 4096, SYI_DOCUMENT_BYTES + 1};
    for (unsigned number = 0; number < 60; number++) {
        struct syi_text text = odd_file(number);
        const char *path = write_fresh("odd", text.data ? text.data : "", text.length);
        struct syi_file_id id = syi_file_identify(text.data ? text.data : "", text.length);
        for (int format = SYI_FORMAT_TSV; format <= SYI_FORMAT_DOCUMENTS; format++) {
            struct seen whole = scan_file(path, format, 0);
            cr_assert(whole.status == SY_ENOENT);
            cr_assert(whole.id.bytes == id.bytes && whole.id.lines == id.lines &&
                      !strcmp(whole.id.sha256, id.sha256));
            for (size_t i = text.length < 20000 ? 0 : 3; i < SYI_COUNT(pieces); i++) {
                struct seen seen = scan_file(path, format, pieces[i]);
                cr_assert(
                    seen.n == whole.n && seen.text.length == whole.text.length &&
                        (!seen.text.length || !memcmp(seen.text.data, whole.text.data, seen.text.length)),
                    "file %u as %s in pieces of %zu", number, syi_record_format(format)->name, pieces[i]);
                cr_assert(!strcmp(seen.id.sha256, id.sha256) && seen.id.lines == id.lines);
                syi_text_free(&seen.text);
            }
            syi_text_free(&whole.text);
        }
        remove_path(path);
        syi_text_free(&text);
    }
}

/* Line ends and nothing else lie between the records; each is read again at its offset; none of running text is over the
 * limit or cut inside a character where the text is UTF-8. */
static void check_records(const char *path, const struct syi_text *file,
                          const struct syi_record_format *format)
{
    struct syi_scan scan;
    struct syi_record record;
    char *buffer = NULL;
    size_t capacity = 0, from = syi_utf8_mark(file->data ? file->data : "", file->length);
    int64_t line = 1;
    cr_assert(syi_scan_open(&scan, path, format, NULL) == SY_OK);
    int fd = open(path, O_RDONLY);
    while (!syi_scan_next(&scan, &record, NULL)) {
        struct syi_span again;
        size_t at = (size_t)record.offset;
        cr_assert(at >= from && at + record.text.bytes <= file->length);
        for (; from < at; from++) {
            cr_assert(file->data[from] == '\n' || file->data[from] == '\r');
            line += file->data[from] == scan.line_end;
        }
        cr_assert(record.line == line, "line %d, not %d", (int)record.line, (int)line);
        cr_assert(!record.text.bytes || !memcmp(record.text.text, file->data + at, record.text.bytes));
        cr_assert(syi_record_read(fd, path, format, scan.line_end, record.offset, &buffer, &capacity, &again,
                                  NULL) == SY_OK);
        cr_assert(again.bytes == record.text.bytes && !memcmp(again.text, record.text.text, again.bytes));
        if (format->runs_on) cr_assert(record.text.bytes > 0 && record.text.bytes <= SYI_DOCUMENT_BYTES);
        for (from = at; from < at + record.text.bytes; from++) line += file->data[from] == scan.line_end;
    }
    for (; from < file->length; from++) cr_assert(file->data[from] == '\n' || file->data[from] == '\r');
    close(fd);
    syi_free(buffer);
    syi_scan_close(&scan);
}

/* Its lines would be taken for one: by a program that ends all of them in CR and the last in LF, or in a mixed file. */
Test(data_record, a_carriage_return_within_a_line_is_refused)
{
    static const struct {
        const char *text;
        int line;
    } cases[] = {{"a\tb\rc\td\re\tf\n", 1}, {"a\tb\r\nc\td\re\tf\n", 2},
                 {"a\tb\nc\td\r\r\n", 2},   {"a\tb\nc\td\re\tf", 2},
                 {"\ra\tb\n", 1},           {"a\tb\n\nc\rd\n", 3}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++)
        for (int format = SYI_FORMAT_TSV; format <= SYI_FORMAT_DOCUMENTS; format++)
            for (size_t piece = 0; piece < 4; piece++) {
                const char *path = write_fresh("returns", cases[i].text, strlen(cases[i].text));
                struct seen seen = scan_file(path, format, piece);
                cr_expect_eq(seen.status, SY_ENOENT, "case %zu", i);
                cr_expect(seen.bad && strstr(seen.bad, "a carriage return within"), "case %zu", i);
                cr_expect_eq(seen.bad_line, cases[i].line, "case %zu: line %d", i, seen.bad_line);
                syi_text_free(&seen.text);
                remove_path(path);
            }
}

Test(data_record, a_scan_goes_on_after_a_bad_line)
{
    EXPECT(SYI_FORMAT_TSV, "a\rb\tc\nd\te\n", "0 1 [a\rb\tc]\n6 2 [d\te]\n");
    EXPECT(SYI_FORMAT_DOCUMENTS, "a\nb\rc\nd\n\ne\n", "0 2 [a\nb\rc\nd]\n9 5 [e]\n");
}

Test(data_record, all_of_a_file_and_each_at_its_offset)
{
    for (unsigned number = 0; number < 120; number++) {
        struct syi_text text = odd_file(number);
        const char *path = write_fresh("odd", text.data ? text.data : "", text.length);
        for (int format = SYI_FORMAT_TSV; format <= SYI_FORMAT_DOCUMENTS; format++)
            check_records(path, &text, syi_record_format(format));
        remove_path(path);
        syi_text_free(&text);
    }
}

/* ---- long lines ---- */

/* A first line, then one of `bytes` bytes: words, or one word of characters of three bytes. */
static const char *long_file(size_t bytes, const char *word)
{
    const char *path = write_fresh("long", "a\tb\n", 4);
    FILE *file = fopen(path, "ab");
    char block[6000];
    size_t n = strlen(word);
    for (size_t i = 0; i < sizeof block; i++) block[i] = word[i % n];
    for (size_t left = bytes, now; left; left -= now) {
        now = left < sizeof block ? left : sizeof block;
        cr_assert(fwrite(block, 1, now, file) == now);
    }
    cr_assert(fclose(file) == 0);
    return path;
}

Test(data_record, a_line_of_100_MB)
{
    enum { BYTES = 99999999 };
    const char *path = long_file(BYTES, "\xe2\x82\xac");
    struct syi_scan scan;
    struct syi_record record;
    struct sy_error err = {0};
    int64_t bytes = 0, n = 0;
    cr_assert(syi_scan_open(&scan, path, &syi_record_tsv, NULL) == SY_OK);
    cr_assert(syi_scan_next(&scan, &record, NULL) == SY_OK);
    cr_assert(syi_scan_next(&scan, &record, NULL) == SY_OK);
    cr_assert(record.bad && strstr(record.bad, "line of more than 64 MiB") && record.line == 2);
    cr_assert(scan.capacity < 1 << 28, "a line that is left out is kept: %zu bytes", scan.capacity);
    cr_assert(syi_scan_next(&scan, &record, &err) == SY_ENOENT && !err.text[0]);
    syi_scan_close(&scan);
    cr_assert(syi_scan_open(&scan, path, &syi_record_text, NULL) == SY_OK);
    while (!syi_scan_next(&scan, &record, NULL)) {
        cr_assert(record.text.bytes <= SYI_DOCUMENT_BYTES && syi_utf8_valid(record.text));
        bytes += (int64_t)record.text.bytes;
        n++;
    }
    cr_assert(bytes == BYTES + 3 && n == 1 + BYTES / (SYI_DOCUMENT_BYTES / 3 * 3) + 1);
    cr_assert(scan.capacity < 1 << 20, "memory grows with the file: %zu bytes", scan.capacity);
    syi_scan_close(&scan);
    remove_path(path);
}

Test(data_record, the_longest_line)
{
    const char *path = long_file(SYI_RECORD_BYTES, "word ");
    struct seen seen = scan_file(path, SYI_FORMAT_TSV, 0);
    cr_assert(seen.status == SY_ENOENT && seen.n == 2);
    syi_text_free(&seen.text);
    FILE *file = fopen(path, "ab");
    cr_assert(fputs("\r\n", file) >= 0 && fclose(file) == 0);
    seen = scan_file(path, SYI_FORMAT_TSV, 0);
    cr_assert(seen.status == SY_ENOENT && seen.n == 2);
    syi_text_free(&seen.text);
    int fd = open(path, O_RDONLY);
    char *buffer = NULL;
    size_t capacity = 0;
    struct syi_span text;
    cr_assert(syi_record_read(fd, path, &syi_record_tsv, '\n', 4, &buffer, &capacity, &text, NULL) == SY_OK);
    cr_assert(text.bytes == SYI_RECORD_BYTES);
    close(fd);
    syi_free(buffer);
    remove_path(path);
    path = long_file((size_t)SYI_RECORD_BYTES + 1, "word ");
    file = fopen(path, "ab");
    cr_assert(fputs("\nc\td\n", file) >= 0 && fclose(file) == 0);
    seen = scan_file(path, SYI_FORMAT_TSV, 0);
    cr_assert(seen.status == SY_ENOENT && seen.n == 3 && seen.bad_line == 2);
    cr_assert_str_eq(seen.text.data, "0 1 [a\tb]\n4 2 []\n67108870 3 [c\td]\n");
    syi_text_free(&seen.text);
    remove_path(path);
}

Test(data_record, running_text_is_cut_after_a_blank)
{
    const char *path = long_file(40000, "word ");
    struct syi_scan scan;
    struct syi_record record;
    cr_assert(syi_scan_open(&scan, path, &syi_record_text, NULL) == SY_OK);
    cr_assert(syi_scan_next(&scan, &record, NULL) == SY_OK);
    cr_assert(syi_scan_next(&scan, &record, NULL) == SY_OK);
    cr_assert(record.text.bytes == SYI_DOCUMENT_BYTES / 5 * 5 &&
              record.text.text[record.text.bytes - 1] == ' ');
    cr_assert(record.line == 2);
    syi_scan_close(&scan);
    remove_path(path);
}

/* Text of as many bytes as a record may have is one, whatever ends it and however it is read; of one more, two. */
Test(data_record, text_as_long_as_a_record)
{
    static const char *const ends[] = {"", "\n", "\r\n", "\n\nx", "\r\n\r\nx", "\n\r\nx"};
    static const size_t pieces[] = {0, SYI_DOCUMENT_BYTES, SYI_DOCUMENT_BYTES + 1, SYI_DOCUMENT_BYTES + 2};
    for (size_t i = 0; i < 2 * SYI_COUNT(ends) * SYI_COUNT(pieces); i++) {
        const char *end = ends[i / 2 % SYI_COUNT(ends)];
        size_t piece = pieces[i / 2 / SYI_COUNT(ends)], more = i % 2;
        struct syi_text text = {0};
        for (size_t k = 0; k < SYI_DOCUMENT_BYTES + more; k++) syi_text_puts(&text, k == 5 ? " " : "a");
        syi_text_puts(&text, end);
        for (int format = SYI_FORMAT_TEXT; format <= SYI_FORMAT_DOCUMENTS; format++) {
            struct seen seen = scan_text(text.data, text.length, format, piece);
            cr_assert(seen.n == 1 + more + (strchr(end, 'x') != NULL), "end %zu, %zu more, format %d: %zu",
                      i / 2 % SYI_COUNT(ends), more, format, seen.n);
            syi_text_free(&seen.text);
        }
        syi_text_free(&text);
    }
}

/* ---- one record ---- */

Test(data_record, a_file_that_has_changed)
{
    static const struct {
        int format;
        const char *now;
    } cases[] = {{SYI_FORMAT_TSV, "a\tb\n"},
                 {SYI_FORMAT_JSONL, "1234\n"},
                 {SYI_FORMAT_TEXT, "1234\nx"},
                 {SYI_FORMAT_TEXT, ""}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        const char *path = write_fresh("changed", cases[i].now, strlen(cases[i].now));
        const struct syi_record_format *format = syi_record_format(cases[i].format);
        struct sy_error err = {0};
        struct syi_span text;
        char *buffer = NULL;
        size_t capacity = 0;
        int fd = open(path, O_RDONLY);
        cr_assert(syi_record_read(fd, path, format, '\n', 4, &buffer, &capacity, &text, &err) == SY_EFORMAT,
                  "case %zu", i);
        cr_assert(strstr(err.text, "changed: no record is at byte 4 any more"), "%s", err.text);
        close(fd);
        syi_free(buffer);
        remove_path(path);
    }
}

static void expect_parsed(const struct syi_record_format *format, const char *text, size_t bytes,
                          const char *want)
{
    struct syi_fields fields = {0};
    struct syi_text got = {0};
    struct sy_error err = {0};
    cr_assert(format->parse((struct syi_span){text, bytes}, &fields, &err) == SY_OK, "%s", err.text);
    for (size_t i = 0; i < fields.n; i++) {
        struct syi_record_field *f = &fields.field[i];
        syi_text_append(&got, f->name.text, f->name.bytes);
        syi_text_puts(&got, "=");
        syi_text_append(&got, f->text.text ? f->text.text : "?", f->text.text ? f->text.bytes : 1);
        syi_text_puts(&got, ";");
    }
    cr_assert_str_eq(got.data ? got.data : "", want);
    syi_text_free(&got);
    syi_fields_free(&fields);
}
#define EXPECT_PARSED(format, text, want) expect_parsed(&syi_record_##format, text, sizeof(text) - 1, want)

Test(data_record, fields)
{
    EXPECT_PARSED(tsv, "a b\tc\td", "input=a b;target=c;target=d;");
    EXPECT_PARSED(text, "a\tb\n\xff", "text=a\tb\n\xff;");
    EXPECT_PARSED(jsonl, "{}", "");
    EXPECT_PARSED(jsonl, "{\"a\": \"x\\ny\\u00e9\", \"b\": -1.50E+1, \"c\": true, \"d\": null, \"e\": false}",
                  "a=x\ny\xc3\xa9;b=-1.50E+1;c=true;e=false;");
    EXPECT_PARSED(jsonl, "{\"a\":[\"x\",1,null,[],{}],\"b\":{\"c\":1},\"\":\"\",\"n\":12345678901234567890}",
                  "a=x;a=1;a=?;a=?;a=?;b=?;=;n=12345678901234567890;");
    EXPECT_PARSED(jsonl, " { \"a\" :0} ", "a=0;");
    EXPECT_PARSED(jsonl, "{\"a\": 1e400, \"b\": 2}", "a=1e400;b=2;");
}

Test(data_record, fields_by_name)
{
    static const char line[] = "{\"a\": 1, \"b\": [2, 3, 4], \"ab\": 5, \"a\": 6}";
    struct syi_fields fields = {0};
    cr_assert(syi_record_jsonl.parse((struct syi_span){line, sizeof line - 1}, &fields, NULL) == SY_OK);
    const struct syi_record_field *third = syi_fields_find(&fields, (struct syi_span){"b", 1}, 2);
    cr_assert(third && third->text.bytes == 1 && third->text.text[0] == '4');
    cr_assert(!syi_fields_find(&fields, (struct syi_span){"b", 1}, 3));
    cr_assert(!syi_fields_find(&fields, (struct syi_span){"b", 1}, SIZE_MAX));
    cr_assert(!syi_fields_find(&fields, (struct syi_span){"c", 1}, 0));
    cr_assert(syi_fields_count(&fields, (struct syi_span){"b", 1}) == 3);
    cr_assert(syi_fields_count(&fields, (struct syi_span){"a", 1}) == 1);
    cr_assert(syi_fields_count(&fields, (struct syi_span){"", 0}) == 0);
    syi_fields_free(&fields);
}

Test(data_record, refuses_records)
{
    static const struct {
        const struct syi_record_format *format;
        const char *text;
        size_t bytes;
        const char *why;
    } cases[] = {
        {&syi_record_tsv, "", 0, "no tab in this line"},
        {&syi_record_tsv, "word", 4, "no tab in this line; each line is `input TAB target`"},
        {&syi_record_tsv, "c\td\0", 4, "NUL byte"},
        {&syi_record_tsv, "\tx", 2, "the input is empty"},
        {&syi_record_tsv, "a\t", 2, "the target is empty"},
        {&syi_record_tsv, "a\tb\t", 4, "a further target is empty"},
        {&syi_record_tsv, "a\tb\t\tc", 6, "a further target is empty"},
        {&syi_record_jsonl, "[1]", 3, "JSON, but no object"},
        {&syi_record_jsonl, "{\"a\": 1", 7, "this line: malformed JSON at byte 7"},
        {&syi_record_jsonl, "{\"a\": \"\xff\"}", 10, "malformed UTF-8"},
        {&syi_record_jsonl, "{\"a\": \"\0\"}", 10, "control character"},
        {&syi_record_jsonl, "{} {}", 5, "something follows"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_fields fields = {0};
        struct sy_error err = {0};
        cr_assert(cases[i].format->parse((struct syi_span){cases[i].text, cases[i].bytes}, &fields, &err) ==
                      SY_EFORMAT,
                  "case %zu", i);
        cr_assert(strstr(err.text, cases[i].why), "case %zu: %s", i, err.text);
        syi_fields_free(&fields);
    }
}

/* Nesting is refused, not followed. */
Test(data_record, deep_json)
{
    enum { DEPTH = 2000000 };
    char *line = malloc(DEPTH);
    struct syi_fields fields = {0};
    struct sy_error err = {0};
    cr_assert(line);
    memset(line, '[', DEPTH);
    cr_assert(syi_record_jsonl.parse((struct syi_span){line, DEPTH}, &fields, &err) == SY_EFORMAT);
    cr_assert(strstr(err.text, "nested too deep"), "%s", err.text);
    syi_fields_free(&fields);
    free(line);
}

Test(data_record, what_is_no_file)
{
    struct syi_scan scan;
    struct sy_error err = {0};
    cr_assert(syi_scan_open(&scan, "/dev/null", &syi_record_tsv, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "/dev/null is no regular file"), "%s", err.text);
    syi_scan_close(&scan);
    cr_assert(syi_scan_open(&scan, "/nowhere/file", &syi_record_tsv, NULL) == SY_ENOENT);
    syi_scan_close(&scan);
}
