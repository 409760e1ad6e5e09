/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "verify/optim_tree.h"

struct verify_tree *verify_tree_new(const struct verify_case *c, uint32_t config, struct sy_error *err)
{
    struct verify_tree *t = syi_alloc(sizeof *t, err);
    if (!t) return NULL;
    t->item = *c;
    t->item.config = config;
    t->o.item = &t->item;
    return t;
}

void verify_tree_free(struct verify_tree *t)
{
    if (!t) return;
    syi_program_free(t->update);
    verify_optim_close(&t->o);
    syi_free(t);
}

/* ---- parameters ---- */

int verify_tree_param(struct verify_tree *t, const char *name, int rank, const int64_t *dim, uint32_t axes,
                      struct sy_error *err)
{
    const struct syi_json *json = &t->item.json;
    size_t at = t->o.model.n;
    if (at == VERIFY_TREE_PARAMS || strlen(name) >= sizeof t->o.model.param->name)
        return syi_error(err, SY_EFORMAT, "parameter %.60s: too many, or its name is too long", name);
    struct syi_param *param = verify_optim_param(&t->o, name, err);
    if (!param) return SY_ENOMEM;
    t->rank[at] = rank;
    param->rank = rank ? rank : 1;
    for (int d = 0; d < rank; d++) param->dim[d] = dim[d];
    if (axes == SYI_JSON_NONE || json->nodes[axes].kind == SYI_JSON_NULL) return SY_OK;
    if (json->nodes[axes].kind != SYI_JSON_ARRAY || json->nodes[axes].n_children != (uint32_t)rank)
        return syi_error(err, SY_EFORMAT, "parameter %.60s: its axes are no list as long as its shape", name);
    int d = 0;
    for (uint32_t i = json->nodes[axes].first; i != SYI_JSON_NONE; i = json->nodes[i].next, d++) {
        if (json->nodes[i].kind != SYI_JSON_STRING)
            return syi_error(err, SY_EFORMAT, "parameter %.60s: an axis is no string", name);
        t->axis[at][d] = syi_json_string(json, i);
        param->axis[d] = verify_optim_axis(t->axis[at][d]);
    }
    t->has_axes[at] = 1;
    return SY_OK;
}

int verify_tree_params(struct verify_tree *t, uint32_t shapes, uint32_t axes, struct sy_error *err)
{
    const struct syi_json *json = &t->item.json;
    int64_t dim[SY_MAX_DIMS];
    int rank, status = SY_OK;
    for (uint32_t i = json->nodes[shapes].first; !status && i != SYI_JSON_NONE; i = json->nodes[i].next) {
        const char *name = syi_json_key(json, i);
        uint32_t list = axes == SYI_JSON_NONE ? axes : syi_json_member(json, axes, name);
        status = verify_list_ints(&t->item, i, SY_MAX_DIMS, dim, &rank, err);
        if (!status) status = verify_tree_param(t, name, rank, dim, list, err);
    }
    return status;
}

/* ---- the tree ---- */

int verify_tree_record(struct verify_tree *t, struct sy_error *err)
{
    struct verify_optim *o = &t->o;
    uint32_t leaf_count[SYI_AXIS_COUNT];
    struct syi_update_options options = {
        .config = &o->config, .model = &o->model, .leaf_count = leaf_count, .noise = 1};
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaf_count[i] = 1;
    int status = syi_config_validate_programs(&o->config, err);
    if (!status) status = syi_chains_make(&o->config, &o->chains, err);
    if (!status) status = syi_record_update(&options, &t->update, err);
    if (!status) status = syi_state_tree(&o->config, o->chains, &o->model, t->update, &t->o.tree, err);
    for (size_t i = 0; !status && i < o->model.n; i++) o->model.param[i].rank = t->rank[i];
    return status;
}

int verify_tree_shows(const struct verify_tree *t, const struct syi_leaf *leaf)
{
    return leaf->kind != SYI_LEAF_EMPTY && (leaf->field != SYI_FIELD_AXES || t->rank[leaf->param]);
}

