/* SPDX-License-Identifier: Apache-2.0 */
/* block_sum, block_sumsq, tree_add, vectorised; orders as in doc/numerics.md. */
#include "config.h"

#include "backends/cpu/fast.h"

/* ---- blocks: a task is a block ---- */

struct blocks {
    const struct sy_call *call;
    const int64_t *leaf;
    int square;
};

static void block_task(void *arg, int64_t index, int thread)
{
    const struct blocks *blocks = arg;
    const struct sy_tensor *in = &blocks->call->in[0];
    const int64_t *leaf = blocks->leaf;
    int last = in->rank - 1;
    int64_t at[SY_MAX_DIMS] = {0}, stride[SY_MAX_DIMS], rest = index, rows = 1;
    const float *x = in->data;
    float acc = 0;
    (void)thread;
    for (int d = last; d >= 0; d--) {
        stride[d] = d == last ? 1 : stride[d + 1] * in->dim[d + 1];
        x += rest % (in->dim[d] / leaf[d]) * leaf[d] * stride[d];
        rest /= in->dim[d] / leaf[d];
        if (d < last) rows *= leaf[d];
    }
    while (rows--) {
        acc += blocks->square ? vf_row_dot(x, x, leaf[last]) : vf_row_sum(x, leaf[last]);
        for (int d = last - 1; d >= 0; d--) { /* the next row of the block */
            x += stride[d];
            if (++at[d] < leaf[d]) break;
            x -= leaf[d] * stride[d];
            at[d] = 0;
        }
    }
    ((float *)blocks->call->out[0].data)[index] = acc;
}

static int block_sums(const struct sy_call *call, int square)
{
    struct blocks blocks = {call, ((const struct sy_attr_block *)call->attr)->leaf, square};
    sycpu_parallel(call, sycpu_count(&call->out[0]), block_task, &blocks);
    return SY_OK;
}

int SYCPU_FAST(block_sum)(void *context, const struct sy_call *call)
{
    (void)context;
    return block_sums(call, 0);
}

int SYCPU_FAST(block_sumsq)(void *context, const struct sy_call *call)
{
    (void)context;
    return block_sums(call, 1);
}

/* ---- tree_add ---- */

/* Sixteen columns: partial sums wait on a stack, as many as the number of ranks done has binary ones. */
static vf tree_column(const float *x, int64_t ranks, int64_t stride, int64_t n)
{
    vf stack[64];
    int depth = 0;
    int64_t padded = 1;
    while (padded < ranks) padded *= 2;
    for (int64_t i = 0; i < padded; i++) {
        vf sum = i < ranks ? fast_load(x + i * stride, n) : vf_set(0.0f);
        for (int64_t j = i; j & 1; j >>= 1) sum = vf_add(stack[--depth], sum);
        stack[depth++] = sum;
    }
    return stack[0];
}

static void tree_columns(const struct sy_call *call, int64_t first, int64_t end)
{
    int64_t ranks = call->in[0].dim[0], pieces = sycpu_count(&call->out[0]);
    const float *x = call->in[0].data;
    float *out = call->out[0].data;
    for (int64_t c = first * SYCPU_LANES; c < end * SYCPU_LANES && c < pieces; c += SYCPU_LANES) {
        int64_t n = pieces - c < SYCPU_LANES ? pieces - c : SYCPU_LANES;
        fast_store(out + c, tree_column(x + c, ranks, pieces, n), n);
    }
}

int SYCPU_FAST(tree_add)(void *context, const struct sy_call *call)
{
    (void)context;
    int64_t vectors = (sycpu_count(&call->out[0]) + SYCPU_LANES - 1) / SYCPU_LANES;
    fast_rows(call, vectors, SYCPU_LANES, tree_columns);
    return SY_OK;
}
