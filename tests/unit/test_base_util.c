/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, log, memory, SHA-256, patterns, text and files of core/base. JSON, safetensors and run files have
 * tests of their own. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/text.h"

static char folder[64]; /* each test process makes its own, removed at its end */

static void make_folder(void)
{
    strcpy(folder, "/tmp/switchyard-test-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

static char *in_folder(const char *name)
{
    char *path = syi_format("%s/%s", folder, name);
    cr_assert(path);
    return path;
}

Test(base_error, first_one_stays_and_is_one_line)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_error(&err, SY_EINVAL, "bad %s\nline", "name\t"), SY_EINVAL);
    cr_assert_eq(syi_error(&err, SY_EIO, "second"), SY_EIO);
    cr_assert_eq(err.code, SY_EINVAL);
    cr_assert_str_eq(err.text, "bad name??line");
    cr_assert_eq(syi_error(NULL, SY_EIO, "nobody listens"), SY_EIO);
}

Test(base_error, system_errors_name_their_cause)
{
    struct sy_error err = {0};
    errno = ENOENT;
    cr_assert_eq(syi_error_system(&err, "cannot open %s", "x"), SY_ENOENT);
    cr_assert_str_eq(err.text, "cannot open x: No such file or directory");
}

/* As of a path of 4,000 bytes: what was wrong with it is still there, and no half of a character. */
Test(base_error, long_texts_keep_their_ends)
{
    for (size_t n = 990; n < 4000; n += n < 1040 ? 1 : 500) {
        struct sy_error err = {0};
        char path[4096];
        for (size_t i = 0; i < n; i++) path[i] = "\303\251"[i % 2]; /* e with an accent */
        path[n / 2 * 2] = 0;
        errno = ENOENT;
        syi_error_system(&err, "cannot open %s", path);
        for (const char *c = err.text; *c; c++)
            cr_expect_eq(c[0] == '\303', c[1] == '\251', "%zu: %s", n, err.text);
        cr_expect_eq(strncmp(err.text, "cannot open \303\251", 14), 0);
        cr_expect_not_null(strstr(err.text, "\303\251: No such file or directory"), "%zu: %s", n, err.text);
        cr_expect_eq(strstr(err.text, " ... ") != NULL, n / 2 * 2 + 39 >= sizeof err.text, "%zu", n);
    }
}

Test(base_error, every_status_has_a_text)
{
#define EXPECT_TEXT(name, number, text) cr_expect_str_eq(sy_status_text(SY_##name), text);
    SY_STATUS_MAP(EXPECT_TEXT)
    cr_assert_str_eq(sy_status_text(12345), "unknown status");
    cr_assert_str_eq(sy_version(), PACKAGE_VERSION);
}

static void keep_line(void *arg, enum sy_log_level level, const char *line)
{
    if (level == SY_LOG_WARN) strcpy(arg, line);
}

Test(base_log, goes_to_the_sink_only)
{
    char seen[64] = "";
    syi_log(SY_LOG_WARN, "dropped");
    sy_log_set(keep_line, seen);
    syi_log(SY_LOG_WARN, "step %d", 7);
    sy_log_set(NULL, NULL);
    syi_log(SY_LOG_WARN, "dropped too");
    cr_assert_str_eq(seen, "step 7");
}

Test(base_memory, grows_keeping_contents_and_zeroes_the_rest)
{
    int *numbers = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(SYI_GROW(numbers, capacity, (size_t)i + 1, NULL), SY_OK);
        cr_assert_eq(numbers[i], 0);
        numbers[i] = i;
    }
    for (int i = 0; i < 100; i++) cr_assert_eq(numbers[i], i);
    cr_assert_eq((uintptr_t)numbers % 64, 0);
    int *before = numbers;
    struct sy_error err = {0};
    cr_assert_eq(syi_grow((void **)&numbers, &capacity, SIZE_MAX / 2, sizeof(int), &err), SY_ENOMEM);
    cr_assert_eq(numbers, before);
    syi_free(numbers);
    syi_free(NULL);
}

static void expect_hash(const char *text, size_t times, const char *expected)
{
    struct syi_sha256 hash;
    char hex[65];
    syi_sha256_init(&hash);
    for (size_t i = 0; i < times; i++) syi_sha256_add(&hash, text, strlen(text));
    syi_sha256_hex(&hash, hex);
    cr_expect_str_eq(hex, expected);
}

