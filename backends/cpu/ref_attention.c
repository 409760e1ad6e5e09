/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient in plain C: one query after the other, in the orders of doc/numerics.md. */
#include "config.h"

#include "backends/cpu/attention.h"
#include "base/relpos.h"
#include "backends/cpu/ref.h"

/* One head of one row of the batch. */
struct head {
    const struct sycpu_attention *a;
    const sy_real *q, *k, *v; /* position 0 */
    int64_t q_step, kv_step;  /* elements between positions */
    int64_t row, head, n_keys;
};

static struct head head_of(const struct sycpu_attention *a, int64_t row, int64_t head)
{
    struct head h = {.a = a, .row = row, .head = head};
    h.q = (const sy_real *)a->q + sycpu_attention_q(a, row, head);
    h.k = (const sy_real *)a->kv + sycpu_attention_kv(a, row, head, 2);
    h.v = (const sy_real *)a->kv + sycpu_attention_kv(a, row, head, 1);
    h.q_step = a->q_parts * a->columns;
    h.kv_step = a->kv_parts * a->columns;
    h.n_keys = sycpu_attention_keys(a, row);
    return h;
}

static int64_t bucket(const struct sycpu_attention *a, int64_t query, int64_t key)
{
    return syi_relpos_bucket(key - query - a->position, (int)a->attr->bidirectional, a->buckets,
                             a->attr->max_distance);
}

static sy_real score(const struct head *h, int64_t query, int64_t key)
{
    const sy_real *q = h->q + query * h->q_step, *k = h->k + key * h->kv_step;
    sy_real s = 0;
    for (int64_t d = 0; d < h->a->head_dim; d++) s = syi_fma(q[d], k[d], s);
    s += (sy_real)0;
    if (h->a->bias) s += ((const sy_real *)h->a->bias)[h->head * h->a->buckets + bucket(h->a, query, key)];
    return s;
}

/* The values of a key times its mask. */
static sy_real value(const struct head *h, int64_t key, int64_t d, float mask)
{
    return SYI_DROP(h->v[key * h->kv_step + d], mask);
}

/* Adds a block of keys to the running softmax of a query: maximum *top, sum *sum, weighted values out [K]. */
static void attend_block(const struct head *h, int64_t query, int64_t first, int64_t n, sy_real *top,
                         sy_real *sum, sy_real *out)
{
    sy_real p[SYCPU_KEY_BLOCK], old = *top;
    for (int64_t k = 0; k < n; k++) {
        p[k] = score(h, query, first + k);
        *top = (k || first) && *top > p[k] ? *top : p[k];
    }
    sy_real factor = first ? syi_exp(old - *top) : 1;
    for (int64_t k = 0; k < n; k++) p[k] = syi_exp(p[k] - *top);
    *sum = *sum * factor + ref_row_sum(p, n);
    for (int64_t d = 0; d < h->a->head_dim; d++) out[d] *= factor;
    for (int64_t k = 0; k < n; k++) {
        float mask = sycpu_attention_mask(h->a, h->row, first + k, h->head);
        for (int64_t d = 0; d < h->a->head_dim; d++)
            out[d] = syi_fma(p[k], value(h, first + k, d, mask), out[d]);
    }
}

int SYCPU_REF(attention)(void *context, const struct sy_call *call)
{
    const struct sycpu_attention a = sycpu_attention_read(call, &call->out[0], &call->in[6]);
    sy_real *lse = call->out[1].data;
    (void)context;
    for (int64_t i = 0; i < a.rows * a.heads * a.queries; i++) {
        int64_t row = i / a.queries / a.heads, head = i / a.queries % a.heads, query = i % a.queries;
        struct head h = head_of(&a, row, head);
        sy_real top = 0, sum = 0, *out = (sy_real *)call->out[0].data;
        out += (row * a.queries + query) * a.columns + head * a.head_dim;
        for (int64_t d = 0; d < a.head_dim; d++) out[d] = 0;
        int64_t seen = sycpu_attention_seen(&a, h.n_keys, query);
        if (query >= sycpu_attention_queries(&a, row)) seen = 0;
        for (int64_t first = 0; first < seen; first += SYCPU_KEY_BLOCK)
            attend_block(&h, query, first, seen - first < SYCPU_KEY_BLOCK ? seen - first : SYCPU_KEY_BLOCK,
                         &top, &sum, out);
        lse[i] = seen ? top + syi_log(sum) : 0;
        for (int64_t d = 0; seen && d < a.head_dim; d++) out[d] *= 1 / sum;
    }
    return SY_OK;
}

/* ---- gradient ---- */

struct gradient {
    const sy_real *out, *lse, *dout; /* [b, tq, h * K], [b, h, tq] */
    sy_real *dq, *dkv;               /* packs; dkv is dq for self-attention */
    sy_real *diagonal;               /* [tq + tk] sums of dscore by key - query, of one head */
    sy_real *dbias;                  /* [b, heads, buckets] of each row, or NULL */
};

static void zero(sy_real *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = 0;
}

