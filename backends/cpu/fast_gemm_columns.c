/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer rows of one expert times its transposed weights where the rows are few, with AVX-512: vectors run over rows of
 * weights, which are transposed in registers, four elements at a time. The shuffles run beside the multiplications of
 * the elements before, so weights need neither be packed nor be the operand that is broadcast, and no lane is filled up. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if COLUMN_VECTORS
#    define QUAD 4 /* elements transposed together */
/* Blocks of LANES elements from what is copied to what is fetched into the L1 cache for that. */
#    define NEAR_BLOCKS 3

/* LANES rows of weights and a few buffer rows. */
struct columns {
    const float *w;
    const float *x; /* buffer rows, packed: [depth, width] */
    int64_t stride; /* words from a row of weights to the next, all that follows in words too */
    int64_t depth, width;
    int fetch; /* 1: the rows of weights after these are fetched */
    /* Of the block of LANES elements at hand and of the next, in turn. */
    float copy[2][LANES * LANES] __attribute__((aligned(64)));
};

/* Quarter q of the vector: QUAD elements of row 4 q. */
ALWAYS_INLINE vec load_quarters(const float *row, int64_t stride)
{
    vec v = _mm512_castps128_ps512(_mm_loadu_ps(row));
    v = _mm512_mask_broadcast_f32x4(v, 0x00f0, _mm_loadu_ps(row + 4 * stride));
    v = _mm512_mask_broadcast_f32x4(v, 0x0f00, _mm_loadu_ps(row + 8 * stride));
    return _mm512_mask_broadcast_f32x4(v, 0xf000, _mm_loadu_ps(row + 12 * stride));
}

#    define ZERO(i)  vec c##i = vec_zero();
#    define FMA(i)   c##i = vec_step(vec_broadcast(x + i), b, c##i);
#    define ADD(i)   c##i = vec_add(vec_load(pending + i * LANES), c##i);
#    define CLOSE(i) c##i = vec_add(c##i, vec_zero());
#    define STORE(i) vec_store(out + i * LANES, c##i);
/* Element i of a quad, and what is due of the next one and of the next block. */
#    define ELEMENT(ROWS, i, column)                                                                         \
        {                                                                                                    \
            const vec b = (column);                                                                          \
            ROWS(FMA)                                                                                        \
            x += width;                                                                                      \
            if (copied) {                                                                                    \
                vec_store(to + i * LANES, vec_load(row + i * rows));                                         \
                __builtin_prefetch(row + i * rows + NEAR_BLOCKS * LANES);                                    \
            }                                                                                                \
            v##i = load_quarters(next + i * stride, stride);                                                 \
            __builtin_prefetch(far + i * rows, 0, 2);                                                        \
        }

