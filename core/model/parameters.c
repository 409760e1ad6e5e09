/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a model: found by name, made when a layer first asks for them, with the scales of those in int8. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/int8.h"
#include "model/model.h"
#include "program/record.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct syi_param *)a)->name, ((const struct syi_param *)b)->name);
}

static const char *param_name(const void *owner, uint32_t place)
{
    return ((const struct syi_model *)owner)->param[place].name;
}

/* A name that is there already stays as it is. *id: that of the parameter. */
static int params_add(struct syi_model *model, const struct syi_param *param, uint32_t *id,
                      struct sy_error *err)
{
    int64_t there = syi_index_find(&model->index, param_name, model, param->name);
    if (there >= 0) {
        *id = model->param[there].id;
        return SY_OK;
    }
    int status = SYI_GROW(model->param, model->capacity, model->n + 1, err);
    if (!status) status = syi_index_add(&model->index, param->name, (uint32_t)model->n, err);
    if (status) return status;
    struct syi_param *added = &model->param[model->n];
    *added = *param;
    *id = added->id = (uint32_t)model->n++;
    model->unsorted = 1;
    return SY_OK;
}

int syi_model_sort(struct syi_model *model, struct sy_error *err)
{
    int status = SY_OK;
    if (!model->unsorted) return SY_OK;
    qsort(model->param, model->n, sizeof *model->param, by_name);
    syi_index_free(&model->index);
    for (size_t i = 0; !status && i < model->n; i++)
        status = syi_index_add(&model->index, model->param[i].name, (uint32_t)i, err);
    model->unsorted = 0;
    return status;
}

void syi_model_free(struct syi_model *model)
{
    syi_free(model->param);
    syi_free(model->copy);
    syi_free(model->layer);
    syi_index_free(&model->index);
    syi_index_free(&model->copy_index);
    memset(model, 0, sizeof *model);
}

/* The scales of int8 weights whose dimension `summed` products sum over: "NAME.scales", without it. */
static int build_scales(struct syi_build *b, const struct syi_param *param, int summed)
{
    char name[sizeof param->name + sizeof SYI_INT8_SCALES];
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
    for (int d = 0; d < param->rank - 1; d++) {
        dim[d] = param->dim[d + (d >= summed)];
        axis[d] = param->axis[d + (d >= summed)];
    }
    snprintf(name, sizeof name, "%s" SYI_INT8_SCALES, param->name);
    int scales = syi_tensor_add(b->p, name, SYI_PARAM, SY_F32, param->rank - 1, dim, axis);
    return syi_role_set(b->p, scales, SYI_ROLE_SCALES, param->id);
}

int syi_build_param(struct syi_build *b, const char *name, int rank, const int64_t *dim, const uint8_t *axis,
                    enum syi_init init, double scale)
{
    struct syi_param param = {.init = init, .scale = scale, .rank = rank};
    const char *scope = syi_program_name(b->p, b->p->layer);
    snprintf(param.name, sizeof param.name, "%s%s%s", scope, *scope ? "/" : "", name);
    int there = syi_program_find(b->p, param.name);
    if (there >= 0) return there;
    memcpy(param.dim, dim, (size_t)rank * sizeof *dim);
    memcpy(param.axis, axis, (size_t)rank);
    struct sy_error err = {0};
    uint32_t id;
    if (params_add(b->model, &param, &id, &err)) return syi_program_fail(b->p, SY_ENOMEM, "%s", err.text);
    param.id = id;
    int summed = b->int8 ? syi_int8_axis(param.name, rank) : -1;
    if (summed >= 0) build_scales(b, &param, summed);
    there = syi_tensor_add(b->p, param.name, SYI_PARAM, summed < 0 ? SY_F32 : SY_I8, rank, dim, axis);
    return syi_role_set(b->p, there, SYI_ROLE_PARAMETER, id);
}

int syi_scales(struct syi_build *b, int w)
{
    char name[sizeof b->model->param->name + sizeof SYI_INT8_SCALES];
    if (w < 0 || b->p->tensor[w].dtype != SY_I8) return -1;
    snprintf(name, sizeof name, "%s" SYI_INT8_SCALES, syi_program_name(b->p, b->p->tensor[w].name));
    return syi_program_find(b->p, name);
}
