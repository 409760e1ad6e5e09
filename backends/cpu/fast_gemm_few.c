/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer rows of one expert times its transposed weights where the rows are few: the tile is transposed.
 * Its vectors run over buffer rows, packed once, and the weights, of which each is used in a few steps alone,
 * are read where they lie, a few rows at a time. Transposing them first would take long compared with
 * multiplying them. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if TURNED_VECTORS
#    define GROUP   16 /* elements of a row of weights copied together: rows far apart share a cache set */
#    define WEIGHTS (LANES / 2) /* rows of weights in a tile */
/* A tile of WEIGHTS rows of weights and `halves` half vectors of buffer rows. */
struct turned {
    const float *w;     /* first row of weights; the tile's rows follow each other; NULL: */
    const int8_t *q;    /* of int8 weights, and */
    const float *scale; /* those of the rows */
    const float *x;     /* buffer rows, packed: [depth, halves * HALF_LANES] */
    int64_t stride;     /* elements from a row of weights to the next */
    int rows;           /* of weights that there are */
    int halves;         /* 1 to 6 */
    int fetch;          /* 1: what the next tile reads is fetched */
};

/* Of int8 weights. */
static void widen_group(const struct turned *t, int64_t k, int64_t n, float *copy)
{
    for (int64_t i = 0; i < WEIGHTS; i++, copy += GROUP) {
        int64_t from = least(i, t->rows - 1);
        const int8_t *row = t->q + from * t->stride + k;
        const vec scale = vec_broadcast(t->scale + from);
        if (t->fetch) __builtin_prefetch(row + WEIGHTS * t->stride, 0, 2);
        for (int64_t j = 0; n == GROUP && j < GROUP; j += LANES)
            vec_store(copy + j, vec_mul(vec_load_int8(row + j), scale));
        for (int64_t j = 0; n < GROUP && j < n; j++) copy[j] = (float)row[j] * t->scale[from];
    }
}

/* Elements [k, k + n) of the tile's rows to copy[row][0 .. n); rows that do not exist repeat the last. */
ALWAYS_INLINE void copy_group(const struct turned *t, int64_t k, int64_t n, float *copy)
{
    if (!t->w) {
        widen_group(t, k, n, copy);
        return;
    }
    const float *row = t->w + k;
    if (n == GROUP && t->rows == WEIGHTS) {
        for (int i = 0; i < WEIGHTS; i++, row += t->stride) {
            memcpy(copy + i * GROUP, row, sizeof(float) * GROUP);
            if (t->fetch) __builtin_prefetch(row + WEIGHTS * t->stride, 0, 2);
        }
        return;
    }
    for (int64_t i = 0; i < WEIGHTS; i++)
        memcpy(copy + i * GROUP, row + least(i, t->rows - 1) * t->stride, sizeof(float) * (size_t)n);
}

/* NAME(X, H, i) is X for each vector of row i and H for half a one. */
#    define HALF(X, H, i)     H(i)
#    define ONE(X, H, i)      X(i, 0)
#    define ONE_HALF(X, H, i) X(i, 0) H(i)
#    define TWO(X, H, i)      X(i, 0) X(i, 1)
#    define TWO_HALF(X, H, i) X(i, 0) X(i, 1) H(i)
#    define THREE(X, H, i)    X(i, 0) X(i, 1) X(i, 2)

