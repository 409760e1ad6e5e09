/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: every fast variant gives the bits of the reference; the reference agrees with a softmax written
 * down plainly in double; its gradients agree with finite differences; the bucket rule gives T5's buckets.
 * What segments, masks and dense biases mean is in test_attention_masks.c. */
#include "config.h"

#include <float.h>

#include "attention_case.h"
#include "kernel_doubles.h"

static const struct shape shapes[] = {
    /* self rows tq tk heads K blocks causal buckets dropout position */
    SHAPE(1, 5, 16, 16, 4, 32, 2, 0, 32, 0, 0),   SHAPE(1, 5, 16, 16, 4, 32, 4, 1, 32, 0, 0),
    SHAPE(1, 4, 24, 24, 2, 64, 1, 0, 32, 1, 0),   SHAPE(1, 4, 24, 24, 2, 64, 2, 1, 8, 1, 0),
    SHAPE(0, 8, 17, 23, 4, 16, 2, 0, 0, 0, 0),    SHAPE(0, 5, 1, 40, 2, 8, 1, 0, 0, 1, 0),
    SHAPE(1, 3, 1, 1, 1, 1, 1, 1, 4, 0, 0),       SHAPE(1, 4, 130, 130, 1, 16, 1, 1, 32, 1, 0),
    SHAPE(1, 5, 150, 150, 2, 20, 2, 0, 16, 1, 0), SHAPE(0, 4, 70, 129, 2, 33, 1, 0, 8, 0, 0),
    SHAPE(1, 3, 64, 64, 2, 48, 1, 1, 8, 0, 0),    SHAPE(0, 5, 3, 65, 3, 5, 3, 0, 0, 0, 0),
    SHAPE(0, 5, 129, 3, 1, 80, 1, 0, 4, 1, 0),    SHAPE(0, 5, 1, 33, 2, 32, 1, 1, 32, 0, 32),
    SHAPE(0, 5, 1, 80, 2, 12, 2, 1, 32, 0, 70),   SHAPE(0, 5, 2, 80, 2, 12, 2, 1, 32, 0, 15),
    SHAPE(1, 16, 20, 20, 4, 64, 4, 1, 32, 1, 0),  SHAPE(0, 6, 1, 24, 4, 64, 1, 1, 32, 0, 22),
    SHAPE(0, 6, 1, 150, 2, 84, 2, 0, 16, 0, 0),
};

#define SIZES(a, b, c, d, e, f)                                                                              \
    .self = a, .rows = b, .queries = c, .keys = d, .heads = e, .head_dim = f, .blocks = 1

static const struct shape general[] = {
    {SIZES(1, 5, 30, 30, 2, 8), .no_lengths = 1},
    {SIZES(1, 5, 30, 30, 2, 8), .no_lengths = 1, .causal = 1, .uniform = 1, .buckets = 16, .dropout = 1},
    {SIZES(1, 5, 90, 90, 2, 8), .causal = 1, .uniform = 1, .buckets = 16},
    {SIZES(1, 5, 90, 90, 2, 8), .no_lengths = 1, .segments = 1, .buckets = 16, .dropout = 1},
    {SIZES(1, 8, 90, 90, 2, 8), .no_lengths = 1, .segments = 1, .causal = 1, .uniform = 1},
    {SIZES(0, 5, 20, 80, 2, 8), .no_lengths = 1, .segments = 1, .uniform = 1, .dropout = 1},
    {SIZES(0, 5, 20, 80, 2, 8), .segments = 2, .dense = 1},
    {SIZES(0, 6, 20, 140, 2, 8), .mask = 1},
    {SIZES(0, 16, 20, 70, 4, 5), .mask = 1, .dense = 1, .uniform = 1, .buckets = 8, .no_lengths = 1},
    {SIZES(0, 6, 1, 70, 4, 5), .dense = 1, .buckets = 8, .causal = 1, .position = 50},
};

Test(attention, variants_equal_the_reference)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_shape(&shapes[i], 0);
    for (size_t i = 0; i < sizeof general / sizeof general[0]; i++) check_shape(&general[i], 0);
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
        s.no_lengths = kh_random() % 4 == 0;
        check_shape(&s, 0);
        s.segments = (int)(kh_random() % 3);
        s.mask = kh_random() % 3 == 0;
        s.uniform = kh_random() % 2;
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
    for (size_t i = 0; i < sizeof general / sizeof general[0]; i++)
        for (int wild = 1; wild <= 9; wild += 8) {
            check_shape(&general[i], -10 * wild);
            check_shape(&general[i], wild);
        }
}

