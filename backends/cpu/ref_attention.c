/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient in plain C: one query after the other, in the orders of doc/numerics.md. Threads
 * over (row, head), the gradient of a dense bias over heads. */
#include "config.h"

#include "backends/cpu/attention.h"
#include "backends/cpu/ref.h"
#include "base/relpos.h"

/* ---- what a query sees ---- */

/* One head of one row of the batch. */
struct head {
    const struct sycpu_attention *a;
    const sy_real *q, *k, *v; /* position 0 */
    int64_t q_step, kv_step;  /* elements between positions */
    int64_t row, head;
    sy_real *bias; /* [tq + tk] by key - query + tq; NULL: no table */
    sy_real *mask; /* [tk] dropout of each key's values; NULL: none */
};

static int64_t head_reals(const struct sycpu_attention *a)
{
    return a->queries + 2 * a->keys;
}

static int64_t bucket(const struct sycpu_attention *a, int64_t query, int64_t key)
{
    return syi_relpos_bucket(key - query - a->position, (int)a->attr->bidirectional, a->buckets,
                             a->attr->max_distance);
}

/* scratch: head_reals of them. */
static struct head head_of(const struct sycpu_attention *a, int64_t row, int64_t head, sy_real *scratch)
{
    struct head h = {.a = a, .row = row, .head = head};
    h.q = (const sy_real *)a->q + sycpu_attention_q(a, row, head);
    h.k = (const sy_real *)a->kv + sycpu_attention_kv(a, row, head, 2);
    h.v = (const sy_real *)a->kv + sycpu_attention_kv(a, row, head, 1);
    h.q_step = a->q_parts * a->columns;
    h.kv_step = a->kv_parts * a->columns;
    if (a->bias) {
        h.bias = scratch;
        for (int64_t i = 0; i < a->queries + a->keys; i++)
            h.bias[i] = ((const sy_real *)a->bias)[head * a->buckets + bucket(a, a->queries, i)];
    }
    if (a->dropout.threshold) {
        h.mask = scratch + a->queries + a->keys;
        for (int64_t key = 0; key < a->keys; key++) h.mask[key] = sycpu_attention_mask(a, row, key, head);
    }
    return h;
}

struct query {
    const struct head *h;
    const sy_real *q; /* [K] */
    int64_t at;       /* its index */
    int64_t end;      /* keys that lengths and causality leave */
    int blind;        /* sees no key and averages all */
};

/* Bit k: the query attends to key first + k. */
static uint64_t attended(const struct query *y, int64_t first)
{
    const struct sycpu_attention *a = y->h->a;
    if (!y->blind) return sycpu_attention_block(a, y->h->row, y->at, first, y->end);
    int64_t n = sycpu_clamp(a->keys - first, 1, SYCPU_KEY_BLOCK);
    return ~UINT64_C(0) >> (SYCPU_KEY_BLOCK - n);
}

static struct query query_of(const struct head *h, int64_t at)
{
    struct query y = {.h = h, .at = at, .q = h->q + at * h->q_step};
    y.end = sycpu_attention_bound(h->a, h->row, at);
    y.blind = sycpu_attention_blind(h->a, h->row, at);
    return y;
}

static sy_real score(const struct query *y, int64_t key)
{
    const struct head *h = y->h;
    const struct sycpu_attention *a = h->a;
    const sy_real *k = h->k + key * h->kv_step, *dense = a->dense;
    sy_real s = 0;
    if (y->blind) return s;
    for (int64_t d = 0; d < a->head_dim; d++) s = syi_fma(y->q[d], k[d], s);
    s += (sy_real)0;
    if (h->bias) s += h->bias[key - y->at + a->queries];
    if (dense) s += dense[(h->head * a->queries + y->at) * a->keys + key];
    return s;
}

/* The values of a key times its mask. */
static sy_real value(const struct head *h, int64_t key, int64_t d)
{
    sy_real v = h->v[key * h->kv_step + d];
    return h->mask ? SYI_DROP(v, h->mask[key]) : v;
}

/* ---- forward ---- */