/* A leaf, as in fast_gemm_tile.c: elements k .. k + depth - 1, both a multiple of LANES. */
#    define DEFINE_LEAF(name, ROWS, is_copied)                                                               \
        static void name(struct columns *t, int64_t k, int64_t depth, const float *pending, int merges,      \
                         float *out, int last)                                                               \
        {                                                                                                    \
            const int copied = is_copied;                                                                    \
            const int64_t width = t->width, rows = t->stride, stride = copied ? LANES : rows;                \
            const int64_t ahead = t->fetch ? LANES * rows : 0;                                               \
            const float *x = t->x + k * width, *block = copied ? t->copy[k / LANES % 2] : t->w + k;          \
            vec v0 = load_quarters(block, stride), v1 = load_quarters(block + stride, stride),               \
                v2 = load_quarters(block + 2 * stride, stride),                                              \
                v3 = load_quarters(block + 3 * stride, stride);                                              \
            ROWS(ZERO)                                                                                       \
            for (const int64_t end = k + depth; k < end; k += LANES) {                                       \
                const float *row = t->w + least(k + LANES, t->depth - LANES);                                \
                float *to = t->copy[k / LANES % 2 == 0];                                                     \
                const float *after = copied ? to : row, *far = t->w + k + ahead;                             \
                for (int j = 1; j <= LANES / QUAD; j++) {                                                    \
                    const float *next = j < LANES / QUAD ? block + j * QUAD : after;                         \
                    const __m512d low0 = _mm512_castps_pd(_mm512_unpacklo_ps(v0, v1)),                       \
                                  low2 = _mm512_castps_pd(_mm512_unpacklo_ps(v2, v3)),                       \
                                  high0 = _mm512_castps_pd(_mm512_unpackhi_ps(v0, v1)),                      \
                                  high2 = _mm512_castps_pd(_mm512_unpackhi_ps(v2, v3));                      \
                    ELEMENT(ROWS, 0, _mm512_castpd_ps(_mm512_unpacklo_pd(low0, low2)))                       \
                    ELEMENT(ROWS, 1, _mm512_castpd_ps(_mm512_unpackhi_pd(low0, low2)))                       \
                    ELEMENT(ROWS, 2, _mm512_castpd_ps(_mm512_unpacklo_pd(high0, high2)))                     \
                    ELEMENT(ROWS, 3, _mm512_castpd_ps(_mm512_unpackhi_pd(high0, high2)))                     \
                    row += QUAD * rows, far += QUAD * rows, to += QUAD * LANES;                              \
                }                                                                                            \
                block = after;                                                                               \
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
#    if SY_TRAINING
#        define EACH_HEIGHT(X) X(2) X(4) X(6) X(8) X(10) X(12) X(14) X(16) X(18) X(20) X(22) X(24) X(26)
#        define EACH_EVEN(X)   EACH_HEIGHT(X)
#    else /* few kernels, for a small program: those of the heights between take the next one */
#        define EACH_HEIGHT(X) X(2) X(4) X(8) X(16) X(24)
#        define EACH_EVEN(X)   X(2) X(4) X(8) X(8) X(16) X(16) X(16) X(16) X(24) X(24) X(24) X(24)
#    endif
#    define LEAVES(height)                                                                                   \
        DEFINE_LEAF(leaf_##height, ROWS_##height, 0)                                                         \
        DEFINE_LEAF(copied_leaf_##height, ROWS_##height, 1)
#    define PLAIN(height)  leaf_##height,
#    define COPIED(height) copied_leaf_##height,
EACH_HEIGHT(LEAVES)
typedef void leaf_fn(struct columns *, int64_t, int64_t, const float *, int, float *, int);
static leaf_fn *const leaf_of[2][COLUMN_ROWS / 2 + 1] = {{NULL, EACH_EVEN(PLAIN)},
                                                         {NULL, EACH_EVEN(COPIED)}}; /* by half the height */

/* All leaves of `rows` buffer rows, to the rows of C that slot has: `c` is the element of row 0. */
static void compute_sum(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                        struct columns *t, const int64_t *slot, int64_t rows, int64_t c)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int copied = t->stride % COLUMN_SET == 0;
    for (int64_t i = 0; i < rows; i++)
        __builtin_prefetch((char *)gemm->c + (c + slot[i] * gemm->columns) * c_element(plan), 1);
    for (int i = 0; copied && i < LANES; i++)
        vec_store(t->copy[0] + i * LANES, vec_load(t->w + i * t->stride));
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) {
        struct sycpu_gemm_place place = gemm_place_of(leaf, gemm->leaves);
        leaf_of[copied][divide_up(rows, 2)](
            t, leaf * gemm->leaf / STEP, gemm->leaf / STEP, worker->pending + place.top, place.merges,
            place.last ? worker->edge : worker->pending + place.to, place.last);
    }
    for (int64_t i = 0; i < rows; i++)
        fast_gemm_put(plan, c + slot[i] * gemm->columns, vec_load(worker->edge + i * LANES));
}

/* All rows in equal parts. As whole vectors they always fit in the scratch. */
static int64_t rows_at_once(const struct sycpu_gemm_plan *plan, int64_t all)
{
    const int64_t rows = equal_parts(all, COLUMN_ROWS), room = plan->b_words * STEP / plan->gemm.depth;
    return divide_up(all, rows) * turned_width(rows) <= room ? rows : equal_parts(all, LANES);
}

void fast_gemm_compute_columns(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                               int64_t expert, int64_t first, int64_t end)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    const float *w = (const float *)((const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm));
    int64_t c = expert * sycpu_gemm_c_size(gemm);
    const int64_t rows = rows_at_once(plan, worker->rows);
    struct columns t;
    t.stride = t.depth = gemm->depth / STEP;
    t.width = fast_gemm_pack_parts(plan, expert, worker, rows, worker->b);
    for (int64_t column = first; column < end; column += LANES) {
        t.w = w + column * t.stride;
        fast_gemm_fetch_rows(gemm, expert + 1, (column - first) / LANES, (end - first) / LANES);
        for (int64_t i = 0; i * rows < worker->rows; i++) {
            t.x = worker->b + i * t.width * t.depth;
            t.fetch = i == 0;
            compute_sum(plan, worker, &t, worker->slot + i * rows, least(rows, worker->rows - i * rows),
                        c + column);
        }
    }
}
#endif