static void check_on_device(struct shape s, int wild)
{
    s.rows = s.rows % 4 && s.rows > 3 ? 3
             : s.rows > 4             ? 4
                                      : s.rows; /* all of its lengths, and a tree of rows */
    check_shape_by(&s, wild, check_device);
}

static void check_device_mixed(struct kh *k, const char *what)
{
    kh_reference(k, what); /* the gradient's case reads it */
    if (!kh_device()->desc) return;
    kh_check_device_as(k, kh_device(), SY_BF16, SY_F32, what);
    kh_check_device_as(k, kh_device(), SY_F32, SY_BF16, what);
}

/* Tiles of 16, 32 and 64 queries, heads of several pieces of columns, few and many values that are special. */
Test(attention, cuda_equals_the_reference)
{
    static const struct shape more[] = {
        {SIZES(0, 2, 3, 70, 1, 70), .buckets = 8, .dropout = 1},
        {SIZES(1, 2, 20, 20, 1, 130), .causal = 1, .uniform = 1, .buckets = 16},
        {SIZES(0, 1, 66, 5, 2, 144), .dense = 1, .segments = 1},
        {SIZES(0, 8, 5, 9, 1, 3), .dense = 1, .mask = 1, .buckets = 4, .dropout = 1},
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        check_on_device(more[i], 0);
        check_shape_by(&more[i], 0, check_device_mixed);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (i != 8) check_on_device(shapes[i], i % 3 ? 3 * ((int)i % 2) : -10);
    for (size_t i = 0; i < sizeof general / sizeof general[0]; i++)
        check_on_device(general[i], i % 3 ? 9 * ((int)i % 2) : -10);
}

static void check_device_float(struct kh *k, const char *what)
{
    kh_reference(k, what);
    kh_compare_device(k, kh_device(), SY_F32, SY_F32, what);
}

/* So many pairs that the gradient's workspace does not hold them all at once. */
Test(attention, cuda_has_gradients_of_long_rows)
{
    static const struct shape s = {SIZES(0, 3, 64, 22000, 1, 4), .causal = 1, .buckets = 8, .dense = 1};
    check_shape_by(&s, 0, check_device_float);
}

/* ---- against a plain softmax ---- */

static void check_plain(const struct kh *k, const struct shape *s, int row, int head, int q)
{
    int dim = s->heads * s->head_dim, n = 0, blind;
    const float *out = (float *)k->want[0] + (row * s->queries + q) * dim + head * s->head_dim;
    double norm = 0, lse = ((float *)k->want[1])[(row * s->heads + head) * s->queries + q];
    double *p = calloc((size_t)s->keys, sizeof *p);
    cr_assert_not_null(p);
    for (int t = 0; t < s->keys; t++) n += plain_sees(k, s, row, q, t);
    blind = s->uniform && !n;
    for (int t = 0; t < s->keys; t++) {
        if (blind || plain_sees(k, s, row, q, t)) p[t] = blind ? 1 : exp(plain_score(k, s, row, head, q, t));
        norm += p[t];
    }
    cr_assert_float_eq(lse, norm > 0 ? log(norm) : 0, 1e-5);
    for (int d = 0; d < s->head_dim; d++) {
        double sum = 0;
        for (int t = 0; t < s->keys; t++)
            if (p[t] > 0) sum += p[t] / norm * packed(k, s, IN_KV, row, t, s->self ? 2 : 1, head, d);
        cr_assert_float_eq(out[d], sum, 1e-5);
    }
    free(p);
}

static void check_softmax(struct shape s)
{
    struct kh k;
    s.dropout = 0;
    struct sy_attr_attention attr = attr_of(&s);
    add_forward(&k, &s, &attr, 0);
    kh_reference(&k, "plain softmax");
    for (int q = 0; q < s.rows * s.heads * s.queries; q += 1 + q % 3)
        check_plain(&k, &s, q / s.queries / s.heads, q / s.queries % s.heads, q % s.queries);
    kh_end(&k);
}

Test(attention, reference_is_softmax_attention)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_softmax(shapes[i]);
    for (size_t i = 0; i < sizeof general / sizeof general[0]; i++) check_softmax(general[i]);
}

