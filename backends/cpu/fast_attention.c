/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, vectorised: threads over (row, head), keys in blocks of 64, queries in tiles of 16. Bits are
 * those of ref_attention.c, which also computes calls with a dense bias. Operands are float32 or bf16, which
 * is widened as it is loaded and rounded as it is stored. With SYCPU_PAIRS products are those of pairs of
 * bf16, weights rounded, with SYCPU_TILES on matrix tiles. Nothing past the lengths is read. */
#include "config.h"

#include "backends/cpu/attention.h"
#include "backends/cpu/fast_attention.h"
#include "backends/cpu/fast_attention_forward.h"
#include "backends/cpu/fast_attention_rows.h"

#if HAS_FOUR
#    include "backends/cpu/fast_attention_weigh.h"
#endif

#define QUERY_TILE SYCPU_LANES

/* One head of one row, and the scratch of the thread. */
struct work {
    const struct sycpu_attention_forward *f;
    const struct sycpu_attention *a;
    const struct view *view;
    int64_t row, head;
    const float *bias;                      /* by key - query, or NULL */
    int64_t q_step, n_queries, n_keys, dim; /* dim: K rounded up */
    float *keys, *values;                   /* [K, width], [64, dim] of a block of keys */
    float *score;                           /* [QUERY_TILE, width] */
    const float *mask;                      /* [64] dropout of the block's keys, or NULL */
    float *widened;                         /* [queries, dim]: queries that are bf16; for tiles as they are */
    float *out, *top, *sum;                 /* [queries, dim], [queries], [queries] */
    int wild;                               /* tiles: values of the block may be infinities or NaN */
    struct rows q;
};

/* Without training there is no dropout, and no kernel with it. */
static inline const float *mask_of(const struct work *w)
{
    return SY_TRAINING ? w->mask : NULL;
}

static int64_t work_floats(const struct sycpu_attention *a)
{
    int64_t dim = round_up(a->head_dim), queries = a->queries + QUERY_TILE;
    return a->head_dim * SYCPU_KEY_BLOCK + SYCPU_KEY_BLOCK * dim + QUERY_TILE * SYCPU_KEY_BLOCK +
           2 * queries * dim + 2 * round_up(queries);
}

static struct work work_begin(const struct sycpu_attention_forward *f, int64_t row, int64_t head, int thread)
{
    const struct sycpu_attention *a = f->a;
    int64_t dim = round_up(a->head_dim), queries = a->queries + QUERY_TILE;
    struct work w = {.f = f, .a = a, .row = row, .head = head, .dim = dim};
    w.q_step = a->q_parts * a->columns;
    w.view = &f->view;
    w.n_keys = view_keys(w.view, row);
    w.n_queries = w.n_keys ? view_queries(w.view, row) : 0;
    if (w.n_queries && !w.view->keys) w.n_keys = sycpu_attention_seen(a, w.n_keys, w.n_queries - 1);
    w.bias = a->bias ? f->table.bias + head * f->table.step : NULL;
    w.keys = f->scratch + thread * f->floats;
    w.values = w.keys + a->head_dim * SYCPU_KEY_BLOCK;
    w.score = w.values + SYCPU_KEY_BLOCK * dim;
    w.widened = w.score + QUERY_TILE * SYCPU_KEY_BLOCK;
    w.out = w.widened + queries * dim;
    w.top = w.out + queries * dim;
    w.sum = w.top + round_up(queries);
    return w;
}

/* A tile of scores: queries query .. query + rows - 1 against the keys first .. first + width - 1. */
struct tile {
    int64_t query, rows, first, width;
    int64_t seen[QUERY_TILE]; /* keys of the block that each query sees, or the last of them + 1 */
    int64_t most;             /* of those numbers */
    int general;              /* the next fields decide what is seen */
    uint64_t set[QUERY_TILE]; /* keys of the block that each query attends to */
    struct share share;       /* of rows to ask for */
    uint64_t blind, sees;     /* queries that average all keys; that attend to any of the block */
};

