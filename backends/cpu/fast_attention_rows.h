/* SPDX-License-Identifier: Apache-2.0 */
/* How fast attention gets at the rows of a head: float32 or bf16 elements as float32, transposed, as pairs of
 * bf16, asked for ahead of time; rows of scores that become weights; and sums over the lanes of 16 rows. */
#ifndef SYCPU_FAST_ATTENTION_ROWS_H
#define SYCPU_FAST_ATTENTION_ROWS_H

#include "backends/cpu/attention.h"
#include "backends/cpu/bf16.h"
#include "backends/cpu/fast.h"
#include "backends/cpu/gemm_simd.h"
#include "backends/cpu/simd.h"

static inline int64_t round_up(int64_t n)
{
    return (n + SYCPU_LANES - 1) / SYCPU_LANES * SYCPU_LANES;
}

static inline int64_t lanes_left(int64_t n)
{
    return n < 0 ? 0 : n > SYCPU_LANES ? SYCPU_LANES : n;
}

/* to[row, 0 .. width): n rows of `dim` elements from element `at` of a float32 or bf16 tensor on, widened to
 * round_up(dim) by zeros. */
ALWAYS_INLINE void copy_rows_of(const void *from, int half, int64_t at, int64_t step, int64_t n, int64_t dim,
                                float *to)
{
    for (int64_t row = 0; row < n; row++, at += step, to += round_up(dim)) {
#define COPY(d, count) vf_store(to + (d), fast_get(from, half, at + (d), count))
        FAST_COLUMNS(d, dim, COPY);
#undef COPY
    }
}
static inline void copy_rows(const void *from, int half, int64_t at, int64_t step, int64_t n, int64_t dim,
                             float *to)
{
    if (half)
        copy_rows_of(from, 1, at, step, n, dim, to);
    else
        copy_rows_of(from, 0, at, step, n, dim, to);
}

/* Matrix tiles take rows of C by 16 and steps by 32 elements: n, and what scratch holds of them. */
static inline int64_t whole_rows(int64_t n)
{
    return (n + WHOLE - 1) / WHOLE * WHOLE;
}
static inline int64_t whole_elements(int64_t n)
{
    return (n + STEP * WHOLE - 1) / (STEP * WHOLE) * (STEP * WHOLE);
}

/* n rows of `dim` elements as float32. */
struct rows {
    const float *at;
    int64_t step; /* elements between rows */
};
/* Where they lie, or widened into `scratch`. */
static inline struct rows rows_of(const void *from, int half, int64_t at, int64_t step, int64_t n,
                                  int64_t dim, float *scratch)
{
    if (!half) return (struct rows){(const float *)from + at, step};
    copy_rows(from, half, at, step, n, dim, scratch);
    return (struct rows){scratch, round_up(dim)};
}

/* Columns first .. first + LANES - 1 of to[d, row] of `width` columns; those from n on repeat the last row. */
static inline void copy_group(struct rows from, int64_t first, int64_t n, int64_t dim, float *to,
                              int64_t width)
{
    const operand *row[LANES];
    int64_t d = 0;
    for (int64_t i = 0; i < LANES; i++)
        row[i] = (const operand *)(from.at + (first + i < n ? first + i : n - 1) * from.step);
    for (; d + LANES <= dim; d += LANES) transpose(row, d * STEP, to + d * width + first, width, LANES);
    for (; d < dim; d++)
        for (int64_t i = 0; i < LANES; i++) to[d * width + first + i] = ((const float *)row[i])[d];
}
/* All columns, a multiple of 16. */
static inline void copy_transposed(struct rows from, int64_t n, int64_t dim, float *to, int64_t width)
{
    for (int64_t first = 0; first < width; first += LANES) copy_group(from, first, n, dim, to, width);
}

/* Of n rows: those from n * from / of up to n * to / of. */
struct share {
    int64_t from, to, of;
};
/* That of the first tile of `height` queries against the keys from `first` on, and of the next. */
static inline struct share share_of_block(int64_t queries, int64_t height, int64_t first, int64_t keys)
{
    const int64_t tiles = (queries + height - 1) / height, from = first / SYCPU_KEY_BLOCK * tiles;
    return (struct share){from, from + 1, (keys + SYCPU_KEY_BLOCK - 1) / SYCPU_KEY_BLOCK * tiles};
}
static inline void next_share(struct share *share)
{
    share->from = share->to++;
}