/* FIPS 180-4 examples and the million of a. */
Test(base_file, is_known_by_its_contents)
{
    static const struct {
        const char *text;
        int64_t lines;
    } files[] = {{"", 0}, {"a", 1}, {"a\n", 1}, {"a\nb", 2}, {"\n\n", 2}};
    for (size_t i = 0; i < SYI_COUNT(files); i++) {
        struct syi_file_id id = syi_file_identify(files[i].text, strlen(files[i].text));
        cr_expect_eq(id.lines, files[i].lines);
        cr_expect_eq(id.bytes, (int64_t)strlen(files[i].text));
    }
    cr_expect_str_eq(syi_file_identify("abc", 3).sha256,
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Test(base_sha256, known_answers)
{
    expect_hash("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_hash("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_hash("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    expect_hash("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                "aaaaaaaa",
                10000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Sums are those of any processor: files that one wrote are read by another. */
Test(base_sha256, instructions_as_plain_code)
{
    uint8_t data[64 * 9];
    uint32_t plain[8], quick[8];
    if (!syi_sha256_x86_there()) cr_skip_test("this processor has no instructions for SHA-256");
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * i * 31 + i / 7);
    for (size_t i = 0; i < 8; i++) plain[i] = quick[i] = (uint32_t)(i + 1) * 0x9e3779b9u;
    for (size_t blocks = 0; blocks <= 8; blocks++) {
        syi_sha256_plain(plain, data + blocks, blocks);
        syi_sha256_x86(quick, data + blocks, blocks);
        cr_expect_arr_eq(plain, quick, sizeof plain, "after %zu blocks", blocks);
    }
}

Test(base_crc32c, instruction_as_plain_code)
{
    uint8_t data[300];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * i * 31 + i / 7);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t bytes = 0; bytes + begin < sizeof data; bytes++) {
            uint32_t start = (uint32_t)(bytes * 0x9e3779b9u);
            cr_assert_eq(syi_crc32c(start, data + begin, bytes), syi_crc32c_plain(start, data + begin, bytes),
                         "%zu bytes from %zu", bytes, begin);
        }
}

Test(base_pattern, matches_whole_names)
{
    static const struct {
        const char *pattern, *name;
        int match;
    } cases[] = {{"*", "", 1},
                 {"*", "abc", 1},
                 {"", "", 1},
                 {"", "a", 0},
                 {"a?c", "abc", 1},
                 {"a?c", "ac", 0},
                 {"*expert*", "decoder/expert/wi", 1},
                 {"*expert", "experts", 0},
                 {"a*b*c", "a-b-b-c", 1},
                 {"a*b*c", "a-c-b", 0},
                 {"abc", "abcd", 0},
                 {"abc**", "abc", 1},
                 {"?", "", 0},
                 {"*?", "x", 1}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++)
        cr_expect_eq(syi_pattern_match(cases[i].pattern, cases[i].name), cases[i].match, "%s on %s",
                     cases[i].pattern, cases[i].name);
    char name[2001]; /* a recursive matcher would take for ever */
    memset(name, 'a', 2000);
    name[2000] = 0;
    cr_assert_not(syi_pattern_match("*a*a*a*a*a*a*a*a*a*a*b", name));
}

Test(base_pattern, edit_distance)
{
    char far[301];
    memset(far, 'x', 300);
    far[300] = 0;
    cr_assert_eq(syi_edit_distance("kitten", "sitting"), 3);
    cr_assert_eq(syi_edit_distance("", "abc"), 3);
    cr_assert_eq(syi_edit_distance("blue", "bleu"), 1);
    cr_assert_eq(syi_edit_distance("abcdef", "badcfe"), 3);
    cr_assert_eq(syi_edit_distance("ca", "abc"), 3);
    cr_assert_eq(syi_edit_distance("same", "same"), 0);
    cr_assert_gt(syi_edit_distance(far, "x"), 255);
    cr_assert(syi_is_near("stepz", "steps") && !syi_is_near("epochs", "steps") && !syi_is_near(far, "x"));
}

Test(base_text, numbers_come_back_as_they_were)
{
    static const double values[] = {0.0,    -0.0,       1.0, 0.1, 1e-6, 1.0 / 3, 1.7976931348623157e308,
                                    5e-324, -123456.789};
    char text[SYI_NUMBER_BYTES];
    const char *end;
    for (size_t i = 0; i < SYI_COUNT(values); i++) {
        syi_format_double(text, values[i]);
        double back = syi_parse_double(text, &end);
        cr_expect(back == values[i] && !signbit(back) == !signbit(values[i]) && *end == 0, "%s", text);
        syi_format_float(text, (float)values[i]);
        cr_expect_eq((float)syi_parse_double(text, &end), (float)values[i]);
    }
    syi_format_double(text, 0.1);
    cr_assert_str_eq(text, "0.1");
    syi_format_float(text, 0.1f);
    cr_assert_str_eq(text, "0.1");
    syi_format_double(text, -INFINITY);
    cr_assert_str_eq(text, "-inf");
}

Test(base_text, grows)
{
    struct syi_text text = {0};
    for (int i = 0; i < 1000; i++) syi_text_printf(&text, "%d,", i);
    syi_text_puts(&text, "end");
    cr_assert_eq(syi_text_status(&text, NULL), SY_OK);
    cr_assert_eq(text.length, strlen(text.data));
    cr_assert_str_eq(text.data + text.length - 7, "999,end");
    syi_text_free(&text);
    cr_assert_null(text.data);
}

Test(base_text, in_a_buffer_of_the_callers_is_cut)
{
    char buffer[] = "0123456789", one[] = "x";
    struct syi_text text = syi_text_in(buffer, 8);
    cr_assert_str_eq(buffer, "");
    syi_text_puts(&text, "abc");
    syi_text_printf(&text, "%d", 12);
    cr_assert_str_eq(buffer, "abc12");
    syi_text_printf(&text, "%s", "def");
    cr_assert_str_eq(buffer, "abc12de", "cut to what there is room for");
    syi_text_puts(&text, "g");
    syi_text_printf(&text, "%d", 3);
    cr_assert_eq(text.length, 7u);
    cr_assert_eq(syi_text_status(&text, NULL), SY_OK);
    syi_text_free(&text);
    cr_assert_str_eq(buffer, "abc12de");
    cr_assert_str_eq(buffer + 8, "89", "nothing is written behind it");
    text = syi_text_in(one, 1);
    syi_text_puts(&text, "y");
    cr_assert_str_eq(one, "");
}

Test(base_text, utf8)
{
    char out[4];
    cr_assert_eq(syi_utf8_encode(0x20ac, out), 3);
    cr_assert_eq(memcmp(out, "\xe2\x82\xac", 3), 0);
    cr_assert_eq(syi_utf8_encode(0xd800, out), 0);
    cr_assert_eq(syi_utf8_encode(0x110000, out), 0);
    static const char *const malformed[] = {
        "\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xff"};
    for (size_t i = 0; i < SYI_COUNT(malformed); i++)
        cr_expect_eq(syi_utf8_length((const unsigned char *)malformed[i], strlen(malformed[i])), 0, "%zu", i);
    for (uint32_t code = 1; code < 0x110000; code += 7) {
        int length = syi_utf8_encode(code, out);
        if (length) cr_assert_eq(syi_utf8_length((unsigned char *)out, (size_t)length), length);
    }
}

TestSuite(base_file, .init = make_folder, .fini = remove_folder);

Test(base_file, write_replaces_the_whole_file)
{
    char *path = in_folder("status"), *text;
    size_t bytes;
    struct stat info;
    cr_assert_eq(syi_file_write(path, "a long first text", 17, NULL), SY_OK);
    cr_assert_eq(syi_file_write(path, "new", 3, NULL), SY_OK);
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK);
    cr_assert_eq(bytes, 3);
    cr_assert_str_eq(text, "new");
    char *temporary = in_folder("status.tmp");
    cr_assert_neq(stat(temporary, &info), 0);
    syi_free(text);
    syi_free(temporary);
    syi_free(path);
}

Test(base_file, failed_write_keeps_the_old_file)
{
    char *path = in_folder("status"), *blocker = in_folder("status.tmp"), *text;
    size_t bytes;
    struct sy_error err = {0};
    cr_assert_eq(syi_file_write(path, "old", 3, NULL), SY_OK);
    cr_assert_eq(mkdir(blocker, 0777), 0); /* the temporary file cannot be created, whoever runs the test */
    cr_assert_neq(syi_file_write(path, "new", 3, &err), SY_OK);
    cr_assert(strstr(err.text, "status.tmp"));
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK);
    cr_assert_str_eq(text, "old");
    syi_free(text);
    syi_free(blocker);
    syi_free(path);
}

