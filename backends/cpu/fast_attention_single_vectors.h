/* SPDX-License-Identifier: Apache-2.0 */
/* The products of a single query by chains of vectors: of pairs of bf16, or of floats. Included by
 * fast_attention_single.h. */
#ifndef SYCPU_FAST_ATTENTION_SINGLE_VECTORS_H
#define SYCPU_FAST_ATTENTION_SINGLE_VECTORS_H

/* ---- scores ---- */

#ifdef SYCPU_PAIRS
static inline const float *query_words(const struct single *s)
{
    return paired(s->a->q, sycpu_attention_q(s->a, s->row, s->head), 0).at;
}
#else
static inline const float *query_words(const struct single *s)
{
    return rows_of(s->a->q, s->f->half, sycpu_attention_q(s->a, s->row, s->head), 0, 1, s->a->head_dim,
                   s->out + s->dim)
        .at;
}
#endif

static inline void score_keys(struct single *s, int64_t width)
{
    const int64_t words = s->a->head_dim / STEP;
    int64_t column = 0;
    for (; column + 2 * SYCPU_LANES <= width; column += 2 * SYCPU_LANES) {
        vf left = vf_set(0.0f), right = left;
        const float *keys = s->keys + column;
        for (int64_t i = 0; i < words; i++, keys += width) {
            const vf query = vf_set(s->query[i]);
            if (i % SCORED == 0) fetch_piece(&s->ahead);
            left = product_step(query, vf_load(keys), left);
            right = product_step(query, vf_load(keys + SYCPU_LANES), right);
        }
        vf_store(s->score + column, left);
        vf_store(s->score + column + SYCPU_LANES, right);
    }
    for (; column < width; column += SYCPU_LANES) {
        vf score = vf_set(0.0f);
        for (int64_t i = 0; i < words; i++) {
            if (i % SCORED == 0) fetch_piece(&s->ahead);
            score = product_step(vf_set(s->query[i]), vf_load(s->keys + i * width + column), score);
        }
        vf_store(s->score + column, score);
    }
}

/* ---- values ---- */

#ifdef SYCPU_PAIRS
/* Columns of values that are made words together; there are no parts of them. */
#    define UNIT         (2 * SYCPU_LANES)
#    define SUM_BEGIN(i) vf c##i = vf_load(out + UNIT * i), d##i = vf_load(out + UNIT * i + SYCPU_LANES);
#    define SUM_STEP(i)                                                                                      \
        {                                                                                                    \
            const uint16_t *value = (const uint16_t *)s->a->kv + at + UNIT * i;                              \
            vf low, high;                                                                                    \
            interleave(value, k + 1 < n ? value + s->step : NULL, UNIT, SYCPU_LANES, &low, &high);           \
            c##i = product_step(weight, low, c##i);                                                          \
            d##i = product_step(weight, high, d##i);                                                         \
        }
#    define SUM_END(i)                                                                                       \
        vf_store(out + UNIT * i, c##i);                                                                      \
        vf_store(out + UNIT * i + SYCPU_LANES, d##i);
#    define WIDE_UNITS(X) X(0) X(1)
#else
#    define UNIT          SYCPU_LANES
#    define SUM_BEGIN(i)  vf c##i = vf_load(out + UNIT * i);
#    define SUM_STEP(i)   c##i = product_step(weight, fast_get(s->a->kv, half, at + UNIT * i, columns), c##i);
#    define SUM_END(i)    vf_store(out + UNIT * i, c##i);
#    define WIDE_UNITS(X) X(0) X(1) X(2) X(3)
#endif
#define ONE(X) X(0)

/* Adds n values times their weights to units of the outputs, neighbours; the first begins with element `at`. A unit has
 * `columns` columns, fewer than UNIT only where it is alone. */
#define DEFINE_SUM(name, UNITS)                                                                              \
    ALWAYS_INLINE void name(struct single *s, int half, int64_t at, int64_t n, float *out, int64_t columns)  \
    {                                                                                                        \
        (void)half, (void)columns;                                                                           \
        UNITS(SUM_BEGIN)                                                                                     \
        for (int64_t k = 0; k < n; k += STEP, at += STEP * s->step) {                                        \
            const vf weight = vf_set(s->score[k / STEP]);                                                    \
            if (k % SUMMED == 0) fetch_piece(&s->ahead);                                                     \
            UNITS(SUM_STEP)                                                                                  \
        }                                                                                                    \
        UNITS(SUM_END)                                                                                       \
    }
DEFINE_SUM(sum_wide, WIDE_UNITS)
DEFINE_SUM(sum_unit, ONE)

ALWAYS_INLINE void sum_values_of(struct single *s, int half, int64_t at, int64_t n)
{
    const int64_t dim = s->a->head_dim, wide = 4 * SYCPU_LANES;
    int64_t d = 0;
    for (; d + wide <= dim; d += wide) sum_wide(s, half, at + d, n, s->out + d, UNIT);
    for (; d + UNIT <= dim; d += UNIT) sum_unit(s, half, at + d, n, s->out + d, UNIT);
    if (UNIT == SYCPU_LANES && d < dim) sum_unit(s, half, at + d, n, s->out + d, dim - d);
}
static inline void sum_values(struct single *s, int64_t at, int64_t n)
{
    if (STEP > 1 || !s->f->half)
        sum_values_of(s, STEP > 1, at, n);
    else
        sum_values_of(s, 1, at, n);
}

#endif
