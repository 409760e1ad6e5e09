/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed blocks and files, the same way for every library (compress_library.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/compress.h"
#include "base/compress_library.h"

enum { BUFFER = 1 << 17 }; /* bytes of a file read at once */

enum syi_compression syi_compression_of(const void *begin, size_t n)
{
    const unsigned char *b = begin;
    if (n >= 3 && b[0] == 0x1f && b[1] == 0x8b && b[2] == 8) return SYI_COMPRESSION_GZIP;
    if (n < 4) return SYI_COMPRESSION_NONE;
    if (b[0] == 0x28 && b[1] == 0xb5 && b[2] == 0x2f && b[3] == 0xfd) return SYI_COMPRESSION_ZSTD;
    /* A frame to be skipped, with which parallel compressors begin. */
    if (b[0] >> 4 == 5 && b[1] == 0x2a && b[2] == 0x4d && b[3] == 0x18) return SYI_COMPRESSION_ZSTD;
    return SYI_COMPRESSION_NONE;
}

const char *syi_compression_libraries(void)
{
    if (syi_library_gzip.open && syi_library_zstd.open) return "gzip (zlib), zstd (libzstd)";
    if (syi_library_gzip.open) return "gzip (zlib)";
    return syi_library_zstd.open ? "zstd (libzstd)" : "none";
}

/* Of GZIP and ZSTD. */
static const struct syi_compression_library *library_of(enum syi_compression compression)
{
    return compression == SYI_COMPRESSION_GZIP ? &syi_library_gzip : &syi_library_zstd;
}

static int need(const struct syi_compression_library *library, const char *what, struct sy_error *err)
{
    if (library->open) return SY_OK;
    return syi_error(
        err, SY_EUNSUPPORTED,
        "%s: this switchyard was built without %s, which %s needs: install %s, then configure and build "
        "it again",
        what, library->library, library->format, library->package);
}

/* Fills pieces->to from pieces->from, all of both, to the end of a member. NULL, or what is wrong. */
static const char *decompress_all(const struct syi_compression_library *library, void *state,
                                  struct syi_pieces *pieces)
{
    int whole = 1;
    while (pieces->from_bytes || !whole) {
        unsigned char extra;
        int full = pieces->to_bytes == 0;
        struct syi_pieces next = *pieces;
        if (full) { /* what still comes must be the end, without a byte of text */
            next.to = &extra;
            next.to_bytes = 1;
        }
        const char *why = library->decompress(state, &next, &whole);
        if (why) return why;
        if (full && next.to_bytes == 0) return "more bytes than expected";
        if (next.from_bytes == pieces->from_bytes && (full || next.to_bytes == pieces->to_bytes) && !whole)
            return "it is cut off";
        pieces->from = next.from;
        pieces->from_bytes = next.from_bytes;
        if (full) continue;
        pieces->to = next.to;
        pieces->to_bytes = next.to_bytes;
    }
    return pieces->to_bytes ? "fewer bytes than expected" : NULL;
}

int syi_decompress(enum syi_compression compression, const void *from, size_t from_bytes, void *to,
                   size_t to_bytes, struct sy_error *err)
{
    const struct syi_compression_library *library = library_of(compression);
    unsigned char none;
    struct syi_pieces pieces = {from, from_bytes, to ? to : &none, to_bytes};
    if (compression == SYI_COMPRESSION_NONE) {
        if (from_bytes != to_bytes)
            return syi_error(err, SY_EFORMAT, "a block of %zu bytes where %zu are expected", from_bytes,
                             to_bytes);
        if (to_bytes) memcpy(to, from, to_bytes);
        return SY_OK;
    }
    int status = need(library, "a compressed block", err);
    if (status) return status;
    void *state = library->open();
    if (!state) return syi_error(err, SY_ENOMEM, "out of memory for %s", library->library);
    const char *why = decompress_all(library, state, &pieces);
    library->close(state);
    return why ? syi_error(err, SY_EFORMAT, "damaged %s data (%s)", library->format, why) : SY_OK;
}

int syi_compress(enum syi_compression compression, int level, const void *from, size_t from_bytes, void **to,
                 size_t *to_bytes, struct sy_error *err)
{
    const struct syi_compression_library *library = library_of(compression);
    size_t room = from_bytes;
    *to = NULL;
    if (compression != SYI_COMPRESSION_NONE) {
        int status = need(library, "compression", err);
        if (status) return status;
        room = library->bound(from_bytes);
    }
    *to = syi_alloc(room ? room : 1, err);
    if (!*to) return SY_ENOMEM;
    *to_bytes = room;
    if (compression == SYI_COMPRESSION_NONE) {
        if (from_bytes) memcpy(*to, from, from_bytes);
        return SY_OK;
    }
    struct syi_pieces pieces = {from, from_bytes, *to, room};
    const char *why = library->compress(level, &pieces);
    *to_bytes = room - pieces.to_bytes;
    if (!why) return SY_OK;
    syi_free(*to);
    *to = NULL;
    return syi_error(err, SY_EINTERNAL, "%s cannot compress %zu bytes: %s", library->library, from_bytes,
                     why);
}

/* ---- files ---- */

/* Adds bytes of the file after those in the buffer, which are fewer than it holds. */
static int refill(struct syi_inflow *in, struct sy_error *err)
{
    ssize_t got;
    do got = read(in->fd, in->buffer + in->end, BUFFER - in->end);
    while (got < 0 && errno == EINTR);
    if (got < 0) return syi_error_system(err, "cannot read %s", in->path);
    in->end += (size_t)got;
    in->ended = got == 0;
    return SY_OK;
}

int syi_inflow_open(struct syi_inflow *in, const char *path, struct sy_error *err)
{
    int status = SY_OK;
    *in = (struct syi_inflow){.fd = -1, .whole = 1, .path = syi_strdup(path, err)};
    in->buffer = in->path ? syi_alloc(BUFFER, err) : NULL;
    if (!in->buffer) return SY_ENOMEM;
    in->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0) return syi_error_system(err, "cannot open %s", path);
    while (!status && !in->ended && in->end < SYI_COMPRESSION_MAGIC) status = refill(in, err);
    if (status) return status;
    in->compression = syi_compression_of(in->buffer, in->end);
    if (in->compression == SYI_COMPRESSION_NONE) return SY_OK;
    const struct syi_compression_library *library = library_of(in->compression);
    status = need(library, path, err);
    if (status) return status;
    in->library = library->open();
    return in->library ? SY_OK
                       : syi_error(err, SY_ENOMEM, "%s: out of memory for %s", path, library->library);
}

