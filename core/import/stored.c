/* SPDX-License-Identifier: Apache-2.0 */
/* See stored.h: files, names, elements. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "import/stored.h"

/* ---- files ---- */

int syi_stored_open(struct syi_stored *stored, const char *path, struct sy_error *err)
{
    struct stat info;
    int status = SYI_GROW(stored->file, stored->file_capacity, stored->n_files + 1, err);
    if (status) return status;
    struct syi_stored_file *file = &stored->file[stored->n_files];
    file->path = syi_strdup(path, err);
    if (!file->path) return SY_ENOMEM;
    stored->n_files++;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not block */
    if (file->fd < 0 || fstat(file->fd, &info)) return syi_error_system(err, "cannot open %s", path);
    if (!S_ISREG(info.st_mode)) return syi_error(err, SY_EFORMAT, "%s is no regular file", path);
    file->bytes = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    return SY_OK;
}

int syi_stored_bytes(const struct syi_stored_file *file, uint64_t offset, void *to, size_t bytes,
                     struct sy_error *err)
{
    char *at = to;
    while (bytes) {
        int status = syi_interrupted(err);
        if (status) return status;
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return syi_error_system(err, "cannot read %s", file->path);
        if (!got) return syi_error(err, SY_EFORMAT, "%s ends too early: it is truncated", file->path);
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return SY_OK;
}

void syi_stored_free(struct syi_stored *stored)
{
    for (size_t i = 0; i < stored->n_files; i++) {
        if (stored->file[i].fd >= 0) close(stored->file[i].fd);
        syi_free(stored->file[i].path);
    }
    for (size_t i = 0; i < stored->n_tensors; i++) syi_free(stored->tensor[i].name);
    syi_free(stored->file);
    syi_free(stored->tensor);
    memset(stored, 0, sizeof *stored);
}

/* ---- names ---- */

int syi_stored_add(struct syi_stored *stored, const struct syi_stored_tensor *tensor, struct sy_error *err)
{
    int status = SYI_GROW(stored->tensor, stored->tensor_capacity, stored->n_tensors + 1, err);
    if (status)
        syi_free(tensor->name);
    else
        stored->tensor[stored->n_tensors++] = *tensor;
    return status;
}

static int add_one(struct syi_stored *stored, const struct syi_safetensors_tensor *from, uint64_t data_start,
                   struct sy_error *err)
{
    struct syi_stored_tensor to = {.name = syi_strdup(from->name, err),
                                   .dtype = from->dtype,
                                   .rank = from->rank,
                                   .file = (int)stored->n_files - 1,
                                   .offset = data_start + from->offset};
    int64_t stride = 1;
    if (!to.name) return SY_ENOMEM;
    for (int d = from->rank - 1; d >= 0; d--) {
        to.dims[d] = from->dims[d];
        to.stride[d] = stride;
        if (from->bytes) stride *= from->dims[d]; /* else there are no elements, and products mean nothing */
    }
    return syi_stored_add(stored, &to, err);
}

int syi_stored_add_safetensors(struct syi_stored *stored, const char *path, struct sy_error *err)
{
    struct syi_safetensors file;
    int status = syi_stored_open(stored, path, err);
    if (!status) status = syi_safetensors_open(&file, path, err);
    if (status) return status;
    for (size_t i = 0; i < file.n_tensors && !status; i++)
        status = add_one(stored, &file.tensors[i], file.data_start, err);
    syi_safetensors_close(&file);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct syi_stored_tensor *)a)->name, ((const struct syi_stored_tensor *)b)->name);
}

int syi_stored_sort(struct syi_stored *stored, struct sy_error *err)
{
    if (stored->n_tensors) qsort(stored->tensor, stored->n_tensors, sizeof *stored->tensor, by_name);
    for (size_t i = 1; i < stored->n_tensors; i++) {
        const struct syi_stored_tensor *a = &stored->tensor[i - 1], *b = &stored->tensor[i];
        if (!by_name(a, b))
            return syi_error(err, SY_EFORMAT, "%s is there twice, in %s and %s", a->name,
                             stored->file[a->file].path, stored->file[b->file].path);
    }
    return SY_OK;
}

