/* SPDX-License-Identifier: Apache-2.0 */
/* gzip and zstd: what went in comes out, in blocks and from files, however it is read; what is damaged is an error. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "base/compress.h"

enum { BYTES = 300000 };
static const enum syi_compression both[] = {SYI_COMPRESSION_GZIP, SYI_COMPRESSION_ZSTD};

static int is_built(enum syi_compression compression)
{
    return strstr(syi_compression_libraries(), compression == SYI_COMPRESSION_GZIP ? "gzip" : "zstd") != NULL;
}

/* The others pass over what is not built. */
Test(base_compress, libraries_of_this_build)
{
    if (!is_built(both[0]) || !is_built(both[1]))
        cr_skip_test("gzip and zstd are not both tested: this build has %s", syi_compression_libraries());
}

/* Text that compresses, and some that does not. */
static unsigned char *some_bytes(void)
{
    unsigned char *bytes = syi_alloc(BYTES, NULL);
    uint32_t state = 7;
    cr_assert(bytes);
    for (size_t i = 0; i < BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(i < BYTES / 2 ? i / 100 : state >> 24);
    }
    return bytes;
}

struct packed {
    unsigned char *bytes;
    size_t n;
};

/* The bytes in two members or frames, one after the other. */
static struct packed pack(enum syi_compression compression, const unsigned char *bytes)
{
    struct packed all = {0};
    for (int half = 0; half < 2; half++) {
        void *one = NULL;
        size_t n = 0, capacity = all.n;
        cr_assert(syi_compress(compression, 3, bytes + half * BYTES / 2, BYTES / 2, &one, &n, NULL) == SY_OK);
        cr_assert(SYI_GROW(all.bytes, capacity, all.n + n, NULL) == SY_OK);
        memcpy(all.bytes + all.n, one, n);
        all.n += n;
        syi_free(one);
    }
    return all;
}

/* A file of this test's own, in the folder it runs in. */
static const char *write_file(const void *bytes, size_t n)
{
    static char path[64];
    snprintf(path, sizeof path, "compress-%d.tmp", (int)getpid());
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
    return path;
}

/* Reads a file in pieces of `step` bytes; *n: what came before the end or the error. */
static int read_back(const char *path, size_t step, unsigned char *to, size_t *n, struct sy_error *err)
{
    struct syi_inflow in;
    size_t got = 1;
    int status = syi_inflow_open(&in, path, err);
    for (*n = 0; !status && got; *n += got) {
        got = 0;
        cr_assert(*n <= BYTES);
        status = syi_inflow_read(&in, to + *n, step < BYTES + 1 - *n ? step : BYTES + 1 - *n, &got, err);
    }
    syi_inflow_close(&in);
    return status;
}

Test(base_compress, told_by_how_they_begin)
{
    cr_assert(syi_compression_of("\x1f\x8b\x08", 3) == SYI_COMPRESSION_GZIP);
    cr_assert(syi_compression_of("\x1f\x8b", 2) == SYI_COMPRESSION_NONE);
    cr_assert(syi_compression_of("\x28\xb5\x2f\xfd", 4) == SYI_COMPRESSION_ZSTD);
    cr_assert(syi_compression_of("\x5f\x2a\x4d\x18", 4) == SYI_COMPRESSION_ZSTD);
    cr_assert(syi_compression_of("\x28\xb5\x2f", 3) == SYI_COMPRESSION_NONE);
    cr_assert(syi_compression_of("text", 4) == SYI_COMPRESSION_NONE);
    cr_assert(syi_compression_of(NULL, 0) == SYI_COMPRESSION_NONE);
}

Test(base_compress, blocks)
{
    unsigned char *bytes = some_bytes(), *back = syi_alloc(BYTES + 1, NULL);
    for (size_t i = 0; i < 2; i++) {
        if (!is_built(both[i])) continue;
        struct packed packed = pack(both[i], bytes);
        struct sy_error err = {0};
        cr_assert(syi_compression_of(packed.bytes, packed.n) == both[i]);
        cr_assert(syi_decompress(both[i], packed.bytes, packed.n, back, BYTES, NULL) == SY_OK);
        cr_assert(!memcmp(back, bytes, BYTES));
        cr_assert(syi_decompress(both[i], packed.bytes, packed.n, back, BYTES + 1, &err) == SY_EFORMAT);
        cr_assert(strstr(err.text, "fewer bytes than expected"), "%s", err.text);
        cr_assert(syi_decompress(both[i], packed.bytes, packed.n, back, BYTES - 1, NULL) == SY_EFORMAT);
        cr_assert(syi_decompress(both[i], packed.bytes, packed.n, back, 0, NULL) == SY_EFORMAT);
        cr_assert(syi_decompress(both[i], packed.bytes, packed.n - 1, back, BYTES, NULL) == SY_EFORMAT);
        packed.bytes[packed.n / 4] ^= 1;
        cr_assert(syi_decompress(both[i], packed.bytes, packed.n, back, BYTES, NULL) == SY_EFORMAT);
        syi_free(packed.bytes);
    }
    syi_free(bytes);
    syi_free(back);
}

