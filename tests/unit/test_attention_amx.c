/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on matrix tiles: every kernel of amx_bf16, the emulated one and where the processor has AMX that of
 * instructions, has the bits of a plain model that computes one element after the other by the arithmetic of amx_tile.h,
 * whatever the sizes, lengths, values and threads. A query's bits depend on what it sees alone. */
#include "config.h"

#include "attention_half.h"

#include "backends/cpu/attention.h"
#include "backends/cpu/ref.h"
#include "base/amx_tile.h"

enum { MOST_COLUMNS = 160 }; /* of a head below */

/* ---- the model ---- */

/* The contraction of n elements, neighbours in a and b_step apart in b, goes on at sum. */
static float dot(float sum, const uint16_t *a, const uint16_t *b, int64_t b_step, int64_t n)
{
    for (int64_t i = 0; i < n; i += TILE_ELEMENTS) {
        uint16_t left[TILE_ELEMENTS] = {0}, right[TILE_ELEMENTS] = {0};
        for (int64_t j = i; j < n && j < i + TILE_ELEMENTS; j++)
            left[j - i] = a[j], right[j - i] = b[j * b_step];
        sum = tile_dot_element(sum, left, right, 2);
    }
    return sum;
}

/* As the instruction that rounds weights and gradients of scores: a denormal is zero. */
static uint16_t rounded(float x)
{
    return syi_bf16_from_float(tile_flush(x));
}

/* One head of one row. */
struct head {
    const struct sycpu_attention *a;
    const uint16_t *q, *k, *v; /* position 0 */
    const float *table;        /* or NULL */
    int64_t row, head, q_step, kv_step, queries, keys, dim;
};

static struct head head_of(const struct sycpu_attention *a, int64_t row, int64_t head)
{
    struct head h = {.a = a, .row = row, .head = head, .dim = a->head_dim};
    h.q = (const uint16_t *)a->q + sycpu_attention_q(a, row, head);
    h.k = (const uint16_t *)a->kv + sycpu_attention_kv(a, row, head, 2);
    h.v = (const uint16_t *)a->kv + sycpu_attention_kv(a, row, head, 1);
    h.table = a->bias ? (const float *)a->bias + head * a->buckets : NULL;
    h.q_step = a->q_parts * a->columns;
    h.kv_step = a->kv_parts * a->columns;
    h.queries = sycpu_attention_queries(a, row);
    h.keys = sycpu_attention_keys(a, row);
    return h;
}

static float score(const struct head *h, int64_t q, int64_t k)
{
    const struct sycpu_attention *a = h->a;
    float s = dot(0.0f, h->q + q * h->q_step, h->k + k * h->kv_step, 1, h->dim) + 0.0f;
    if (h->table)
        s += h->table[syi_relpos_bucket(k - q - a->position, (int)a->attr->bidirectional, a->buckets,
                                        a->attr->max_distance)];
    return s;
}

/* The keys first .. first + n - 1 of a query: out[K], *top and *sum go on. */
static void attend(const struct head *h, int64_t q, int64_t first, int64_t n, float *out, float *top,
                   float *sum)
{
    float p[SYCPU_KEY_BLOCK] = {0}, old = *top;
    uint16_t weight[SYCPU_KEY_BLOCK];
    for (int64_t k = 0; k < n; k++) {
        p[k] = score(h, q, first + k);
        *top = *top > p[k] ? *top : p[k];
    }
    const float factor = first ? syi_exp(old - *top) : 1.0f;
    for (int64_t k = 0; k < n; k++) {
        p[k] = syi_exp(p[k] - *top);
        weight[k] = rounded(p[k] * sycpu_attention_mask(h->a, h->row, first + k, h->head));
    }
    *sum = *sum * factor + ref_row_sum(p, SYCPU_KEY_BLOCK);
    for (int64_t d = 0; d < h->dim; d++)
        out[d] = dot(out[d] * factor, weight, h->v + first * h->kv_step + d, h->kv_step, n);
}