/* Adds the bias to the scores of query r and gives the largest of each lane. */
ALWAYS_INLINE vf row_tops(const struct tile *t, int64_t r, float *score, const float *bias)
{
    vf top = vf_set(-__builtin_inff());
    if (!t->general) return seen_tops(score, bias, t->seen[r]);
    for (int64_t k = 0; k < t->seen[r]; k += SYCPU_LANES) {
        vf s = biased(score, bias, k);
        if (t->blind >> r & 1) vf_store(score + k, s = vf_set(0.0f));
        top = vf_max(top, vf_select(vf_lanes(t->set[r] >> k), s, top));
    }
    return top;
}

/* Adds the bias and finds the largest score of each query; of a single one in all lanes. */
static vf tile_tops(const struct work *w, const struct tile *t)
{
    float square[QUERY_TILE * SYCPU_LANES];
    for (int64_t r = 0; r < QUERY_TILE; r++) {
        float *score = w->score + r * t->width;
        vf top = vf_set(-__builtin_inff());
        if (r < t->rows) top = row_tops(t, r, score, bias_of(w->a, w->bias, t->query + r, t->first));
        if (t->rows == 1) return vf_set(vf_top(top));
        vf_store(square + r * SYCPU_LANES, top);
    }
    return rows_top(square);
}

#ifdef SYCPU_PAIRS
/* Those of keys that others of the tile see. */
static void clear_weights(const struct tile *t, float *score, int64_t r)
{
    int64_t done = r < t->rows ? round_up(t->seen[r]) : 0, end = whole_elements(round_up(t->most));
    memset((uint16_t *)score + done, 0, (size_t)(end - done) * sizeof(uint16_t));
}
#else
static void clear_weights(const struct tile *t, float *score, int64_t r)
{
    (void)t, (void)score, (void)r;
}
#endif

/* Scores of query r become weights; gives the sum of each lane. */
ALWAYS_INLINE vf row_weights(const struct tile *t, int64_t r, float *score, const float *mask, vf top)
{
    vf sum = vf_set(0.0f);
    if (!t->general) return seen_weights(score, mask, t->seen[r], top);
    for (int64_t k = 0; k < t->seen[r]; k += SYCPU_LANES) {
        vf p = vf_keep(vf_lanes(t->set[r] >> k), vf_exp(vf_sub(vf_load(score + k), top)));
        sum = vf_add(sum, p);
        store_weights(score, mask, k, p);
    }
    return sum;
}

/* Those of all queries; gives the sum of each, of a single one in all lanes. */
static vf tile_weights(const struct work *w, const struct tile *t, vf tops)
{
    float square[QUERY_TILE * SYCPU_LANES], top[QUERY_TILE];
    vf_store(top, tops);
    for (int64_t r = 0; r < QUERY_TILE; r++) {
        float *score = w->score + r * t->width;
        vf sum = vf_set(0.0f);
        if (r < t->rows) sum = row_weights(t, r, score, mask_of(w), vf_set(top[r]));
        clear_weights(t, score, r);
        if (t->rows == 1) return vf_set(vf_sum(sum));
        vf_store(square + r * SYCPU_LANES, sum);
    }
    return rows_sum(square);
}

/* Scales the running outputs of a tile when its maxima move. */
static void rescale(const struct work *w, const struct tile *t, vf factors)
{
    float factor[QUERY_TILE];
    vf_store(factor, factors);
    for (int64_t r = 0; r < t->rows; r++) {
        float *out = w->out + (t->query + r) * w->dim;
        for (int64_t d = 0; d < w->dim; d += SYCPU_LANES)
            vf_store(out + d, vf_mul(vf_load(out + d), vf_set(factor[r])));
    }
}

/* The maxima after this block, and what to scale earlier sums by. Where a query sees nothing here nothing
 * moves; one that saw nothing before has -inf, which makes the factor of its zeros 0. */
static vf moved(const struct tile *t, vf old, vf *now)
{
    vf top = vf_max(old, *now), factor = vf_exp(vf_sub(old, top));
    if (t->general) {
        top = vf_select(vf_lanes(t->sees), top, old);
        factor = vf_select(vf_lanes(t->sees), factor, vf_set(1.0f));
    }
    *now = top;
    return factor;
}

static int64_t out_at(const struct work *w)
{
    return w->row * w->a->queries * w->a->columns + w->head * w->a->head_dim;
}