/* Asks for rows that the next task reads or this one writes: heads lie apart in a pack, which hardware does not foresee. Each
 * tile asks for a share, since more than about a hundred lines at once would hold up the loads that follow. */
#define PREFETCH_ROWS(name, write)                                                                           \
    ALWAYS_INLINE void name(struct share share, const void *from, int half, int64_t at, int64_t step,        \
                            int64_t n, int64_t dim)                                                          \
    {                                                                                                        \
        const int64_t bytes = half ? 2 : 4, begin = n * share.from / share.of,                               \
                      end = n * share.to / share.of;                                                         \
        const char *row = (const char *)from + (at + begin * step) * bytes;                                  \
        for (int64_t r = begin; r < end; r++, row += step * bytes)                                           \
            for (int64_t i = 0; i < dim * bytes; i += 64) __builtin_prefetch(row + i, write);                \
    }
PREFETCH_ROWS(prefetch_read, 0)
PREFETCH_ROWS(prefetch_write, 1)
#undef PREFETCH_ROWS

/* Keys (which 2) or values (which 1) of a task, which is row * heads + head and may be past the last. */
ALWAYS_INLINE void prefetch_keys(struct share share, const struct sycpu_attention *a, int half, int64_t task,
                                 int which)
{
    int64_t row = task / a->heads;
    if (row < a->rows)
        prefetch_read(share, a->kv, half, sycpu_attention_kv(a, row, task % a->heads, which),
                      a->kv_parts * a->columns, sycpu_attention_keys(a, row), a->head_dim);
}
ALWAYS_INLINE void prefetch_queries(struct share share, const struct sycpu_attention *a, int half,
                                    int64_t task)
{
    int64_t row = task / a->heads;
    if (row < a->rows)
        prefetch_read(share, a->q, half, sycpu_attention_q(a, row, task % a->heads), a->q_parts * a->columns,
                      sycpu_attention_queries(a, row), a->head_dim);
}

/* A square of 16 x 16, transposed: what was in the lanes of a row is in one lane of 16 vectors. */
static inline void turn(const float *square, float *turned)
{
    for (int first = 0; first < SYCPU_LANES; first += LANES) {
        const operand *row[LANES];
        for (int i = 0; i < LANES; i++) row[i] = (const operand *)(square + (first + i) * SYCPU_LANES);
        for (int d = 0; d < SYCPU_LANES; d += LANES)
            transpose(row, d * STEP, turned + d * SYCPU_LANES + first, SYCPU_LANES, LANES);
    }
}

/* Lane r: the sum over the lanes of row r of the square, in the order of a row sum. */
static inline vf rows_sum(const float *square)
{
    float t[SYCPU_LANES * SYCPU_LANES];
    turn(square, t);
    for (int s = 8; s > 0; s /= 2)
        for (int l = 0; l < s; l++)
            vf_store(t + l * SYCPU_LANES,
                     vf_add(vf_load(t + l * SYCPU_LANES), vf_load(t + (l + s) * SYCPU_LANES)));
    return vf_load(t);
}

/* Lane r: the largest of row r of the square. */
static inline vf rows_top(const float *square)
{
    float t[SYCPU_LANES * SYCPU_LANES];
    turn(square, t);
    vf top = vf_load(t);
    for (int l = 1; l < SYCPU_LANES; l++) top = vf_max(top, vf_load(t + l * SYCPU_LANES));
    return top;
}

#ifdef SYCPU_PAIRS
/* ---- pairs of bf16 ---- */