/* The mean of v * mask over all masks is v, a key is dropped for all queries at once. */
Test(attention, dropout_drops_keys)
{
    struct shape s = SHAPE(0, 40, 2, 50, 8, 1, 1, 0, 0, 1, 0);
    struct sy_attr_attention attr = attr_of(&s);
    struct kh k;
    double sum = 0;
    int same = 0, real = 0;
    add_forward(&k, &s, &attr, 0);
    memset(k.in[IN_Q].data, 0, kh_bytes(&k.in[IN_Q])); /* scores 0: plain means over keys */
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

/* A query without keys has constant scores, but its gradient is that of scores which happen to be equal: the
 * same forward call where it sees all keys and a dense bias takes what the scores are. */
static void show_all(struct doubles *f, const struct kh *k, const struct shape *s)
{
    double *mask = f->in[IN_MASK].data, *dense = f->in[IN_DENSE].data;
    for (int q = 0; q < s->queries; q++) {
        int seen = 0;
        for (int t = 0; t < s->keys; t++) seen += plain_sees(k, s, 0, q, t);
        for (int t = 0; !seen && t < s->keys; t++) {
            mask[q * s->keys + t] = 1;
            for (int head = 0; head < s->heads; head++)
                dense[(head * s->queries + q) * s->keys + t] -= plain_score(k, s, 0, head, q, t);
        }
    }
}

static void check_differences(struct doubles *f, const struct doubles *b, const struct shape *s, int output)
{
    static const int input_of[4] = {IN_Q, IN_KV, IN_TABLE, IN_DENSE};
    const double step = 1e-5, *dout = b->in[IN_DOUT].data;
    const int in = input_of[output], sparse = output < 2;
    for (int64_t i = 0; b->out[output].rank && i < sycpu_count(&b->out[output]); i += 1 + sparse * (i % 5)) {
        double got = ((double *)b->out[output].data)[i];
        if (isnan(((double *)f->in[in].data)[i])) {
            cr_assert_eq(got, 0, "gradient of padding");
            continue;
        }
        double want = loss(f, s, dout, in, i, step) - loss(f, s, dout, in, i, -step);
        want /= 2 * step;
        cr_assert_float_eq(got, want, 1e-6 * (1 + fabs(want)),
                           "output %d element %d: %.10g, differences give %.10g", output, (int)i, got, want);
    }
}

static void check_gradient(const struct shape *s)
{
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    struct doubles f, b;
    add_forward(&forward, s, &attr, 0);
    kh_reference(&forward, "gradient");
    add_backward(&backward, &forward, s->self);
    doubles_begin(&f, &forward, sycpu_ref64_attention_workspace);
    doubles_begin(&b, &backward, sycpu_ref64_attention_grad_workspace);
    sycpu_ref64_attention(NULL, &f.call);
    for (int i = 0; i < 2; i++)
        memcpy(b.in[IN_OUT + i].data, f.out[i].data, (size_t)sycpu_count(&f.out[i]) * sizeof(double));
    sycpu_ref64_attention_grad(NULL, &b.call);
    if (s->uniform) show_all(&f, &forward, s);
    for (int output = 0; output < 4; output++) check_differences(&f, &b, s, output);
    doubles_end(&f);
    doubles_end(&b);
    kh_end(&forward);
    kh_end(&backward);
}

Test(attention, gradient_is_that_of_finite_differences)
{
    static const struct shape cases[] = {
        SHAPE(1, 4, 6, 6, 2, 4, 2, 0, 8, 0, 0),   SHAPE(1, 4, 7, 7, 2, 3, 1, 1, 6, 1, 0),
        SHAPE(0, 5, 4, 7, 2, 3, 2, 0, 0, 1, 0),   SHAPE(0, 3, 3, 70, 1, 2, 1, 0, 4, 0, 0),
        SHAPE(1, 1, 66, 66, 1, 2, 1, 1, 8, 0, 0),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_gradient(&cases[i]);
}

Test(attention, gradient_of_general_calls_is_that_of_finite_differences)
{
    static const struct shape cases[] = {
        {SIZES(1, 4, 6, 6, 2, 4), .no_lengths = 1, .buckets = 8},
        {SIZES(1, 4, 9, 9, 2, 4), .no_lengths = 1, .segments = 1, .buckets = 8, .dropout = 1},
        {SIZES(0, 3, 5, 9, 2, 3), .no_lengths = 1, .segments = 2, .dense = 1},
        {SIZES(0, 8, 5, 7, 2, 3), .mask = 1, .dense = 1},
        {SIZES(0, 5, 5, 7, 2, 3), .dense = 1, .buckets = 8, .dropout = 1},
        {SIZES(0, 1, 8, 9, 2, 3), .no_lengths = 1, .mask = 1, .dense = 1, .uniform = 1, .dropout = 1},
        {SIZES(1, 1, 8, 8, 2, 3), .no_lengths = 1, .mask = 1, .dense = 1, .uniform = 1, .buckets = 8},
        {SIZES(0, 1, 6, 70, 1, 2), .no_lengths = 1, .mask = 1, .dense = 1, .uniform = 1},
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
