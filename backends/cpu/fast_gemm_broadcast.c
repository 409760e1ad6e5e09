/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer rows of one expert times its transposed weights where the rows are few, by AVX2: vectors run over buffer rows, which are
 * packed once, and elements of weights are broadcast from where they lie. So weights are read as they lie in memory, a few rows at a
 * time, and neither transposed nor copied. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if BROADCAST_VECTORS
#    define LINE 16 /* elements of a row of weights that are fetched together */

/* Some rows of weights and vectors of buffer rows, of which there are TILE_SIZE sums at most. */
struct block {
    const float *w; /* the first row of weights; the others follow */
    const float *x; /* buffer rows, packed: [depth, vectors * LANES] */
    int64_t stride; /* words from a row of weights to the next */
    int64_t ahead;  /* words to the rows of weights that are fetched meanwhile; 0: none are */
    int rows;       /* of weights: 6, or 4 with three vectors */
    int vectors;    /* 1 to 3 */
};

/* X(V, i, row) of each row of weights; middle is the fourth one. */
#    define FOUR(X, V) X(V, 0, w) X(V, 1, w + stride) X(V, 2, w + 2 * stride) X(V, 3, middle)
#    define SIX(X, V)  FOUR(X, V) X(V, 4, middle + stride) X(V, 5, middle + 2 * stride)
/* X(i, j) of each vector of a row. */
#    define ONE_VECTOR(X, i)    X(i, 0)
#    define TWO_VECTORS(X, i)   X(i, 0) X(i, 1)
#    define THREE_VECTORS(X, i) X(i, 0) X(i, 1) X(i, 2)

#    define ZERO(i, j)           vec c##i##j = vec_zero();
#    define LOAD(i, j)           const vec x##j = vec_load(x + (j)*LANES);
#    define MULTIPLY(i, j)       c##i##j = vec_step(a, x##j, c##i##j);
#    define ADD(i, j)            c##i##j = vec_add(vec_load(pending + (i)*width + (j)*LANES), c##i##j);
#    define CLOSE(i, j)          c##i##j = vec_add(c##i##j, vec_zero());
#    define STORE(i, j)          vec_store(out + (i)*width + (j)*LANES, c##i##j);
#    define ROW_ZERO(V, i, row)  V(ZERO, i)
#    define ROW_FETCH(V, i, row) __builtin_prefetch((row) + t->ahead, 0, 2);
#    define ROW_ADD(V, i, row)   V(ADD, i)
#    define ROW_CLOSE(V, i, row) V(CLOSE, i)
#    define ROW_STORE(V, i, row) V(STORE, i)
#    define ROW_MULTIPLY(V, i, row)                                                                          \
        {                                                                                                    \
            const vec a = vec_broadcast(row);                                                                \
            V(MULTIPLY, i)                                                                                   \
        }

/* Elements k .. k + depth - 1 of the rows, a leaf, as in fast_gemm_tile.c; sums are [rows, vectors * LANES]. */
#    define DEFINE_LEAF(name, ROWS, V, vectors)                                                              \
        static void name(const struct block *t, int64_t k, int64_t depth, const float *pending, int merges,  \
                         float *out, int last)                                                               \
        {                                                                                                    \
            enum { width = (vectors)*LANES };                                                                \
            const int64_t stride = t->stride;                                                                \
            const float *x = t->x + k * width, *w = t->w + k, *middle = w + 3 * stride;                      \
            ROWS(ROW_ZERO, V)                                                                                \
            for (int64_t steps; depth > 0; depth -= steps) {                                                 \
                steps = least(depth, LINE);                                                                  \
                ROWS(ROW_FETCH, V)                                                                           \
                for (const float *end = x + steps * width; x != end; x += width, w++, middle++) {            \
                    V(LOAD, 0)                                                                               \
                    ROWS(ROW_MULTIPLY, V)                                                                    \
                }                                                                                            \
            }                                                                                                \
            for (; merges > 0; merges--) {                                                                   \
                pending -= TILE_SIZE;                                                                        \
                ROWS(ROW_ADD, V)                                                                             \
            }                                                                                                \
            if (last) {                                                                                      \
                ROWS(ROW_CLOSE, V)                                                                           \
            }                                                                                                \
            ROWS(ROW_STORE, V)                                                                               \
        }
DEFINE_LEAF(leaf_1, SIX, ONE_VECTOR, 1)
DEFINE_LEAF(leaf_2, SIX, TWO_VECTORS, 2)
DEFINE_LEAF(leaf_3, FOUR, THREE_VECTORS, 3)
static void (*const leaf_of[])(const struct block *, int64_t, int64_t, const float *, int, float *,
                               int) = {NULL, leaf_1, leaf_2, leaf_3};

/* All leaves of a block, its sums in worker->edge. */
static void compute_sums(const struct sycpu_gemm *gemm, const struct sycpu_gemm_worker *worker,
                         const struct block *t)
{
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) {
        const struct sycpu_gemm_place place = gemm_place_of(leaf, gemm->leaves);
        float *out = place.last ? worker->edge : worker->pending + place.to;
        leaf_of[t->vectors](t, leaf * gemm->leaf, gemm->leaf, worker->pending + place.top, place.merges, out,
                            place.last);
    }
}

static void compute_block(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                          const struct block *t, const int64_t *slot, int64_t n, float *c)
{
    const int64_t stride = plan->gemm.columns, width = t->vectors * LANES;
    for (int64_t i = 0; i < n; i++) __builtin_prefetch(c + slot[i] * stride, 1);
    compute_sums(&plan->gemm, worker, t);
    if (t->rows == 6)
        write_turned(worker->edge, 6, width, slot, n, c, stride, 6);
    else
        write_turned(worker->edge, 4, width, slot, n, c, stride, 4);
}

/* The block's rows of weights times all buffer rows, `vectors` at a time. */
static void compute_rows(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                         struct block t, int vectors, float *c)
{
    const int64_t all = divide_up(worker->rows, LANES);
    for (int64_t i = 0; i < all; i += vectors, t.ahead = 0) {
        t.vectors = (int)least(vectors, all - i);
        t.x = worker->b + i * LANES * plan->gemm.depth;
        compute_block(plan, worker, &t, worker->slot + i * LANES,
                      least(worker->rows - i * LANES, vectors * LANES), c);
    }
}

void fast_gemm_compute_broadcast(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                 int64_t expert, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const float *w = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    float *c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm);
    const int64_t all = divide_up(worker->rows, LANES);
    const int vectors = all == 3 ? 3 : 2, rows = vectors == 3 ? 4 : 6;
    fast_gemm_list_slots(gemm, expert, worker);
    for (int64_t i = 0; i < all; i += vectors)
        fast_gemm_pack_turned(plan, expert, worker, i * LANES, LANES * (int)least(vectors, all - i),
                              worker->b + i * LANES * gemm->depth);
    for (int64_t column = first; column < end; column += rows) {
        /* Where fewer rows of weights are left than a block has, some are taken again. */
        const int64_t from = least(column, end - rows);
        const struct block t = {
            .w = w + from * gemm->depth, .stride = gemm->depth, .ahead = rows * gemm->depth, .rows = rows};
        fast_gemm_fetch_rows(gemm, expert + 1, (column - first) / rows, divide_up(end - first, rows));
        compute_rows(plan, worker, t, vectors, c + from);
    }
}
#endif