struct forward {
    const struct sycpu_attention *a;
    sy_real *out, *lse, *scratch; /* [b, tq, h * K], [b, h, tq], [threads, head_reals] */
};

/* The running softmax of a query. */
struct softmax {
    sy_real top, sum, *out; /* largest score, sum of weights, weighted values [K] */
    int begun;              /* a key was seen */
};

static void attend_block(const struct query *y, int64_t first, struct softmax *s)
{
    sy_real p[SYCPU_KEY_BLOCK] = {0}, old = s->top, factor = 1;
    const uint64_t keys = attended(y, first);
    const int later = s->begun, dim = (int)y->h->a->head_dim;
    if (!keys) return;
    for (int k = 0; k < SYCPU_KEY_BLOCK; k++) {
        if (!(keys >> k & 1)) continue;
        p[k] = score(y, first + k);
        s->top = s->begun && s->top > p[k] ? s->top : p[k];
        s->begun = 1;
    }
    if (later) factor = syi_exp(old - s->top);
    for (int k = 0; k < SYCPU_KEY_BLOCK; k++)
        if (keys >> k & 1) p[k] = syi_exp(p[k] - s->top);
    s->sum = s->sum * factor + ref_row_sum(p, SYCPU_KEY_BLOCK);
    for (int d = 0; d < dim; d++) s->out[d] *= factor;
    for (int k = 0; k < SYCPU_KEY_BLOCK; k++)
        for (int d = 0; keys >> k & 1 && d < dim; d++)
            s->out[d] = syi_fma(p[k], value(y->h, first + k, d), s->out[d]);
}

static void attend_head(void *arg, int64_t task, int thread)
{
    const struct forward *f = arg;
    const struct sycpu_attention *a = f->a;
    int64_t row = task / a->heads, head = task % a->heads;
    const struct head h = head_of(a, row, head, f->scratch + thread * head_reals(a));
    for (int64_t at = 0; at < a->queries; at++) {
        const struct query y = query_of(&h, at);
        struct softmax s = {.out = f->out + (row * a->queries + at) * a->columns + head * a->head_dim};
        for (int64_t d = 0; d < a->head_dim; d++) s.out[d] = 0;
        for (int64_t first = 0; first < a->keys; first += SYCPU_KEY_BLOCK) attend_block(&y, first, &s);
        f->lse[task * a->queries + at] = s.begun ? s.top + syi_log(s.sum) : 0;
        for (int64_t d = 0; s.begun && d < a->head_dim; d++) s.out[d] *= 1 / s.sum;
    }
}

uint64_t SYCPU_REF(attention_workspace)(const struct sy_call *call, int threads)
{
    const struct sycpu_attention a = sycpu_attention_sizes(call, &call->out[0]);
    return syi_mul_u64((uint64_t)head_reals(&a), (uint64_t)threads * sizeof(sy_real));
}

int SYCPU_REF(attention)(void *context, const struct sy_call *call)
{
    const struct sycpu_attention a = sycpu_attention_forward(call);
    struct forward f = {&a, call->out[0].data, call->out[1].data, call->workspace};
    (void)context;
    sycpu_parallel(call, a.rows * a.heads, attend_head, &f);
    return SY_OK;
}

/* ---- gradient ---- */

struct gradient {
    const struct sycpu_attention *a;
    const sy_real *out, *lse, *dout; /* [b, tq, h * K], [b, h, tq] */
    sy_real *dq, *dkv;               /* packs; dkv is dq for self-attention */
    sy_real *dbias;                  /* [b, heads, buckets] of each row, or NULL */
    sy_real *ddense;                 /* [heads, tq, tk], or NULL */
    sy_real *scratch;                /* of all threads */
    int64_t reals;                   /* scratch of one thread */
};

/* Sums of dscore of one head. */
struct sums {
    sy_real *diagonal; /* [tq + tk] by key - query + tq */
    sy_real *dense;    /* [tq, tk], or NULL */
};

static void zero(sy_real *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = 0;
}

static void add(sy_real *a, const sy_real *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
}

