/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient of attention, vectorised: threads over (row, head), keys in blocks of 64, queries in panels of 64.
 * The weights are computed again from lse. Bits are those of ref_attention.c, which also computes calls with
 * a dense bias. Operands are float32 or bf16, which is widened as it is loaded; gradients are rounded once.
 * With SYCPU_PAIRS products are those of pairs of bf16, weights and gradients of scores rounded, with SYCPU_TILES on
 * matrix tiles. */
#include "config.h"

#include "backends/cpu/attention.h"
#include "backends/cpu/attention_bias.h"
#include "backends/cpu/attention_view.h"
#include "backends/cpu/fast_attention.h"
#include "backends/cpu/fast_attention_rows.h"
#if HAS_FOUR
#    include "backends/cpu/fast_attention_slope.h"
#endif

#define PANEL 64 /* queries whose weights are held at once */

struct backward {
    const struct sycpu_attention *a;
    struct bias_table table;
    struct view view;
    int half;               /* packs, out and dout are bf16 */
    const void *out, *dout; /* [b, tq, h * K] */
    const float *lse;       /* [b, h, tq] */
    void *dq, *dkv;         /* packs; dkv is dq for self-attention */
    float *dbias;           /* [b, heads, buckets] of each row, or NULL */
    float *scratch;         /* of all threads */
    int64_t floats;         /* scratch of one thread */
};

/* One head of one row, and the scratch of the thread. */
struct work {
    const struct backward *f;
    const struct sycpu_attention *a;
    const struct view *view;
    int64_t row, head, n_queries, n_keys, dim; /* dim: K rounded up */
    int64_t q, keys_at, values_at, out;        /* elements of position 0: of the packs, of out and dout */
    int64_t q_step, kv_step;
    const float *lse, *bias;         /* query 0; bias by key - query or NULL */
    float *keys_t, *values_t, *keys; /* [K, width], [K, width], [64, dim] of a block of keys */
    float *q_rows, *dout_rows;       /* [queries, dim] */
    float *p, *ds;                   /* [PANEL, width], [PANEL, 16 + width] and 16 zeros */
    float *dq, *dk, *dv;             /* [queries, dim], [64, dim], [64, dim] */
    float *mean, *diagonal;          /* [queries] sum of dout * out, [distances] sums of ds */
    struct rows q_steps, dout_steps; /* queries and dout as left operands */
    float *ds_steps;                 /* ds as a left operand: [PANEL, width] or pairs [PANEL, width / 2] */
    float *p_turned, *ds_turned; /* p, ds as right ones turned: [PANEL, width], pairs [PANEL / 2, width] */
    int wild_q, wild_dout, wild_keys; /* tiles: these may have infinities or NaN */
    float mask[SYCPU_KEY_BLOCK];
};

static int64_t diagonal_floats(const struct sycpu_attention *a)
{
    return round_up(a->queries + a->keys + 3 * SYCPU_LANES);
}

static int64_t work_floats(const struct sycpu_attention *a)
{
    int64_t dim = round_up(a->head_dim), queries = whole_elements(a->queries);
    return 2 * a->head_dim * SYCPU_KEY_BLOCK + 3 * SYCPU_KEY_BLOCK * dim + 2 * queries * dim +
           PANEL * SYCPU_KEY_BLOCK + (PANEL + 1) * (SYCPU_KEY_BLOCK + SYCPU_LANES) + queries * dim +
           round_up(a->queries) + diagonal_floats(a) + (STEP - 1) * 3 * PANEL / 2 * SYCPU_KEY_BLOCK;
}

