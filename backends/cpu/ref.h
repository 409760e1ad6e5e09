/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of doc/numerics.md over sy_real, plainly, for reference kernels. */
#ifndef SYCPU_REF_H
#define SYCPU_REF_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "base/fmath.h"
#include "base/philox.h"

/* Adds the 16 lanes of a row sum. */
static inline sy_real ref_lane_sum(sy_real lane[16])
{
    for (int s = 8; s >= 1; s /= 2)
        for (int l = 0; l < s; l++) lane[l] += lane[l + s];
    return lane[0];
}

/* Row sum of x[0..n). */
static inline sy_real ref_row_sum(const sy_real *x, int64_t n)
{
    sy_real lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] += x[i];
    return ref_lane_sum(lane);
}

/* Row sum of fma(x, y, lane). */
static inline sy_real ref_row_dot(const sy_real *x, const sy_real *y, int64_t n)
{
    sy_real lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] = syi_fma(x[i], y[i], lane[i % 16]);
    return ref_lane_sum(lane);
}

/* What a block is reduced to, row by row, beginning with 0: its sum, the sum of its squares, its largest magnitude. */
typedef sy_real (*ref_reduce_fn)(sy_real acc, const sy_real *row, int64_t n);

static inline sy_real ref_add_row(sy_real acc, const sy_real *row, int64_t n)
{
    return acc + ref_row_sum(row, n);
}
static inline sy_real ref_add_squares(sy_real acc, const sy_real *row, int64_t n)
{
    return acc + ref_row_dot(row, row, n);
}
/* NaN stays: nothing is larger. */
static inline sy_real ref_raise_to_row(sy_real acc, const sy_real *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sy_real x = row[i] < 0 ? -row[i] : row[i];
        if (isnan(x)) return __builtin_nanf("");
        acc = x > acc ? x : acc;
    }
    return acc;
}

static inline sy_real ref_row_max(const sy_real *x, int64_t n)
{
    sy_real top = x[0];
    for (int64_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* Balanced tree over `n` (a power of two) values in ascending order. */
static inline sy_real ref_tree(sy_real (*leaf)(const void *arg, int64_t index), const void *arg,
                               int64_t first, int64_t n)
{
    if (n == 1) return leaf(arg, first);
    return ref_tree(leaf, arg, first, n / 2) + ref_tree(leaf, arg, first + n / 2, n / 2);
}

/* Length of row b: lens is optional. */
static inline int64_t ref_length(const struct sy_tensor *lens, int64_t b, int64_t most)
{
    if (!lens->data) return most;
    int64_t length = ((const int32_t *)lens->data)[b];
    return length < 0 ? 0 : length < most ? length : most;
}

#endif
