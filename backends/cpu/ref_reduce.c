/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of sums and maxima over tensors, axes and ranks: block_sum, block_sumsq, block_max, tree_sum,
 * tree_axis, tree_add, max_axis, column_sum, count_sum. */
#include "config.h"

#include <math.h>

#include "backends/cpu/ref.h"

/* ---- block_sum, block_sumsq, block_max ---- */

/* The block of the given extents at `x`, a place in the tensor. Rows are taken in ascending order. */
static sy_real block(const struct sy_call *call, const sy_real *x, ref_reduce_fn reduce)
{
    const struct sy_tensor *in = &call->in[0];
    const int64_t *leaf = ((const struct sy_attr_block *)call->attr)->leaf;
    int last = in->rank - 1;
    int64_t rows = 1;
    sy_real acc = 0;
    for (int i = 0; i < last; i++) rows *= leaf[i];
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row, stride = in->dim[last], at = 0;
        for (int i = last - 1; i >= 0; i--) {
            at += rest % leaf[i] * stride;
            rest /= leaf[i];
            stride *= in->dim[i];
        }
        acc = reduce(acc, x + at, leaf[last]);
    }
    return acc;
}

static int blocks(const struct sy_call *call, ref_reduce_fn reduce)
{
    const struct sy_tensor *in = &call->in[0];
    const int64_t *leaf = ((const struct sy_attr_block *)call->attr)->leaf;
    sy_real *out = call->out[0].data;
    for (int64_t i = 0; i < sycpu_count(&call->out[0]); i++) {
        int64_t rest = i, stride = 1, at = 0;
        for (int d = in->rank - 1; d >= 0; d--) {
            int64_t blocks = in->dim[d] / leaf[d];
            at += rest % blocks * leaf[d] * stride;
            rest /= blocks;
            stride *= in->dim[d];
        }
        out[i] = block(call, (const sy_real *)in->data + at, reduce);
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(block_sum)
{
    (void)context;
    return blocks(call, ref_add_row);
}

SYCPU_REF_KERNEL(block_sumsq)
{
    (void)context;
    return blocks(call, ref_add_squares);
}

SYCPU_REF_KERNEL(block_max)
{
    (void)context;
    return blocks(call, ref_raise_to_row);
}

/* ---- trees ---- */

/* The tree over elements first .. first + n - 1 (n a power of two) of axis `d`, each the tree over the axes
 * after it; elements beyond the extent are +0. */
static sy_real tree(const struct sy_tensor *in, const sy_real *x, int d, int64_t first, int64_t n)
{
    if (n > 1) return tree(in, x, d, first, n / 2) + tree(in, x, d, first + n / 2, n / 2);
    if (first >= in->dim[d]) return 0;
    int64_t stride = 1, next = 1;
    for (int i = d + 1; i < in->rank; i++) stride *= in->dim[i];
    if (d + 1 == in->rank) return x[first];
    while (next < in->dim[d + 1]) next *= 2;
    return tree(in, x + first * stride, d + 1, 0, next);
}

SYCPU_REF_KERNEL(tree_sum)
{
    (void)context;
    const struct sy_tensor *in = &call->in[0];
    int64_t n = 1;
    while (in->rank && n < in->dim[0]) n *= 2;
    *(sy_real *)call->out[0].data = in->rank ? tree(in, in->data, 0, 0, n) : *(const sy_real *)in->data;
    return SY_OK;
}

/* A line of elements across a tensor. */
struct line {
    const sy_real *x;
    int64_t n, stride;
};

static sy_real line_element(const void *arg, int64_t index)
{
    const struct line *line = arg;
    return index < line->n ? line->x[index * line->stride] : 0;
}

/* x[outer, n, inner] -> out[outer, inner]: a tree over the n. */
static void tree_lines(const sy_real *x, int64_t outer, int64_t n, int64_t inner, sy_real *out)
{
    int64_t padded = 1;
    while (padded < n) padded *= 2;
    for (int64_t i = 0; i < outer * inner; i++) {
        struct line line = {x + i / inner * n * inner + i % inner, n, inner};
        out[i] = ref_tree(line_element, &line, 0, padded);
    }
}

SYCPU_REF_KERNEL(tree_axis)
{
    (void)context;
    const struct sy_tensor *in = &call->in[0];
    int64_t dim = ((const struct sy_attr_axis *)call->attr)->dim, outer = sycpu_extent(in, (int)dim);
    int64_t inner = sycpu_count(&call->out[0]) / (outer > 0 ? outer : 1);
    tree_lines(in->data, outer, in->dim[dim], inner, call->out[0].data);
    return SY_OK;
}

SYCPU_REF_KERNEL(tree_add)
{
    (void)context;
    tree_lines(call->in[0].data, 1, call->in[0].dim[0], sycpu_count(&call->out[0]), call->out[0].data);
    return SY_OK;
}

/* ---- max_axis ---- */

/* Neither the sign of a zero nor the payload of a NaN is kept, so any order gives the same bits. */
static sy_real line_max(const struct line *line)
{
    sy_real top = -__builtin_inff();
    for (int64_t i = 0; i < line->n; i++) {
        sy_real x = line->x[i * line->stride];
        if (isnan(x)) return __builtin_nanf("");
        top = x > top ? x : top;
    }
    return top + 0;
}

SYCPU_REF_KERNEL(max_axis)
{
    (void)context;
    const struct sy_tensor *in = &call->in[0];
    int64_t dim = ((const struct sy_attr_axis *)call->attr)->dim, n = in->dim[dim], inner = 1;
    sy_real *out = call->out[0].data;
    for (int64_t i = dim + 1; i < in->rank; i++) inner *= in->dim[i];
    for (int64_t i = 0; i < sycpu_count(&call->out[0]); i++) {
        struct line line = {(const sy_real *)in->data + i / inner * n * inner + i % inner, n, inner};
        out[i] = line_max(&line);
    }
    return SY_OK;
}

/* ---- column_sum ---- */

struct column {
    const sy_real *x; /* the column's first element */
    int64_t rows, D;  /* rows (b, t) of a leaf; elements of a row */
};

static sy_real column_leaf(const void *arg, int64_t leaf)
{
    const struct column *c = arg;
    sy_real acc = 0;
    for (int64_t row = leaf * c->rows; row < (leaf + 1) * c->rows; row++) acc += c->x[row * c->D];
    return acc + 0;
}

SYCPU_REF_KERNEL(column_sum)
{
    (void)context;
    const struct sy_attr_leaf *attr = call->attr;
    const int64_t *dim = call->in[0].dim;
    sy_real *out = call->out[0].data;
    struct column c = {call->in[0].data, attr->leaf * dim[1], dim[2]};
    for (int64_t d = 0; d < dim[2]; d++, c.x++) out[d] = ref_tree(column_leaf, &c, 0, dim[0] / attr->leaf);
    return SY_OK;
}

/* ---- integers ---- */

SYCPU_REF_KERNEL(count_sum)
{
    (void)context;
    const int32_t *count = call->in[0].data;
    int64_t *sum = call->out[0].data;
    int64_t groups = call->in[0].dim[1];
    for (int64_t e = 0; e < call->in[0].dim[0]; e++) {
        sum[e] = 0;
        for (int64_t b = 0; b < groups; b++) sum[e] += count[e * groups + b];
    }
    return SY_OK;
}
