/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a source: which ones a pattern finds and in what order, and copies of compressed ones. */
#include "config.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "base/compress.h"
#include "data/source.h"
#include "data_support.h"

static char folder[4200], cache[4300];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s", fresh_path("x"));
    *strrchr(folder, '/') = 0;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    cr_assert(mkdir(cache, 0700) == 0);
}

static void remove_folder(void)
{
    char command[4300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert(system(command) == 0);
}

static const char *at(const char *name)
{
    static char path[4600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(at(name), "wb");
    cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static void put_packed(const char *name, enum syi_compression compression, const char *text)
{
    void *packed;
    size_t n;
    cr_assert(syi_compress(compression, 3, text, strlen(text), &packed, &n, NULL) == SY_OK);
    put(name, packed, n);
    syi_free(packed);
}

static int is_built(const char *format)
{
    return strstr(syi_compression_libraries(), format) != NULL;
}

/* Names of the cache's files, counted. */
static int copies(void)
{
    int n = 0;
    DIR *d = opendir(cache);
    for (struct dirent *entry; (entry = readdir(d));) n += entry->d_name[0] != '.';
    closedir(d);
    return n;
}

static void expect_text(const char *path, const char *want)
{
    char *text;
    size_t n;
    cr_assert(syi_file_read(path, &text, &n, NULL) == SY_OK);
    cr_assert_str_eq(text, want);
    syi_free(text);
}

/* want: what the file's name ends with. */
static void expect_files(const char *pattern, const char *const *want, int n)
{
    struct syi_source source;
    struct sy_error err = {0};
    cr_assert(syi_source_open(&source, at(pattern), NULL, &err) == SY_OK, "%s", err.text);
    cr_assert(source.n == n, "%s: %d files", pattern, source.n);
    for (int i = 0; i < n; i++) {
        cr_assert_str_eq(strrchr(source.file[i].path, '/') + 1, want[i]);
        cr_assert_str_eq(source.file[i].readable, source.file[i].path);
        cr_assert(source.file[i].modified > 0 && source.file[i].inode > 0);
    }
    syi_source_close(&source);
}

Test(data_source, files_in_the_order_of_their_names, .init = make_folder, .fini = remove_folder)
{
    static const char *const names[] = {"B-2", "a-1", "a-10", "a-2", "a[1]", "\xc3\xa4-1"};
    for (size_t i = SYI_COUNT(names); i-- > 0;) put(names[i], "x", 1);
    cr_assert(mkdir(at("folder"), 0700) == 0);
    expect_files("*", names, 6); /* and neither folder nor cache */
    expect_files("a-*", names + 1, 3);
    expect_files("a-?", (const char *const[]){"a-1", "a-2"}, 2);
    expect_files("[aB]-2", (const char *const[]){"B-2", "a-2"}, 2);
    expect_files("a-1", names + 1, 1);
    expect_files("a[1]", names + 4, 1); /* as it is written before as a pattern */
}

Test(data_source, what_is_not_there, .init = make_folder, .fini = remove_folder)
{
    static const char *const names[] = {"nothing", "nothing-*", "nowhere/*"};
    struct syi_source source;
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        struct sy_error err = {0};
        cr_assert(syi_source_open(&source, at(names[i]), NULL, &err) == SY_ENOENT, "%s", names[i]);
        cr_assert(strstr(err.text, names[i]), "%s", err.text);
    }
    cr_assert(syi_source_open(&source, folder, NULL, NULL) == SY_EINVAL);
    syi_source_close(&source);
}

/* What a process that was killed so long ago had written of a copy. */
static void put_unfinished(const char *copy, long seconds_ago)
{
    struct utimbuf then = {time(NULL) - seconds_ago, time(NULL) - seconds_ago};
    char *path = syi_format("%s.%ld-1.tmp", copy, seconds_ago);
    FILE *file = fopen(path, "w");
    cr_assert(file && !fclose(file) && !utime(path, &then));
    syi_free(path);
}

static void check_copies(enum syi_compression compression)
{
    struct syi_source source;
    struct sy_error err = {0};
    struct stat first, second;
    put("plain", "a\tb\n", 4);
    put_packed("words.gz", compression, "c\td\n");
    cr_assert(syi_source_open(&source, at("words.gz"), NULL, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "words.gz is compressed"), "%s", err.text);
    cr_assert(copies() == 0);

    cr_assert(syi_source_open(&source, at("[pw]*"), cache, NULL) == SY_OK && source.n == 2);
    expect_text(source.file[0].readable, "a\tb\n");
    expect_text(source.file[1].readable, "c\td\n");
    cr_assert(strstr(source.file[1].path, "words.gz") && copies() == 1);
    cr_assert(stat(source.file[1].readable, &first) == 0);
    syi_source_close(&source);

    cr_assert(syi_source_open(&source, at("words.gz"), cache, NULL) == SY_OK);
    cr_assert(stat(source.file[0].readable, &second) == 0 &&
              second.st_ino == first.st_ino); /* not made again */
    syi_source_close(&source);

    put_packed("words.gz", compression, "another\ttext\n");
    cr_assert(syi_source_open(&source, at("words.gz"), cache, NULL) == SY_OK);
    expect_text(source.file[0].readable, "another\ttext\n");
    cr_assert(copies() == 1, "the copy of what the file was is still there");

    put_unfinished(source.file[0].readable, 7200);
    put_unfinished(source.file[0].readable, 60);
    syi_source_close(&source);
    cr_assert(syi_source_open(&source, at("words.gz"), cache, NULL) == SY_OK);
    cr_assert(copies() == 2, "%d files: the copy, and one that may still be written", copies());
    syi_source_close(&source);
}

Test(data_source, copies_of_gzip_files, .init = make_folder, .fini = remove_folder)
{
    if (!is_built("gzip")) cr_skip_test("this build has no zlib");
    check_copies(SYI_COMPRESSION_GZIP);
}

Test(data_source, copies_of_zstd_files, .init = make_folder, .fini = remove_folder)
{
    if (!is_built("zstd")) cr_skip_test("this build has no libzstd");
    check_copies(SYI_COMPRESSION_ZSTD);
}

/* Files of one name in two folders are two files, and neither's copy is the other's. */
Test(data_source, copies_of_files_of_one_name, .init = make_folder, .fini = remove_folder)
{
    struct syi_source a, b;
    if (!is_built("gzip")) cr_skip_test("this build has no zlib");
    cr_assert(mkdir(at("a"), 0700) == 0 && mkdir(at("b"), 0700) == 0);
    put_packed("a/words.gz", SYI_COMPRESSION_GZIP, "a");
    put_packed("b/words.gz", SYI_COMPRESSION_GZIP, "b");
    cr_assert(syi_source_open(&a, at("a/words.gz"), cache, NULL) == SY_OK);
    cr_assert(syi_source_open(&b, at("b/words.gz"), cache, NULL) == SY_OK);
    expect_text(a.file[0].readable, "a");
    expect_text(b.file[0].readable, "b");
    syi_source_close(&a);
    syi_source_close(&b);
}

/* A pattern that finds what is put into its folder, too. */
Test(data_source, a_cache_among_the_files, .init = make_folder, .fini = remove_folder)
{
    struct syi_source source;
    struct sy_error err = {0};
    char *same = syi_format("%s/.", folder);
    put("words", "a\tb\n", 4);
    cr_assert(syi_source_open(&source, at("*"), same, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "name another folder as data.cache"), "%s", err.text);
    cr_assert(syi_source_open(&source, at("*s"), same, NULL) == SY_OK && source.n == 1);
    syi_source_close(&source);
    cr_assert(syi_source_open(&source, at("words"), same, NULL) == SY_OK);
    syi_source_close(&source);
    syi_free(same);
}

/* Of a file that is cut off nothing is left in the cache. */
Test(data_source, damaged_files, .init = make_folder, .fini = remove_folder)
{
    struct syi_source source;
    struct sy_error err = {0};
    void *packed;
    size_t n;
    if (!is_built("gzip")) cr_skip_test("this build has no zlib");
    cr_assert(syi_compress(SYI_COMPRESSION_GZIP, 3, "some text", 9, &packed, &n, NULL) == SY_OK);
    put("cut.gz", packed, n - 5);
    cr_assert(syi_source_open(&source, at("cut.gz"), cache, &err) == SY_EFORMAT);
    cr_assert(strstr(err.text, "cut.gz") && strstr(err.text, "cut off"), "%s", err.text);
    cr_assert(copies() == 0);
    syi_free(packed);
}
