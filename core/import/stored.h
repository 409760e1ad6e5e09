/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a folder's weight files, whatever container each is in: a table of names, types, extents and places.
 * Elements are read one tensor at a time. */
#ifndef SYI_STORED_H
#define SYI_STORED_H

#include "base/safetensors.h"

struct syi_stored_tensor {
    char *name; /* owned */
    enum syi_safetensors_dtype dtype;
    int rank;
    int64_t dims[SYI_SAFETENSORS_RANK], stride[SYI_SAFETENSORS_RANK]; /* [rank] in elements */
    int file;                                                         /* index */
    uint64_t offset; /* of the first element, bytes from the file's start */
    int used;        /* the importer's mark */
};

struct syi_stored_file {
    char *path; /* owned */
    int fd;
    uint64_t bytes;
};

/* Start from {0}. */
struct syi_stored {
    struct syi_stored_file *file;     /* [n_files] */
    struct syi_stored_tensor *tensor; /* [n_tensors], in the order of their names after syi_stored_sort */
    size_t n_files, file_capacity, n_tensors, tensor_capacity;
};

/* Adds all tensors of a file: safetensors, or what torch.save wrote (torch_file.c). All that is found lies in the file. */
int syi_stored_add_safetensors(struct syi_stored *stored, const char *path,
                               struct sy_error *err) SYI_MUST_CHECK;
int syi_stored_add_torch(struct syi_stored *stored, const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* After the last file: by name; SY_EFORMAT where two have one name. */
int syi_stored_sort(struct syi_stored *stored, struct sy_error *err) SYI_MUST_CHECK;
void syi_stored_free(struct syi_stored *stored);
/* NULL: there is none. Borrowed. */
struct syi_stored_tensor *syi_stored_find(const struct syi_stored *stored, const char *name);
/* Elements in C order, dense. transposed: of a matrix [m,n], those of [n,m]. */
int syi_stored_read(const struct syi_stored *stored, const struct syi_stored_tensor *tensor, int transposed,
                    void *to, struct sy_error *err) SYI_MUST_CHECK;
/* *same: both have the same type, extents and elements. */
int syi_stored_compare(const struct syi_stored *stored, const struct syi_stored_tensor *a,
                       const struct syi_stored_tensor *b, int *same, struct sy_error *err) SYI_MUST_CHECK;

/* ---- for containers ---- */

/* Opens a file for syi_stored_add_*; its index is n_files - 1 then. */
int syi_stored_open(struct syi_stored *stored, const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* Adds a tensor; takes the name over, also on failure. */
int syi_stored_add(struct syi_stored *stored, const struct syi_stored_tensor *tensor,
                   struct sy_error *err) SYI_MUST_CHECK;
/* All of these bytes of the file, or an error. */
int syi_stored_bytes(const struct syi_stored_file *file, uint64_t offset, void *to, size_t bytes,
                     struct sy_error *err) SYI_MUST_CHECK;

#endif
