/* SPDX-License-Identifier: Apache-2.0 */
/* gzip (RFC 1952) and zstd (RFC 8878) through the system's zlib and libzstd, where configure found them. Without the
 * library a function returns SY_EUNSUPPORTED, and its message says which package to install. */
#ifndef SYI_COMPRESS_H
#define SYI_COMPRESS_H

#include "base/base.h"

enum syi_compression { SYI_COMPRESSION_NONE, SYI_COMPRESSION_GZIP, SYI_COMPRESSION_ZSTD };

enum { SYI_COMPRESSION_MAGIC = 4 }; /* bytes that tell */
/* By how a file or block begins; NONE also where n is less than the magic number's bytes. */
enum syi_compression syi_compression_of(const void *begin, size_t n);

/* Which of them this build has, in one line. */
const char *syi_compression_libraries(void);

/* A block in memory of which the size is known: exactly to_bytes come out and all of `from` is used, else SY_EFORMAT.
 * Of several members or frames one after the other too. The message has no place in it, the caller adds it. */
int syi_decompress(enum syi_compression compression, const void *from, size_t from_bytes, void *to,
                   size_t to_bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Into fresh memory, owned by the caller: syi_free. level: of the library's. With a checksum,
 * so that syi_decompress sees changed bytes. */
int syi_compress(enum syi_compression compression, int level, const void *from, size_t from_bytes, void **to,
                 size_t *to_bytes, struct sy_error *err) SYI_MUST_CHECK;

/* A file read from its beginning in pieces, decompressed if it is compressed; constant memory. */
struct syi_inflow {
    char *path; /* for messages */
    int fd;     /* -1: none */
    enum syi_compression compression;
    void *library; /* state of the library */
    unsigned char *buffer;
    size_t begin, end; /* of the bytes in buffer that are not used yet */
    int ended;         /* the file has no more bytes */
    int whole;         /* all members or frames begun so far are complete */
};
/* Owned by the caller: syi_inflow_close, also of a zeroed one and after a failure here. */
int syi_inflow_open(struct syi_inflow *inflow, const char *path, struct sy_error *err) SYI_MUST_CHECK;
void syi_inflow_close(struct syi_inflow *inflow);
/* *n: up to `bytes` were read, 0: the end. SY_EFORMAT: damaged or cut off, the message names the file. */
int syi_inflow_read(struct syi_inflow *inflow, void *to, size_t bytes, size_t *n,
                    struct sy_error *err) SYI_MUST_CHECK;

#endif