static void place_scratch(struct work *w, float *scratch)
{
    int64_t block = SYCPU_KEY_BLOCK * w->dim, transposed = w->a->head_dim * SYCPU_KEY_BLOCK;
    int64_t rows = whole_elements(w->a->queries) * w->dim;
    w->keys_t = scratch;
    w->values_t = w->keys_t + transposed;
    w->keys = w->values_t + transposed;
    w->dk = w->keys + block;
    w->dv = w->dk + block;
    w->q_rows = w->dv + block;
    w->dout_rows = w->q_rows + rows;
    w->p = w->dout_rows + rows;
    w->ds = w->p + PANEL * SYCPU_KEY_BLOCK;
    w->dq = w->ds + (PANEL + 1) * (SYCPU_KEY_BLOCK + SYCPU_LANES);
    w->mean = w->dq + rows;
    w->diagonal = w->mean + round_up(w->a->queries);
#ifdef SYCPU_PAIRS
    w->p_turned = w->diagonal + diagonal_floats(w->a);
    w->ds_turned = w->p_turned + PANEL / 2 * SYCPU_KEY_BLOCK;
    w->ds_steps = w->ds_turned + PANEL / 2 * SYCPU_KEY_BLOCK;
#endif
}

static struct work work_begin(const struct backward *f, int64_t task, int thread)
{
    const struct sycpu_attention *a = f->a;
    struct work w = {.f = f, .a = a, .row = task / a->heads, .head = task % a->heads};
    w.dim = round_up(a->head_dim);
    w.view = &f->view;
    w.n_keys = view_keys(w.view, w.row);
    w.n_queries = w.n_keys ? view_queries(w.view, w.row) : 0;
    w.q = sycpu_attention_q(a, w.row, w.head);
    w.keys_at = sycpu_attention_kv(a, w.row, w.head, 2);
    w.values_at = sycpu_attention_kv(a, w.row, w.head, 1);
    w.out = w.row * a->queries * a->columns + w.head * a->head_dim;
    w.lse = f->lse + task * a->queries;
    w.bias = a->bias ? f->table.bias + w.head * f->table.step : NULL;
    w.q_step = a->q_parts * a->columns;
    w.kv_step = a->kv_parts * a->columns;
    place_scratch(&w, f->scratch + thread * f->floats);
    memset(w.dq, 0, (size_t)(whole_rows(w.n_queries) * w.dim) * sizeof(float));
    memset(w.diagonal, 0, (size_t)diagonal_floats(a) * sizeof(float));
    return w;
}

/* mean[q] = row sum of dout * out. */
static void means(const struct work *w)
{
    const struct sycpu_attention *a = w->a;
    const struct backward *f = w->f;
    float square[SYCPU_LANES * SYCPU_LANES];
    for (int64_t q = 0; q < w->n_queries; q += SYCPU_LANES) {
        int64_t rows = lanes_left(w->n_queries - q);
        for (int64_t r = 0; r < SYCPU_LANES; r++) {
            vf sum = vf_set(0.0f);
            for (int64_t d = 0; r < rows && d < a->head_dim; d += SYCPU_LANES) {
                int64_t at = w->out + (q + r) * a->columns + d, n = lanes_left(a->head_dim - d);
                vf more = vf_fma(fast_get(f->dout, f->half, at, n), fast_get(f->out, f->half, at, n), sum);
                sum = vf_select(vf_first(n), more, sum);
            }
            vf_store(square + r * SYCPU_LANES, sum);
        }
        fast_store(w->mean + q, rows_sum(square), rows);
    }
}

/* Queries query .. query + rows - 1 against the keys first .. first + n - 1. */
struct panel {
    int64_t query, rows, first, n, width, ds_step;
    int64_t end;                      /* query r sees end + r keys of the block, at most n */
    struct share share, in_block;     /* of rows to ask for: of the head, of the block */
    int64_t seen[PANEL];              /* that number, or that of the last key seen + 1 */
    int64_t most;                     /* of those numbers */
    int general;                      /* the next fields decide what is seen */
    uint64_t set[PANEL];              /* keys of the block that each query attends to */
    uint64_t blind;                   /* queries that average all keys */
    uint64_t turned[SYCPU_KEY_BLOCK]; /* queries that see a key */
};

/* A row of a panel. */
struct row {
    float *p, *ds;     /* scores and dp, then weights and their gradients */
    const float *bias; /* of key 0 of the block, or NULL */
    const float *mask; /* dropout of the keys, or NULL: float32 products have it in the values */
    vf lse, mean;
};