/* 16 pairs of what two vectors hold, rounded: of `even` in the low halves. */
static inline vf pairs_of(vf even, vf odd)
{
    const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
    const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* to[i, d]: pairs of rows 2i and 2i + 1 of n rows of `dim` bf16, a multiple of 16; rows from n on are zeros. */
static inline void pair_rows(const uint16_t *from, int64_t step, int64_t n, int64_t dim, float *to)
{
    for (int64_t row = 0; row < n; row += 2, from += 2 * step, to += dim)
        for (int64_t d = 0; d < dim; d += SYCPU_LANES) {
            vi even = vf_iload_half(from + d), odd = vf_iset(0);
            if (row + 1 < n) odd = vf_ishl(vf_iload_half(from + step + d), 16);
            vf_store(to + d, vf_real(vf_ior(even, odd)));
        }
    memset(to, 0, (size_t)((whole_elements(n) - n) / STEP * dim) * sizeof *to);
}

/* Rows of bf16 as rows of pairs along them. */
static inline struct rows paired(const void *from, int64_t at, int64_t step)
{
    return (struct rows){(const float *)((const uint16_t *)from + at), step / 2};
}

/* n rows of `dim` bf16, a multiple of 32, as a left operand: where they lie, or whole tiles in scratch, which is aligned. */
static inline struct rows left_rows(const void *from, int64_t at, int64_t step, int64_t n, int64_t dim,
                                    float *scratch)
{
    const struct rows rows = paired(from, at, step);
    if (WHOLE == 1) return rows;
    for (int64_t row = 0; row < n; row++)
        for (int64_t d = 0; d < dim / STEP; d += SYCPU_LANES)
            vf_store(scratch + row * dim / STEP + d, vf_load(rows.at + row * rows.step + d));
    memset(scratch + n * dim / STEP, 0, (size_t)((whole_rows(n) - n) * dim / STEP) * sizeof *scratch);
    return (struct rows){scratch, dim / STEP};
}

/* Weights are bf16 in the first half of their row of scores, times the dropout mask: that of float32 products
 * is in the values. */
ALWAYS_INLINE void store_weights(float *score, const float *mask, int64_t k, vf p)
{
    if (mask) p = vf_mul(p, vf_load(mask + k));
    _mm256_storeu_si256((__m256i *)((uint16_t *)score + k), (__m256i)_mm512_cvtneps_pbh(p));
}

/* The kernel of the float32 products takes what is not as these need it: pairs along heads and steps. */
sycpu_run sycpu_avx512_fast_attention, sycpu_avx512_fast_attention_grad;
sycpu_workspace sycpu_avx512_fast_attention_workspace, sycpu_avx512_fast_attention_grad_workspace;
static inline int pairs_fit(const struct sy_call *call, int segments)
{
    const struct sy_attr_attention *attr = call->attr;
    return attr->head_dim % (2 * SYCPU_LANES) == 0 && !sycpu_attention_general(call, segments) &&
           !call->in[segments + 3].rank;
}
#else
ALWAYS_INLINE void store_weights(float *score, const float *mask, int64_t k, vf p)
{
    (void)mask;
    vf_store(score + k, p);
}
#endif

/* ---- a row of scores whose first n keys are seen ---- */

/* Scores k .. k + 15 of a row with their bias. */
ALWAYS_INLINE vf biased(float *score, const float *bias, int64_t k)
{
    vf s = vf_add(vf_load(score + k), vf_set(0.0f));
    if (bias) s = vf_add(s, vf_load(bias + k));
    vf_store(score + k, s);
    return s;
}

/* Adds the bias and gives the largest of each lane. Loops without a mask in them run as wide as the processor can. */
ALWAYS_INLINE vf seen_tops(float *score, const float *bias, int64_t n)
{
    vf top = vf_set(-__builtin_inff());
    int64_t k = 0;
    for (; k + SYCPU_LANES <= n; k += SYCPU_LANES) top = vf_max(top, biased(score, bias, k));
    if (k < n) top = vf_max(top, vf_select(vf_first(n - k), biased(score, bias, k), top));
    return top;
}

/* Scores become p = exp(score - top), with pairs times the mask; gives the sum of each lane. */
ALWAYS_INLINE vf seen_weights(float *score, const float *mask, int64_t n, vf top)
{
    vf sum = vf_set(0.0f);
    int64_t k = 0;
    for (; k + SYCPU_LANES <= n; k += SYCPU_LANES) {
        vf p = vf_exp(vf_sub(vf_load(score + k), top));
        sum = vf_add(sum, p);
        store_weights(score, mask, k, p);
    }
    if (k < n) {
        vf p = vf_keep(vf_first(n - k), vf_exp(vf_sub(vf_load(score + k), top)));
        sum = vf_add(sum, p);
        store_weights(score, mask, k, p);
    }
    return sum;
}

/* Any call between conversions: bf16 calls that the fast kernels leave to the reference. */
#ifdef SYCPU_PAIRS
#    define CONVERTED           sycpu_converted_avx512
#    define CONVERTED_WORKSPACE sycpu_converted_avx512_workspace
#else
#    define CONVERTED_JOIN2(isa, name) sycpu_converted_##isa##name
#    define CONVERTED_JOIN(isa, name)  CONVERTED_JOIN2(isa, name)
#    define CONVERTED                  CONVERTED_JOIN(SYCPU_ISA, )
#    define CONVERTED_WORKSPACE        CONVERTED_JOIN(SYCPU_ISA, _workspace)
#endif

#endif
