/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of a run as T5X's Checkpointer writes it, version 3: FOLDER/checkpoint_N with a zarr array (gzip) for each
 * parameter and each slot of the optimizer that is as large, and the index `checkpoint` (msgpack), which holds all that is
 * small. Layers are not scanned. T5X restores it by the index alone. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bf16.h"
#include "import/export.h"
#include "import/t5x.h"

enum { NEWEST = 3, EXT_ARRAY = 1, GZIP_LEVEL = 1 };

/* One leaf of the index. */
struct leaf {
    const struct syi_safetensors *file;
    const struct syi_safetensors_tensor *tensor;
    int rank; /* as T5X has it */
    int64_t dims[SYI_SAFETENSORS_RANK];
    struct syi_zarr zarr; /* folder NULL: in place */
};

struct writer {
    struct syi_export *export;
    char *folder;      /* checkpoint_N, owned */
    struct leaf *leaf; /* [n] by name */
    size_t n;
    struct syi_text index;
    struct sy_error *err;
};

/* ---- what goes where ---- */

static int is_mean(const struct leaf *leaf)
{
    return syi_pattern_match("state/*/v_row", leaf->tensor->name) ||
           syi_pattern_match("state/*/v_col", leaf->tensor->name);
}

/* T5X has in the index what no mesh axis splits: scalars, slots not in use, and row and column means but those of experts.
 */
static int is_in_place(const struct leaf *leaf)
{
    int small = leaf->rank == 0 || (leaf->rank == 1 && leaf->dims[0] == 1);
    return strncmp(leaf->tensor->name, "target/", 7) != 0 && (small || (is_mean(leaf) && leaf->rank == 1));
}

/* The parameter whose mean it is, NULL: there is none. */
static const struct syi_safetensors_tensor *parameter_of(const struct syi_export *export, const char *slot,
                                                         struct sy_error *err)
{
    static const char root[] = "state/param_states/";
    const char *name = slot + sizeof root - 1;
    if (strncmp(slot, root, sizeof root - 1) != 0 || !strchr(name, '/')) return NULL;
    char *full = syi_format("target/%.*s", (int)(strrchr(name, '/') - name), name);
    if (!full) {
        syi_error(err, SY_ENOMEM, "out of memory");
        return NULL;
    }
    const struct syi_safetensors_tensor *parameter = syi_safetensors_find(&export->params, full);
    syi_free(full);
    return parameter;
}

/* A mean has all axes of its parameter here, that over which it is taken 1 long; there it lacks that one. */
static int set_shape(const struct writer *w, struct leaf *leaf)
{
    struct sy_error why = {0};
    const struct syi_safetensors_tensor *tensor = leaf->tensor, *parameter = NULL;
    int over = 0;
    leaf->rank = tensor->rank;
    memcpy(leaf->dims, tensor->dims, sizeof leaf->dims);
    if (is_mean(leaf)) parameter = parameter_of(w->export, tensor->name, &why);
    if (why.code) return syi_error(w->err, why.code, "%s", why.text);
    if (!parameter || tensor->rank != parameter->rank || tensor->rank < 2) return SY_OK;
    while (over < tensor->rank - 1 && (tensor->dims[over] != 1 || parameter->dims[over] == 1)) over++;
    leaf->rank--;
    memmove(leaf->dims + over, leaf->dims + over + 1, (size_t)(leaf->rank - over) * sizeof leaf->dims[0]);
    return SY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct leaf *)a)->tensor->name, ((const struct leaf *)b)->tensor->name);
}

static void add_leaves(struct writer *w, const struct syi_safetensors *file)
{
    for (size_t i = 0; i < file->n_tensors; i++)
        w->leaf[w->n++] = (struct leaf){.file = file, .tensor = &file->tensors[i]};
}

/* State is T5X's where the run has kept it so: then its step is there. */
static int has_state(const struct syi_export *export)
{
    return syi_safetensors_find(&export->state, "state/step") != NULL;
}

static const char *why_no_state(const struct syi_export *export)
{
    return export->config.run.compat == SYI_COMPAT_T5X
               ? "it is not in T5X's form, and there is none for Adafactor in a chain or beside others"
               : "T5X's form of it is kept in runs with run.compat = t5x alone";
}