/* Weights p = exp(s - lse) of keys k .. k + 15. */
ALWAYS_INLINE vf row_weights(const struct row *row, int64_t k)
{
    vf s = vf_add(vf_load(row->p + k), vf_set(0.0f));
    if (row->bias) s = vf_add(s, vf_load(row->bias + k));
    return vf_exp(vf_sub(s, row->lse));
}

/* ds = p * (dp - mean). */
ALWAYS_INLINE vf row_gradient(const struct row *row, int64_t k, vf p)
{
    vf dp = vf_add(vf_load(row->ds + k), vf_set(0.0f));
    if (row->mask) dp = vf_drop(dp, vf_load(row->mask + k));
    return vf_mul(p, vf_sub(dp, row->mean));
}

/* Row r of a panel. A loop without conditions runs as wide as the processor can. */
ALWAYS_INLINE void weigh_row(const struct panel *t, int64_t r, const struct row *row)
{
    int64_t k = 0;
    for (; !t->general && k + SYCPU_LANES <= t->seen[r]; k += SYCPU_LANES) {
        vf p = row_weights(row, k);
        vf_store(row->p + k, p);
        vf_store(row->ds + k, row_gradient(row, k, p));
    }
    for (; k < t->seen[r]; k += SYCPU_LANES) {
        const vm seen = t->general ? vf_lanes(t->set[r] >> k) : vf_first(lanes_left(t->seen[r] - k));
        vf p = row_weights(row, k);
        if (t->blind >> r & 1) p = vf_exp(vf_sub(vf_set(0.0f), row->lse));
        p = vf_keep(seen, p);
        vf_store(row->p + k, p);
        vf_store(row->ds + k, vf_keep(seen, row_gradient(row, k, p)));
    }
    for (; k <= t->width; k += SYCPU_LANES) {
        vf_store(row->ds + k, vf_set(0.0f));
        if (STEP == 2 && k < t->width) vf_store(row->p + k, vf_set(0.0f));
    }
}

/* From scores in p and dp in ds: the weights and ds. */
static void weights(const struct work *w, const struct panel *t)
{
    vf_store(w->ds, vf_set(0.0f));
    for (int64_t r = 0; r < t->rows; r++) {
        struct row row = {.p = w->p + r * t->width, .ds = w->ds + SYCPU_LANES + r * t->ds_step};
        row.lse = vf_set(w->lse[t->query + r]);
        row.mean = vf_set(w->mean[t->query + r]);
        if (STEP == 2 && w->a->dropout.threshold) row.mask = w->mask;
        row.bias = bias_of(w->a, w->bias, t->query + r, t->first);
        weigh_row(t, r, &row);
    }
}

#ifdef SYCPU_TILES
/* Steps of a row of a left operand that is turned, and of ds. */
#    define TURNED_ROW (PANEL / STEP)
#    define DS_ROW     (SYCPU_KEY_BLOCK / STEP)

/* Of p or ds, rounded: keys key .. key + 15 as rows of pairs along queries query .. query + 31. */
static void turn_square(const struct panel *t, const float *from, int64_t step, int64_t query, int64_t key,
                        float *to)
{
    const vf zero = vf_set(0.0f);
    float words[LANES][LANES];
    const operand *line[LANES];
    for (int i = 0; i < LANES; i++) {
        const int64_t r = query + STEP * i;
        const float *row = from + r * step + key;
        vf_store(words[i],
                 pairs_of(r < t->rows ? vf_load(row) : zero, r + 1 < t->rows ? vf_load(row + step) : zero));
        line[i] = (const operand *)words[i];
    }
    transpose(line, 0, to + key * TURNED_ROW + query / STEP, TURNED_ROW, LANES);
}

/* Weights and ds of a panel, rounded: turned with pairs along queries, ds also as it is with pairs along keys. What
 * follows a row of ds are zeros. */
