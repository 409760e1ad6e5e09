/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a single query, as each step of decoding has it, in the order of fast_attention.c. Each key and value is
 * read once and little is computed with it, so what takes time is to wait for them: those of the next row are asked
 * for all along. Values are read where they lie. */
#include "config.h"

#include "backends/cpu/attention.h"
#include "backends/cpu/fast_attention.h"
#include "backends/cpu/fast_attention_forward.h"
#include "backends/cpu/fast_attention_rows.h"

/* Of rows of more bytes nothing would stay in the cache until it is used. */
#define AHEAD_BYTES (256 * 1024)

/* A part of the next row's keys and values, which is fetched into the L2 cache in small pieces. */
struct ahead {
    const char *at, *end;
    int64_t piece; /* bytes, a multiple of 64 */
};

/* One head of one row. */
struct single {
    const struct sycpu_attention_forward *f;
    const struct sycpu_attention *a;
    int64_t row, head, dim; /* dim: K rounded up */
    int64_t step;           /* elements between keys */
    const float *query;     /* words */
    float *keys;            /* [words of K, 64] of a block of keys */
    float *widened;         /* [64, dim]: keys that are bf16 where products are of float32 */
    float *score;           /* [64], then weights, as fast_attention.c has them */
    float *out;             /* [dim] */
    vf top, sum;            /* the same in all lanes */
    struct ahead ahead;
};

/* What a head fetches: its share of the next row, in as many pieces as it takes. */
static struct ahead next_row(const struct sycpu_attention *a, int half, int64_t row, int64_t head,
                             int64_t pieces)
{
    const int64_t bytes = a->kv_parts * a->columns * (half ? 2 : 4);
    const int64_t size = row < a->rows ? sycpu_attention_keys(a, row) * bytes : 0;
    const char *from = (const char *)a->kv + row * a->keys * bytes;
    if (size > AHEAD_BYTES) return (struct ahead){from, from, 0};
    struct ahead ahead = {from + size * head / a->heads / 64 * 64,
                          from + size * (head + 1) / a->heads / 64 * 64, 0};
    ahead.piece = ((ahead.end - ahead.at) / pieces + 64) / 64 * 64;
    return ahead;
}

ALWAYS_INLINE void fetch_piece(struct ahead *ahead)
{
    const char *end = ahead->at + ahead->piece < ahead->end ? ahead->at + ahead->piece : ahead->end;
    for (; ahead->at < end; ahead->at += 64) __builtin_prefetch(ahead->at, 0, 2);
}

/* ---- keys and values as words: pairs of bf16, or floats ---- */

#ifdef SYCPU_PAIRS
static const float *query_words(const struct single *s)
{
    return paired(s->a->q, sycpu_attention_q(s->a, s->row, s->head), 0).at;
}
static struct rows key_words(const struct single *s, int64_t at, int64_t n)
{
    (void)n;
    return paired(s->a->kv, at, s->step);
}

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
static const float *query_words(const struct single *s)
{
    return rows_of(s->a->q, s->f->half, sycpu_attention_q(s->a, s->row, s->head), 0, 1, s->a->head_dim,
                   s->out + s->dim)
        .at;
}
static struct rows key_words(const struct single *s, int64_t at, int64_t n)
{
    return rows_of(s->a->kv, s->f->half, at, s->step, n, s->a->head_dim, s->widened);
}

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
            if (k % 4 == 0) fetch_piece(&s->ahead);                                                          \
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
static void sum_values(struct single *s, int64_t at, int64_t n)
{
    if (STEP > 1 || !s->f->half)
        sum_values_of(s, STEP > 1, at, n);
    else
        sum_values_of(s, 1, at, n);
}

/* ---- a block of keys ---- */