#    define PLACE(i, v)   (i * width + v * LANES)
#    define HALF_PLACE(i) (i * width + width / LANES * LANES)
#    define ZERO(i, v)    vec c##i##v = vec_zero();
#    define HALF_ZERO(i)  half h##i = half_zero();
#    define FMA(i, v)     c##i##v = vec_step(a, b##v, c##i##v);
#    define HALF_FMA(i)   h##i = half_step(a, b, h##i);
#    define ADD(i, v)     c##i##v = vec_add(vec_load(pending + PLACE(i, v)), c##i##v);
#    define HALF_ADD(i)   h##i = half_add(half_load(pending + HALF_PLACE(i)), h##i);
#    define CLOSE(i, v)   c##i##v = vec_add(c##i##v, vec_zero());
#    define HALF_CLOSE(i) h##i = half_add(h##i, half_zero());
#    define STORE(i, v)   vec_store(out + PLACE(i, v), c##i##v);
#    define HALF_STORE(i) half_store(out + HALF_PLACE(i), h##i);
#    define LOAD(i, v)    const vec b##v = vec_load(x + v * LANES);
#    define HALF_LOAD(i)  const half b = half_load(x + HALF_PLACE(0));
#    define STEP_OF(NAME, i)                                                                                 \
        {                                                                                                    \
            const vec a = vec_broadcast(copy + i * GROUP + j);                                               \
            NAME(FMA, HALF_FMA, i)                                                                           \
        }

/* A leaf of a turned tile, as in fast_gemm_tile.c. A group is copied while the one before is multiplied. */
#    define DEFINE_LEAF(name, NAME, halves)                                                                  \
        static void name(const struct turned *t, int64_t k, int64_t depth, const float *pending, int merges, \
                         float *out, int last)                                                               \
        {                                                                                                    \
            enum { width = halves * HALF_LANES };                                                            \
            float copies[2][WEIGHTS * GROUP];                                                                \
            const float *x = t->x + k * width, *copy = copies[0];                                            \
            ALL_ROWS(NAME, ZERO, HALF_ZERO)                                                                  \
            copy_group(t, k, least(depth, GROUP), copies[0]);                                                \
            for (; depth > 0; k += GROUP, depth -= GROUP) {                                                  \
                float *other = copies[copy == copies[0]];                                                    \
                int64_t steps = least(depth, GROUP), next = least(depth - steps, GROUP);                     \
                if (next > 0) copy_group(t, k + GROUP, next, other);                                         \
                for (int64_t j = 0; j < steps; j++, x += width) {                                            \
                    NAME(LOAD, HALF_LOAD, 0)                                                                 \
                    ALL_STEPS(NAME)                                                                          \
                }                                                                                            \
                copy = other;                                                                                \
            }                                                                                                \
            for (; merges > 0; merges--) {                                                                   \
                pending -= TILE_SIZE;                                                                        \
                ALL_ROWS(NAME, ADD, HALF_ADD)                                                                \
            }                                                                                                \
            if (last) {                                                                                      \
                ALL_ROWS(NAME, CLOSE, HALF_CLOSE)                                                            \
            }                                                                                                \
            ALL_ROWS(NAME, STORE, HALF_STORE)                                                                \
        }
#    if WEIGHTS == 8
#        define ALL_ROWS(NAME, X, H)                                                                         \
            NAME(X, H, 0)                                                                                    \
            NAME(X, H, 1) NAME(X, H, 2) NAME(X, H, 3) NAME(X, H, 4) NAME(X, H, 5) NAME(X, H, 6) NAME(X, H, 7)
#        define ALL_STEPS(NAME)                                                                              \
            STEP_OF(NAME, 0)                                                                                 \
            STEP_OF(NAME, 1)                                                                                 \
            STEP_OF(NAME, 2)                                                                                 \
            STEP_OF(NAME, 3) STEP_OF(NAME, 4) STEP_OF(NAME, 5) STEP_OF(NAME, 6) STEP_OF(NAME, 7)
#    else
#        define ALL_ROWS(NAME, X, H) NAME(X, H, 0) NAME(X, H, 1) NAME(X, H, 2) NAME(X, H, 3)
#        define ALL_STEPS(NAME)      STEP_OF(NAME, 0) STEP_OF(NAME, 1) STEP_OF(NAME, 2) STEP_OF(NAME, 3)
#    endif