Test(base_compress, empty_blocks)
{
    for (size_t i = 0; i < 2; i++) {
        void *packed = NULL;
        size_t n = 0;
        if (!is_built(both[i])) continue;
        cr_assert(syi_compress(both[i], 1, "", 0, &packed, &n, NULL) == SY_OK && n > 0);
        cr_assert(syi_decompress(both[i], packed, n, NULL, 0, NULL) == SY_OK);
        cr_assert(syi_decompress(both[i], packed, n - 1, NULL, 0, NULL) == SY_EFORMAT);
        syi_free(packed);
    }
}

Test(base_compress, files_in_pieces)
{
    static const size_t steps[] = {BYTES + 1, 4096, 997};
    unsigned char *bytes = some_bytes(), *back = syi_alloc(BYTES + 1, NULL);
    size_t n;
    for (size_t i = 0; i < 2; i++) {
        if (!is_built(both[i])) continue;
        struct packed packed = pack(both[i], bytes);
        const char *path = write_file(packed.bytes, packed.n);
        for (size_t s = 0; s < SYI_COUNT(steps); s++) {
            cr_assert(read_back(path, steps[s], back, &n, NULL) == SY_OK);
            cr_assert(n == BYTES && !memcmp(back, bytes, n));
        }
        unlink(path);
        syi_free(packed.bytes);
    }
    const char *path = write_file(bytes, BYTES);
    cr_assert(read_back(path, 997, back, &n, NULL) == SY_OK && n == BYTES && !memcmp(back, bytes, n));
    path = write_file(bytes, 0);
    cr_assert(read_back(path, 997, back, &n, NULL) == SY_OK && n == 0);
    unlink(path);
    syi_free(bytes);
    syi_free(back);
}

/* Blocks of a tape are filled up with zeros: after the last member, or before another. What else follows is an error. */
Test(base_compress, zeros_after_a_member)
{
    enum { ZEROS = 200000 };
    unsigned char *bytes = some_bytes(), *back = syi_alloc(BYTES + 1, NULL),
                  *file = syi_alloc(ZEROS + 2000, NULL);
    void *one;
    size_t n, length;
    if (!is_built(SYI_COMPRESSION_GZIP)) cr_skip_test("this build has no gzip");
    cr_assert(syi_compress(SYI_COMPRESSION_GZIP, 3, bytes, 1000, &one, &length, NULL) == SY_OK &&
              length < 1000);
    memcpy(file, one, length);
    const char *path = write_file(file, length + ZEROS);
    cr_assert(read_back(path, 997, back, &n, NULL) == SY_OK && n == 1000 && !memcmp(back, bytes, n));
    memcpy(file + length + ZEROS, one, length);
    path = write_file(file, ZEROS + 2 * length);
    cr_assert(read_back(path, 997, back, &n, NULL) == SY_OK && n == 2000 &&
              !memcmp(back + 1000, bytes, 1000));
    file[length + ZEROS] = 'x';
    path = write_file(file, length + ZEROS + 1);
    cr_assert(read_back(path, 997, back, &n, NULL) == SY_EFORMAT);
    unlink(path);
    syi_free(one);
    syi_free(file);
    syi_free(bytes);
    syi_free(back);
}

/* Wherever a file is cut off or changed, reading it ends in an error that names it. */
Test(base_compress, damaged_files)
{
    unsigned char *bytes = some_bytes(), *back = syi_alloc(BYTES + 1, NULL);
    size_t n;
    for (size_t i = 0; i < 2; i++) {
        if (!is_built(both[i])) continue;
        void *one;
        size_t bytes_of_one;
        cr_assert(syi_compress(both[i], 3, bytes, BYTES, &one, &bytes_of_one, NULL) == SY_OK);
        for (size_t cut = 4; cut < bytes_of_one; cut += bytes_of_one / 7) {
            struct sy_error err = {0};
            const char *path = write_file(one, cut);
            cr_assert(read_back(path, 10000, back, &n, &err) == SY_EFORMAT, "%zu of %zu bytes", cut,
                      bytes_of_one);
            cr_assert(strstr(err.text, path) && strstr(err.text, "cut off"), "%s", err.text);
            unlink(path);
        }
        struct packed packed = pack(both[i], bytes);
        packed.bytes[bytes_of_one - 1] ^= 1;
        memset(packed.bytes + packed.n - 9, 'x', 9);
        const char *path = write_file(packed.bytes, packed.n);
        cr_assert(read_back(path, 10000, back, &n, NULL) == SY_EFORMAT);
        unlink(path);
        syi_free(packed.bytes);
        syi_free(one);
    }
    syi_free(bytes);
    syi_free(back);
}

Test(base_compress, without_the_library)
{
    for (size_t i = 0; i < 2; i++) {
        struct sy_error err = {0};
        if (is_built(both[i])) continue;
        cr_assert(syi_decompress(both[i], "", 0, NULL, 0, &err) == SY_EUNSUPPORTED);
        cr_assert(strstr(err.text, "install"), "%s", err.text);
    }
}

Test(base_compress, files_that_are_not_there)
{
    struct syi_inflow in;
    cr_assert(syi_inflow_open(&in, "nowhere/file", NULL) == SY_ENOENT);
    syi_inflow_close(&in);
}