/* Scores of `width` keys, a multiple of 16. */
static void score_keys(const struct single *s, int64_t width)
{
    const int64_t words = s->a->head_dim / STEP;
    int64_t column = 0;
    for (; column + 2 * SYCPU_LANES <= width; column += 2 * SYCPU_LANES) {
        vf left = vf_set(0.0f), right = left;
        const float *keys = s->keys + column;
        for (int64_t i = 0; i < words; i++, keys += width) {
            const vf query = vf_set(s->query[i]);
            left = product_step(query, vf_load(keys), left);
            right = product_step(query, vf_load(keys + SYCPU_LANES), right);
        }
        vf_store(s->score + column, left);
        vf_store(s->score + column + SYCPU_LANES, right);
    }
    for (; column < width; column += SYCPU_LANES) {
        vf score = vf_set(0.0f);
        for (int64_t i = 0; i < words; i++)
            score = product_step(vf_set(s->query[i]), vf_load(s->keys + i * width + column), score);
        vf_store(s->score + column, score);
    }
}

/* The sums so far, when the maximum moves from `old`. */
static void rescale(struct single *s, vf old)
{
    const vf factor = vf_exp(vf_sub(old, s->top));
    s->sum = vf_mul(s->sum, factor);
    for (int64_t d = 0; d < s->dim; d += SYCPU_LANES)
        vf_store(s->out + d, vf_mul(vf_load(s->out + d), factor));
}

static void attend_block(struct single *s, int64_t first, int64_t n)
{
    const struct sycpu_attention *a = s->a;
    const int64_t at = first * s->step, width = round_up(n);
    const float *bias = a->bias ? s->f->table.bias + s->head * s->f->table.step + first : NULL;
    const struct rows keys = key_words(s, sycpu_attention_kv(a, s->row, s->head, 2) + at, n);
    for (int64_t k = 0; k < width; k += LANES) {
        copy_group(keys, k, n, a->head_dim / STEP, s->keys, width);
        fetch_piece(&s->ahead);
    }
    score_keys(s, width);
    const vf top = vf_set(vf_top(seen_tops(s->score, bias, n))), old = s->top;
    s->top = first ? vf_max(old, top) : top;
    if (first) rescale(s, old);
    s->sum = vf_add(s->sum, vf_set(vf_sum(seen_weights(s->score, NULL, n, s->top))));
    sum_values(s, sycpu_attention_kv(a, s->row, s->head, 1) + at, n);
}

/* ---- a head ---- */

/* out = o * (1 / l), lse = m + log(l); zeros of a query that sees no key. No zero keeps its sign with pairs, as in
 * fast_attention.c. */
static void finish(const struct single *s, int64_t n)
{
    const struct sycpu_attention *a = s->a;
    const int64_t at = s->row * a->columns + s->head * a->head_dim;
    const vf zero = vf_set(0.0f), factor = n ? vf_div(vf_set(1.0f), s->sum) : zero;
    const vf lse = n ? vf_add(s->top, vf_log(s->sum)) : zero;
    vf_store_first(s->f->lse + s->row * a->heads + s->head, lse, 1);
    for (int64_t d = 0; d < a->head_dim; d += SYCPU_LANES) {
        vf sum = vf_load(s->out + d);
        if (STEP > 1) sum = vf_add(sum, zero);
        fast_put(s->f->out, s->f->half, at + d, vf_mul(sum, factor), lanes_left(a->head_dim - d));
    }
}

void fast_attend_single(const void *forward, int64_t task, int thread)
{
    const struct sycpu_attention_forward *f = forward;
    const struct sycpu_attention *a = f->a;
    struct single s = {.f = f, .a = a, .row = task / a->heads, .head = task % a->heads};
    const int64_t keys = sycpu_attention_bound(a, s.row, 0);
    s.dim = round_up(a->head_dim);
    s.step = a->kv_parts * a->columns;
    s.keys = f->scratch + thread * f->floats;
    s.widened = s.keys + a->head_dim * SYCPU_KEY_BLOCK;
    s.score = s.widened + s.dim * SYCPU_KEY_BLOCK;
    s.out = s.score + SYCPU_KEY_BLOCK;
    s.query = query_words(&s);
    s.sum = vf_set(0.0f);
    for (int64_t d = 0; d < s.dim; d += SYCPU_LANES) vf_store(s.out + d, s.sum);
    s.ahead = next_row(a, f->half, s.row + 1, s.head, keys / LANES + keys / 4 + 2);
    for (int64_t first = 0; first < keys; first += SYCPU_KEY_BLOCK)
        attend_block(&s, first, sycpu_clamp(keys - first, 0, SYCPU_KEY_BLOCK));
    finish(&s, keys);
}