static void pair_weights(const struct work *w, const struct panel *t)
{
    const float *ds = w->ds + SYCPU_LANES;
    for (int64_t r = 0; r < whole_elements(t->rows); r += TILE_ELEMENTS)
        for (int64_t k = 0; k < t->width; k += SYCPU_LANES) {
            turn_square(t, w->p, t->width, r, k, w->p_turned);
            turn_square(t, ds, t->ds_step, r, k, w->ds_turned);
        }
    memset(w->ds_steps + t->rows * DS_ROW, 0,
           (size_t)((whole_rows(t->rows) - t->rows) * DS_ROW) * sizeof(float));
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t k = 0; k < t->width; k += TILE_ELEMENTS) {
            const float *row = ds + r * t->ds_step + k;
            vf_istore((int32_t *)(w->ds_steps + r * DS_ROW + k / STEP),
                      (vi)_mm512_cvtne2ps_pbh(vf_load(row + SYCPU_LANES), vf_load(row)));
        }
}
#elif defined(SYCPU_PAIRS)
/* Weights and ds of a panel, rounded, as pairs along queries, ds also as pairs along keys. */
static void pair_weights(const struct work *w, const struct panel *t)
{
    const vf zero = vf_set(0.0f);
    for (int64_t r = 0; r < t->rows; r += 2)
        for (int64_t k = 0; k < t->width; k += SYCPU_LANES) {
            const float *p = w->p + r * t->width + k, *ds = w->ds + SYCPU_LANES + r * t->ds_step + k;
            const int both = r + 1 < t->rows;
            const vf even = vf_load(ds), odd = both ? vf_load(ds + t->ds_step) : zero;
            __m256i *rows = (__m256i *)((uint16_t *)w->ds_steps + r * t->width + k);
            vf_store(w->p_turned + r / 2 * t->width + k,
                     pairs_of(vf_load(p), both ? vf_load(p + t->width) : zero));
            vf_store(w->ds_turned + r / 2 * t->width + k, pairs_of(even, odd));
            _mm256_storeu_si256(rows, (__m256i)_mm512_cvtneps_pbh(even));
            _mm256_storeu_si256((__m256i *)((uint16_t *)rows + t->width), (__m256i)_mm512_cvtneps_pbh(odd));
        }
}
#endif

/* Adds ds to the sums of its diagonals, q ascending. 16 diagonals lie in a row at every query; the zeros
 * between the rows of ds are what stands next to the block. */
static void add_diagonals(const struct work *w, const struct panel *t)
{
    const float *ds = w->ds + SYCPU_LANES;
    float *to = w->diagonal + t->first - t->query + w->a->queries - 1;
    for (int64_t distance = 1 - t->rows; distance < t->width; distance += SYCPU_LANES) {
        int64_t r = sycpu_clamp(1 - SYCPU_LANES - distance, 0, t->rows);
        int64_t end = sycpu_clamp(t->width - distance, 0, t->rows);
        vf sum = vf_load(to + distance);
        for (; r < end; r++) sum = vf_add(sum, vf_load(ds + r * t->ds_step + r + distance));
        vf_store(to + distance, sum);
    }
}

/* The next task's out or dout. */
ALWAYS_INLINE void prefetch_outputs(struct share share, const struct work *w, const void *out)
{
    const struct sycpu_attention *a = w->a;
    int64_t task = w->row * a->heads + w->head + 1, row = task / a->heads;
    if (row < a->rows)
        prefetch_read(share, out, w->f->half, row * a->queries * a->columns + task % a->heads * a->head_dim,
                      a->columns, sycpu_attention_queries(a, row), a->head_dim);
}

/* The products that sum over queries, p or ds (turned; `step`: floats between steps of vectors) times rows of the
 * panel, and the one over keys. */
static struct product over_queries(const struct work *w, const struct panel *t, const float *turned,
                                   int64_t step, const float *rows, float *to)
{
    const int64_t steps = (t->rows + STEP - 1) / STEP;
    rows += t->query / STEP * w->dim;
#ifdef SYCPU_TILES
    (void)step;
    return product_of(turned, TURNED_ROW, 1, rows, w->dim, to, w->dim, steps);
#else
    return product_of(turned, 1, step, rows, w->dim, to, w->dim, steps);
#endif
}
static struct product over_keys(const struct work *w, const struct panel *t)
{
#ifdef SYCPU_TILES
    const int64_t row = DS_ROW;
#else
    const int64_t row = STEP == 2 ? t->width / 2 : t->ds_step;
#endif
    return product_of(w->ds_steps, row, 1, w->keys, w->dim, w->dq + t->query * w->dim, w->dim,
                      (t->n + STEP - 1) / STEP);
}

