/* SPDX-License-Identifier: Apache-2.0 */
/* zstd by libzstd. Frames whose window is over its limit (128 MiB: `zstd --long=28` and more) are refused by it. */
#include "config.h"

#include "base/compress_library.h"

#if SYI_HAS_ZSTD
#    include <zstd.h>

static void *zstd_open(void)
{
    return ZSTD_createDStream();
}

static void zstd_close(void *state)
{
    ZSTD_freeDStream(state);
}

static const char *zstd_decompress(void *state, struct syi_pieces *pieces, int *whole)
{
    ZSTD_inBuffer in = {pieces->from, pieces->from_bytes, 0};
    ZSTD_outBuffer out = {pieces->to, pieces->to_bytes, 0};
    size_t left = ZSTD_decompressStream(state, &out, &in);
    if (ZSTD_isError(left)) return ZSTD_getErrorName(left);
    pieces->from += in.pos;
    pieces->from_bytes -= in.pos;
    pieces->to += out.pos;
    pieces->to_bytes -= out.pos;
    *whole = left == 0;
    return NULL;
}

/* A frame's checksum and header may come on top of what ZSTD_compressBound counts. */
static size_t zstd_bound(size_t n)
{
    return ZSTD_compressBound(n) + 64;
}

static const char *zstd_compress(int level, struct syi_pieces *pieces)
{
    ZSTD_CCtx *state = ZSTD_createCCtx();
    if (!state) return "out of memory";
    ZSTD_CCtx_setParameter(state, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
    size_t bytes = ZSTD_compress2(state, pieces->to, pieces->to_bytes, pieces->from, pieces->from_bytes);
    ZSTD_freeCCtx(state);
    if (ZSTD_isError(bytes)) return ZSTD_getErrorName(bytes);
    pieces->from += pieces->from_bytes;
    pieces->from_bytes = 0;
    pieces->to += bytes;
    pieces->to_bytes -= bytes;
    return NULL;
}

#endif

const struct syi_compression_library syi_library_zstd = {
    .format = "zstd",
    .library = "libzstd",
    .package = "libzstd-dev or libzstd-devel",
#if SYI_HAS_ZSTD
    .open = zstd_open,
    .close = zstd_close,
    .decompress = zstd_decompress,
    .bound = zstd_bound,
    .compress = zstd_compress,
#endif
};
