/* SPDX-License-Identifier: Apache-2.0 */
/* A T5X checkpoint's folder. The index, msgpack in a file `checkpoint`, is a tree whose leaves are arrays: in place, or in
 * zarr folders beside it, which a leaf names by a tensorstore spec (Checkpointer) or a placeholder (Orbax). */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "import/t5x.h"

enum { NEWEST = 3, EXT_ARRAY = 1, EXT_SCALAR = 3, LARGEST_INDEX = 1 << 30 };

static const char placeholder[] = "PLACEHOLDER://";

/* The index on its way into arrays. */
struct walk {
    struct syi_t5x_checkpoint *checkpoint;
    const struct syi_msgpack *pack;
    int old; /* 1: before version 3, when uint16 meant bfloat16 */
    struct sy_error *err;
};

static const struct {
    const char *text;
    enum syi_safetensors_dtype dtype;
} dtypes[] = {{"float32", SYI_SAFETENSORS_F32}, {"bfloat16", SYI_SAFETENSORS_BF16},
              {"int32", SYI_SAFETENSORS_I32},   {"float16", SYI_SAFETENSORS_F16},
              {"float64", SYI_SAFETENSORS_F64}, {"int64", SYI_SAFETENSORS_I64},
              {"uint16", SYI_SAFETENSORS_U16},  {"uint32", SYI_SAFETENSORS_U32}};

static int damaged(const struct walk *w, const char *name, const char *why)
{
    return syi_error(w->err, SY_EFORMAT, "%s/checkpoint: %s %s", w->checkpoint->folder, name, why);
}

static const struct syi_msgpack_node *node_of(const struct syi_msgpack *pack, uint32_t index)
{
    return &pack->nodes[index];
}

static int is_kind(const struct syi_msgpack *pack, uint32_t index, enum syi_msgpack_kind kind)
{
    return index && node_of(pack, index)->kind == kind;
}

/* ---- arrays in place ---- */

static enum syi_safetensors_dtype dtype_of(const struct walk *w, enum syi_safetensors_dtype dtype)
{
    return w->old && dtype == SYI_SAFETENSORS_U16 ? SYI_SAFETENSORS_BF16 : dtype;
}

static int read_dtype(const struct walk *w, const char *name, const char *text,
                      enum syi_safetensors_dtype *dtype)
{
    for (size_t i = 0; i < SYI_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].text, text)) {
            *dtype = dtype_of(w, dtypes[i].dtype);
            return SY_OK;
        }
    return syi_error(w->err, SY_EUNSUPPORTED, "%s/checkpoint: %s has the dtype %.40s, which is not supported",
                     w->checkpoint->folder, name, text);
}

/* Extents: the children of an array, or of a map "0", "1" and so on. */
static int read_shape(const struct walk *w, const struct syi_msgpack *pack, uint32_t list, const char *name,
                      struct syi_t5x_array *array)
{
    array->rank = 0;
    if (!is_kind(pack, list, SYI_MSGPACK_ARRAY) && !is_kind(pack, list, SYI_MSGPACK_MAP))
        return damaged(w, name, "has no shape");
    for (uint32_t at = node_of(pack, list)->first; at; at = node_of(pack, at)->next) {
        if (array->rank == SYI_SAFETENSORS_RANK || !is_kind(pack, at, SYI_MSGPACK_INTEGER) ||
            node_of(pack, at)->integer < 1)
            return damaged(w, name, "has a shape that is not supported");
        array->dims[array->rank++] = node_of(pack, at)->integer;
    }
    return SY_OK;
}

static uint64_t bytes_of(const struct syi_t5x_array *array)
{
    uint64_t bytes = syi_safetensors_element_bytes(array->dtype);
    for (int d = 0; d < array->rank; d++) bytes = syi_mul_u64(bytes, (uint64_t)array->dims[d]);
    return bytes;
}

size_t syi_t5x_array_bytes(const struct syi_t5x_array *array)
{
    return (size_t)bytes_of(array);
}

