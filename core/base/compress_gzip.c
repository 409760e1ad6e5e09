/* SPDX-License-Identifier: Apache-2.0 */
/* gzip by zlib, whose counts of bytes have 32 bits: longer pieces are given to it in parts. */
#include "config.h"

#include "base/compress_library.h"

#if SYI_HAS_ZLIB
#    include <zlib.h>

enum { GZIP_ONLY = 16, LARGEST_WINDOW = 15, MEMORY = 8, PART = 1 << 30 };

static void *gzip_open(void)
{
    z_stream *z = syi_alloc(sizeof *z, NULL);
    if (!z || inflateInit2(z, GZIP_ONLY + LARGEST_WINDOW) == Z_OK) return z;
    syi_free(z);
    return NULL;
}

static void gzip_close(void *state)
{
    inflateEnd(state);
    syi_free(state);
}

static uInt part(size_t bytes)
{
    return bytes < PART ? (uInt)bytes : PART;
}

static void give(z_stream *z, const struct syi_pieces *pieces)
{
    z->next_in = (Bytef *)pieces->from;
    z->avail_in = part(pieces->from_bytes);
    z->next_out = pieces->to;
    z->avail_out = part(pieces->to_bytes);
}

static void take_off(const z_stream *z, struct syi_pieces *pieces)
{
    pieces->from_bytes -= (size_t)(z->next_in - pieces->from);
    pieces->from = z->next_in;
    pieces->to_bytes -= (size_t)(z->next_out - pieces->to);
    pieces->to = z->next_out;
}

/* Zeros after a member fill up a block of a tape, and are no member: gzip passes over them, too. */
static void skip_padding(struct syi_pieces *pieces)
{
    while (pieces->from_bytes && !*pieces->from) pieces->from++, pieces->from_bytes--;
}

static const char *gzip_decompress(void *state, struct syi_pieces *pieces, int *whole)
{
    z_stream *z = state;
    if (*whole) skip_padding(pieces);
    if (*whole && !pieces->from_bytes) return NULL;
    if (*whole && inflateReset(z) != Z_OK) return "zlib cannot begin another member";
    give(z, pieces);
    int result = inflate(z, Z_NO_FLUSH);
    take_off(z, pieces);
    *whole = result == Z_STREAM_END;
    /* Z_BUF_ERROR: nothing could be done, which the caller sees by the pieces. */
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return NULL;
    return z->msg ? z->msg : zError(result);
}

/* deflateBound's for any settings, and the header and trailer of gzip. */
static size_t gzip_bound(size_t n)
{
    return compressBound((uLong)n) + 64;
}

static const char *gzip_compress(int level, struct syi_pieces *pieces)
{
    z_stream z = {0};
    int result = deflateInit2(&z, level, Z_DEFLATED, GZIP_ONLY + LARGEST_WINDOW, MEMORY, Z_DEFAULT_STRATEGY);
    if (result != Z_OK) return zError(result);
    while (result == Z_OK) {
        give(&z, pieces);
        result = deflate(&z, pieces->from_bytes > PART ? Z_NO_FLUSH : Z_FINISH);
        take_off(&z, pieces);
    }
    deflateEnd(&z);
    return result == Z_STREAM_END ? NULL : zError(result);
}

#endif

const struct syi_compression_library syi_library_gzip = {
    .format = "gzip",
    .library = "zlib",
    .package = "zlib1g-dev or zlib-devel",
#if SYI_HAS_ZLIB
    .open = gzip_open,
    .close = gzip_close,
    .decompress = gzip_decompress,
    .bound = gzip_bound,
    .compress = gzip_compress,
#endif
};
