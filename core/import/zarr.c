/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing of zarr.h: .zarray, the names of chunks, and the copies between a chunk and the array. */
#include "config.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "import/zarr.h"

enum { CHUNK_BYTES = 64 << 20, LARGEST_ZARRAY = 1 << 20 };

/* How .zarray calls a dtype. F16 and 8-byte numbers are read where they occur; T5X writes <f4, <i4 and bfloat16. */
static const struct {
    const char *text;
    enum syi_safetensors_dtype dtype;
} dtypes[] = {{"<f4", SYI_SAFETENSORS_F32}, {"bfloat16", SYI_SAFETENSORS_BF16}, {"<i4", SYI_SAFETENSORS_I32},
              {"<f2", SYI_SAFETENSORS_F16}, {"<f8", SYI_SAFETENSORS_F64},       {"<i8", SYI_SAFETENSORS_I64},
              {"<u2", SYI_SAFETENSORS_U16}};

static const struct {
    const char *text;
    enum syi_compression compression;
    uint64_t ratio; /* no block is larger than so many times its compressed bytes */
} compressors[] = {{"gzip", SYI_COMPRESSION_GZIP, 1040}, {"zstd", SYI_COMPRESSION_ZSTD, 1 << 16}};

/* ---- .zarray ---- */

struct parser {
    struct syi_zarr *zarr;
    const struct syi_json *json;
    const char *what;
    struct sy_error *err;
};

static int refuse(const struct parser *p, const char *key)
{
    return syi_error(p->err, SY_EUNSUPPORTED, "%s: \"%s\" is missing or of a kind that is not supported",
                     p->what, key);
}

static int is_null(const struct parser *p, uint32_t node)
{
    return !node || p->json->nodes[node].kind == SYI_JSON_NULL;
}

/* The member's text, "" where it is none. */
static const char *text_of(const struct parser *p, uint32_t object, const char *key)
{
    uint32_t node = syi_json_member(p->json, object, key);
    return node && p->json->nodes[node].kind == SYI_JSON_STRING ? syi_json_string(p->json, node) : "";
}

static int read_extents(const struct parser *p, const char *key, int *rank,
                        int64_t extent[SYI_SAFETENSORS_RANK])
{
    uint32_t list = syi_json_member(p->json, 0, key);
    if (!list || p->json->nodes[list].kind != SYI_JSON_ARRAY) return refuse(p, key);
    *rank = 0;
    for (uint32_t at = p->json->nodes[list].first; at; at = p->json->nodes[at].next) {
        const struct syi_json_node *node = &p->json->nodes[at];
        if (*rank == SYI_SAFETENSORS_RANK || !node->is_integer || node->integer < 1) return refuse(p, key);
        extent[(*rank)++] = node->integer;
    }
    return SY_OK;
}

static int read_dtype(const struct parser *p)
{
    const char *text = text_of(p, 0, "dtype");
    for (size_t i = 0; i < SYI_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].text, text)) {
            p->zarr->dtype = dtypes[i].dtype;
            return SY_OK;
        }
    return refuse(p, "dtype");
}

static int read_compressor(const struct parser *p)
{
    uint32_t node = syi_json_member(p->json, 0, "compressor");
    p->zarr->compression = SYI_COMPRESSION_NONE;
    if (is_null(p, node)) return SY_OK;
    const char *text = text_of(p, node, "id");
    for (size_t i = 0; i < SYI_COUNT(compressors); i++)
        if (!strcmp(compressors[i].text, text)) {
            p->zarr->compression = compressors[i].compression;
            return SY_OK;
        }
    return refuse(p, "compressor");
}

/* What may be absent or must have the one value that is supported. */
static int read_rest(const struct parser *p)
{
    const char *order = text_of(p, 0, "order"), *separator = text_of(p, 0, "dimension_separator");
    uint32_t version = syi_json_member(p->json, 0, "zarr_format");
    if (!version || p->json->nodes[version].integer != 2) return refuse(p, "zarr_format");
    if (strcmp(order, "C") != 0) return refuse(p, "order");
    if (!is_null(p, syi_json_member(p->json, 0, "filters"))) return refuse(p, "filters");
    if (*separator && strcmp(separator, ".") != 0 && strcmp(separator, "/") != 0)
        return refuse(p, "dimension_separator");
    p->zarr->separator = *separator ? *separator : '.';
    return SY_OK;
}