static void model_forward(struct kh *h)
{
    struct sy_call call = {.in = h->in, .out = h->out, .attr = h->attr, .op = (uint16_t)h->op};
    const struct sycpu_attention a = sycpu_attention_forward(&call);
    uint16_t *out = h->want[0] = calloc(1, kh_bytes(&h->out[0]));
    float *lse = h->want[1] = calloc(1, kh_bytes(&h->out[1]));
    cr_assert(out && lse && a.head_dim <= MOST_COLUMNS);
    for (int64_t i = 0; i < a.rows * a.heads; i++) {
        const struct head head = head_of(&a, i / a.heads, i % a.heads);
        for (int64_t q = 0; head.keys && q < head.queries; q++) {
            float o[MOST_COLUMNS] = {0}, top = -INFINITY, sum = 0;
            const int64_t seen = sycpu_attention_seen(&a, head.keys, q);
            for (int64_t first = 0; first < seen; first += SYCPU_KEY_BLOCK)
                attend(&head, q, first, sycpu_clamp(seen - first, 0, SYCPU_KEY_BLOCK), o, &top, &sum);
            for (int64_t d = 0; d < head.dim; d++)
                out[(head.row * a.queries + q) * a.columns + head.head * head.dim + d] =
                    syi_bf16_from_float((o[d] + 0.0f) * (1.0f / sum));
            lse[i * a.queries + q] = top + syi_log(sum);
        }
    }
}

/* Weights and gradients of scores of a head, turned and not. */
struct weights {
    uint16_t *p, *ds_turned, *ds; /* [keys, queries], [keys, queries], [queries, keys] */
};

/* Of query q and key k. */
static void weigh(const struct head *h, const uint16_t *dout, const float *lse, const float *mean, int64_t q,
                  int64_t k, const struct weights *w)
{
    const float mask = sycpu_attention_mask(h->a, h->row, k, h->head), p = syi_exp(score(h, q, k) - lse[q]);
    float dp = dot(0.0f, dout + q * h->a->columns, h->v + k * h->kv_step, 1, h->dim) + 0.0f;
    if (h->a->dropout.threshold) dp = SYI_DROP(dp, mask);
    const float ds = p * (dp - mean[q]);
    w->p[k * h->queries + q] = rounded(p);
    w->ds[q * h->keys + k] = w->ds_turned[k * h->queries + q] = rounded(ds);
}

/* Gradients of a head; what does not see each other is left out of the runs as if it were zero. */
static void head_gradients(const struct head *h, const struct weights *w, const uint16_t *dout, uint16_t *dq,
                           uint16_t *dkv)
{
    const struct sycpu_attention *a = h->a;
    uint16_t *dk = dkv + sycpu_attention_kv(a, h->row, h->head, 2),
             *dv = dkv + sycpu_attention_kv(a, h->row, h->head, 1);
    dq += sycpu_attention_q(a, h->row, h->head);
    for (int64_t q = 0; q < h->queries; q++)
        for (int64_t d = 0; d < h->dim; d++)
            dq[q * h->q_step + d] = syi_bf16_from_float(
                dot(0.0f, w->ds + q * h->keys, h->k + d, h->kv_step, sycpu_attention_seen(a, h->keys, q)) +
                0.0f);
    for (int64_t k = 0; k < h->keys; k++) {
        const float mask = sycpu_attention_mask(a, h->row, k, h->head);
        /* Runs begin at query 0: those before the first that sees the key are zeros, as are other factors. */
        const int64_t first = a->attr->causal ? k / TILE_ELEMENTS * TILE_ELEMENTS : 0, n = h->queries - first;
        uint16_t *clean = calloc((size_t)(h->queries * 2 * h->dim + 1), sizeof *clean);
        cr_assert_not_null(clean);
        for (int64_t q = a->attr->causal ? k : 0; q < h->queries; q++)
            for (int64_t d = 0; d < h->dim; d++) {
                clean[q * 2 * h->dim + d] = dout[q * a->columns + d];
                clean[q * 2 * h->dim + h->dim + d] = h->q[q * h->q_step + d];
            }
        for (int64_t d = 0; d < h->dim; d++) {
            const uint16_t *right = clean + first * 2 * h->dim + d;
            float v = dot(0.0f, w->p + k * h->queries + first, right, 2 * h->dim, n) + 0.0f;
            if (a->dropout.threshold) v = SYI_DROP(v, mask);
            dv[k * h->kv_step + d] = syi_bf16_from_float(v + 0.0f);
            dk[k * h->kv_step + d] = syi_bf16_from_float(
                dot(0.0f, w->ds_turned + k * h->queries + first, right + h->dim, 2 * h->dim, n) + 0.0f);
        }
        free(clean);
    }
}

