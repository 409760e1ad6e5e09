/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "runtime/kernel_speed.h"

/* x [ROWS, DEPTH] times w [DEPTH, COLUMNS]: with its packed copies less than half a MiB. ROWS is a multiple of the rows
 * of a tile on every instruction set but AMX's, COLUMNS of the columns. */
enum {
    ROWS = 168,
    DEPTH = 96,
    COLUMNS = 96,
    CALLS = 3
}; /* CALLS: the first finds cold caches and sleeping units */

static struct sy_tensor tensor(int dtype, int rank, int64_t rows, int64_t columns)
{
    struct sy_tensor t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .dim = {1, 1, 1, 1, 1}};
    t.dim[rank - 2] = rows;
    t.dim[rank - 1] = columns;
    return t;
}

static int64_t elements(const struct sy_tensor *t)
{
    return t->dim[0] * t->dim[1] * t->dim[2];
}

/* Numbers of all sizes around 1: how fast they are multiplied may depend on how many of their bits change. */
static int fill(struct sy_tensor *t, struct sy_error *err)
{
    int64_t n = elements(t);
    int half = t->dtype == SY_BF16;
    t->data = syi_alloc((size_t)n * (half ? 2 : 4), err);
    for (int64_t i = 0; t->data && i < n; i++) {
        float x = (float)((uint32_t)i * 2654435761u >> 8) * 0x1p-23f - 1.0f;
        if (half)
            ((uint16_t *)t->data)[i] = syi_bf16_from_float(x);
        else
            ((float *)t->data)[i] = x;
    }
    return t->data ? SY_OK : SY_ENOMEM;
}

static int make_operands(struct syi_kernel_trial *t, int dtype, struct sy_error *err)
{
    t->in[0] = tensor(dtype, 3, ROWS, DEPTH);
    t->in[1] = tensor(dtype, 2, DEPTH, COLUMNS);
    t->out = tensor(dtype, 3, ROWS, COLUMNS);
    t->leaf.leaf = DEPTH;
    t->call = (struct sy_call){.host = &t->backend->host,
                               .in = t->in,
                               .out = &t->out,
                               .attr = &t->leaf,
                               .attr_bytes = sizeof t->leaf,
                               .op = SY_OP_MATMUL,
                               .n_in = 2,
                               .n_out = 1};
    int status = fill(&t->in[0], err);
    if (!status) status = fill(&t->in[1], err);
    return status ? status : fill(&t->out, err);
}

static int tell(struct syi_kernel_trial *t, int status, struct sy_error *err)
{
    return status ? syi_backend_error(t->backend, status, "a product to measure its speed", err) : SY_OK;
}

int syi_kernel_trial_open(struct syi_kernel_trial *t, struct syi_backend *backend, int dtype,
                          struct sy_error *err)
{
    t->backend = backend;
    t->seconds = INFINITY;
    if (backend->plugin.desc.caps & SY_CAP_DEVICE) return SY_OK;
    t->kernel = syi_backend_find(backend, SY_OP_MATMUL, dtype, dtype);
    if (!t->kernel) return SY_OK;
    int status = make_operands(t, dtype, err);
    if (status) return status;
    t->call.workspace_bytes =
        t->kernel->workspace ? t->kernel->workspace(&t->call, backend->host.threads) : 0;
    t->call.workspace = syi_alloc((size_t)t->call.workspace_bytes + 1, err);
    if (!t->call.workspace) return SY_ENOMEM;
    status = t->kernel->prepare ? t->kernel->prepare(backend->context, &t->call, &t->call.plan) : SY_OK;
    return tell(t, status, err);
}

int syi_kernel_trial_run(struct syi_kernel_trial *t, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; t->kernel && !status && i < CALLS; i++) {
        double begin = syi_seconds();
        status = t->kernel->run(t->backend->context, &t->call);
        t->seconds = fmin(t->seconds, syi_seconds() - begin);
    }
    return tell(t, status, err);
}

double syi_kernel_trial_flops(const struct syi_kernel_trial *t)
{
    return t->kernel ? 2.0 * ROWS * DEPTH * COLUMNS / fmax(t->seconds, 1e-9) : 0;
}

void syi_kernel_trial_close(struct syi_kernel_trial *t)
{
    if (t->kernel && t->kernel->release && t->call.plan)
        t->kernel->release(t->backend->context, t->call.plan);
    syi_free(t->in[0].data);
    syi_free(t->in[1].data);
    syi_free(t->out.data);
    syi_free(t->call.workspace);
    memset(t, 0, sizeof *t);
}
