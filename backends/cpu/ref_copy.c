/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels that move rows: pack, unpack, embed and its gradient, cache_append,
 * cache_gather. */
#include "config.h"

#include "backends/cpu/ref.h"

/* Copies between `whole`, the packed tensor, and parts[0..n). */
static void interleave(const struct sy_call *call, const struct sy_tensor *whole,
                       const struct sy_tensor *parts, int n, int unpack)
{
    const struct sy_attr_pack *attr = call->attr;
    char *packed = whole->data, *part[3] = {0};
    int64_t rows = sycpu_extent(whole, whole->rank - 1),
            blocks = parts[0].dim[whole->rank - 1] / attr->width[0];
    for (int i = 0; i < n; i++) part[i] = parts[i].data;
    for (int64_t block = 0; block < rows * blocks; block++) {
        for (int i = 0; i < n; i++) {
            size_t bytes = (size_t)attr->width[i] * sizeof(sy_real);
            if (unpack)
                memcpy(part[i], packed, bytes);
            else
                memcpy(packed, part[i], bytes);
            part[i] += bytes;
            packed += bytes;
        }
    }
}

SYCPU_REF_KERNEL(pack)
{
    (void)context;
    interleave(call, &call->out[0], call->in, call->n_in, 0);
    return SY_OK;
}

SYCPU_REF_KERNEL(unpack)
{
    (void)context;
    interleave(call, &call->in[0], call->out, call->n_out, 1);
    return SY_OK;
}

SYCPU_REF_KERNEL(embed)
{
    (void)context;
    const int32_t *id = call->in[0].data;
    const sy_real *table = call->in[1].data;
    sy_real *y = call->out[0].data;
    int64_t V = call->in[1].dim[0], D = call->in[1].dim[1];
    for (int64_t i = 0; i < sycpu_count(&call->in[0]); i++, y += D) {
        if (id[i] >= 0 && id[i] < V)
            memcpy(y, table + id[i] * D, (size_t)D * sizeof *y);
        else
            memset(y, 0, (size_t)D * sizeof *y);
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(embed_int8)
{
    (void)context;
    const int32_t *id = call->in[0].data;
    const int8_t *table = call->in[1].data;
    const sy_real *scale = call->in[2].data;
    sy_real *y = call->out[0].data;
    int64_t V = call->in[1].dim[0], D = call->in[1].dim[1];
    for (int64_t i = 0; i < sycpu_count(&call->in[0]); i++, y += D) {
        int there = id[i] >= 0 && id[i] < V;
        for (int64_t d = 0; d < D; d++) y[d] = there ? (sy_real)table[id[i] * D + d] * scale[id[i]] : 0;
    }
    return SY_OK;
}

struct table_grad {
    const struct sy_call *call;
    int64_t v, d; /* element of the table */
};

static sy_real table_grad_leaf(const void *arg, int64_t leaf)
{
    const struct table_grad *g = arg;
    const struct sy_tensor *ids = &g->call->in[0];
    const int32_t *id = ids->data;
    const sy_real *dy = g->call->in[1].data;
    int64_t D = g->call->in[1].dim[2],
            positions = ((const struct sy_attr_leaf *)g->call->attr)->leaf * ids->dim[1];
    sy_real acc = 0;
    for (int64_t i = leaf * positions; i < (leaf + 1) * positions; i++)
        if (id[i] == g->v) acc += dy[i * D + g->d];
    return acc + 0;
}

static int occurs(const struct sy_tensor *ids, int64_t v)
{
    const int32_t *id = ids->data;
    for (int64_t i = 0; i < sycpu_count(ids); i++)
        if (id[i] == v) return 1;
    return 0;
}

SYCPU_REF_KERNEL(embed_grad)
{
    (void)context;
    const struct sy_attr_leaf *attr = call->attr;
    int64_t V = call->out[0].dim[0], D = call->out[0].dim[1];
    struct table_grad g = {call, 0, 0};
    for (; g.v < V; g.v++) {
        sy_real *row = (sy_real *)call->out[0].data + g.v * D;
        memset(row, 0, (size_t)D * sizeof *row);
        if (!occurs(&call->in[0], g.v)) continue;
        for (g.d = 0; g.d < D; g.d++)
            row[g.d] = ref_tree(table_grad_leaf, &g, 0, call->in[0].dim[0] / attr->leaf);
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(cache_append)
{
    (void)context;
    const struct sy_tensor *cache = &call->in[0];
    int64_t at = ((const int32_t *)call->in[2].data)[0], T = cache->dim[1], n = cache->dim[2];
    const sy_real *row = call->in[1].data;
    sy_real *out = call->out[0].data;
    if (call->out[0].data != cache->data) memcpy(out, cache->data, (size_t)sycpu_count(cache) * sizeof *out);
    if (at < 0 || at >= T) return SY_OK;
    for (int64_t b = 0; b < cache->dim[0]; b++)
        memcpy(out + (b * T + at) * n, row + b * n, (size_t)n * sizeof *out);
    return SY_OK;
}

/* Row b of the output from the local row that in[1][b] names; a row held elsewhere is replaced by b
 * itself. */
static void gather_row(void *arg, int64_t b, int thread)
{
    const struct sy_call *call = *(const struct sy_call **)arg;
    const struct sy_tensor *cache = &call->in[0];
    int64_t at = ((const int32_t *)call->in[2].data)[0], T = cache->dim[1], n = cache->dim[2];
    int64_t from = ((const int32_t *)call->in[1].data)[b] - cache->first[0];
    (void)thread;
    if (from < 0 || from >= cache->dim[0]) from = b;
    if (at > T) at = T;
    if (at > 0)
        memcpy((sy_real *)call->out[0].data + b * T * n, (const sy_real *)cache->data + from * T * n,
               (size_t)(at * n) * sizeof(sy_real));
}

SYCPU_REF_KERNEL(cache_gather)
{
    (void)context;
    sycpu_parallel(call, call->in[0].dim[0], gather_row, &call);
    return SY_OK;
}