void syi_inflow_close(struct syi_inflow *in)
{
    if (in->library) library_of(in->compression)->close(in->library);
    if (in->path && in->fd >= 0) close(in->fd);
    syi_free(in->path);
    syi_free(in->buffer);
    *in = (struct syi_inflow){.fd = -1};
}

static int damaged(const struct syi_inflow *in, const char *why, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%s: damaged %s data (%s); copy or make the file again", in->path,
                     library_of(in->compression)->format, why);
}

/* What the library makes of the bytes in the buffer. */
static int read_compressed(struct syi_inflow *in, void *to, size_t bytes, size_t *n, struct sy_error *err)
{
    const struct syi_compression_library *library = library_of(in->compression);
    struct syi_pieces pieces = {in->buffer + in->begin, in->end - in->begin, to, bytes};
    const char *why = library->decompress(in->library, &pieces, &in->whole);
    if (why) return damaged(in, why, err);
    in->begin = in->end - pieces.from_bytes;
    *n = bytes - pieces.to_bytes;
    return SY_OK;
}

static size_t read_plain(struct syi_inflow *in, void *to, size_t bytes)
{
    size_t n = in->end - in->begin < bytes ? in->end - in->begin : bytes;
    memcpy(to, in->buffer + in->begin, n);
    in->begin += n;
    return n;
}

int syi_inflow_read(struct syi_inflow *in, void *to, size_t bytes, size_t *n, struct sy_error *err)
{
    for (*n = 0; bytes && *n == 0;) {
        if (in->begin == in->end && !in->ended) {
            in->begin = in->end = 0;
            int status = refill(in, err);
            if (status) return status;
        }
        size_t before = in->end - in->begin;
        if (before == 0 && in->whole) break;
        if (in->compression == SYI_COMPRESSION_NONE) {
            *n = read_plain(in, to, bytes);
            continue;
        }
        int status = read_compressed(in, to, bytes, n, err);
        if (status) return status;
        if (*n == 0 && before == 0 && !in->whole) return damaged(in, "it is cut off", err);
    }
    return SY_OK;
}
