/* SPDX-License-Identifier: Apache-2.0 */
/* The format hf: weights in safetensors files or those of torch.save, in one file or several, as parameters here. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "import/hf.h"

static int has_file(const char *folder, const char *name)
{
    char *path = syi_format("%s/%s", folder, name);
    int there = path && !access(path, F_OK);
    syi_free(path);
    return there;
}

static int recognise(const char *folder)
{
    return has_file(folder, "config.json");
}

/* ---- files of weights ---- */

static int add_file(struct syi_import *import, const char *name, struct sy_error *err)
{
    struct syi_hf *hf = import->state;
    int torch = syi_ends_with(name, ".bin");
    char *path = syi_format("%s/%s", import->folder, name);
    if (!path) return syi_error(err, SY_ENOMEM, "out of memory");
    int status = torch ? syi_stored_add_torch(&hf->stored, path, err)
                       : syi_stored_add_safetensors(&hf->stored, path, err);
    syi_free(path);
    return status;
}

static int is_open(const struct syi_import *import, const char *name)
{
    const struct syi_hf *hf = import->state;
    for (size_t i = 0; i < hf->stored.n_files; i++) {
        const char *slash = strrchr(hf->stored.file[i].path, '/');
        if (slash && !strcmp(slash + 1, name)) return 1;
    }
    return 0;
}

/* All files that an index names. */
static int add_shards(struct syi_import *import, const char *index, struct sy_error *err)
{
    struct syi_json json = {0};
    int there, status = syi_hf_json(import->folder, index, &json, &there, err);
    uint32_t map = status ? SYI_JSON_NONE : syi_json_member(&json, 0, "weight_map");
    if (!status && (map == SYI_JSON_NONE || json.nodes[map].kind != SYI_JSON_OBJECT))
        status = syi_error(err, SY_EFORMAT, "%s/%s has no \"weight_map\"", import->folder, index);
    for (uint32_t i = status ? SYI_JSON_NONE : json.nodes[map].first; i != SYI_JSON_NONE && !status;
         i = json.nodes[i].next) {
        const char *name = json.nodes[i].kind == SYI_JSON_STRING ? syi_json_string(&json, i) : "";
        if (!*name || strchr(name, '/') || *name == '.')
            status = syi_error(err, SY_EFORMAT, "%s/%s: \"%.80s\" is in no file of this folder",
                               import->folder, index, syi_json_key(&json, i));
        else if (!is_open(import, name))
            status = add_file(import, name, err);
    }
    syi_json_free(&json);
    return status;
}

/* Each tensor that the index names has to be there. */
static int add_weights(struct syi_import *import, struct sy_error *err)
{
    static const struct {
        const char *name;
        int (*add)(struct syi_import *, const char *, struct sy_error *);
    } forms[] = {{"model.safetensors", add_file},
                 {"model.safetensors.index.json", add_shards},
                 {"pytorch_model.bin", add_file},
                 {"pytorch_model.bin.index.json", add_shards}};
    struct syi_hf *hf = import->state;
    for (size_t i = 0; i < SYI_COUNT(forms); i++) {
        if (!has_file(import->folder, forms[i].name)) continue;
        int status = forms[i].add(import, forms[i].name, err);
        return status ? status : syi_stored_sort(&hf->stored, err);
    }
    return syi_error(
        err, SY_ENOENT,
        "%s has no weights that can be read: model.safetensors or pytorch_model.bin, or their .index.json "
        "(weights of TensorFlow and Flax are not read)",
        import->folder);
}

/* ---- tensors ---- */

/* The stored tensor of that name, or of the embedding under one of its other names. */
static struct syi_stored_tensor *find_stored(const struct syi_hf *hf, const char *name)
{
    static const char *const copies[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
    struct syi_stored_tensor *found = syi_stored_find(&hf->stored, name);
    for (size_t i = 0; !found && !strcmp(name, "shared.weight") && i < SYI_COUNT(copies); i++)
        found = syi_stored_find(&hf->stored, copies[i]);
    return found;
}

static int add_part(struct syi_hf *hf, struct syi_stored_tensor *stored, struct sy_error *err)
{
    int status = SYI_GROW(hf->part, hf->part_capacity, hf->n_parts + 1, err);
    if (status) return status;
    hf->part[hf->n_parts++] = (size_t)(stored - hf->stored.tensor);
    stored->used = 1;
    return SY_OK;
}

/* The part of an import tensor that follows the first must be like it. */
static int check_part(const struct syi_import *import, const struct syi_stored_tensor *a,
                      const struct syi_stored_tensor *b, struct sy_error *err)
{
    if (a->dtype == b->dtype && a->rank == b->rank &&
        !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]))
        return SY_OK;
    return syi_error(err, SY_EMISMATCH, "%s: %s and %s have not one type and shape", import->folder, a->name,
                     b->name);
}

