/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels that cut padded batches into routing groups and put them back: copies of rows. Which
 * tokens are routed is decided in ref_route.c. */
#include "config.h"

#include "backends/cpu/cpu.h"

struct regroup {
    char *rows, *groups;  /* [b, t, ...] and the padded tensor, whose flattened tokens are those of groups */
    int64_t b;            /* rows; the padded tensor may have more */
    size_t bytes, stride; /* of a row: as it is, padded */
};

static struct regroup begin(const struct sy_call *call, const struct sy_tensor *rows,
                            const struct sy_tensor *groups)
{
    const struct sy_attr_regroup *attr = call->attr;
    size_t token = sizeof(sy_real);
    for (int i = 2; i < rows->rank; i++) token *= (size_t)rows->dim[i];
    struct regroup r = {.rows = rows->data,
                        .groups = groups->data,
                        .b = rows->dim[0],
                        .bytes = (size_t)rows->dim[1] * token,
                        .stride = (size_t)attr->length * token};
    return r;
}

static void regroup_row(void *arg, int64_t row, int thread)
{
    const struct regroup *r = arg;
    char *to = r->groups + (size_t)row * r->stride;
    size_t copied = row < r->b ? r->bytes : 0;
    (void)thread;
    if (copied) memcpy(to, r->rows + (size_t)row * r->bytes, copied);
    memset(to + copied, 0, r->stride - copied);
}

static void ungroup_row(void *arg, int64_t row, int thread)
{
    const struct regroup *r = arg;
    (void)thread;
    memcpy(r->rows + (size_t)row * r->bytes, r->groups + (size_t)row * r->stride, r->bytes);
}

SYCPU_REF_KERNEL(regroup)
{
    struct regroup r = begin(call, &call->in[0], &call->out[0]);
    (void)context;
    sycpu_parallel(call, ((const struct sy_attr_regroup *)call->attr)->rows, regroup_row, &r);
    return SY_OK;
}

SYCPU_REF_KERNEL(ungroup)
{
    struct regroup r = begin(call, &call->out[0], &call->in[0]);
    (void)context;
    sycpu_parallel(call, r.b, ungroup_row, &r);
    return SY_OK;
}
