/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products of one head, of which fast attention is made: C += A B, where element c of a row is a
 * chain over steps i of A[row, i] * B[i, c]. Every row has its own range of steps (causal attention) or set of
 * steps (masks). Vectors multiply (fast_attention_vectors.h), or with SYCPU_TILES matrix tiles do
 * (fast_attention_tiles.h):
 *
 *     multiply(p, rows, columns)            columns: a multiple of 16; rows of B and C have that many
 *     multiply_part(p, rows, columns, set)  set: the steps of each row, 64 at most; NULL: the ranges of p */
#ifndef SYCPU_FAST_ATTENTION_H
#define SYCPU_FAST_ATTENTION_H

#include "backends/cpu/fast.h"
#include "backends/cpu/gemm_simd.h"
#include "backends/cpu/simd.h"

struct product {
    const float *a; /* A[row, i] at a[row * a_row + i * a_step] */
    int64_t a_row, a_step;
    const float *b; /* B[i, 0] at b[i * b_step] */
    int64_t b_step;
    float *c; /* C[row, 0] at c[row * c_row] */
    int64_t c_row;
    int64_t steps;       /* all rows: 0 .. steps - 1 */
    int64_t begin, end;  /* row r: begin + r .. end + r - 1 of those; -NO_LIMIT, NO_LIMIT: not limited */
    int fresh;           /* chains begin at +0, else at C; then there are no limits */
    const float *factor; /* scales each row of C before; NULL: no row. Without limits, by vectors alone */
    int wild;            /* with SYCPU_TILES: B may have infinities or NaN */
};

#define NO_LIMIT (INT64_C(1) << 40)

/* Chains that go on at C, without limits. */
static inline struct product product_of(const float *a, int64_t a_row, int64_t a_step, const float *b,
                                        int64_t b_step, float *c, int64_t c_row, int64_t steps)
{
    return (struct product){a, a_row, a_step, b, b_step, c, c_row, steps, -NO_LIMIT, NO_LIMIT, 0, NULL, 0};
}

/* Lanes whose bits are set. */
static inline vm vf_lanes(uint64_t bits)
{
#if defined(__AVX512F__)
    return (vm)bits;
#else
    float lane[SYCPU_LANES];
    if ((bits & 0xffff) == 0xffff) return vf_first(SYCPU_LANES);
    for (int i = 0; i < SYCPU_LANES; i++) lane[i] = (float)(bits >> i & 1);
    return vf_differs(vf_load(lane), vf_set(0.0f));
#endif
}

#ifdef SYCPU_TILES
#    include "backends/cpu/fast_attention_tiles.h"
#else
#    include "backends/cpu/fast_attention_vectors.h"
#endif

/* Whether products with whole blocks are taken by four rows (fast_attention_four.h). */
#if defined(__AVX512F__) && !defined(SYCPU_TILES)
#    define HAS_FOUR 1
#else
#    define HAS_FOUR 0
#endif

/* ---- all heads of all rows ---- */

struct heads {
    void (*head)(const void *arg, int64_t task, int thread);
    const void *arg;
    int64_t n, shares;
};
/* To set up tiles for each head would take a twentieth of the time of a short one. */
static void share_of_heads(void *arg, int64_t share, int thread)
{
    const struct heads *h = arg;
    enter_tiles();
    for (int64_t task = h->n * share / h->shares; task < h->n * (share + 1) / h->shares; task++)
        h->head(h->arg, task, thread);
    leave_tiles();
}

/* head(arg, task, thread) for task 0..n-1, one contiguous share a thread, with tiles. */
static inline void each_head(const struct sy_call *call, int64_t n,
                             void (*head)(const void *arg, int64_t task, int thread), const void *arg)
{
    const struct heads heads = {head, arg, n, call->host->threads};
    sycpu_parallel(call, heads.shares, share_of_heads, &heads);
}

#endif