#    if HALF_LANES < LANES
DEFINE_LEAF(leaf_1, HALF, 1)
DEFINE_LEAF(leaf_2, ONE, 2)
DEFINE_LEAF(leaf_3, ONE_HALF, 3)
DEFINE_LEAF(leaf_4, TWO, 4)
DEFINE_LEAF(leaf_5, TWO_HALF, 5)
DEFINE_LEAF(leaf_6, THREE, 6)
#    else
DEFINE_LEAF(leaf_1, ONE, 1)
DEFINE_LEAF(leaf_2, TWO, 2)
DEFINE_LEAF(leaf_3, THREE, 3)
#        define leaf_4 NULL
#        define leaf_5 NULL
#        define leaf_6 NULL
#    endif

/* By half vectors. */
static void (*const leaf_of[])(const struct turned *, int64_t, int64_t, const float *, int, float *,
                               int) = {NULL, leaf_1, leaf_2, leaf_3, leaf_4, leaf_5, leaf_6};

/* All leaves of a tile, its sum in worker->edge: [rows of weights, buffer rows]. */
static void compute_sum(const struct sycpu_gemm *gemm, const struct sycpu_gemm_worker *worker,
                        const struct turned *t)
{
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) {
        struct sycpu_gemm_place place = gemm_place_of(leaf, gemm->leaves);
        float *out = place.last ? worker->edge : worker->pending + place.to;
        leaf_of[t->halves](t, leaf * gemm->leaf, gemm->leaf, worker->pending + place.top, place.merges, out,
                           place.last);
    }
}

/* The sum to C: `c` is the tile's first column, `slot` has the rows of C, of which there are n. */
static void write_sum(const struct sycpu_gemm *gemm, const struct sycpu_gemm_worker *worker,
                      const struct turned *t, const int64_t *slot, int64_t n, float *c)
{
    const int64_t width = t->halves * HALF_LANES;
    n = least(n, width);
    if (t->rows == WEIGHTS)
        write_turned(worker->edge, WEIGHTS, width, slot, n, c, gemm->columns, WEIGHTS);
    else
        write_turned(worker->edge, WEIGHTS, width, slot, n, c, gemm->columns, t->rows);
}

/* Half vectors of a tile where so many are left. */
static int halves_of(int64_t left)
{
    const int most = 3 * LANES / HALF_LANES, two = 2 * LANES / HALF_LANES;
    return (int)(left <= most ? left : two);
}

void fast_gemm_compute_few(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                           int64_t expert, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t skip = expert * sycpu_gemm_b_size(gemm);
    const float *w = gemm->scale ? NULL : (const float *)gemm->b + skip;
    float *c = (float *)gemm->c + expert * sycpu_gemm_c_size(gemm);
    int64_t all = divide_up(worker->rows, HALF_LANES), halves;
    fast_gemm_list_slots(gemm, expert, worker);
    for (int64_t i = 0; i < all; i += halves)
        fast_gemm_pack_turned(plan, expert, worker, i * HALF_LANES,
                              HALF_LANES * (int)(halves = halves_of(all - i)),
                              worker->b + i * HALF_LANES * gemm->depth);
    end = least(end, gemm->columns);
    for (int64_t column = first; column < end; column += WEIGHTS) {
        struct turned t = {.stride = gemm->depth, .rows = (int)least(WEIGHTS, end - column)};
        if (w) t.w = w + column * gemm->depth;
        if (!w) t.q = (const int8_t *)gemm->b + skip + column * gemm->depth;
        if (!w) t.scale = (const float *)gemm->scale + expert * gemm->columns + column;
        for (int64_t i = 0; i < all; i += t.halves) {
            t.x = worker->b + i * HALF_LANES * gemm->depth;
            t.halves = halves_of(all - i);
            t.fetch = i == 0;
            compute_sum(gemm, worker, &t);
            write_sum(gemm, worker, &t, worker->slot + i * HALF_LANES, worker->rows - i * HALF_LANES,
                      c + column);
        }
    }
}
#endif
