/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a single query, as each step of decoding has it, in the order of fast_attention.c. Each key and value is
 * read once and little is computed with it, so what takes time is to wait for them: those of the next row are asked
 * for all along. Values are read where they lie. */
#include "config.h"

#include "backends/cpu/attention.h"
#include "backends/cpu/fast_attention_single.h"

/* Of rows of more bytes nothing would stay in the cache until it is used. */
#define AHEAD_BYTES (256 * 1024)

/* What a head of so many keys fetches: its share of the next row, in as many pieces as it takes. */
static struct ahead next_row(const struct sycpu_attention *a, int half, int64_t row, int64_t head,
                             int64_t keys)
{
    const int64_t scored = (keys + 2 * SYCPU_LANES - 1) / (2 * SYCPU_LANES) * a->head_dim / STEP / SCORED;
    const int64_t pieces = keys / LANES + scored + keys / SUMMED + 2;
    const int64_t bytes = a->kv_parts * a->columns * (half ? 2 : 4);
    const int64_t size = row < a->rows ? sycpu_attention_keys(a, row) * bytes : 0;
    const char *from = (const char *)a->kv + row * a->keys * bytes;
    if (size > AHEAD_BYTES) return (struct ahead){from, from, 0};
    struct ahead ahead = {from + size * head / a->heads / 64 * 64,
                          from + size * (head + 1) / a->heads / 64 * 64, 0};
    ahead.piece = ((ahead.end - ahead.at) / pieces + 64) / 64 * 64;
    return ahead;
}

#ifdef SYCPU_PAIRS
static struct rows key_words(const struct single *s, int64_t at, int64_t n)
{
    (void)n;
    return paired(s->a->kv, at, s->step);
}
#else
static struct rows key_words(const struct single *s, int64_t at, int64_t n)
{
    return rows_of(s->a->kv, s->f->half, at, s->step, n, s->a->head_dim, s->widened);
}
#endif

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
    s.ahead = next_row(a, f->half, s.row + 1, s.head, keys);
    for (int64_t first = 0; first < keys; first += SYCPU_KEY_BLOCK)
        attend_block(&s, first, sycpu_clamp(keys - first, 0, SYCPU_KEY_BLOCK));
    finish(&s, keys);
}