ALWAYS_INLINE void prefetch_out(struct share share, const struct work *w)
{
    prefetch_write(share, w->f->out, w->f->half, out_at(w), w->a->columns, w->n_queries, w->a->head_dim);
}

/* From scores to weights, with the running maxima, sums and outputs. */
static void weigh_tile(const struct work *w, const struct tile *t)
{
    float *top = w->top + t->query, *sum = w->sum + t->query;
    vf old = vf_load(top), now = tile_tops(w, t), total = vf_load(sum);
    if (t->first) {
        vf factor = moved(t, old, &now);
        total = vf_mul(total, factor);
        rescale(w, t, factor);
    }
    vf_store(sum, vf_add(total, tile_weights(w, t, now)));
    vf_store(top, now);
}

#if HAS_FOUR
static int sees_whole(const struct tile *t)
{
    return !t->general && t->rows % 4 == 0 && t->seen[0] == SYCPU_KEY_BLOCK;
}

/* Four queries of a tile from query r of it on; outputs are yet to be scaled by factor. */
static struct weighing weighing_of(const struct work *w, const struct tile *t, int64_t r, float *factor)
{
    const int64_t query = t->query + r;
    struct weighing g = {.mask = mask_of(w), .top = w->top + query, .sum = w->sum + query};
    g.scores = (struct four){w->q.at + query * w->q.step, w->q.step, w->keys, w->a->head_dim / STEP};
    g.bias = bias_of(w->a, w->bias, query, t->first);
    if (t->first) g.factor = factor + r;
    g.to = w->score + r * SYCPU_KEY_BLOCK;
    return g;
}

/* Weights of a tile whose queries see all of a whole block. Each four of scores end while the next are multiplied. */
static void weigh_whole(const struct work *w, const struct tile *t, float *factor)
{
    struct weighing four[QUERY_TILE / 4];
    for (int64_t r = 0; r < t->rows; r += 4) {
        four[r / 4] = weighing_of(w, t, r, factor);
        score_four(&four[r / 4]);
    }
    for (int64_t r = 0; r < t->rows; r += 4) weigh_four(&four[r / 4]);
}
#endif

static void attend_tile(const struct work *w, const struct tile *t, int64_t n)
{
    const struct sycpu_attention *a = w->a;
    const int half = w->f->half, pairs = STEP == 2;
    const int ranges = !pairs || WHOLE > 1; /* with pairs weights of keys that are not seen are zeros */
    const int64_t next = w->row * a->heads + w->head + 1;
    struct product scores = product_of(w->q.at + t->query * w->q.step, w->q.step, 1, w->keys, t->width,
                                       w->score, t->width, a->head_dim / STEP);
    struct product outputs = product_of(w->score, t->width, 1, w->values, w->dim, w->out + t->query * w->dim,
                                        w->dim, pairs ? (t->most + 1) / 2 : n);
    scores.fresh = 1;
    if (a->attr->causal && ranges) outputs.end = t->seen[0];
    outputs.wild = w->wild;
    prefetch_keys(t->share, a, half, next, 2);
    prefetch_queries(t->share, a, half, next);
#if HAS_FOUR
    float factor[QUERY_TILE];
    if (sees_whole(t)) {
        weigh_whole(w, t, factor);
        if (t->first) outputs.factor = factor;
    } else
#endif
    {
        multiply(&scores, t->rows, round_up(t->most));
        weigh_tile(w, t);
    }
    prefetch_keys(t->share, a, half, next, 1);
    prefetch_out(t->share, w);
    multiply_part(&outputs, t->rows, w->dim, t->general ? t->set : NULL);
}

static void find_seen(const struct work *w, struct tile *t, int64_t n)
{
    if (!t->general) { /* later queries see no fewer */
        for (int64_t r = 0; r < t->rows; r++)
            t->seen[r] = sycpu_clamp(sycpu_attention_seen(w->a, w->n_keys, t->query + r) - t->first, 0, n);
        t->most = t->seen[t->rows - 1];
        return;
    }
    t->most = 0;
    t->sees = 0;
    t->blind = view_block(w->view, w->row, t->query, t->rows, t->first, t->set, t->seen);
    for (int64_t r = 0; r < t->rows; r++) {
        t->most = t->seen[r] > t->most ? t->seen[r] : t->most;
        t->sees |= (uint64_t)(t->seen[r] > 0) << r;
    }
}