/* Scores or dp of a panel; 16 queries at a time where later ones see more. */
static void multiply_seen(const struct panel *t, struct product p)
{
    const int64_t rows = t->end == NO_LIMIT ? PANEL : SYCPU_LANES;
    for (int64_t r = 0; r < t->rows; r += rows, p.a += rows * p.a_row, p.c += rows * p.c_row) {
        const int64_t n = t->rows - r < rows ? t->rows - r : rows;
        const int64_t most = t->general ? t->most : t->seen[r + n - 1];
        multiply(&p, n, round_up(most));
    }
}

#if HAS_FOUR
static int sees_whole(const struct panel *t)
{
    return !t->general && t->rows % 4 == 0 && t->seen[0] == SYCPU_KEY_BLOCK;
}

/* Four rows of a product of a panel from row r of it on. */
static struct four four_of(const struct product *p, int64_t r)
{
    return (struct four){p->a + r * p->a_row, p->a_row, p->b, p->steps};
}

/* Weights and ds of a panel whose queries see all of a whole block. */
static void weigh_whole(const struct work *w, const struct panel *t, const struct product *scores,
                        const struct product *dp)
{
    struct slope s = {.ds_row = t->ds_step, .mask = STEP == 2 && w->a->dropout.threshold ? w->mask : NULL};
    vf_store(w->ds, vf_set(0.0f));
    for (int64_t r = 0; r < t->rows; r += 4) {
        const int64_t query = t->query + r;
        s.scores = four_of(scores, r);
        s.dp = four_of(dp, r);
        s.bias = bias_of(w->a, w->bias, query, t->first);
        s.lse = w->lse + query;
        s.mean = w->mean + query;
        s.p = w->p + r * SYCPU_KEY_BLOCK;
        s.ds = w->ds + SYCPU_LANES + r * t->ds_step;
        weigh_four(&s);
        slope_four(&s);
    }
}
#endif

static void panel_gradient(const struct work *w, const struct panel *t)
{
    const struct sycpu_attention *a = w->a;
    const struct backward *f = w->f;
    const int half = f->half, pairs = STEP == 2;
    const int ranges = !pairs || WHOLE > 1; /* with pairs there are zeros where nothing is seen */
    const int64_t next = w->row * a->heads + w->head + 1;
    struct product scores = product_of(w->q_steps.at + t->query * w->q_steps.step, w->q_steps.step, 1,
                                       w->keys_t, t->width, w->p, t->width, a->head_dim / STEP);
    struct product dp =
        product_of(w->dout_steps.at + t->query * w->dout_steps.step, w->dout_steps.step, 1, w->values_t,
                   t->width, w->ds + SYCPU_LANES, t->ds_step, a->head_dim / STEP);
    struct product dv = over_queries(w, t, w->p_turned, t->width, w->dout_rows, w->dv);
    struct product dk = over_queries(w, t, w->ds_turned, pairs ? t->width : t->ds_step, w->q_rows, w->dk);
    struct product dq = over_keys(w, t);
    scores.fresh = dp.fresh = 1;
    dv.wild = w->wild_dout, dk.wild = w->wild_q, dq.wild = w->wild_keys;
    if (a->attr->causal && ranges) {
        dv.begin = dk.begin = 1 - t->end;
        dq.end = t->end;
    }
    prefetch_keys(t->share, a, half, next, 2);
    prefetch_keys(t->share, a, half, next, 1);
    prefetch_outputs(t->share, w, f->dout);
#if HAS_FOUR
    if (sees_whole(t))
        weigh_whole(w, t, &scores, &dp);
    else
#endif
    {
        multiply_seen(t, scores);
        multiply_seen(t, dp);
        weights(w, t);
    }
#ifdef SYCPU_PAIRS
    pair_weights(w, t);
#endif
    prefetch_write(t->in_block, f->dkv, half, w->values_at + t->first * w->kv_step, w->kv_step, t->n,
                   a->head_dim);
    multiply_part(&dv, t->n, w->dim, t->general ? t->turned : NULL);
    prefetch_write(t->in_block, f->dkv, half, w->keys_at + t->first * w->kv_step, w->kv_step, t->n,
                   a->head_dim);
    prefetch_outputs(t->share, w, f->out);
    multiply_part(&dk, t->n, w->dim, t->general ? t->turned : NULL);
    prefetch_write(t->share, f->dq, half, w->q, w->q_step, w->n_queries, a->head_dim);
    prefetch_queries(t->share, a, half, next);
    multiply_part(&dq, t->rows, w->dim, t->general ? t->set : NULL);
    if (f->dbias) add_diagonals(w, t);
}