static int list_leaves(struct writer *w)
{
    struct syi_export *export = w->export;
    w->leaf = syi_alloc((export->params.n_tensors + export->state.n_tensors) * sizeof *w->leaf, w->err);
    if (!w->leaf) return SY_ENOMEM;
    add_leaves(w, &export->params);
    if (has_state(export))
        add_leaves(w, &export->state);
    else if (export->state.n_tensors)
        syi_text_printf(&export->said, "the optimizer's state is left out: %s\n", why_no_state(export));
    if (w->n) qsort(w->leaf, w->n, sizeof *w->leaf, by_name);
    int status = SY_OK;
    for (size_t i = 0; i < w->n && !status; i++) status = set_shape(w, &w->leaf[i]);
    return status;
}

/* ---- arrays ---- */

static int read_leaf(const struct leaf *leaf, void **data, struct sy_error *err)
{
    size_t bytes = (size_t)leaf->tensor->bytes;
    *data = syi_alloc(bytes, err);
    return *data ? syi_safetensors_read(leaf->file, leaf->tensor, 0, *data, bytes, err) : SY_ENOMEM;
}

/* Parameters have the dtype that is asked for, whichever the run has. */
static int read_parameter(const struct writer *w, const struct leaf *leaf, void **data)
{
    size_t n = (size_t)(leaf->tensor->bytes / syi_safetensors_element_bytes(leaf->tensor->dtype));
    float *values = *data = syi_alloc(n * sizeof *values, w->err);
    int status =
        values ? syi_safetensors_read_floats(leaf->file, leaf->tensor, 0, values, n, w->err) : SY_ENOMEM;
    if (!status && w->export->dtype == SYI_SAFETENSORS_BF16) syi_bf16_narrow(values, n);
    return status;
}

/* The leaf's name with '.' for '/': T5X's name of its folder. */
static char *flat_name(const char *name)
{
    char *flat = syi_format("%s", name);
    for (char *c = flat; c && *c; c++)
        if (*c == '/') *c = '.';
    return flat;
}

static int write_array(struct writer *w, struct leaf *leaf)
{
    void *data = NULL;
    int is_parameter = leaf->file == &w->export->params;
    char *flat = flat_name(leaf->tensor->name);
    leaf->zarr = (struct syi_zarr){.dtype = is_parameter ? w->export->dtype : leaf->tensor->dtype,
                                   .rank = leaf->rank,
                                   .compression = SYI_COMPRESSION_GZIP,
                                   .level = GZIP_LEVEL};
    memcpy(leaf->zarr.dims, leaf->dims, sizeof leaf->zarr.dims);
    leaf->zarr.folder = flat ? syi_format("%s/%s", w->folder, flat) : NULL;
    int status = leaf->zarr.folder ? SY_OK : syi_error(w->err, SY_ENOMEM, "out of memory");
    if (!status) status = is_parameter ? read_parameter(w, leaf, &data) : read_leaf(leaf, &data, w->err);
    if (!status) status = syi_zarr_write(&leaf->zarr, data, w->err);
    syi_free(data);
    syi_free(flat);
    return status;
}

/* ---- the index ---- */

static const char *dtype_name(enum syi_safetensors_dtype dtype)
{
    switch (dtype) {
    case SYI_SAFETENSORS_BF16: return "bfloat16";
    case SYI_SAFETENSORS_I32: return "int32";
    case SYI_SAFETENSORS_U32: return "uint32";
    default: return "float32";
    }
}

static void put_extents(struct syi_text *out, const int64_t *extent, int rank)
{
    syi_msgpack_put_array(out, (size_t)rank);
    for (int d = 0; d < rank; d++) syi_msgpack_put_integer(out, extent[d]);
}

static int put_in_place(struct writer *w, const struct leaf *leaf)
{
    struct syi_text array = {0};
    void *data = NULL;
    int status = read_leaf(leaf, &data, w->err);
    if (!status) {
        syi_msgpack_put_array(&array, 3);
        put_extents(&array, leaf->dims, leaf->rank);
        syi_msgpack_put_string(&array, dtype_name(leaf->tensor->dtype));
        syi_msgpack_put_binary(&array, data, (size_t)leaf->tensor->bytes);
        status = syi_text_status(&array, w->err);
    }
    if (!status) syi_msgpack_put_ext(&w->index, EXT_ARRAY, array.data, array.length);
    syi_text_free(&array);
    syi_free(data);
    return status;
}