/* What one query adds: chains over q ascending in dk, dv and the diagonals, over k ascending in dq. */
static void query_gradient(const struct gradient *g, const struct head *h, int64_t query)
{
    const struct sycpu_attention *a = h->a;
    int64_t at = (h->row * a->queries + query) * a->columns + h->head * a->head_dim, dim = a->head_dim;
    const sy_real *dout = g->dout + at, *q = h->q + query * h->q_step;
    sy_real lse = g->lse[(h->row * a->heads + h->head) * a->queries + query];
    sy_real mean = ref_row_dot(dout, g->out + at, dim);
    sy_real *dq = g->dq + sycpu_attention_q(a, h->row, h->head) + query * h->q_step;
    for (int64_t key = 0; key < sycpu_attention_seen(a, h->n_keys, query); key++) {
        sy_real *dk = g->dkv + sycpu_attention_kv(a, h->row, h->head, 2) + key * h->kv_step;
        sy_real *dv = g->dkv + sycpu_attention_kv(a, h->row, h->head, 1) + key * h->kv_step;
        float mask = sycpu_attention_mask(a, h->row, key, h->head);
        sy_real p = syi_exp(score(h, query, key) - lse), dp = 0;
        for (int64_t d = 0; d < dim; d++) dp = syi_fma(dout[d], value(h, key, d, mask), dp);
        sy_real ds = p * (dp + (sy_real)0 - mean);
        for (int64_t d = 0; d < dim; d++) {
            dv[d] = syi_fma(p, dout[d], dv[d]);
            dk[d] = syi_fma(ds, q[d], dk[d]);
            dq[d] = syi_fma(ds, h->k[key * h->kv_step + d], dq[d]);
        }
        g->diagonal[key - query + a->queries] += ds;
    }
    for (int64_t d = 0; d < dim; d++) dq[d] += (sy_real)0;
}

static void head_gradient(const struct gradient *g, const struct head *h)
{
    const struct sycpu_attention *a = h->a;
    zero(g->diagonal, a->queries + a->keys);
    for (int64_t query = 0; query < sycpu_attention_queries(a, h->row); query++) query_gradient(g, h, query);
    for (int64_t key = 0; key < h->n_keys; key++) {
        sy_real *dk = g->dkv + sycpu_attention_kv(a, h->row, h->head, 2) + key * h->kv_step;
        sy_real *dv = g->dkv + sycpu_attention_kv(a, h->row, h->head, 1) + key * h->kv_step;
        float mask = sycpu_attention_mask(a, h->row, key, h->head);
        for (int64_t d = 0; d < a->head_dim; d++) {
            dk[d] += (sy_real)0;
            dv[d] = SYI_DROP(dv[d] + (sy_real)0, mask);
        }
    }
    if (!g->dbias) return;
    sy_real *dbias = g->dbias + (h->row * a->heads + h->head) * a->buckets;
    zero(dbias, a->buckets);
    for (int64_t i = 0; i < a->queries + a->keys; i++) dbias[bucket(a, a->queries, i)] += g->diagonal[i];
}

/* Chains over the rows of each leaf, then the tree over leaves; the sum ends in rows[0]. */
static void sum_rows(sy_real *rows, int64_t n_rows, int64_t leaf, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; i % leaf && j < n; j++) rows[(i - i % leaf) * n + j] += rows[i * n + j];
    for (int64_t s = leaf; s < n_rows; s *= 2)
        for (int64_t i = 0; i + s < n_rows; i += 2 * s)
            for (int64_t j = 0; j < n; j++) rows[i * n + j] += rows[(i + s) * n + j];
}

uint64_t SYCPU_REF(attention_grad_workspace)(const struct sy_call *call, int threads)
{
    const struct sycpu_attention a = sycpu_attention_sizes(call, &call->in[6]);
    (void)threads;
    return (uint64_t)(a.queries + a.keys + a.rows * a.heads * a.buckets) * sizeof(sy_real);
}

int SYCPU_REF(attention_grad)(void *context, const struct sy_call *call)
{
    const struct sycpu_attention a = sycpu_attention_read(call, &call->in[6], NULL);
    int self = !call->out[1].rank;
    sy_real *work = call->workspace;
    struct gradient g = {.out = call->in[6].data, .lse = call->in[7].data, .dout = call->in[8].data};
    (void)context;
    g.dq = call->out[0].data;
    g.dkv = call->out[self ? 0 : 1].data;
    g.diagonal = work;
    g.dbias = call->out[2].rank ? work + a.queries + a.keys : NULL;
    zero(g.dq, sycpu_count(&call->out[0]));
    if (!self) zero(g.dkv, sycpu_count(&call->out[1]));
    for (int64_t row = 0; row < a.rows; row++)
        for (int64_t head = 0; head < a.heads; head++) {
            struct head h = head_of(&a, row, head);
            head_gradient(&g, &h);
        }
    if (!g.dbias) return SY_OK;
    sum_rows(g.dbias, a.rows, a.attr->leaf, a.heads * a.buckets);
    for (int64_t i = 0; i < a.heads * a.buckets; i++) ((sy_real *)call->out[2].data)[i] = g.dbias[i];
    return SY_OK;
}