/* ---- operands in the forms the products need ---- */

#ifdef SYCPU_PAIRS
static void load_queries(struct work *w)
{
    const struct sycpu_attention *a = w->a;
    const int64_t pairs = whole_elements(w->n_queries) / STEP * w->dim; /* half of q_rows and dout_rows */
    w->q_steps = left_rows(a->q, w->q, w->q_step, w->n_queries, w->dim, w->q_rows + pairs);
    w->dout_steps = left_rows(w->f->dout, w->out, a->columns, w->n_queries, w->dim, w->dout_rows + pairs);
    pair_rows((const uint16_t *)a->q + w->q, w->q_step, w->n_queries, w->dim, w->q_rows);
    pair_rows((const uint16_t *)w->f->dout + w->out, a->columns, w->n_queries, w->dim, w->dout_rows);
#    ifdef SYCPU_TILES
    w->wild_q = a->attr->causal && has_wild(w->q_rows, pairs);
    w->wild_dout = a->attr->causal && has_wild(w->dout_rows, pairs);
#    endif
}
static void load_keys(struct work *w, int64_t keys, int64_t values, const struct panel *t)
{
    const void *kv = w->a->kv;
    copy_transposed(paired(kv, keys, w->kv_step), t->n, w->dim / 2, w->keys_t, t->width);
    copy_transposed(paired(kv, values, w->kv_step), t->n, w->dim / 2, w->values_t, t->width);
    pair_rows((const uint16_t *)kv + keys, w->kv_step, t->n, w->dim, w->keys);
#    ifdef SYCPU_TILES
    w->wild_keys = w->a->attr->causal && has_wild(w->keys, whole_elements(t->n) / STEP * w->dim);
#    endif
}
#else
static void load_queries(struct work *w)
{
    const struct sycpu_attention *a = w->a;
    const int half = w->f->half;
    copy_rows(a->q, half, w->q, w->q_step, w->n_queries, a->head_dim, w->q_rows);
    copy_rows(w->f->dout, half, w->out, a->columns, w->n_queries, a->head_dim, w->dout_rows);
    w->q_steps = (struct rows){w->q_rows, w->dim};
    w->dout_steps = (struct rows){w->dout_rows, w->dim};
    w->p_turned = w->p;
    w->ds_turned = w->ds_steps = w->ds + SYCPU_LANES;
}
static void load_keys(struct work *w, int64_t keys, int64_t values, const struct panel *t)
{
    const struct sycpu_attention *a = w->a;
    const int half = w->f->half;
    copy_rows(a->kv, half, keys, w->kv_step, t->n, a->head_dim, w->keys);
    copy_transposed((struct rows){w->keys, w->dim}, t->n, a->head_dim, w->keys_t, t->width);
    copy_rows(a->kv, half, values, w->kv_step, t->n, a->head_dim, w->dv);
    if (a->dropout.threshold) mask_rows(w->dv, w->mask, t->n, w->dim);
    copy_transposed((struct rows){w->dv, w->dim}, t->n, a->head_dim, w->values_t, t->width);
}
#endif

/* Keys and values of a block; their gradients begin at 0. */
static void load_block(struct work *w, const struct panel *t)
{
    const int64_t before = t->first * w->kv_step;
    if (w->a->dropout.threshold) key_masks(w->a, w->row, w->head, t->first, t->n, w->mask);
    load_keys(w, w->keys_at + before, w->values_at + before, t);
    memset(w->dk, 0, (size_t)(whole_rows(t->n) * w->dim) * sizeof(float));
    memset(w->dv, 0, (size_t)(whole_rows(t->n) * w->dim) * sizeof(float));
}

