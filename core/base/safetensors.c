/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: the header of a file that is read, and access to the data of both kinds. Planning and
 * creating a file to write is in safetensors_write.c. A file may come from anywhere: nothing in its header is
 * believed before it was checked against the file's real size. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/interrupt.h"
#include "base/safetensors.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "safetensors data are little endian and are copied as they are: this machine is not"
#endif

enum { LARGEST_HEADER = 100 * 1000 * 1000 }; /* bytes, the limit of the format's own library */

static const struct {
    const char *name;
    size_t bytes; /* of an element */
} dtypes[] = {
#define DTYPE_ROW(name, bytes) {#name, bytes},
    SYI_SAFETENSORS_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

enum syi_safetensors_dtype syi_safetensors_dtype_of(enum sy_dtype dtype)
{
    static const enum syi_safetensors_dtype in_file[SY_DTYPE_COUNT] = {
        [SY_F32] = SYI_SAFETENSORS_F32, [SY_BF16] = SYI_SAFETENSORS_BF16, [SY_F64] = SYI_SAFETENSORS_F64,
        [SY_I32] = SYI_SAFETENSORS_I32, [SY_I64] = SYI_SAFETENSORS_I64,   [SY_I8] = SYI_SAFETENSORS_I8};
    return in_file[dtype];
}

size_t syi_safetensors_element_bytes(enum syi_safetensors_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *syi_safetensors_dtype_name(enum syi_safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

/* ---- header ---- */

static int refuse(const struct syi_safetensors *file, const char *name, struct sy_error *err, const char *why)
{
    return syi_error(err, SY_EFORMAT, "%s: tensor %s: %s", file->path, name, why);
}

static int read_dtype(const struct syi_safetensors *file, uint32_t object,
                      struct syi_safetensors_tensor *tensor, struct sy_error *err)
{
    uint32_t node = syi_json_member(&file->header, object, "dtype");
    if (node == SYI_JSON_NONE || file->header.nodes[node].kind != SYI_JSON_STRING)
        return refuse(file, tensor->name, err, "\"dtype\" is missing or no string");
    const char *text = syi_json_string(&file->header, node);
    for (size_t i = 0; i < SYI_COUNT(dtypes); i++) {
        if (strcmp(text, dtypes[i].name) != 0) continue;
        tensor->dtype = (enum syi_safetensors_dtype)i;
        return SY_OK;
    }
    return syi_error(err, SY_EFORMAT, "%s: tensor %s: unknown dtype %s", file->path, tensor->name, text);
}

/* Fills dims and bytes; the product is checked so that it fits int64. */
static int read_shape(const struct syi_safetensors *file, uint32_t object,
                      struct syi_safetensors_tensor *tensor, struct sy_error *err)
{
    const struct syi_json_node *nodes = file->header.nodes;
    uint32_t node = syi_json_member(&file->header, object, "shape");
    if (node == SYI_JSON_NONE || nodes[node].kind != SYI_JSON_ARRAY)
        return refuse(file, tensor->name, err, "\"shape\" is missing or no array");
    if (nodes[node].n_children > SYI_SAFETENSORS_RANK)
        return refuse(file, tensor->name, err, "more than 8 dimensions");
    int64_t bytes = (int64_t)dtypes[tensor->dtype].bytes;
    int empty = 0, overflow = 0;
    for (uint32_t dim = nodes[node].first; dim != SYI_JSON_NONE; dim = nodes[dim].next) {
        if (!nodes[dim].is_integer || nodes[dim].integer < 0)
            return refuse(file, tensor->name, err, "a dimension is no whole number of 0 or more");
        tensor->dims[tensor->rank++] = nodes[dim].integer;
        empty |= nodes[dim].integer == 0;
        overflow |= __builtin_mul_overflow(bytes, nodes[dim].integer, &bytes);
    }
    if (overflow && !empty)
        return refuse(file, tensor->name, err, "its shape has more elements than a file can hold");
    tensor->bytes = empty ? 0 : (uint64_t)bytes;
    return SY_OK;
}

static int read_offsets(const struct syi_safetensors *file, uint32_t object,
                        struct syi_safetensors_tensor *tensor, struct sy_error *err)
{
    const struct syi_json_node *nodes = file->header.nodes;
    uint32_t node = syi_json_member(&file->header, object, "data_offsets");
    if (node == SYI_JSON_NONE || nodes[node].kind != SYI_JSON_ARRAY || nodes[node].n_children != 2)
        return refuse(file, tensor->name, err, "\"data_offsets\" is missing or no pair");
    const struct syi_json_node *first = &nodes[nodes[node].first], *last = &nodes[first->next];
    if (!first->is_integer || !last->is_integer || first->integer < 0 || last->integer < first->integer)
        return refuse(file, tensor->name, err, "\"data_offsets\" are no ascending pair of whole numbers");
    uint64_t begin = (uint64_t)first->integer, end = (uint64_t)last->integer;
    if (end > file->data_bytes)
        return syi_error(err, SY_EFORMAT,
                         "%s: tensor %s ends at byte %" PRIu64 " of the data section, which has %" PRIu64
                         ": the file was cut short or is damaged",
                         file->path, tensor->name, end, file->data_bytes);
    if (end - begin != tensor->bytes)
        return syi_error(err, SY_EFORMAT,
                         "%s: tensor %s: its shape needs %" PRIu64 " bytes, its offsets give %" PRIu64,
                         file->path, tensor->name, tensor->bytes, end - begin);
    tensor->offset = begin;
    return SY_OK;
}

static int read_tensor(struct syi_safetensors *file, uint32_t object, struct sy_error *err)
{
    struct syi_safetensors_tensor *tensor = &file->tensors[file->n_tensors++];
    tensor->name = syi_json_key(&file->header, object);
    if (file->header.nodes[object].kind != SYI_JSON_OBJECT)
        return refuse(file, tensor->name, err, "its description is no object");
    int status = read_dtype(file, object, tensor, err);
    if (status == SY_OK) status = read_shape(file, object, tensor, err);
    if (status == SY_OK) status = read_offsets(file, object, tensor, err);
    return status;
}

static int check_metadata(const struct syi_safetensors *file, uint32_t object, struct sy_error *err)
{
    const struct syi_json_node *nodes = file->header.nodes;
    if (nodes[object].kind != SYI_JSON_OBJECT)
        return syi_error(err, SY_EFORMAT, "%s: \"__metadata__\" is no object", file->path);
    for (uint32_t pair = nodes[object].first; pair != SYI_JSON_NONE; pair = nodes[pair].next)
        if (nodes[pair].kind != SYI_JSON_STRING)
            return syi_error(err, SY_EFORMAT, "%s: metadata %s is no string", file->path,
                             syi_json_key(&file->header, pair));
    return SY_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct syi_safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_offset(const void *a, const void *b)
{
    const struct syi_safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int check_names(struct syi_safetensors *file, struct sy_error *err)
{
    if (file->n_tensors) qsort(file->tensors, file->n_tensors, sizeof(file->tensors[0]), by_name);
    for (size_t i = 1; i < file->n_tensors; i++)
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
            return refuse(file, file->tensors[i].name, err, "the name is given twice");
    return SY_OK;
}

/* Data must be used from the first to the last byte, each by one tensor. Leaves the table sorted by name. */
static int check_layout(struct syi_safetensors *file, struct sy_error *err)
{
    uint64_t end = 0;
    if (file->n_tensors) qsort(file->tensors, file->n_tensors, sizeof(file->tensors[0]), by_offset);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct syi_safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->offset < end) return refuse(file, tensor->name, err, "its data overlap another tensor's");
        if (tensor->offset > end) return refuse(file, tensor->name, err, "there is a hole before its data");
        end += tensor->bytes;
    }
    if (end != file->data_bytes)
        return syi_error(err, SY_EFORMAT, "%s: %" PRIu64 " bytes of data belong to no tensor", file->path,
                         file->data_bytes - end);
    if (file->n_tensors) qsort(file->tensors, file->n_tensors, sizeof(file->tensors[0]), by_name);
    return SY_OK;
}

int syi_safetensors_parse_header(struct syi_safetensors *file, const char *text, size_t bytes,
                                 struct sy_error *err)
{
    int seen_metadata = 0, status = syi_json_parse(&file->header, file->path, text, bytes, err);
    if (status != SY_OK) return status;
    const struct syi_json_node *nodes = file->header.nodes;
    if (nodes[0].kind != SYI_JSON_OBJECT)
        return syi_error(err, SY_EFORMAT, "%s: the header is no object", file->path);
    file->tensors = syi_alloc((size_t)nodes[0].n_children * sizeof(file->tensors[0]), err);
    if (!file->tensors) return SY_ENOMEM;
    for (uint32_t child = nodes[0].first; child != SYI_JSON_NONE; child = nodes[child].next) {
        int metadata = strcmp(syi_json_key(&file->header, child), "__metadata__") == 0;
        if (metadata && seen_metadata++)
            return syi_error(err, SY_EFORMAT, "%s: \"__metadata__\" is given twice", file->path);
        status = metadata ? check_metadata(file, child, err) : read_tensor(file, child, err);
        if (status != SY_OK) return status;
    }
    status = check_names(file, err);
    return status == SY_OK ? check_layout(file, err) : status;
}

/* ---- data ---- */

/* Moves bytes between memory and a place in the file; `write` chooses the direction. */
static int move_bytes(const struct syi_safetensors *file, uint64_t at, char *data, size_t bytes, int write,
                      struct sy_error *err)
{
    while (bytes) {
        int status = syi_interrupted(err);
        if (status) return status;
        ssize_t done =
            write ? pwrite(file->fd, data, bytes, (off_t)at) : pread(file->fd, data, bytes, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return syi_error_system(err, "cannot %s %s", write ? "write" : "read", file->path);
        if (done == 0)
            return syi_error(err, SY_EFORMAT, "%s: the file ends at byte %" PRIu64 ": it was cut short",
                             file->path, at);
        at += (uint64_t)done;
        data += done;
        bytes -= (size_t)done;
    }
    return SY_OK;
}

static int move_range(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                      uint64_t offset, char *data, size_t bytes, int write, struct sy_error *err)
{
    if (offset > tensor->bytes || bytes > tensor->bytes - offset)
        return syi_error(err, SY_EINVAL,
                         "%s: bytes %" PRIu64 " to %" PRIu64 " are outside tensor %s of %" PRIu64, file->path,
                         offset, offset + bytes, tensor->name, tensor->bytes);
    return move_bytes(file, file->data_start + tensor->offset + offset, data, bytes, write, err);
}

int syi_safetensors_read(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                         uint64_t offset, void *data, size_t bytes, struct sy_error *err)
{
    return move_range(file, tensor, offset, data, bytes, 0, err);
}

int syi_safetensors_read_floats(const struct syi_safetensors *file,
                                const struct syi_safetensors_tensor *tensor, uint64_t first, float *values,
                                size_t n, struct sy_error *err)
{
    size_t element = syi_safetensors_element_bytes(tensor->dtype);
    int half = tensor->dtype == SYI_SAFETENSORS_BF16;
    if (!half && tensor->dtype != SYI_SAFETENSORS_F32)
        return syi_error(err, SY_EUNSUPPORTED, "%s: %s is neither float32 nor bfloat16", file->path,
                         tensor->name);
    char *to = (char *)values + (half ? n * element : 0); /* bfloat16 is widened in its place */
    int status = syi_safetensors_read(file, tensor, first * element, to, n * element, err);
    if (!status && half) syi_bf16_widen(values, n);
    return status;
}

int syi_safetensors_write(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                          uint64_t offset, const void *data, size_t bytes, struct sy_error *err)
{
    return move_range(file, tensor, offset, (char *)(uintptr_t)data, bytes, 1,
                      err); /* only read when writing */
}

static int check_block(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                       const int64_t *start, const int64_t *extent, struct sy_error *err)
{
    for (int d = 0; d < tensor->rank; d++)
        if (start[d] < 0 || extent[d] < 0 || start[d] > tensor->dims[d] ||
            extent[d] > tensor->dims[d] - start[d])
            return syi_error(err, SY_EINVAL,
                             "%s: tensor %s: rows %" PRId64 " + %" PRId64
                             " are outside dimension %d of %" PRId64,
                             file->path, tensor->name, start[d], extent[d], d, tensor->dims[d]);
    return SY_OK;
}

/* A block is a set of equal runs: dimensions from `outer` on are in one piece, those before are counted like
 * an odometer. */
static int move_block(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                      const int64_t *start, const int64_t *extent, char *data, int write,
                      struct sy_error *err)
{
    int64_t stride[SYI_SAFETENSORS_RANK + 1],
        index[SYI_SAFETENSORS_RANK] = {0}; /* stride[d]: bytes of dims d.. */
    int rank = tensor->rank, outer = rank, status = check_block(file, tensor, start, extent, err);
    if (status != SY_OK) return status;
    stride[rank] = (int64_t)dtypes[tensor->dtype].bytes;
    for (int d = 0; d < rank; d++)
        if (extent[d] == 0) return SY_OK;
    for (int d = rank - 1; d >= 0; d--) stride[d] = stride[d + 1] * tensor->dims[d];
    while (outer > 0 && extent[outer - 1] == tensor->dims[outer - 1]) outer--;
    if (outer > 0) outer--;
    int64_t run = rank ? extent[outer] * stride[outer + 1] : stride[0];
    for (;;) {
        int64_t at = 0;
        for (int d = 0; d < rank; d++) at += (start[d] + index[d]) * stride[d + 1];
        status = move_range(file, tensor, (uint64_t)at, data, (size_t)run, write, err);
        if (status != SY_OK) return status;
        data += run;
        int d = outer - 1;
        while (d >= 0 && ++index[d] == extent[d]) index[d--] = 0;
        if (d < 0) return SY_OK;
    }
}

int syi_safetensors_read_block(const struct syi_safetensors *file,
                               const struct syi_safetensors_tensor *tensor, const int64_t *start,
                               const int64_t *extent, void *data, struct sy_error *err)
{
    return move_block(file, tensor, start, extent, data, 0, err);
}

int syi_safetensors_write_block(const struct syi_safetensors *file,
                                const struct syi_safetensors_tensor *tensor, const int64_t *start,
                                const int64_t *extent, const void *data, struct sy_error *err)
{
    return move_block(file, tensor, start, extent, (char *)(uintptr_t)data, 1, err);
}

/* Until the writer has come to byte `end` of the file, or stops. */
static void wait_for(const struct syi_safetensors *file, uint64_t end)
{
    uint32_t there = atomic_load_explicit(&file->written->word, memory_order_acquire);
    while (there != UINT32_MAX && there * (uint64_t)SYI_SAFETENSORS_MIB < end - file->data_start)
        there = syi_gate_wait(file->written, UINT32_MAX, there, 0);
}

/* Bytes [at, end) of the file go into the hash and, unless it is NULL, into the sum. chunk: room for CHUNK bytes. */
enum { CHUNK = 1 << 17 };
static int hash_range(const struct syi_safetensors *file, uint64_t at, uint64_t end, char *chunk,
                      struct syi_sha256 *hash, uint32_t *sum, struct sy_error *err)
{
    int status = SY_OK;
    while (at < end && status == SY_OK) {
        size_t part = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        if (file->written) wait_for(file, at + part);
        status = move_bytes(file, at, chunk, part, 0, err);
        if (status == SY_OK) syi_sha256_add(hash, chunk, part);
        if (status == SY_OK && sum) *sum = syi_crc32c(*sum, chunk, part);
        at += part;
    }
    return status;
}

static int by_place(const void *a, const void *b)
{
    return by_offset(*(const struct syi_safetensors_tensor *const *)a,
                     *(const struct syi_safetensors_tensor *const *)b);
}

/* Tensors fill the data section without holes, so one after the other they are the section. */
static int hash_tensors(const struct syi_safetensors *file, char *chunk, struct syi_sha256 *hash,
                        uint32_t *sums, struct sy_error *err)
{
    const struct syi_safetensors_tensor **order = syi_alloc(file->n_tensors * sizeof(*order), err);
    int status = order ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; order && i < file->n_tensors; i++) order[i] = &file->tensors[i];
    if (order && file->n_tensors) qsort(order, file->n_tensors, sizeof(*order), by_place);
    for (size_t i = 0; i < file->n_tensors && status == SY_OK; i++) {
        uint64_t at = file->data_start + order[i]->offset;
        uint32_t *sum = &sums[order[i] - file->tensors];
        *sum = 0;
        status = hash_range(file, at, at + order[i]->bytes, chunk, hash, sum, err);
    }
    syi_free(order);
    return status;
}

int syi_safetensors_hash(const struct syi_safetensors *file, char hex[65], uint32_t *sums,
                         struct sy_error *err)
{
    uint64_t begin = file->data_start, end = begin + file->data_bytes;
    struct syi_sha256 hash;
    char *chunk = syi_alloc(CHUNK, err);
    if (!chunk) return SY_ENOMEM;
    syi_sha256_init(&hash);
    int status = sums ? hash_tensors(file, chunk, &hash, sums, err)
                      : hash_range(file, begin, end, chunk, &hash, NULL, err);
    if (status == SY_OK) syi_sha256_hex(&hash, hex);
    syi_free(chunk);
    return status;
}

int syi_safetensors_hash_header(const struct syi_safetensors *file, char hex[65], struct sy_error *err)
{
    struct syi_sha256 hash;
    char *chunk = syi_alloc(CHUNK, err);
    if (!chunk) return SY_ENOMEM;
    syi_sha256_init(&hash);
    int status = hash_range(file, 0, file->data_start, chunk, &hash, NULL, err);
    if (status == SY_OK) syi_sha256_hex(&hash, hex);
    syi_free(chunk);
    return status;
}

/* ---- open, find, close ---- */

static int read_header(struct syi_safetensors *file, struct sy_error *err)
{
    struct stat info;
    unsigned char prefix[8];
    uint64_t length = 0;
    if (fstat(file->fd, &info) != 0) return syi_error_system(err, "cannot examine %s", file->path);
    if (!S_ISREG(info.st_mode)) return syi_error(err, SY_EFORMAT, "%s is no regular file", file->path);
    if (info.st_size < 8)
        return syi_error(err, SY_EFORMAT, "%s is no safetensors file: it has fewer than 8 bytes", file->path);
    int status = move_bytes(file, 0, (char *)prefix, sizeof(prefix), 0, err);
    if (status != SY_OK) return status;
    for (int i = 7; i >= 0; i--) length = length << 8 | prefix[i];
    if (length > LARGEST_HEADER || length > (uint64_t)info.st_size - 8)
        return syi_error(err, SY_EFORMAT,
                         "%s is no safetensors file or is cut short: it claims a header of %" PRIu64
                         " bytes, the file has %" PRIu64 " (headers of up to 100 MB are read)",
                         file->path, length, (uint64_t)info.st_size);
    file->data_start = 8 + length;
    file->data_bytes = (uint64_t)info.st_size - file->data_start;
    char *text = syi_alloc((size_t)length, err);
    if (!text) return SY_ENOMEM;
    status = move_bytes(file, 8, text, (size_t)length, 0, err);
    if (status == SY_OK) status = syi_safetensors_parse_header(file, text, (size_t)length, err);
    syi_free(text);
    return status;
}

int syi_safetensors_open(struct syi_safetensors *file, const char *path, struct sy_error *err)
{
    int status;
    memset(file, 0, sizeof(*file));
    file->path = syi_strdup(path, err);
    if (!file->path) return SY_ENOMEM;
    file->fd = open(path, O_RDONLY | O_CLOEXEC |
                              O_NONBLOCK); /* a named pipe must not block; regular files do not mind */
    if (file->fd < 0)
        status = syi_error_system(err, "cannot open %s", path);
    else
        status = read_header(file, err);
    if (status != SY_OK) syi_safetensors_close(file);
    return status;
}

void syi_safetensors_close(struct syi_safetensors *file)
{
    if (file->path && file->fd >= 0) close(file->fd);
    if (file->header.nodes) syi_json_free(&file->header);
    syi_free(file->path);
    syi_free(file->header_text);
    syi_free(file->tensors);
    memset(file, 0, sizeof(*file));
    file->fd = -1;
}

const struct syi_safetensors_tensor *syi_safetensors_find(const struct syi_safetensors *file,
                                                          const char *name)
{
    struct syi_safetensors_tensor key = {.name = name};
    if (file->n_tensors == 0) return NULL;
    return bsearch(&key, file->tensors, file->n_tensors, sizeof(file->tensors[0]), by_name);
}

const char *syi_safetensors_metadata(const struct syi_safetensors *file, const char *key)
{
    if (!file->header.nodes) return NULL;
    uint32_t object = syi_json_member(&file->header, 0, "__metadata__");
    if (object == SYI_JSON_NONE) return NULL;
    uint32_t pair = syi_json_member(&file->header, object, key);
    return pair == SYI_JSON_NONE ? NULL : syi_json_string(&file->header, pair);
}
