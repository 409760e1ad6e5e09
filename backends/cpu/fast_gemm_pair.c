/* SPDX-License-Identifier: Apache-2.0 */
/* One or two panels of A, all rows that an expert has, times a panel of B that is read where it lies, with AVX-512: a vector
 * of columns at a time, so that the rows of both panels fit in registers and B is read once and copied nowhere. Words of
 * bf16 are made of two rows of B in registers. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if PAIRED_PANELS
/* Rows of B from the one at hand to the one that is fetched, from memory. */
#    define FAR 96

struct pair {
    const float *a, *below; /* the panels of A */
    const operand *b;       /* this vector of columns */
    int64_t stride;         /* elements between rows of B */
    const operand *next;    /* the vector after this one */
    int64_t depth;
};

#    define ZERO(i)        vec c##i = vec_zero();
#    define ZERO_BELOW(i)  vec d##i = vec_zero();
#    define STEP_ON(i)     c##i = vec_step(vec_broadcast(a + i), bk, c##i);
#    define STEP_BELOW(i)  d##i = vec_step(vec_broadcast(below + i), bk, d##i);
#    define ADD(i)         c##i = vec_add(vec_load(pending + i * TILE_COLUMNS), c##i);
#    define ADD_BELOW(i)   d##i = vec_add(vec_load(pending + i * TILE_COLUMNS + LANES), d##i);
#    define CLOSE(i)       c##i = vec_add(c##i, vec_zero());
#    define CLOSE_BELOW(i) d##i = vec_add(d##i, vec_zero());
#    define STORE(i)       vec_store(out + i * TILE_COLUMNS, c##i);
#    define STORE_BELOW(i) vec_store(out + i * TILE_COLUMNS + LANES, d##i);

/* A leaf, as in fast_gemm_tile.c, of the rows of both panels; BELOW of none: the first alone. In scratch a row of the
 * first panel lies beside one of the second. */
#    define DEFINE_LEAF(name, ROWS, BELOW)                                                                   \
        static void name(const struct pair *p, int64_t k, int64_t depth, const float *pending, int merges,   \
                         float *out, int last)                                                               \
        {                                                                                                    \
            const float *a = p->a + k / STEP * TILE_ROWS, *below = p->below + k / STEP * TILE_ROWS;          \
            const operand *b = p->b + k * p->stride;                                                         \
            const int64_t stride = p->stride;                                                                \
            int64_t left = p->depth - k - FAR;                                                               \
            const operand *far = left > 0 ? b + FAR * stride : p->next - left * stride;                      \
            ROWS(ZERO)                                                                                       \
            BELOW(ZERO_BELOW)                                                                                \
            for (; depth > 0; depth -= STEP) {                                                               \
                const vec bk = vec_load_step(b, stride);                                                     \
                __builtin_prefetch(far, 0, 2);                                                               \
                if (STEP > 1) __builtin_prefetch(far + stride, 0, 2);                                        \
                ROWS(STEP_ON)                                                                                \
                BELOW(STEP_BELOW)                                                                            \
                a += TILE_ROWS, below += TILE_ROWS, b += STEP * stride, far += STEP * stride;                \
                left -= STEP;                                                                                \
                if (left == 0) far = p->next;                                                                \
            }                                                                                                \
            for (; merges > 0; merges--) {                                                                   \
                pending -= TILE_SIZE;                                                                        \
                ROWS(ADD)                                                                                    \
                BELOW(ADD_BELOW)                                                                             \
            }                                                                                                \
            if (last) {                                                                                      \
                ROWS(CLOSE)                                                                                  \
                BELOW(CLOSE_BELOW)                                                                           \
            }                                                                                                \
            ROWS(STORE)                                                                                      \
            BELOW(STORE_BELOW)                                                                               \
        }
#    define ROWS_0(X)
#    define ONE_PANEL(height)  DEFINE_LEAF(leaf_##height, ROWS_##height, ROWS_0)
#    define TWO_PANELS(height) DEFINE_LEAF(pair_##height, ROWS_##height, ROWS_##height)
#    define ONE_NAME(height)   leaf_##height,
#    define TWO_NAME(height)   pair_##height,
#    define EACH_ONE(X)        X(2) X(4) X(6) X(8) X(10) X(12) X(14)
#    define EACH_TWO(X)        X(8) X(10) X(12) X(14)

EACH_ONE(ONE_PANEL)
EACH_TWO(TWO_PANELS)
typedef void leaf_fn(const struct pair *, int64_t, int64_t, const float *, int, float *, int);
static leaf_fn *const one_panel[] = {NULL, EACH_ONE(ONE_NAME)}; /* by half the height */
static leaf_fn *const two_panels[] = {NULL, NULL, NULL, NULL, EACH_TWO(TWO_NAME)};

/* All leaves of a vector of columns: the sums in worker->edge. */
static void compute_sum(const struct sycpu_gemm *gemm, const struct sycpu_gemm_worker *worker,
                        const struct pair *p)
{
    /* One panel of float32 is not taken here (fast_gemm_grouped.c): its kernels are left out. */
    leaf_fn *compute = (STEP > 1 && worker->row_panels == 1 ? one_panel : two_panels)[worker->panel_rows / 2];
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) {
        struct sycpu_gemm_place place = gemm_place_of(leaf, gemm->leaves);
        compute(p, leaf * gemm->leaf, gemm->leaf, worker->pending + place.top, place.merges,
                place.last ? worker->edge : worker->pending + place.to, place.last);
    }
}

void fast_gemm_compute_pair(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t panel)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct pair p = {.a = worker->a,
                     .below = worker->a + a_panel_size(plan->a_steps),
                     .b = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + panel * TILE_COLUMNS,
                     .stride = gemm->columns,
                     .depth = gemm->depth};
    int64_t c = expert * sycpu_gemm_c_size(gemm) + panel * TILE_COLUMNS;
    for (int vector = 0; vector < 2; vector++, p.b += LANES, c += LANES) {
        p.next = vector == 0 ? p.b + LANES : worker->next_b;
        compute_sum(gemm, worker, &p);
        for (int64_t i = 0; i < worker->block_rows; i++) {
            int64_t below = i / worker->panel_rows, row = i % worker->panel_rows;
            fast_gemm_put(plan, c + worker->slot[below * TILE_ROWS + row] * gemm->columns,
                          vec_load(worker->edge + row * TILE_COLUMNS + below * LANES));
        }
    }
}
#endif