static int read_metadata(const struct parser *p)
{
    struct syi_zarr *zarr = p->zarr;
    int chunk_rank = 0;
    int status = read_extents(p, "shape", &zarr->rank, zarr->dims);
    if (!status) status = read_extents(p, "chunks", &chunk_rank, zarr->chunk);
    if (!status && chunk_rank != zarr->rank) status = refuse(p, "chunks");
    if (!status) status = read_dtype(p);
    if (!status) status = read_compressor(p);
    return status ? status : read_rest(p);
}

int syi_zarr_parse(struct syi_zarr *zarr, const char *what, const char *text, size_t bytes,
                   struct sy_error *err)
{
    struct syi_json json;
    memset(zarr, 0, sizeof *zarr);
    int status = syi_json_parse(&json, what, text, bytes, err);
    if (status) return status;
    const struct parser p = {.zarr = zarr, .json = &json, .what = what, .err = err};
    status = read_metadata(&p);
    syi_json_free(&json);
    return status;
}

/* ---- chunks ---- */

static uint64_t bytes_of(const struct syi_zarr *zarr, const int64_t *extent)
{
    uint64_t bytes = syi_safetensors_element_bytes(zarr->dtype);
    for (int d = 0; d < zarr->rank; d++) bytes = syi_mul_u64(bytes, (uint64_t)extent[d]);
    return bytes;
}

uint64_t syi_zarr_bytes(const struct syi_zarr *zarr)
{
    return bytes_of(zarr, zarr->dims);
}

/* Its path, owned by the caller; NULL with an error. */
static char *chunk_path(const struct syi_zarr *zarr, const int64_t *place, struct sy_error *err)
{
    struct syi_text path = {0};
    syi_text_printf(&path, "%s/", zarr->folder);
    for (int d = 0; d < zarr->rank; d++) {
        if (d) syi_text_append(&path, &zarr->separator, 1);
        syi_text_printf(&path, "%" PRId64, place[d]);
    }
    if (!zarr->rank) syi_text_puts(&path, "0");
    if (!syi_text_status(&path, err)) return path.data;
    syi_text_free(&path);
    return NULL;
}

/* To the next chunk in C order; 0: that was the last one. */
static int next_chunk(const struct syi_zarr *zarr, int64_t *place)
{
    for (int d = zarr->rank - 1; d >= 0; d--) {
        if (++place[d] <= (zarr->dims[d] - 1) / zarr->chunk[d]) return 1;
        place[d] = 0;
    }
    return 0;
}

/* Calls fn for each chunk with its file's path until one call fails. */
typedef int (*chunk_fn)(const struct syi_zarr *zarr, const int64_t *place, const char *path, void *arg,
                        struct sy_error *err);
static int each_chunk(const struct syi_zarr *zarr, chunk_fn fn, void *arg, struct sy_error *err)
{
    int64_t place[SYI_SAFETENSORS_RANK] = {0};
    int status;
    do {
        char *path = chunk_path(zarr, place, err);
        status = path ? fn(zarr, place, path, arg, err) : SY_ENOMEM;
        syi_free(path);
    } while (!status && next_chunk(zarr, place));
    return status;
}

static int check_chunk(const struct syi_zarr *zarr, const int64_t *place, const char *path, void *arg,
                       struct sy_error *err)
{
    struct stat info;
    uint64_t ratio = 1, bytes = bytes_of(zarr, zarr->chunk);
    (void)place, (void)arg;
    for (size_t i = 0; i < SYI_COUNT(compressors); i++)
        if (compressors[i].compression == zarr->compression) ratio = compressors[i].ratio;
    if (stat(path, &info))
        return syi_error(err, SY_EFORMAT, "%s is missing: the checkpoint is damaged; copy it again", path);
    if (syi_mul_u64((uint64_t)info.st_size, ratio) >= bytes && bytes != SYI_TOO_LARGE) return SY_OK;
    return syi_error(err, SY_EFORMAT,
                     "%s is too short for the chunk that .zarray beside it describes: the "
                     "checkpoint is damaged; copy it again",
                     path);
}