/* One query and key: chains over q ascending in dk, dv and the sums, over k ascending in dq. */
static void pair_gradient(const struct gradient *g, const struct query *y, int64_t key, sy_real mean,
                          const struct sums *sums)
{
    const struct head *h = y->h;
    const struct sycpu_attention *a = g->a;
    const sy_real *dout = g->dout + (h->row * a->queries + y->at) * a->columns + h->head * a->head_dim;
    sy_real lse = g->lse[(h->row * a->heads + h->head) * a->queries + y->at];
    sy_real *dq = g->dq + sycpu_attention_q(a, h->row, h->head) + y->at * h->q_step;
    sy_real *dk = g->dkv + sycpu_attention_kv(a, h->row, h->head, 2) + key * h->kv_step;
    sy_real *dv = g->dkv + sycpu_attention_kv(a, h->row, h->head, 1) + key * h->kv_step;
    sy_real p = syi_exp(score(y, key) - lse), dp = 0;
    for (int64_t d = 0; d < a->head_dim; d++) dp = syi_fma(dout[d], value(h, key, d), dp);
    sy_real ds = p * (dp + (sy_real)0 - mean);
    for (int64_t d = 0; d < a->head_dim; d++) {
        dv[d] = syi_fma(p, dout[d], dv[d]);
        dk[d] = syi_fma(ds, y->q[d], dk[d]);
        dq[d] = syi_fma(ds, h->k[key * h->kv_step + d], dq[d]);
    }
    sums->diagonal[key - y->at + a->queries] += ds;
    if (sums->dense) sums->dense[y->at * a->keys + key] += ds;
}

static void query_gradient(const struct gradient *g, const struct query *y, const struct sums *sums)
{
    const struct head *h = y->h;
    const struct sycpu_attention *a = g->a;
    int64_t at = (h->row * a->queries + y->at) * a->columns + h->head * a->head_dim;
    sy_real *dq = g->dq + sycpu_attention_q(a, h->row, h->head) + y->at * h->q_step, mean = 0;
    int begun = 0;
    for (int64_t first = 0; first < a->keys; first += SYCPU_KEY_BLOCK) {
        const uint64_t keys = attended(y, first);
        if (keys && !begun) mean = ref_row_dot(g->dout + at, g->out + at, a->head_dim);
        if (keys) begun = 1;
        for (int k = 0; k < SYCPU_KEY_BLOCK; k++)
            if (keys >> k & 1) pair_gradient(g, y, first + k, mean, sums);
    }
    for (int64_t d = 0; d < a->head_dim; d++) dq[d] += (sy_real)0;
}

/* dense: where the gradients of the scores are added, or NULL. */
static void head_gradient(const struct gradient *g, int64_t row, int64_t head, sy_real *scratch,
                          sy_real *dense)
{
    const struct sycpu_attention *a = g->a;
    const struct head h = head_of(a, row, head, scratch);
    const struct sums sums = {scratch + head_reals(a), dense};
    zero(sums.diagonal, a->queries + a->keys);
    for (int64_t at = 0; at < a->queries; at++) {
        const struct query y = query_of(&h, at);
        query_gradient(g, &y, &sums);
    }
    for (int64_t key = 0; key < a->keys; key++) {
        sy_real *dk = g->dkv + sycpu_attention_kv(a, row, head, 2) + key * h.kv_step;
        sy_real *dv = g->dkv + sycpu_attention_kv(a, row, head, 1) + key * h.kv_step;
        for (int64_t d = 0; d < a->head_dim; d++) {
            dk[d] += (sy_real)0;
            dv[d] = h.mask ? SYI_DROP(dv[d] + (sy_real)0, h.mask[key]) : dv[d] + (sy_real)0;
        }
    }
    if (!g->dbias) return;
    sy_real *dbias = g->dbias + (row * a->heads + head) * a->buckets;
    zero(dbias, a->buckets);
    for (int64_t i = 0; i < a->queries + a->keys; i++) dbias[bucket(a, a->queries, i)] += sums.diagonal[i];
}

static void row_task(void *arg, int64_t task, int thread)
{
    const struct gradient *g = arg;
    head_gradient(g, task / g->a->heads, task % g->a->heads, g->scratch + thread * g->reals, NULL);
}