#ifdef SYCPU_PAIRS
static struct rows load_queries(const struct work *w)
{
    return left_rows(w->a->q, sycpu_attention_q(w->a, w->row, w->head), w->q_step, w->n_queries, w->dim,
                     w->widened);
}
static void load_keys(const struct work *w, int64_t at, int64_t step, int64_t n, int64_t width)
{
    copy_transposed(paired(w->a->kv, at, step), n, w->dim / 2, w->keys, width);
}
static void load_values(struct work *w, int64_t at, int64_t step, int64_t n)
{
    pair_rows((const uint16_t *)w->a->kv + at, step, n, w->dim, w->values);
#    ifdef SYCPU_TILES /* some queries may see fewer keys than others */
    w->wild =
        w->a->attr->causal && w->n_queries > 1 && has_wild(w->values, whole_elements(n) / STEP * w->dim);
#    endif
}
#else
static struct rows load_queries(const struct work *w)
{
    return rows_of(w->a->q, w->f->half, sycpu_attention_q(w->a, w->row, w->head), w->q_step, w->n_queries,
                   w->a->head_dim, w->widened);
}
static void load_keys(const struct work *w, int64_t at, int64_t step, int64_t n, int64_t width)
{
    const int64_t dim = w->a->head_dim;
    copy_transposed(rows_of(w->a->kv, w->f->half, at, step, n, dim, w->values), n, dim, w->keys, width);
}
static void load_values(struct work *w, int64_t at, int64_t step, int64_t n)
{
    copy_rows(w->a->kv, w->f->half, at, step, n, w->a->head_dim, w->values);
    if (mask_of(w)) mask_rows(w->values, mask_of(w), n, w->dim);
}
#endif

/* All queries against the keys first .. first + n - 1. */
static void attend_block(struct work *w, int64_t first, int64_t n)
{
    const struct sycpu_attention *a = w->a;
    struct tile t = {.first = first, .width = round_up(n), .general = w->view->keys != NULL};
    int64_t kv_step = a->kv_parts * a->columns, query = 0;
    float mask[SYCPU_KEY_BLOCK];
    w->mask = a->dropout.threshold ? mask : NULL;
    if (mask_of(w)) key_masks(a, w->row, w->head, first, n, mask);
    load_keys(w, sycpu_attention_kv(a, w->row, w->head, 2) + first * kv_step, kv_step, n, t.width);
    load_values(w, sycpu_attention_kv(a, w->row, w->head, 1) + first * kv_step, kv_step, n);
    if (!t.general && a->attr->causal && first > a->position)
        query = first - a->position; /* the first that sees the block */
    t.share = share_of_block(w->n_queries - query, QUERY_TILE, first, w->n_keys);
    for (; query < w->n_queries; query += QUERY_TILE, next_share(&t.share)) {
        t.query = query;
        t.rows = w->n_queries - query < QUERY_TILE ? w->n_queries - query : QUERY_TILE;
        find_seen(w, &t, n);
        if (t.most) attend_tile(w, &t, n);
    }
    w->mask = NULL; /* it ends here */
}

/* 16 elements of o. With pairs unseen keys were multiplied by 0, as many as the tile happens to have, which may
 * have taken the sign of a zero: none keeps it. */
static inline vf sum_of(const float *out)
{
    return STEP == 2 ? vf_add(vf_load(out), vf_set(0.0f)) : vf_load(out);
}

