/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: every fast variant gives the bits of the reference; the reference agrees with a softmax written
 * down plainly in double; its gradients agree with finite differences; the bucket rule gives T5's buckets. */
#include "config.h"

#include <float.h>

#include "base/relpos.h"
#include "kernel_harness.h"

struct shape {
    int self, rows, queries, keys, heads, head_dim;
    int blocks; /* of a pack */
    int causal, buckets, dropout, position;
};

static struct sy_attr_attention attr_of(const struct shape *s)
{
    struct sy_attr_attention attr = {.head_dim = s->head_dim,
                                     .width = s->heads * s->head_dim / s->blocks,
                                     .bidirectional = !s->causal,
                                     .causal = s->causal,
                                     .max_distance = 20,
                                     .site = 7,
                                     .rate = s->dropout ? 0.3 : 0,
                                     .leaf = s->rows % 4 ? s->rows : s->rows / 4};
    return attr;
}

/* Lengths 0, 1, all and others; the elements behind them are NaN, which would show if they were read. */
static void fill_lengths(int32_t *length, struct sy_tensor *pack, const int32_t *same)
{
    for (int64_t row = 0; row < pack->dim[0]; row++) {
        int32_t all = (int32_t)pack->dim[1], some = (int32_t)(kh_random() % (uint32_t)(all + 1));
        length[row] = row % 5 == 0 ? all : row % 5 == 1 ? 1 : row % 5 == 2 ? 0 : some;
        if (same) length[row] = same[row];
        float *x = (float *)pack->data + row * all * pack->dim[2];
        for (int64_t i = length[row] * pack->dim[2]; i < all * pack->dim[2]; i++) x[i] = NAN;
    }
}

static void add_operands(struct kh *k, const struct shape *s)
{
    int columns = s->heads * s->head_dim;
    kh_in(k, SY_F32, 3, s->rows, s->queries, columns * (s->self ? 3 : 1));
    kh_in(k, SY_F32, 3, s->rows, s->keys, columns * (s->self ? 3 : 2));
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < sycpu_count(&k->in[i]); j++)
            ((float *)k->in[i].data)[j] *= 3.0f / (float)s->head_dim; /* scores of a size that matters */
    int32_t *q_length = kh_in(k, SY_I32, 1, s->rows), *kv_length = kh_in(k, SY_I32, 1, s->rows);
    fill_lengths(q_length, &k->in[0], NULL);
    if (s->self) memcpy(k->in[1].data, k->in[0].data, kh_bytes(&k->in[0]));
    fill_lengths(kv_length, &k->in[1], s->self ? q_length : NULL);
    if (s->buckets)
        kh_in(k, SY_F32, 2, s->heads, s->buckets);
    else
        kh_in_absent(k);
    int64_t *rng = kh_in(k, SY_I64, 1, 4);
    rng[SY_RNG_SEED] = 5;
    rng[SY_RNG_STEP] = 11;
    rng[SY_RNG_ROW0] = 1000;
}

static void add_forward(struct kh *k, const struct shape *s, const struct sy_attr_attention *attr, int wild)
{
    kh_begin(k, SY_OP_ATTENTION, attr, sizeof *attr);
    k->wild = wild;
    add_operands(k, s);
    if (s->position)
        *(int32_t *)kh_in(k, SY_I32, 1, 1) = s->position;
    else
        kh_in_absent(k);
    kh_out(k, SY_F32, 3, s->rows, s->queries, s->heads * s->head_dim);
    kh_out(k, SY_F32, 3, s->rows, s->heads, s->queries);
    k->out[0].first[0] = 3; /* global places move the dropout mask */
    k->out[0].first[2] = 2 * s->head_dim;
}

static void copy_in(struct kh *k, const struct sy_tensor *t, const void *data)
{
    struct sy_tensor *in = &k->in[k->n_in++];
    *in = *t;
    in->data = NULL;
    if (!t->rank) return;
    in->data = malloc(kh_bytes(t) + 1);
    cr_assert_not_null(in->data);
    memcpy(in->data, data, kh_bytes(t));
}