/* A tensorstore spec. */
static int put_spec(struct writer *w, const struct leaf *leaf)
{
    const char *folder = strrchr(leaf->zarr.folder, '/') + 1;
    char *path = syi_format("%s/", folder);
    struct syi_text *out = &w->index;
    if (!path) return syi_error(w->err, SY_ENOMEM, "out of memory");
    syi_msgpack_put_map(out, 4);
    syi_msgpack_put_string(out, "driver");
    syi_msgpack_put_string(out, "zarr");
    syi_msgpack_put_string(out, "dtype");
    syi_msgpack_put_string(out, dtype_name(leaf->zarr.dtype));
    syi_msgpack_put_string(out, "kvstore");
    syi_msgpack_put_map(out, 2);
    syi_msgpack_put_string(out, "driver");
    syi_msgpack_put_string(out, "file");
    syi_msgpack_put_string(out, "path");
    syi_msgpack_put_string(out, path);
    syi_msgpack_put_string(out, "metadata");
    syi_msgpack_put_map(out, 3);
    syi_msgpack_put_string(out, "chunks");
    put_extents(out, leaf->zarr.chunk, leaf->zarr.rank);
    syi_msgpack_put_string(out, "compressor");
    syi_msgpack_put_map(out, 2);
    syi_msgpack_put_string(out, "id");
    syi_msgpack_put_string(out, "gzip");
    syi_msgpack_put_string(out, "level");
    syi_msgpack_put_integer(out, leaf->zarr.level);
    syi_msgpack_put_string(out, "shape");
    put_extents(out, leaf->zarr.dims, leaf->zarr.rank);
    syi_free(path);
    return SY_OK;
}

/* The end of those leaves from `first` on that have the same component at `offset` of their names. */
static size_t group_end(const struct writer *w, size_t first, size_t last, size_t offset)
{
    const char *name = w->leaf[first].tensor->name + offset;
    size_t n = strcspn(name, "/") + (name[strcspn(name, "/")] == '/'), end = first + 1;
    while (end < last && !strncmp(w->leaf[end].tensor->name + offset, name, n) && name[n]) end++;
    return end;
}

/* The map of leaves first..last, whose names are the same before `offset`. Nesting is that of our own names. */
static int put_tree(struct writer *w, size_t first, size_t last, size_t offset)
{
    size_t members = 0;
    int status = SY_OK;
    for (size_t at = first; at < last; at = group_end(w, at, last, offset)) members++;
    syi_msgpack_put_map(&w->index, members);
    for (size_t at = first, end; at < last && !status; at = end) {
        const struct leaf *leaf = &w->leaf[at];
        const char *name = leaf->tensor->name + offset;
        size_t n = strcspn(name, "/");
        char *key = syi_format("%.*s", (int)n, name);
        if (!key) return syi_error(w->err, SY_ENOMEM, "out of memory");
        syi_msgpack_put_string(&w->index, key);
        syi_free(key);
        end = group_end(w, at, last, offset);
        if (name[n])
            status = put_tree(w, at, end, offset + n + 1);
        else
            status = leaf->zarr.folder ? put_spec(w, leaf) : put_in_place(w, leaf);
    }
    return status;
}

/* A checkpoint without a state still has its step. */
static void put_step(struct writer *w)
{
    struct syi_text array = {0};
    int32_t step = (int32_t)w->export->step;
    syi_msgpack_put_map(&w->index, 1);
    syi_msgpack_put_string(&w->index, "step");
    syi_msgpack_put_array(&array, 3);
    syi_msgpack_put_array(&array, 0);
    syi_msgpack_put_string(&array, "int32");
    syi_msgpack_put_binary(&array, &step, sizeof step);
    syi_msgpack_put_ext(&w->index, EXT_ARRAY, array.data ? array.data : "", array.length);
    if (array.status) w->index.status = array.status;
    syi_text_free(&array);
}

