/* SPDX-License-Identifier: Apache-2.0 */
/* The dense relative position bias of a table, and the table's gradient, in plain C. Attention itself reads
 * the table; this is for a bias that is used as a tensor. */
#include "config.h"

#include "backends/cpu/ref.h"
#include "base/relpos.h"

struct relpos {
    sy_real *table;        /* [heads, buckets] */
    sy_real *dense;        /* [heads, t, s] */
    int32_t *bucket;       /* [t + s] of the distance key - query = index - t */
    int64_t buckets, t, s; /* extents; heads are tasks or part of them */
};

static struct relpos read(const struct sy_call *call, const struct sy_tensor *table,
                          const struct sy_tensor *dense)
{
    const struct sy_attr_relpos *attr = call->attr;
    struct relpos r = {table->data,   dense->data,   call->workspace,
                       table->dim[1], dense->dim[1], dense->dim[2]};
    for (int64_t i = 0; i < r.t + r.s; i++)
        r.bucket[i] =
            (int32_t)syi_relpos_bucket(i - r.t, (int)attr->bidirectional, r.buckets, attr->max_distance);
    return r;
}

static uint64_t workspace(const struct sy_tensor *dense)
{
    return (uint64_t)(dense->dim[1] + dense->dim[2]) * sizeof(int32_t);
}

static void bias_row(void *arg, int64_t task, int thread)
{
    const struct relpos *r = arg;
    int64_t head = task / r->t, query = task % r->t;
    (void)thread;
    for (int64_t key = 0; key < r->s; key++)
        r->dense[task * r->s + key] = r->table[head * r->buckets + r->bucket[key - query + r->t]];
}

uint64_t SYCPU_REF(relpos_bias_workspace)(const struct sy_call *call, int threads)
{
    (void)threads;
    return workspace(&call->out[0]);
}

int SYCPU_REF(relpos_bias)(void *context, const struct sy_call *call)
{
    struct relpos r = read(call, &call->in[0], &call->out[0]);
    (void)context;
    sycpu_parallel(call, call->out[0].dim[0] * r.t, bias_row, &r);
    return SY_OK;
}

static void table_head(void *arg, int64_t head, int thread)
{
    const struct relpos *r = arg;
    sy_real *table = r->table + head * r->buckets;
    (void)thread;
    for (int64_t i = 0; i < r->buckets; i++) table[i] = 0;
    for (int64_t query = 0; query < r->t; query++)
        for (int64_t key = 0; key < r->s; key++)
            table[r->bucket[key - query + r->t]] += r->dense[(head * r->t + query) * r->s + key];
}

uint64_t SYCPU_REF(relpos_bias_grad_workspace)(const struct sy_call *call, int threads)
{
    (void)threads;
    return workspace(&call->in[0]);
}

int SYCPU_REF(relpos_bias_grad)(void *context, const struct sy_call *call)
{
    struct relpos r = read(call, &call->out[0], &call->in[0]);
    (void)context;
    sycpu_parallel(call, call->out[0].dim[0], table_head, &r);
    return SY_OK;
}