static void add_like(struct kh *k, const struct sy_tensor *t)
{
    k->out[k->n_out] = *t;
    k->out[k->n_out++].data = NULL;
}

/* Operands of the gradient, from a forward call that kh_check has run. */
static void add_backward(struct kh *k, const struct kh *forward, int self)
{
    static const struct sy_tensor none = {.dim = {1, 1, 1, 1, 1}};
    kh_begin(k, SY_OP_ATTENTION_GRAD, forward->attr, forward->attr_bytes);
    for (int i = 0; i < 6; i++) copy_in(k, &forward->in[i], forward->in[i].data);
    for (int i = 0; i < 2; i++) copy_in(k, &forward->out[i], forward->want[i]);
    const struct sy_tensor *out = &forward->out[0];
    float *dout = kh_in(k, SY_F32, 3, (int)out->dim[0], (int)out->dim[1], (int)out->dim[2]);
    for (int64_t row = 0; row < out->dim[0]; row++) /* what comes back to padding is not read */
        for (int64_t t = ((int32_t *)k->in[2].data)[row]; t < out->dim[1]; t++)
            for (int64_t c = 0; c < out->dim[2]; c++) dout[(row * out->dim[1] + t) * out->dim[2] + c] = NAN;
    add_like(k, &forward->in[0]);
    add_like(k, self ? &none : &forward->in[1]);
    add_like(k, forward->in[4].rank ? &forward->in[4] : &none);
}

/* kh_check, but an absent output (rank 0) is not compared. */
static void check(struct kh *k, const char *what)
{
    kh_reference(k, what);
    for (int v = 0; v < KH_VARIANTS; v++)
        for (int threads = 1; threads <= 3; threads += 2) {
            const struct kh_variant *variant = &kh_table[k->op][v];
            void *got[SY_MAX_OUT];
            if (!variant->run || !kh_have(v)) continue;
            kh_run(k, variant, threads, got, what);
            for (int i = 0; i < k->n_out; i++) {
                int64_t at = k->out[i].rank ? kh_differs(&k->out[i], got[i], k->want[i]) : -1;
                cr_assert_lt(at, 0, "%s: %s, %d threads: output %d differs at %lld: %a, the reference has %a",
                             what, variant->name, threads, i, (long long)at,
                             (double)((float *)got[i])[at < 0 ? 0 : at],
                             (double)((float *)k->want[i])[at < 0 ? 0 : at]);
                kh_free_guarded(got[i]);
            }
        }
}

static void check_shape(const struct shape *s, int wild)
{
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    char what[160];
    snprintf(what, sizeof what,
             "self %d b %d tq %d tk %d h %d K %d blocks %d causal %d buckets %d drop %d wild %d", s->self,
             s->rows, s->queries, s->keys, s->heads, s->head_dim, s->blocks, s->causal, s->buckets,
             s->dropout, wild);
    add_forward(&forward, s, &attr, wild);
    check(&forward, what);
    if (!s->position) {
        add_backward(&backward, &forward, s->self);
        check(&backward, what);
        kh_end(&backward);
    }
    kh_end(&forward);
}