/* Partial sums of leaves that the walk over a tree holds at once next to the first. */
static int pending(const struct sycpu_attention *a)
{
    int n = 0;
    for (int64_t leaves = (a->rows + a->attr->leaf - 1) / a->attr->leaf; leaves > 1; leaves /= 2) n++;
    return n;
}

/* All rows of a head in order: a chain over the rows of each leaf, the tree over leaves by a stack of partial
 * sums, the lowest of which is the output. */
static void dense_task(void *arg, int64_t head, int thread)
{
    const struct gradient *g = arg;
    const int64_t n = g->a->queries * g->a->keys, leaf = g->a->attr->leaf;
    sy_real *scratch = g->scratch + thread * g->reals, *partial[64] = {g->ddense + head * n};
    int held = 0;
    for (int i = 1; i <= pending(g->a); i++)
        partial[i] = scratch + head_reals(g->a) + g->a->queries + g->a->keys + (i - 1) * n;
    for (int64_t row = 0; row < g->a->rows; row++) {
        if (row % leaf == 0) zero(partial[held++], n);
        head_gradient(g, row, head, scratch, partial[held - 1]);
        if ((row + 1) % leaf) continue;
        for (int64_t done = (row + 1) / leaf; done % 2 == 0; done /= 2, held--)
            add(partial[held - 2], partial[held - 1], n);
    }
    for (; held > 1; held--) add(partial[held - 2], partial[held - 1], n);
}

/* Chains over the rows of each leaf, then the tree over leaves; the sum ends in rows[0]. */
static void sum_rows(sy_real *rows, int64_t n_rows, int64_t leaf, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        if (i % leaf) add(rows + (i - i % leaf) * n, rows + i * n, n);
    for (int64_t s = leaf; s < n_rows; s *= 2)
        for (int64_t i = 0; i + s < n_rows; i += 2 * s) add(rows + i * n, rows + (i + s) * n, n);
}

/* Scratch of a thread: of a head, diagonals, partial sums of the dense bias's gradient. */
static int64_t gradient_reals(const struct sycpu_attention *a, int dense)
{
    return head_reals(a) + a->queries + a->keys + (dense ? pending(a) * a->queries * a->keys : 0);
}

uint64_t SYCPU_REF(attention_grad_workspace)(const struct sy_call *call, int threads)
{
    const struct sycpu_attention a = sycpu_attention_sizes(call, &call->in[6]);
    uint64_t reals = syi_mul_u64((uint64_t)gradient_reals(&a, call->out[3].rank), (uint64_t)threads);
    uint64_t buckets = syi_mul_u64((uint64_t)(a.rows * a.heads), (uint64_t)a.buckets);
    return syi_mul_u64(syi_add_u64(reals, buckets), sizeof(sy_real));
}

int SYCPU_REF(attention_grad)(void *context, const struct sy_call *call)
{
    const struct sycpu_attention a = sycpu_attention_backward(call);
    const int64_t n_bias = a.heads * a.buckets;
    int self = !call->out[1].rank;
    sy_real *work = call->workspace;
    struct gradient g = {.a = &a, .out = call->in[6].data, .lse = call->in[7].data, .dout = call->in[8].data};
    (void)context;
    g.dq = call->out[0].data;
    g.dkv = call->out[self ? 0 : 1].data;
    g.dbias = call->out[2].rank ? work : NULL;
    g.ddense = call->out[3].rank ? call->out[3].data : NULL;
    g.scratch = work + a.rows * n_bias;
    g.reals = gradient_reals(&a, call->out[3].rank);
    zero(g.dq, sycpu_count(&call->out[0]));
    if (!self) zero(g.dkv, sycpu_count(&call->out[1]));
    if (g.ddense)
        sycpu_parallel(call, a.heads, dense_task, &g);
    else
        sycpu_parallel(call, a.rows * a.heads, row_task, &g);
    if (!g.dbias) return SY_OK;
    sum_rows(g.dbias, a.rows, a.attr->leaf, n_bias);
    memcpy(call->out[2].data, g.dbias, (size_t)n_bias * sizeof(sy_real));
    return SY_OK;
}
