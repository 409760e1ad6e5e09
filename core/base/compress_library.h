/* SPDX-License-Identifier: Apache-2.0 */
/* What compress.c needs of a library of compression: one structure each, compress_gzip.c and compress_zstd.c. */
#ifndef SYI_COMPRESS_LIBRARY_H
#define SYI_COMPRESS_LIBRARY_H

#include "base/compress.h"

/* Bytes on their way through a library: what is used of `from` and filled of `to` is taken off. */
struct syi_pieces {
    const unsigned char *from;
    size_t from_bytes;
    unsigned char *to; /* not NULL */
    size_t to_bytes;
};

struct syi_compression_library {
    const char *format, *library, *package; /* for messages; package: names of Debian's and Fedora's */
    /* The functions are NULL where configure did not find the library. */
    void *(*open)(void); /* state that decompresses; NULL: memory is short */
    void (*close)(void *state);
    /* Decompresses what there is and fits. *whole: 1 after the last byte of a member (frame), 0 inside one. Returns NULL, or
     * in words what is wrong with the bytes. */
    const char *(*decompress)(void *state, struct syi_pieces *pieces, int *whole);
    /* Most bytes that n can become. */
    size_t (*bound)(size_t n);
    /* One member of all of pieces->from, to_bytes being bound(from_bytes). As decompress. */
    const char *(*compress)(int level, struct syi_pieces *pieces);
};
extern const struct syi_compression_library syi_library_gzip, syi_library_zstd;

#endif