/* [shape, dtype name, bytes] in a msgpack of its own. */
static int read_ext(const struct walk *w, const struct syi_msgpack_node *ext, const char *name,
                    struct syi_t5x_array *array)
{
    struct syi_msgpack pack;
    if (ext->type != EXT_ARRAY && ext->type != EXT_SCALAR)
        return syi_error(w->err, SY_EUNSUPPORTED,
                         "%s/checkpoint: %s is of msgpack's extension %d: no array of numbers",
                         w->checkpoint->folder, name, ext->type);
    int status = syi_msgpack_parse(&pack, name, w->pack->data + ext->at, ext->bytes, w->err);
    if (status) return status;
    uint32_t shape = node_of(&pack, 0)->first, dtype = shape ? node_of(&pack, shape)->next : 0;
    uint32_t data = dtype ? node_of(&pack, dtype)->next : 0;
    if (node_of(&pack, 0)->kind != SYI_MSGPACK_ARRAY || !is_kind(&pack, dtype, SYI_MSGPACK_STRING) ||
        !is_kind(&pack, data, SYI_MSGPACK_BINARY))
        status = damaged(w, name, "is no array");
    if (!status) status = read_shape(w, &pack, shape, name, array);
    if (!status) status = read_dtype(w, name, syi_msgpack_string(&pack, dtype), &array->dtype);
    if (!status && bytes_of(array) != node_of(&pack, data)->bytes)
        status = damaged(w, name, "has another number of elements than its shape says");
    if (!status) array->in_place = pack.data + node_of(&pack, data)->at;
    syi_msgpack_free(&pack);
    return status;
}

/* The pieces of a flattened array, one after the other; into array->joined. */
static int join_pieces(const struct walk *w, uint32_t pieces, const char *name, struct syi_t5x_array *array)
{
    uint64_t used = 0, bytes = 0;
    for (int pass = 0; pass < 2; pass++) {
        used = 0;
        for (uint32_t at = node_of(w->pack, pieces)->first; at; at = node_of(w->pack, at)->next) {
            struct syi_t5x_array piece = {0};
            if (!is_kind(w->pack, at, SYI_MSGPACK_EXT))
                return damaged(w, name, "has a piece that is no array");
            int status = read_ext(w, node_of(w->pack, at), name, &piece);
            if (status) return status;
            if (pass) memcpy((char *)array->joined + used, piece.in_place, (size_t)bytes_of(&piece));
            array->dtype = piece.dtype;
            used = syi_add_u64(used, bytes_of(&piece));
        }
        if (pass) break;
        bytes = bytes_of(array);
        if (used != bytes) return damaged(w, name, "has another number of elements than its shape says");
        array->joined = syi_alloc((size_t)bytes, w->err);
        if (!array->joined) return SY_ENOMEM;
    }
    return SY_OK;
}

static int read_chunked(const struct walk *w, uint32_t map, const char *name, struct syi_t5x_array *array)
{
    uint32_t pieces = syi_msgpack_member(w->pack, map, "chunks");
    int status = read_shape(w, w->pack, syi_msgpack_member(w->pack, map, "shape"), name, array);
    if (status) return status;
    if (!is_kind(w->pack, pieces, SYI_MSGPACK_MAP)) return damaged(w, name, "has no pieces");
    return join_pieces(w, pieces, name, array);
}

/* ---- arrays in folders ---- */

/* The last part of the path is the folder's name: what stands before it is of the machine that wrote it. */
static int open_folder(const struct walk *w, const char *path, const char *name, struct syi_t5x_array *array)
{
    size_t end = strlen(path);
    while (end && path[end - 1] == '/') end--;
    size_t start = end;
    while (start && path[start - 1] != '/') start--;
    if (start == end || path[start] == '.') return damaged(w, name, "names no folder");
    char *folder = syi_format("%s/%.*s", w->checkpoint->folder, (int)(end - start), path + start);
    int status =
        folder ? syi_zarr_open(&array->zarr, folder, w->err) : syi_error(w->err, SY_ENOMEM, "out of memory");
    syi_free(folder);
    if (status) return status;
    array->dtype = dtype_of(w, array->zarr.dtype);
    array->rank = array->zarr.rank;
    memcpy(array->dims, array->zarr.dims, sizeof array->dims);
    return SY_OK;
}

