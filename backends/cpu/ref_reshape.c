/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of expand_dims and squeeze: the same elements under other dims. */
#include "config.h"

#include "backends/cpu/cpu.h"

struct copy {
    char *to;
    const char *from;
    size_t bytes; /* of a row */
};

static void copy_row(void *arg, int64_t row, int thread)
{
    const struct copy *c = arg;
    (void)thread;
    memcpy(c->to + (size_t)row * c->bytes, c->from + (size_t)row * c->bytes, c->bytes);
}

static int copy_rows(const struct sy_call *call)
{
    const struct sy_tensor *x = &call->in[0];
    int last = x->rank - 1;
    struct copy c = {call->out[0].data, x->data, (size_t)x->dim[last] * sizeof(sy_real)};
    sycpu_parallel(call, sycpu_extent(x, last), copy_row, &c);
    return SY_OK;
}

SYCPU_REF_KERNEL(expand_dims)
{
    (void)context;
    return copy_rows(call);
}

SYCPU_REF_KERNEL(squeeze)
{
    (void)context;
    return copy_rows(call);
}