/* n rows of `dim` elements, + 0, from scratch to a pack of float32 or bf16 from element `at` on; then zeros
 * for rows up to `all`. */
ALWAYS_INLINE void store_rows_of(const float *from, int64_t n, int64_t all, int64_t dim, void *to, int half,
                                 int64_t at, int64_t step)
{
    for (int64_t row = 0; row < n; row++, from += round_up(dim)) {
#define STORE(d, count)                                                                                      \
    fast_put(to, half, at + row * step + (d), vf_add(vf_load(from + (d)), vf_set(0.0f)), count)
        FAST_COLUMNS(d, dim, STORE);
#undef STORE
    }
    for (int64_t row = n; row < all; row++)
        memset(fast_place(to, half, at + row * step), 0, (size_t)dim * (half ? 2 : 4));
}
static void store_rows(const float *from, int64_t n, int64_t all, int64_t dim, void *to, int half, int64_t at,
                       int64_t step)
{
    if (half)
        store_rows_of(from, n, all, dim, to, 1, at, step);
    else
        store_rows_of(from, n, all, dim, to, 0, at, step);
}

/* n keys or values of w, from position `first` on, from scratch to the gradient's pack; then zeros. */
static void store_keys(const struct work *w, const float *from, int64_t at, int64_t first, int64_t n,
                       int64_t all)
{
    store_rows(from, n, all, w->a->head_dim, w->f->dkv, w->f->half, at + first * w->kv_step, w->kv_step);
}

static void find_seen(const struct work *w, struct panel *t)
{
    t->most = 0;
    if (t->general) {
        t->blind = view_block(w->view, w->row, t->query, t->rows, t->first, t->set, t->seen);
        for (int64_t k = 0; k < t->n; k++) {
            t->turned[k] = 0;
            for (int64_t r = 0; r < t->rows; r++) t->turned[k] |= (t->set[r] >> k & 1) << r;
        }
    } else {
        for (int64_t r = 0; r < t->rows; r++) t->seen[r] = sycpu_clamp(t->end + r, 0, t->n);
    }
    for (int64_t r = 0; r < t->rows; r++) t->most = t->seen[r] > t->most ? t->seen[r] : t->most;
}

static void block_gradient(struct work *w, int64_t first)
{
    const struct sycpu_attention *a = w->a;
    struct panel t = {.first = first, .n = sycpu_clamp(w->n_keys - first, 0, SYCPU_KEY_BLOCK)};
    t.width = round_up(t.n);
    t.ds_step = t.width + SYCPU_LANES;
    t.general = w->view->keys != NULL;
    load_block(w, &t);
    t.query = a->attr->causal && !t.general ? first : 0;
    t.share = share_of_block(w->n_queries - t.query, PANEL, first, w->n_keys);
    t.in_block = share_of_block(w->n_queries - t.query, PANEL, 0, 1);
    for (; t.query < w->n_queries; t.query += PANEL, next_share(&t.share), next_share(&t.in_block)) {
        t.rows = sycpu_clamp(w->n_queries - t.query, 0, PANEL);
        t.end = a->attr->causal ? t.query + 1 - first : NO_LIMIT;
        find_seen(w, &t);
        if (t.most) panel_gradient(w, &t);
    }
    store_keys(w, w->dk, w->keys_at, first, t.n, t.n);
    if (a->dropout.threshold) { /* + 0 before the mask */
        for (int64_t i = 0; i < t.n * w->dim; i += SYCPU_LANES)
            vf_store(w->dv + i, vf_add(vf_load(w->dv + i), vf_set(0.0f)));
        mask_rows(w->dv, w->mask, t.n, w->dim);
    }
    store_keys(w, w->dv, w->values_at, first, t.n, t.n);
}

