/* SPDX-License-Identifier: Apache-2.0 */
/* zarr 2 arrays as tensorstore writes them: a folder with .zarray, which says what is in it, and a file for each chunk,
 * named by the chunk's place, each compressed by itself. Elements are in C order, little endian. */
#ifndef SYI_ZARR_H
#define SYI_ZARR_H

#include "base/compress.h"
#include "base/safetensors.h"

struct syi_zarr {
    char *folder; /* owned */
    enum syi_safetensors_dtype dtype;
    int rank;                           /* 0 to SYI_SAFETENSORS_RANK */
    int64_t dims[SYI_SAFETENSORS_RANK]; /* [rank] each at least 1 */
    int64_t
        chunk[SYI_SAFETENSORS_RANK]; /* [rank] extents of a chunk; the last one of a dim may reach over it */
    enum syi_compression compression;
    int level;      /* of the compression, for writing */
    char separator; /* between the numbers of a chunk's name */
};

/* Reads .zarray alone: `text` of `bytes`, `what` for messages. zarr->folder stays NULL. Other orders, filters, dtypes
 * and compressors than those above are SY_EUNSUPPORTED. */
int syi_zarr_parse(struct syi_zarr *zarr, const char *what, const char *text, size_t bytes,
                   struct sy_error *err) SYI_MUST_CHECK;
/* The array in `folder`. Every chunk must be there, whatever fill_value is, and large enough to hold its elements, so that
 * what a damaged .zarray says is not believed. The caller closes it, after a failure too. */
int syi_zarr_open(struct syi_zarr *zarr, const char *folder, struct sy_error *err) SYI_MUST_CHECK;
void syi_zarr_close(struct syi_zarr *zarr); /* safe when zeroed */
/* Bytes of all elements; of another array than one that was opened maybe SYI_TOO_LARGE. */
uint64_t syi_zarr_bytes(const struct syi_zarr *zarr);
/* All elements, dense. */
int syi_zarr_read(const struct syi_zarr *zarr, void *to, struct sy_error *err) SYI_MUST_CHECK;

/* Makes zarr->folder, which must not exist, and writes all elements; chunk and separator are chosen here:
 * chunks divide the dims and have at most 64 MiB where that can be. Everything is synced. */
int syi_zarr_write(struct syi_zarr *zarr, const void *from, struct sy_error *err) SYI_MUST_CHECK;

#endif
