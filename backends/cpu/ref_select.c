/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernel of top_k: a heap of the k best of a row, the worst of them on top. argmax is in
 * ref_loss.c. */
#include "config.h"

#include <math.h>

#include "backends/cpu/ref.h"

/* Whether element i ranks before element j: numbers before NaN, larger before smaller, then the lower
 * index. */
static int ranks_before(const sy_real *x, int32_t i, int32_t j)
{
    if (x[i] > x[j]) return 1;
    if (x[i] < x[j]) return 0;
    int nan_i = isnan(x[i]) != 0, nan_j = isnan(x[j]) != 0;
    return nan_i != nan_j ? nan_j : i < j;
}

/* Lets heap[at] sink until none of its children ranks after it. */
static void sink(const sy_real *x, int32_t *heap, int64_t n, int64_t at)
{
    int32_t moving = heap[at];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && ranks_before(x, heap[child], heap[child + 1])) child++;
        if (!ranks_before(x, moving, heap[child])) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* index[0..k): the k best of x[0..n), best first; k <= n. */
static void select_best(const sy_real *x, int64_t n, int64_t k, int32_t *index)
{
    for (int64_t i = 0; i < k; i++) index[i] = (int32_t)i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sink(x, index, k, i);
    for (int64_t i = k; i < n; i++) {
        if (x[i] <= x[index[0]] || !ranks_before(x, (int32_t)i, index[0])) continue;
        index[0] = (int32_t)i;
        sink(x, index, k, 0);
    }
    for (int64_t left = k - 1; left > 0; left--) { /* the worst goes to the end */
        int32_t worst = index[0];
        index[0] = index[left];
        index[left] = worst;
        sink(x, index, left, 0);
    }
}

static void select_row(void *arg, int64_t row, int thread)
{
    const struct sy_call *call = *(const struct sy_call **)arg;
    int64_t V = call->in[0].dim[2], K = call->out[0].dim[2], k = K < V ? K : V;
    const sy_real *x = (const sy_real *)call->in[0].data + row * V;
    sy_real *value = (sy_real *)call->out[0].data + row * K;
    int32_t *index = (int32_t *)call->out[1].data + row * K;
    (void)thread;
    if (k > 0) select_best(x, V, k, index);
    for (int64_t i = 0; i < k; i++) value[i] = x[index[i]];
    for (int64_t i = k; i < K; i++) value[i] = -(sy_real)INFINITY, index[i] = -1; /* the row is shorter */
}

SYCPU_REF_KERNEL(top_k)
{
    (void)context;
    sycpu_parallel(call, sycpu_extent(&call->in[0], 2), select_row, &call);
    return SY_OK;
}