static const struct shape shapes[] = {
    /* self rows tq tk heads K blocks causal buckets dropout position */
    {1, 5, 16, 16, 4, 32, 2, 0, 32, 0, 0},   {1, 5, 16, 16, 4, 32, 4, 1, 32, 0, 0},
    {1, 4, 24, 24, 2, 64, 1, 0, 32, 1, 0},   {1, 4, 24, 24, 2, 64, 2, 1, 8, 1, 0},
    {0, 8, 17, 23, 4, 16, 2, 0, 0, 0, 0},    {0, 5, 1, 40, 2, 8, 1, 0, 0, 1, 0},
    {1, 3, 1, 1, 1, 1, 1, 1, 4, 0, 0},       {1, 4, 130, 130, 1, 16, 1, 1, 32, 1, 0},
    {1, 5, 150, 150, 2, 20, 2, 0, 16, 1, 0}, {0, 4, 70, 129, 2, 33, 1, 0, 8, 0, 0},
    {1, 3, 64, 64, 2, 48, 1, 1, 8, 0, 0},    {0, 5, 3, 65, 3, 5, 3, 0, 0, 0, 0},
    {0, 5, 129, 3, 1, 80, 1, 0, 4, 1, 0},    {0, 5, 1, 33, 2, 32, 1, 1, 32, 0, 32},
    {0, 5, 1, 80, 2, 12, 2, 1, 32, 0, 70},   {0, 5, 2, 80, 2, 12, 2, 1, 32, 0, 15},
    {1, 16, 20, 20, 4, 64, 4, 1, 32, 1, 0},
};

Test(attention, variants_equal_the_reference)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_shape(&shapes[i], 0);
}

Test(attention, variants_equal_the_reference_on_random_shapes)
{
    for (int i = 0; i < 60; i++) {
        int heads = 1 << kh_random() % 3, self = (int)(kh_random() % 2),
            queries = 1 + (int)(kh_random() % 90);
        struct shape s = {
            .self = self, .rows = 1 + (int)(kh_random() % 5), .queries = queries, .heads = heads};
        s.keys = self ? queries : 1 + (int)(kh_random() % 140);
        s.head_dim = 1 + (int)(kh_random() % 40);
        s.blocks = 1 << kh_random() % 2 > heads ? 1 : heads;
        s.causal = self && kh_random() % 2;
        s.buckets = kh_random() % 2 ? 16 : 0;
        s.dropout = kh_random() % 2;
        check_shape(&s, 0);
    }
}

/* Denormals and zeros of both signs; then huge values, infinities and NaN. */
Test(attention, variants_equal_the_reference_on_special_values)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int wild = 1; wild <= 9; wild += 8) {
            check_shape(&shapes[i], -10 * wild);
            check_shape(&shapes[i], wild);
        }
}

/* ---- against a plain softmax ---- */

/* Element (t, part, head, d) of a row of a pack. */
static double packed(const struct kh *k, const struct shape *s, int in, int row, int t, int part, int head,
                     int d)
{
    const struct sy_tensor *pack = &k->in[in];
    int parts = (int)pack->dim[2] / (s->heads * s->head_dim), width = s->heads / s->blocks; /* in heads */
    int column = ((head / width * parts + part) * width + head % width) * s->head_dim + d;
    return ((float *)pack->data)[(row * pack->dim[1] + t) * pack->dim[2] + column];
}

static double plain_score(const struct kh *k, const struct shape *s, int row, int head, int q, int t)
{
    double sum = 0;
    for (int d = 0; d < s->head_dim; d++)
        sum += packed(k, s, 0, row, q, 0, head, d) * packed(k, s, 1, row, t, s->self ? 1 : 0, head, d);
    int64_t bucket = syi_relpos_bucket(t - q - s->position, !s->causal, s->buckets, 20);
    return sum + (s->buckets ? ((float *)k->in[4].data)[head * s->buckets + bucket] : 0);
}

static void check_plain(const struct kh *k, const struct shape *s, int row, int head, int q)
{
    int n = ((int32_t *)k->in[3].data)[row], dim = s->heads * s->head_dim;
    const float *out = (float *)k->want[0] + (row * s->queries + q) * dim + head * s->head_dim;
    double norm = 0, lse = ((float *)k->want[1])[(row * s->heads + head) * s->queries + q];
    if (s->causal && n > q + s->position + 1) n = q + s->position + 1;
    if (q >= ((int32_t *)k->in[2].data)[row]) n = 0;
    for (int t = 0; t < n; t++) norm += exp(plain_score(k, s, row, head, q, t));
    cr_assert_float_eq(lse, n ? log(norm) : 0, 1e-5);
    for (int d = 0; d < s->head_dim; d++) {
        double sum = 0;
        for (int t = 0; t < n; t++)
            sum += exp(plain_score(k, s, row, head, q, t)) / norm *
                   packed(k, s, 1, row, t, s->self ? 2 : 1, head, d);
        cr_assert_float_eq(out[d], sum, 1e-5);
    }
}