struct syi_stored_tensor *syi_stored_find(const struct syi_stored *stored, const char *name)
{
    const struct syi_stored_tensor key = {.name = (char *)(uintptr_t)name};
    return stored->n_tensors ? bsearch(&key, stored->tensor, stored->n_tensors, sizeof key, by_name) : NULL;
}

/* ---- elements ---- */

static uint64_t elements_of(const struct syi_stored_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++) n = syi_mul_u64(n, (uint64_t)t->dims[d]);
    return n;
}

static int is_dense(const struct syi_stored_tensor *t)
{
    int64_t stride = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->dims[d] != 1 && t->stride[d] != stride) return 0;
        stride *= t->dims[d];
    }
    return 1;
}

/* Elements between the first and the last in the file. */
static uint64_t span_of(const struct syi_stored_tensor *t)
{
    uint64_t last = 0;
    for (int d = 0; d < t->rank; d++) last += (uint64_t)(t->dims[d] - 1) * (uint64_t)t->stride[d];
    return last + 1;
}

/* n elements of a tensor whose span is in `from` to dense rows, in the order of these dims and strides. */
static void gather(const char *from, size_t bytes, int rank, const int64_t *dims, const int64_t *stride,
                   uint64_t n, char *to)
{
    int64_t at[SYI_SAFETENSORS_RANK] = {0}, place = 0;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(to + i * bytes, from + (size_t)place * bytes, bytes);
        for (int d = rank - 1; d >= 0; d--) {
            place += stride[d];
            if (++at[d] < dims[d]) break;
            place -= at[d] * stride[d];
            at[d] = 0;
        }
    }
}

int syi_stored_read(const struct syi_stored *stored, const struct syi_stored_tensor *t, int transposed,
                    void *to, struct sy_error *err)
{
    const struct syi_stored_file *file = &stored->file[t->file];
    size_t bytes = syi_safetensors_element_bytes(t->dtype);
    uint64_t n = elements_of(t);
    int64_t dims[SYI_SAFETENSORS_RANK], stride[SYI_SAFETENSORS_RANK];
    if (!n) return SY_OK;
    if (!transposed && is_dense(t)) return syi_stored_bytes(file, t->offset, to, (size_t)n * bytes, err);
    for (int d = 0; d < t->rank; d++) {
        dims[d] = t->dims[transposed ? t->rank - 1 - d : d];
        stride[d] = t->stride[transposed ? t->rank - 1 - d : d];
    }
    size_t span = (size_t)syi_mul_u64(span_of(t), bytes);
    char *from = syi_alloc(span, err);
    int status = from ? syi_stored_bytes(file, t->offset, from, span, err) : SY_ENOMEM;
    if (!status) gather(from, bytes, t->rank, dims, stride, n, to);
    syi_free(from);
    return status;
}

int syi_stored_compare(const struct syi_stored *stored, const struct syi_stored_tensor *a,
                       const struct syi_stored_tensor *b, int *same, struct sy_error *err)
{
    size_t dims = (size_t)a->rank * sizeof a->dims[0];
    size_t bytes = (size_t)syi_mul_u64(elements_of(a), syi_safetensors_element_bytes(a->dtype));
    *same = a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->dims, b->dims, dims);
    if (!*same || (a->file == b->file && a->offset == b->offset && !memcmp(a->stride, b->stride, dims)))
        return SY_OK;
    void *of_a = syi_alloc(bytes, err), *of_b = syi_alloc(bytes, err);
    int status = of_a && of_b ? syi_stored_read(stored, a, 0, of_a, err) : SY_ENOMEM;
    if (!status) status = syi_stored_read(stored, b, 0, of_b, err);
    if (!status) *same = !memcmp(of_a, of_b, bytes);
    syi_free(of_a);
    syi_free(of_b);
    return status;
}
