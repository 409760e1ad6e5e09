/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the parts of tensors that this rank's parameters take. */
#include "config.h"

#include <string.h>

#include "base/bf16.h"
#include "runtime/session.h"
#include "train/init/init_plan.h"

static int64_t count(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= dims[d];
    return n;
}

/* The block as float32. bfloat16 is read into the second half of its place and widened there. */
static int read_block(const struct syi_safetensors *file, const struct syi_safetensors_tensor *from,
                      const int64_t *start, const int64_t *extent, float *to, struct sy_error *err)
{
    int64_t n = count(from->rank, extent);
    if (from->dtype == SYI_SAFETENSORS_F32)
        return syi_safetensors_read_block(file, from, start, extent, to, err);
    int status = syi_safetensors_read_block(file, from, start, extent, (char *)to + 2 * n, err);
    if (!status) syi_bf16_widen(to, (size_t)n);
    return status;
}

/* Of an MLP without experts, once for each expert of this rank. */
static int read_copies(const struct syi_safetensors *file, const struct syi_safetensors_tensor *from,
                       const struct sy_tensor *to, struct sy_error *err)
{
    float *data = to->data;
    int64_t n = count(to->rank - 1, to->dim + 1);
    int status = read_block(file, from, to->first + 1, to->dim + 1, data, err);
    for (int64_t e = 1; !status && e < to->dim[0]; e++) memcpy(data + e * n, data, (size_t)n * sizeof *data);
    return status;
}

/* Expert number `expert`. */
static int read_expert(const struct syi_safetensors *file, const struct syi_safetensors_tensor *from,
                       int64_t expert, const struct sy_tensor *to, float *data, struct sy_error *err)
{
    int64_t start[SY_MAX_DIMS + 1] = {expert}, extent[SY_MAX_DIMS + 1] = {1};
    memcpy(start + 1, to->first, (size_t)to->rank * sizeof *start);
    memcpy(extent + 1, to->dim, (size_t)to->rank * sizeof *extent);
    return read_block(file, from, start, extent, data, err);
}

/* A chain of sums in the order of the experts, then one division. */
static int read_mean(const struct syi_safetensors *file, const struct syi_safetensors_tensor *from,
                     const struct sy_tensor *to, struct sy_error *err)
{
    int64_t n = count(to->rank, to->dim), experts = from->dims[0];
    float *data = to->data, *one = syi_alloc((size_t)n * sizeof *one, err);
    int status = one ? read_expert(file, from, 0, to, data, err) : SY_ENOMEM;
    for (int64_t e = 1; !status && e < experts; e++) {
        status = read_expert(file, from, e, to, one, err);
        for (int64_t i = 0; !status && i < n; i++) data[i] += one[i];
    }
    for (int64_t i = 0; !status && i < n; i++) data[i] /= (float)experts;
    syi_free(one);
    return status;
}

static int read_taken(const struct syi_safetensors *file, const struct syi_taken *taken,
                      const struct sy_tensor *to, struct sy_error *err)
{
    switch (taken->how) {
    case SYI_TAKE_SAME: return read_block(file, taken->from, to->first, to->dim, to->data, err);
    case SYI_TAKE_COPIES: return read_copies(file, taken->from, to, err);
    case SYI_TAKE_EXPERT: return read_expert(file, taken->from, taken->expert, to, to->data, err);
    case SYI_TAKE_MEAN: return read_mean(file, taken->from, to, err);
    default: return SY_OK;
    }
}

int syi_init_read(const struct syi_init_plan *plan, const struct syi_model *model,
                  struct syi_session *session, const struct syi_safetensors *file, struct sy_error *err)
{
    static const enum syi_role roles[] = {SYI_ROLE_PARAMETER, SYI_ROLE_AVERAGE, SYI_ROLE_ITERATE};
    int status = SY_OK;
    for (size_t i = 0; i < model->n; i++)
        for (size_t k = 0; k < SYI_COUNT(roles) && !status; k++) {
            const struct sy_tensor *to = syi_session_find_any(session, roles[k], model->param[i].id);
            if (to) status = read_taken(file, &plan->param[i], to, err);
        }
    return status ? status : syi_session_upload(session, SYI_PERSIST, err);
}
