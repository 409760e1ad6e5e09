/* SPDX-License-Identifier: Apache-2.0 */
/* The products of a single query with the bits of matrix tiles, but by vectors: of a tile's 16 rows it would use one, and
 * tiles need values packed in pairs of keys, vectors read them where they lie. Of a run of 32 elements, even and odd ones are a
 * chain each (amx_tile.h). The zeros that end a run are left out, which changes no sum but the sign of a zero; the + 0 that
 * follows takes that back. Included by fast_attention_single.h. */
#ifndef SYCPU_FAST_ATTENTION_SINGLE_TILES_H
#define SYCPU_FAST_ATTENTION_SINGLE_TILES_H

#include "backends/cpu/tile_chains.h"

/* Sums of neighbouring vectors (ONE, ROWS_2, ROWS_4), and the chains of a run of each. */
#define ONE(X)         X(0)
#define CHAIN_BEGIN(i) vf e##i = vf_set(0.0f), o##i = e##i;
#define CHAIN_END(i)   c##i = vf_add(c##i, vf_add(e##i, o##i));

/* ---- scores ---- */

static inline const float *query_words(const struct single *s)
{
    copy_rows(s->a->q, 1, sycpu_attention_q(s->a, s->row, s->head), 0, 1, s->a->head_dim, s->widened);
    return s->widened;
}

#define SCORE_BEGIN(i) vf c##i = vf_set(0.0f);
#define SCORE_STEP(i)                                                                                        \
    {                                                                                                        \
        const vf pairs = vf_load(keys + i * SYCPU_LANES);                                                    \
        e##i = vf_fma(even, even_of(pairs), e##i);                                                           \
        o##i = vf_fma(odd, odd_of(pairs), o##i);                                                             \
    }
#define SCORE_END(i) vf_store(score + i * SYCPU_LANES, c##i);

/* Of neighbouring vectors of keys, of which there are `width`. */
#define DEFINE_SCORE(name, VECTORS)                                                                          \
    ALWAYS_INLINE void name(struct single *s, const float *keys, int64_t width, float *score)                \
    {                                                                                                        \
        const float *query = s->query, *end = query + s->a->head_dim;                                        \
        VECTORS(SCORE_BEGIN)                                                                                 \
        while (query < end) {                                                                                \
            VECTORS(CHAIN_BEGIN)                                                                             \
            for (int i = 0; i < TILE_ELEMENTS; i += STEP, query += STEP, keys += width) {                    \
                const vf even = vf_set(query[0]), odd = vf_set(query[1]);                                    \
                if (i % (STEP * SCORED) == 0) fetch_piece(&s->ahead);                                        \
                VECTORS(SCORE_STEP)                                                                          \
            }                                                                                                \
            VECTORS(CHAIN_END)                                                                               \
        }                                                                                                    \
        VECTORS(SCORE_END)                                                                                   \
    }
DEFINE_SCORE(score_two, ROWS_2)
DEFINE_SCORE(score_one, ONE)

static inline void score_all(struct single *s, int64_t width)
{
    int64_t column = 0;
    for (; column + 2 * SYCPU_LANES <= width; column += 2 * SYCPU_LANES)
        score_two(s, s->keys + column, width, s->score + column);
    if (column < width) score_one(s, s->keys + column, width, s->score + column);
}

/* ---- values ---- */

#define SUM_BEGIN(i) vf c##i = vf_load(out + SYCPU_LANES * i);
#define SUM_EVEN(i)  e##i = vf_fma(weight, fast_get(value, 1, SYCPU_LANES * i, SYCPU_LANES), e##i);
#define SUM_ODD(i)   o##i = vf_fma(weight, fast_get(value, 1, SYCPU_LANES * i, SYCPU_LANES), o##i);
#define SUM_END(i)   vf_store(out + SYCPU_LANES * i, c##i);

/* Of neighbouring vectors of columns. */
#define DEFINE_SUM(name, VECTORS)                                                                            \
    ALWAYS_INLINE void name(struct single *s, const uint16_t *value, int64_t n, float *out)                  \
    {                                                                                                        \
        const uint16_t *weights = (const uint16_t *)s->score;                                                \
        int64_t k = 0;                                                                                       \
        VECTORS(SUM_BEGIN)                                                                                   \
        while (k < n) {                                                                                      \
            const int64_t end = n - k < TILE_ELEMENTS ? n : k + TILE_ELEMENTS;                               \
            VECTORS(CHAIN_BEGIN)                                                                             \
            for (; k < end; k++, value += s->step) {                                                         \
                const vf weight = vf_set(syi_bf16_to_float(weights[k]));                                     \
                if (k % SUMMED == 0) fetch_piece(&s->ahead);                                                 \
                if (k % 2) {                                                                                 \
                    VECTORS(SUM_ODD)                                                                         \
                } else {                                                                                     \
                    VECTORS(SUM_EVEN)                                                                        \
                }                                                                                            \
            }                                                                                                \
            VECTORS(CHAIN_END)                                                                               \
        }                                                                                                    \
        VECTORS(SUM_END)                                                                                     \
    }
DEFINE_SUM(sum_four, ROWS_4)
DEFINE_SUM(sum_two, ROWS_2)

/* Heads are a multiple of 32 columns. */
static inline void sum_all(struct single *s, int64_t at, int64_t n)
{
    const uint16_t *values = (const uint16_t *)s->a->kv + at;
    int64_t d = 0;
    for (; d + 4 * SYCPU_LANES <= s->dim; d += 4 * SYCPU_LANES) sum_four(s, values + d, n, s->out + d);
    if (d < s->dim) sum_two(s, values + d, n, s->out + d);
}

/* ---- in the mode of tiles ---- */

static inline void score_keys(struct single *s, int64_t width)
{
    static void (*const volatile score)(struct single *, int64_t) = score_all;
    const unsigned mode = enter_tile_mode();
    score(s, width);
    leave_tile_mode(mode);
}

static inline void sum_values(struct single *s, int64_t at, int64_t n)
{
    static void (*const volatile sum)(struct single *, int64_t, int64_t) = sum_all;
    const unsigned mode = enter_tile_mode();
    sum(s, at, n);
    leave_tile_mode(mode);
}

#endif
