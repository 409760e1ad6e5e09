/* SPDX-License-Identifier: Apache-2.0 */
/* Names and shapes of parameters: those of T5X without scanned layers are ours. A scanned stack has its name twice and its
 * layers as axis 1 of every array; with experts its layers come in sub-blocks that repeat. Attention kernels that keep
 * heads and their width as two axes are the same elements in the same order as those that join them. */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "import/t5x.h"

static const char target[] = "target/";
static const char *const stacks[] = {"encoder", "decoder"};

/* The number after `prefix` where a '/' follows, *rest after it; -1: text is no such thing. */
static int64_t numbered(const char *text, const char *prefix, const char **rest)
{
    size_t n = strlen(prefix);
    int64_t value = 0;
    if (strncmp(text, prefix, n) != 0 || !isdigit((unsigned char)text[n])) return -1;
    for (text += n; isdigit((unsigned char)*text) && value < SYI_T5X_LAYERS; text++)
        value = value * 10 + (*text - '0');
    if (*text != '/') return -1;
    *rest = text + 1;
    return value;
}

struct syi_t5x_name syi_t5x_name_parse(const char *name)
{
    struct syi_t5x_name parsed = {.rest = name};
    for (size_t i = 0; i < SYI_COUNT(stacks); i++) {
        size_t n = strlen(stacks[i]);
        const char *inner = name + n + 1, *rest = NULL;
        if (strncmp(name, stacks[i], n) != 0 || name[n] != '/') continue;
        parsed.layer = numbered(inner, "layers_", &rest);
        if (!strncmp(inner, stacks[i], n) && inner[n] == '/') {
            parsed.scanned = 1;
            parsed.subblock = numbered(inner + n + 1, "subblock_", &rest);
            if (!rest) rest = inner + n + 1;
        }
        if (!rest) continue;
        memcpy(parsed.stack, stacks[i], n + 1);
        parsed.rest = rest;
    }
    return parsed;
}

struct syi_t5x_blocks syi_t5x_count_blocks(const struct syi_t5x_checkpoint *checkpoint)
{
    struct syi_t5x_blocks blocks = {{1, 1}};
    for (size_t i = 0; i < checkpoint->n; i++) {
        const char *name = checkpoint->array[i].name;
        if (strncmp(name, target, sizeof target - 1) != 0) continue;
        struct syi_t5x_name parsed = syi_t5x_name_parse(name + sizeof target - 1);
        int64_t *n = &blocks.n[parsed.stack[0] == 'd'];
        if (parsed.scanned && parsed.subblock >= *n) *n = parsed.subblock + 1;
    }
    return blocks;
}

char *syi_t5x_cut_name(const struct syi_t5x_name *name, const struct syi_t5x_blocks *blocks, int64_t i,
                       struct sy_error *err)
{
    int64_t n = blocks->n[name->stack[0] == 'd'], first = name->subblock > 0 ? name->subblock : 0;
    int64_t layer = name->scanned ? n * i + first : name->layer;
    char *text = *name->stack ? syi_format("%s/layers_%" PRId64 "/%s", name->stack, layer, name->rest)
                              : syi_format("%s", name->rest);
    if (!text) syi_error(err, SY_ENOMEM, "out of memory");
    return text;
}

int syi_t5x_has_experts(const struct syi_t5x_name *name)
{
    return syi_pattern_match("*mlp/expert/*", name->rest);
}

int syi_t5x_is_output(const struct syi_t5x_name *name)
{
    return syi_pattern_match("*/out/kernel", name->rest) || syi_pattern_match("*/wo/kernel", name->rest);
}

struct syi_t5x_shape syi_t5x_without(const struct syi_t5x_array *array, int axis)
{
    struct syi_t5x_shape shape = {0};
    for (int d = 0; d < array->rank; d++)
        if (d != axis) shape.dims[shape.rank++] = array->dims[d];
    return shape;
}

int syi_t5x_add(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint, size_t at, int axis,
                int64_t i, const struct syi_t5x_shape *shape, const char *name, struct sy_error *err)
{
    const struct syi_t5x_array *array = &checkpoint->array[at];
    struct syi_import_tensor tensor = {.name = (char *)(uintptr_t)name, /* copied */
                                       .origin = array->name,
                                       .dtype = array->dtype,
                                       .rank = shape->rank};
    memcpy(tensor.dims, shape->dims, sizeof tensor.dims);
    tensor.place[SYI_T5X_ARRAY] = (int64_t)at;
    tensor.place[SYI_T5X_CUT] = i;
    tensor.place[SYI_T5X_CUTS] = axis < 0 ? 0 : array->dims[axis];
    tensor.place[SYI_T5X_INNER] = 1;
    for (int d = axis + 1; axis >= 0 && d < array->rank; d++) tensor.place[SYI_T5X_INNER] *= array->dims[d];
    return syi_import_add(import, &tensor, err);
}

/* Joins heads and their width, which are the last two axes, in kernels of outputs the first two. */
static void join_heads(const struct syi_t5x_name *name, struct syi_t5x_shape *shape)
{
    int is_input = syi_pattern_match("*attention/query/kernel", name->rest) ||
                   syi_pattern_match("*attention/key/kernel", name->rest) ||
                   syi_pattern_match("*attention/value/kernel", name->rest);
    int is_out = syi_pattern_match("*attention/out/kernel", name->rest);
    if (shape->rank != 3 || (!is_input && !is_out)) return;
    int at = is_input;
    shape->dims[at] *= shape->dims[at + 1];
    if (is_out) shape->dims[1] = shape->dims[2];
    shape->dims[2] = 0;
    shape->rank = 2;
}

struct syi_t5x_shape syi_t5x_parameter_shape(const struct syi_t5x_array *array,
                                             const struct syi_t5x_name *name)
{
    struct syi_t5x_shape shape = syi_t5x_without(array, name->scanned ? 1 : -1);
    join_heads(name, &shape);
    return shape;
}

int syi_t5x_add_parameter(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint,
                          const struct syi_t5x_blocks *blocks, size_t at, struct sy_error *err)
{
    const struct syi_t5x_array *array = &checkpoint->array[at];
    struct syi_t5x_name name = syi_t5x_name_parse(array->name + sizeof target - 1);
    int axis = name.scanned ? 1 : -1, status = SY_OK;
    if (name.scanned && (array->rank < 2 || array->dims[1] > SYI_T5X_LAYERS))
        return syi_error(err, SY_EUNSUPPORTED,
                         "%s: %s has no axis of layers, which a scanned stack has as its second",
                         import->folder, array->name);
    struct syi_t5x_shape shape = syi_t5x_parameter_shape(array, &name);
    int64_t cuts = name.scanned ? array->dims[1] : 1;
    for (int64_t i = 0; i < cuts && !status; i++) {
        char *path = syi_t5x_cut_name(&name, blocks, i, err);
        char *full = path ? syi_format("%s%s", target, path) : NULL;
        status = full ? syi_t5x_add(import, checkpoint, at, axis, i, &shape, full, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(full);
        syi_free(path);
    }
    return status;
}
