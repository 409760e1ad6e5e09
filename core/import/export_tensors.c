/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a run into one file of safetensors, as a form asks for them; and the plainest form, in which they have
 * their own names. */
#include "config.h"

#include <string.h>

#include "base/bf16.h"
#include "import/export.h"

/* ---- tensors ---- */

/* Shape of one tensor; NULL: the parameter has another form than asked for. */
static int describe(const struct syi_export *export, const struct syi_export_tensor *tensor,
                    struct syi_safetensors_tensor *to, struct sy_error *err)
{
    const struct syi_safetensors_tensor *from = syi_safetensors_find(&export->params, tensor->from);
    int first = tensor->parts > 0, rank = from ? from->rank - first : 0;
    if (!from || rank < 0 || (first && from->dims[0] != tensor->parts) || (tensor->transposed && rank != 2))
        return syi_error(err, SY_EINTERNAL, "%s cannot be written as %s", tensor->from, tensor->name);
    to->name = tensor->name;
    to->dtype = export->dtype;
    to->rank = rank;
    for (int d = 0; d < rank; d++) to->dims[d] = from->dims[first + (tensor->transposed ? rank - 1 - d : d)];
    return SY_OK;
}

static void transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
}

static int copy(const struct syi_export *export, const struct syi_export_tensor *tensor,
                const struct syi_safetensors *file, struct sy_error *err)
{
    const struct syi_safetensors_tensor *from = syi_safetensors_find(&export->params, tensor->from);
    const struct syi_safetensors_tensor *to = syi_safetensors_find(file, tensor->name);
    size_t n = (size_t)(to->bytes / syi_safetensors_element_bytes(to->dtype)), bytes = n * sizeof(float);
    float *values = syi_alloc(bytes, err), *turned = tensor->transposed ? syi_alloc(bytes, err) : values;
    int status = values && turned ? SY_OK : SY_ENOMEM;
    if (!status)
        status =
            syi_safetensors_read_floats(&export->params, from, (uint64_t)tensor->part * n, values, n, err);
    if (!status && tensor->transposed) transpose(values, to->dims[1], to->dims[0], turned);
    if (!status && to->dtype == SYI_SAFETENSORS_BF16) syi_bf16_narrow(turned, n);
    if (!status) status = syi_safetensors_write(file, to, 0, turned, (size_t)to->bytes, err);
    if (tensor->transposed) syi_free(turned);
    syi_free(values);
    return status;
}

static int write_file(const struct syi_export *export, const char *path, const struct syi_export_tensor *list,
                      const struct syi_safetensors_tensor *described, size_t n, struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    struct syi_safetensors file = {.fd = -1};
    int status = syi_safetensors_plan(&file, described, n, metadata, SYI_COUNT(metadata), err);
    if (!status) status = syi_safetensors_create(&file, path, err);
    for (size_t i = 0; i < n && !status; i++) status = copy(export, &list[i], &file, err);
    if (!status) status = syi_safetensors_finish(&file, err);
    syi_safetensors_close(&file);
    return status;
}

int syi_export_tensors(const struct syi_export *export, const char *folder,
                       const struct syi_export_tensor *list, size_t n, struct sy_error *err)
{
    char *path = syi_format("%s/model.safetensors", folder);
    struct syi_safetensors_tensor *described = syi_alloc((n + 1) * sizeof *described, err);
    int status = path && described ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !status; i++) status = describe(export, &list[i], &described[i], err);
    if (!status) status = write_file(export, path, list, described, n, err);
    syi_free(described);
    syi_free(path);
    return status;
}

/* ---- the form safetensors ---- */

static int write_plain(struct syi_export *export, const char *to, struct sy_error *err)
{
    static const char target[] = "target/";
    size_t n = export->params.n_tensors;
    struct syi_export_tensor *list = syi_alloc((n + 1) * sizeof *list, err);
    int status = list ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; i < n && !status; i++) {
        const char *name = export->params.tensors[i].name;
        int prefixed = !strncmp(name, target, sizeof target - 1);
        list[i].from = name;
        list[i].name = (char *)(uintptr_t)(name + (prefixed ? sizeof target - 1 : 0)); /* only read */
    }
    if (!status) status = syi_export_tensors(export, to, list, n, err);
    syi_free(list);
    return status;
}

const struct syi_export_format syi_export_safetensors = {
    "safetensors", "model.safetensors: the parameters under their own names", write_plain};