/* ---- answers ---- */

void verify_tree_put_shape(const struct verify_tree *t, const struct syi_leaf *leaf,
                           struct syi_json_writer *answer)
{
    int64_t dim[SY_MAX_DIMS];
    int rank = syi_leaf_shape(leaf, &t->o.model, dim);
    syi_json_open(answer, '[');
    for (int d = 0; d < rank; d++) syi_json_put_integer(answer, dim[d]);
    syi_json_close(answer, ']');
}

/* A new OptaxWrapper's step is no array yet. */
static const char *dtype_of(const struct verify_tree *t, const struct syi_leaf *leaf)
{
    if (leaf->kind == SYI_LEAF_STEP && !t->o.tree.adafactor) return "python_int";
    switch (leaf->dtype) {
    case SYI_SAFETENSORS_BOOL: return "bool";
    case SYI_SAFETENSORS_BF16: return "bfloat16";
    case SYI_SAFETENSORS_I32: return "int32";
    case SYI_SAFETENSORS_U32: return "uint32";
    default: return "float32";
    }
}

void verify_tree_put_leaves(const struct verify_tree *t, struct syi_json_writer *answer)
{
    syi_json_open(answer, '{');
    for (size_t i = 0; i < t->o.tree.n; i++) {
        const struct syi_leaf *leaf = &t->o.tree.leaf[i];
        if (!verify_tree_shows(t, leaf)) continue;
        syi_json_put_key(answer, leaf->path);
        if (leaf->kind == SYI_LEAF_NONE) {
            syi_json_put_null(answer);
            continue;
        }
        syi_json_open(answer, '{');
        syi_json_put_key_string(answer, "dtype", dtype_of(t, leaf));
        syi_json_put_key(answer, "shape");
        verify_tree_put_shape(t, leaf, answer);
        syi_json_close(answer, '}');
    }
    syi_json_close(answer, '}');
}

/* T5X expects the state of a parameter to have its shape, and cannot put together axes of one that has not: a flag,
 * or a tensor a dim. We have no such limit. */
static int cannot_derive(const struct verify_tree *t)
{
    for (size_t i = 0; i < t->o.tree.n; i++) {
        const struct syi_leaf *leaf = &t->o.tree.leaf[i];
        if (leaf->param >= 0 && (leaf->field == SYI_FIELD_FLAGS || leaf->field == SYI_FIELD_AXES)) return 1;
    }
    return 0;
}

static void put_axes(const struct verify_tree *t, const struct syi_leaf *leaf, struct syi_json_writer *answer)
{
    if (!leaf->axes || !t->has_axes[leaf->param]) {
        syi_json_put_null(answer);
        return;
    }
    syi_json_open(answer, '[');
    for (int d = 0; d < t->rank[leaf->param]; d++)
        if (leaf->dims >> d & 1) syi_json_put_string(answer, t->axis[leaf->param][d]);
    syi_json_close(answer, ']');
}

void verify_tree_put_axes(const struct verify_tree *t, struct syi_json_writer *answer)
{
    if (cannot_derive(t)) {
        verify_put_error(answer, SY_EINVAL);
        return;
    }
    syi_json_open(answer, '{');
    for (size_t i = 0; i < t->o.tree.n; i++) {
        if (!verify_tree_shows(t, &t->o.tree.leaf[i])) continue;
        syi_json_put_key(answer, t->o.tree.leaf[i].path);
        put_axes(t, &t->o.tree.leaf[i], answer);
    }
    syi_json_close(answer, '}');
}

void verify_tree_put_paths(const struct verify_tree *t, struct syi_json_writer *answer)
{
    syi_json_open(answer, '[');
    for (size_t i = 0; i < t->o.tree.n; i++)
        if (verify_tree_shows(t, &t->o.tree.leaf[i])) syi_json_put_string(answer, t->o.tree.leaf[i].path);
    syi_json_close(answer, ']');
}