static void model_of_head(const struct kh *h, const struct head *head, uint16_t *dq, uint16_t *dkv)
{
    const struct sycpu_attention *a = head->a;
    const int64_t n = head->queries * head->keys,
                  at = head->row * a->queries * a->columns + head->head * head->dim;
    const uint16_t *out = (const uint16_t *)h->in[IN_OUT].data + at,
                   *dout = (const uint16_t *)h->in[IN_DOUT].data + at;
    const float *lse = (const float *)h->in[IN_LSE].data + (head->row * a->heads + head->head) * a->queries;
    float *mean = calloc((size_t)head->queries + 1, sizeof *mean), x[128], y[128];
    uint16_t *memory = calloc((size_t)(3 * n) + 1, sizeof *memory);
    const struct weights w = {memory, memory + n, memory + 2 * n};
    cr_assert(mean && memory);
    for (int64_t q = 0; q < head->queries; q++) {
        widen(x, dout + q * a->columns, head->dim);
        widen(y, out + q * a->columns, head->dim);
        mean[q] = ref_row_dot(x, y, head->dim);
        for (int64_t k = 0; k < sycpu_attention_seen(a, head->keys, q); k++)
            weigh(head, dout, lse, mean, q, k, &w);
    }
    head_gradients(head, &w, dout, dq, dkv);
    free(memory);
    free(mean);
}

/* But for the bias, which sums gradients of scores that are not rounded. */
static void model_backward(struct kh *h)
{
    struct sy_call call = {.in = h->in, .out = h->out, .attr = h->attr, .op = (uint16_t)h->op};
    const struct sycpu_attention a = sycpu_attention_backward(&call);
    for (int i = 0; i < 2; i++) {
        h->want[i] = calloc(1, kh_bytes(&h->out[i]) + 1);
        cr_assert_not_null(h->want[i]);
    }
    for (int64_t i = 0; i < a.rows * a.heads; i++) {
        const struct head head = head_of(&a, i / a.heads, i % a.heads);
        model_of_head(h, &head, h->want[0], h->want[h->out[1].rank ? 1 : 0]);
    }
}

/* ---- kernels ---- */

/* The first two outputs of every kernel on tiles against h->want. */
static void check_tiles(struct kh *h, const char *what)
{
    const uint32_t have = kh_tile_features();
    const struct sy_kernel *kernel;
    uint64_t at = 0;
    int kernels = 0;
    while ((kernel = kh_next(h->op, SY_BF16, SY_BF16, have, &at))) {
        if (!(kernel->needs & (SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED))) continue;
        kernels++;
        for (int threads = 1; threads <= 3; threads += 2) {
            void *got[SY_MAX_OUT];
            kh_run(h, kernel, threads, got, what);
            for (int i = 0; i < h->n_out; i++) {
                int64_t bad = i < 2 && h->out[i].rank ? kh_differs(&h->out[i], got[i], h->want[i]) : -1;
                cr_expect_lt(bad, 0, "%s: %s, %d threads: output %d element %lld differs from the model",
                             what, kernel->name, threads, i, (long long)bad);
                kh_free_guarded(got[i]);
            }
        }
    }
    cr_assert_gt(kernels, 0, "%s: no kernel", what);
}

/* wild: percent of special values, as in kh_fill. */
static void check_model(const struct shape *s, int wild)
{
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    char what[120];
    snprintf(what, sizeof what, "tq %d tk %d K %d causal %d drop %d wild %d", s->queries, s->keys,
             s->head_dim, s->causal, s->dropout, wild);
    add_forward(&forward, s, &attr, wild);
    round_inputs(&forward);
    kh_reference(&forward, what);
    struct kh h = half_of(&forward);
    model_forward(&h);
    check_tiles(&h, what);
    kh_end(&h);
    if (!s->position) {
        add_backward(&backward, &forward, s->self);
        round_inputs(&backward);
        h = half_of(&backward);
        model_backward(&h);
        check_tiles(&h, what);
        kh_end(&h);
        kh_end(&backward);
    }
    kh_end(&forward);
}

