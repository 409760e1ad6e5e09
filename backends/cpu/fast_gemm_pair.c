/* SPDX-License-Identifier: Apache-2.0 */
/* Two panels of A, all rows that an expert has, times a panel of B that is read where it lies, with AVX-512: a vector of
 * columns at a time, so that the rows of both panels fit in registers and B is read once and copied nowhere. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if PAIRED_PANELS
/* Steps from the one at hand to the row of B that is fetched, from memory. */
#    define FAR 96

struct pair {
    const float *a, *below; /* the panels of A */
    const float *b;         /* this vector of columns */
    int64_t stride;         /* elements between rows of B */
    const float *next;      /* the vector after this one */
    int64_t steps;
};

#    define ZERO(i)  vec c##i = vec_zero(), d##i = vec_zero();
#    define UPPER(i) c##i = vec_step(vec_broadcast(a + i), bk, c##i);
#    define LOWER(i) d##i = vec_step(vec_broadcast(below + i), bk, d##i);
#    define ADD(i)                                                                                           \
        c##i = vec_add(vec_load(pending + i * TILE_COLUMNS), c##i);                                          \
        d##i = vec_add(vec_load(pending + i * TILE_COLUMNS + LANES), d##i);
#    define CLOSE(i)                                                                                         \
        c##i = vec_add(c##i, vec_zero());                                                                    \
        d##i = vec_add(d##i, vec_zero());
#    define STORE(i)                                                                                         \
        vec_store(out + i * TILE_COLUMNS, c##i);                                                             \
        vec_store(out + i * TILE_COLUMNS + LANES, d##i);

/* A leaf, as in fast_gemm_tile.c. In scratch a row of the first panel lies beside one of the second. */
#    define DEFINE_LEAF(name, ROWS)                                                                          \
        static void name(const struct pair *p, int64_t k, int64_t depth, const float *pending, int merges,   \
                         float *out, int last)                                                               \
        {                                                                                                    \
            const float *a = p->a + k * TILE_ROWS, *below = p->below + k * TILE_ROWS;                        \
            const float *b = p->b + k * p->stride;                                                           \
            const int64_t stride = p->stride;                                                                \
            int64_t left = p->steps - k - FAR;                                                               \
            const float *far = left > 0 ? b + FAR * stride : p->next - left * stride;                        \
            ROWS(ZERO)                                                                                       \
            for (; depth > 0; depth--) {                                                                     \
                const vec bk = vec_load(b);                                                                  \
                __builtin_prefetch(far, 0, 2);                                                               \
                ROWS(UPPER)                                                                                  \
                ROWS(LOWER)                                                                                  \
                a += TILE_ROWS, below += TILE_ROWS, b += stride, far += stride;                              \
                if (--left == 0) far = p->next;                                                              \
            }                                                                                                \
            for (; merges > 0; merges--) {                                                                   \
                pending -= TILE_SIZE;                                                                        \
                ROWS(ADD)                                                                                    \
            }                                                                                                \
            if (last) {                                                                                      \
                ROWS(CLOSE)                                                                                  \
            }                                                                                                \
            ROWS(STORE)                                                                                      \
        }

DEFINE_LEAF(leaf_8, ROWS_8)
DEFINE_LEAF(leaf_10, ROWS_10)
DEFINE_LEAF(leaf_12, ROWS_12)
DEFINE_LEAF(leaf_14, ROWS_14)

static void compute_vector(const struct pair *p, const struct sycpu_gemm_worker *worker)
{
    typedef void leaf_fn(const struct pair *, int64_t, int64_t, const float *, int, float *, int);
    static leaf_fn *const leaf_of[] = {leaf_8, leaf_10, leaf_12, leaf_14};
    leaf_fn *compute = leaf_of[worker->panel_rows / 2 - 4];
    int64_t k = 0;
    for (int64_t leaf = 0; leaf < worker->leaves; k += worker->length[leaf++]) {
        struct sycpu_gemm_place place = gemm_place_of(leaf, worker->leaves);
        compute(p, k, worker->length[leaf], worker->pending + place.top, place.merges,
                place.last ? worker->edge : worker->pending + place.to, place.last);
    }
}

void fast_gemm_compute_pair(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t panel)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct pair p = {.a = worker->a,
                     .below = worker->a + a_panel_size(plan->steps),
                     .b = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm) + panel * TILE_COLUMNS,
                     .stride = gemm->columns,
                     .steps = plan->steps};
    float *c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm) + panel * TILE_COLUMNS;
    for (int vector = 0; vector < 2; vector++, p.b += LANES, c += LANES) {
        p.next = vector == 0 ? p.b + LANES : worker->next_b;
        compute_vector(&p, worker);
        for (int64_t i = 0; i < worker->block_rows; i++) {
            int64_t below = i / worker->panel_rows, row = i % worker->panel_rows;
            vec_store(c + worker->slot[below * TILE_ROWS + row] * gemm->columns,
                      vec_load(worker->edge + row * TILE_COLUMNS + below * LANES));
        }
    }
}
#endif