/* The index and .zarray must agree, else they are of two checkpoints. */
static int check_spec(const struct walk *w, uint32_t map, const char *name, const struct syi_t5x_array *array)
{
    struct syi_t5x_array said = {0};
    uint32_t metadata = syi_msgpack_member(w->pack, map, "metadata");
    uint32_t shape = metadata ? syi_msgpack_member(w->pack, metadata, "shape") : SYI_MSGPACK_NONE;
    int status = shape ? read_shape(w, w->pack, shape, name, &said) : SY_OK;
    if (status || !shape) return status;
    if (said.rank == array->rank && !memcmp(said.dims, array->dims, sizeof said.dims)) return SY_OK;
    return damaged(w, name, "has another shape here than in .zarray of its folder");
}

static int read_spec(const struct walk *w, uint32_t map, const char *name, struct syi_t5x_array *array)
{
    const char *driver = syi_msgpack_string(w->pack, syi_msgpack_member(w->pack, map, "driver"));
    uint32_t store = syi_msgpack_member(w->pack, map, "kvstore");
    uint32_t path = store ? syi_msgpack_member(w->pack, store, "path") : SYI_MSGPACK_NONE;
    if (!path) path = syi_msgpack_member(w->pack, map, "path");
    if (strcmp(driver, "zarr") != 0)
        return syi_error(w->err, SY_EUNSUPPORTED,
                         "%s/checkpoint: %s is stored by tensorstore's driver %.40s, not zarr",
                         w->checkpoint->folder, name, driver);
    if (!is_kind(w->pack, path, SYI_MSGPACK_STRING)) return damaged(w, name, "names no folder");
    int status = open_folder(w, syi_msgpack_string(w->pack, path), name, array);
    return status ? status : check_spec(w, map, name, array);
}

/* ---- the tree ---- */

/* step may be a plain number. */
static int read_integer(const struct walk *w, int64_t value, struct syi_t5x_array *array)
{
    array->dtype = SYI_SAFETENSORS_I64;
    array->joined = syi_alloc(sizeof value, w->err);
    if (array->joined) memcpy(array->joined, &value, sizeof value);
    return array->joined ? SY_OK : SY_ENOMEM;
}

static int add_array(const struct walk *w, uint32_t leaf, const char *name)
{
    struct syi_t5x_checkpoint *checkpoint = w->checkpoint;
    const struct syi_msgpack_node *node = node_of(w->pack, leaf);
    int status = SYI_GROW(checkpoint->array, checkpoint->capacity, checkpoint->n + 1, w->err);
    if (status) return status;
    struct syi_t5x_array *array = &checkpoint->array[checkpoint->n++];
    array->name = syi_strdup(name, w->err);
    if (!array->name) return SY_ENOMEM;
    switch (node->kind) {
    case SYI_MSGPACK_EXT: return read_ext(w, node, name, array);
    case SYI_MSGPACK_INTEGER: return read_integer(w, node->integer, array);
    case SYI_MSGPACK_MAP:
        return syi_msgpack_member(w->pack, leaf, "driver") ? read_spec(w, leaf, name, array)
                                                           : read_chunked(w, leaf, name, array);
    case SYI_MSGPACK_STRING:
        if (!strncmp(syi_msgpack_string(w->pack, leaf), placeholder, sizeof placeholder - 1))
            return open_folder(w, syi_msgpack_string(w->pack, leaf) + sizeof placeholder - 1, name, array);
        break;
    default: break;
    }
    return damaged(w, name, "is no array");
}

/* A map that is a leaf: a tensorstore spec, or an array in pieces. */
static int is_leaf(const struct syi_msgpack *pack, uint32_t map)
{
    return is_kind(pack, syi_msgpack_member(pack, map, "driver"), SYI_MSGPACK_STRING) ||
           syi_msgpack_member(pack, map, "__msgpack_chunked_array__");
}

/* Names come into messages, and a '/' would be a level of its own. */
static int is_name(const char *key)
{
    for (const char *c = key; *c; c++)
        if (*c <= ' ' || *c == '/' || *c == 127) return 0;
    return *key != '\0';
}