#define SIZES(a, b, c, d, e, f)                                                                              \
    .self = a, .rows = b, .queries = c, .keys = d, .heads = e, .head_dim = f, .blocks = 1

/* Whole tiles and parts of one, of queries, of keys and of runs of 32; one to eight tiles of columns. */
static const struct shape shapes[] = {
    {SIZES(1, 3, 1, 1, 1, 32), .causal = 1},
    {SIZES(1, 4, 24, 24, 2, 64), .buckets = 32, .dropout = 1},
    {SIZES(1, 4, 24, 24, 2, 64), .causal = 1, .buckets = 32, .dropout = 1},
    {SIZES(0, 5, 17, 49, 2, 96), .dropout = 1},
    {SIZES(0, 4, 64, 33, 1, 32), .buckets = 8},
    {SIZES(1, 5, 131, 131, 1, 32), .causal = 1, .buckets = 16, .dropout = 1},
    {SIZES(0, 4, 97, 70, 1, 128), .no_lengths = 1},
    {SIZES(0, 5, 2, 80, 2, 32), .causal = 1, .buckets = 32, .position = 15},
    {SIZES(0, 2, 40, 150, 1, 32), .causal = 1, .no_lengths = 1, .position = 60},
    {SIZES(0, 2, 40, 150, 1, 32), .causal = 1, .no_lengths = 1, .position = 89},
    {SIZES(0, 7, 1, 27, 2, 64), .buckets = 16},
    {SIZES(0, 7, 1, 141, 2, 96), .buckets = 16},
    {SIZES(0, 3, 1, 150, 1, 160), .causal = 1, .no_lengths = 1, .buckets = 16, .position = 140},
};

Test(attention_amx, has_the_bits_of_the_model)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_model(&shapes[i], 0);
}

Test(attention_amx, has_them_with_denormals_and_zeros)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_model(&shapes[i], -10);
}

/* Few enough that not all is NaN: what is hidden must not show. */
Test(attention_amx, has_them_with_infinities_and_nan)
{
    static struct shape few = {SIZES(1, 1, 70, 70, 2, 32), .causal = 1, .no_lengths = 1};
    for (int i = 0; i < 6; i++) check_model(&few, 1);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_model(&shapes[i], 9);
}

/* Of a query that sees one key the logarithm of the sum is the score. */
Test(attention_amx, a_score_too_small_is_zero)
{
    static const struct shape s = {SIZES(0, 2, 1, 1, 1, 32), .no_lengths = 1};
    struct sy_attr_attention attr = attr_of(&s);
    struct kh forward;
    add_forward(&forward, &s, &attr, 0);
    for (int in = IN_Q; in <= IN_KV; in += IN_KV - IN_Q)
        for (int64_t i = 0; i < sycpu_count(&forward.in[in]); i++)
            ((float *)forward.in[in].data)[i] = i % 2 ? 0x1p-70f : -0x1p-66f;
    kh_reference(&forward, "small scores");
    struct kh h = half_of(&forward);
    model_forward(&h);
    check_tiles(&h, "small scores");
    kh_end(&h);
    kh_end(&forward);
}

/* ---- word by word ---- */

enum { COLUMNS = 2 * 64 };

/* The call of `n` queries from `first` on, of a whole call of shape s; keys and values stay. What the queries do not see
 * may be anything, as it is in a cache. */