/* place: first part, parts, whether they are transposed. */
static int add_tensor(struct syi_import *import, const char *param, const struct syi_hf_name *name,
                      size_t first, struct sy_error *err)
{
    const struct syi_hf *hf = import->state;
    const struct syi_stored_tensor *stored = &hf->stored.tensor[hf->part[first]];
    int64_t parts = (int64_t)(hf->n_parts - first);
    char ours[SYI_HF_NAME];
    int transposed = name->transposed && stored->rank == 2, at = 0;
    struct syi_import_tensor tensor = {.name = ours,
                                       .origin = stored->name,
                                       .dtype = stored->dtype,
                                       .place = {(int64_t)first, parts, transposed}};
    if (stored->rank + name->experts > SYI_SAFETENSORS_RANK)
        return syi_error(err, SY_EMISMATCH, "%s: %s has %d dimensions", import->folder, stored->name,
                         stored->rank);
    snprintf(ours, sizeof ours, "target/%s", param);
    if (name->experts) tensor.dims[at++] = parts;
    for (int d = 0; d < stored->rank; d++) tensor.dims[at++] = stored->dims[transposed ? 1 - d : d];
    tensor.rank = at;
    return syi_import_add(import, &tensor, err);
}

/* What is missing is left to syi_import_check. */
static int add_param(struct syi_import *import, const struct syi_param *param, struct sy_error *err)
{
    struct syi_hf *hf = import->state;
    struct syi_hf_name name;
    size_t first = hf->n_parts;
    int64_t n = 1;
    if (!syi_hf_name(param->name, hf->family, &name)) return SY_OK;
    if (name.experts) n = import->config.moe.num_experts;
    for (int64_t i = 0; i < n; i++) {
        char text[SYI_HF_NAME];
        syi_hf_expert_name(&name, i, text);
        struct syi_stored_tensor *stored = find_stored(hf, text);
        if (!stored) return i ? syi_error(err, SY_EMISMATCH, "%s has no %s", import->folder, text) : SY_OK;
        int status = i ? check_part(import, &hf->stored.tensor[hf->part[first]], stored, err) : SY_OK;
        if (!status) status = add_part(hf, stored, err);
        if (status) return status;
    }
    return add_tensor(import, param->name, &name, first, err);
}

static int add_params(struct syi_import *import, struct sy_error *err)
{
    struct syi_model model = {0};
    int status = syi_import_model(&import->config, &model, err);
    for (size_t i = 0; i < model.n && !status; i++) status = add_param(import, &model.param[i], err);
    syi_model_free(&model);
    return status;
}

/* ---- what is left ---- */

/* Copies of the embedding are equal to it, or the model is another one. */
static int check_copy(const struct syi_import *import, const struct syi_stored_tensor *copy,
                      struct sy_error *err)
{
    const struct syi_hf *hf = import->state;
    const struct syi_stored_tensor *shared = find_stored(hf, "shared.weight");
    int same = 0, status = shared ? syi_stored_compare(&hf->stored, copy, shared, &same, err) : SY_OK;
    if (!status && !same)
        status = syi_error(err, SY_EUNSUPPORTED,
                           "%s: %s is not the same as shared.weight: one embedding is all there is",
                           import->folder, copy->name);
    return status;
}

static int account_for(struct syi_import *import, const struct syi_stored_tensor *left, struct sy_error *err)
{
    static const char unused[] = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
    const struct syi_hf *hf = import->state;
    if (!strcmp(left->name, "encoder.embed_tokens.weight") ||
        !strcmp(left->name, "decoder.embed_tokens.weight") ||
        (hf->tied && !strcmp(left->name, "lm_head.weight")))
        return check_copy(import, left, err);
    if (strcmp(left->name, unused))
        return syi_error(err, SY_EMISMATCH,
                         "%s: %.200s has no place in the model that its config.json describes",
                         import->folder, left->name);
    syi_text_printf(&import->unused, "%s is not imported: no model uses it\n", left->name);
    return SY_OK;
}

static int check_rest(struct syi_import *import, struct sy_error *err)
{
    const struct syi_hf *hf = import->state;
    int status = SY_OK;
    for (size_t i = 0; i < hf->stored.n_tensors && !status; i++)
        if (!hf->stored.tensor[i].used) status = account_for(import, &hf->stored.tensor[i], err);
    return status;
}

/* ---- the format ---- */

static int open_folder(struct syi_import *import, struct sy_error *err)
{
    import->state = syi_alloc(sizeof(struct syi_hf), err);
    int status = import->state ? add_weights(import, err) : SY_ENOMEM;
    if (!status) status = syi_hf_config(import, err);
    if (!status) status = syi_hf_vocabulary(import, err);
    if (!status) status = syi_hf_added_tokens(import, err);
    if (!status) status = add_params(import, err);
    return status ? status : check_rest(import, err);
}

static int read_tensor(struct syi_import *import, const struct syi_import_tensor *tensor, void *to,
                       struct sy_error *err)
{
    const struct syi_hf *hf = import->state;
    size_t bytes = syi_safetensors_element_bytes(tensor->dtype);
    int status = SY_OK;
    for (int d = tensor->place[1] > 1; d < tensor->rank; d++) bytes *= (size_t)tensor->dims[d];
    for (int64_t i = 0; i < tensor->place[1] && !status; i++) {
        const struct syi_stored_tensor *part = &hf->stored.tensor[hf->part[tensor->place[0] + i]];
        status =
            syi_stored_read(&hf->stored, part, (int)tensor->place[2], (char *)to + (size_t)i * bytes, err);
    }
    return status;
}

static void close_folder(struct syi_import *import)
{
    struct syi_hf *hf = import->state;
    if (!hf) return;
    syi_stored_free(&hf->stored);
    syi_free(hf->part);
    syi_free(hf);
    import->state = NULL;
}

const struct syi_import_format syi_import_hf = {
    "hf",        "a folder of Hugging Face transformers: T5, mT5, UMT5, ByT5 or Switch Transformers",
    recognise,   open_folder,
    read_tensor, close_folder};
