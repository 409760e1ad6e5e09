/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer rows of one expert times its transposed weights where the rows are few: the tile is turned round.
 * Its vectors run over buffer rows, packed once, and the weights, of which each is used in a few steps alone,
 * are read where they lie, a few rows at a time. Transposing them first would take long beside multiplying
 * them. */
#include "config.h"

#include "backends/cpu/fast_gemm.h"

#if TURNED_VECTORS
#    define GROUP   16 /* elements of a row of weights copied together: rows far apart share a cache set */
#    define WEIGHTS (LANES / 2) /* rows of weights in a tile */
#    if LANES == 16
#        define ROWS(X) ROWS_8(X)
#    else
#        define ROWS(X) ROWS_4(X)
#    endif

/* A tile of WEIGHTS rows of weights and vectors * LANES buffer rows. */
struct turned {
    const float *w; /* first row of weights; the tile's rows follow each other */
    const float *x; /* buffer rows, packed: [depth, vectors * LANES] */
    int64_t stride; /* floats from a row of weights to the next */
    int rows;       /* of weights that there are */
    int vectors;    /* 1 to 3 */
    int fetch;      /* 1: what the next tile reads is fetched */
};

/* Elements [k, k + n) of the tile's rows to copy[row][0 .. n); rows that do not exist repeat the last. */
ALWAYS_INLINE void copy_group(const struct turned *t, int64_t k, int64_t n, float *copy)
{
    for (int i = 0; i < WEIGHTS; i++) {
        const float *row = t->w + (i < t->rows ? i : t->rows - 1) * t->stride + k;
        memcpy(copy + i * GROUP, row, sizeof(float) * (size_t)n);
        if (t->fetch) __builtin_prefetch(row + WEIGHTS * t->stride, 0, 2);
    }
}

/* V(X, i) is X for each vector of row i. */
#    define ONE(X, i)   X(i, 0)
#    define TWO(X, i)   X(i, 0) X(i, 1)
#    define THREE(X, i) X(i, 0) X(i, 1) X(i, 2)

#    define ZERO(i, v)  vec c##i##v = vec_zero();
#    define FMA(i, v)   c##i##v = vec_step(a, b##v, c##i##v);
#    define ADD(i, v)   c##i##v = vec_add(vec_load(pending + (i * n_vectors + v) * LANES), c##i##v);
#    define CLOSE(i, v) c##i##v = vec_add(c##i##v, vec_zero());
#    define STORE(i, v) vec_store(out + (i * n_vectors + v) * LANES, c##i##v);
#    define LOAD(i, v)  const vec b##v = vec_load(x + v * LANES);

#    define ONE_ZERO(i) ONE(ZERO, i)
#    define ONE_STEP(i) STEP_OF(ONE, i)
#    define STEP_OF(V, i)                                                                                    \
        {                                                                                                    \
            const vec a = vec_broadcast(copy + i * GROUP + j);                                               \
            V(FMA, i)                                                                                        \
        }
#    define ONE_ADD(i)     ONE(ADD, i)
#    define ONE_CLOSE(i)   ONE(CLOSE, i)
#    define ONE_STORE(i)   ONE(STORE, i)
#    define TWO_ZERO(i)    TWO(ZERO, i)
#    define TWO_STEP(i)    STEP_OF(TWO, i)
#    define TWO_ADD(i)     TWO(ADD, i)
#    define TWO_CLOSE(i)   TWO(CLOSE, i)
#    define TWO_STORE(i)   TWO(STORE, i)
#    define THREE_ZERO(i)  THREE(ZERO, i)
#    define THREE_STEP(i)  STEP_OF(THREE, i)
#    define THREE_ADD(i)   THREE(ADD, i)
#    define THREE_CLOSE(i) THREE(CLOSE, i)
#    define THREE_STORE(i) THREE(STORE, i)