static struct kh part_of(const struct kh *whole, struct shape s, struct sy_attr_attention *attr, int first,
                         int n)
{
    struct kh k;
    s.queries = n;
    s.position = first;
    add_forward(&k, &s, attr, 0);
    memcpy(k.in[IN_Q].data, (float *)whole->in[IN_Q].data + first * COLUMNS, kh_bytes(&k.in[IN_Q]));
    memcpy(k.in[IN_KV].data, whole->in[IN_KV].data, kh_bytes(&k.in[IN_KV]));
    for (int64_t i = (first + n) * 2 * COLUMNS; i < sycpu_count(&k.in[IN_KV]); i++)
        ((float *)k.in[IN_KV].data)[i] = i % 3 ? NAN : INFINITY;
    if (s.buckets) memcpy(k.in[IN_TABLE].data, whole->in[IN_TABLE].data, kh_bytes(&k.in[IN_TABLE]));
    return k;
}

/* Each word alone, with its place, has the bits that it has among all; so have a few together. */
static void check_words(const struct kh *whole, const struct shape *s, struct sy_attr_attention *attr,
                        const struct sy_kernel *kernel, int together)
{
    void *all[SY_MAX_OUT], *got[SY_MAX_OUT];
    struct kh h = half_of(whole);
    kh_run(&h, kernel, 1, all, "all words");
    kh_end(&h);
    for (int first = 0; first < s->queries; first += together) {
        const int n = s->queries - first < together ? s->queries - first : together;
        struct kh k = part_of(whole, *s, attr, first, n);
        h = half_of(&k);
        kh_run(&h, kernel, 1, got, "some words");
        int64_t bad = kh_differs(&h.out[0], got[0], (uint16_t *)all[0] + first * COLUMNS);
        cr_assert_lt(bad, 0, "%s: words from %d on, %d at once: element %d differs", kernel->name, first,
                     together, (int)bad);
        for (int64_t i = 0; i < sycpu_count(&h.out[0]); i++)
            cr_assert(!kh_is_nan(&h.out[0], got[0], i), "%s: words from %d on: NaN", kernel->name, first);
        for (int i = 0; i < 2; i++) kh_free_guarded(got[i]);
        kh_end(&h);
        kh_end(&k);
    }
    for (int i = 0; i < 2; i++) kh_free_guarded(all[i]);
}

/* fill: the words' values, or NULL for denormals, zeros and others at random. */
static void check_all_words(const struct shape *s, void (*fill)(struct kh *))
{
    struct sy_attr_attention attr = attr_of(s);
    const uint32_t have = kh_tile_features();
    const struct sy_kernel *kernel;
    struct kh whole;
    int kernels = 0;
    add_forward(&whole, s, &attr, -10);
    if (fill) fill(&whole);
    for (uint64_t at = 0; (kernel = kh_next(SY_OP_ATTENTION, SY_BF16, SY_BF16, have, &at));) {
        if (!(kernel->needs & (SYCPU_AVX512_BF16 | SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED))) continue;
        for (int together = 1; together <= 19; together += 9) check_words(&whole, s, &attr, kernel, together);
        kernels++;
    }
    cr_assert_geq(kernels, 2, "kernels of pairs and of tiles");
    kh_end(&whole);
}

Test(attention_amx, word_by_word_gives_the_bits_of_all_words)
{
    static const struct shape s = {SIZES(0, 1, 75, 75, 2, 64), .causal = 1, .no_lengths = 1, .buckets = 16,
                                   .dropout = 1};
    struct shape without = s;
    check_all_words(&s, NULL);
    without.dropout = 0; /* a word alone then has a kernel of its own */
    check_all_words(&without, NULL);
}

/* Weights that are all the same, and sums that end just below zero, where they are too small: the sign of the zero must not
 * show how many words beside a word were multiplied. */
static void fill_small_values(struct kh *k)
{
    float *kv = k->in[IN_KV].data;
    memset(k->in[IN_Q].data, 0, kh_bytes(&k->in[IN_Q]));
    memset(kv, 0, kh_bytes(&k->in[IN_KV]));
    for (int d = COLUMNS; d < 2 * COLUMNS; d++) {
        kv[d] = 0x1.8p-126f;
        kv[64 * 2 * COLUMNS + d] = -0x1.82p-126f;
    }
}

Test(attention_amx, word_by_word_gives_zeros_of_the_same_sign)
{
    static const struct shape s = {SIZES(0, 1, 106, 106, 2, 64), .causal = 1, .no_lengths = 1};
    check_all_words(&s, fill_small_values);
}
