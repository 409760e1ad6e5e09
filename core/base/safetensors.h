/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: 8 bytes of header length (little endian), a JSON header, then the tensors' data, little
 * endian, C order, without holes. One struct serves reading and writing: it holds the sorted table of
 * tensors. Data go through pread and pwrite at their final place, so several threads or ranks can read and
 * write parts of one file at once. Not thread-safe: open, create, attach, close. */
#ifndef SYI_SAFETENSORS_H
#define SYI_SAFETENSORS_H

#include "base/json.h"
#include "base/threads.h"
#include "switchyard/backend.h"

/* X(name in the file and of the constant, bytes of an element) */
#define SYI_SAFETENSORS_DTYPE_MAP(X)                                                                         \
    X(BOOL, 1)                                                                                               \
    X(U8, 1)                                                                                                 \
    X(I8, 1)                                                                                                 \
    X(F8_E4M3, 1)                                                                                            \
    X(F8_E5M2, 1)                                                                                            \
    X(I16, 2)                                                                                                \
    X(U16, 2)                                                                                                \
    X(F16, 2)                                                                                                \
    X(BF16, 2)                                                                                               \
    X(I32, 4)                                                                                                \
    X(U32, 4)                                                                                                \
    X(F32, 4)                                                                                                \
    X(I64, 8)                                                                                                \
    X(U64, 8)                                                                                                \
    X(F64, 8)

enum syi_safetensors_dtype {
#define SYI_SAFETENSORS_ENUM(name, bytes) SYI_SAFETENSORS_##name,
    SYI_SAFETENSORS_DTYPE_MAP(SYI_SAFETENSORS_ENUM)
#undef SYI_SAFETENSORS_ENUM
};

enum { SYI_SAFETENSORS_RANK = 8 }; /* most dimensions accepted */

struct syi_safetensors_tensor {
    const char *name; /* borrowed from the file's struct; in a plan from the caller */
    enum syi_safetensors_dtype dtype;
    int rank;                           /* 0 to SYI_SAFETENSORS_RANK */
    int64_t dims[SYI_SAFETENSORS_RANK]; /* [rank] */
    uint64_t offset;                    /* of its first byte in the data section; ignored in a plan's list */
    uint64_t bytes;                     /* elements times bytes of an element; ignored in a plan's list */
};

struct syi_safetensors_pair {
    const char *key, *value; /* one entry of __metadata__ */
};

enum { SYI_SAFETENSORS_MIB = 1 << 20 }; /* bytes */

struct syi_safetensors {
    char *path;             /* for messages; NULL in a plan not yet opened */
    int fd;                 /* -1 when none is open */
    struct syi_json header; /* the parsed header: holds names and metadata */
    char *header_text;      /* length, JSON and padding as they stand in the file; plans only */
    uint64_t data_start;    /* offset of the data section in the file, bytes */
    uint64_t data_bytes;    /* of the data section */
    struct syi_safetensors_tensor *tensors; /* [n_tensors], sorted by name */
    size_t n_tensors;
    /* How far the file's only writer has come, for whoever hashes it meanwhile: whole MiB of the data section, from its
     * begin on; all bits: no more will be written. Borrowed; NULL: all is. */
    struct syi_gate *written;
};

size_t syi_safetensors_element_bytes(enum syi_safetensors_dtype dtype);
/* That of a tensor of a program. */
enum syi_safetensors_dtype syi_safetensors_dtype_of(enum sy_dtype dtype);
const char *syi_safetensors_dtype_name(enum syi_safetensors_dtype dtype);

/* Opens a file for reading and checks its whole header: what it returns holds only tensors that are inside
 * the file, one after the other. On success the caller owns file: syi_safetensors_close. */
int syi_safetensors_open(struct syi_safetensors *file, const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* Safe on a zeroed struct and twice. Does not sync. */
void syi_safetensors_close(struct syi_safetensors *file);

/* NULL when there is none of this name. Borrowed from file. */
const struct syi_safetensors_tensor *syi_safetensors_find(const struct syi_safetensors *file,
                                                          const char *name);
/* Text of a __metadata__ entry, NULL when absent. Borrowed from file. */
const char *syi_safetensors_metadata(const struct syi_safetensors *file, const char *key);

/* Copies bytes [offset, offset + bytes) of a tensor from or to memory. */
int syi_safetensors_read(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                         uint64_t offset, void *data, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
int syi_safetensors_write(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                          uint64_t offset, const void *data, size_t bytes,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Elements [first, first + n) of a tensor of F32 or BF16, as float32. Others are SY_EUNSUPPORTED. */
int syi_safetensors_read_floats(const struct syi_safetensors *file,
                                const struct syi_safetensors_tensor *tensor, uint64_t first, float *values,
                                size_t n, struct sy_error *err) SYI_MUST_CHECK;
/* Copies the block start[d] .. start[d] + extent[d] of every dimension; data is that block alone, dense in C
 * order. */
int syi_safetensors_read_block(const struct syi_safetensors *file,
                               const struct syi_safetensors_tensor *tensor, const int64_t *start,
                               const int64_t *extent, void *data, struct sy_error *err) SYI_MUST_CHECK;
int syi_safetensors_write_block(const struct syi_safetensors *file,
                                const struct syi_safetensors_tensor *tensor, const int64_t *start,
                                const int64_t *extent, const void *data, struct sy_error *err) SYI_MUST_CHECK;

/* Computes header and offsets of a file to be written: tensors sorted by name, data in that order, data
 * section on a multiple of 8 bytes. The same lists give the same bytes on every rank. No file is touched.
 * metadata may be NULL. */
int syi_safetensors_plan(struct syi_safetensors *file, const struct syi_safetensors_tensor *list,
                         size_t n_tensors, const struct syi_safetensors_pair *metadata, size_t n_metadata,
                         struct sy_error *err) SYI_MUST_CHECK;
/* Of a plan: one rank creates the file in its full size (an old one of this name is emptied), all others
 * attach to it after a barrier; then everybody writes its own parts and finishes (fsync). */
int syi_safetensors_create(struct syi_safetensors *file, const char *path,
                           struct sy_error *err) SYI_MUST_CHECK;
int syi_safetensors_attach(struct syi_safetensors *file, const char *path,
                           struct sy_error *err) SYI_MUST_CHECK;
int syi_safetensors_finish(struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;
/* Its writer's word that the first `bytes` of the data section are written; UINT64_MAX: that it writes no more, whether it
 * has written all or not. Nothing where nobody waits (file->written). */
void syi_safetensors_wrote(const struct syi_safetensors *file, uint64_t bytes);

/* Parses a header (JSON alone) into file->tensors; path and data_bytes are set before. For reader and
 * planner. */
int syi_safetensors_parse_header(struct syi_safetensors *file, const char *text, size_t bytes,
                                 struct sy_error *err) SYI_MUST_CHECK;

/* SHA-256 of the data section, and of all that stands before it (length, names, types, shapes, padding), read
 * back from the file. Together they cover every byte; data are hashed once. sums: NULL, or the CRC-32C of each tensor's
 * data, [n_tensors] as file->tensors, from the same reading. */
int syi_safetensors_hash(const struct syi_safetensors *file, char hex[65], uint32_t *sums,
                         struct sy_error *err) SYI_MUST_CHECK;
int syi_safetensors_hash_header(const struct syi_safetensors *file, char hex[65],
                                struct sy_error *err) SYI_MUST_CHECK;

#endif
