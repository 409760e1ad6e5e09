/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of a checkpoint's tensors as doubles, a chunk at a time, and back. */
#include "config.h"

#include <string.h>

#include "base/bf16.h"
#include "cli/ckpt/ckpt.h"

int64_t ckpt_count(const struct syi_safetensors_tensor *tensor)
{
    return (int64_t)(tensor->bytes / syi_safetensors_element_bytes(tensor->dtype));
}

void ckpt_shape(const struct syi_safetensors_tensor *tensor, char text[128])
{
    size_t used = (size_t)snprintf(text, 128, "[");
    for (int d = 0; d < tensor->rank && used < 100; d++)
        used += (size_t)snprintf(text + used, 128 - used, "%s%lld", d ? "," : "", (long long)tensor->dims[d]);
    snprintf(text + used, 128 - used, "]");
}

static double element(enum syi_safetensors_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case SYI_SAFETENSORS_F64: return ((const double *)data)[i];
    case SYI_SAFETENSORS_BF16: return syi_bf16_to_float(((const uint16_t *)data)[i]);
    case SYI_SAFETENSORS_I32: return ((const int32_t *)data)[i];
    case SYI_SAFETENSORS_I64: return (double)((const int64_t *)data)[i];
    default: return ((const float *)data)[i];
    }
}

/* Those that checkpoints are made of. */
static int check_dtype(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                       struct sy_error *err)
{
    switch (tensor->dtype) {
    case SYI_SAFETENSORS_F32:
    case SYI_SAFETENSORS_F64:
    case SYI_SAFETENSORS_BF16:
    case SYI_SAFETENSORS_I32:
    case SYI_SAFETENSORS_I64: return SY_OK;
    default:
        return syi_error(err, SY_EUNSUPPORTED, "%s: %s has dtype %s, which no checkpoint of switchyard has",
                         file->path, tensor->name, syi_safetensors_dtype_name(tensor->dtype));
    }
}

int ckpt_read(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor, int64_t first,
              int64_t n, double *value, struct sy_error *err)
{
    static double raw[CKPT_CHUNK]; /* room and alignment for every dtype */
    size_t bytes = syi_safetensors_element_bytes(tensor->dtype);
    int status = check_dtype(file, tensor, err);
    if (!status)
        status = syi_safetensors_read(file, tensor, (uint64_t)first * bytes, raw, (size_t)n * bytes, err);
    for (int64_t i = 0; i < n && !status; i++) value[i] = element(tensor->dtype, raw, i);
    return status;
}

int ckpt_write(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor, int64_t first,
               int64_t n, const double *value, struct sy_error *err)
{
    static float wide[CKPT_CHUNK];
    static uint16_t narrow[CKPT_CHUNK];
    int is_wide = tensor->dtype == SYI_SAFETENSORS_F32;
    size_t bytes = syi_safetensors_element_bytes(tensor->dtype);
    for (int64_t i = 0; i < n; i++) {
        wide[i] = (float)value[i];
        narrow[i] = syi_bf16_from_float(wide[i]);
    }
    return syi_safetensors_write(file, tensor, (uint64_t)first * bytes, is_wide ? (void *)wide : narrow,
                                 (size_t)n * bytes, err);
}
