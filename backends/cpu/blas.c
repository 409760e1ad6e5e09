/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of float32 by a CBLAS. The order of sums is the library's own: leaves are not kept, and
 * bits may differ with threads, processors and versions. The pool's threads each ask the library, which
 * starts none, for a share of C: so nothing else runs next to the pool. */
#include "config.h"

#if SYCPU_HAS_BLAS

#    include <limits.h>
#    if HAVE_CBLAS_H
#        include <cblas.h>
#    else
#        include <mkl_cblas.h>
#    endif

#    include "backends/cpu/bf16.h"
#    include "backends/cpu/blas.h"
#    include "backends/cpu/gemm.h"

/* Every run of neighbouring rows is a call, in which the library rearranges all weights of the expert: with
 * fewer rows than this on average our own kernel is faster, which does it once. */
enum { FEWEST_ROWS = 32 };

struct product {
    struct sycpu_gemm gemm;
    int64_t shares; /* of C, one a thread */
};

/* The next filled slots of an expert that are neighbours, from *group on: their number and the first one's
 * row. */
static int64_t next_run(const struct sycpu_gemm *gemm, int64_t expert, int64_t *group, int64_t *row)
{
    int64_t run = 0;
    while (*group < gemm->groups && !sycpu_gemm_filled(gemm, expert, *group)) ++*group;
    if (*group < gemm->groups) *row = sycpu_gemm_first_row(gemm, expert, *group);
    for (; *group < gemm->groups && sycpu_gemm_first_row(gemm, expert, *group) == *row + run; ++*group)
        run += sycpu_gemm_filled(gemm, expert, *group);
    return run;
}

static const struct sy_kernel *own_kernel(const struct sy_call *call)
{
    return sycpu_find_float(call->op, sycpu_detect());
}

/* Whether the library shall do it: extents that its integers hold, and runs that are worth a call. */
static int worthwhile(const struct sycpu_gemm *gemm)
{
    int64_t rows = 0, runs = 0, row;
    if (gemm->groups * gemm->slots > INT_MAX || gemm->a_width > INT_MAX || gemm->columns > INT_MAX) return 0;
    if (!gemm->filled) return 1;
    for (int64_t expert = 0; expert < gemm->experts; expert++)
        for (int64_t run, group = 0; (run = next_run(gemm, expert, &group, &row)); runs++) rows += run;
    return rows >= runs * FEWEST_ROWS;
}

static void cut(int64_t n, int64_t share, int64_t shares, int64_t *first, int64_t *size)
{
    *first = n * share / shares;
    *size = n * (share + 1) / shares - *first;
}

/* A share's part of C, along its longer side, for the buffer rows [row, row + run): of these rows, or summed
 * over them. */
static void multiply_run(const struct product *p, int64_t share, int64_t expert, int64_t row, int64_t run,
                         float beta)
{
    const struct sycpu_gemm *gemm = &p->gemm;
    int tn = gemm->form == SYCPU_GEMM_TN, nt = gemm->form == SYCPU_GEMM_NT;
    int64_t rows = tn ? gemm->rows : run, columns = gemm->columns, depth = tn ? run : gemm->depth;
    int64_t width = gemm->a_width, first_row = 0, first_column = 0;
    const float *a = (const float *)gemm->a + expert * sycpu_gemm_a_size(gemm) + row * width;
    const float *b = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm) + (tn ? row * columns : 0);
    float *c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm) + (tn ? 0 : row * columns);
    if (rows >= columns)
        cut(rows, share, p->shares, &first_row, &rows);
    else
        cut(columns, share, p->shares, &first_column, &columns);
    if (!rows || !columns) return;
    a += first_row * (tn ? 1 : width);
    b += first_column * (nt ? depth : 1);
    c += first_row * gemm->columns + first_column;
    cblas_sgemm(CblasRowMajor, tn ? CblasTrans : CblasNoTrans, nt ? CblasTrans : CblasNoTrans, (int)rows,
                (int)columns, (int)depth, 1, a, (int)width, b, (int)(nt ? depth : gemm->columns), beta, c,
                (int)gemm->columns);
}

/* No token came to the expert: its gradient is zero. */
static void zero_gradient(const struct product *p, int64_t share, int64_t expert)
{
    const struct sycpu_gemm *gemm = &p->gemm;
    int64_t first, rows;
    cut(gemm->rows, share, p->shares, &first, &rows);
    memset((float *)gemm->c + expert * sycpu_gemm_c_size(gemm) + first * gemm->columns, 0,
           sizeof(float) * (size_t)(rows * gemm->columns));
}

static void compute_share(void *arg, int64_t share, int thread)
{
    const struct product *p = arg;
    int tn = p->gemm.form == SYCPU_GEMM_TN;
    (void)thread;
    sycpu_blas_begin_thread();
    for (int64_t expert = 0; expert < p->gemm.experts; expert++) {
        int64_t group = 0, runs = 0, run, row;
        for (; (run = next_run(&p->gemm, expert, &group, &row)); runs++)
            multiply_run(p, share, expert, row, run, tn && runs ? 1 : 0);
        if (tn && !runs) zero_gradient(p, share, expert);
    }
}

static void zero_empty_slots(void *arg, int64_t task, int thread)
{
    const struct sycpu_gemm *gemm = arg;
    int64_t first, rows = sycpu_gemm_empty(gemm, task, &first);
    (void)thread;
    memset((float *)gemm->c + first * gemm->columns, 0, sizeof(float) * (size_t)(rows * gemm->columns));
}

uint64_t sycpu_blas_workspace(const struct sy_call *call, int threads)
{
    const struct sy_kernel *own = own_kernel(call);
    return own->workspace ? own->workspace(call, threads) : 0;
}

int sycpu_blas_prepare(void *context, const struct sy_call *call, void **plan)
{
    const struct sy_kernel *own = own_kernel(call);
    return own->prepare ? own->prepare(context, call, plan) : SY_OK;
}

int sycpu_blas_product(void *context, const struct sy_call *call)
{
    struct product p = {sycpu_gemm_of(call), call->host->threads};
    if (!worthwhile(&p.gemm)) return own_kernel(call)->run(context, call);
    if (p.gemm.filled && p.gemm.form != SYCPU_GEMM_TN)
        sycpu_parallel(call, p.gemm.experts * p.gemm.groups, zero_empty_slots, &p.gemm);
    sycpu_parallel(call, p.shares, compute_share, &p);
    return SY_OK;
}

#endif
