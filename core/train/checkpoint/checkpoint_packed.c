/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a packed model into a session, each read once to where it stays; int8 ones are expanded there where
 * the session has no room for int8. */
#include "config.h"

#include <string.h>

#include "base/int8.h"
#include "base/packed.h"
#include "train/checkpoint/checkpoint_parts.h"

/* *scales NULL: the tensor has none. */
static int find_scales(const struct syi_safetensors *file, const char *name,
                       const struct syi_safetensors_tensor **scales, struct sy_error *err)
{
    char *full = syi_format("%s%s", name, SYI_INT8_SCALES);
    *scales = full ? syi_safetensors_find(file, full) : NULL;
    syi_free(full);
    return full ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
}

/* Whether the scales are one a channel. */
static int scales_fit(const struct syi_safetensors_tensor *weights, int axis,
                      const struct syi_safetensors_tensor *scales)
{
    int fit =
        scales && axis >= 0 && scales->dtype == SYI_SAFETENSORS_F32 && scales->rank == weights->rank - 1;
    for (int d = 0; fit && d < scales->rank; d++) fit = scales->dims[d] == weights->dims[d + (d >= axis)];
    return fit;
}

static int is_scales(const char *name)
{
    return !strncmp(name, SYI_PACKED_TARGET, strlen(SYI_PACKED_TARGET)) &&
           syi_ends_with(name, SYI_INT8_SCALES);
}

static int is_weights(const char *name)
{
    return !strncmp(name, SYI_PACKED_TARGET, strlen(SYI_PACKED_TARGET)) && !is_scales(name);
}

static int check_scales(const struct syi_safetensors *file, const struct syi_safetensors_tensor *weights,
                        struct sy_error *err)
{
    const struct syi_safetensors_tensor *scales;
    int status = find_scales(file, weights->name, &scales, err);
    if (status || scales_fit(weights, syi_int8_axis(weights->name, weights->rank), scales)) return status;
    return syi_error(err, SY_EFORMAT, "%s: %s is int8 without a scale for each channel", file->path,
                     weights->name);
}

/* The parameters alone, int8 ones as the float32 that they become if `expanded`, else with their scales: what a session's
 * tensors are compared with. tensors is the caller's, all else borrowed from the file. */
static int list_weights(const struct syi_safetensors *file, int expanded, struct syi_safetensors *list,
                        struct sy_error *err)
{
    *list = *file;
    list->n_tensors = 0;
    list->tensors = syi_alloc((file->n_tensors + 1) * sizeof *list->tensors, err);
    if (!list->tensors) return SY_ENOMEM;
    for (size_t i = 0; i < file->n_tensors; i++) {
        struct syi_safetensors_tensor *to = &list->tensors[list->n_tensors];
        if (!is_weights(file->tensors[i].name) && (expanded || !is_scales(file->tensors[i].name))) continue;
        *to = file->tensors[i];
        list->n_tensors++;
        if (to->dtype != SYI_SAFETENSORS_I8) continue;
        int status = check_scales(file, to, err);
        if (status) return status;
        if (expanded) to->dtype = SYI_SAFETENSORS_F32;
    }
    return SY_OK;
}

/* Whether no parameter of the session is int8. */
static int is_expanded(const struct syi_checkpoint_tensors *tensors)
{
    for (size_t i = 0; i < tensors->n; i++)
        if (tensors->list[i].dtype == SYI_SAFETENSORS_I8) return 0;
    return 1;
}

/* This rank's block of an int8 tensor and of its scales. The int8 numbers first lie at the end of the place that they
 * become float32 in. */
static int read_int8(const struct syi_safetensors *file, const struct syi_safetensors_tensor *there,
                     const struct sy_tensor *local, struct sy_error *err)
{
    const struct syi_safetensors_tensor *scales;
    int axis = syi_int8_axis(there->name, there->rank);
    int64_t first[SY_MAX_DIMS], dim[SY_MAX_DIMS];
    struct syi_int8_shape shape = syi_int8_shape(local->dim, there->rank, axis);
    size_t n = shape.outer * shape.summed * shape.inner;
    int8_t *q = (int8_t *)local->data + 3 * n;
    for (int d = 0; d < there->rank - 1; d++) {
        first[d] = local->first[d + (d >= axis)];
        dim[d] = local->dim[d + (d >= axis)];
    }
    float *scale = syi_alloc(syi_int8_channels(&shape) * sizeof *scale, err);
    int status = scale ? find_scales(file, there->name, &scales, err) : SY_ENOMEM;
    if (!status) status = syi_safetensors_read_block(file, scales, first, dim, scale, err);
    if (!status) status = syi_safetensors_read_block(file, there, local->first, local->dim, q, err);
    if (!status) syi_int8_expand(&shape, q, scale, local->data);
    syi_free(scale);
    return status;
}

static int read_weights(const struct syi_safetensors *file, const struct syi_checkpoint_tensors *tensors,
                        struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < tensors->n && !status; i++) {
        const struct syi_safetensors_tensor *there = syi_safetensors_find(file, tensors->list[i].name);
        const struct syi_shared *shared = tensors->source[i].shared;
        int expand = there->dtype == SYI_SAFETENSORS_I8 && shared->tensor.dtype == SY_F32;
        status = expand ? read_int8(file, there, &shared->tensor, err)
                        : syi_checkpoint_tensor_read(file, there, shared, err);
    }
    return status;
}

/* The only step that it has. */
static int check_step(const struct syi_packed *p, int64_t step, struct sy_error *err)
{
    if (step == SYI_CHECKPOINT_LATEST || step == p->step) return SY_OK;
    return syi_error(
        err, SY_ENOENT,
        "%s is a packed model of step %lld and has no other checkpoint: leave the option checkpoint out",
        p->file.path, (long long)p->step);
}

int syi_checkpoint_check_packed(const char *path, int64_t step, struct sy_error *err)
{
    struct syi_packed packed;
    int status = syi_packed_open(&packed, path, err);
    if (!status) status = check_step(&packed, step, err);
    if (!status) status = syi_packed_check(&packed, err);
    syi_packed_close(&packed);
    return status;
}

int syi_checkpoint_read_packed(const char *path, int64_t step, const struct syi_session *session,
                               struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    struct syi_packed packed;
    struct syi_safetensors weights = {0};
    struct syi_checkpoint_tensors tensors = {0};
    int status = syi_packed_open(&packed, path, err);
    if (!status) status = check_step(&packed, step, err);
    if (!status) status = syi_checkpoint_tensors(session, SYI_PARAM, NULL, &tensors, err);
    if (!status) status = list_weights(&packed.file, is_expanded(&tensors), &weights, err);
    if (!status) status = syi_checkpoint_tensors_compare(&tensors, &weights, err);
    if (!status) status = read_weights(&packed.file, &tensors, err);
    if (!status) {
        meta->step = packed.step;
        snprintf(meta->params_sha256, sizeof meta->params_sha256, "%s", packed.weights_sha256);
    }
    syi_checkpoint_tensors_free(&tensors);
    syi_free(weights.tensors);
    syi_packed_close(&packed);
    return status;
}