static void head_gradient(const void *arg, int64_t task, int thread)
{
    const struct backward *f = arg;
    const struct sycpu_attention *a = f->a;
    struct work w = work_begin(f, task, thread);
    int64_t done = w.n_queries ? w.n_keys : 0;
    load_queries(&w);
    means(&w);
    for (int64_t first = 0; first < done; first += SYCPU_KEY_BLOCK) block_gradient(&w, first);
    store_keys(&w, NULL, w.keys_at, done, 0, a->keys - done);
    store_keys(&w, NULL, w.values_at, done, 0, a->keys - done);
    store_rows(w.dq, w.n_queries, a->queries, a->head_dim, f->dq, f->half, w.q, w.q_step);
    if (!f->dbias) return;
    float *dbias = f->dbias + task * a->buckets;
    memset(dbias, 0, (size_t)a->buckets * sizeof(float));
    for (int64_t i = 0; i < a->queries + a->keys - 1; i++) dbias[f->table.bucket[i]] += w.diagonal[i];
}

/* Chains over the rows of each leaf, then the tree over leaves; the sum ends in rows[0]. */
static void sum_rows(float *rows, int64_t n_rows, int64_t leaf, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; i % leaf && j < n; j++) rows[(i - i % leaf) * n + j] += rows[i * n + j];
    for (int64_t s = leaf; s < n_rows; s *= 2)
        for (int64_t i = 0; i + s < n_rows; i += 2 * s)
            for (int64_t j = 0; j < n; j++) rows[i * n + j] += rows[(i + s) * n + j];
}

static int64_t dbias_floats(const struct sycpu_attention *a)
{
    return round_up(a->rows * a->heads * a->buckets);
}

uint64_t fast_attention_grad_workspace(const struct sy_call *call, int threads)
{
    const int segments = SYCPU_ATTENTION_GRAD_SEGMENTS, general = sycpu_attention_general(call, segments);
#ifdef SYCPU_PAIRS
    if (!pairs_fit(call, segments)) return sycpu_avx512_fast_attention_grad_workspace(call, threads);
#endif
    if (call->in[segments + 3].rank)
        return fast_is_bf16(&call->in[0]) ? CONVERTED_WORKSPACE(call, threads)
                                          : sycpu_ref_attention_grad_workspace(call, threads);
    const struct sycpu_attention a = sycpu_attention_sizes(call, &call->in[6]);
    uint64_t shared = (uint64_t)(bias_floats(&a) + dbias_floats(&a) + view_floats(&a, general));
    uint64_t own = syi_mul_u64((uint64_t)work_floats(&a), (uint64_t)threads);
    return syi_mul_u64(syi_add_u64(shared, own), sizeof(float));
}

int fast_attention_grad(void *context, const struct sy_call *call)
{
#ifdef SYCPU_PAIRS
    if (!pairs_fit(call, SYCPU_ATTENTION_GRAD_SEGMENTS))
        return sycpu_avx512_fast_attention_grad(context, call);
#endif
    const struct sycpu_attention a = sycpu_attention_backward(call);
    const int general = sycpu_attention_general(call, SYCPU_ATTENTION_GRAD_SEGMENTS);
    float *workspace = call->workspace;
    struct backward f = {.a = &a, .out = call->in[6].data, .lse = call->in[7].data, .dout = call->in[8].data};
    f.half = fast_is_bf16(&call->in[0]);
    if (a.dense) return f.half ? CONVERTED(context, call) : sycpu_ref_attention_grad(context, call);
    f.table = fill_bias(&a, workspace);
    f.dbias = call->out[2].rank ? workspace + bias_floats(&a) : NULL;
    workspace += bias_floats(&a) + dbias_floats(&a);
    f.view = fill_view(&a, call, general, workspace);
    f.scratch = workspace + view_floats(&a, general);
    f.floats = work_floats(&a);
    f.dq = call->out[0].data;
    f.dkv = call->out[call->out[1].rank ? 1 : 0].data;
    each_head(call, a.rows * a.heads, head_gradient, &f);
    if (!f.dbias) return SY_OK;
    sum_rows(f.dbias, a.rows, a.attr->leaf, a.heads * a.buckets);
    memcpy(call->out[2].data, f.dbias, (size_t)(a.heads * a.buckets) * sizeof(float));
    return SY_OK;
}
