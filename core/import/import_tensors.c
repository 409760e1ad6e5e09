/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of an import, of any format: by name, against the parameters of the model, and as float32. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/f16.h"
#include "import/import.h"
#include "train/engine/engine.h"

/* ---- tensors ---- */

int syi_import_add(struct syi_import *import, const struct syi_import_tensor *tensor, struct sy_error *err)
{
    int status = SYI_GROW(import->tensors, import->capacity, import->n + 1, err);
    if (status) return status;
    struct syi_import_tensor *to = &import->tensors[import->n++];
    *to = *tensor;
    to->name = syi_strdup(tensor->name, err);
    to->origin = syi_strdup(tensor->origin, err);
    return to->name && to->origin ? SY_OK : SY_ENOMEM;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct syi_import_tensor *)a)->name, ((const struct syi_import_tensor *)b)->name);
}

int syi_import_sort(struct syi_import *import, struct sy_error *err)
{
    if (import->n) qsort(import->tensors, import->n, sizeof *import->tensors, by_name);
    for (size_t i = 1; i < import->n; i++)
        if (!by_name(&import->tensors[i - 1], &import->tensors[i]))
            return syi_error(err, SY_EFORMAT, "%s: both %s and %s are %s here", import->folder,
                             import->tensors[i - 1].origin, import->tensors[i].origin,
                             import->tensors[i].name);
    return SY_OK;
}

const struct syi_import_tensor *syi_import_find(const struct syi_import *import, const char *name)
{
    const struct syi_import_tensor key = {.name = (char *)(uintptr_t)name};
    return import->n ? bsearch(&key, import->tensors, import->n, sizeof key, by_name) : NULL;
}

/* ---- against the model ---- */

/* "[128,256]" */
static void describe(int rank, const int64_t *dim, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int d = 0; d < rank && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d ? "," : "", (long long)dim[d]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
}

static int check_parameter(const struct syi_import *import, const struct syi_param *param,
                           struct sy_error *err)
{
    char name[sizeof param->name + 8], has[200], wants[200];
    snprintf(name, sizeof name, "target/%s", param->name);
    const struct syi_import_tensor *tensor = syi_import_find(import, name);
    describe(param->rank, param->dim, wants, sizeof wants);
    if (!tensor)
        return syi_error(err, SY_EMISMATCH,
                         "%s has nothing for %s %s, which the model of its configuration has", import->folder,
                         param->name, wants);
    if (tensor->rank == param->rank &&
        !memcmp(tensor->dims, param->dim, (size_t)param->rank * sizeof param->dim[0]))
        return SY_OK;
    describe(tensor->rank, tensor->dims, has, sizeof has);
    return syi_error(err, SY_EMISMATCH, "%s: %s (%s) has shape %s, the model of its configuration wants %s",
                     import->folder, tensor->origin, param->name, has, wants);
}

/* The parameters' names are in their order, so are the tensors'. */
static int check_left(const struct syi_import *import, const struct syi_model *model, struct sy_error *err)
{
    static const char target[] = "target/";
    size_t at = 0;
    for (size_t i = 0; i < import->n; i++) {
        const struct syi_import_tensor *tensor = &import->tensors[i];
        if (strncmp(tensor->name, target, sizeof target - 1)) continue;
        const char *name = tensor->name + sizeof target - 1;
        if (at < model->n && !strcmp(model->param[at].name, name)) {
            at++;
            continue;
        }
        return syi_error(err, SY_EMISMATCH, "%s: %s (%s) has no place in the model of its configuration",
                         import->folder, tensor->origin, name);
    }
    return SY_OK;
}

int syi_import_model(const struct syi_config *config, struct syi_model *model, struct sy_error *err)
{
    struct syi_config *settled =
        syi_config_copy(config, err); /* checking gives keys values that are not written */
    struct syi_shape shape = syi_config_shape(config, SYI_EVAL);
    struct syi_recorded recorded = {0};
    int status = settled ? syi_config_validate(settled, err) : SY_ENOMEM;
    if (!status) status = syi_record_eval(config, &shape, model, &recorded, err);
    if (!status) syi_program_free(recorded.program);
    syi_free(settled);
    return status;
}

int syi_import_check(const struct syi_import *import, struct sy_error *err)
{
    struct syi_model model = {0};
    int status = syi_import_model(&import->config, &model, err);
    for (size_t i = 0; i < model.n && !status; i++) status = check_parameter(import, &model.param[i], err);
    if (!status) status = check_left(import, &model, err);
    syi_model_free(&model);
    return status;
}

/* ---- elements ---- */

static void widen(enum syi_safetensors_dtype dtype, const void *from, uint64_t n, float *to)
{
    const uint16_t *half = from;
    for (uint64_t i = 0; i < n; i++)
        to[i] = dtype == SYI_SAFETENSORS_BF16 ? syi_bf16_to_float(half[i]) : syi_f16_to_float(half[i]);
}

int syi_import_read(struct syi_import *import, const struct syi_import_tensor *tensor, float *to,
                    struct sy_error *err)
{
    uint64_t n = 1;
    for (int d = 0; d < tensor->rank; d++) n = syi_mul_u64(n, (uint64_t)tensor->dims[d]);
    if (tensor->dtype == SYI_SAFETENSORS_F32) return import->format->read(import, tensor, to, err);
    if (tensor->dtype != SYI_SAFETENSORS_BF16 && tensor->dtype != SYI_SAFETENSORS_F16)
        return syi_error(err, SY_EUNSUPPORTED, "%s: %s is %s: weights are F32, F16 or BF16", import->folder,
                         tensor->origin, syi_safetensors_dtype_name(tensor->dtype));
    void *stored = syi_alloc((size_t)syi_mul_u64(n, 2), err);
    int status = stored ? import->format->read(import, tensor, stored, err) : SY_ENOMEM;
    if (!status) widen(tensor->dtype, stored, n, to);
    syi_free(stored);
    return status;
}