Test(attention, reference_is_softmax_attention)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct shape s = shapes[i];
        struct kh k;
        s.dropout = 0;
        struct sy_attr_attention attr = attr_of(&s);
        add_forward(&k, &s, &attr, 0);
        kh_reference(&k, "plain softmax");
        for (int q = 0; q < s.rows * s.heads * s.queries; q += 1 + q % 3)
            check_plain(&k, &s, q / s.queries / s.heads, q / s.queries % s.heads, q % s.queries);
        kh_end(&k);
    }
}

/* The mean of v * mask over all masks is v, a key is dropped for all queries at once. */
Test(attention, dropout_drops_keys)
{
    struct shape s = {0, 40, 2, 50, 8, 1, 1, 0, 0, 1, 0};
    struct sy_attr_attention attr = attr_of(&s);
    struct kh k;
    double sum = 0;
    int same = 0, real = 0;
    add_forward(&k, &s, &attr, 0);
    memset(k.in[0].data, 0, kh_bytes(&k.in[0])); /* scores 0: plain means over keys */
    for (int64_t i = 0; i < sycpu_count(&k.in[1]); i++) ((float *)k.in[1].data)[i] = 1;
    for (int i = 0; i < s.rows; i++) ((int32_t *)k.in[2].data)[i] = 2, ((int32_t *)k.in[3].data)[i] = 50;
    kh_reference(&k, "dropout");
    for (int row = 0; row < s.rows; row++)
        for (int c = 0; c < 8; c++, real++) {
            const float *out = (float *)k.want[0] + row * 16 + c;
            sum += out[0];
            same += out[0] == out[8];
        }
    cr_assert_eq(same, real);
    cr_assert_float_eq(sum / real, 1, 0.02);
    kh_end(&k);
}

/* ---- gradients ---- */

static void serial(void *arg, int64_t n, void (*fn)(void *, int64_t, int), void *fn_arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) fn(fn_arg, i, 0);
}

/* Doubles of what k holds: inputs, outputs filled with rubbish, workspace. */
struct doubles {
    struct sy_host host;
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
    struct sy_call call;
};

static void widen(struct sy_tensor *to, const struct sy_tensor *from)
{
    *to = *from;
    to->data = NULL;
    if (!from->rank) return;
    to->data = calloc((size_t)sycpu_count(from), sizeof(double));
    cr_assert_not_null(to->data);
    if (from->data && from->dtype != SY_F32) memcpy(to->data, from->data, kh_bytes(from));
    for (int64_t i = 0; from->data && from->dtype == SY_F32 && i < sycpu_count(from); i++)
        ((double *)to->data)[i] = ((float *)from->data)[i];
}

static void doubles_begin(struct doubles *d, const struct kh *k, kh_workspace_fn workspace)
{
    memset(d, 0, sizeof *d);
    d->host.threads = 1;
    d->host.parallel_for = serial;
    for (int i = 0; i < k->n_in; i++) widen(&d->in[i], &k->in[i]);
    for (int i = 0; i < k->n_out; i++) widen(&d->out[i], &k->out[i]);
    d->call = (struct sy_call){.host = &d->host, .in = d->in, .out = d->out, .attr = k->attr};
    if (workspace) d->call.workspace = calloc(1, workspace(&d->call, 1) + 1);
}

static void doubles_end(struct doubles *d)
{
    for (int i = 0; i < SY_MAX_IN; i++) free(d->in[i].data);
    for (int i = 0; i < SY_MAX_OUT; i++) free(d->out[i].data);
    free(d->call.workspace);
}