/* A leaf of a turned tile, as in fast_gemm_tile.c. */
#    define DEFINE_LEAF(name, V, n)                                                                          \
        static void name(const struct turned *t, int64_t k, int64_t depth, const float *pending, int merges, \
                         float *out, int last)                                                               \
        {                                                                                                    \
            enum { n_vectors = n };                                                                          \
            float copy[WEIGHTS * GROUP];                                                                     \
            const float *x = t->x + k * n_vectors * LANES;                                                   \
            ROWS(V##_ZERO)                                                                                   \
            for (int64_t end = k + depth; k < end; k += GROUP) {                                             \
                int64_t steps = least(end - k, GROUP);                                                       \
                if (steps == GROUP)                                                                          \
                    copy_group(t, k, GROUP, copy);                                                           \
                else                                                                                         \
                    copy_group(t, k, steps, copy);                                                           \
                for (int64_t j = 0; j < steps; j++, x += n_vectors * LANES) {                                \
                    V(LOAD, 0)                                                                               \
                    ROWS(V##_STEP)                                                                           \
                }                                                                                            \
            }                                                                                                \
            for (; merges > 0; merges--) {                                                                   \
                pending -= TILE_SIZE;                                                                        \
                ROWS(V##_ADD)                                                                                \
            }                                                                                                \
            if (last) {                                                                                      \
                ROWS(V##_CLOSE)                                                                              \
            }                                                                                                \
            ROWS(V##_STORE)                                                                                  \
        }

DEFINE_LEAF(leaf_one, ONE, 1)
DEFINE_LEAF(leaf_two, TWO, 2)
DEFINE_LEAF(leaf_three, THREE, 3)

/* All leaves of a tile, its sum in worker->edge: [rows of weights, buffer rows]. */
static void compute_sum(const struct sycpu_gemm *gemm, const struct sycpu_gemm_worker *worker,
                        const struct turned *t)
{
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) {
        struct sycpu_gemm_place place = gemm_place_of(leaf, gemm->leaves);
        float *out = place.last ? worker->edge : worker->pending + place.to;
        (t->vectors == 1   ? leaf_one
         : t->vectors == 2 ? leaf_two
                           : leaf_three)(t, leaf * gemm->leaf, gemm->leaf, worker->pending + place.top,
                                         place.merges, out, place.last);
    }
}

/* The sum to C: `c` is the tile's first column, `slot` tells the rows of C, of which there are n. */
static void write_turned(const struct sycpu_gemm *gemm, const struct sycpu_gemm_worker *worker,
                         const struct turned *t, const int64_t *slot, int64_t n, float *c)
{
    const float *row[LANES];
    float block[LANES * LANES];
    for (int64_t v = 0; v < t->vectors; v++, slot += LANES, n -= LANES) {
        for (int i = 0; i < LANES; i++) row[i] = worker->edge + (i % WEIGHTS * t->vectors + v) * LANES;
        transpose(row, 0, block, LANES, LANES);
        for (int64_t i = 0; i < least(n, LANES); i++) {
            if (t->rows == WEIGHTS)
                memcpy(c + slot[i] * gemm->columns, block + i * LANES, sizeof(float) * WEIGHTS);
            else
                memcpy(c + slot[i] * gemm->columns, block + i * LANES, sizeof(float) * (size_t)t->rows);
        }
    }
}

/* Vectors of a tile where so many are left: four are two and two. */
static int vectors_of(int64_t left)
{
    return (int)(left == 4 ? 2 : least(left, 3));
}

void SYCPU_FAST(gemm_compute_few)(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                  int64_t expert, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const float *w = (const float *)gemm->b + expert * sycpu_gemm_b_size(gemm);
    float *c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm);
    int64_t all = divide_up(worker->rows, LANES), vectors;
    SYCPU_FAST(gemm_list_slots)(gemm, expert, worker);
    for (int64_t v = 0; v < all; v += vectors) SYCPU_FAST(gemm_pack_turned)
    (plan, expert, worker, v * LANES, (int)(vectors = vectors_of(all - v)),
     worker->b + v * LANES * gemm->depth);
    end = least(end, gemm->columns);
    for (int64_t column = first; column < end; column += WEIGHTS) {
        struct turned t = {
            .w = w + column * gemm->depth, .stride = gemm->depth, .rows = (int)least(WEIGHTS, end - column)};
        for (int64_t v = 0; v < all; v += t.vectors) {
            t.x = worker->b + v * LANES * gemm->depth;
            t.vectors = vectors_of(all - v);
            t.fetch = v == 0;
            compute_sum(gemm, worker, &t);
            write_turned(gemm, worker, &t, worker->slot + v * LANES, worker->rows - v * LANES, c + column);
        }
    }
}
#endif