int syi_zarr_open(struct syi_zarr *zarr, const char *folder, struct sy_error *err)
{
    char *text = NULL, *path = syi_format("%s/.zarray", folder);
    size_t bytes = 0;
    memset(zarr, 0, sizeof *zarr);
    int status = path ? syi_file_read_regular(path, LARGEST_ZARRAY, &text, &bytes, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_zarr_parse(zarr, path, text, bytes, err);
    syi_free(text);
    syi_free(path);
    if (status) return status;
    zarr->folder = syi_strdup(folder, err);
    return zarr->folder ? each_chunk(zarr, check_chunk, NULL, err) : SY_ENOMEM;
}

void syi_zarr_close(struct syi_zarr *zarr)
{
    syi_free(zarr->folder);
    memset(zarr, 0, sizeof *zarr);
}

/* ---- elements ---- */

/* Both ways between a dense chunk and its part of the dense array, a run along the last dim at a time. */
static void copy_chunk(const struct syi_zarr *zarr, const int64_t *place, unsigned char *chunk,
                       unsigned char *array, int into_array)
{
    int64_t at[SYI_SAFETENSORS_RANK] = {0}, count[SYI_SAFETENSORS_RANK] = {0};
    int last = zarr->rank - 1;
    size_t element = syi_safetensors_element_bytes(zarr->dtype);
    for (int d = 0; d <= last; d++) {
        int64_t left = zarr->dims[d] - place[d] * zarr->chunk[d];
        count[d] = left < zarr->chunk[d] ? left : zarr->chunk[d];
    }
    size_t run = last < 0 ? element : (size_t)count[last] * element;
    for (int d = 0; d >= 0;) {
        int64_t in = 0, out = 0;
        for (int i = 0; i <= last; i++) {
            in = in * zarr->chunk[i] + at[i];
            out = out * zarr->dims[i] + place[i] * zarr->chunk[i] + at[i];
        }
        unsigned char *inner = chunk + (size_t)in * element, *outer = array + (size_t)out * element;
        memcpy(into_array ? outer : inner, into_array ? inner : outer, run);
        for (d = last - 1; d >= 0 && ++at[d] == count[d]; d--) at[d] = 0;
    }
}

struct transfer {
    unsigned char *array, *chunk; /* all elements; a chunk's */
    size_t chunk_bytes;
};

static int decompress(const struct syi_zarr *zarr, const char *path, const void *from, size_t bytes,
                      const struct transfer *t, struct sy_error *err)
{
    struct sy_error why = {0};
    if (zarr->compression != SYI_COMPRESSION_NONE) {
        int status = syi_decompress(zarr->compression, from, bytes, t->chunk, t->chunk_bytes, &why);
        return status ? syi_error(err, status, "%s: %s", path, why.text) : SY_OK;
    }
    if (bytes != t->chunk_bytes)
        return syi_error(err, SY_EFORMAT, "%s has %zu bytes, not %zu: the checkpoint is damaged", path, bytes,
                         t->chunk_bytes);
    memcpy(t->chunk, from, bytes);
    return SY_OK;
}

static int read_chunk(const struct syi_zarr *zarr, const int64_t *place, const char *path, void *arg,
                      struct sy_error *err)
{
    const struct transfer *t = arg;
    char *text = NULL;
    size_t bytes = 0;
    /* compressing may make it longer, by little */
    int status =
        syi_file_read_regular(path, t->chunk_bytes + t->chunk_bytes / 8 + LARGEST_ZARRAY, &text, &bytes, err);
    if (!status) status = decompress(zarr, path, text, bytes, t, err);
    if (!status) copy_chunk(zarr, place, t->chunk, t->array, 1);
    syi_free(text);
    return status;
}

static int transfer(const struct syi_zarr *zarr, chunk_fn fn, unsigned char *array, struct sy_error *err)
{
    struct transfer t = {.array = array, .chunk_bytes = (size_t)bytes_of(zarr, zarr->chunk)};
    t.chunk = syi_alloc(t.chunk_bytes, err);
    int status = t.chunk ? each_chunk(zarr, fn, &t, err) : SY_ENOMEM;
    syi_free(t.chunk);
    return status;
}

int syi_zarr_read(const struct syi_zarr *zarr, void *to, struct sy_error *err)
{
    return transfer(zarr, read_chunk, to, err);
}

/* ---- writing ---- */

/* The fewest equal parts of dim d that make a chunk small enough; 0: none do. */
static int64_t parts_of(const struct syi_zarr *zarr, int d)
{
    uint64_t bytes = bytes_of(zarr, zarr->chunk);
    for (int64_t parts = 1; parts <= zarr->chunk[d]; parts++)
        if (zarr->chunk[d] % parts == 0 && bytes / (uint64_t)parts <= CHUNK_BYTES) return parts;
    return 0;
}

/* Of the dim that makes the fewest chunks. Where none is long enough, the first ones are cut to 1 before. */
static void choose_chunks(struct syi_zarr *zarr)
{
    memcpy(zarr->chunk, zarr->dims, sizeof zarr->dims);
    for (int first = 0, best = -1; best < 0 && first < zarr->rank; first++) {
        int64_t fewest = 0;
        for (int d = first; d < zarr->rank; d++) {
            int64_t parts = parts_of(zarr, d);
            if (parts && (best < 0 || parts < fewest)) best = d, fewest = parts;
        }
        if (best < 0)
            zarr->chunk[first] = 1;
        else
            zarr->chunk[best] /= fewest;
    }
}

static void put_extents(struct syi_json_writer *w, const char *key, const int64_t *extent, int rank)
{
    syi_json_put_key(w, key);
    syi_json_open(w, '[');
    for (int d = 0; d < rank; d++) syi_json_put_integer(w, extent[d]);
    syi_json_close(w, ']');
}

static void put_compressor(struct syi_json_writer *w, const struct syi_zarr *zarr)
{
    syi_json_put_key(w, "compressor");
    for (size_t i = 0; i < SYI_COUNT(compressors); i++)
        if (compressors[i].compression == zarr->compression) {
            syi_json_open(w, '{');
            syi_json_put_key_string(w, "id", compressors[i].text);
            syi_json_put_key_integer(w, "level", zarr->level);
            syi_json_close(w, '}');
            return;
        }
    syi_json_put_null(w);
}

static void put_metadata(const struct syi_zarr *zarr, struct syi_text *text)
{
    struct syi_json_writer w;
    size_t i = 0;
    while (i + 1 < SYI_COUNT(dtypes) && dtypes[i].dtype != zarr->dtype) i++;
    syi_json_begin(&w, text);
    syi_json_open(&w, '{');
    put_extents(&w, "chunks", zarr->chunk, zarr->rank);
    put_compressor(&w, zarr);
    syi_json_put_key_string(&w, "dimension_separator", ".");
    syi_json_put_key_string(&w, "dtype", dtypes[i].text);
    syi_json_put_key(&w, "fill_value");
    syi_json_put_null(&w);
    syi_json_put_key(&w, "filters");
    syi_json_put_null(&w);
    syi_json_put_key_string(&w, "order", "C");
    put_extents(&w, "shape", zarr->dims, zarr->rank);
    syi_json_put_key_integer(&w, "zarr_format", 2);
    syi_json_close(&w, '}');
}

static int write_metadata(const struct syi_zarr *zarr, struct sy_error *err)
{
    struct syi_text text = {0};
    char *path = syi_format("%s/.zarray", zarr->folder);
    put_metadata(zarr, &text);
    int status = path ? syi_text_status(&text, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_file_write(path, text.data, text.length, err);
    syi_text_free(&text);
    syi_free(path);
    return status;
}

static int write_chunk(const struct syi_zarr *zarr, const int64_t *place, const char *path, void *arg,
                       struct sy_error *err)
{
    const struct transfer *t = arg;
    void *packed = NULL;
    size_t bytes = 0;
    copy_chunk(zarr, place, t->chunk, t->array, 0);
    if (zarr->compression == SYI_COMPRESSION_NONE) return syi_file_write(path, t->chunk, t->chunk_bytes, err);
    int status = syi_compress(zarr->compression, zarr->level, t->chunk, t->chunk_bytes, &packed, &bytes, err);
    if (!status) status = syi_file_write(path, packed, bytes, err);
    syi_free(packed);
    return status;
}

int syi_zarr_write(struct syi_zarr *zarr, const void *from, struct sy_error *err)
{
    choose_chunks(zarr);
    zarr->separator = '.';
    if (mkdir(zarr->folder, 0777)) return syi_error_system(err, "cannot make %s", zarr->folder);
    int status = write_metadata(zarr, err);
    /* only read: the copy goes from the array into the chunk */
    return status ? status : transfer(zarr, write_chunk, (unsigned char *)(uintptr_t)from, err);
}