Test(base_file, missing_files_and_folders_are_named)
{
    char *text, *path = in_folder("none/file");
    size_t bytes;
    struct sy_error err = {0};
    cr_assert_eq(syi_file_read(path, &text, &bytes, &err), SY_ENOENT);
    cr_assert(strstr(err.text, path));
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_file_write(path, "x", 1, &err), SY_ENOENT);
    memset(&err, 0, sizeof(err));
    cr_assert_neq(syi_file_read(folder, &text, &bytes, &err), SY_OK);
    syi_free(path);
}

Test(base_file, reads_what_has_no_size)
{
    char *text;
    size_t bytes;
    cr_assert_eq(syi_file_read("/dev/null", &text, &bytes, NULL), SY_OK);
    cr_assert_eq(bytes, 0);
    cr_assert_str_eq(text, "");
    syi_free(text);
}

Test(base_file, makes_folders)
{
    char *path = in_folder("a/b/c"), *file = in_folder("file"), *below = in_folder("file/x");
    struct stat info;
    struct sy_error err = {0};
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    cr_assert(stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    cr_assert_eq(syi_file_write(file, "", 0, NULL), SY_OK);
    cr_assert_neq(syi_make_folders(below, &err), SY_OK);
    cr_assert(strstr(err.text, "in the way"));
    syi_free(path);
    syi_free(file);
    syi_free(below);
}

Test(base_clock, does_not_go_back)
{
    double before = syi_seconds();
    cr_assert_geq(syi_seconds(), before);
}
