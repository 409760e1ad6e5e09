/* SPDX-License-Identifier: Apache-2.0 */
/* zarr arrays: chunks that fit and last ones that reach over the edge, what was written is read, and damage is an error
 * that names the file. */
#include "config.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "import/zarr.h"

static char folder[] = "/tmp/sy-zarr-XXXXXX";

static void begin(void)
{
    cr_assert(mkdtemp(folder));
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void end(void)
{
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(zarr, .init = begin, .fini = end);

static void put(const char *name, const void *data, size_t bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(syi_file_write(path, data, bytes, NULL), SY_OK);
}

/* .zarray of an array without compression. */
static void put_array(const char *shape, const char *chunks, const char *dtype)
{
    char text[400];
    snprintf(
        text, sizeof text,
        "{\"chunks\":%s,\"compressor\":null,\"dimension_separator\":\".\",\"dtype\":\"%s\",\"fill_value\":null,"
        "\"filters\":null,\"order\":\"C\",\"shape\":%s,\"zarr_format\":2}",
        chunks, dtype, shape);
    put(".zarray", text, strlen(text));
}

static void expect_error(int want, const char *text)
{
    struct syi_zarr zarr;
    struct sy_error err = {0};
    cr_expect_eq(syi_zarr_open(&zarr, folder, &err), want, "%s", err.text);
    cr_expect(strstr(err.text, text) != NULL, "%s: not %s", err.text, text);
    syi_zarr_close(&zarr);
}

Test(zarr, chunks_reach_over_the_edge)
{
    /* rows 0 1 2 | 3 4 5 | 6 7 8 in chunks of 2 x 2: 9 stands where no element is */
    static const uint8_t bytes[4][8] = {{0, 0, 1, 0, 3, 0, 4, 0},
                                        {2, 0, 9, 0, 5, 0, 9, 0},
                                        {6, 0, 7, 0, 9, 0, 9, 0},
                                        {8, 0, 9, 0, 9, 0, 9, 0}};
    static const char *const names[] = {"0.0", "0.1", "1.0", "1.1"};
    struct syi_zarr zarr;
    struct sy_error err = {0};
    uint16_t got[9];
    put_array("[3,3]", "[2,2]", "<u2");
    for (int i = 0; i < 4; i++) put(names[i], bytes[i], sizeof bytes[i]);
    cr_assert_eq(syi_zarr_open(&zarr, folder, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_zarr_bytes(&zarr), sizeof got);
    cr_assert_eq(syi_zarr_read(&zarr, got, &err), SY_OK, "%s", err.text);
    for (int i = 0; i < 9; i++) cr_expect_eq(got[i], i);
    syi_zarr_close(&zarr);
}

Test(zarr, a_scalar)
{
    struct syi_zarr zarr;
    struct sy_error err = {0};
    const int32_t value = 400;
    int32_t got = 0;
    put_array("[]", "[]", "<i4");
    put("0", &value, sizeof value);
    cr_assert_eq(syi_zarr_open(&zarr, folder, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_zarr_read(&zarr, &got, &err), SY_OK, "%s", err.text);
    cr_expect_eq(got, 400);
    syi_zarr_close(&zarr);
}

Test(zarr, what_is_missing_or_too_short)
{
    put_array("[4]", "[2]", "<f4");
    put("0", "abcdefgh", 8);
    expect_error(SY_EFORMAT, "/1 is missing");
    put("1", "abcdefg", 7);
    expect_error(SY_EFORMAT, "/1 is too short");
    put_array("[1152921504606846976,1152921504606846976]", "[1152921504606846976,1152921504606846976]",
              "<f4");
    put("0.0", "abcdefgh", 8);
    expect_error(SY_EFORMAT, "/0.0 is too short");
}

Test(zarr, a_chunk_of_another_length)
{
    struct syi_zarr zarr;
    struct sy_error err = {0};
    float got[2];
    put_array("[2]", "[2]", "<f4");
    put("0", "abcdefghi", 9);
    cr_assert_eq(syi_zarr_open(&zarr, folder, &err), SY_OK, "%s", err.text);
    cr_expect_eq(syi_zarr_read(&zarr, got, &err), SY_EFORMAT);
    cr_expect(strstr(err.text, "/0 has 9 bytes, not 8") != NULL, "%s", err.text);
    syi_zarr_close(&zarr);
}

static void expect_metadata(int want, const char *find, const char *replace)
{
    static const char text[] =
        "{\"chunks\":[2],\"compressor\":null,\"dtype\":\"<f4\",\"fill_value\":0,\"filters\":null,"
        "\"order\":\"C\",\"shape\":[2],\"zarr_format\":2}";
    struct syi_zarr zarr;
    struct sy_error err = {0};
    char changed[400];
    const char *at = strstr(text, find);
    cr_assert(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, replace, at + strlen(find));
    int got = syi_zarr_parse(&zarr, "test", changed, strlen(changed), &err);
    cr_expect_eq(got, want, "%s: %d %s", changed, got, err.text);
    cr_expect(!got || !strncmp(err.text, "test: ", 6), "%s", err.text);
}

Test(zarr, metadata)
{
    expect_metadata(SY_OK, "null", "{\"id\":\"gzip\",\"level\":1}");
    expect_metadata(SY_OK, "<f4", "bfloat16");
    expect_metadata(SY_OK, "<f4", "<f2");
    expect_metadata(SY_OK, "<f4", "<f8");
    expect_metadata(SY_OK, "<f4", "<i8");
    expect_metadata(SY_EUNSUPPORTED, "<f4", ">f4");
    expect_metadata(SY_EUNSUPPORTED, "null", "{\"id\":\"blosc\"}");
    expect_metadata(SY_EUNSUPPORTED, "\"filters\":null", "\"filters\":[{\"id\":\"delta\"}]");
    expect_metadata(SY_EUNSUPPORTED, "\"C\"", "\"F\"");
    expect_metadata(SY_EUNSUPPORTED, "\"zarr_format\":2", "\"zarr_format\":3");
    expect_metadata(SY_EUNSUPPORTED, "\"shape\":[2]", "\"shape\":[2,2]");
    expect_metadata(SY_EUNSUPPORTED, "\"shape\":[2]", "\"shape\":[0]");
    expect_metadata(SY_EUNSUPPORTED, "\"shape\":[2]", "\"shape\":[-2]");
    expect_metadata(SY_EUNSUPPORTED, "\"chunks\":[2]", "\"chunks\":[0]");
    expect_metadata(SY_EUNSUPPORTED, "\"chunks\":[2]", "\"chunks\":2");
    expect_metadata(SY_EFORMAT, "\"shape\":[2]", "\"shape\":[2");
}

static void write_and_read(enum syi_compression compression, const int64_t *dims, int rank)
{
    enum { MOST = 60 };
    struct syi_zarr zarr = {.dtype = SYI_SAFETENSORS_F32,
                            .rank = rank,
                            .compression = compression,
                            .level = 1},
                    again;
    struct sy_error err = {0};
    float from[MOST], to[MOST] = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/array", folder);
    memcpy(zarr.dims, dims, (size_t)rank * sizeof *dims);
    for (int i = 0; i < MOST; i++) from[i] = (float)i / 7;
    zarr.folder = syi_strdup(path, NULL);
    cr_assert_eq(syi_zarr_write(&zarr, from, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_zarr_open(&again, path, &err), SY_OK, "%s", err.text);
    cr_expect(again.rank == rank && !memcmp(again.dims, zarr.dims, sizeof again.dims));
    cr_expect(again.dtype == zarr.dtype && again.compression == compression);
    cr_assert_eq(syi_zarr_read(&again, to, &err), SY_OK, "%s", err.text);
    cr_expect_eq(memcmp(from, to, (size_t)syi_zarr_bytes(&again)), 0);
    cr_expect_neq(syi_zarr_write(&zarr, from, NULL), SY_OK); /* the folder is there */
    syi_zarr_close(&zarr);
    syi_zarr_close(&again);
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* The folder is there: nothing is written, but chunks are chosen. */
static void expect_chunks(const int64_t *dims, const int64_t *chunk, int rank)
{
    struct syi_zarr zarr = {.folder = folder, .dtype = SYI_SAFETENSORS_F32, .rank = rank};
    memcpy(zarr.dims, dims, (size_t)rank * sizeof *dims);
    cr_assert_neq(syi_zarr_write(&zarr, NULL, NULL), SY_OK);
    for (int d = 0; d < rank; d++)
        cr_expect_eq(zarr.chunk[d], chunk[d], "%d: %lld", d, (long long)zarr.chunk[d]);
}

Test(zarr, chunks_are_as_few_as_can_be)
{
    expect_chunks((int64_t[]){32128, 512}, (int64_t[]){32128, 512}, 2);
    expect_chunks((int64_t[]){32128, 1024}, (int64_t[]){16064, 1024}, 2);
    expect_chunks((int64_t[]){16411, 1024}, (int64_t[]){16411, 512}, 2); /* a prime number of rows */
    expect_chunks((int64_t[]){128, 768, 2048}, (int64_t[]){128, 64, 2048}, 3);
    expect_chunks((int64_t[]){8192, 8192, 8192}, (int64_t[]){1, 2048, 8192}, 3);
}

Test(zarr, what_is_written_is_read)
{
    static const int64_t dims[] = {3, 4, 5};
    write_and_read(SYI_COMPRESSION_NONE, dims, 3);
    write_and_read(SYI_COMPRESSION_NONE, dims, 0);
    if (strstr(syi_compression_libraries(), "gzip")) write_and_read(SYI_COMPRESSION_GZIP, dims, 2);
    if (strstr(syi_compression_libraries(), "zstd")) write_and_read(SYI_COMPRESSION_ZSTD, dims, 1);
}