/* Nesting is bounded by the reader of msgpack. */
static int walk_tree(const struct walk *w, uint32_t map, const char *prefix)
{
    int status = SY_OK;
    for (uint32_t at = node_of(w->pack, map)->first; at && !status; at = node_of(w->pack, at)->next) {
        const char *key = syi_msgpack_key(w->pack, at);
        if (!is_name(key)) return damaged(w, prefix, "has a member without a proper name");
        char *name = syi_format("%s%s%s", prefix, *prefix ? "/" : "", key);
        if (!name) return syi_error(w->err, SY_ENOMEM, "out of memory");
        if (is_kind(w->pack, at, SYI_MSGPACK_MAP) && !is_leaf(w->pack, at))
            status = walk_tree(w, at, name);
        else if (!is_kind(w->pack, at, SYI_MSGPACK_NIL))
            status = add_array(w, at, name);
        syi_free(name);
    }
    return status;
}

static int read_tree(struct walk *w)
{
    const struct syi_msgpack *pack = w->pack;
    uint32_t version = syi_msgpack_member(pack, 0, "version"),
             tree = syi_msgpack_member(pack, 0, "optimizer");
    if (node_of(pack, 0)->kind != SYI_MSGPACK_MAP) return damaged(w, "the whole", "is no map");
    if (version && node_of(pack, version)->integer > NEWEST)
        return syi_error(w->err, SY_EUNSUPPORTED,
                         "%s/checkpoint is of version %" PRId64 " of T5X's format, not %d or before",
                         w->checkpoint->folder, node_of(pack, version)->integer, NEWEST);
    w->old = tree && (!version || node_of(pack, version)->integer < NEWEST);
    if (!tree) return walk_tree(w, 0, "");
    if (node_of(pack, tree)->kind != SYI_MSGPACK_MAP) return damaged(w, "optimizer", "is no map");
    int status = walk_tree(w, tree, "");
    for (uint32_t at = node_of(pack, 0)->first; at && !status; at = node_of(pack, at)->next) {
        const char *key = syi_msgpack_key(pack, at); /* flax_mutables, if any */
        if (at != tree && is_kind(pack, at, SYI_MSGPACK_MAP))
            status = walk_tree(w, at, is_name(key) ? key : "?");
    }
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct syi_t5x_array *)a)->name, ((const struct syi_t5x_array *)b)->name);
}

const struct syi_t5x_array *syi_t5x_find(const struct syi_t5x_checkpoint *checkpoint, const char *name)
{
    const struct syi_t5x_array key = {.name = (char *)(uintptr_t)name}; /* only compared */
    return checkpoint->n ? bsearch(&key, checkpoint->array, checkpoint->n, sizeof key, by_name) : NULL;
}

/* It becomes an int32, as T5X and a run have it. */
static int narrow_step(const struct syi_t5x_checkpoint *checkpoint, struct syi_t5x_array *step,
                       struct sy_error *err)
{
    const int32_t value = (int32_t)checkpoint->step;
    syi_zarr_close(&step->zarr);
    syi_free(step->joined);
    step->in_place = NULL;
    step->joined = syi_alloc(sizeof value, err);
    if (!step->joined) return SY_ENOMEM;
    memcpy(step->joined, &value, sizeof value);
    step->dtype = SYI_SAFETENSORS_I32;
    return SY_OK;
}

static int read_step(struct syi_t5x_checkpoint *checkpoint, struct sy_error *err)
{
    const struct syi_t5x_array *found = syi_t5x_find(checkpoint, "state/step");
    struct syi_t5x_array *array = found ? checkpoint->array + (found - checkpoint->array) : NULL;
    int32_t narrow = 0;
    int64_t wide = -1;
    if (!array) return SY_OK;
    int is_narrow = array->dtype == SYI_SAFETENSORS_I32 && bytes_of(array) == sizeof narrow;
    int is_wide = array->dtype == SYI_SAFETENSORS_I64 && bytes_of(array) == sizeof wide;
    int status = SY_OK;
    if (is_narrow) status = syi_t5x_array_read(array, &narrow, err);
    if (is_wide) status = syi_t5x_array_read(array, &wide, err);
    if (status) return status;
    checkpoint->step = is_narrow ? narrow : wide;
    if (checkpoint->step < 0 || checkpoint->step > INT32_MAX)
        return syi_error(err, SY_EFORMAT, "%s/checkpoint: state/step is no number of steps",
                         checkpoint->folder);
    return is_wide ? narrow_step(checkpoint, array, err) : SY_OK;
}