/* sum of dout * out over real queries, with element at of input `in` moved by `by`. */
static double loss(struct doubles *d, const struct shape *s, const double *dout, int in, int64_t at,
                   double by)
{
    double *x = (double *)d->in[in].data + at,
           *same = s->self && in == 0 ? (double *)d->in[1].data + at : NULL;
    double sum = 0, *out = d->out[0].data;
    *x += by;
    if (same) *same += by;
    sycpu_ref64_attention(NULL, &d->call);
    *x -= by;
    if (same) *same -= by;
    for (int64_t i = 0; i < sycpu_count(&d->out[0]); i++)
        if (!isnan(dout[i])) sum += dout[i] * out[i];
    return sum;
}

static void check_gradient(const struct shape *s)
{
    static const int input_of[3] = {0, 1, 4};
    const double step = 1e-5;
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    struct doubles f, b;
    add_forward(&forward, s, &attr, 0);
    kh_reference(&forward, "gradient");
    add_backward(&backward, &forward, s->self);
    doubles_begin(&f, &forward, NULL);
    doubles_begin(&b, &backward, sycpu_ref64_attention_grad_workspace);
    sycpu_ref64_attention(NULL, &f.call);
    for (int i = 0; i < 2; i++)
        memcpy(b.in[6 + i].data, f.out[i].data, (size_t)sycpu_count(&f.out[i]) * sizeof(double));
    sycpu_ref64_attention_grad(NULL, &b.call);
    for (int o = 0; o < 3; o++) {
        int in = input_of[o];
        for (int64_t i = 0; b.out[o].rank && i < sycpu_count(&b.out[o]); i += 1 + (in != 4) * (i % 5)) {
            double got = ((double *)b.out[o].data)[i], want = 0;
            if (isnan(((double *)f.in[in].data)[i])) {
                cr_assert_eq(got, 0, "gradient of padding");
                continue;
            }
            want = loss(&f, s, b.in[8].data, in, i, step) - loss(&f, s, b.in[8].data, in, i, -step);
            want /= 2 * step;
            cr_assert_float_eq(got, want, 1e-6 * (1 + fabs(want)),
                               "output %d element %d: %.10g, differences give %.10g", o, (int)i, got, want);
        }
    }
    doubles_end(&f);
    doubles_end(&b);
    kh_end(&forward);
    kh_end(&backward);
}

Test(attention, gradient_is_that_of_finite_differences)
{
    static const struct shape cases[] = {
        {1, 4, 6, 6, 2, 4, 2, 0, 8, 0, 0},   {1, 4, 7, 7, 2, 3, 1, 1, 6, 1, 0},
        {0, 5, 4, 7, 2, 3, 2, 0, 0, 1, 0},   {0, 3, 3, 70, 1, 2, 1, 0, 4, 0, 0},
        {1, 1, 66, 66, 1, 2, 1, 1, 8, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_gradient(&cases[i]);
}

/* ---- buckets ---- */

Test(attention, buckets_follow_the_rule)
{
    /* The rule again, in double: equal except where the logarithm falls on an edge. */
    for (int bidirectional = 0; bidirectional < 2; bidirectional++)
        for (int64_t distance = -300; distance <= 300; distance++) {
            int half = bidirectional ? 16 : 32, exact = half / 2;
            int64_t n = bidirectional ? llabs(distance) : distance < 0 ? -distance : 0;
            int64_t bucket = syi_relpos_bucket(distance, bidirectional, 32, 128), want = n;
            if (n >= exact)
                want = exact + (int64_t)(log((double)n / exact + 1e-9) / log(128.0 / exact) * (half - exact));
            if (want > half - 1) want = half - 1;
            cr_assert_eq(bucket, want + (bidirectional && distance > 0 ? half : 0), "distance %d",
                         (int)distance);
        }
    cr_assert_eq(syi_relpos_bucket(5, 1, 0, 128), 0);
    cr_assert_eq(syi_relpos_bucket(-5, 0, 1, 128), 0);
    cr_assert_eq(syi_relpos_bucket(-50, 0, 8, 2), 7);
}
