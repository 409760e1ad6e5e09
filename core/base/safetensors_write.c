/* SPDX-License-Identifier: Apache-2.0 */
/* Planning and creating safetensors files that several ranks fill in place. The planned header goes through
 * the reader's own parser, so a plan and a file read back have the same table. Writing data is in
 * safetensors.c. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/safetensors.h"

static int by_name(const void *a, const void *b)
{
    const struct syi_safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Adds the tensor's bytes to *end. */
static int place(struct syi_safetensors_tensor *tensor, uint64_t *end, struct sy_error *err)
{
    int64_t bytes = (int64_t)syi_safetensors_element_bytes(tensor->dtype), total = (int64_t)*end;
    int bad = tensor->rank < 0 || tensor->rank > SYI_SAFETENSORS_RANK;
    for (int d = 0; d < tensor->rank && !bad; d++)
        bad = tensor->dims[d] < 0 || __builtin_mul_overflow(bytes, tensor->dims[d], &bytes);
    if (bad || __builtin_add_overflow(total, bytes, &total))
        return syi_error(err, SY_EINVAL, "tensor %s cannot be written: its shape is malformed or too large",
                         tensor->name);
    tensor->offset = *end;
    *end = (uint64_t)total;
    return SY_OK;
}

static void put_tensor(struct syi_json_writer *json, const struct syi_safetensors_tensor *tensor,
                       uint64_t end)
{
    syi_json_put_key(json, tensor->name);
    syi_json_open(json, '{');
    syi_json_put_key_string(json, "dtype", syi_safetensors_dtype_name(tensor->dtype));
    syi_json_put_key(json, "shape");
    syi_json_open(json, '[');
    for (int d = 0; d < tensor->rank; d++) syi_json_put_integer(json, tensor->dims[d]);
    syi_json_close(json, ']');
    syi_json_put_key(json, "data_offsets");
    syi_json_open(json, '[');
    syi_json_put_integer(json, (int64_t)tensor->offset);
    syi_json_put_integer(json, (int64_t)end);
    syi_json_close(json, ']');
    syi_json_close(json, '}');
}

static void put_metadata(struct syi_json_writer *json, const struct syi_safetensors_pair *metadata,
                         size_t n_metadata)
{
    if (n_metadata == 0) return;
    syi_json_put_key(json, "__metadata__");
    syi_json_open(json, '{');
    for (size_t i = 0; i < n_metadata; i++) syi_json_put_key_string(json, metadata[i].key, metadata[i].value);
    syi_json_close(json, '}');
}

/* Writes 8 bytes of length, the JSON and the padding; *end becomes the size of the data section. */
static int put_header(struct syi_text *out, struct syi_safetensors_tensor *sorted, size_t n_tensors,
                      const struct syi_safetensors_pair *metadata, size_t n_metadata, uint64_t *end,
                      struct sy_error *err)
{
    struct syi_json_writer json;
    syi_text_append(out, "\0\0\0\0\0\0\0", 8);
    syi_json_begin(&json, out);
    syi_json_open(&json, '{');
    put_metadata(&json, metadata, n_metadata);
    *end = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        int status = place(&sorted[i], end, err);
        if (status != SY_OK) return status;
        put_tensor(&json, &sorted[i], *end);
    }
    syi_json_close(&json, '}');
    while (out->length % 8 && out->status == SY_OK) syi_text_puts(out, " ");
    return syi_text_status(out, err);
}

/* Takes over the header text. */
static int adopt_header(struct syi_safetensors *file, struct syi_text *header, uint64_t end,
                        struct sy_error *err)
{
    uint64_t length = header->length - 8;
    for (int i = 0; i < 8; i++) header->data[i] = (char)(length >> (8 * i) & 0xff);
    file->header_text = header->data;
    file->data_start = header->length;
    file->data_bytes = end;
    memset(header, 0, sizeof(*header));
    return syi_safetensors_parse_header(file, file->header_text + 8, (size_t)length, err);
}

int syi_safetensors_plan(struct syi_safetensors *file, const struct syi_safetensors_tensor *list,
                         size_t n_tensors, const struct syi_safetensors_pair *metadata, size_t n_metadata,
                         struct sy_error *err)
{
    struct syi_text header = {0};
    uint64_t end = 0;
    int status = SY_ENOMEM;
    memset(file, 0, sizeof(*file));
    file->fd = -1;
    file->path = syi_strdup("planned safetensors file", err);
    struct syi_safetensors_tensor *sorted = syi_alloc(n_tensors * sizeof(*sorted), err);
    if (file->path && sorted) {
        if (n_tensors) {
            memcpy(sorted, list, n_tensors * sizeof(*sorted));
            qsort(sorted, n_tensors, sizeof(*sorted), by_name);
        }
        status = put_header(&header, sorted, n_tensors, metadata, n_metadata, &end, err);
    }
    if (status == SY_OK) status = adopt_header(file, &header, end, err);
    syi_free(sorted);
    syi_text_free(&header);
    if (status != SY_OK) syi_safetensors_close(file);
    return status;
}

static int open_planned(struct syi_safetensors *file, const char *path, int flags, struct sy_error *err)
{
    char *copy = syi_strdup(path, err);
    if (!copy) return SY_ENOMEM;
    int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) {
        syi_free(copy);
        return syi_error_system(err, "cannot open %s for writing", path);
    }
    if (file->fd >= 0) close(file->fd);
    syi_free(file->path);
    file->path = copy;
    file->fd = fd;
    return SY_OK;
}

static int write_header(const struct syi_safetensors *file, struct sy_error *err)
{
    for (uint64_t at = 0; at < file->data_start;) {
        ssize_t put = pwrite(file->fd, file->header_text + at, (size_t)(file->data_start - at), (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return syi_error_system(err, "cannot write %s", file->path);
        at += (uint64_t)put;
    }
    if (ftruncate(file->fd, (off_t)(file->data_start + file->data_bytes)) != 0)
        return syi_error_system(err, "cannot make %s %" PRIu64 " bytes long", file->path,
                                file->data_start + file->data_bytes);
    return SY_OK;
}

int syi_safetensors_create(struct syi_safetensors *file, const char *path, struct sy_error *err)
{
    int status = open_planned(file, path, O_CREAT | O_TRUNC, err);
    return status == SY_OK ? write_header(file, err) : status;
}

int syi_safetensors_attach(struct syi_safetensors *file, const char *path, struct sy_error *err)
{
    struct stat info;
    int status = open_planned(file, path, 0, err);
    if (status != SY_OK) return status;
    if (fstat(file->fd, &info) != 0) return syi_error_system(err, "cannot examine %s", path);
    if ((uint64_t)info.st_size != file->data_start + file->data_bytes)
        return syi_error(err, SY_EMISMATCH, "%s has %" PRIu64 " bytes, the plan says %" PRIu64, path,
                         (uint64_t)info.st_size, file->data_start + file->data_bytes);
    return SY_OK;
}

void syi_safetensors_wrote(const struct syi_safetensors *file, uint64_t bytes)
{
    uint32_t word = bytes < file->data_bytes ? (uint32_t)(bytes / SYI_SAFETENSORS_MIB) : UINT32_MAX;
    if (!file->written) return;
    atomic_store_explicit(&file->written->word, word, memory_order_release);
    syi_gate_wake(file->written);
}

int syi_safetensors_finish(struct syi_safetensors *file, struct sy_error *err)
{
    if (fsync(file->fd) != 0) return syi_error_system(err, "cannot sync %s", file->path);
    return SY_OK;
}