/* ---- the folder ---- */

static int has_file(const char *folder, const char *name)
{
    struct stat info;
    char *path = syi_format("%s/%s", folder, name);
    int there = path && !stat(path, &info) && S_ISREG(info.st_mode);
    syi_free(path);
    return there;
}

int syi_t5x_is_checkpoint(const char *folder)
{
    return has_file(folder, "checkpoint") || has_file(folder, "state/checkpoint") ||
           has_file(folder, "manifest.ocdbt") || has_file(folder, "state/manifest.ocdbt");
}

/* The last part of a path, with the slashes after it. */
static const char *own_name(const char *folder)
{
    const char *name = folder;
    for (const char *c = folder; *c; c++)
        if (*c == '/' && c[1] && c[1] != '/') name = c + 1;
    return name;
}

static int find_index(struct syi_t5x_checkpoint *checkpoint, const char *folder, struct sy_error *err)
{
    const char *inner = has_file(folder, "checkpoint") ? "" : "/state";
    checkpoint->folder = syi_format("%s%s", folder, inner);
    if (!checkpoint->folder) return syi_error(err, SY_ENOMEM, "out of memory");
    if (strstr(own_name(folder), ".tmp-"))
        return syi_error(err, SY_EFORMAT,
                         "%s is a checkpoint that was never finished: T5X renames those that are", folder);
    if (has_file(checkpoint->folder, "manifest.ocdbt"))
        return syi_error(
            err, SY_EUNSUPPORTED,
            "%s holds its arrays in Orbax's OCDBT database, which is not supported: load it in T5X and save it "
            "again with use_orbax = False, which writes zarr arrays",
            folder);
    if (has_file(checkpoint->folder, "checkpoint")) return SY_OK;
    return syi_error(err, SY_ENOENT, "%s has no file `checkpoint`: give the folder of one step, checkpoint_N",
                     folder);
}

int syi_t5x_checkpoint_open(struct syi_t5x_checkpoint *checkpoint, const char *folder, struct sy_error *err)
{
    struct syi_msgpack pack = {0};
    struct walk w = {.checkpoint = checkpoint, .pack = &pack, .err = err};
    size_t bytes = 0;
    memset(checkpoint, 0, sizeof *checkpoint);
    int status = find_index(checkpoint, folder, err);
    char *path = status ? NULL : syi_format("%s/checkpoint", checkpoint->folder);
    if (!status && !path) status = syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_file_read_regular(path, LARGEST_INDEX, &checkpoint->index, &bytes, err);
    if (!status) status = syi_msgpack_parse(&pack, path, checkpoint->index, bytes, err);
    if (!status) status = read_tree(&w);
    if (!status && checkpoint->n) qsort(checkpoint->array, checkpoint->n, sizeof *checkpoint->array, by_name);
    if (!status) status = read_step(checkpoint, err);
    syi_msgpack_free(&pack);
    syi_free(path);
    return status;
}

void syi_t5x_checkpoint_close(struct syi_t5x_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n; i++) {
        syi_free(checkpoint->array[i].name);
        syi_free(checkpoint->array[i].joined);
        syi_zarr_close(&checkpoint->array[i].zarr);
    }
    syi_free(checkpoint->array);
    syi_free(checkpoint->index);
    syi_free(checkpoint->folder);
    memset(checkpoint, 0, sizeof *checkpoint);
}

int syi_t5x_array_read(const struct syi_t5x_array *array, void *to, struct sy_error *err)
{
    if (array->zarr.folder) return syi_zarr_read(&array->zarr, to, err);
    memcpy(to, array->in_place ? array->in_place : array->joined, syi_t5x_array_bytes(array));
    return SY_OK;
}