/* out = o * (1 / l), lse = m + log(l); zeros after the real queries. */
static void finish(const struct work *w)
{
    const struct sycpu_attention *a = w->a;
    const int half = w->f->half;
    const int64_t out = out_at(w), row_bytes = a->head_dim * (half ? 2 : 4);
    float *lse = w->f->lse + (w->row * a->heads + w->head) * a->queries;
    float factor[SYCPU_LANES];
    for (int64_t q = 0; q < w->n_queries; q += SYCPU_LANES) {
        vf sum = vf_load(w->sum + q);
        int64_t rows = lanes_left(w->n_queries - q);
        fast_store(lse + q, vf_add(vf_load(w->top + q), vf_log(sum)), rows);
        vf_store(factor, vf_div(vf_set(1.0f), sum));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < w->dim; d += SYCPU_LANES)
                fast_put(w->f->out, half, out + (q + r) * a->columns + d,
                         vf_mul(sum_of(w->out + (q + r) * w->dim + d), vf_set(factor[r])),
                         lanes_left(a->head_dim - d));
        for (int64_t r = 0; w->view->keys && r < rows; r++) {
            if (w->sum[q + r] != 0) continue; /* saw nothing: a weight of 1 is in every other sum */
            memset(fast_place(w->f->out, half, out + (q + r) * a->columns), 0, (size_t)row_bytes);
            lse[q + r] = 0;
        }
    }
    for (int64_t q = w->n_queries; q < a->queries; q++) {
        memset(fast_place(w->f->out, half, out + q * a->columns), 0, (size_t)row_bytes);
        lse[q] = 0;
    }
}

static void attend_head(const void *arg, int64_t task, int thread)
{
    const struct sycpu_attention_forward *f = arg;
    const struct sycpu_attention *a = f->a;
    int64_t row = task / a->heads, head = task % a->heads;
    struct work w = work_begin(f, row, head, thread);
    w.q = load_queries(&w);
    memset(w.out, 0, (size_t)(whole_rows(w.n_queries) * w.dim) * sizeof(float));
    memset(w.top, 0, (size_t)(2 * round_up(a->queries + QUERY_TILE)) * sizeof(float));
    for (int64_t q = 0; w.view->keys && q < a->queries; q++) w.top[q] = -__builtin_inff();
    for (int64_t first = 0; w.n_queries && first < w.n_keys; first += SYCPU_KEY_BLOCK)
        attend_block(&w, first, sycpu_clamp(w.n_keys - first, 0, SYCPU_KEY_BLOCK));
    finish(&w);
}

uint64_t fast_attention_workspace(const struct sy_call *call, int threads)
{
    const int segments = SYCPU_ATTENTION_SEGMENTS, general = sycpu_attention_general(call, segments);
#ifdef SYCPU_PAIRS
    if (!pairs_fit(call, segments)) return sycpu_avx512_fast_attention_workspace(call, threads);
#endif
    if (call->in[segments + 3].rank)
        return fast_is_bf16(&call->in[0]) ? CONVERTED_WORKSPACE(call, threads)
                                          : sycpu_ref_attention_workspace(call, threads);
    const struct sycpu_attention a = sycpu_attention_sizes(call, &call->out[0]);
    uint64_t shared = (uint64_t)(bias_floats(&a) + view_floats(&a, general));
    uint64_t own = syi_mul_u64((uint64_t)work_floats(&a), (uint64_t)threads);
    return syi_mul_u64(syi_add_u64(shared, own), sizeof(float));
}

int fast_attention(void *context, const struct sy_call *call)
{
#ifdef SYCPU_PAIRS
    if (!pairs_fit(call, SYCPU_ATTENTION_SEGMENTS)) return sycpu_avx512_fast_attention(context, call);
#endif
    const struct sycpu_attention a = sycpu_attention_forward(call);
    const int general = sycpu_attention_general(call, SYCPU_ATTENTION_SEGMENTS);
    float *workspace = call->workspace;
    struct sycpu_attention_forward f = {.a = &a, .out = call->out[0].data, .lse = call->out[1].data};
    f.half = fast_is_bf16(&call->in[0]);
    if (a.dense) return f.half ? CONVERTED(context, call) : sycpu_ref_attention(context, call);
    f.table = fill_bias(&a, workspace);
    workspace += bias_floats(&a);
    f.view = fill_view(&a, call, general, workspace);
    f.scratch = workspace + view_floats(&a, general);
    f.floats = work_floats(&a);
    void (*attend)(const void *, int64_t, int) = attend_head;
    if (a.queries == 1 && !general && !a.dropout.threshold) attend = fast_attend_single;
    each_head(call, a.rows * a.heads, attend, &f);
    return SY_OK;
}
