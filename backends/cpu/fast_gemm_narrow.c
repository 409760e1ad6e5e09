/* SPDX-License-Identifier: Apache-2.0 */
/* Rows times weights of so few columns that one vector holds a row of C, as those of routers: a vector runs over the columns,
 * rows are read where they lie, an element broadcast. In tiles most columns would be zeros, and packing the rows would
 * take longer than multiplying them. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#define AT_ONCE 8 /* rows whose sums are in registers */

/* b[k, LANES]: w [depth, n], filled up with zeros. */
static void fill_up(const float *w, int64_t depth, int64_t n, float *b)
{
    for (int64_t k = 0; k < depth; k++, w += n, b += LANES)
        for (int64_t i = 0; i < LANES; i++) b[i] = i < n ? w[i] : 0.0f;
}

/* A row past the last is the last again. */
#define ROW_BEGIN(i)                                                                                         \
    const float *x##i = x + least(i, rows - 1) * depth;                                                      \
    vec c##i = vec_zero();
#define ROW_STEP(i) c##i = vec_step(vec_broadcast(x##i + k), columns, c##i);
#define ROW_END(i)  vec_store(sum + i * LANES, vec_add(c##i, vec_zero()));

/* sum[AT_ONCE, LANES]: x [rows, depth] times b, at most AT_ONCE rows; one leaf. */
static void multiply_rows(const float *x, int64_t rows, int64_t depth, const float *b, float *sum)
{
    ROWS_8(ROW_BEGIN)
    for (int64_t k = 0; k < depth; k++, b += LANES) {
        const vec columns = vec_load(b);
        ROWS_8(ROW_STEP)
    }
    ROWS_8(ROW_END)
}

void fast_gemm_compute_narrow(void *arg, int64_t share, int thread)
{
    const struct sycpu_gemm_plan *plan = arg;
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct sycpu_gemm_rest rest;
    const struct sycpu_gemm_worker worker = fast_gemm_make_worker(plan, thread, &rest);
    const int64_t parts = divide_up(gemm->rows, AT_ONCE), end = parts * (share + 1) / plan->threads;
    const int64_t n = gemm->columns;
    float sum[AT_ONCE * LANES];
    fill_up(gemm->b, gemm->depth, n, worker.b);
    for (int64_t part = parts * share / plan->threads; part < end; part++) {
        const int64_t row = part * AT_ONCE, rows = least(AT_ONCE, gemm->rows - row);
        float *c = (float *)gemm->c + row * n;
        multiply_rows((const float *)gemm->a + row * gemm->depth, rows, gemm->depth, worker.b, sum);
        for (int64_t i = 0; i < rows; i++) memcpy(c + i * n, sum + i * LANES, (size_t)n * sizeof *c);
    }
}