static int write_index(struct writer *w)
{
    syi_msgpack_put_map(&w->index, 2);
    syi_msgpack_put_string(&w->index, "version");
    syi_msgpack_put_integer(&w->index, NEWEST);
    syi_msgpack_put_string(&w->index, "optimizer");
    int status = SY_OK;
    if (has_state(w->export)) {
        status = put_tree(w, 0, w->n, 0);
    } else {
        syi_msgpack_put_map(&w->index, 2);
        syi_msgpack_put_string(&w->index, "state");
        put_step(w);
        syi_msgpack_put_string(&w->index, "target");
        status = put_tree(w, 0, w->n, strlen("target/"));
    }
    char *path = syi_format("%s/checkpoint", w->folder);
    if (!status && !path) status = syi_error(w->err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_text_status(&w->index, w->err);
    if (!status) status = syi_file_write(path, w->index.data, w->index.length, w->err);
    syi_free(path);
    return status;
}

/* ---- the whole ---- */

/* What T5X's networks are, t5x/examples/t5 and flaxformer's: a checkpoint has no place to say that it is otherwise. */
static const char program[] = "T5X";

/* Whether one of flaxformer's layouts has the layers that have experts here. */
static int has_layout(const struct syi_config *c, int decoder)
{
    static const int layouts[] = {SYI_SPARSE_MIXED, SYI_SPARSE_TOP, SYI_SPARSE_BOTTOM, SYI_SPARSE_MIDDLE};
    int64_t layers = decoder ? c->model.num_decoder_layers : c->model.num_encoder_layers;
    int64_t sparse = syi_sparse_layers(c, decoder), i = 0;
    for (size_t k = 0; k < SYI_COUNT(layouts) && sparse; k++, i = 0) {
        if (layouts[k] == SYI_SPARSE_MIXED && layers % sparse) continue; /* it is for equal distances alone */
        while (i < layers && syi_layout_is_sparse(layouts[k], layers, sparse, i) ==
                                 !!syi_is_sparse_layer(c, decoder, (int)i))
            i++;
        if (i == layers) return 1;
    }
    return !sparse;
}

static int check_experts(const struct syi_config *c, struct sy_error *err)
{
    static const struct syi_export_limit limits[] = {
        {"moe.num_shared_experts", "0", "its sparse layers have no shared experts"},
        {"moe.expert_bias", "false", "tokens choose there by the router's probabilities alone"},
        {"moe.normalize_top_k", "false",
         "the weights of a token's experts are the router's probabilities there; --set moe.normalize_top_k=false "
         "exports these weights for such a model"},
        {"moe.expert_capacity", "0",
         "its experts have places by capacity factors; --set moe.expert_capacity=0 exports these weights for such a "
         "model"}};
    static const char why[] =
        "its layers with experts are evenly spread, the last, the first or those in the middle";
    int status = syi_export_limits(c, program, limits, SYI_COUNT(limits), err);
    if (!status && !has_layout(c, 0))
        status = syi_export_refuse(c, program, "moe.encoder_sparse_layers", why, err);
    if (!status && !has_layout(c, 1))
        status = syi_export_refuse(c, program, "moe.decoder_sparse_layers", why, err);
    return status;
}

static int check_model(const struct syi_config *c, struct sy_error *err)
{
    static const struct syi_export_limit limits[] = {
        {"model.decoder_start_token_id", "0",
         "what its decoder reads begins with id 0; --set model.decoder_start_token_id=0 exports these weights for "
         "such a model"}};
    int status = syi_export_limits(c, program, limits, SYI_COUNT(limits), err);
    if (!status && syi_export_is_scaled(c) != c->model.logits_via_embedding)
        status = syi_export_refuse(
            c, program, "model.scale_decoder_outputs",
            "the output is scaled there where the head is the embedding, and only there; --set "
            "model.scale_decoder_outputs=auto exports these weights for such a model",
            err);
    return status || !c->moe.num_experts ? status : check_experts(c, err);
}

/* A line on what whoever uses the checkpoint has to bind in a gin file. */
static int say_unsaid(struct syi_export *export, struct sy_error *err)
{
    syi_text_puts(&export->said, "a T5X checkpoint does not say these, give them in its gin file: ");
    int status = syi_t5x_unsaid(&export->config, 1, &export->said, err);
    syi_text_puts(&export->said, "\n");
    return status;
}

static int make_folder(struct writer *w, const char *to)
{
    w->folder = syi_format("%s/checkpoint_%" PRId64, to, w->export->step);
    if (!w->folder) return syi_error(w->err, SY_ENOMEM, "out of memory");
    return mkdir(w->folder, 0777) ? syi_error_system(w->err, "cannot make %s", w->folder) : SY_OK;
}

static int write_checkpoint(struct syi_export *export, const char *to, struct sy_error *err)
{
    struct writer w = {.export = export, .err = err};
    int status = check_model(&export->config, err);
    if (!status) status = say_unsaid(export, err);
    if (!status) status = make_folder(&w, to);
    if (!status) status = list_leaves(&w);
    for (size_t i = 0; i < w.n && !status; i++)
        if (!is_in_place(&w.leaf[i])) status = write_array(&w, &w.leaf[i]);
    if (!status) status = write_index(&w);
    for (size_t i = 0; i < w.n; i++) syi_zarr_close(&w.leaf[i].zarr);
    syi_text_free(&w.index);
    syi_free(w.leaf);
    syi_free(w.folder);
    return status;
}

const struct syi_export_format syi_export_t5x = {
    .name = "t5x",
    .help = "a checkpoint of T5X: DIR/checkpoint_N, layers not scanned",
    .write = write_checkpoint};
