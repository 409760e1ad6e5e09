/* SPDX-License-Identifier: Apache-2.0 */
/* What the fast kernels of the row family share: cutting rows into tasks, row lengths. */
#ifndef SYCPU_FAST_H
#define SYCPU_FAST_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/fast_kernels.h"
#include "backends/cpu/simd.h"

/* Rows are handed to threads in runs of about this many elements: large against the cost of a task, small
 * against a thread's share. */
#define FAST_TASK_ELEMENTS 4096

/* Loops over columns c of a row of D in steps of 16: BODY(c, n) sees n = 16 as a constant, so that loads and
 * stores are whole, except in the tail. */
#define FAST_COLUMNS(c, D, BODY) FAST_COLUMNS_FROM(0, c, D, BODY)
/* Those from column `first` on. */
#define FAST_COLUMNS_FROM(first, c, D, BODY)                                                                 \
    do {                                                                                                     \
        int64_t c = (first);                                                                                 \
        for (; c + SYCPU_LANES <= (D); c += SYCPU_LANES) BODY(c, SYCPU_LANES);                               \
        if (c < (D)) BODY(c, (D)-c);                                                                         \
    } while (0)

/* The first n of 16 elements; whole vectors where n is the constant 16. */
static inline vf fast_load(const float *p, int64_t n)
{
    return n == SYCPU_LANES ? vf_load(p) : vf_load_first(p, n);
}
static inline void fast_store(float *p, vf v, int64_t n)
{
    if (n == SYCPU_LANES)
        vf_store(p, v);
    else
        vf_store_first(p, v, n);
}

/* ---- operands of either float32 or bf16 ---- */

static inline int fast_is_bf16(const struct sy_tensor *tensor)
{
    return tensor->dtype == SY_BF16;
}
/* n elements of x from i on; `half` says whether they are bf16. */
static inline vf fast_get(const void *x, int half, int64_t i, int64_t n)
{
    if (!half) return fast_load((const float *)x + i, n);
    return n == SYCPU_LANES ? vf_load_bf16((const uint16_t *)x + i)
                            : vf_load_bf16_first((const uint16_t *)x + i, n);
}
static inline void fast_put(void *y, int half, int64_t i, vf v, int64_t n)
{
    if (!half)
        fast_store((float *)y + i, v, n);
    else if (n == SYCPU_LANES)
        vf_store_bf16((uint16_t *)y + i, v);
    else
        vf_store_bf16_first((uint16_t *)y + i, v, n);
}
static inline void *fast_place(void *y, int half, int64_t i)
{
    return (char *)y + i * (half ? 2 : 4);
}
static inline void *fast_at(const struct sy_tensor *tensor, int64_t i)
{
    return fast_place(tensor->data, fast_is_bf16(tensor), i);
}

struct fast_rows {
    const struct sy_call *call;
    int64_t rows, chunk; /* all rows; rows of a task */
    void (*run)(const struct sy_call *call, int64_t first, int64_t end);
};

static inline void fast_rows_task(void *arg, int64_t task, int thread)
{
    const struct fast_rows *r = arg;
    int64_t first = task * r->chunk, end = first + r->chunk;
    (void)thread;
    r->run(r->call, first, end < r->rows ? end : r->rows);
}

/* run(call, first, end) over all rows of `columns` elements, in parallel. */
static inline void fast_rows(const struct sy_call *call, int64_t rows, int64_t columns,
                             void (*run)(const struct sy_call *call, int64_t first, int64_t end))
{
    struct fast_rows r = {call, rows, FAST_TASK_ELEMENTS / (columns > 0 ? columns : 1), run};
    if (r.chunk < 1) r.chunk = 1;
    sycpu_parallel(call, (rows + r.chunk - 1) / r.chunk, fast_rows_task, &r);
}

/* Length of row b: lens is optional. */
static inline int64_t fast_length(const struct sy_tensor *lens, int64_t b, int64_t most)
{
    if (!lens->data) return most;
    int64_t length = ((const int32_t *)lens->data)[b];
    return length < 0 ? 0 : length < most ? length : most;
}

#endif
